"""The residual coder: its beams, its prefixes, its distances, and what it refuses; and the choice of a coder."""

import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import nestcode as nc
from nestcode import Codes, ResidualCoder, _core
from nestcode.coders import codebooks
from nestcode.errors import DamagedFile, InvalidInput, NotFitted
from nestcode.search import asymmetric_distances
from nestcode.storage import Record, write_record

Rows = NDArray[np.float32]


def clustered(n: int, features: int = 20, seed: int = 0) -> Rows:
    """A flat spectrum with structure that no single direction shows."""
    centers = np.random.default_rng(7).standard_normal((60, features))
    rng = np.random.default_rng(seed)
    rows: Rows = (5 + centers[rng.integers(0, 60, n)] + 0.3 * rng.standard_normal((n, features))).astype(np.float32)
    return rows


@pytest.fixture(scope="module")
def data() -> Rows:
    return clustered(3000)


@pytest.fixture(scope="module")
def coder(data: Rows) -> ResidualCoder:
    return ResidualCoder(width=28).fit(data)  # three and a half bytes


def mse(a: NDArray[Any], b: NDArray[Any]) -> float:
    return float(np.mean((a.astype(np.float64) - b) ** 2))


# Kernels beside their twins


@given(st.integers(1, 4), st.integers(1, 9), st.integers(1, 12), st.integers(0, 2**32))
def test_beams_are_extended_as_sorting_all_choices_would(beams: int, entries: int, kept: int, seed: int) -> None:
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
    cells = rng.integers(0, 256, (700, 3), dtype=np.uint8)
    books = rng.standard_normal((3, 256, 5)).astype(np.float32)
    out = np.ones((700, 5), dtype=np.float32)
    _core.sum_codebook_entries(cells, books, out, threads=2)
    assert np.allclose(out, 1 + sum(books[m][cells[:, m]] for m in range(3)), atol=1e-5)


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
def test_encoding_is_the_beam_search_it_says(coder: ResidualCoder, data: Rows, beams: int) -> None:
    """Item by item: keep the best partial sums, and answer with the best at the end."""
    model = coder._fitted()
    books = [*model.codebooks[:3], model.codebooks[3, ::16]]  # the last byte has 4 bits
    coefficients = (data[:5] - model.mean.astype(np.float32)) @ model.directions.T
    for row in coefficients:
        beam: list[tuple[Any, tuple[int, ...]]] = [(row, ())]
        for stage in range(len(model.codebooks)):
            longer = [(left - entry, (*path, e)) for left, path in beam for e, entry in enumerate(books[stage])]
            beam = sorted(longer, key=lambda one: float(np.sum(one[0].astype(float) ** 2)))[:beams]
        cells = codebooks.encode(row[None], books, beams)
        assert tuple(cells[0].tolist()) == beam[0][1]


# Prefixes


def test_every_bit_lowers_the_error_of_rows_it_has_not_seen(coder: ResidualCoder) -> None:
    unseen = clustered(3000, seed=1)
    codes = coder.encode(unseen)
    errors = [mse(coder.decode(codes.prefix(length)), unseen) for length in range(29)]
    assert all(longer < shorter for shorter, longer in pairwise(errors))
    assert np.allclose(errors, [coder.expected_error(length) for length in range(29)], rtol=0.1)


