"""The contract of coders: every coder keeps the same laws. `cases.py` lists the coders.

What is particular to a coder is tested in its own file.
"""

import contextlib
import copy
import pickle
import re
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
import sklearn
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.utils.validation import check_is_fitted

import nestcode as nc
from nestcode import Codes
from nestcode.coders.base import Metric
from nestcode.errors import DamagedFile, InvalidInput, NotFitted
from nestcode.search import asymmetric_distances
from nestcode.storage import write_record
from tests import twins
from tests.coders.cases import CASES, fitted, fresh_rows, mse, training_rows

NUMPY = [name for name, case in CASES.items() if not case.network]
METRICS: list[Metric] = ["l2", "cosine"]

every_coder = pytest.mark.parametrize("name", CASES)
numpy_coders = pytest.mark.parametrize("name", NUMPY)
both_metrics = pytest.mark.parametrize("metric", METRICS)


def unit(rows: NDArray[Any], metric: str) -> NDArray[Any]:
    """Rows as a coder of this metric sees them."""
    return rows / np.linalg.norm(rows, axis=1, keepdims=True) if metric == "cosine" else rows


# Encoding and decoding


@pytest.mark.parametrize("name", [name for name in CASES if CASES[name].twins])
def test_encoding_equals_its_twin(name: str) -> None:
    coder, twin = fitted(name), CASES[name].twins
    assert twin is not None
    rows = fresh_rows(name)[: 5 if hasattr(coder, "beams") else 60]
    assert np.array_equal(coder.transform(rows), twin[0](coder, rows))


@pytest.mark.parametrize("name", [name for name in CASES if CASES[name].twins])
def test_decoding_equals_its_twin_at_every_length(name: str) -> None:
    coder, twin = fitted(name), CASES[name].twins
    assert twin is not None
    codes = coder.encode(fresh_rows(name)[:40])
    for length in CASES[name].lengths:
        expected = twin[1](coder, codes.prefix(length))
        np.testing.assert_allclose(coder.decode(codes.prefix(length)), expected, atol=1e-5)


@every_coder
@both_metrics
def test_codes_have_the_fitted_width_and_clean_padding(name: str, metric: Metric) -> None:
    coder, rows = fitted(name, metric), fresh_rows(name)
    codes = coder.encode(rows)
    assert (len(codes), codes.width) == (len(rows), coder.width_)
    assert codes == Codes(codes.packed, coder.width_)
    assert coder.metric_ == metric
    assert coder.n_features_in_ == rows.shape[1]
    decoded = coder.decode(codes)
    assert (decoded.shape, decoded.dtype) == (rows.shape, np.float32)


@every_coder
def test_an_item_alone_has_the_code_that_it_has_among_others(name: str) -> None:
    coder, rows = fitted(name), fresh_rows(name)[:60]
    codes = coder.encode(rows)
    assert [coder.encode(row[None]).packed[0].tolist() for row in rows] == codes.packed.tolist()
    if not CASES[name].network:  # PyTorch rounds decoded values by batch
        assert np.array_equal(np.concatenate([coder.decode(codes[i : i + 1]) for i in range(60)]), coder.decode(codes))


@every_coder
def test_length_0_decodes_to_the_mean(name: str) -> None:
    decoded = fitted(name).decode(fitted(name).encode(fresh_rows(name)[:2]).prefix(0))
    np.testing.assert_allclose(decoded, [training_rows(name).mean(axis=0)] * 2, atol=CASES[name].mean_atol)


@every_coder
def test_the_error_falls_with_the_length_and_is_the_expected_one(name: str) -> None:
    case, coder = CASES[name], fitted(name)
    rows = fresh_rows(name) if case.fresh_errors else training_rows(name)
    codes = coder.encode(rows)
    lengths = range(coder.width_ + 1)
    errors = [mse(coder.decode(codes.prefix(length)), rows) for length in lengths]
    expected = [coder.expected_error(length) for length in lengths]
    np.testing.assert_allclose(errors, expected, rtol=case.errors_rtol)
    if case.network:  # measured on held-out rows: trailing bits that would raise the error are ignored
        assert (np.diff(expected) <= 0).all()
        assert errors[-1] < errors[0]
    else:
        assert (np.diff([errors[k] for k in sorted({*lengths[:: case.step], coder.width_})]) < 0).all()


