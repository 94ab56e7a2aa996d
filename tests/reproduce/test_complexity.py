"""The cost of retrieval is what section 5.1 says, and measured as it should be."""

from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nestcode import PrefixTree
from nestcode.reproduce.complexity.experiment import cardinalities, depths, draw, slope_of
from nestcode.reproduce.complexity.figures import SIZES, expected_depth
from tests.reproduce.toy import run


def test_it_shows_what_the_paper_says(tmp_path: Path) -> None:
    found = run("complexity", tmp_path)
    assert [finding["holds"] for finding in found["findings"]] == [True, None, True, True, True]
    assert all(0.9 < slope < 1.1 for slope in found["numbers"]["slopes"].values())
    names = {path.name for path in tmp_path.iterdir()}
    assert {"complexity-depth.png", "complexity-depth.svg", "complexity-independence.png"} <= names


@given(st.integers(0, 256), st.integers(0, 2**32 - 1))
def test_drawn_bits_are_ones_as_often_as_asked_for(share: int, seed: int) -> None:
    beta = share / 256
    if share == 256:
        beta = 255 / 256  # eight digits after the point
    bits = draw(500, 64, beta, np.random.default_rng(seed)).bits()
    assert abs(bits.mean() - beta) < 6 * np.sqrt(beta * (1 - beta) / bits.size) + 1e-9
    assert bits.shape == (500, 64)


def test_depths_are_those_of_a_plain_count() -> None:
    rng = np.random.default_rng(0)
    codes, queries = draw(700, 64, 0.3, rng), draw(40, 64, 0.3, rng)
    found = depths(codes, queries, [600, 700])
    for row, count in enumerate((600, 700)):
        shared = np.sort(queries.common_prefix(codes[:count]), axis=1)[:, ::-1]  # the R-th longest has R members
        assert found["depth"][row].tolist() == [shared[:, size - 1].mean() for size in SIZES]
        assert found["fraction"][row] == shared[:, int(np.ceil(0.01 * count)) - 1].mean()


def test_cardinalities_are_those_of_a_plain_count() -> None:
    rng = np.random.default_rng(1)
    codes, queries = draw(300, 32, 0.2, rng), draw(20, 32, 0.2, rng)
    shared = queries.common_prefix(codes)
    plain = [(shared >= length).sum(axis=1).mean() for length in range(33)]
    np.testing.assert_allclose(cardinalities(PrefixTree(codes), queries, 32), plain)


def test_the_slope_tells_another_law_apart() -> None:
    expected = expected_depth([1000, 10_000, 100_000], 1.0)
    np.testing.assert_allclose(slope_of(expected, 1.5 * expected - 2), (1.5, -2))
