"""Depths, sizes and random codes of section 5.1 equal plain counts, and the claims hold at toy scale."""

from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nestcode import Codes
from nestcode.index import PrefixTree
from nestcode.reproduce.complexity.experiment import decay_of, depths, fit_line, mean_sizes, random_codes, shuffled_bits
from nestcode.reproduce.complexity.figures import SIZES, expected_depth
from tests.reproduce.toy import run


def test_the_claims_hold_at_toy_scale(tmp_path: Path) -> None:
    result = run("complexity", tmp_path)
    network = "depth grows as log(N/R) / H(β), codes of the retrieval network, β = 0.2"
    claims = {finding["claim"]: finding["verdict"] for finding in result["findings"]}
    assert len(claims) == len(result["findings"]) == 6
    of_network = {network, "neighborhood sizes decay exponentially, codes of the retrieval network"}
    assert all(verdict == "holds" for claim, verdict in claims.items() if claim not in of_network)
    assert all(0.9 < slope < 1.1 for slope in result["numbers"]["slopes"].values())
    names = {path.name for path in tmp_path.iterdir()}
    assert {"complexity-depth.png", "complexity-depth.svg", "complexity-independence.png"} <= names


@given(st.integers(0, 256), st.integers(0, 2**32 - 1))
def test_random_bits_are_1_with_the_given_probability(share: int, seed: int) -> None:
    beta = share / 256
    if share == 256:
        beta = 255 / 256  # eight binary digits after the point
    bits = random_codes(500, 64, beta, np.random.default_rng(seed)).bits()
    assert abs(bits.mean() - beta) < 6 * np.sqrt(beta * (1 - beta) / bits.size) + 1e-9
    assert bits.shape == (500, 64)


def test_depths_equal_a_plain_count() -> None:
    rng = np.random.default_rng(0)
    codes, queries = random_codes(700, 64, 0.3, rng), random_codes(40, 64, 0.3, rng)
    measured = depths(codes, queries, [600, 700])
    for row, count in enumerate((600, 700)):
        shared = np.sort(queries.common_prefix(codes[:count]), axis=1)[:, ::-1]  # the R-th longest has R members
        assert measured["depth"][row].tolist() == [shared[:, size - 1].mean() for size in SIZES]
        assert measured["fraction"][row] == shared[:, int(np.ceil(0.01 * count)) - 1].mean()


def test_mean_sizes_equal_a_plain_count() -> None:
    rng = np.random.default_rng(1)
    codes, queries = random_codes(300, 32, 0.2, rng), random_codes(20, 32, 0.2, rng)
    shared = queries.common_prefix(codes)
    plain = [(shared >= length).sum(axis=1).mean() for length in range(33)]
    np.testing.assert_allclose(mean_sizes(PrefixTree(codes), queries, 32), plain)


def test_shuffled_bits_are_independent_and_keep_their_shares() -> None:
    rng = np.random.default_rng(0)
    bits = (rng.random((2000, 1)) < 0.3) ^ (rng.random((2000, 8)) < 0.05)  # nearly the same bit eight times
    apart = shuffled_bits(Codes.from_bits(bits), rng).bits()
    np.testing.assert_array_equal(apart.sum(axis=0), bits.sum(axis=0))
    assert np.mean(bits[:, 0] == bits[:, 1]) > 0.85
    assert np.abs(np.corrcoef(apart.T) - np.eye(8)).max() < 0.1


def test_the_decay_of_sizes_is_a_line_on_a_logarithmic_scale() -> None:
    sizes = np.array([1000 * 0.6**length for length in range(12)])
    factor, residual = decay_of(sizes, least=2)
    assert abs(factor - 0.6) < 1e-9 > residual
    assert decay_of(np.array([1024.0, 8, 4, 2, 1]), least=0)[1] > 1


def test_the_fitted_line_of_another_law_has_another_slope() -> None:
    expected = expected_depth([1000, 10_000, 100_000], 1.0)
    np.testing.assert_allclose(fit_line(expected, 1.5 * expected - 2), (1.5, -2))
