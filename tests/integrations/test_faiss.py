"""The adapter against FAISS itself, and codes to FAISS and back."""

import copy
import pickle
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import faiss
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import nestcode as nc
from nestcode.arrays import Floats
from nestcode.errors import DamagedFile, InvalidInput
from nestcode.integrations.faiss import NestedIndex, from_faiss, read_index, to_faiss, write_index
from nestcode.search.planner import Effort
from nestcode.storage import Record, read_record, write_record

D = 12


def vectors(n: int, seed: int = 0) -> Floats:
    rng = np.random.default_rng(seed)
    spread = 1 / np.arange(1, D + 1)
    return (rng.standard_normal((n, D)) * spread + 0.5).astype(np.float32)


def peer(metric: str, X: Floats) -> tuple[faiss.Index, Floats]:
    """FAISS's flat index for a metric, and the vectors as it takes them."""
    if metric == "cosine":
        X = X / np.linalg.norm(X, axis=1, keepdims=True)
    return faiss.IndexFlatL2(D) if metric == "l2" else faiss.IndexFlatIP(D), X


@pytest.mark.parametrize("metric", ["l2", "inner", "cosine"])
def test_few_vectors_are_searched_as_by_a_flat_index(metric: str) -> None:
    X, queries = vectors(200), vectors(7, seed=1)
    flat, rows = peer(metric, X)
    flat.add(rows)
    index = NestedIndex(D, metric=metric)  # type: ignore[arg-type]
    index.add(X)
    for k in (1, 10, 250):
        true_distances, true_ids = flat.search(peer(metric, queries)[1], k)
        distances, ids = index.search(queries, k)
        assert np.array_equal(ids, true_ids)
        np.testing.assert_allclose(distances, true_distances, rtol=1e-4, atol=1e-5)
        assert (distances.dtype, ids.dtype) == (true_distances.dtype, true_ids.dtype)
    assert (index.ntotal, index.d, index.is_trained) == (flat.ntotal, flat.d, flat.is_trained)
    np.testing.assert_array_equal(index.reconstruct(5), X[5])


@pytest.mark.parametrize("metric", ["l2", "inner", "cosine"])
@pytest.mark.parametrize("stored", [None, "float32"])
def test_codes_of_many_vectors_approximate_a_flat_index(metric: str, stored: Any) -> None:
    X, queries = vectors(2000), vectors(50, seed=1)
    flat, rows = peer(metric, X)
    flat.add(rows)
    index = NestedIndex(D, width=72, metric=metric, rows_to_fit=2000, vectors=stored)  # type: ignore[arg-type]
    index.add(X[:1500])
    assert index.index is None
    index.add(X[1500:])
    assert index.index is not None
    true_distances, true_ids = flat.search(peer(metric, queries)[1], 10)
    distances, ids = index.search(queries, 10)
    found = np.mean([np.isin(a, b).mean() for a, b in zip(ids, true_ids, strict=True)])
    assert found > (0.8 if stored is None else 0.99)
    np.testing.assert_allclose(distances, true_distances, rtol=0.03, atol=0.05 if stored is None else 1e-3)
    best_first = distances if metric == "l2" else -distances
    assert (np.diff(best_first, axis=1) >= 0).all()
    decoded = index.reconstruct_batch(range(2000))
    assert np.array_equal(decoded, X) if stored else np.abs(decoded - rows).max() < 0.5
    distances, ids = index.search(queries[:1], 2500)
    assert (ids[0, 2000:] == -1).all()
    assert (distances[0, 2000:] == flat.search(queries[:1], 2500)[0][0, 2000:]).all()


