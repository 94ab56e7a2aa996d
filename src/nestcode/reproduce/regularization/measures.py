"""Train a retrieval network with a penalty, and measure its gradients, weights, errors and neighborhoods."""

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nestcode import Codes
from nestcode.arrays import Doubles, Floats
from nestcode.data import digits
from nestcode.index import PrefixTree
from nestcode.lengths import Lengths
from nestcode.metrics import exact_neighbors, recall
from nestcode.nn import OrderedAutoencoder
from nestcode.reproduce.lab import Lab
from nestcode.reproduce.lab.images import as_rows
from nestcode.reproduce.lab.networks import QUIET
from nestcode.reproduce.regularization.design import FLIPPED, NOISE, RATIO, SIZES, Cell
from nestcode.training import AdaptivePenalty, Invariance, Sweep, Training, errors_by_length, train
from nestcode.training.presets import Preset, find_preset

INVARIANCE = Invariance(weight=0.0, perturbation=0.01, share=0.25, units="rectified")  # the paper's
NEAREST = 10  # images that a neighborhood should contain


@dataclass(frozen=True)
class Task:
    """Items to train on and to retrieve, and queries."""

    name: str
    X: Floats
    queries: Floats
    noisy: Floats  # queries with noise
    nearest: NDArray[np.int64]  # (queries, NEAREST)


@dataclass(frozen=True)
class Measured:
    """Measurements of a trained network."""

    balance: Doubles  # (width,): λ_k at which the gradients of L1 and of the reconstruction have equal norms
    weights: Doubles  # (width,): mean absolute weight
    scale: Doubles  # mean standard deviation of the units' pre-activations
    errors: Doubles  # MSE of queries by length, powers of two
    flips: Doubles  # share of the first bits that noise flips
    recall: Doubles  # by SIZES, of as many members of the neighborhood, drawn at random
    members: Doubles  # by SIZES: mean size of the neighborhood
    depth: Doubles  # by SIZES: mean length of the terminal neighborhood


def make_task(lab: Lab) -> Task:
    """Return CIFAR-10 if it is given, downsampled to 8 x 8 pixels unless at full scale, else digits."""
    items, count = lab.pick(toy=400, quick=10_000, full=50_000), lab.pick(toy=50, quick=500, full=2000)
    if lab.data is None:
        rows, _ = digits()
        order = np.random.default_rng(0).permutation(len(rows))
        X, queries, name = rows[order[300:][:items]], rows[order[:300][:count]], "digits"
    else:
        images = lab.images(items, count).downsampled(lab.pick(toy=8, quick=8, full=32))
        X, queries, name = as_rows(images.train), as_rows(images.test), images.name
    noise = NOISE * X.std(axis=0) * np.random.default_rng(1).standard_normal(queries.shape).astype(np.float32)
    return Task(name, X, queries, (queries + noise).astype(np.float32), exact_neighbors(queries, X, NEAREST))


def preset(lab: Lab) -> Preset:
    """Return the paper's retrieval network without sweeping and penalties, at a small budget."""
    paper = find_preset("paper-retrieval")
    training = Training(
        steps=lab.pick(toy=50, quick=400, full=600), batch_size=lab.pick(toy=100, quick=200, full=5000),
        learning_rate=lab.pick(toy=5e-3, quick=2e-3, full=1e-3), invariance=INVARIANCE,
        device=lab.pick(toy="cpu", quick="cpu", full="auto"), compile=False, holdout=0.0,
    )  # fmt: skip
    width, layers = lab.pick(toy=128, quick=256, full=512), lab.pick(toy=(32,), quick=(128,), full=paper.layers)
    return replace(paper, width=width, layers=layers, training=training)


def powers_of_two(width: int) -> list[int]:
    """Return the powers of two up to the width."""
    return [2**power for power in range(width.bit_length())]


def measure_cell(lab: Lab, task: Task, cell: Cell, seed: int) -> Measured:
    """Return the measurements of one combination of the table."""
    changes = {
        "sweep": Sweep() if cell.sweeping else None,
        "penalty": AdaptivePenalty("l1", RATIO) if cell.adaptive else None,
        "invariance": replace(INVARIANCE, weight=cell.invariance),
    }
    return train_and_measure(lab, task, seed, **changes)


