"""Asymmetric distances are those to decoded codes, and bits are regrouped for lookup tables."""

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nestcode import AdaptiveCoder, Codes, LinearCoder
from nestcode.coders import Coder
from nestcode.errors import InvalidInput, NotFitted
from nestcode.search import asymmetric_distances
from nestcode.search.adc import group_bits, regroup
from nestcode.search.fastscan import GROUP_BITS, _most_groups
from tests import twins
from tests.search.searching import ERROR, Q, X, fitted


@cache
def coder_of(kind: str, metric: Any) -> Coder:
    return AdaptiveCoder(24, metric=metric, beams=1).fit(X) if kind == "adaptive" else fitted(kind, metric)


@pytest.mark.parametrize("length", [0, 1, 3, 8, 13, 24])
@pytest.mark.parametrize("metric", ["l2", "cosine"])
@pytest.mark.parametrize("kind", ["linear", "residual", "cell", "adaptive"])
def test_asymmetric_distances_are_those_to_decoded_codes(kind: str, metric: str, length: int) -> None:
    coder = coder_of(kind, metric)
    codes = coder.encode(X[:50]).prefix(length)
    expected = twins.distances(Q, coder.decode(codes), metric)
    np.testing.assert_allclose(asymmetric_distances(coder, Q, codes), expected, rtol=1e-4, atol=ERROR)


@pytest.mark.parametrize("kind", ["linear", "residual", "cell", "adaptive"])
def test_batches_and_empty_inputs_have_their_shapes(kind: str) -> None:
    coder = coder_of(kind, "l2")
    codes = coder.encode(X[:5])
    assert asymmetric_distances(coder, X[:600], codes).shape == (600, 5)
    assert asymmetric_distances(coder, X[:0], codes).shape == (0, 5)
    assert asymmetric_distances(coder, X[:3], codes[:0]).shape == (3, 0)


@given(st.lists(st.integers(-1, 6), max_size=40), st.integers(0, 9), st.sampled_from([4, 8]), st.integers(0, 2**32))
def test_groups_hold_the_first_bits_of_each_direction(owners: list[int], first: int, size: int, seed: int) -> None:
    groups = group_bits(np.array(owners, dtype=np.int32), 7, first, size)
    codes = twins.random_codes(5, first + len(owners), seed)
    bits = codes.bits()
    for group, index in zip(groups.directions, regroup(codes.packed, groups).T if size == 8 else (), strict=size == 8):
        expected = np.zeros(5, dtype=np.int64)
        for d in group:
            for position in [p for p, owner in enumerate(owners) if owner == d][: groups.depths[d]]:
                expected = 2 * expected + bits[:, first + position]
        assert np.array_equal(index, expected)
    counts = np.bincount([owner for owner in owners if owner >= 0], minlength=7)
    assert groups.depths.tolist() == np.minimum(counts, size).tolist()
    assert sorted(d for group in groups.directions for d in group) == np.flatnonzero(counts).tolist()
    assert all(sum(groups.depths[d] for d in group) <= size for group in groups.directions)


@given(st.integers(0, 2**32), st.integers(0, 3), st.integers(1, 8))
def test_as_many_bit_planes_are_scanned_as_fit(seed: int, first: int, most: int) -> None:
    allocation = np.random.default_rng(seed).integers(0, 7, 40).astype(np.int32)
    every = [group_bits(allocation[:n], 7, first, GROUP_BITS) for n in range(min(40, GROUP_BITS * most) + 1)]
    fits = [len(groups.directions) <= most for groups in every]
    found = _most_groups(allocation.tobytes(), 7, first, most)
    same = [n for n, groups in enumerate(every) if groups.directions == found.directions and fits[n]]
    assert any(n == len(every) - 1 or not fits[n + 1] for n in same)  # one more bit plane would be too many


def test_mistakes_are_named() -> None:
    coder, codes = fitted("linear"), fitted("linear").encode(X[:3])
    with pytest.raises(InvalidInput, match="the 12 features the coder was fitted on, got 5"):
        asymmetric_distances(coder, Q[:, :5], codes)
    with pytest.raises(InvalidInput, match="codes must have at most the coder's width 40, got 41"):
        asymmetric_distances(coder, Q, twins.random_codes(3, 41))
    with pytest.raises(InvalidInput, match="expected Codes, got ndarray"):
        asymmetric_distances(coder, Q, X)  # type: ignore[arg-type]
    with pytest.raises(NotFitted, match="is not fitted"):
        asymmetric_distances(LinearCoder(8), Q, Codes.from_bits(np.zeros((1, 8), dtype=bool)))
