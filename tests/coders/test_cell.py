"""The cell coder: its cells, its bits, its prefixes, its distances, and what it refuses."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import nestcode as nc
from nestcode import CellCoder, Codes, LinearCoder, ResidualCoder
from nestcode.coders import sampling as _principal
from nestcode.coders.cell import kmeans as _cells
from nestcode.errors import DamagedFile, InvalidInput, NotFitted
from nestcode.search import asymmetric_distances
from nestcode.storage import write_record

Rows = NDArray[np.float32]
LENGTHS = [0, 1, 3, 5, 6, 8, 13, 16, 39, 40]  # of codes whose first 5 bits name the cell


def clustered(n: int, features: int = 12, seed: int = 0) -> Rows:
    """A falling spectrum, with structure that no single direction shows."""
    scales = np.arange(1, features + 1) ** -0.5
    centers = np.random.default_rng(7).standard_normal((40, features))
    rng = np.random.default_rng(seed)
    rows = centers[rng.integers(0, 40, n)] + 0.3 * rng.standard_normal((n, features))
    return (3 + rows * scales).astype(np.float32)


@pytest.fixture(scope="module")
def data() -> Rows:
    return clustered(3000)


@pytest.fixture(scope="module")
def coder(data: Rows) -> CellCoder:
    return CellCoder(width=40, cells=32).fit(data)


def mse(a: NDArray[Any], b: NDArray[Any]) -> float:
    return float(np.mean((a.astype(np.float64) - b) ** 2))


def numbers_of(codes: Codes, bits: int) -> NDArray[np.int64]:
    """The first bits of codes as numbers."""
    numbers: NDArray[np.int64] = codes.bits()[:, :bits] @ (1 << np.arange(bits)[::-1])
    return numbers


# Bits


def encode_twin(coder: CellCoder, X: Rows) -> list[list[int]]:
    """Item by item: the nearest centre's number, then a walk down the tree of the direction that each bit refines."""
    model = coder._fitted()
    codes = []
    for numbers in coder._project(X):
        cell = int(np.argmin(((numbers - model.centroids) ** 2).sum(axis=1)))
        left = numbers - model.centroids[cell]
        nodes = [1] * len(left)
        bits = [int(bit) for bit in f"{cell:0{model.cell_bits}b}"]
        for owner in model.planes.allocation:
            bit = int(left[owner] > model.planes.thresholds[owner, nodes[owner]])
            nodes[owner] = 2 * nodes[owner] + bit
            bits.append(bit)
        codes.append(bits)
    return codes


def decode_twin(coder: CellCoder, codes: Codes) -> NDArray[np.float64]:
    model = coder._fitted()
    out = []
    for bits in codes.bits().tolist():
        head = bits[: model.cell_bits]
        below = [
            cell
            for cell in range(len(model.centroids))
            if [int(bit) for bit in f"{cell:0{model.cell_bits}b}"][: len(head)] == head
        ]
        coefficients = np.average(model.centroids[below], axis=0, weights=model.counts[below] + 1e-6)
        nodes = [1] * len(coefficients)
        for owner, bit in zip(model.planes.allocation, bits[model.cell_bits :], strict=False):
            nodes[owner] = 2 * nodes[owner] + int(bit)
        coefficients += [model.planes.levels[d, node] if node > 1 else 0.0 for d, node in enumerate(nodes)]
        out.append(model.mean + (coefficients if head else 0 * coefficients) @ model.directions)
    return np.array(out)


def test_encoding_equals_its_twin(coder: CellCoder, data: Rows) -> None:
    assert np.array_equal(coder.transform(data[:60]), encode_twin(coder, data[:60]))


@pytest.mark.parametrize("length", LENGTHS)
def test_decoding_equals_its_twin_at_every_length(coder: CellCoder, data: Rows, length: int) -> None:
    codes = coder.encode(data[:60]).prefix(length)
    np.testing.assert_allclose(coder.decode(codes), decode_twin(coder, codes), atol=1e-5)


