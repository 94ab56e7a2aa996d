"""Penalties by unit, the table of sections 4.2 and 4.4, and recall of neighborhoods."""

from pathlib import Path

import numpy as np
import torch

from nestcode import Codes
from nestcode.data import digits
from nestcode.lengths import Geometric
from nestcode.nn import OrderedAutoencoder
from nestcode.reproduce.regularization.design import CELLS, PAPER, RATIO, SIZES, WEIGHTS, Effect
from nestcode.reproduce.regularization.experiment import ADAPTIVE, CONSTANTS, NONE, is_above, mean_and_spread
from nestcode.reproduce.regularization.measures import balances, neighborhoods
from tests.reproduce.toy import run


def test_the_claims_hold_at_toy_scale(tmp_path: Path) -> None:
    result = run("regularization", tmp_path)
    verdicts = {finding["claim"]: finding["verdict"] for finding in result["findings"]}
    claim = "a constant that shrinks the first units like the adaptive penalty wipes out the last ones"
    assert verdicts[claim] == "holds"
    assert {"regularization-penalty.png", "regularization-table.svg"} <= {path.name for path in tmp_path.iterdir()}
    numbers = result["numbers"]
    late = {name: np.mean(runs[0]["weights"][-32:]) for name, runs in numbers["penalties"].items()}
    assert list(late) == [NONE, ADAPTIVE, *CONSTANTS]
    assert np.all(np.diff([late[name] for name in CONSTANTS]) < 0)
    assert late[ADAPTIVE] > 0.5 * late[NONE]
    plain = np.array(numbers["penalties"][NONE][0]["balance"])
    assert (
        np.mean(RATIO * plain[0] / plain[-32:]) > 5 * RATIO
    )  # a single coefficient has larger gradients at late units
    assert list(numbers["table"]) == [str(cell) for cell in CELLS]
    for runs in numbers["table"].values():
        assert len(runs) == 1
        assert all(np.all(np.diff(one["recall"]) > 0) for one in runs)  # larger neighborhoods contain more
        assert all(np.all(np.diff(one["depth"]) < 0) for one in runs)


def test_the_table_has_every_combination_once() -> None:
    assert len(set(CELLS)) == len(CELLS) == 2 + len(WEIGHTS)
    assert PAPER in CELLS


def test_the_recall_of_neighborhoods_equals_plain_loops() -> None:
    rng = np.random.default_rng(0)
    bits, nearest = rng.random((665, 12)) < 0.5, rng.integers(600, size=(65, 4))
    found, depth, members = neighborhoods(Codes.from_bits(bits[:600]), Codes.from_bits(bits[600:]), nearest)
    shared = [[next((k for k in range(12) if one[k] != query[k]), 12) for one in bits[:600]] for query in bits[600:]]
    for place, size in enumerate(SIZES):
        lengths = [sorted(own)[-size] for own in shared]
        counts = [sum(one >= length for one in own) for own, length in zip(shared, lengths, strict=True)]
        inside = [np.mean([own[item] >= length for item in row]) * size / count
                  for own, length, row, count in zip(shared, lengths, nearest, counts, strict=True)]  # fmt: skip
        np.testing.assert_allclose([found[place], depth[place]], [np.mean(inside), np.mean(lengths)])
        np.testing.assert_allclose(members[place], np.mean(counts))


def test_an_effect_is_there_if_its_interval_excludes_0() -> None:
    rng = np.random.default_rng(0)
    off = rng.normal(size=(2000, 5))
    none = [Effect.of(own + rng.normal(size=5), own).sign for own in off]
    assert 0.03 < np.mean(np.abs(none)) < 0.07
    there = [Effect.of(own + 5 + rng.normal(size=5), own).sign for own in off[:100]]
    assert np.mean(there) > 0.95
    stricter = [Effect.of(own + rng.normal(size=5), own, claims=5).sign for own in off]
    assert np.mean(np.abs(stricter)) < 0.02
    assert Effect.of(np.ones(1), np.zeros(1)).sign == 0


def test_a_balanced_penalty_has_the_gradient_norm_of_the_expected_reconstruction() -> None:
    torch.manual_seed(0)
    network = OrderedAutoencoder(64, 6, lengths=Geometric(0.6), corruption=0.0, dropout=0.0)
    X = torch.from_numpy(digits()[0][:500])
    network.set_moments(X.mean(dim=0), X.var(dim=0))
    found = balances(network, X, Geometric(0.6), passes=100)
    errors = [((network(X, length) - X) / network.spread).square().mean() for length in range(1, 7)]
    loss = sum(p * error for p, error in zip(Geometric(0.6).pmf(6).tolist(), errors, strict=True))
    weight = network.code_weights()[0]
    (gradient,) = torch.autograd.grad(torch.as_tensor(loss), weight)
    np.testing.assert_allclose(found, gradient.norm(dim=1).numpy() / 8, rtol=0.1)  # 64 signs have a norm of 8


def test_means_are_compared_by_their_spread_over_seeds() -> None:
    assert mean_and_spread([1.0, 3.0]) == "2 ± 1"
    assert is_above(np.array([1.0, 1.5]), np.array([0.9, 1.4]))
    assert not is_above(np.array([1.0, 1.5]), np.array([0.9, 1.5]))
    assert not is_above(np.array([0.8]), np.array([0.9]))
