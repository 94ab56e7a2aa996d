"""What is particular to the residual coder: beam search, cut bytes; shared laws are in `test_contract.py`."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import nestcode as nc
from nestcode import AdaptiveCoder, LinearCoder, ResidualCoder, _core
from nestcode.coders.codebooks import (
    CLOSE,
    BeamResiduals,
    BeamSearch,
    Lloyd,
    refit_codebooks,
    stages_of,
    train_codebook,
)
from nestcode.errors import DamagedFile, InvalidInput
from nestcode.lengths import Uniform
from nestcode.storage import write_record
from tests.coders import reference
from tests.coders.cases import fitted, fresh_rows, mse, training_rows

# Kernels beside their twins


@given(st.integers(1, 4), st.integers(1, 80), st.integers(1, 40), st.integers(0, 4), st.integers(0, 2**32))
def test_beams_are_extended_as_a_sort_of_all_choices_would(
    beams: int, entries: int, kept: int, lag: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    kept = min(kept, beams * entries)
    errors, norms = rng.random((5, beams), dtype=np.float32), rng.random(entries, dtype=np.float32)
    products = rng.standard_normal((7, entries), dtype=np.float32)
    tables = rng.standard_normal((lag, 256, entries), dtype=np.float32)
    ancestors = rng.integers(0, 7, (5, beams), dtype=np.uint32)
    recent = rng.integers(0, 256, (5, beams, lag), dtype=np.uint8)
    source, entry = np.empty((2, 5, kept), dtype=np.uint16)
    best = np.empty((5, kept), dtype=np.float32)
    _core.extend_beams(errors, ancestors, products, recent, tables, norms, source, entry, best, threads=2)
    left = products[ancestors] - tables[np.arange(lag), recent].sum(axis=2)
    every = (errors[:, :, None] + norms - 2 * left).reshape(5, -1)
    assert np.allclose(best, np.sort(every, axis=1)[:, :kept], atol=1e-4)
    chosen = source.astype(int) * entries + entry
    assert np.allclose(np.take_along_axis(every, chosen, axis=1), best, atol=1e-4)
    assert all(len(set(row)) == kept for row in chosen.tolist())


def test_the_first_of_equal_entries_is_the_nearest() -> None:
    rng = np.random.default_rng(0)
    products, half_norms = rng.integers(-3, 3, (300, 40)).astype(np.float32), rng.integers(0, 2, 40).astype(np.float32)
    nearest = np.empty(300, dtype=np.int64)
    _core.nearest_entries(products, half_norms, nearest, threads=2)
    assert np.array_equal(nearest, np.argmax(products - half_norms, axis=1))


def test_rows_are_summed_by_entry() -> None:
    rng = np.random.default_rng(0)
    rows, entries = rng.standard_normal((300, 70), dtype=np.float32), rng.integers(0, 5, 300)
    sums = np.zeros((5, 70), dtype=np.float32)
    sources = rng.integers(0, 300, 300, dtype=np.uint32)
    _core.sum_rows_by_entry(rows, sources, entries, sums, threads=2)
    assert np.allclose(sums, [rows[sources[entries == entry]].sum(axis=0) for entry in range(5)], atol=1e-4)


def test_a_tree_splits_clusters_and_keeps_equal_rows_together() -> None:
    rng = np.random.default_rng(0)
    centers = 10 * rng.standard_normal((4, 37), dtype=np.float32)
    rows = np.repeat(centers, 25, axis=0)
    leaves = np.empty((8, 37), dtype=np.float32)
    starts = rng.standard_normal((7, 37), dtype=np.float32)
    _core.grow_two_means_tree(rows[rng.permutation(100)], starts, leaves, threads=2)
    assert {tuple(np.round(leaf, 3)) for leaf in leaves} == {tuple(np.round(center, 3)) for center in centers}


def test_entries_are_summed() -> None:
    rng = np.random.default_rng(0)
    chosen = rng.integers(0, 256, (700, 3), dtype=np.uint8)
    codebooks = rng.standard_normal((3, 256, 5)).astype(np.float32)
    out = np.ones((700, 5), dtype=np.float32)
    _core.sum_codebook_entries(chosen, codebooks, out, threads=2)
    assert np.allclose(out, 1 + sum(codebooks[m][chosen[:, m]] for m in range(3)), atol=1e-5)


@pytest.mark.parametrize(
    ("name", "shape", "match"),
    [
        ("ancestors", (2, 2), "an ancestor for each beam"),
        ("products", (3, 5), "a product for each ancestor and entry"),
        ("products", (1, 4), "a product per ancestor"),
        ("recent", (2, 1, 2), "a recent entry for each beam and table"),
        ("tables", (1, 255, 4), "of 256 rows"),
        ("entry", (1, 3), "room for each beam"),
        ("new_errors", (2, 2), "room for each beam"),
        ("norms", (2,), "a product for each ancestor and entry"),
    ],
)
def test_the_core_refuses_arrays_that_do_not_fit(name: str, shape: tuple[int, ...], match: str) -> None:
    arrays: dict[str, Any] = {
        "errors": np.zeros((2, 1), np.float32), "ancestors": np.ones((2, 1), np.uint32),
        "products": np.zeros((3, 4), np.float32), "recent": np.zeros((2, 1, 1), np.uint8),
        "tables": np.zeros((1, 256, 4), np.float32), "norms": np.zeros(4, np.float32),
        "from_beam": np.zeros((2, 3), np.uint16), "entry": np.zeros((2, 3), np.uint16),
        "new_errors": np.zeros((2, 3), np.float32),
    }  # fmt: skip
    _core.extend_beams(**arrays)
    with pytest.raises(ValueError, match=match):
        _core.extend_beams(**{**arrays, name: np.ones(shape, arrays[name].dtype)})


def test_the_core_refuses_entries_that_are_not_there() -> None:
    rows, sums = np.zeros((2, 3), np.float32), np.zeros((4, 3), np.float32)
    for source, entry, match in ((0, -1, "of sums for each entry"), (0, 4, "of sums for each entry"), (2, 0, "source")):
        with pytest.raises(ValueError, match=f"a row .*{match}"):
            _core.sum_rows_by_entry(rows, np.array([0, source], np.uint32), np.array([0, entry]), sums)
    with pytest.raises(ValueError, match="a start for each node"):
        _core.grow_two_means_tree(rows, rows, sums)
    with pytest.raises(ValueError, match="each value of some bits"):
        _core.grow_two_means_tree(rows, rows, sums[:3])
    with pytest.raises(ValueError, match="room for each row"):
        _core.nearest_entries(rows, np.zeros(3, np.float32), np.zeros(3, np.int64))
    with pytest.raises(ValueError, match="codebook of 256"):
        _core.sum_codebook_entries(np.zeros((2, 3), np.uint8), np.zeros((2, 256, 4), np.float32), sums[:2, :2].copy())


@pytest.mark.parametrize("beams", [1, 5])
def test_residuals_follow_from_the_chosen_entries(beams: int) -> None:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((50, 6), dtype=np.float32)
    codebooks = [rng.standard_normal((256, 6), dtype=np.float32) for _ in range(7)]
    search = BeamSearch(rows)
    for count, stage in enumerate(stages_of(codebooks), start=1):
        search.extend(stage, beams)
        sums = sum(codebook[search.entries[:, :, m]] for m, codebook in enumerate(codebooks[:count]))
        residuals = rows[:, None] - sums
        assert np.allclose(search.errors, (residuals**2).sum(axis=2), atol=1e-4)
        close = (search.errors <= CLOSE * search.errors[:, :1]).T
        left = search.beam_residuals(beams).array()
        assert np.allclose(left, residuals.transpose(1, 0, 2)[close], atol=1e-5)


@pytest.mark.parametrize("beams", [1, 3])
def test_encoding_is_a_beam_search_of_any_width(beams: int) -> None:
    coder = ResidualCoder(width=28, beams=beams).fit(training_rows("residual"))
    rows = fresh_rows("residual")[:5]
    assert np.array_equal(coder.transform(rows), reference.encode_residual(coder, rows))


def test_lloyd_of_beams_equals_that_of_their_residuals() -> None:
    rng = np.random.default_rng(0)
    search = BeamSearch(rng.standard_normal((300, 6), dtype=np.float32))
    for stage in stages_of([rng.standard_normal((256, 6), dtype=np.float32) for _ in range(3)]):
        search.extend(stage, 3)
    beams = search.beam_residuals(3)
    shared = train_codebook([beams], 4, np.random.default_rng(1))
    plain = train_codebook(BeamResiduals.of(beams.array()), 4, np.random.default_rng(1))
    np.testing.assert_allclose(shared, plain, atol=1e-4)


def test_each_lloyd_iteration_takes_the_next_rows() -> None:
    rows = np.random.default_rng(0).standard_normal((2, 100, 5), dtype=np.float32)
    parts, relaxations = [BeamResiduals.of(part)[0] for part in rows], (1.7, 1.0, 1.3)
    wanted = train_codebook(parts, 3, np.random.default_rng(1), Lloyd(100, ()))
    for iteration, relaxation in enumerate(relaxations):
        some = rows[iteration % 2]
        nearest = ((some[:, None] - wanted) ** 2).sum(axis=2).argmin(axis=1)
        means = [some[nearest == entry].mean(axis=0) for entry in range(8)]
        wanted = wanted + relaxation * (np.array(means) - wanted)
    found = train_codebook(parts, 3, np.random.default_rng(1), Lloyd(100, relaxations))
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_refitted_codebooks_have_the_least_expected_error_of_a_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nestcode.coders.codebooks.RIDGE", 1e-9)
    rng = np.random.default_rng(0)
    codes, rows = rng.integers(0, 8, (400, 3), dtype=np.uint8), rng.standard_normal((400, 2), dtype=np.float32)
    survival, pmf = Uniform().survival(3), Uniform().pmf(3)
    found = refit_codebooks(rows, codes, np.zeros((3, 256, 2), np.float32), survival)
    design = np.eye(8)[codes]  # (n, stages, entries); each prefix is one regression
    kept = [np.sqrt(p) * design * (np.arange(3) <= last)[:, None] for last, p in enumerate(pmf)]
    wanted = np.concatenate([np.sqrt(p) * rows for p in pmf])
    best = np.linalg.lstsq(np.concatenate(kept).reshape(1200, -1), wanted)[0].reshape(3, 8, 2)
    decoded, wanted = (
        np.stack([book[chosen] for book, chosen in zip(books, codes.T, strict=True)]).cumsum(axis=0)
        for books in (found, best)
    )
    np.testing.assert_allclose(decoded, wanted, atol=1e-4)


# Prefixes


def test_a_cut_byte_decodes_to_the_mean_of_its_subtree() -> None:
    coder, data = fitted("residual"), training_rows("residual")
    codes = coder.encode(data)
    for length in (1, 3, 11, 26):
        decoded = coder.decode(codes.prefix(length))
        whole = coder.decode(codes.prefix(length // 8 * 8))
        assert mse(decoded, data) < mse(whole, data)
    first = coder.decode(codes.prefix(1))
    for bit in (0, 1):
        own = codes.bits()[:, 0] == bit
        assert np.allclose(first[own], data[own].mean(axis=0), atol=0.15)


def test_more_beams_make_better_codes() -> None:
    data, fresh, errors = training_rows("residual"), fresh_rows("residual"), []
    for beams in (1, 4):
        coder = ResidualCoder(width=24, beams=beams).fit(data)
        errors.append(mse(coder.decode(coder.encode(fresh)), fresh))
    assert errors[1] < errors[0]


# Few rows


def test_codebooks_of_few_rows_suit_others_and_their_errors_tell() -> None:
    rows = np.random.default_rng(0).standard_normal((2300, 32), dtype=np.float32) / np.arange(1, 33) ** 0.5
    few, fresh = rows[:300], rows[300:]
    coder, linear = ResidualCoder(width=32).fit(few), LinearCoder(width=32).fit(few)
    codes = coder.encode(fresh)
    errors = [mse(coder.decode(codes.prefix(length)), fresh) for length in (8, 16, 32)]
    assert errors[-1] < mse(linear.decode(linear.encode(fresh)), fresh)
    np.testing.assert_allclose([coder.expected_error(length) for length in (8, 16, 32)], errors, rtol=0.1)


# Mistakes


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("books", np.zeros((4, 256, 3), np.float32)),
        ("directions", np.full((20, 20), np.inf, np.float32)),
        ("books", np.full((4, 256, 20), np.nan, np.float32)),
        ("counts", np.full((4, 256), -1, np.int64)),
        ("errors", np.zeros(5)),
        ("mean", np.zeros(20, np.float32)),
    ],
)
def test_the_array_that_does_not_fit_is_named(name: str, array: NDArray[Any], tmp_path: Path) -> None:
    record = fitted("residual").to_record()
    write_record(tmp_path / "bad", replace(record, arrays={**record.arrays, name: array}))
    with pytest.raises(DamagedFile, match=rf"bad is not a ResidualCoder.*its {name}"):
        nc.load_coder(tmp_path / "bad")


@pytest.mark.parametrize("kind", [ResidualCoder, AdaptiveCoder])
def test_impossible_beams_are_named(kind: Any) -> None:
    with pytest.raises(InvalidInput, match="beams must be an integer of at least 1, got 0"):
        kind(8, beams=0)
    with pytest.raises(InvalidInput, match=r"beams must be at most 1024, got 9999: \d is good"):
        kind(8, beams=9999)
