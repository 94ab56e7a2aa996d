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
from nestcode import AdaptiveCoder, ResidualCoder, _core
from nestcode.errors import DamagedFile, InvalidInput
from nestcode.storage import write_record
from tests.coders import reference
from tests.coders.cases import fitted, fresh_rows, mse, training_rows

# Kernels beside their twins


@given(st.integers(1, 4), st.integers(1, 9), st.integers(1, 12), st.integers(0, 2**32))
def test_beams_are_extended_as_a_sort_of_all_choices_would(beams: int, entries: int, kept: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    kept = min(kept, beams * entries)
    errors = rng.random((5, beams), dtype=np.float32)
    products = rng.standard_normal((5, beams, entries)).astype(np.float32)
    norms = rng.random(entries, dtype=np.float32)
    source, entry = np.empty((2, 5, kept), dtype=np.uint16)
    best = np.empty((5, kept), dtype=np.float32)
    _core.extend_beams(errors, products, norms, source, entry, best, threads=2)
    every = (errors[:, :, None] + norms - 2 * products).reshape(5, -1)
    order = np.argsort(every, axis=1, kind="stable")[:, :kept]
    assert np.allclose(best, np.take_along_axis(every, order, axis=1), atol=1e-6)
    chosen = source.astype(int) * entries + entry
    assert np.allclose(np.take_along_axis(every, chosen, axis=1), best, atol=1e-6)
    assert all(len(set(row)) == kept for row in chosen.tolist())


def test_entries_are_summed() -> None:
    rng = np.random.default_rng(0)
    chosen = rng.integers(0, 256, (700, 3), dtype=np.uint8)
    codebooks = rng.standard_normal((3, 256, 5)).astype(np.float32)
    out = np.ones((700, 5), dtype=np.float32)
    _core.sum_codebook_entries(chosen, codebooks, out, threads=2)
    assert np.allclose(out, 1 + sum(codebooks[m][chosen[:, m]] for m in range(3)), atol=1e-5)


def test_the_core_refuses_arrays_that_do_not_fit() -> None:
    floats, shorts = np.zeros((2, 1), np.float32), np.zeros((2, 3), np.uint16)
    products, norms = np.zeros((2, 1, 4), np.float32), np.zeros(4, np.float32)
    with pytest.raises(ValueError, match="a product for each"):
        _core.extend_beams(floats, products[:1], norms, shorts, shorts, np.zeros((2, 3), np.float32))
    with pytest.raises(ValueError, match="room for each beam"):
        _core.extend_beams(floats, products, norms, shorts, shorts[:1], np.zeros((2, 3), np.float32))
    many = np.zeros((2, 5), np.uint16)
    with pytest.raises(ValueError, match="no more than there are candidates"):
        _core.extend_beams(floats, products, norms, many, many, np.zeros((2, 5), np.float32))
    with pytest.raises(ValueError, match="codebook of 256"):
        _core.sum_codebook_entries(
            np.zeros((2, 3), np.uint8), np.zeros((2, 256, 4), np.float32), np.zeros((2, 4), np.float32)
        )


@pytest.mark.parametrize("beams", [1, 3])
def test_encoding_is_a_beam_search_of_any_width(beams: int) -> None:
    coder = ResidualCoder(width=28, beams=beams).fit(training_rows("residual"))
    rows = fresh_rows("residual")[:5]
    assert np.array_equal(coder.transform(rows), reference.encode_residual(coder, rows))


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
    data, errors = training_rows("residual"), []
    for beams in (1, 4, 16):
        coder = ResidualCoder(width=32, beams=beams).fit(data)
        errors.append(mse(coder.decode(coder.encode(data)), data))
    assert errors[2] < errors[1] < errors[0]


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