@pytest.mark.parametrize("rows_to_fit", [1000, 300])
def test_ids_behave_as_in_faiss_id_map(rows_to_fit: int) -> None:
    X = vectors(400)
    ids = np.random.default_rng(0).permutation(10_000)[:400]
    true: Any = faiss.IndexIDMap2(faiss.IndexFlatL2(D))
    index = NestedIndex(D, width=80, rows_to_fit=rows_to_fit)
    for each in (true, index):
        each.add_with_ids(X, ids)
        assert each.remove_ids(ids[:100]) == 100
        assert each.remove_ids(faiss.IDSelectorRange(0, 2000)) == np.sum(ids[100:] < 2000)
        assert each.remove_ids(np.array([10_001])) == 0
    assert index.ntotal == true.ntotal
    kept = np.flatnonzero(ids[100:] >= 2000) + 100
    assert np.array_equal(index.search(X[kept], 1)[1], true.search(X[kept], 1)[1])
    one = int(ids[kept[0]])
    np.testing.assert_allclose(index.reconstruct(one), true.reconstruct(one), atol=0.2)
    with pytest.raises(InvalidInput):
        index.reconstruct(int(ids[0]))
    with pytest.raises(InvalidInput, match="use"):
        index.add_with_ids(X[:1], [one])
    index.add(X[:2])
    assert index.search(X[:1], 1)[1][0, 0] == ids.max() + 1  # ids continue after the largest, whatever was removed


def split(answer: tuple[Any, Any, Any]) -> list[tuple[Floats, NDArray[np.int64]]]:
    """Return the distances and ids of each query."""
    lims, distances, ids = answer
    assert (lims.dtype, distances.dtype, ids.dtype) == (np.uint64, np.float32, np.int64)
    ends = lims.astype(int)
    return [(distances[i:j], ids[i:j]) for i, j in pairwise(ends)]


@pytest.mark.parametrize("rows_to_fit", [1000, 300])
@pytest.mark.parametrize("metric", ["l2", "inner", "cosine"])
def test_range_search_equals_a_flat_index(metric: str, rows_to_fit: int) -> None:
    """Except for the order: ours returns the nearest first."""
    X, queries = vectors(300), vectors(7, seed=1)
    flat, rows = peer(metric, X)
    flat.add(rows)
    index = NestedIndex(D, 96, metric=metric, rows_to_fit=rows_to_fit)  # type: ignore[arg-type]
    index.add(X)
    points = peer(metric, queries)[1]
    middle = float(np.median(flat.search(points, 300)[0]))
    distances, ids = index.search(queries, 300)
    for thresh in (middle, np.inf, -np.inf):
        true, found = split(flat.range_search(points, thresh)), split(index.range_search(queries, thresh))
        for q, ((true_near, true_ids), (near, own)) in enumerate(zip(true, found, strict=True)):
            inside = distances[q] < thresh if metric == "l2" else distances[q] > thresh
            assert np.array_equal(own, ids[q, inside])
            if index.index is None:
                by_id, true_by_id = np.argsort(own), np.argsort(true_ids)
                assert np.array_equal(own[by_id], true_ids[true_by_id])
                np.testing.assert_allclose(near[by_id], true_near[true_by_id], rtol=1e-4, atol=1e-5)
    assert [part.tolist() for part in index.range_search(vectors(0), 1)] == [[0], [], []]


def test_range_search_excludes_the_threshold() -> None:
    X = np.array([[0, 0], [3, 4], [6, 8]], dtype=np.float32)
    true, inner = faiss.IndexFlatL2(2), faiss.IndexFlatIP(2)
    ours, ours_inner = NestedIndex(2), NestedIndex(2, metric="inner")
    for each in (true, inner, ours, ours_inner):
        each.add(X)
    for thresh in (0, 24.9, 25, 25.1, 100):
        for flat, index in ((true, ours), (inner, ours_inner)):
            expected, found = split(flat.range_search(X, thresh)), split(index.range_search(X, thresh))
            assert [sorted(ids) for _, ids in found] == [sorted(ids) for _, ids in expected]
    assert ours.range_search(X, 1e300)[0].tolist() == [0, 3, 6, 9]
    with pytest.raises(InvalidInput, match="thresh must be a number, got nan"):
        ours.range_search(X, float("nan"))


