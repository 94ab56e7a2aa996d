"""Marginal gains, their weights, and the order of units where a distribution has no support."""

from pathlib import Path

import numpy as np
import pytest

from nestcode.data import digits
from nestcode.lengths import Empirical, Geometric, Lengths, Uniform
from nestcode.reproduce.information.experiment import Trained, swap_costs, telescoped
from nestcode.reproduce.information.figures import HOLE, NO_SUPPORT
from tests.reproduce.toy import run


def test_the_claims_hold_at_toy_scale(tmp_path: Path) -> None:
    result = run("information", tmp_path)
    assert all(finding["verdict"] == "holds" for finding in result["findings"])
    rises = {name: np.array(each)[0] for name, each in result["numbers"]["swaps"].items()}
    assert np.argmin(np.abs(rises[NO_SUPPORT])) == HOLE - 1
    assert np.abs(rises["all on K"]).max() < 1e-12 < rises["Uniform"].min()
    assert {"information-gains.png", "information-swaps.svg"} <= {path.name for path in tmp_path.iterdir()}


@pytest.mark.parametrize("lengths", [Geometric(0.7), Uniform(), Empirical([1, 0, 2, 0]), Empirical([1], lengths=[4])])
def test_the_weighted_sum_of_gains_is_the_expected_error(lengths: Lengths) -> None:
    rng, X = np.random.default_rng(0), digits()[0][:50].astype(np.float64)
    random = Trained(rng.standard_normal((50, 4)), rng.standard_normal((64, 4)), rng.standard_normal(64))
    errors = random.errors(X)
    expected = float(lengths.pmf(4) @ errors[1:])
    assert telescoped(errors, lengths) == pytest.approx(expected)
    assert random.loss(X, lengths) == pytest.approx(expected)
    free = np.flatnonzero(lengths.pmf(4)[:-1] == 0)
    assert np.abs(swap_costs(random, X, lengths)[free]).max(initial=0) < 1e-12
    assert np.abs(np.delete(swap_costs(random, X, lengths), free)).min(initial=1) > 1e-6
