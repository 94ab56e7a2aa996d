"""The loss of implicit codebooks is the expectation of nested dropout over whole stages."""

import numpy as np
import pytest
import torch

from nestcode.lengths import Geometric, Lengths, LogUniform, Uniform
from nestcode.nn.implicit import ImplicitCodebooks
from nestcode.training.config import Training
from nestcode.training.implicit import BEAMS, CANDIDATES, ImplicitObjective
from nestcode.training.runtime.accelerator import Accelerator
from nestcode.training.runtime.sampler import MicroBatch


@pytest.mark.parametrize("lengths", [Uniform(), LogUniform(), Geometric(0.4)])
def test_the_loss_averages_the_error_over_lengths(lengths: Lengths) -> None:
    torch.manual_seed(0)
    network = ImplicitCodebooks(torch.randn(3, 16, 4), units=5, layers=1)
    torch.nn.init.normal_(network.out, std=0.3)
    rows = np.random.default_rng(0).standard_normal((30, 4)).astype(np.float32)
    objective = ImplicitObjective(network, rows, rows[:9], lengths, Training(device="cpu"), last=1)
    objective.prepare(Accelerator(Training(device="cpu"), steps=1), micro_batch_size=8)
    chosen = np.arange(3, 11)
    objective.load(0, MicroBatch(0, chosen))
    x = torch.from_numpy(rows[chosen])
    codes = network.search(x, BEAMS, CANDIDATES)
    drawn, misses = [], []
    for kept in range(1, 4):
        before, after = network.decode(codes[:, : kept - 1]), network.decode(codes[:, :kept])
        centroids = network.scale[kept - 1] * network.centroids[kept - 1, codes[:, kept - 1]]
        drawn.append(float((x - after).square().mean().detach()))
        misses.append(float((x - before - centroids).square().mean().detach()))
    expected = np.dot(lengths.pmf(3), drawn) + np.mean(misses)
    assert float(objective.loss().detach()) == pytest.approx(expected, rel=1e-5)


def test_errors_of_reports_are_those_of_held_out_rows() -> None:
    torch.manual_seed(0)
    network = ImplicitCodebooks(torch.randn(2, 16, 4), units=5, layers=1)
    rows = np.random.default_rng(0).standard_normal((30, 4)).astype(np.float32)
    objective = ImplicitObjective(network, rows, rows[:9], Uniform(), Training(device="cpu"), last=1)
    objective.prepare(Accelerator(Training(device="cpu"), steps=1), micro_batch_size=8)
    x = torch.from_numpy(rows[:9])
    decoded = network.decode(network.search(x, BEAMS, CANDIDATES)).detach()
    errors = objective.errors()
    assert list(errors) == [8, 16]
    assert errors[16] == pytest.approx(float((x - decoded).square().mean()), rel=1e-5)
