"""The methods timed in figure 3 give right answers, and the claims that are not about time hold."""

from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import sliding_window_view

from nestcode import Codes
from nestcode.data.cifar10 import SHA256
from nestcode.index import PrefixTree
from nestcode.reproduce import Lab
from nestcode.reproduce.complexity.experiment import random_codes
from nestcode.reproduce.lab.verdicts import are_unit_exponents
from nestcode.reproduce.speeds.experiment import (
    crops,
    flips,
    heads,
    look_up,
    semantic_hashing_seconds,
    walk,
)
from nestcode.reproduce.speeds.figures import PROBES, ball_size
from nestcode.reproduce.speeds.scan import SHARES, WIDTHS, fit_exponents
from tests.data.test_cifar10 import small_sums, write_small_cifar10
from tests.reproduce.toy import run


def test_the_claims_hold_at_toy_scale(tmp_path: Path) -> None:
    result = run("speeds", tmp_path)
    holds = {finding["claim"]: finding["verdict"] == "holds" for finding in result["findings"]}
    assert len(holds) == 10
    assert holds["Hamming balls of long codes are empty"]
    numbers = result["numbers"]
    assert numbers["hashing"][-1][2] > numbers["scan"][-1]  # three million probes and three thousand codes
    smaller, larger = numbers["found"][0], numbers["found"][2]
    assert 0 < smaller < larger <= 1  # larger neighborhoods have a higher recall
    assert np.shape(numbers["scan by size"]) == (len(WIDTHS), len(SHARES))
    assert {"speeds-time.png", "speeds-time.svg", "speeds-recall.png", "speeds-scan.png"} <= {
        path.name for path in tmp_path.iterdir()
    }


@given(st.floats(0.5, 1.5), st.floats(0.5, 1.5), st.floats(0, 0.05), st.integers(0, 100))
def test_intervals_of_exponents_contain_those_of_a_power_law(
    alpha: float, gamma: float, noise: float, seed: int
) -> None:
    counts = [1e6 / share for share in SHARES]
    law = np.outer(np.power(WIDTHS, alpha), np.power(counts, gamma))
    near = fit_exponents(WIDTHS, counts, law * np.exp(noise * np.random.default_rng(seed).standard_normal(law.shape)))
    for fitted, true in zip(near, (alpha, gamma), strict=True):
        assert fitted.low <= fitted.value <= fitted.high
        assert abs(fitted.value - true) < 2 * (fitted.high - fitted.low) + 1e-6  # four standard errors


def test_the_exponents_decide_on_a_linear_scan() -> None:
    counts = [1e6 / share for share in SHARES]
    for power, holds in ((1.0, True), (1.3, False), (0.5, False)):
        seconds = np.outer(np.power(WIDTHS, power), counts)
        assert are_unit_exponents(fit_exponents(WIDTHS, counts, seconds)) is holds


def test_crops_are_squares_of_the_images(tmp_path: Path) -> None:
    write_small_cifar10(tmp_path)
    with patch.dict(SHA256, small_sums()):
        lab = Lab(tmp_path, tmp_path, "toy")
        rows, asked = crops(lab, 30, 5)
        images = lab.images()
    assert rows.shape == (30, 3 * 16 * 16)
    for cut, whole in ((rows, images.train), (asked, images.test)):
        windows = sliding_window_view(whole.reshape(-1, 3, 32, 32), (16, 16), axis=(2, 3))  # (n, 3, 17, 17, 16, 16)
        known = {window.tobytes() for window in windows.transpose(0, 2, 3, 1, 4, 5).reshape(-1, 768)}
        assert all(crop.tobytes() in known for crop in cut)


@given(st.integers(1, 80), st.integers(1, 12), st.floats(0.05, 0.5), st.integers(0, 1000))
def test_walking_bit_by_bit_reaches_the_depth_of_the_tree(width: int, size: int, beta: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    codes, queries = (Codes.from_bits(rng.random((n, width)) < beta) for n in (50, 10))
    tree = PrefixTree(codes)
    ordered = heads(tree.codes)
    walked = [walk(ordered, head, width, size) for head in heads(queries).tolist()]
    assert walked == np.minimum(tree.neighborhoods(queries, size=size).length, 64).tolist()


@given(st.integers(4, 20), st.integers(0, 3), st.integers(0, 1000))
def test_semantic_hashing_finds_all_codes_within_the_radius(width: int, radius: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    codes, query = (Codes.from_bits(rng.random((n, width)) < 0.3) for n in (200, 1))
    flipped = flips(width, radius, 10_000, rng)
    assert len(flipped) == len(set(flipped)) == ball_size(width, radius)
    probes = Codes(query.packed ^ flipped.packed, width)
    assert look_up(PrefixTree(codes), probes) == (query.hamming(codes) <= radius).sum()


def test_flips_beyond_the_limit_are_sampled_at_the_radius() -> None:
    some = flips(300, 3, 50, np.random.default_rng(0))
    assert len(some) == 50
    assert (some.bits().sum(axis=1) == 3).all()


def test_the_time_of_a_large_hamming_ball_is_extrapolated(monkeypatch: pytest.MonkeyPatch) -> None:
    from nestcode.reproduce.speeds import experiment

    monkeypatch.setattr(experiment, "seconds_each", lambda jobs, rounds: dict.fromkeys(jobs, 1.0 + 0 * rounds))
    monkeypatch.setattr(experiment, "PROBES", 100)
    codes = random_codes(50, 64, 0.5, np.random.default_rng(0))
    assert semantic_hashing_seconds(PrefixTree(codes), codes[:2], 1) == 1
    assert semantic_hashing_seconds(PrefixTree(codes), codes[:2], 2) == ball_size(64, 2) / 100
    assert ball_size(64, 1) <= 100 < ball_size(64, 2) < PROBES
