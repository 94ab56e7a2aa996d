"""What is particular to the cell coder: its coarse quantizer; shared laws are in `test_contract.py`."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import nestcode as nc
from nestcode import CellCoder, Codes, LinearCoder
from nestcode.coders import sampling
from nestcode.coders.cell import kmeans
from nestcode.errors import DamagedFile, InvalidInput
from nestcode.search import asymmetric_distances
from nestcode.storage import write_record
from tests.coders import reference
from tests.coders.cases import fitted, fresh_rows, mse, training_rows
from tests.coders.test_contract import hostile
from tests.twins import clustered


def cells_of(codes: Codes, bits: int) -> NDArray[np.int64]:
    """The first bits of codes as integers."""
    cells: NDArray[np.int64] = codes.bits()[:, :bits] @ (1 << np.arange(bits)[::-1])
    return cells


def test_expected_errors_are_those_of_fresh_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kmeans, "TRAIN_ROWS", 0)  # so 128 rows per cell
    monkeypatch.setattr(sampling, "SAMPLE_ROWS", 3000)
    coder = CellCoder(width=24, cells=64).fit(clustered(20_000))
    assert coder._fitted().counts.sum() == 128 * 64
    fresh = clustered(20_000, seed=1)
    errors = [mse(fresh, coder.decode(coder.encode(fresh).prefix(length))) for length in (0, 3, 6, 12, 24)]
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


def subtree_errors(points: NDArray[np.float32]) -> NDArray[np.float64]:
    """The mean squared error of ordered points around the mean of their subtree, for every depth."""
    parts = (points.reshape(1 << depth, -1, points.shape[1]) for depth in range(len(points).bit_length()))
    return np.array([np.mean((part - part.mean(axis=1, keepdims=True)) ** 2) for part in parts])


def test_cells_are_ordered_as_by_eigendecompositions_of_all_nodes() -> None:
    points = clustered(256)
    order = kmeans.tree_order(points)
    assert sorted(order) == list(range(256))
    expected = subtree_errors(points[reference.tree_order(points)])
    assert (subtree_errors(points[order]) <= 1.05 * expected)[:-2].all()  # but for nodes of two and four cells
    assert sorted(kmeans.tree_order(np.ones((8, 3), dtype=np.float32))) == list(range(8))  # there is no direction


def test_cells_beat_single_directions_where_data_is_clustered() -> None:
    data, fresh = training_rows("cell"), fresh_rows("cell")
    coders = CellCoder(width=24, cells=64).fit(data), LinearCoder(width=24).fit(data)
    cells, linear = (mse(fresh, coder.decode(coder.encode(fresh))) for coder in coders)
    assert cells < 0.8 * linear


# The coarse quantizer


def test_an_item_is_assigned_to_its_nearest_centroid() -> None:
    coder, data = fitted("cell"), training_rows("cell")
    model, coefficients = coder._fitted(), coder._project(data)
    cells = cells_of(coder.encode(data), 5)
    distances = ((coefficients[:, None] - model.centroids) ** 2).sum(axis=2)
    assert np.array_equal(distances.argmin(axis=1), cells)
    assert model.counts.sum() == len(data)
    seen = model.centroids.any(axis=0)
    means = np.array([coefficients[cells == cell].mean(axis=0) for cell in range(32)])
    assert mse(means[:, seen], model.centroids[:, seen]) < 0.002


def test_the_first_bits_decode_to_the_mean_of_their_subtree() -> None:
    coder, data = fitted("cell"), training_rows("cell")
    codes, coefficients = coder.encode(data), coder._project(data)
    seen = coder._fitted().centroids.any(axis=0)
    for length in (1, 2, 4):
        decoded, subtrees = coder.coefficients(codes.prefix(length)), cells_of(codes, length)
        owns = [subtrees == subtree for subtree in range(1 << length)]
        means = np.array([coefficients[own].mean(axis=0) for own in owns])
        assert mse(means[:, seen], np.array([decoded[own][0, seen] for own in owns])) < 0.002


@pytest.mark.parametrize(
    ("rows", "width", "cells"), [(10, 9, 2), (400, 9, 2), (700, 9, 4), (3000, 9, 16), (3000, 2, 4), (3000, 1, 2)]
)
def test_the_number_of_cells_suits_the_rows(rows: int, width: int, cells: int) -> None:
    coder = CellCoder(width=width).fit(clustered(rows))
    assert len(coder._fitted().centroids) == cells
    assert coder.cells is None
    assert 1 << coder._fitted().cell_bits == cells


def test_the_chosen_number_of_cells_is_bounded() -> None:
    assert [kmeans.choose_bits(rows) for rows in (1, 340_000, 1_000_000, 10**9)] == [1, 11, 13, 14]


def test_k_means_ignores_directions_with_little_variance() -> None:
    rows = clustered(2000) * np.array([1] * 4 + [0.01] * 8, np.float32)
    model = CellCoder(width=60, cells=8).fit(rows)._fitted()
    assert 1 <= model.centroids.any(axis=0).sum() <= 4
    assert not model.centroids[:, 4:].any()
    assert model.centroids.shape == (8, len(model.directions))
    assert len(model.planes.levels) == len(model.planes.thresholds) == len(model.directions) > 4


def test_a_code_may_be_only_the_cell() -> None:
    data = training_rows("cell")
    coder = CellCoder(width=4, cells=16).fit(data)
    codes = coder.encode(data)
    np.testing.assert_allclose(coder.decode(codes[:60]), reference.decode_cell(coder, codes[:60]), atol=1e-5)
    assert coder._fitted().planes.allocation.shape == (0,)
    expected = ((data[:3, None].astype(np.float64) - coder.decode(codes)) ** 2).sum(axis=2)
    np.testing.assert_allclose(asymmetric_distances(coder, data[:3], codes), expected, rtol=1e-3, atol=1e-4)


def test_many_cells_take_more_than_a_byte() -> None:
    X = clustered(4000)
    coder = CellCoder(width=21, cells=1024).fit(X)
    codes = coder.encode(X)
    assert len(np.unique(cells_of(codes, 10))) > 900
    np.testing.assert_allclose(coder.decode(codes[:20]), reference.decode_cell(coder, codes[:20]), atol=1e-5)


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
def test_bits_that_the_data_does_not_fill_are_reported(X: NDArray[np.float64], useful: int, cells: int | None) -> None:
    with pytest.warns(UserWarning, match="unallocated") as caught:
        coder = CellCoder(width=30, cells=cells).fit(X)
    assert len(caught) == 1
    reported = int(str(caught[0].message).split()[3])
    assert useful <= reported <= (15 if useful else 0)
    np.testing.assert_allclose(coder.decode(coder.encode(X)), X, atol=1e-5)
    assert coder.expected_error(30) == pytest.approx(0, abs=1e-10)


# Files


def test_a_chosen_number_of_cells_survives_a_file(tmp_path: Path) -> None:
    data = training_rows("cell")
    coder = CellCoder(width=37, metric="cosine", seed=3).fit(data)
    coder.save(tmp_path / "it.coder")
    loaded = nc.load_coder(tmp_path / "it.coder")
    assert isinstance(loaded, CellCoder)
    assert loaded.get_params() == coder.get_params()
    assert loaded.fingerprint == coder.fingerprint
    assert loaded.encode(data) == coder.encode(data)
    assert np.array_equal(loaded._fitted().planes.errors, coder._fitted().planes.errors)


def test_records_that_do_not_fit_together_are_refused_without_a_number_of_cells(tmp_path: Path) -> None:
    record = fitted("cell").to_record()
    record = replace(record, settings={**record.settings, "cells": None})
    for name, change in hostile("cell"):
        write_record(tmp_path / "bad", replace(record, arrays={**record.arrays, name: change(record.arrays[name])}))
        with pytest.raises(DamagedFile, match="bad is not a CellCoder as it should be"):
            nc.load_coder(tmp_path / "bad")


@pytest.mark.parametrize("count", [0, 1, 3])
def test_an_impossible_number_of_cells_is_refused(count: int, tmp_path: Path) -> None:
    record = fitted("cell").to_record()
    arrays = {**record.arrays, "centers": record.arrays["centers"][:count], "counts": record.arrays["counts"][:count]}
    write_record(tmp_path / "bad", replace(record, arrays=arrays, settings={**record.settings, "cells": None}))
    with pytest.raises(DamagedFile, match="cells"):
        nc.load_coder(tmp_path / "bad")


MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "one cell": (lambda: CellCoder(8, cells=1), "cells must be an integer of at least 2, got 1"),
    "half a cell": (lambda: CellCoder(8, cells=2.5), "cells must be an integer of at least 2, got 2.5"),  # type: ignore[arg-type]
    "odd cells": (lambda: CellCoder(8, cells=6), "cells must be a power of two of at most 65536, got 6"),
    "many cells": (lambda: CellCoder(64, cells=1 << 17), "cells must be a power of two of at most 65536, got 131072"),
    "narrow codes": (lambda: CellCoder(3, cells=16), "fit the width 3, but 16 cells take 4 bits: have at most 8 cells"),
    "narrower codes": (lambda: CellCoder(8, cells=4).set_params(width=1), "fit the width 1"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_named(mistake: str) -> None:
    call, message = MISTAKES[mistake]
    with pytest.raises(InvalidInput, match=re.escape(message)):
        call()
