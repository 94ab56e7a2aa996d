"""Search: the items nearest to a query, by looking at few and at fewer more closely.

    queries ──▶ nearest cells, until they hold `candidates` items
            ──▶ the best `rerank` of these by rough distances, from part of their bits
            ──▶ the best k of those by full distances: to decoded codes, or to the vectors themselves

With as many candidates as there are items, all of them are compared by full distances.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from nestcode.arrays import check_int
from nestcode.coders import Coder
from nestcode.coders.base import BaseLayout, CodebookLayout, ScalarLayout
from nestcode.codes import Codes, thread_count
from nestcode.errors import InvalidInput
from nestcode.index.live import Live
from nestcode.search.adc import CodebookScorer
from nestcode.search.decoded import DecodedScorer, RefinedScorer
from nestcode.search.evaluation import Trials
from nestcode.search.fastscan import FastScanScorer
from nestcode.search.hamming import HammingScorer, NetworkScorer
from nestcode.search.hits import Evaluation, Hits, RangeHits
from nestcode.search.plan import Rank, Request, answer, check_filter
from nestcode.search.scorer import Metric
from nestcode.search.view import Prepared, View

MOST_MISSING = 1 << 16  # k may be beyond the number of items, as ids of -1 say, but not without bounds


class Searchable:
    """The searches of an index."""

    width: int
    coder: Coder | None
    candidates: int | None = None  # the effort of searches that do not say it; `tune` chooses both
    rerank: int | None = None
    _live: Live
    _views: dict[str, tuple[Prepared, View]]

    def _encode(self, items: Codes | ArrayLike) -> Codes:
        raise NotImplementedError

    def search(
        self,
        queries: Codes | ArrayLike,
        k: int = 10,
        *,
        candidates: int | None = None,
        rerank: int | None = None,
        rank: Rank | None = None,
        metric: Metric | None = None,
        vectors: ArrayLike | None = None,
        filter: ArrayLike | Iterable[int] | None = None,  # noqa: A002
        threads: int | None = 1,
    ) -> Hits:
        """The k items nearest to each query.

        >>> from nestcode import CellCoder, Index
        >>> X = np.random.default_rng(0).standard_normal((2000, 8)).astype(np.float32)
        >>> index = Index(CellCoder(width=64).fit(X))
        >>> index.add(X)
        >>> index.search(X[:3], k=1).ids.tolist()
        [[0], [1], [2]]
        >>> hits = index.search(X[7], k=2, vectors=X)  # the distances of the vectors themselves
        >>> int(hits.ids[0]), float(hits.distances[0])
        (7, 0.0)

        Args:
            queries: one vector, (n, features), or `Codes`.
            k: how many.
            candidates: how many items to look at: those in the cells nearest to the query. More find more and take
                longer; as many as the index has find all that ranking can. By default what `tune` chose, or 1,000 and
                a fiftieth of all.
            rerank: how many of them, the best by rough distances, are ranked by full ones: what `tune` chose, or 10 k
                and at least 100.
            rank: "asymmetric" compares vectors with what codes decode to, "hamming" bits with bits, "exact" vectors
                with `vectors`. By default the best that is there.
            metric: "l2" gives squared distances, "cosine" those of items scaled to length 1, "inner" negative inner
                products; the coder's by default.
            vectors: (n, features), the items themselves by id: an array or a memory map.
            filter: which items may be found: their ids, or a mask by id.
            threads: how many share a batch; None takes every core.

        """
        request = Request(self.coder, self._encode, queries, rank, metric, vectors)
        view = self._view(request, filter)
        k = check_k(k, view.count)
        effort = max(self._effort(candidates, view.count), k)  # k are found wherever there are so many
        keep = self._rerank(rerank, k)
        found = answer(view, request, k, effort, keep, thread_count(threads))
        if request.single:
            return Hits(found.ids[0], found.distances[0], int(found.compared[0]))
        return found

    def range_search(
        self,
        queries: Codes | ArrayLike,
        radius: float,
        *,
        candidates: int | None = None,
        rank: Rank | None = None,
        metric: Metric | None = None,
        vectors: ArrayLike | None = None,
        filter: ArrayLike | Iterable[int] | None = None,  # noqa: A002
        threads: int | None = 1,
    ) -> Any:
        """All items within a distance, nearest first: `Hits` of one query, `RangeHits` of several.

        >>> from nestcode import Index
        >>> index = Index(width=3)
        >>> index.add(Codes.from_bits([[0, 0, 1], [0, 0, 0], [0, 1, 0], [1, 1, 1]]))
        >>> index.range_search(Codes.from_bits([[0, 0, 1]]), 1)[0].ids
        array([0, 1])

        The distances are those of `search`, as are the other arguments; only candidates are found.
        """
        request = Request(self.coder, self._encode, queries, rank, metric, vectors)
        if not isinstance(radius, float | int | np.floating | np.integer) or not np.isfinite(radius):
            raise InvalidInput(f"radius must be a finite number, got {radius!r}")
        view = self._view(request, filter)
        effort, many = self._effort(candidates, view.count), thread_count(threads)
        found: list[Hits] = []
        for query in range(len(request)):
            k = 64
            while True:
                hits = answer(view, request, k, effort, max(4 * k, 100), many, query)
                inside = hits.distances[0] <= radius
                if not inside[-1] or hits.ids[0, -1] < 0 or k >= hits.compared[0]:
                    break
                k = min(4 * k, int(hits.compared[0]))
            inside &= hits.ids[0] >= 0
            found.append(Hits(hits.ids[0, inside], hits.distances[0, inside], int(hits.compared[0])))
        return found[0] if request.single else RangeHits(tuple(found))

    def evaluate(
        self,
        queries: Codes | ArrayLike,
        k: int = 10,
        *,
        candidates: int | None = None,
        rerank: int | None = None,
        rank: Rank | None = None,
        metric: Metric | None = None,
        vectors: ArrayLike | None = None,
        exact: ArrayLike | None = None,
        threads: int | None = 1,
    ) -> Evaluation:
        """How much of an exact search a search finds, and how much work it does.

        >>> from nestcode import CellCoder, Index
        >>> X = np.random.default_rng(0).standard_normal((2000, 8)).astype(np.float32)
        >>> index = Index(CellCoder(width=24).fit(X))
        >>> index.add(X)
        >>> round(index.evaluate(X[:100], k=5, vectors=X).recall, 1)  # the last few are ranked by vectors
        1.0
        >>> round(index.evaluate(X[:100], k=5, exact=X).recall, 1)  # by codes alone
        0.7

        Exact is a comparison with all vectors, which are `exact`, or `vectors` where the search has them too; without
        either it is one with all codes, and tells what is lost by looking at few. Use queries that are not in the
        index: those that are find themselves.
        """
        trials = self._trials(queries, k, exact, rank=rank, metric=metric, vectors=vectors, threads=threads)
        return trials.run(self._effort(candidates, trials.count), self._rerank(rerank, k))

    def tune(
        self,
        queries: Codes | ArrayLike,
        target_recall: float = 0.9,
        k: int = 10,
        *,
        rank: Rank | None = None,
        metric: Metric | None = None,
        vectors: ArrayLike | None = None,
        exact: ArrayLike | None = None,
        threads: int | None = 1,
    ) -> Evaluation:
        """Choose `candidates` and `rerank` of later searches: the quickest that reach a recall, by measurement.

        >>> from nestcode import CellCoder, Index
        >>> X = np.random.default_rng(0).standard_normal((4000, 8)).astype(np.float32)
        >>> index = Index(CellCoder(width=64).fit(X[:3900]))
        >>> index.add(X[:3900])
        >>> index.tune(X[3900:], target_recall=0.9).recall >= 0.9
        True
        >>> index.candidates < 2000
        True

        Recall is that of `evaluate`. The choice is kept in `index.candidates` and `index.rerank`, not in files. Where
        none is enough, it is the number of all items, and a warning says so. Tune again when the index has grown.
        """
        if not isinstance(target_recall, float | int | np.floating) or not 0 < target_recall <= 1:
            raise InvalidInput(f"target_recall must be above 0 and at most 1, got {target_recall!r}")
        trials = self._trials(queries, k, exact, rank=rank, metric=metric, vectors=vectors, threads=threads)
        best = trials.quickest(float(target_recall))
        self.candidates, self.rerank = best.candidates, best.rerank
        return best

    # how

    def _trials(self, queries: Codes | ArrayLike, k: int, exact: ArrayLike | None, **given: Any) -> Trials:
        by = None if exact is None else Request(self.coder, self._encode, queries, "exact", given["metric"], exact)
        return Trials(self.search, queries, k, len(self._live.state), given, by)

    def _rerank(self, rerank: int | None, k: int) -> int:
        if rerank is None:
            return max(k, self.rerank or max(10 * k, 100))
        return max(k, check_int(rerank, "rerank", least=1))

    def _effort(self, candidates: int | None, count: int) -> int:
        if candidates is None:
            return self.candidates or _default_effort(count)
        return check_int(candidates, "candidates", least=1)

    def _view(self, request: Request, chosen: ArrayLike | Iterable[int] | None) -> View:
        kind = "hamming" if request.codes is not None else "coder"
        state = self._live.state
        known = self._views.get(kind)
        if known is None:
            coder = None if kind == "hamming" else self.coder
            prepared = Prepared(HammingScorer(self.width) if coder is None else scorer_for(coder, self.width))
        else:
            prepared = known[0]
        if known is None or known[1].state is not state:
            known = self._views[kind] = prepared, View(state, prepared)
        return known[1] if chosen is None else View(state, prepared, check_filter(chosen))


def scorer_for(coder: Coder, width: int) -> DecodedScorer:
    """Return the scorer for the first `width` bits of a coder's codes."""
    layout = coder.layout(width)
    if isinstance(layout, ScalarLayout):
        return FastScanScorer(coder, layout, width)
    if isinstance(layout, CodebookLayout):
        return CodebookScorer(coder, layout, width)
    if isinstance(layout, BaseLayout):
        return RefinedScorer(coder, scorer_for(layout.base, width))
    return NetworkScorer(coder, width)


def _default_effort(count: int) -> int:
    return 1000 + count // 50


def check_k(k: int, count: int) -> int:
    """A number of hits to look for among `count` items."""
    most = max(count, MOST_MISSING)
    if check_int(k, "k", least=1) > most:
        raise InvalidInput(
            f"k must be at most {most} with {count} items, got {k}: there are no more to find, and answers, which have "
            f"room for k hits of every query, are filled up with ids of -1 to {MOST_MISSING} only: give a smaller k"
        )
    return k