@pytest.mark.parametrize("rows_to_fit", [1000, 100])
def test_reconstruction_equals_faiss(rows_to_fit: int) -> None:
    X = vectors(100)
    flat: Any = faiss.IndexFlatL2(D)
    index = NestedIndex(D, 80, rows_to_fit=rows_to_fit)
    flat.add(X)
    index.add(X)
    true, found = flat.search_and_reconstruct(X[:4], 103), index.search_and_reconstruct(X[:4], 103)
    assert [(part.shape, part.dtype) for part in found] == [(part.shape, part.dtype) for part in true]
    assert np.array_equal(np.isnan(found[2]), np.isnan(true[2]))
    np.testing.assert_array_equal(
        found[2][:, :100], index.reconstruct_batch(found[1][:, :100].ravel()).reshape(4, 100, D)
    )
    for n0, ni in ((0, -1), (0, 3), (7, 5), (60, -1), (100, -1), (3, 0)):
        assert index.reconstruct_n(n0, ni).shape == flat.reconstruct_n(n0, ni).shape
        if index.index is None:
            np.testing.assert_array_equal(index.reconstruct_n(n0, ni), flat.reconstruct_n(n0, ni))
    keys = [5, 5, 99]
    np.testing.assert_allclose(index.reconstruct_batch(keys), flat.reconstruct_batch(keys), atol=0.2)
    assert index.reconstruct_batch([]).shape == (0, D)
    for n0, ni in ((99, 2), (-1, 1), (0, -2), (0, 2**40), (2**63, 2)):
        with pytest.raises(InvalidInput):
            index.reconstruct_n(n0, ni)


@pytest.mark.parametrize("rows_to_fit", [1000, 100])
def test_selectors_restrict_the_search(rows_to_fit: int) -> None:
    X = vectors(200)
    flat, selectors = faiss.IndexFlatL2(D), cast(Any, faiss)
    index = NestedIndex(D, 96, rows_to_fit=rows_to_fit)
    flat.add(X)
    index.add(X)
    most = selectors.IDSelectorRange(0, 190)
    for selector in (
        selectors.IDSelectorBatch(np.arange(0, 200, 3)),
        selectors.IDSelectorRange(20, 50),
        selectors.IDSelectorNot(most),
        selectors.IDSelectorBatch(np.array([300])),
    ):
        params = selectors.SearchParameters(sel=selector)
        true = flat.search(X[:5], 200, params=params)[1]
        found = index.search(X[:5], 200, params=params)[1]
        assert np.array_equal(np.sort(found), np.sort(true))
        assert np.array_equal(np.sort(index.search_and_reconstruct(X[:5], 200, params=params)[1]), np.sort(true))
        assert set(index.range_search(X[:1], np.inf, params=params)[2]) == set(true[0][true[0] >= 0])
    no_selector = index.search(X[:5], 3, params=selectors.SearchParameters())
    assert np.array_equal(no_selector[1], index.search(X[:5], 3)[1])
    with pytest.raises(InvalidInput, match=r"got SearchParametersIVF: instead of nprobe .* index.index.effort"):
        index.search(X[:1], 1, params=selectors.SearchParametersIVF(nprobe=3))
    with pytest.raises(InvalidInput, match=r"no nprobe, got 16: set index\.index\.effort"):
        index.nprobe = 16
    assert not hasattr(index, "nprobe")
    with pytest.raises(InvalidInput, match=r"got nprobe: instead of nprobe .* index\.index\.effort"):
        index.search(X[:1], 1, nprobe=3)
    with pytest.raises(InvalidInput, match="a selector and a filter: give one"):
        index.search(X[:1], 1, params=params, filter=[1])


def test_a_filter_restricts_the_search() -> None:
    X = vectors(500)
    for rows_to_fit in (1000, 100):
        index = NestedIndex(D, width=64, rows_to_fit=rows_to_fit)
        index.add(X)
        _, ids = index.search(X[:20], 500, filter=np.arange(0, 500, 7))
        assert all(set(row[row >= 0]) == set(range(0, 500, 7)) for row in ids)


def test_explicit_training_equals_automatic_training() -> None:
    X = vectors(1000)
    a, b = (NestedIndex(D, width=64, rows_to_fit=1000) for _ in range(2))
    a.train(X)
    a.add(X)
    b.add(X)
    assert a.index is not None
    assert b.index is not None
    assert a.index.coder is not None
    assert b.index.coder is not None
    assert a.index.coder.fingerprint == b.index.coder.fingerprint
    assert np.array_equal(a.search(X[:30], 5)[1], b.search(X[:30], 5)[1])
    a.train(vectors(1000, seed=1))  # ignored: stored codes depend on the first coder
    assert a.index.coder.fingerprint == b.index.coder.fingerprint