def test_the_error_falls_with_every_bit_and_is_the_one_expected(coder: CellCoder, data: Rows) -> None:
    codes = coder.encode(data)
    errors = [mse(data, coder.decode(codes.prefix(length))) for length in range(41)]
    assert (np.diff(errors) < 0).all()
    np.testing.assert_allclose(errors, [coder.expected_error(length) for length in range(41)], rtol=1e-3)


def test_errors_are_those_of_rows_it_has_not_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_cells, "TRAIN_ROWS", 0)  # so 64 rows a cell
    monkeypatch.setattr(_principal, "SAMPLE_ROWS", 3000)
    coder = CellCoder(width=24, cells=64).fit(clustered(20_000))
    assert coder._fitted().counts.sum() == 64 * 64
    unseen = clustered(20_000, seed=1)
    errors = [mse(unseen, coder.decode(coder.encode(unseen).prefix(length))) for length in (0, 3, 6, 12, 24)]
    np.testing.assert_allclose([coder.expected_error(length) for length in (0, 3, 6, 12, 24)], errors, rtol=0.05)


@pytest.mark.parametrize(
    ("width", "cells"), [(1, None), (2, None), (9, None), (1, 2), (8, 2), (20, 2), (5, 32), (9, 32), (20, 32)]
)
def test_expected_errors_never_rise(width: int, cells: int | None) -> None:
    rows = np.random.default_rng(0).standard_t(2, (300, 6))  # with outliers
    coder = CellCoder(width=width, cells=cells).fit(rows)
    errors = [coder.expected_error(length) for length in range(width + 1)]
    assert (np.diff(errors) <= 0).all()
    codes = coder.encode(rows)
    assert codes == Codes(codes.packed, width)  # the padding is clean
    assert mse(rows, coder.decode(codes)) == pytest.approx(errors[-1], rel=1e-3)


def test_no_bits_give_the_mean(coder: CellCoder, data: Rows) -> None:
    np.testing.assert_allclose(coder.decode(coder.encode(data[:2]).prefix(0)), [data.mean(axis=0)] * 2, atol=1e-5)


def test_it_beats_single_directions_where_data_is_clustered(data: Rows) -> None:
    coders = CellCoder(width=24, cells=64).fit(data), LinearCoder(width=24).fit(data)
    unseen = clustered(3000, seed=1)
    cells, linear = (mse(unseen, coder.decode(coder.encode(unseen))) for coder in coders)
    assert cells < 0.8 * linear


# Cells


def test_a_cell_is_all_that_is_nearest_to_its_centre(coder: CellCoder, data: Rows) -> None:
    model = coder._fitted()
    numbers = numbers_of(coder.encode(data), 5)
    projected = coder._project(data)
    distances = ((projected[:, None] - model.centroids) ** 2).sum(axis=2)
    assert np.array_equal(distances.argmin(axis=1), numbers)
    assert model.counts.sum() == len(data)
    seen = model.centroids.any(axis=0)
    means = np.array([projected[numbers == cell].mean(axis=0) for cell in range(32)])
    assert mse(means[:, seen], model.centroids[:, seen]) < 0.002


def test_first_bits_stand_for_the_mean_of_what_shares_them(coder: CellCoder, data: Rows) -> None:
    codes, projected = coder.encode(data), coder._project(data)
    seen = coder._fitted().centroids.any(axis=0)
    for length in (1, 2, 4):
        decoded, numbers = coder.coefficients(codes.prefix(length)), numbers_of(codes, length)
        owns = [numbers == number for number in range(1 << length)]
        means = np.array([projected[own].mean(axis=0) for own in owns])
        assert mse(means[:, seen], np.array([decoded[own][0, seen] for own in owns])) < 0.002