@every_coder
def test_a_prefix_of_a_prefix_decodes_alike(name: str) -> None:
    coder, codes = fitted(name), fitted(name).encode(fresh_rows(name)[:50])
    bits = coder.transform(fresh_rows(name)[:50])
    assert (bits.dtype, bits.shape) == (np.uint8, (50, coder.width_))
    for length in CASES[name].lengths:
        decoded = coder.decode(codes.prefix(length))
        assert np.array_equal(coder.decode(codes.prefix((length + coder.width_) // 2).prefix(length)), decoded)
        assert np.array_equal(coder.inverse_transform(bits[:, :length]), decoded)


@numpy_coders
@pytest.mark.parametrize("width", [1, 7, 8, 9, 18])
def test_every_width_works(name: str, width: int) -> None:
    coder, rows = clone(CASES[name].tiny).set_params(width=width), training_rows(name)[:1000]
    codes = coder.fit(rows).encode(rows)
    assert codes == Codes(codes.packed, width)
    assert mse(coder.decode(codes), rows) < mse(coder.decode(codes.prefix(width - 1)), rows)


@every_coder
def test_no_items_encode_to_no_codes(name: str) -> None:
    coder, features = fitted(name), fitted(name).n_features_in_
    codes = coder.encode(np.zeros((0, features)))
    assert (len(codes), codes.width) == (0, coder.width_)
    assert coder.decode(codes).shape == (0, features)
    some = fresh_rows(name)[:5]
    assert asymmetric_distances(coder, np.zeros((0, features)), coder.encode(some)).shape == (0, 5)
    assert asymmetric_distances(coder, some, codes).shape == (5, 0)


# What search uses


@every_coder
@both_metrics
def test_asymmetric_distances_are_those_to_decoded_codes(name: str, metric: Metric) -> None:
    coder, queries, atol = fitted(name, metric), fresh_rows(name)[:7], CASES[name].distance_atol
    codes = coder.encode(training_rows(name)[:80])
    for length in CASES[name].lengths:
        expected = twins.distances(queries, coder.decode(codes.prefix(length)), metric)
        found = asymmetric_distances(coder, queries, codes.prefix(length))
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=atol)


@numpy_coders
@both_metrics
def test_coefficients_are_decoded_items_in_the_projection(name: str, metric: Metric) -> None:
    coder, rows = fitted(name, metric), fresh_rows(name)[:200]
    codes, (mean, directions) = coder.encode(rows), vars(coder.projection()).values()
    np.testing.assert_allclose(directions @ directions.T, np.eye(len(directions)), atol=1e-5)
    for length in CASES[name].lengths:
        coefficients = coder.coefficients(codes.prefix(length))
        assert (coefficients.dtype, coefficients.shape) == (np.float32, (len(rows), len(directions)))
        decoded = coder.decode(codes.prefix(length))
        np.testing.assert_allclose(coefficients @ directions + mean, decoded, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(coder._project(rows), (unit(rows, metric) - mean) @ directions.T, atol=1e-4)


@numpy_coders
def test_cosine_ignores_norms(name: str) -> None:
    coder, rows = fitted(name, "cosine"), fresh_rows(name)[:500]
    scaled = rows * np.random.default_rng(0).uniform(0.1, 10, (len(rows), 1))
    assert np.mean(coder.transform(scaled) == coder.transform(rows)) > 0.999
    assert np.linalg.norm(coder.decode(coder.encode(rows)), axis=1).mean() == pytest.approx(1, abs=0.05)
    assert len(coder.encode(np.zeros((1, rows.shape[1])))) == 1  # a zero has no direction, and is no error


@numpy_coders
def test_a_zero_is_at_distance_2_from_everything_by_cosine(name: str) -> None:
    rows = np.concatenate([np.eye(3), -np.eye(3), np.zeros((1, 3))])
    coder = type(fitted(name))(width=6, metric="cosine").fit(rows)
    assert np.allclose(asymmetric_distances(coder, rows[-1:], coder.encode(rows[:6])), 2, atol=1e-5)
    index = nc.Index(coder)
    index.add(rows)
    for candidates in (3, len(rows)):  # of lists, and exhaustive
        for vectors in (None, rows):
            hits = index.search(rows[-1], k=3, candidates=candidates, vectors=vectors)
            assert hits.distances.tolist() == pytest.approx([2, 2, 2], abs=1e-5)
    by_vectors = index.search(rows[:6], k=7, vectors=rows)
    assert (by_vectors.distances[by_vectors.ids == 6] == 2).all()


@every_coder
def test_an_index_finds_a_training_row_by_itself(name: str, tmp_path: Path) -> None:
    index = nc.Index(fitted(name))
    index.add(training_rows(name)[:300])
    index.save(tmp_path / "index")
    for one in (index, nc.Index.open(tmp_path / "index")):
        assert 5 in one.neighborhood(training_rows(name)[5], size=1).ids


# Data


@numpy_coders
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.uint8, np.int32, np.int64])
def test_every_dtype_works(name: str, dtype: Any) -> None:
    rows = training_rows(name)[:300]
    rows = ((rows - rows.min()) / np.ptp(rows) * 250).astype(dtype)
    coder, plain = (clone(CASES[name].tiny).set_params(width=12).fit(X) for X in (rows, rows.astype(np.float32)))
    decoded, expected = coder.decode(coder.encode(rows)), plain.decode(plain.encode(rows))
    assert decoded.dtype == np.float32
    assert mse(decoded, rows) < 1.05 * mse(expected, rows)
    assert mse(decoded, rows) < 0.9 * rows.astype(np.float64).var(axis=0).mean()


@pytest.mark.parametrize("name", [name for name in CASES if CASES[name].scales])
@both_metrics
def test_the_scale_of_the_data_does_not_matter(name: str, metric: Metric) -> None:
    X = training_rows(name)[:500].astype(np.float64) - 3
    plain = CASES[name].make(metric).set_params(width=20).fit(X)
    bits, ratio = plain.transform(X), plain.expected_error(20) / plain.expected_error(0)
    for scale in CASES[name].scales:
        scaled = CASES[name].make(metric).set_params(width=20).fit(X * scale)
        assert np.mean(bits == scaled.transform(X * scale)) > 0.99
        assert scaled.expected_error(20) / scaled.expected_error(0) == pytest.approx(ratio, rel=1e-2)


@every_coder
def test_pieces_and_memory_maps_fit_like_the_whole(name: str, tmp_path: Path) -> None:
    case, rows = CASES[name], training_rows(name)
    np.save(tmp_path / "X.npy", rows)
    mapped = case.fit(clone(fitted(name)), np.load(tmp_path / "X.npy", mmap_mode="r"))
    assert mapped.fingerprint == fitted(name).fingerprint
    if case.network:
        return  # reads items in random order, so it takes no iterables
    whole, parts = clone(case.tiny).fit(rows), [rows[:700], rows[700:701], rows[701:]]
    in_parts, by_iterator = clone(case.tiny).fit(parts), clone(case.tiny).fit(iter(parts))
    assert in_parts.fingerprint == by_iterator.fingerprint
    width = whole.width_
    assert in_parts.expected_error(width) == pytest.approx(whole.expected_error(width), rel=case.pieces_rtol)


LITTLE = {
    "all alike": np.ones((50, 4)),
    "one": np.ones((1, 3)),
    "zero": np.zeros((1, 4)),
    "two": np.array([[0.0, 5.0], [1.0, 5.0]]),
    "three": np.arange(6.0).reshape(3, 2),
    "three wide": np.random.default_rng(0).standard_normal((3, 40)),
    "five": np.repeat(np.random.default_rng(0).standard_normal((5, 40)), 9, axis=0),
}


@numpy_coders
def test_little_data_is_reproduced(name: str) -> None:
    for what in CASES[name].little:
        rows, coder = LITTLE[what], clone(CASES[name].tiny).set_params(width=30)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            codes = coder.fit(rows).encode(rows)
        assert [str(warning.message)[:14] for warning in caught] == ["the data fills"] * CASES[name].warns
        assert codes.width == 30
        np.testing.assert_allclose(coder.decode(codes), rows, atol=CASES[name].little_atol, err_msg=what)
        assert coder.decode(coder.encode(rows[:0])).shape == (0, rows.shape[1])
        assert asymmetric_distances(coder, rows, codes).shape == (len(rows), len(rows))


@numpy_coders
def test_outliers_still_have_codes(name: str) -> None:
    for scale in CASES[name].outliers:
        codes = fitted(name).encode(scale * fresh_rows(name)[:5])
        assert np.isfinite(fitted(name).decode(codes)).all()


# What was fitted is fixed


@pytest.mark.parametrize("name", [name for name in NUMPY if CASES[name].seeded])
def test_another_seed_gives_another_coder(name: str) -> None:
    """The same one gives the same coder: the fit of a memory map has the fingerprint of another fit."""
    other = clone(fitted(name)).set_params(seed=1).fit(training_rows(name))
    assert other.fingerprint != fitted(name).fingerprint


@every_coder
def test_settings_changed_after_the_fit_wait_for_the_next(name: str, tmp_path: Path) -> None:
    case, rows, queries = CASES[name], training_rows(name)[:300], fresh_rows(name)[:5]
    coder = copy.deepcopy(fitted(name))
    codes, fingerprint, width = coder.encode(rows), coder.fingerprint, coder.width_
    decoded, stream = coder.decode(codes), nc.compress(rows, coder, embed=True)
    before = nc.Index(fitted(name))
    before.add(rows)
    hits = before.search(queries, k=10)
    for change in (coder.set_params, lambda **changed: vars(coder).update(changed)):
        change(**{key: value for key, value in case.changes.items() if "__" not in key or change == coder.set_params})
        assert (coder.width_, coder.metric_) == (width, "l2")
        assert coder.encode(rows) == codes
        assert np.array_equal(coder.decode(codes), decoded)
        assert coder.fingerprint == fingerprint
        coder.save(tmp_path / "a.coder")
        assert nc.load_coder(tmp_path / "a.coder").encode(rows) == codes
        assert nc.compress(rows, coder, embed=True) == stream
        assert np.array_equal(nc.decompress(stream), nc.decompress(nc.compress(rows, coder), coder))
        index = nc.Index(coder)
        index.add(rows)
        index.save(tmp_path / "index", overwrite=True)
        for one in (index, nc.Index.open(tmp_path / "index")):
            assert one.width == width
            found = one.search(queries, k=10)
            assert np.array_equal(found.ids, hits.ids)
            assert np.array_equal(found.distances, hits.distances)
        assert len(coder.get_feature_names_out()) == width
    coder = case.fit(clone(fitted(name)).set_params(**case.changes), training_rows(name))
    assert (coder.width_, coder.metric_) == (coder.width, "cosine")
    assert coder.width_ != width


@numpy_coders
def test_numpy_integers_are_settings_too(name: str, tmp_path: Path) -> None:
    coder = clone(CASES[name].tiny).set_params(width=np.int64(9), seed=np.uint8(2)).fit(training_rows(name))
    coder.save(tmp_path / "a.coder")
    assert nc.load_coder(tmp_path / "a.coder").fingerprint == coder.fingerprint


@every_coder
def test_a_failed_fit_keeps_the_coder(name: str) -> None:
    coder = copy.deepcopy(fitted(name))
    with pytest.raises(InvalidInput):
        coder.fit(np.full((5, coder.n_features_in_), np.nan))
    assert coder.fingerprint == fitted(name).fingerprint


# Files


@every_coder
@both_metrics
def test_save_then_load_is_the_identity(name: str, metric: Metric, tmp_path: Path) -> None:
    coder, rows = fitted(name, metric), fresh_rows(name)[:300]
    coder.save(tmp_path / "it.coder")
    loaded: Any = nc.load_coder(tmp_path / "it.coder")
    assert type(loaded) is type(coder)
    assert loaded.fingerprint == coder.fingerprint
    assert (loaded.width_, loaded.metric_) == (coder.width_, coder.metric_)
    if not CASES[name].network:
        assert loaded.get_params() == coder.get_params()
    codes = coder.encode(rows)
    assert loaded.encode(rows) == codes
    assert [loaded.expected_error(k) for k in (0, 9)] == [coder.expected_error(k) for k in (0, 9)]
    for length in CASES[name].lengths:
        assert np.array_equal(loaded.decode(codes.prefix(length)), coder.decode(codes.prefix(length)))
    loaded.save(tmp_path / "again.coder")
    assert (tmp_path / "again.coder").read_bytes() == (tmp_path / "it.coder").read_bytes()


@every_coder
def test_float16_files_are_smaller_and_decode_nearly_alike(name: str, tmp_path: Path) -> None:
    coder, codes = fitted(name), fitted(name).encode(fresh_rows(name)[:100])
    coder.save(tmp_path / "whole.coder")
    coder.save(tmp_path / "half.coder", dtype="float16")
    smaller = (tmp_path / "half.coder").stat().st_size < (tmp_path / "whole.coder").stat().st_size
    assert smaller == any(array.dtype == np.float32 for array in coder.to_record().arrays.values())
    decoded = nc.load_coder(tmp_path / "half.coder").decode(codes)
    np.testing.assert_allclose(decoded, coder.decode(codes), atol=CASES[name].half_atol)
    with pytest.raises(InvalidInput, match='dtype must be "float32" or "float16", got \'int8\''):
        coder.save(tmp_path / "bad.coder", dtype="int8")


@every_coder
def test_pickles_and_copies_are_the_same_coder(name: str) -> None:
    for again in (pickle.loads(pickle.dumps(fitted(name))), copy.deepcopy(fitted(name))):
        assert again.fingerprint == fitted(name).fingerprint


def hostile(name: str) -> list[tuple[str, Callable[[Any], Any]]]:
    """Arrays of a record, and what is done to them: common damage, then that of the case."""
    common: list[tuple[str, Callable[[Any], Any]]] = [
        ("mean", lambda array: array.astype(np.float32)),
        ("mean", lambda array: array * np.nan),
        ("mean", lambda array: array[0]),
        ("directions", lambda array: array[:, :2]),
        ("directions", lambda array: array * np.inf),
        ("errors", lambda array: array[:4]),
    ]
    common = [(array, change) for array, change in common if array in fitted(name).to_record().arrays]
    return common + [(array, change) for array, changes in CASES[name].damage.items() for change in changes]


@numpy_coders
@pytest.mark.filterwarnings("ignore:invalid value encountered")
def test_records_that_do_not_fit_together_are_refused(name: str, tmp_path: Path) -> None:
    """Even if their checksum matches."""
    record, kind = fitted(name).to_record(), type(fitted(name)).__name__
    for array, change in hostile(name):
        arrays = {**record.arrays, array: change(record.arrays[array])}
        write_record(tmp_path / "bad", replace(record, arrays=arrays))
        with pytest.raises(DamagedFile, match=f"bad is not a {kind} as it should be"):
            nc.load_coder(tmp_path / "bad")


@every_coder
def test_records_without_an_array_or_with_other_settings_are_refused(name: str, tmp_path: Path) -> None:
    record = fitted(name).to_record()
    arrays = record.arrays
    damaged = [replace(record, arrays={k: arrays[k] for k in arrays if k != missing}) for missing in arrays]
    damaged += [replace(record, settings={**record.settings, "metric": "l1"})]
    if not CASES[name].network:
        damaged += [replace(record, settings={**record.settings, "width": width}) for width in (0, 2**40, "9", None)]
        damaged += [replace(record, settings={**record.settings, "surprise": 1})]
        good = {"goal": "search", "measure": "recall", "scores": {"LinearCoder": 1.0}, "chosen": "LinearCoder"}
        for wrong in (5, good, {**good, "reason": 5}, {**good, "reason": "", "scores": {"LinearCoder": "1"}}):
            damaged += [replace(record, notes={"selection": wrong})]
    for one in damaged:
        write_record(tmp_path / "bad", one)
        with pytest.raises(DamagedFile, match=f"bad is not a {record.kind} as it should be"):
            nc.load_coder(tmp_path / "bad")


@every_coder
def test_files_of_a_newer_layout_are_named(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fitted(name).save(tmp_path / "newer")
    monkeypatch.setattr(type(fitted(name)), "VERSION", 0)
    with pytest.raises(DamagedFile, match=r"version 1 .* reads up to 0: upgrade"):
        nc.load_coder(tmp_path / "newer")


def test_streams_and_folders_are_no_coders(tmp_path: Path) -> None:
    (tmp_path / "stream").write_bytes(nc.compress(training_rows("linear"), fitted("linear")))
    with pytest.raises(InvalidInput, match="holds a stream, not a coder: read it with decompress or stream_info"):
        nc.load_coder(tmp_path / "stream")
    for read in (nc.load_coder, nc.StreamReader):
        with pytest.raises(IsADirectoryError, match="it is a folder: give the file in it"):
            read(tmp_path)


def test_foreign_files_are_named(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    save_file({"x": np.zeros(3)}, tmp_path / "foreign")
    with pytest.raises(DamagedFile, match="was not written by Nestcode"):
        nc.load_coder(tmp_path / "foreign")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(DamagedFile, match="damaged or not a Nestcode file"):
        nc.load_coder(tmp_path / "text")
    with pytest.raises(FileNotFoundError, match="there is no file"):
        nc.load_coder(tmp_path / "nothing")
    write_record(tmp_path / "other", replace(fitted("linear").to_record(), kind="MagicCoder"))
    with pytest.raises(DamagedFile, match=r"holds a MagicCoder, this version knows Adap.*: upgrade nestcode"):
        nc.load_coder(tmp_path / "other")


@given(st.data())
def test_no_damaged_file_gives_a_wrong_coder(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Cut it anywhere, or change any byte: an error that names the file, or the very same coder."""
    folder = tmp_path_factory.getbasetemp()
    good = folder / "good.coder"
    if not good.exists():
        nc.LinearCoder(width=9).fit(training_rows("linear")[:50, :3]).save(good)
    blob = bytearray(good.read_bytes())
    if data.draw(st.booleans()):
        del blob[data.draw(st.integers(0, len(blob) - 1)) :]
    else:
        blob[data.draw(st.integers(0, len(blob) - 1))] ^= data.draw(st.integers(1, 255))
    bad = folder / "bad.coder"
    bad.write_bytes(blob)
    with contextlib.suppress(DamagedFile):
        assert nc.load_coder(bad).fingerprint == nc.load_coder(good).fingerprint


# scikit-learn

TINY = {name: case.tiny for name, case in CASES.items() if case.tiny is not None}
tiny_coders = pytest.mark.parametrize("name", TINY)
EXPECTED = {
    "check_do_not_raise_errors_in_init_or_set_params": "a wrong setting is named where it is given, before data is read"
}
MORE = [  # that check_estimator leaves out
    "check_transformer_get_feature_names_out",
    "check_transformer_get_feature_names_out_pandas",
    "check_get_feature_names_out_error",
    "check_set_output_transform",
    "check_set_output_transform_pandas",
    "check_global_output_transform_pandas",
    "check_set_output_transform_polars",
    "check_global_set_output_transform_polars",
    "check_n_features_in",
]


@pytest.fixture(scope="module")
def digits() -> NDArray[Any]:
    return nc.data.digits()[0][:400]


@tiny_coders
@pytest.mark.filterwarnings("ignore:the data fills")  # theirs is tiny
@pytest.mark.filterwarnings("ignore:Estimator .* does not inherit")  # scikit-learn is optional
@pytest.mark.filterwarnings("ignore:InvalidInput occurred during set_params")  # as expected above
def test_scikit_learns_own_checks_pass(name: str) -> None:
    from sklearn.utils import estimator_checks  # which imports all estimators, and only this process needs them

    results = estimator_checks.check_estimator(clone(TINY[name]), expected_failed_checks=EXPECTED, on_skip=None)
    assert {result["check_name"] for result in results if result["status"] == "xfail"} == set(EXPECTED)
    for check in MORE:
        getattr(estimator_checks, check)(type(TINY[name]).__name__, clone(TINY[name]))


@tiny_coders
def test_a_coder_works_in_a_pipeline(name: str, digits: NDArray[Any]) -> None:
    coder, labels = clone(TINY[name]), digits[:, 34] > np.median(digits[:, 34])
    model = make_pipeline(coder, LogisticRegression(max_iter=1000)).fit(digits, labels)
    assert model.score(digits, labels) > 0.5
    assert np.array_equal(clone(coder).fit_transform(digits), coder.transform(digits))
    assert repr(coder).startswith(f"{type(coder).__name__}(")
    check_is_fitted(coder)
    assert not hasattr(clone(coder), "n_features_in_")
    with pytest.raises(NotFittedError):
        check_is_fitted(clone(coder))


def frame(X: NDArray[Any]) -> pd.DataFrame:
    return pd.DataFrame(X, columns=[f"pixel{i}" for i in range(X.shape[1])], index=np.arange(len(X)) + 100)


@tiny_coders
def test_bits_come_as_data_frames(name: str, digits: NDArray[Any]) -> None:
    coder = clone(TINY[name])
    plain = coder.fit_transform(digits)
    bits = coder.set_output(transform="pandas").transform(frame(digits))
    assert isinstance(bits, pd.DataFrame)
    assert bits.index[0] == 100
    assert list(bits.columns) == [f"{type(coder).__name__.lower()}{bit}" for bit in range(4)]
    assert np.array_equal(bits, plain)
    assert np.array_equal(coder.inverse_transform(bits), coder.inverse_transform(plain))
    assert isinstance(coder.set_output(transform="polars").transform(digits), pl.DataFrame)
    assert isinstance(clone(coder).fit_transform(digits), pl.DataFrame)
    assert isinstance(coder.set_output(transform="default").transform(digits), np.ndarray)
    with sklearn.config_context(transform_output="pandas"):
        assert isinstance(coder.transform(digits), np.ndarray)  # a coder's own setting wins
        assert isinstance(clone(TINY["linear"]).fit_transform(digits), pd.DataFrame)
    with pytest.raises(InvalidInput, match='transform must be "default", "pandas" or "polars", got \'arrow\''):
        coder.set_output(transform="arrow")


@tiny_coders
def test_columns_must_be_those_of_the_fit(name: str, digits: NDArray[Any]) -> None:
    X, coder = frame(digits), clone(TINY[name])
    coder.fit(X)
    assert list(coder.feature_names_in_) == list(X.columns)
    assert np.array_equal(coder.transform(X), coder.transform(X.to_numpy()))
    with pytest.raises(InvalidInput, match=r"in the same order: pixel0, .*, …, got pixel63, .*, …: give"):
        coder.transform(X[X.columns[::-1]])
    with pytest.raises(InvalidInput, match="got pixel0, pixel1, pixel2: give"):
        coder.transform(X[X.columns[:3]])
    assert np.array_equal(coder.transform(X[X.columns[::-1]][list(coder.feature_names_in_)]), coder.transform(X))
    coder.fit(X.to_numpy())
    assert not hasattr(coder, "feature_names_in_")


@tiny_coders
def test_numbers_may_come_as_objects(name: str, digits: NDArray[Any]) -> None:
    coder = clone(TINY[name])
    assert np.array_equal(coder.fit(digits.astype(object)).transform(digits), coder.fit(digits).transform(digits))
    assert np.array_equal(coder.transform(digits.astype(object)), coder.transform(digits))
    with pytest.raises(InvalidInput, match="data must be numeric, got object"):
        coder.fit(np.array([["a", 1.0], [2.0, 3.0]], dtype=object))


@every_coder
def test_not_fitted_is_both_libraries_error(name: str) -> None:
    coder, codes = clone(fitted(name)), Codes.from_bits([[True]])
    uses: list[Callable[[], Any]] = [
        lambda: coder.encode(np.zeros((2, 3))),
        lambda: coder.transform(np.zeros((2, 3))),
        lambda: coder.decode(codes),
        lambda: coder.expected_error(0),
        lambda: coder.save("nowhere"),
        lambda: coder.width_,
        lambda: coder.metric_,
        lambda: coder.fingerprint,
    ]
    for use in uses:
        with pytest.raises(NotFittedError, match=f"this {type(coder).__name__} is not fitted: call fit") as raised:
            use()
        assert isinstance(raised.value, NotFitted)
    for again in (pickle.loads(pickle.dumps(raised.value)), copy.copy(raised.value)):
        assert isinstance(again, NotFitted)
        assert isinstance(again, NotFittedError)
        assert str(again) == str(raised.value)


# Mistakes: the rule, the value, the remedy

ROW = np.ones((1, 3))
MISTAKES: dict[str, tuple[Callable[[Any], Any], str]] = {  # of every coder; `coder` is a fitted copy
    "other features": (lambda coder: coder.encode(ROW), "features the coder was fitted on, got 3: fit a new coder"),
    "one item": (lambda coder: coder.encode(ROW[0]), "put one item into x[None, :]"),
    "wide codes": (
        lambda coder: coder.decode(Codes.from_bits(np.zeros((1, 99), bool))),
        ", got 99: decode with the coder that made them",
    ),
    "bits for codes": (
        lambda coder: coder.decode(np.zeros((1, 8))),
        "expected Codes, got ndarray: encode(X) makes them",
    ),
    "long length": (lambda coder: coder.expected_error(99), "length must be between 0 and the coder's width"),
    "negative length": (lambda coder: coder.expected_error(-1), "length must be an integer of at least 0, got -1"),
    "unknown setting": (lambda coder: coder.set_params(depth=3), "got depth"),
    "sparse data": (
        lambda coder: coder.fit(scipy.sparse.csr_matrix(np.eye(8)), np.arange(8) % 2),
        "data must be dense, got a sparse csr_matrix: convert it with X.toarray()",
    ),
    "sparse array": (lambda coder: coder.encode(scipy.sparse.csc_array(np.eye(8))), "got a sparse csc_array"),
    "queries": (
        lambda coder: asymmetric_distances(coder, ROW, coder.encode(np.zeros((0, coder.n_features_in_)))),
        "features the coder was fitted on, got 3",
    ),
}
NUMPY_MISTAKES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "width 0": (lambda coder: coder.set_params(width=0), "width must be an integer of at least 1, got 0"),
    "width 1.5": (lambda coder: coder.set_params(width=1.5), "width must be an integer of at least 1, got 1.5"),
    "seed": (lambda coder: coder.set_params(seed=-1), "seed must be an integer of at least 0, got -1"),
    "metric": (lambda coder: coder.set_params(metric="l1"), 'metric must be "l2" or "cosine", got \'l1\''),
    "nothing": (lambda coder: coder.fit(None), "data must be an array (items, features), got None"),
    "ragged rows": (lambda coder: coder.fit([[1, 2], [3]]), "the same number of features in each row"),
    "objects": (lambda coder: coder.fit(np.array([[{}, 1]], dtype=object)), "data must be numeric, got objects"),
    "no items": (lambda coder: coder.fit(np.zeros((0, 3))), "fit needs at least 1 item, got none"),
    "no pieces": (lambda coder: coder.fit(iter([])), "fit needs at least 1 item, got none"),
    "images": (lambda coder: coder.fit(np.zeros((5, 4, 4))), "got shape (5, 4, 4): flatten images"),
    "one vector": (lambda coder: coder.fit([1.0, 2.0]), "data must have 2 dimensions"),
    "words": (lambda coder: coder.fit(np.array([["a"]])), "data must be numeric, got <U1"),
    "no features": (lambda coder: coder.fit(np.zeros((5, 0))), "data must have features, got rows of 0 feature(s)"),
    "pieces that differ": (
        lambda coder: coder.fit(iter([np.eye(4), np.eye(2)])),
        "same number of features, got 4 and 2",
    ),
    "NaN": (lambda coder: coder.fit([[1, np.nan]]), "finite and within float32, but some of it is nan: drop"),
    "infinite": (lambda coder: coder.fit([[1, np.inf]]), "data must be finite and within float32"),
    "beyond float32": (lambda coder: coder.fit([[1.0, 1e300]]), "within float32, but some of it is 1e+300: rescale"),
    "NaN to encode": (
        lambda coder: coder.encode(np.full((1, coder.n_features_in_), np.nan)),
        "finite and within float32, but some of it is nan",
    ),
    "wide codes for coefficients": (
        lambda coder: coder.coefficients(Codes.from_bits(np.zeros((1, 99), bool))),
        "codes must have at most the coder's width",
    ),
    "projecting other features": (lambda coder: coder._project(ROW), "features the coder was fitted on, got 3"),
}


@every_coder
def test_mistakes_are_named(name: str) -> None:
    mistakes = MISTAKES if CASES[name].network else {**MISTAKES, **NUMPY_MISTAKES}
    for call, message in mistakes.values():
        with pytest.raises(InvalidInput, match=re.escape(message)):
            call(copy.deepcopy(fitted(name)))