def test_a_given_coder_is_used_from_the_start() -> None:
    X = vectors(300)
    coder = nc.ResidualCoder(width=32, metric="cosine").fit(X)
    index = NestedIndex(D, 24, coder=coder)
    assert (index.metric, index.width) == ("cosine", 24)
    index.add(X)
    assert index.index is not None
    assert index.index.codes(range(300)) == coder.encode(X).prefix(24)
    with pytest.raises(InvalidInput, match="d = 13 features, got 12"):
        NestedIndex(D + 1, coder=coder)
    with pytest.raises(InvalidInput, match='metric must be "cosine" for a coder'):
        NestedIndex(D, metric="l2", coder=coder)


@pytest.mark.parametrize("rows_to_fit", [1000, 200])
@pytest.mark.parametrize(("metric", "stored"), [("l2", None), ("cosine", "float16"), ("l2", "float32")])
def test_write_then_read_is_identity(rows_to_fit: int, metric: Any, stored: Any, tmp_path: Path) -> None:
    X, path = vectors(300), tmp_path / "a.index"
    index = NestedIndex(D, width=48, metric=metric, rows_to_fit=rows_to_fit, vectors=stored)
    index.add(X)
    index.remove_ids([3, 299])
    write_index(index, path)
    again = read_index(path)
    assert repr(again) == repr(index)
    found, expected = again.search(X[:20], 7), index.search(X[:20], 7)
    assert np.array_equal(found[0], expected[0])
    assert np.array_equal(found[1], expected[1])
    index.add(X[:1])
    again.add(X[:1])
    assert np.array_equal(again.reconstruct(300), index.reconstruct(300))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(DamagedFile):
        read_index(path)
    nc.LinearCoder(width=8).fit(X).save(path)
    with pytest.raises(DamagedFile, match="LinearCoder"):
        read_index(path)


def test_int8_vectors_are_kept_in_files(tmp_path: Path) -> None:
    index = NestedIndex(D, width=48, rows_to_fit=100, vectors="int8")
    index.add(vectors(100))
    write_index(index, tmp_path / "a.index")
    again = read_index(tmp_path / "a.index")
    np.testing.assert_allclose(again.reconstruct_n(), index.reconstruct_n(), rtol=1e-6)


def test_the_tuned_effort_is_kept_in_files(tmp_path: Path) -> None:
    index = NestedIndex(D, width=48, rows_to_fit=100)
    index.add(vectors(100))
    assert index.index is not None
    default = index.index.effort
    for effort in (Effort(candidates=70, items=100, rerank=14, k=3), None, default):
        index.index.effort = effort
        write_index(index, tmp_path / "a.index")
        again = read_index(tmp_path / "a.index")
        assert again.index is not None
        assert again.index.effort == effort
    record = index.to_record()
    settings = {name: value for name, value in record.settings.items() if name != "effort"}
    write_record(tmp_path / "b.index", Record(record.kind, 2, settings, record.arrays))
    old = read_index(tmp_path / "b.index").index
    assert old is not None
    assert old.effort == default
    forged = Record(record.kind, 3, {**settings, "effort": {**vars(default), "k": 0}}, record.arrays)
    write_record(tmp_path / "c.index", forged)
    with pytest.raises(DamagedFile, match="is not a valid NestedIndex"):
        read_index(tmp_path / "c.index")


@pytest.mark.parametrize(("rows_to_fit", "stored"), [(1000, "float32"), (100, None)])
def test_files_of_version_1_hold_vectors_or_codes(rows_to_fit: int, stored: Any, tmp_path: Path) -> None:
    index = NestedIndex(D, width=48, rows_to_fit=rows_to_fit, vectors=None)
    index.add(vectors(100))
    record = index.to_record()
    settings = {name: value for name, value in record.settings.items() if name not in ("vectors", "effort")}
    write_record(tmp_path / "a.index", Record(record.kind, 1, settings, record.arrays))
    again = read_index(tmp_path / "a.index")
    assert again.vectors == stored
    assert np.array_equal(again.search(vectors(5), 3)[1], index.search(vectors(5), 3)[1])