@pytest.mark.parametrize(
    ("rows", "width", "cells"), [(10, 9, 2), (400, 9, 2), (700, 9, 4), (3000, 9, 16), (3000, 2, 4), (3000, 1, 2)]
)
def test_the_number_of_cells_suits_the_rows(rows: int, width: int, cells: int) -> None:
    coder = CellCoder(width=width).fit(clustered(rows))
    assert len(coder._fitted().centroids) == cells
    assert coder.cells is None
    assert 1 << coder._fitted().cell_bits == cells


def test_the_number_of_cells_has_an_end() -> None:
    assert [_cells.choose_bits(rows) for rows in (1, 340_000, 1_000_000, 10**9)] == [1, 11, 12, 12]


def test_directions_with_little_variance_are_left_to_the_planes() -> None:
    rows = clustered(2000) * np.array([1] * 4 + [0.01] * 8, np.float32)
    model = CellCoder(width=60, cells=8).fit(rows)._fitted()
    assert 1 <= model.centroids.any(axis=0).sum() <= 4
    assert not model.centroids[:, 4:].any()
    assert model.centroids.shape == (8, len(model.directions))
    assert len(model.planes.levels) == len(model.planes.thresholds) == len(model.directions) > 4


# What search uses


@pytest.mark.parametrize("metric", ["l2", "cosine"])
@pytest.mark.parametrize("kind", [CellCoder, LinearCoder, ResidualCoder])
def test_coefficients_are_what_decodes_in_principal_directions(kind: Any, metric: Any, data: Rows) -> None:
    coder = kind(width=36, metric=metric).fit(data)
    codes = coder.encode(data)
    model = coder._fitted()
    mean, directions = model.mean, model.directions
    for length in (0, 2, 7, 20, 36):
        coefficients = coder.coefficients(codes.prefix(length))
        assert coefficients.dtype == np.float32
        assert coefficients.shape == (len(data), len(directions))
        np.testing.assert_allclose(
            coefficients @ directions + mean, coder.decode(codes.prefix(length)), rtol=1e-4, atol=1e-5
        )
    unit = data / np.linalg.norm(data, axis=1, keepdims=True) if metric == "cosine" else data
    np.testing.assert_allclose(coder._project(data), (unit - mean) @ directions.T, atol=1e-4)
    with pytest.raises(InvalidInput, match="the 12 features"):
        coder._project(data[:, 1:])
    with pytest.raises(InvalidInput, match="width 36"):
        coder.coefficients(Codes.from_bits(np.zeros((1, 37), bool)))


@pytest.mark.parametrize("metric", ["l2", "cosine"])
@pytest.mark.parametrize("length", LENGTHS)
def test_asymmetric_distances_are_those_to_the_decoded_codes(data: Rows, metric: Any, length: int) -> None:
    coder = CellCoder(width=40, metric=metric, cells=32).fit(data)
    codes, queries = coder.encode(data[:80]).prefix(length), data[100:107]
    decoded = coder.decode(codes)
    scaled = queries
    if metric == "cosine":  # by angle
        scaled, decoded = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (queries, decoded))
    expected = ((scaled[:, None].astype(np.float64) - decoded) ** 2).sum(axis=2)
    np.testing.assert_allclose(asymmetric_distances(coder, queries, codes), expected, rtol=1e-4, atol=1e-4)


# Data of all kinds


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.uint8, np.int32])
def test_types_of_numbers(dtype: Any) -> None:
    X = (clustered(300) * 20 + 100).clip(0, 255).astype(dtype)
    coder = CellCoder(width=12, cells=4).fit(X)
    assert coder.decode(coder.encode(X)).dtype == np.float32
    assert mse(X, coder.decode(coder.encode(X))) < X.astype(np.float64).var(axis=0).mean()


@pytest.mark.parametrize("metric", ["l2", "cosine"])
@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1e12, 1e30])
def test_the_scale_of_the_data_does_not_matter(metric: Any, scale: float) -> None:
    X = clustered(500).astype(np.float64) - 3
    plain = CellCoder(width=20, metric=metric, cells=16).fit(X)
    scaled = CellCoder(width=20, metric=metric, cells=16).fit(X * scale)
    assert np.mean(plain.transform(X) == scaled.transform(X * scale)) > 0.99
    assert scaled.expected_error(20) / scaled.expected_error(0) == pytest.approx(
        plain.expected_error(20) / plain.expected_error(0), rel=1e-2
    )


