"""Bit planes: two-means splits of the scalar quantizers, and quantization cells."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from nestcode.coders.scalar_quantizer import TreeQuantizer, allocate_bits
from tests.coders.cases import fitted


@given(st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=60), st.integers(1, 6))
@settings(deadline=None)
def test_every_split_is_the_best_one(values: list[float], depth: int) -> None:
    """Against every cut of every interval, and against the error of the reconstruction levels."""
    array = np.array(values, dtype=np.float32)
    tree = TreeQuantizer(array)
    parts, error = [np.sort(array.astype(np.float64))], float(np.mean(array.astype(np.float64) ** 2))
    for level in range(depth):
        gain = tree.gain(level)
        cut: list[NDArray[np.float64]] = []
        for part in parts:
            steps = [k for k in range(1, len(part)) if part[k - 1] < part[k]]
            costs = {k: part[:k].var() * k + part[k:].var() * (len(part) - k) for k in steps}
            k = min(costs, key=costs.__getitem__) if costs else 0
            cut += [part[:k], part[k:]]
        parts = cut
        left = sum(part.var() * len(part) for part in parts if len(part)) / len(array)
        assert gain == pytest.approx(error - left, abs=1e-6 * max(1, error))
        error = left


def test_levels_are_the_means_of_what_thresholds_send_to_them() -> None:
    values = np.random.default_rng(0).integers(-3, 4, 500).astype(np.float32)  # many equal ones
    tree = TreeQuantizer(values)
    for depth in range(1, 4):
        tree.gain(depth - 1)
        nodes = np.zeros(len(values), dtype=int)
        for thresholds in tree.thresholds:
            nodes = 2 * nodes + (values > thresholds[nodes])
        for node in np.unique(nodes):
            assert tree.levels[depth][node] == pytest.approx(values[nodes == node].mean())


def test_bits_are_allocated_in_order_of_their_gain() -> None:
    gains = -np.diff(fitted("linear")._fitted().errors)
    assert gains[0] == gains.max()
    assert (gains[1:] <= gains[:-1] + 1e-9).all()


def test_no_bits_are_allocated_to_a_constant() -> None:
    planes = allocate_bits(np.zeros((9, 2), np.float32), total=0.0, width=5)
    assert planes.allocation.tolist() == [-1] * 5
    assert planes.thresholds.shape == (0, 1)
