"""What is timed in figure 3 gives the right answers, and the claims that are not about seconds hold."""

from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import sliding_window_view

from nestcode import Codes, PrefixTree
from nestcode.data.cifar10 import SHA256
from nestcode.reproduce import Lab
from nestcode.reproduce.complexity.experiment import draw
from nestcode.reproduce.speeds.experiment import (
    crops,
    flips,
    hashed,
    heads,
    seconds_of_hashing,
    walk,
)
from nestcode.reproduce.speeds.figures import PROBES, ball
from tests.data.test_cifar10 import small_sums, write_small_cifar10
from tests.reproduce.toy import run


def test_it_shows_what_the_paper_says(tmp_path: Path) -> None:
    found = run("speeds", tmp_path)
    holds = {finding["claim"]: finding["holds"] for finding in found["findings"]}
    assert len(holds) == 8
    assert holds["long codes leave Hamming balls empty"]
    numbers = found["numbers"]
    assert numbers["hashing"][-1][2] > numbers["scan"][-1]  # three million probes and three thousand codes
    smaller, larger = numbers["found"][0], numbers["found"][2]
    assert 0 < smaller < larger <= 1  # more items, more of the true ones
    assert {"speeds-time.png", "speeds-time.svg", "speeds-worth.png"} <= {path.name for path in tmp_path.iterdir()}


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
def test_walking_bit_by_bit_comes_as_far_as_the_tree(width: int, size: int, beta: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    codes, queries = (Codes.from_bits(rng.random((n, width)) < beta) for n in (50, 10))
    tree = PrefixTree(codes)
    ordered = heads(tree.codes)
    walked = [walk(ordered, head, width, size) for head in heads(queries).tolist()]
    assert walked == np.minimum(tree.neighborhoods(queries, size=size).length, 64).tolist()


@given(st.integers(4, 20), st.integers(0, 3), st.integers(0, 1000))
def test_hashing_finds_what_lies_within_the_radius(width: int, radius: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    codes, query = (Codes.from_bits(rng.random((n, width)) < 0.3) for n in (200, 1))
    flipped = flips(width, radius, 10_000, rng)
    assert len(flipped) == len(set(flipped)) == ball(width, radius)
    probes = Codes(query.packed ^ flipped.packed, width)
    assert hashed(PrefixTree(codes), probes) == (query.hamming(codes) <= radius).sum()


def test_too_many_flips_are_sampled_at_the_radius() -> None:
    some = flips(300, 3, 50, np.random.default_rng(0))
    assert len(some) == 50
    assert (some.bits().sum(axis=1) == 3).all()


def test_time_of_a_large_ball_is_extrapolated(monkeypatch: pytest.MonkeyPatch) -> None:
    from nestcode.reproduce.speeds import experiment

    monkeypatch.setattr(experiment, "seconds_each", lambda jobs, rounds: dict.fromkeys(jobs, 1.0 + 0 * rounds))
    monkeypatch.setattr(experiment, "PROBES", 100)
    codes = draw(50, 64, 0.5, np.random.default_rng(0))
    assert seconds_of_hashing(PrefixTree(codes), codes[:2], 1) == 1
    assert seconds_of_hashing(PrefixTree(codes), codes[:2], 2) == ball(64, 2) / 100
    assert ball(64, 1) <= 100 < ball(64, 2) < PROBES