@pytest.mark.parametrize(
    ("X", "useful"),
    [
        (np.ones((50, 4)), 0),  # nothing varies
        (np.ones((1, 3)), 0),  # one item
        (np.array([[0.0, 5.0], [1.0, 5.0]]), 1),  # two items that differ in one feature
        (np.repeat(np.random.default_rng(0).standard_normal((5, 40)), 9, axis=0), 3),  # fewer items than cells
    ],
    ids=["all alike", "one", "two", "five"],
)
@pytest.mark.parametrize("cells", [None, 8, 128])
def test_data_that_cannot_fill_the_code(X: NDArray[np.float64], useful: int, cells: int | None) -> None:
    with pytest.warns(UserWarning, match="unallocated") as caught:
        coder = CellCoder(width=30, cells=cells).fit(X)
    assert len(caught) == 1
    said = int(str(caught[0].message).split()[3])
    assert useful <= said <= (15 if useful else 0)
    np.testing.assert_allclose(coder.decode(coder.encode(X)), X, atol=1e-5)
    assert coder.encode(X).width == 30
    assert asymmetric_distances(coder, X, coder.encode(X)).shape == (len(X), len(X))
    assert coder.expected_error(30) == pytest.approx(0, abs=1e-10)


def test_a_code_may_be_nothing_but_the_cell(data: Rows) -> None:
    coder = CellCoder(width=4, cells=16).fit(data)
    codes = coder.encode(data)
    np.testing.assert_allclose(coder.decode(codes[:60]), decode_twin(coder, codes[:60]), atol=1e-5)
    assert coder._fitted().planes.allocation.shape == (0,)
    slow = ((data[:3, None].astype(np.float64) - coder.decode(codes)) ** 2).sum(axis=2)
    np.testing.assert_allclose(asymmetric_distances(coder, data[:3], codes), slow, rtol=1e-3, atol=1e-4)


def test_many_cells_take_more_than_a_byte() -> None:
    X = clustered(4000)
    coder = CellCoder(width=21, cells=1024).fit(X)
    codes = coder.encode(X)
    assert len(np.unique(numbers_of(codes, 10))) > 900
    np.testing.assert_allclose(coder.decode(codes[:20]), decode_twin(coder, codes[:20]), atol=1e-5)


def test_pieces_memory_maps_and_arrays_fit_the_same(tmp_path: Path) -> None:
    X = clustered(9000)
    np.save(tmp_path / "X.npy", X)
    whole = CellCoder(width=20).fit(X)
    mapped = CellCoder(width=20).fit(np.load(tmp_path / "X.npy", mmap_mode="r"))
    in_pieces = CellCoder(width=20).fit(X[i : i + 1111] for i in range(0, len(X), 1111))
    assert mapped.fingerprint == whole.fingerprint
    assert in_pieces.expected_error(20) == pytest.approx(whole.expected_error(20), rel=0.02)


def test_the_same_seed_gives_the_same_coder(coder: CellCoder, data: Rows) -> None:
    assert CellCoder(width=40, cells=32).fit(data).fingerprint == coder.fingerprint
    assert CellCoder(width=40, cells=32, seed=1).fit(data).fingerprint != coder.fingerprint


def test_cosine_ignores_lengths(data: Rows) -> None:
    coder = CellCoder(width=24, metric="cosine", cells=16).fit(data)
    scaled = data * np.random.default_rng(0).uniform(0.1, 10, (len(data), 1))
    assert np.mean(coder.transform(scaled) == coder.transform(data)) > 0.999
    assert len(coder.encode(np.zeros((1, 12)))) == 1  # a zero has no direction, and no error
    rows = np.concatenate([np.eye(3), -np.eye(3), np.zeros((1, 3))])
    few = CellCoder(width=6, metric="cosine").fit(rows)
    assert np.allclose(asymmetric_distances(few, rows[-1:], few.encode(rows[:6])), 1, atol=1e-5)