@pytest.mark.parametrize(
    "change",
    [
        {"d": "two"},
        {"vectors": "float64"},
        {"metric": "far"},
        {"next": None, "width": -1},
        {"coder": {"kind": "os", "version": 1}},
    ],
)
def test_forged_settings_raise_damaged_file(change: dict[str, Any], tmp_path: Path) -> None:
    index = NestedIndex(2)
    index.add([[0, 0], [1, 1]])
    write_index(index, tmp_path / "two.index")
    record = read_record(tmp_path / "two.index")
    forged = Record(record.kind, record.version, {**record.settings, **change}, record.arrays)
    write_record(tmp_path / "forged.index", forged)
    with pytest.raises(DamagedFile, match="is not a valid NestedIndex"):
        read_index(tmp_path / "forged.index")


def test_refused_input_leaves_the_index_unchanged() -> None:
    index = NestedIndex(D)
    index.add(vectors(5))
    bad = vectors(2)
    bad[1, 0] = np.nan
    for wrong in (bad, vectors(2)[:, 1:], "words"):
        with pytest.raises(InvalidInput):
            index.add(wrong)
    with pytest.raises(InvalidInput, match="distinct"):
        index.add_with_ids(vectors(2), [8, 8])
    with pytest.raises(InvalidInput, match="metric"):
        NestedIndex(D, metric="l1")  # type: ignore[arg-type]
    index.add(vectors(0))
    assert (index.ntotal, index.next_id) == (5, 5)
    index.rows_to_fit = 6
    with pytest.raises(InvalidInput):
        index.add(bad)  # this add would fit a coder
    assert (index.ntotal, index.index) == (5, None)


def test_refused_ids_do_not_trigger_training() -> None:
    X = vectors(100)
    index = NestedIndex(D, 8, rows_to_fit=100)
    index.add(X[:60])
    for ids in (np.zeros(40, dtype=int), np.arange(40), np.arange(41) + 60, np.arange(40) - 1, np.arange(40) / 2):
        with pytest.raises(InvalidInput, match="id"):
            index.add_with_ids(X[60:], ids)
        assert (index.ntotal, index.index, index.next_id) == (60, None, 60)


@pytest.mark.parametrize("rows_to_fit", [1000, 50])
def test_ids_in_use_are_named(rows_to_fit: int) -> None:
    index = NestedIndex(D, 64, rows_to_fit=rows_to_fit)
    index.add(vectors(50))
    with pytest.raises(InvalidInput, match="ids must be new, but 7 is in use: remove it first with remove_ids"):
        index.add_with_ids(vectors(2), [60, 7])
    assert index.ntotal == 50


@pytest.mark.parametrize("rows_to_fit", [1000, 50])
def test_ids_do_not_overflow_int64(rows_to_fit: int) -> None:
    index = NestedIndex(D, 64, rows_to_fit=rows_to_fit)
    index.add(vectors(50))
    index.add_with_ids(vectors(1, seed=1), [2**63 - 1])
    with pytest.raises(InvalidInput, match=f"would follow {2**63 - 1}, the largest so far: give ids of your own"):
        index.add(vectors(1))
    index.add_with_ids(vectors(1, seed=2), [50])
    assert index.ntotal == 52
    assert 2**63 - 1 in index.search(vectors(1, seed=1), 52)[1]


@pytest.mark.parametrize("rows_to_fit", [1000, 50])
def test_remove_ids_takes_integers_only(rows_to_fit: int) -> None:
    index = NestedIndex(D, 64, rows_to_fit=rows_to_fit)
    index.add(vectors(50))
    assert index.remove_ids(index.search(vectors(1), 60)[1][0, 48:]) == 2  # missing hits, -1, are ignored
    for wrong in ([1.5], ["1"], np.ones(50, dtype=bool)):
        with pytest.raises(InvalidInput, match="ids must be integers"):
            index.remove_ids(wrong)
    assert index.remove_ids([]) == 0
    assert index.ntotal == 48


def test_a_batch_equals_its_queries_one_by_one() -> None:
    X = vectors(600)
    index = NestedIndex(D)
    index.add(X)
    whole, parts = index.search(X, 3), [index.search(x[None], 3) for x in X]
    np.testing.assert_allclose(whole[0], np.concatenate([part[0] for part in parts]), rtol=1e-5)
    assert np.array_equal(whole[1], np.concatenate([part[1] for part in parts]))


