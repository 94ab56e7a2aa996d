"""Laws of search: what holds for any index, query and budget, and that every kernel equals its plain twin."""

from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from nestcode import AdaptiveCoder, CellCoder, Codes, Index, LinearCoder, ResidualCoder, _core
from nestcode.coders import Coder
from nestcode.coders.scalar_quantizer import BitPlanes, dequantize
from nestcode.index import compaction
from nestcode.index.snapshot import Snapshot
from nestcode.search.planner import DECODED_BYTES
from nestcode.search.request import Request
from nestcode.search.selection import Selection
from tests import twins

FEATURES = 6
TRAINING = twins.clustered(600, FEATURES)
seeds = st.integers(0, 2**32)


@cache
def fitted(kind: str, metric: Any) -> Coder:
    coders: dict[str, Coder] = {
        "linear": LinearCoder(30, metric=metric),
        "residual": ResidualCoder(20, metric=metric, beams=1),
        "cell": CellCoder(30, metric=metric, cells=8),
    }
    return coders[kind].fit(TRAINING)


@pytest.fixture(autouse=True, scope="module")
def _no_compaction() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compaction, "SIZE_RATIO", 0)
        yield


def grow(index: Index, items: Any, rng: np.random.Generator) -> NDArray[np.int64]:
    """Add items in up to four batches under scattered ids, and remove some; return the ids that are left."""
    ids = rng.choice(3 * len(items) + 1, len(items), replace=False)
    for part in np.array_split(np.arange(len(items)), rng.integers(1, 5)):
        index.add(items[part], ids=ids[part])
        if rng.random() < 0.7:
            index._live.write(Snapshot.flush)
    index.remove(rng.choice(ids, rng.integers(0, len(ids) // 2 + 1), replace=False))
    return index.ids


def probed(near: twins.Doubles, lists: NDArray[np.int64], candidates: int) -> NDArray[np.bool_]:
    """Which items a query scores: those of the nearest lists, until there are enough."""
    return np.isin(lists, lists[np.lexsort((lists, near))[:candidates]])


def lists_of(codes: Codes, bits: int) -> NDArray[np.int64]:
    lists: NDArray[np.int64] = codes.bits()[:, :bits] @ (1 << np.arange(bits)[::-1])
    return lists


@st.composite
def budgets(draw: st.DrawFn) -> dict[str, Any]:
    """How much a search may find and compare."""
    return {
        "k": draw(st.integers(1, 30)),
        "candidates": draw(st.integers(1, 500)),
        "threads": draw(st.sampled_from([1, 2])),
    }


@given(seeds, st.sampled_from([1, 2, 7, 8, 9, 20, 64, 70]), st.integers(0, 700), budgets())
def test_codes_are_scored_in_the_lists_nearest_by_hamming_distance(
    seed: int, width: int, items: int, budget: dict[str, Any]
) -> None:
    rng = np.random.default_rng(seed)
    few = rng.random((9, width)) < 0.5
    noise = rng.random((items + 4, width)) < rng.choice([0, 0.1, 0.5])
    bits = few[rng.integers(0, 9, items + 4)] ^ noise
    index, queries = Index(width=width), Codes.from_bits(bits[:4])
    ids = grow(index, Codes.from_bits(bits[4:]), rng)
    allowed = ids[rng.random(len(ids)) < rng.choice([0, 0.3, 1])]
    codes, count = index.codes(allowed), len(allowed)
    differing = twins.hamming(queries.bits(), codes.bits()).astype(float)
    hits = index.search(queries, filter=allowed, **budget)
    twins.check_hits(hits, differing, allowed)
    list_bits = max(0, min(len(ids).bit_length() - 7, width))
    near, lists = (
        twins.hamming(queries.bits()[:, :list_bits], codes.bits()[:, :list_bits]).astype(float),
        lists_of(codes, list_bits),
    )
    everything = max(budget["k"], budget["candidates"]) >= count
    for q in range(4):
        mask = (
            probed(near[q], lists, max(budget["k"], budget["candidates"]))
            if not everything
            else np.ones(count, dtype=bool)
        )
        assert hits.compared[q] == mask.sum()
        found, distances = twins.nearest(differing[q : q + 1, mask], allowed[mask], budget["k"])
        assert np.array_equal(hits.distances[q], distances[0])
        if everything:
            assert np.array_equal(hits.ids[q], found[0])


@settings(max_examples=60)
@given(
    seeds,
    st.sampled_from(["linear", "residual", "cell"]),
    st.sampled_from([("l2", "l2"), ("l2", "cosine"), ("l2", "inner"), ("cosine", "cosine")]),
    st.sampled_from(["asymmetric", "exact"]),
    st.integers(1, 500),
    budgets(),
    st.data(),
)
def test_hits_have_their_distances(
    seed: int, kind: str, metrics: tuple[Any, Any], rank: Any, items: int, budget: dict[str, Any], data: st.DataObject
) -> None:
    """Any width, history of the index, filter and budget; rows are repeated, so that many distances are equal."""
    rng, (own, metric) = np.random.default_rng(seed), metrics
    coder = fitted(kind, own)
    rows = twins.clustered(items, FEATURES, seed)[rng.integers(0, items, items)]
    queries = np.concatenate([twins.clustered(3, FEATURES, seed + 1), rows[:1]])
    index = Index(coder, width=data.draw(st.integers(1, coder.width)))
    ids = grow(index, rows, rng)
    vectors = np.zeros((3 * items + 1, FEATURES), dtype=np.float32)
    vectors[ids] = index.reconstruct(ids) + 0.1 if len(ids) else 0  # any vectors may stand for the items
    allowed = ids[rng.random(len(ids)) < rng.choice([0, 0.1, 1])]
    options = {**budget, "rank": rank, "metric": metric, "filter": allowed}
    if rank == "exact":
        options["vectors"] = vectors
    expected = twins.distances(queries, vectors[allowed] if rank == "exact" else index.reconstruct(allowed), metric)
    hits = index.search(queries, rerank=data.draw(st.sampled_from([None, 1, 50])), **options)
    twins.check_hits(hits, expected, allowed, 1e-4)
    assert ((hits.ids >= 0).sum(axis=1) == min(budget["k"], len(allowed))).all()
    assert (hits.compared >= min(max(budget["k"], budget["candidates"]), len(allowed))).all()
    assert (hits.compared <= len(allowed)).all()
    everything = index.search(queries, **{**options, "candidates": 10**9})
    twins.check_all(everything, expected, allowed, 1e-4)
    assert (everything.compared == len(allowed)).all()


# Kernels


def prepare(
    kind: str, metric: Any, width: int, rng: np.random.Generator, own: Any = "l2"
) -> tuple[Selection, NDArray[np.float32]]:
    """All items of an index, prepared for search, and queries."""
    coder = fitted(kind, own)
    index = Index(coder, width=width)
    grow(index, twins.clustered(500, FEATURES, 5), rng)
    queries = twins.clustered(5, FEATURES, 6)
    request = Request(coder, width, queries, metric=metric)
    return index._searcher._select(index._live.current, request), queries


def estimate(
    selection: Selection, queries: NDArray[np.float32], metric: Any, candidates: int, keep: int, simd: str = ""
) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int64]]:
    """The least estimates, the ids of their items and how many items were compared."""
    budget = _core.RowBudget(candidates, 0, 1, False, keep, False, np.inf, 1.0, 1.0, 1.0, 1.0)
    ids, scores = np.empty((len(queries), keep), np.int64), np.empty((len(queries), keep), np.float32)
    compared = np.empty(len(queries), dtype=np.int64)
    searcher = selection.prepared.row_searcher(metric, "estimates")
    assert searcher.search(selection.core, queries, budget, ids, scores, compared, None, 1, simd)
    return scores, ids, compared


def codes_of(selection: Selection, ids: NDArray[np.int64]) -> Codes:
    order = np.argsort(selection.ids)
    places = order[np.searchsorted(selection.ids, ids, sorter=order)]
    return selection.prepared.codes_at(selection.positions[places])


@settings(max_examples=30)
@given(
    seeds,
    st.sampled_from(["linear", "cell", "residual"]),
    st.sampled_from([("l2", "l2"), ("l2", "cosine"), ("l2", "inner"), ("cosine", "cosine")]),
    st.integers(1, 30),
    budgets(),
)
def test_instruction_sets_agree(
    seed: int, kind: str, metrics: tuple[Any, Any], width: int, budget: dict[str, Any]
) -> None:
    """Up to the rounding of projections and tables: the k-th best estimates are as near, of as many items."""
    width = min(width, 20 if kind == "residual" else 30)
    selection, queries = prepare(kind, metrics[1], width, np.random.default_rng(seed), metrics[0])
    (scores, _, compared), *others = (
        estimate(selection, queries, metrics[1], budget["candidates"], budget["k"], simd) for simd in _core.simd_names()
    )
    found = np.isfinite(scores)
    span = float(np.ptp(scores[found])) if found.any() else 0.0
    for other, _, same in others:
        assert np.array_equal(same, compared)
        assert np.array_equal(np.isfinite(other), found)
        assert (np.abs(other[found] - scores[found]) <= 0.02 * span + 1e-3).all()


@pytest.mark.parametrize("metric", ["l2", "inner"])
@pytest.mark.parametrize("kind", ["linear", "cell", "residual"])
def test_estimated_distances_are_nearly_those_of_the_codes(kind: str, metric: Any) -> None:
    """Up to a term that all items of a query share; the core's own tests bound the error of its quantized tables."""
    coder = fitted(kind, "l2")
    selection, queries = prepare(kind, metric, 20, np.random.default_rng(0))
    count = selection.count
    estimated, found, compared = estimate(selection, queries, metric, 10**6, count)
    centered = queries.astype(float) - _mean(selection)
    assert (compared == count).all()
    assert (np.diff(estimated, axis=1) >= 0).all()
    for q, row in enumerate(found):
        assert len(np.unique(row)) == count
        true = twins.distances(queries[q : q + 1], coder.decode(codes_of(selection, row)), metric)[0]
        if metric == "inner":
            true = 2 * (true + queries[q].astype(float) @ _mean(selection))
        else:
            true -= (centered[q] ** 2).sum()
        if kind == "residual":
            np.testing.assert_allclose(estimated[q], true, rtol=1e-4, atol=1e-3)
        else:
            near = np.argsort(true)[: count // 4]
            assert np.abs(estimated[q] - true)[near].max() < 0.05 * np.ptp(true)


@pytest.mark.parametrize("kind", ["linear", "cell"])
def test_estimates_by_angle_are_nearly_those_to_normalized_decoded_codes(kind: str) -> None:
    """Where items have norm 1, what their codes decode to is L2-normalized before it is compared."""
    coder = fitted(kind, "cosine")
    selection, queries = prepare(kind, "cosine", 20, np.random.default_rng(0), "cosine")
    count = selection.count
    estimated, found, _ = estimate(selection, queries, "cosine", 10**6, count)
    best = estimate(selection, queries, "cosine", 10**6, 7)[0]  # by thresholds, without dividing
    for q, row in enumerate(found):
        assert len(np.unique(row)) == count
        true = twins.distances(queries[q : q + 1], coder.decode(codes_of(selection, row)), "cosine")[0] - 2
        near = np.argsort(true)[: count // 4]
        assert np.abs(estimated[q] - true)[near].max() < 0.05 * np.ptp(true)
        assert np.array_equal(best[q], estimated[q, :7])


def _mean(selection: Selection) -> NDArray[np.float64]:
    mean: NDArray[np.float64] = selection.prepared.scorer._projection.mean  # type: ignore[attr-defined]
    return mean


@given(seeds, st.integers(0, 60), st.integers(1, 12), st.booleans(), st.sampled_from([1, 2]))
def test_top_k_is_that_of_sorting(seed: int, many: int, k: int, shared: bool, threads: int) -> None:
    rng = np.random.default_rng(seed)
    distances = rng.integers(0, 9, (4, many)).astype(np.float32)
    distances[rng.random(distances.shape) < 0.1] = np.inf
    ids = np.stack([rng.permutation(1000)[:many] for _ in range(1 if shared else 4)]).astype(np.int64)
    ids[rng.random(ids.shape) < 0.2] = -1
    near, near_ids = np.empty((4, k), dtype=np.float32), np.empty((4, k), dtype=np.int64)
    _core.select_top_k(distances, ids, near, near_ids, threads)
    for q in range(4):
        own = ids[0 if shared else q]
        found, expected = twins.nearest(distances[q : q + 1, own >= 0].astype(float), own[own >= 0], k)
        assert np.array_equal(near_ids[q], found[0])
        assert np.array_equal(near[q], expected[0])


NONE = np.zeros(0, dtype=np.float32)


@given(seeds, st.integers(1, 40), st.sampled_from(["l2", "cosine", "inner"]))
def test_rescoring_is_numpys(seed: int, features: int, metric: str) -> None:
    rng = np.random.default_rng(seed)
    vectors, queries = (rng.standard_normal((n, features)).astype(np.float32) for n in (20, 4))
    if metric == "cosine":
        queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    items = rng.integers(-1, 20, (4, 7))
    out = np.empty((4, 7), dtype=np.float32)
    _core.VectorRuns(vectors).rerank(queries, items, metric, out, 2)
    expected = np.take_along_axis(twins.distances(queries, vectors, metric), items, axis=1)
    assert np.allclose(out, np.where(items < 0, np.inf, expected), rtol=1e-4, atol=1e-5)


@given(seeds, st.integers(0, 70), st.integers(0, 17), st.integers(0, 50))
def test_bits_of_planes_are_read_one_by_one(seed: int, rows: int, first: int, length: int) -> None:
    """Node n of a direction has the nodes 2n and 2n + 1 below it."""
    rng = np.random.default_rng(seed)
    owners = rng.integers(-1, 7, length).astype(np.int32)
    for d in range(7):
        owners[np.flatnonzero(owners == d)[8:]] = -1
    centers = rng.standard_normal((7, 512)).astype(np.float32)
    codes = twins.random_codes(rows, first + length, seed)
    planes = BitPlanes(owners, np.zeros(length + 1), centers[:, :256], centers)
    nodes = np.ones((rows, 7), dtype=np.int64)
    for j in np.flatnonzero(owners >= 0):
        nodes[:, owners[j]] = 2 * nodes[:, owners[j]] + codes.bits()[:, first + j]
    assert np.array_equal(dequantize(codes.packed, planes, length, first), centers[np.arange(7), nodes])


# Invalid calls of the core


Call = tuple[Callable[..., Any], tuple[Any, ...]]


class Recorder:
    """Stands in for the core, and records its calls."""

    def __init__(self) -> None:
        self.calls: dict[str, list[Call]] = {}
        self.recipes: dict[int, Call] = {}  # the calls that made objects of the core
        self._made: list[Any] = []  # kept alive, so that no id() is reused

    def __getattr__(self, name: str) -> Any:
        found = getattr(_core, name)
        return self.keep(name, found) if callable(found) else found

    def keep(self, name: str, call: Callable[..., Any], *first: Any) -> Callable[..., Any]:
        def kept(*given: Any, **named: Any) -> Any:
            plain = (one._searcher if isinstance(one, Watched) else one for one in (*given, *named.values()))
            arguments = (*first, *plain)
            self.calls.setdefault(name, []).append((call, arguments))
            made = call(*arguments)
            self._made.append(made)
            self.recipes[id(made)] = call, arguments
            return Watched(made, self) if isinstance(made, _core.Lists | _core.Selection | _core.RowSearcher) else made

        return kept


class Watched:
    """A searcher whose calls are recorded."""

    def __init__(self, searcher: Any, recorder: Recorder) -> None:
        self._searcher, self._recorder = searcher, recorder

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return self._recorder.keep(name, getattr(type(self._searcher), name), self._searcher)


@cache
def recorded() -> Recorder:
    """The calls of the core that searches of all kinds make."""
    recorder = Recorder()
    vectors = twins.clustered(1501, FEATURES, 3)
    options: list[dict[str, Any]] = [
        {},
        {"rank": "hamming"},
        {"vectors": vectors},
        {"metric": "cosine"},
        {"filter": [5]},
    ]
    files = (
        "adc", "decoded", "fastscan", "planner", "prepared", "preparation", "projected", "scan", "scorer",
        "selection", "vectors",
    )  # fmt: skip
    modules = ["coders.scalar_quantizer", *(f"search.{name}" for name in files)]
    with pytest.MonkeyPatch.context() as patch:
        for module in modules:
            patch.setattr(f"nestcode.{module}._core", recorder)
        for kind, decoded in product(("linear", "residual", "cell"), (0, DECODED_BYTES)):
            patch.setattr("nestcode.search.planner.DECODED_BYTES", decoded)
            index = Index(fitted(kind, "l2"), width=19)
            grow(index, vectors[:500], np.random.default_rng(0))
            for option, candidates in product(options, (60, 10**6)):
                index.search(TRAINING[:3], 4, candidates=candidates, **option)
                index.search(TRAINING[3], 4, candidates=candidates, **option)
        index = Index(AdaptiveCoder(16, beams=1).fit(TRAINING))  # which only the coder decodes
        index.add(vectors[:500])
        index.search(TRAINING[:3], 4, candidates=60)
    recorder.recipes.pop(id(None), None)
    return recorder


@np.errstate(invalid="ignore")
def invalidate(array: NDArray[Any], way: str, rng: np.random.Generator) -> Any:
    """An invalid version of an array."""
    axis = int(rng.integers(array.ndim))
    if way == "shorter":
        return np.ascontiguousarray(np.delete(array, slice(0, 1), axis=axis))
    if way == "longer":
        return np.concatenate([array, array[:1]]) if len(array) else np.zeros((3, *array.shape[1:]), array.dtype)
    if way == "empty":
        return np.zeros(np.where(np.arange(array.ndim) == axis, 0, array.shape), dtype=array.dtype)
    if way == "other values":
        whole = np.iinfo(array.dtype) if array.dtype.kind in "iu" else None
        values = (
            rng.integers(whole.min, whole.max, array.shape, dtype=array.dtype)
            if whole
            else rng.normal(size=array.shape)
        )
        return values.astype(array.dtype)
    if way == "not finite":
        return np.full(
            array.shape, rng.choice([np.nan, np.inf, -np.inf]) if array.dtype.kind == "f" else 0, array.dtype
        )
    others: dict[str, Callable[[], Any]] = {
        "another type": lambda: array.astype(np.float64 if array.dtype != np.float64 else np.int8),
        "another dimension": lambda: array[None],
        "strided": lambda: np.repeat(array, 2, axis=array.ndim - 1)[..., ::2],
        "read-only": lambda: _locked(array),
        "a list": array.tolist,
        "None": lambda: None,
    }
    return others[way]()


def _locked(array: NDArray[Any]) -> NDArray[Any]:
    array = array.copy()
    array.flags.writeable = False
    return array


WAYS = ["shorter", "longer", "empty", "other values", "not finite", "another type", "another dimension", "strided"]


def invalid(argument: Any, data: st.DataObject, rng: np.random.Generator) -> Any:
    """An array, an object or a list of objects with an invalid array in it."""
    if isinstance(argument, np.ndarray):
        way = data.draw(st.sampled_from([*WAYS, "read-only", "a list", "None"]))
        return invalidate(argument, way, rng) if argument.ndim else argument
    if isinstance(argument, list) and argument:
        place = data.draw(st.integers(0, len(argument) - 1))
        return [*argument[:place], invalid(argument[place], data, rng), *argument[place + 1 :]]
    if id(argument) in recorded().recipes:
        call, arguments = recorded().recipes[id(argument)]
        return call(*one_invalid(arguments, data, rng))
    return argument


def one_invalid(arguments: tuple[Any, ...], data: st.DataObject, rng: np.random.Generator) -> list[Any]:
    """The arguments, one of them invalid."""
    kinds: Any = (
        np.ndarray, list, _core.Lists, _core.Selection, _core.RowBudget, _core.FastScanGroups, _core.RowProjection,
        _core.ListScoring, _core.CoefficientDecoder, _core.RowSearcher, _core.VectorRuns, _core.ScannedRuns,
        _core.ScannedCodes, _core.CodeFormat,
    )  # fmt: skip
    places = [i for i, one in enumerate(arguments) if isinstance(one, kinds)]
    place = data.draw(st.sampled_from(places)) if places else -1
    return [invalid(one, data, rng) if i == place else one for i, one in enumerate(arguments)]


@settings(max_examples=100)
@given(st.data(), seeds)
def test_invalid_arrays_are_refused_or_harmless(data: st.DataObject, seed: int) -> None:
    """The core raises, or writes inside its arrays."""
    rng = np.random.default_rng(seed)
    call, arguments = data.draw(st.sampled_from(recorded().calls[data.draw(st.sampled_from(sorted(recorded().calls)))]))
    try:
        wrong = tuple(arguments)
        for _ in range(data.draw(st.integers(1, 2))):
            wrong = tuple(one_invalid(wrong, data, rng))
        call(*wrong)
    except (ValueError, TypeError) as error:
        assert str(error)  # noqa: PT017


def test_all_kernels_of_search_were_recorded() -> None:
    calls = recorded().calls
    assert calls.keys() >= {
        "InvertedLists",
        "Lists",
        "Selection",
        "RowBudget",
    }
    assert calls.keys() >= {
        "pack_blocks",
        "decode_bit_planes",
        "permute_bits",
        "FastScanGroups",
    }
    assert calls.keys() >= {"RowProjection", "ListScoring", "CoefficientDecoder", "RowSearcher", "search"}
    assert calls.keys() >= {"ScannedRuns", "ScannedCodes", "CodeFormat", "scan", "scan_hamming"}
    for known in calls.values():
        call, arguments = known[0]
        call(*arguments)  # valid calls can be repeated


def test_an_unknown_instruction_set_is_named() -> None:
    selection, queries = prepare("cell", "l2", 30, np.random.default_rng(0))
    with pytest.raises(ValueError, match="simd must be one of portable"):
        estimate(selection, queries, "l2", 10, 1, "mmx")


def test_searchers_have_parts_of_one_kind() -> None:
    codes = twins.random_codes(50, 16)
    none = np.zeros((0, 0, 32), dtype=np.uint8), np.zeros(0, dtype=np.uint32)

    def part(starts: list[int], rows: NDArray[np.uint8] = codes.packed) -> Any:
        biases = np.zeros(0, dtype=np.int16)
        return _core.InvertedLists(rows, np.array(starts, dtype=np.uint32), *none, biases, 0.0, NONE)

    _core.Lists([part([0, 50]), part([0, 50])])
    for wrong in ([], [0], [50], [0, 49], [1, 50], [0, 51], [0, 60, 50]):
        with pytest.raises(ValueError, match="starts of lists must ascend"):
            part(wrong)
    with pytest.raises(ValueError, match="segments must have the same lists"):
        _core.Lists([part([0, 50]), part([0, 20, 50])])
    with pytest.raises(ValueError, match="there must be at least one segment"):
        _core.Lists([])
    strangers: list[Any] = [[None], [codes], None]
    for stranger in strangers:
        with pytest.raises((TypeError, RuntimeError)):
            _core.Lists(stranger)