def test_no_items_encode_to_no_codes(coder: CellCoder, data: Rows) -> None:
    codes = coder.encode(np.zeros((0, 12)))
    assert (len(codes), codes.width) == (0, 40)
    assert coder.decode(codes).shape == (0, 12)
    assert asymmetric_distances(coder, np.zeros((0, 12)), coder.encode(data[:5])).shape == (0, 5)
    assert asymmetric_distances(coder, data[:300], codes).shape == (300, 0)


# Life


def test_a_setting_changed_after_the_fit_waits_for_the_next_one(data: Rows) -> None:
    coder = CellCoder(width=np.int64(16), cells=np.int64(8)).fit(data)  # type: ignore[arg-type]
    codes = coder.encode(data)
    coder.set_params(width=9, metric="cosine", cells=512)
    assert coder.encode(data) == codes
    assert coder.to_record().settings == {"width": 16, "metric": "l2", "cells": 8, "seed": 0}
    assert coder.fit(data).encode(data).width == 9


def test_a_failed_fit_loses_nothing(data: Rows) -> None:
    coder = CellCoder(width=16).fit(data)
    before = coder.fingerprint
    with pytest.raises(InvalidInput):
        coder.fit(np.full((5, 12), np.nan))
    assert coder.fingerprint == before


@pytest.mark.parametrize("cells", [None, 32])
def test_save_then_load_is_the_same_coder(data: Rows, tmp_path: Path, cells: int | None) -> None:
    coder = CellCoder(width=37, metric="cosine", cells=cells, seed=3).fit(data)
    coder.save(tmp_path / "it.coder")
    loaded = nc.load_coder(tmp_path / "it.coder")
    assert isinstance(loaded, CellCoder)
    assert loaded.get_params() == coder.get_params()
    assert loaded.fingerprint == coder.fingerprint
    codes = coder.encode(data)
    assert loaded.encode(data) == codes
    assert np.array_equal(loaded.decode(codes), coder.decode(codes))
    assert np.array_equal(loaded._fitted().planes.errors, coder._fitted().planes.errors)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("centers", lambda array: array[:16]),
        ("centers", lambda array: array[:, :3]),
        ("centers", lambda array: array * np.nan),
        ("counts", lambda array: array - 10_000),
        ("counts", lambda array: array[:5]),
        ("errors", lambda array: array[:4]),
        ("mean", lambda array: array.astype(np.float32)),
        ("directions", lambda array: array[:, :2]),
        ("owners", lambda array: array + 100),  # directions that are not there
        ("owners", lambda array: array - 5),
        ("owners", lambda array: np.zeros_like(array)),  # more bits than a direction may have
        ("owners", lambda array: array[:-1]),
        ("owners", lambda array: array.astype(np.float64)),
        ("thresholds", lambda array: array[:, :1]),
        ("levels", lambda array: array[:2]),
    ],
)
@pytest.mark.parametrize("cells", [None, 32])
def test_a_record_that_does_not_fit_together_is_refused(
    coder: CellCoder, tmp_path: Path, name: str, change: Callable[[Any], Any], cells: int | None
) -> None:
    """Also where somebody made the checksum match, and whether or not the settings say how many cells there are."""
    record = coder.to_record()
    arrays = {**record.arrays, name: change(record.arrays[name])}
    write_record(tmp_path / "crafted", replace(record, arrays=arrays, settings={**record.settings, "cells": cells}))
    with pytest.raises(DamagedFile, match="crafted is not a CellCoder as it should be"):
        nc.load_coder(tmp_path / "crafted")


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_record_with_an_odd_number_of_cells_is_refused(coder: CellCoder, tmp_path: Path, count: int) -> None:
    record = coder.to_record()
    arrays = {**record.arrays, "centers": record.arrays["centers"][:count], "counts": record.arrays["counts"][:count]}
    write_record(tmp_path / "crafted", replace(record, arrays=arrays, settings={**record.settings, "cells": None}))
    with pytest.raises(DamagedFile, match="cells"):
        nc.load_coder(tmp_path / "crafted")


