"""Hybrid search: BM25 and rank fusion against plain twins, also after changes of an index; wrong texts are refused."""

import math
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nestcode import Codes, Index, LinearCoder
from nestcode.errors import InvalidInput
from nestcode.search import reciprocal_rank_fusion
from nestcode.search.hybrid import MIN_DEPTH
from nestcode.search.words import Words, bm25, pa, split, split_all

LETTERS = st.sampled_from(
    ["a", "b", "A", "é", "e\u0301", "ﬁ", "ß", "ss", "7", " ", " ", "-", "_", "हि", "\u2028", "😀"]
)
TEXTS = st.none() | st.lists(LETTERS, max_size=8).map("".join)
X = np.random.default_rng(0).standard_normal((400, 6)).astype(np.float32)
WORDS = ["red", "blue", "rose", "thorn", "garden", "house", "river", "stone", "bridge", "path"]
TITLES = [" ".join(np.random.default_rng(i).choice(WORDS, i % 5)) for i in range(len(X))]


def scores(texts: dict[int, str | None], query: str) -> dict[int, float]:
    """Return the BM25 of each text that has a word of the query."""
    words = {item: split(text or "") for item, text in texts.items()}
    counted = [own for own in words.values() if own]
    found: dict[int, float] = {}
    for word, times in Counter(split(query)).items():
        having = [item for item, own in words.items() if word in own]
        for item in having:
            own, mean = words[item], sum(map(len, counted)) / len(counted)
            often = own.count(word)
            weight = math.log(1 + (len(counted) - len(having) + 0.5) / (len(having) + 0.5))
            found[item] = found.get(item, 0) + times * weight * often / (often + 1.2 * (0.25 + 0.75 * len(own) / mean))
    return found


def ranked(found: dict[int, float], k: int) -> list[int]:
    return sorted(found, key=lambda item: (-round(found[item], 9), item))[:k]


def index_of(texts: list[str | None]) -> Index:
    index = Index(width=9)
    codes = Codes.from_bits(np.arange(len(texts))[:, None] >> np.arange(9) & 1)
    index.add(codes, attributes={"title": pa.array(texts, pa.string())})
    return index


@settings(max_examples=200)
@given(st.lists(TEXTS, min_size=1, max_size=12), st.lists(LETTERS, max_size=6).map("".join), st.integers(1, 12))
def test_words_are_ranked_by_bm25(texts: list[str | None], query: str, k: int) -> None:
    index = index_of(texts)
    own = scores(dict(enumerate(texts)), query)
    found = bm25(index._live.current.runs, "title", query, k).tolist()
    np.testing.assert_allclose([own[item] for item in found], [own[item] for item in ranked(own, k)])
    assert len(set(found)) == len(found)


@given(st.text())
def test_words_are_letters_marks_and_digits_without_case(text: str) -> None:
    words = split(text)
    assert all(re.fullmatch(r"[^\s!-/:-@\[-`{-~]+", word) for word in words)
    assert split(" ".join(words)) == words
    assert split(f"({text})!") == words
    assert split("STRASSE, Cafe\u0301 x_1") == ["strasse", "café", "x", "1"]


@given(st.lists(st.text() | LETTERS, min_size=1, max_size=5))
def test_words_of_texts_together_are_those_of_each(texts: list[str]) -> None:
    """Nothing is composed across the end of a text, as "e" and an accent are within one."""
    assert list(split_all(texts)) == [split(text) for text in texts]
    assert [len(words) for words in split_all(["e", "\u0301", "a\nb"])] == [1, 1, 2]


def test_lengths_and_counts_of_words() -> None:
    texts = ["a rose is a rose", None, "", "A thorn!", "--"]
    words = Words(pa.array(texts))
    assert words.lengths.tolist() == [5, 0, 0, 2, 0]
    assert (words.count, words.total) == (2, 7)
    for word in ("a", "rose", "thorn", "none"):
        held = [(i, split(text or "").count(word)) for i, text in enumerate(texts) if word in split(text or "")]
        assert list(zip(words.postings[word].tolist(), words.postings.counts(word).tolist(), strict=True)) == held


RANKINGS = st.lists(st.lists(st.integers(0, 12), unique=True, max_size=9), max_size=4)


@given(RANKINGS, st.integers(1, 12))
def test_fusion_sums_reciprocal_ranks(rankings: list[list[int]], k: int) -> None:
    summed: Counter[int] = Counter()
    for ranking in rankings:
        for rank, item in enumerate(ranking, start=1):
            summed[item] += 1 / (60 + rank)  # type: ignore[assignment]
    expected = sorted(summed, key=lambda item: (-round(summed[item], 12), item))[:k]
    fused = reciprocal_rank_fusion([[*ranking, -1] for ranking in rankings], k).tolist()
    np.testing.assert_allclose([summed[item] for item in fused], [summed[item] for item in expected])
    assert len(fused) == len(expected)
    assert reciprocal_rank_fusion([list(range(12))], 3).tolist() == [0, 1, 2]


