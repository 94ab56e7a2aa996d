"""Penalties by unit, bits flipped by noise, and precision of retrieval."""

from pathlib import Path

import numpy as np
import torch

from nestcode import Codes
from nestcode.data import digits
from nestcode.lengths import Geometric
from nestcode.nn import OrderedAutoencoder
from nestcode.reproduce.regularization.experiment import ADAPTIVE, CONSTANTS, NONE, is_above, mean_and_spread
from nestcode.reproduce.regularization.measures import FOUND, RATIO, Task, balances, near_mask, retrieval_precision
from tests.reproduce.toy import run


def test_the_claims_hold_at_toy_scale(tmp_path: Path) -> None:
    result = run("regularization", tmp_path)
    holds = {finding["claim"]: finding["verdict"] == "holds" for finding in result["findings"]}
    assert holds["a constant that shrinks the first units like the adaptive penalty wipes out the last ones"]
    assert {"regularization-penalty.png", "regularization-invariance.svg"} <= {path.name for path in tmp_path.iterdir()}
    numbers = result["numbers"]
    late = {name: np.mean(runs[0]["weights"][-32:]) for name, runs in numbers["penalties"].items()}
    assert list(late) == [NONE, ADAPTIVE, *CONSTANTS]
    assert np.all(np.diff([late[name] for name in CONSTANTS]) < 0)
    assert late[ADAPTIVE] > 0.5 * late[NONE]
    plain = np.array(numbers["penalties"][NONE][0]["balance"])
    assert (
        np.mean(RATIO * plain[0] / plain[-32:]) > 5 * RATIO
    )  # a single coefficient has larger gradients at late units
    for runs in numbers["invariance"].values():
        off, _, on = (np.array(each[0]["flips"]) for each in runs.values())
        assert on[-1] < off[-1]
        assert np.all(np.diff(off) > 0)


def random_task(rng: np.random.Generator) -> Task:
    same, near = rng.random((2, 5, 60)) < 0.3
    rows = rng.random((65, 4), dtype=np.float32)
    return Task("random", rows[:60], rows[60:], rows[60:], near, same)


def test_the_precision_of_retrieval_equals_plain_loops() -> None:
    rng = np.random.default_rng(0)
    task, bits = random_task(rng), rng.random((65, 12)) < 0.5
    found = retrieval_precision(task, Codes.from_bits(bits[:60]), Codes.from_bits(bits[60:]))
    for column, truth in enumerate((task.near, task.same)):
        prefix, hamming = [], []
        for row, query in zip(truth, bits[60:], strict=True):
            shared = [next((k for k in range(12) if one[k] != query[k]), 12) for one in bits[:60]]
            least = sorted(shared)[-FOUND]
            prefix.append(np.mean([row[item] for item in range(60) if shared[item] >= least]))
            order = sorted(range(60), key=lambda item: (int(np.sum(bits[item] != query)), item))
            hamming.append(np.mean(row[order[:FOUND]]))
        np.testing.assert_allclose(found[:, column], [np.mean(prefix), np.mean(hamming)])


def test_near_items_have_the_smallest_distances() -> None:
    rows = digits()[0]
    found = near_mask(rows[:200], rows[200:210], 7)
    for query, chosen in zip(rows[200:210], found, strict=True):
        distances = ((rows[:200] - query) ** 2).sum(axis=1)
        assert chosen.sum() == 7
        assert distances[chosen].max() <= distances[~chosen].min() + 1e-4


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