def test_a_part_of_a_byte_stands_for_the_mean_of_what_shares_it(coder: ResidualCoder, data: Rows) -> None:
    codes = coder.encode(data)
    for length in (1, 3, 11, 26):
        decoded = coder.decode(codes.prefix(length))
        whole = coder.decode(codes.prefix(length // 8 * 8))
        assert mse(decoded, data) < mse(whole, data)
    first = coder.decode(codes.prefix(1))
    for bit in (0, 1):
        own = codes.bits()[:, 0] == bit
        assert np.allclose(first[own], data[own].mean(axis=0), atol=0.15)
    assert np.allclose(coder.decode(codes.prefix(0)), data.mean(axis=0), atol=1e-4)


def test_more_beams_make_better_codes(data: Rows) -> None:
    errors = []
    for beams in (1, 4, 16):
        coder = ResidualCoder(width=32, beams=beams).fit(data)
        errors.append(mse(coder.decode(coder.encode(data)), data))
    assert errors[2] < errors[1] < errors[0]


@pytest.mark.parametrize("width", [1, 7, 8, 9, 20])
def test_any_width_works(width: int, data: Rows) -> None:
    coder = ResidualCoder(width=width).fit(data)
    codes = coder.encode(data)
    assert codes == Codes(codes.packed, width)  # the padding is clean
    assert mse(coder.decode(codes), data) < mse(coder.decode(codes.prefix(width - 1)), data)
    assert np.array_equal(coder.inverse_transform(coder.transform(data)), coder.decode(codes))


# Distances


def test_distances_are_those_to_what_decodes(coder: ResidualCoder, data: Rows) -> None:
    codes = coder.encode(data)
    for length in (0, 5, 8, 21, 28):
        decoded = coder.decode(codes.prefix(length))
        slow = ((data[:7, None].astype(np.float64) - decoded[None]) ** 2).sum(axis=2)
        assert np.allclose(asymmetric_distances(coder, data[:7], codes.prefix(length)), slow, atol=1e-3, rtol=1e-4)


def test_cosine_compares_angles(data: Rows) -> None:
    coder = ResidualCoder(width=24, metric="cosine").fit(data)
    codes = coder.encode(data)
    assert coder.encode(17 * data) == codes
    unit = data[:9] / np.linalg.norm(data[:9], axis=1, keepdims=True)
    decoded = coder.decode(codes)
    decoded /= np.linalg.norm(decoded, axis=1, keepdims=True)
    expected = ((unit[:, None] - decoded[None]) ** 2).sum(axis=2)
    assert np.allclose(asymmetric_distances(coder, 3 * data[:9], codes), expected, atol=1e-5)


# Life


def test_the_same_seed_gives_the_same_coder(data: Rows) -> None:
    whole = ResidualCoder(width=16).fit(data)
    assert whole.fingerprint == ResidualCoder(width=16).fit(data).fingerprint
    assert whole.fingerprint != ResidualCoder(width=16, seed=1).fit(data).fingerprint
    pieces = ResidualCoder(width=16).fit([data[:1000], data[1000:]])  # whose sums are rounded otherwise
    assert mse(pieces.decode(pieces.encode(data)), data) < 1.05 * mse(whole.decode(whole.encode(data)), data)


def test_saving_and_loading_is_the_identity(coder: ResidualCoder, data: Rows, tmp_path: Path) -> None:
    coder.save(tmp_path / "a.coder")
    loaded = nc.load_coder(tmp_path / "a.coder")
    assert loaded.fingerprint == coder.fingerprint
    assert loaded.encode(data) == coder.encode(data)
    index = nc.Index(loaded)
    index.add(data)
    index.save(tmp_path / "index")
    assert 5 in nc.Index.open(tmp_path / "index").neighborhood(data[5], size=1).ids


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
def test_records_that_do_not_fit_together_are_refused(
    name: str, array: NDArray[Any], coder: ResidualCoder, tmp_path: Path
) -> None:
    record = coder.to_record()
    write_record(tmp_path / "bad", Record(record.kind, 1, record.settings, {**record.arrays, name: array}))
    with pytest.raises(DamagedFile, match=rf"bad is not a ResidualCoder.*its {name}"):
        nc.load_coder(tmp_path / "bad")


@pytest.mark.parametrize(
    "rows",
    [np.ones((50, 3)), np.arange(6.0).reshape(3, 2), np.eye(2), np.zeros((1, 4))],
    ids=["all alike", "three", "two", "one"],
)
def test_little_data_is_learnt_by_heart(rows: NDArray[np.float64]) -> None:
    coder = ResidualCoder(width=16).fit(rows)
    assert np.allclose(coder.decode(coder.encode(rows)), rows, atol=1e-5)
    assert len(coder.encode(rows[:0])) == 0
    assert coder.decode(coder.encode(rows[:0])).shape == (0, rows.shape[1])


MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "width": (lambda: ResidualCoder(width=0), "width must be an integer of at least 1, got 0"),
    "beams": (lambda: ResidualCoder(8, beams=0), "beams must be an integer of at least 1, got 0"),
    "many beams": (lambda: ResidualCoder(8, beams=9999), "beams must be at most 1024, got 9999"),
    "metric": (lambda: ResidualCoder(8, "l1"), '"l2" or "cosine", got \'l1\''),  # type: ignore[arg-type]
    "no items": (lambda: ResidualCoder(8).fit(np.zeros((0, 3))), "at least 1 item"),
    "not a number": (lambda: ResidualCoder(8).fit([[np.nan, 1]]), "finite"),
    "one vector": (lambda: ResidualCoder(8).fit([1.0, 2.0]), "2 dimensions"),
    "features": (lambda: ResidualCoder(8).fit(np.eye(3)).encode(np.eye(4)), "the 3 features"),
    "longer codes": (
        lambda: ResidualCoder(8).fit(np.eye(3)).decode(Codes.from_bits(np.zeros((1, 9), bool))),
        "at most the coder's width 8, got 9",
    ),
    "length": (lambda: ResidualCoder(8).fit(np.eye(3)).expected_error(9), "between 0 and the coder's width 8, got 9"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_named(mistake: str) -> None:
    call, message = MISTAKES[mistake]
    with pytest.raises(InvalidInput, match=re.escape(message)):
        call()


def test_a_coder_must_be_fitted() -> None:
    with pytest.raises(NotFitted, match="call fit"):
        ResidualCoder(width=8).encode(np.eye(3))