def changed(index: Index, folder: Path) -> list[Any]:
    """Changes of an index of X, after which it has the same attributes."""
    return [
        lambda: None,
        lambda: index.remove(range(0, 300, 7)),
        index.compact,
        lambda: index.save(folder, overwrite=True),
        lambda: index.add(X[:3], ids=[0, 7, 14], attributes={"title": TITLES[:3]}),
        lambda: index.add(X[3:5], ids=[1000, 1001]),  # without a title
    ]


@pytest.mark.parametrize("vectors", ["float32", None])
def test_a_hybrid_search_fuses_both_rankings(vectors: Any, tmp_path: Path) -> None:
    index = Index(LinearCoder(width=48).fit(X), vectors=vectors)
    index.add(X, attributes={"title": TITLES, "year": np.arange(len(X)) % 10})
    even = index.filter("year IN (0, 2, 4, 6, 8)")
    for change in changed(index, tmp_path):
        change()
        for opened in (index, *([Index.open(tmp_path)] if (tmp_path / "manifest.json").exists() else [])):
            titles = dict(zip(opened.ids.tolist(), opened.attributes(opened.ids)["title"].to_pylist(), strict=True))
            for wanted, allowed in ((None, titles.keys()), (even, set(opened.matching(even).tolist()))):
                hits = opened.search(X[:4], 8, text="red ROSE: stone", filter=wanted)
                near = opened.search(X[:4], MIN_DEPTH, filter=wanted)
                best = ranked({item: s for item, s in scores(titles, "red rose stone").items() if item in allowed}, 100)
                for query in range(4):
                    assert hits.ids[query].tolist() == reciprocal_rank_fusion([near.ids[query], best], 8).tolist()
                one = opened.search(X[2], 8, text={"title": "red rose stone"}, filter=wanted)
                assert one.ids.tolist() == hits.ids[2].tolist()
                assert one.distances.tolist() == hits.distances[2].tolist()
                every = opened.search(X[2], len(opened), candidates=len(opened))
                known = dict(zip(every.ids.tolist(), every.distances.tolist(), strict=True))
                np.testing.assert_allclose(one.distances, [known[item] for item in one.ids.tolist()], rtol=1e-5)


def test_each_query_may_have_a_text_of_its_own() -> None:
    index = Index(LinearCoder(width=48).fit(X), vectors="float32")
    index.add(X, attributes={"title": TITLES})
    both = index.search(X[:2], 5, text=["red", "bridge"])
    for query, text in enumerate(["red", "bridge"]):
        assert both.ids[query].tolist() == index.search(X[query], 5, text=text).ids.tolist()
    assert index.search(X[:2], 5, text="!?").ids.tolist() == index.search(X[:2], 5).ids.tolist()
    none = index.search(X[0], 5, text="red", filter=[])
    assert none.ids.tolist() == [-1] * 5
    assert np.isinf(none.distances).all()


def test_a_code_is_a_query_too() -> None:
    index = index_of(["a", "b", "a b", None] * 20)
    hits = index.search(index.codes([5]), 3, text="a")
    assert hits.ids.shape == (1, 3)
    assert hits.distances[0, hits.ids[0] == 5].tolist() == [0] * (5 in hits.ids)


WRONG = [
    (5, "must be a string, or a list of one for each query, got 5"),
    ([5], "must be a string, or a list of one for each query, got 5"),
    (["a", "b"], "must be one string for each query, got 2 for 1"),
    ("\ud800", "must be Unicode, got a lone surrogate"),
    ({"title": "a", "year": "b"}, "must name one column, got 2"),
    ({"year": "a"}, "a column must be one that the index has, title, got 'year' for text"),
]


@pytest.mark.parametrize(("text", "named"), WRONG, ids=range(len(WRONG)))
def test_wrong_texts_are_refused_by_name(text: Any, named: str) -> None:
    index = Index(LinearCoder(width=8).fit(X))
    index.add(X[:5], attributes={"title": TITLES[:5], "year": range(5)})
    with pytest.raises(InvalidInput, match=named):
        index.search(X[0], text=text)


def test_a_text_needs_a_column_of_strings() -> None:
    index = Index(LinearCoder(width=8).fit(X))
    with pytest.raises(InvalidInput, match="this index has none: add one with attributes="):
        index.search(X[0], text="a")
    index.add(X[:2], attributes={"title": ["a", "b"], "body": ["a", "b"]})
    with pytest.raises(InvalidInput, match=r"this index has 2: title, body: name one, as in text=\{'title': 'words'\}"):
        index.search(X[0], text="a")
    assert index.search(X[0], 1, text={"body": "b"}).ids.shape == (1,)
    with pytest.raises(InvalidInput, match="a ranking must be the ids of one query, got shape"):
        reciprocal_rank_fusion([[[1, 2]]])