def test_k_is_bounded_as_in_an_index() -> None:
    index = NestedIndex(D)
    index.add(vectors(5))
    assert index.search(vectors(1), 65_536)[1].shape == (1, 65_536)
    with pytest.raises(
        InvalidInput, match="k must be at most 65,536 for an index of 5 items, got 65,537: give a smaller k"
    ):
        index.search(vectors(1), 65_537)


def test_adding_one_by_one_equals_adding_at_once() -> None:
    X = vectors(300)
    whole, single = NestedIndex(D), NestedIndex(D)
    whole.add(X)
    for row in X:
        single.add(row[None])
    assert np.array_equal(whole.search(X, 5)[1], single.search(X, 5)[1])
    assert np.array_equal(single.reconstruct_batch(range(300)), X)


def test_identical_vectors_are_found() -> None:
    index = NestedIndex(D, width=8, rows_to_fit=50)
    with pytest.warns(UserWarning, match="unallocated"):
        index.add(np.ones((60, D)))
    distances, ids = index.search(np.ones((1, D)), 60)
    assert set(ids[0]) == set(range(60))
    np.testing.assert_allclose(distances, 0, atol=1e-5)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 20), st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_codes_to_faiss_and_back(count: int, width: int, seed: int) -> None:
    codes = nc.Codes.from_bits(np.random.default_rng(seed).random((count, width)) < 0.5)
    index = to_faiss(codes)
    assert from_faiss(index, width) == from_faiss(codes.packed, width) == codes
    if count:
        distances, ids = index.search(codes.packed, count)
        ours = codes.hamming(codes)
        assert np.array_equal(distances, np.sort(ours, axis=1))
        assert np.array_equal(np.take_along_axis(ours, ids, axis=1), distances)


def test_sign_bits_in_faiss_are_codes() -> None:
    X = vectors(50)[:, :8] - 0.5
    packed = np.packbits(X > 0, axis=1)
    index = faiss.IndexBinaryFlat(8)
    index.add(packed)
    codes = from_faiss(index)
    assert codes == nc.Codes.from_bits(X > 0)
    index.reset()
    assert codes == nc.Codes.from_bits(X > 0)  # a copy


@pytest.mark.parametrize("far", [0.0, 1e4, 1e6, 1e30])
def test_exact_search_is_robust_to_outliers(far: float) -> None:
    X = np.concatenate([vectors(200), np.full((1, D), far, dtype=np.float32)])
    index = NestedIndex(D)
    index.add(X)
    true = np.argsort(((X[:20, None].astype(np.float64) - X) ** 2).sum(axis=2), axis=1)[:, :5]
    np.testing.assert_array_equal(index.search(X[:20], 5)[1], true)


def test_exact_search_is_robust_to_distant_clusters() -> None:
    X = np.concatenate([vectors(100), vectors(100, seed=1) + np.float32(1e3)])
    index = NestedIndex(D)
    index.add(X)
    found = index.search(X, 1)
    np.testing.assert_array_equal(found[1][:, 0], np.arange(200))
    np.testing.assert_allclose(found[0], 0, atol=1e-6)
    index.reset()
    assert index.ntotal == 0


@pytest.mark.parametrize(
    "source", [faiss.IndexFlatL2(8), np.zeros(8, dtype=np.uint8), np.zeros((2, 8))], ids=["index", "row", "floats"]
)
def test_from_faiss_refuses_unpacked_input(source: object) -> None:
    with pytest.raises(InvalidInput, match="IndexBinaryFlat"):
        from_faiss(source)


def test_reconstruct_n_needs_consecutive_ids() -> None:
    index = NestedIndex(2)
    index.add([[0, 0], [1, 1], [2, 2], [3, 3]])
    index.remove_ids([0])
    with pytest.raises(InvalidInput, match="some were removed or are your own: give ni"):
        index.reconstruct_n(1)
    assert index.reconstruct_n(1, 3).tolist() == [[1, 1], [2, 2], [3, 3]]


@pytest.mark.parametrize("fitted", [False, True])
def test_copying_and_pickling_are_refused_with_the_remedy(fitted: bool) -> None:
    index = NestedIndex(D, width=32)
    if fitted:
        index.train(vectors(300))
    for way in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(InvalidInput, match=r"not copied or pickled: write_index\(index, path\)"):
            way(index)