def train_and_measure(lab: Lab, task: Task, seed: int, **changes: Any) -> Measured:
    """Return the measurements of a network trained with these settings, from the cache if they are there."""
    start = preset(lab)
    how = replace(start, training=start.training.but(seed=seed, **changes))

    def compute() -> dict[str, Doubles]:
        torch.manual_seed(seed)
        network = how.build(task.X.shape[1])
        train(network, task.X, how.training, QUIET)
        return asdict(measure(network.eval(), task, how))

    return Measured(**lab.cached("penalties", compute, preset=how, task=task.name))


def measure(network: OrderedAutoencoder, task: Task, how: Preset) -> Measured:
    """Return all measurements of a trained network."""
    device = network.mean.device
    codes, clean, noisy = (encode(network, rows) for rows in (task.X, task.queries, task.noisy))
    weight = network.code_weights()[0].detach().double().abs().mean(dim=1).cpu().numpy()
    flipped = clean.bits()[:, :FLIPPED] != noisy.bits()[:, :FLIPPED]
    found, depth, members = neighborhoods(codes, clean, task.nearest)
    assert isinstance(how.lengths, Lengths)
    assert network.binarize is not None
    return Measured(
        weights=weight,
        scale=np.array(network.binarize.spread.double().mean().item()),
        errors=errors_by_length(network, torch.from_numpy(task.queries).to(device), powers_of_two(how.width)),
        flips=np.array(flipped.mean()),
        recall=found,
        members=members,
        depth=depth,
        balance=balances(network, torch.from_numpy(task.X[:2000]).to(device), how.lengths),
    )


def encode(network: OrderedAutoencoder, X: Floats) -> Codes:
    """Return the codes of items."""
    with torch.inference_mode():
        parts = [network.encode(rows.to(network.mean.device)) > 0 for rows in torch.from_numpy(X).split(5000)]
    return Codes.from_bits(torch.cat(parts).cpu().numpy())


def neighborhoods(codes: Codes, queries: Codes, nearest: NDArray[np.int64]) -> tuple[Doubles, Doubles, Doubles]:
    """Return recall, mean length and mean size of the queries' neighborhoods, by SIZES.

    Recall is that of `size` members drawn at random, in expectation: codes that collapse have neighborhoods of
    thousands of members, which contain the nearest items because they contain everything.
    """
    tree = PrefixTree(codes)
    hoods = [tree.neighborhood(queries, size=size) for size in SIZES]
    shares = [
        [
            recall([hood.ids], near[None]) * min(1, size / len(hood.ids))
            for hood, near in zip(each, nearest, strict=True)
        ]
        for size, each in zip(SIZES, hoods, strict=True)
    ]
    return (
        np.array(shares).mean(axis=1),
        np.array([each.length.mean() for each in hoods]),
        np.array([np.mean([len(hood.ids) for hood in each]) for each in hoods]),
    )


def balances(network: OrderedAutoencoder, X: Tensor, lengths: Lengths, passes: int = 8) -> Doubles:
    """Return the coefficient of each unit at which its L1 gradient has the norm of the reconstruction gradient.

    Lengths are sampled uniformly and weighted by their probability (importance sampling), so that late units are seen.
    """
    network.train()
    network.zero_grad()
    weights = torch.from_numpy(lengths.pmf(network.width) * network.width).to(X)
    generator = torch.Generator().manual_seed(0)
    for _ in range(passes):
        kept = torch.randint(network.width, (len(X),), generator=generator).to(X.device)
        errors = ((network(X, kept + 1) - X) / network.spread).square().mean(dim=1)
        ((weights[kept] * errors).mean() / passes).backward()
    weight = network.code_weights()[0]
    assert weight.grad is not None
    return AdaptivePenalty("l1", ratio=1).coefficients(weight, weight.grad).double().cpu().numpy()