def test_scikit_learn_takes_it_for_one_of_its_own(data: Rows) -> None:
    from sklearn.base import clone
    from sklearn.exceptions import NotFittedError
    from sklearn.pipeline import make_pipeline
    from sklearn.utils.validation import check_is_fitted

    coder = CellCoder(width=16, cells=8)
    assert clone(coder).get_params() == {"width": 16, "metric": "l2", "cells": 8, "seed": 0}
    assert repr(coder) == "CellCoder(width=16, metric='l2', cells=8, seed=0)"
    bits = make_pipeline(coder).fit(data).transform(data)
    assert bits.shape == (len(data), 16)
    assert np.array_equal(CellCoder(width=16, cells=8).fit_transform(data), bits)
    assert np.array_equal(coder.inverse_transform(bits[:, :7]), coder.decode(coder.encode(data).prefix(7)))
    assert coder.n_features_in_ == 12
    check_is_fitted(coder)
    with pytest.raises(NotFittedError):
        check_is_fitted(CellCoder(width=16))


FITTED = CellCoder(width=8, cells=4).fit(clustered(100, 4))
MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "width": (lambda: CellCoder(0), "width must be an integer of at least 1, got 0"),
    "seed": (lambda: CellCoder(8, seed=-1), "seed must be an integer of at least 0, got -1"),
    "metric": (lambda: CellCoder(8, "l1"), '"l2" or "cosine", got \'l1\''),  # type: ignore[arg-type]
    "one cell": (lambda: CellCoder(8, cells=1), "cells must be an integer of at least 2, got 1"),
    "half a cell": (lambda: CellCoder(8, cells=2.5), "cells must be an integer of at least 2, got 2.5"),  # type: ignore[arg-type]
    "odd cells": (lambda: CellCoder(8, cells=6), "cells must be a power of two of at most 65536, got 6"),
    "many cells": (lambda: CellCoder(64, cells=1 << 17), "cells must be a power of two of at most 65536, got 131072"),
    "narrow codes": (lambda: CellCoder(3, cells=16), "fit the width 3, but 16 cells take 4 bits: have at most 8 cells"),
    "narrower codes": (lambda: FITTED.set_params(width=1), "fit the width 1"),
    "no items": (lambda: CellCoder(8).fit(np.zeros((0, 3))), "fit needs at least 1 item, got none"),
    "NaN": (lambda: CellCoder(8).fit([[np.nan, 1]]), "finite"),
    "one vector": (lambda: CellCoder(8).fit([1.0, 2.0]), "2 dimensions"),
    "features": (lambda: FITTED.encode(np.eye(3)), "the 4 features"),
    "queries": (lambda: asymmetric_distances(FITTED, np.eye(3), FITTED.encode(np.eye(4))), "the 4 features"),
    "longer codes": (lambda: FITTED.decode(Codes.from_bits(np.zeros((1, 9), bool))), "coder's width 8, got 9"),
    "bits for codes": (lambda: FITTED.decode(np.zeros((1, 8))), "expected Codes, got ndarray"),  # type: ignore[arg-type]
    "length": (lambda: FITTED.expected_error(9), "between 0 and the coder's width 8, got 9"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_named(mistake: str) -> None:
    call, message = MISTAKES[mistake]
    with pytest.raises(InvalidInput, match=re.escape(message)):
        call()


def test_a_coder_must_be_fitted() -> None:
    for call in (CellCoder(8).encode, CellCoder(8)._project):
        with pytest.raises(NotFitted, match="call fit"):
            call(np.eye(3))
