"""Words: BM25 over a column of texts, by an inverted index that is kept in memory beside the column.

    texts ──split──▶ lists of words ──▶ Postings (postings.py) ──┐
    query ──split──▶ words ──────────────────────────────────────┴──▶ BM25 of each item that has one of them

A word is a run of letters, marks and digits, compared without case after NFKC normalization. There is no stemming, and
no list of stop words: frequent words weigh little.
"""

import unicodedata
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestcode.arrays import Doubles, Ids
from nestcode.errors import import_extra
from nestcode.search.filters import EVERYTHING, Filter
from nestcode.search.postings import Postings
from nestcode.search.runs import Positions, SortedRun

pa = import_extra("pyarrow", extra="arrow", purpose="attributes of items")

TEXTS = 1000  # of a column, that are Python's at once, in the cache
SATURATION, LENGTH_NORMALIZATION = 1.2, 0.75  # k1 and b of BM25


class _Separators(dict[int, int]):
    """Spaces in the place of what is no letter, mark or digit, by code point; ends of texts stay."""

    def __missing__(self, code: int) -> int:
        self[code] = code if unicodedata.category(chr(code))[0] in "LMN" else ord(" ")
        return self[code]


END = "\n"  # of a text among others: nothing is composed across it
SEPARATORS = _Separators({ord(END): ord(END)})


def split(text: str) -> list[str]:
    """Return the words of a text.

    >>> split("It's 100 %: ÉTÉ")
    ['it', 's', '100', 'été']
    """
    return next(split_all([text]))


def split_all(texts: Sequence[str]) -> Iterator[list[str]]:
    """Return the words of each text. All are normalized as one text, in a fraction of the time.

    >>> list(split_all(["One rose.", "", "Two"]))
    [['one', 'rose'], [], ['two']]
    """
    joined = END.join([text.replace(END, " ") for text in texts])
    normal = unicodedata.normalize("NFKC", joined).casefold().translate(SEPARATORS)
    return map(str.split, normal.split(END))


class _Numbers(dict[str, int]):
    """Words, numbered as they come."""

    def __missing__(self, word: str) -> int:
        self[word] = len(self)
        return self[word]


class Words:
    """The words of a column of texts, with the number of words in each text.

    >>> words = Words(pa.array(["a rose is a rose", None, "A thorn."]))
    >>> words.postings["a"].tolist(), words.postings.counts("a").tolist(), words.lengths.tolist()
    ([0, 2], [2, 1], [5, 0, 2])
    """

    def __init__(self, texts: Any) -> None:
        names, codes, lengths = _Numbers(), array("i"), array("q")
        for first in range(0, len(texts), TEXTS):
            for words in split_all(texts.slice(first, TEXTS).fill_null("").to_pylist()):
                codes.extend(map(names.__getitem__, words))
                lengths.append(len(words))
        self.lengths: NDArray[np.int64] = np.array(lengths, dtype=np.int64)
        self.count, self.total = int(np.count_nonzero(self.lengths)), len(codes)  # texts with words, words
        encoded = pa.DictionaryArray.from_arrays(pa.array(np.array(codes)), pa.array(list(names), pa.string()))
        self.postings = Postings(pa.LargeListArray.from_arrays(np.cumsum([0, *self.lengths]), encoded))


def bm25(runs: Sequence[SortedRun], column: str, text: str, k: int, allowed: Filter = EVERYTHING) -> Ids:
    """Return the ids of the k best matches of a text, best first; items without any of its words are none.

    Statistics are those of all items that were not deleted, whatever a filter allows.

    Args:
        runs: of an index.
        column: whose texts are compared.
        text: the query.
        k: how many ids, or fewer.
        allowed: the items that may be found.

    """
    held = [(run, run.attributes.words(column)) for run in runs if run.attributes is not None]
    gone = [words.lengths[run.tombstones] for run, words in held]
    count = sum(words.count - np.count_nonzero(own) for (_, words), own in zip(held, gone, strict=True))
    total = sum(words.total - int(own.sum()) for (_, words), own in zip(held, gone, strict=True))
    scores: list[Doubles] = [np.zeros(len(words.lengths)) for _, words in held]
    for word, times in Counter(split(text)).items():
        found = [_live(run, words.postings, word) for run, words in held]
        having = sum(len(positions) for positions, _ in found)
        weight = times * np.log1p((count - having + 0.5) / (having + 0.5))
        for (_, words), (positions, often), own in zip(held, found, scores, strict=True):
            relative = words.lengths[positions] * (count / max(total, 1))
            own[positions] += (
                weight * often / (often + SATURATION * (1 - LENGTH_NORMALIZATION + LENGTH_NORMALIZATION * relative))
            )
    ids, best = [np.empty(0, dtype=np.int64)], [np.empty(0)]
    for (run, _), own in zip(held, scores, strict=True):
        positions = np.flatnonzero(own).astype(np.uint32)
        positions = positions[allowed.kept(run).contains(positions)]
        if len(positions) > k:  # and items that tie with the k-th
            positions = positions[own[positions] >= np.partition(own[positions], -k)[-k]]
        ids.append(run.ids_at(positions))
        best.append(own[positions])
    every = np.concatenate(ids)
    chosen: Ids = every[np.lexsort((every, -np.concatenate(best)))[:k]]
    return chosen


def _live(run: SortedRun, postings: Postings, word: str) -> tuple[Positions, NDArray[Any]]:
    """Return the positions of the items that have a word and were not deleted, and how often they have it."""
    positions, counts = postings[word], postings.counts(word)
    if not len(run.tombstones):
        return positions, counts
    kept = EVERYTHING.kept(run).contains(positions)
    return positions[kept], counts[kept]
