"""Rows as coders take them: the core rounds every value as NumPy does."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from nestcode import _core
from nestcode.arrays import as_floats, center, squared_norms
from nestcode.errors import InvalidInput


def rows_of(dtype: str, features: int, seed: int) -> NDArray[np.generic]:
    """Return enough rows for several threads, of many scales and with zeros; not contiguous."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((40_000 // features + 3, 2 * features)) * 10.0 ** rng.integers(-4, 4, 2 * features)
    X[rng.random(X.shape) < 0.1] = 0
    X[::5] = 0
    return X.astype(dtype)[:, ::2]


def plain(rows: NDArray[np.generic], dtype: str, *, normalize: bool) -> NDArray[np.floating]:
    """Return what `as_floats` does, by NumPy."""
    floats = np.array(rows, dtype=dtype, order="C")
    if normalize:
        largest = np.abs(floats).max(axis=1, keepdims=True)
        floats /= np.where(largest > 0, largest, 1)
        norms = np.sqrt(np.sum(floats * floats, axis=1, keepdims=True))
        floats /= np.where(norms > 0, norms, 1)
    return floats


@given(
    st.sampled_from([("f4", "f4"), ("f2", "f4"), (">f4", "f4"), ("i2", "f4"), ("f8", "f8"), ("i4", "f8")]),
    st.one_of(st.integers(1, 40), st.sampled_from([127, 128, 129, 136, 300, 384, 777])),
    st.booleans(),
    st.integers(0, 99),
)
@settings(deadline=None, max_examples=25)
def test_rows_are_those_of_numpy_to_the_last_bit(
    types: tuple[str, str], features: int, normalize: bool, seed: int
) -> None:
    given, used = types
    rows, mean = rows_of(given, features, seed), np.random.default_rng(seed).standard_normal(features)
    twin = plain(rows, used, normalize=normalize)
    floats = as_floats(rows, normalize=normalize)
    assert floats.dtype == used
    assert floats.tobytes() == twin.tobytes()
    assert not np.shares_memory(floats, rows)
    centered = (twin - mean.astype(used)).astype(np.float32)
    assert center(rows, mean, normalize=normalize).tobytes() == centered.tobytes()
    for one in (twin, centered):
        assert squared_norms(one).tobytes() == np.sum(one.astype(np.float64) ** 2, axis=1).tobytes()


@pytest.mark.parametrize(("value", "normalize"), [(np.nan, False), (-np.inf, True), (2e36, False), (1e39, True)])
def test_a_single_value_out_of_range_is_found(value: float, normalize: bool) -> None:
    rows = np.ones((5000, 7))
    rows[4321, 6] = value
    with pytest.raises(InvalidInput, match=rf"some of it is {value}: (rescale|drop)".replace("+", r"\+")):
        as_floats(rows, normalize=normalize)


def test_the_core_checks_shapes() -> None:
    rows, none = np.ones((3, 4), np.float32), np.zeros(0, np.float32)
    with pytest.raises(ValueError, match="mean must have the features of the rows, or none, and out their shape"):
        _core.center_rows(rows, none, False, 1.0, rows[:2].copy())
    with pytest.raises(ValueError, match="mean must have the features"):
        _core.center_rows(rows, rows[0, :3], False, 1.0, rows)
    with pytest.raises(ValueError, match="room for each row"):
        _core.sum_squares(rows, np.zeros(2))
    values, sums, levels = np.zeros(3), np.zeros(4), np.zeros(2)
    room = np.zeros(5, np.int64), np.zeros(2, np.float32), np.zeros(4)
    with pytest.raises(ValueError, match="places in the values, in order"):
        _core.split_intervals(values, sums, np.array([0, 3, 2]), levels, *room)
    with pytest.raises(ValueError, match="a sum before each"):
        _core.split_intervals(values, sums[1:], np.array([0, 1, 3]), levels, *room)
    with pytest.raises(ValueError, match="room for a threshold"):
        _core.split_intervals(values, sums, np.array([0, 1, 3]), levels, *room[:2], sums[1:])
    with pytest.raises(ValueError, match="table of 16 entries"):
        _core.sum_group_tables(np.zeros((2, 3), np.uint8), np.zeros((4, 16)), np.zeros(2))
