"""Train a network with a penalty, and measure its gradients, weights, errors and retrieval."""

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
from nestcode.lengths import Lengths, LogUniform
from nestcode.metrics import exact_neighbors
from nestcode.nn import OrderedAutoencoder
from nestcode.reproduce.lab import Lab
from nestcode.reproduce.lab.images import as_rows
from nestcode.reproduce.lab.networks import QUIET
from nestcode.training import AdaptivePenalty, Preset, Training, errors_by_length, find_preset, train

PAPER, OURS = "the paper's network", "ours"
RATIO = 0.05  # of the gradients of regularization and reconstruction
NOISES = (0.1, 0.3, 1.0)  # added to queries, in standard deviations of each feature
QUERIES = ("clean", "some noise", "much noise")  # of 0, 0.3 and 1 standard deviations
METHODS = ("prefix", "Hamming distance")
TRUTHS = ("near", "same class")
FOUND = 10  # items retrieved


@dataclass(frozen=True)
class Task:
    """Items to train on and to retrieve, and queries."""

    name: str
    X: Floats
    queries: Floats
    noise: Floats  # for queries: standard normal, scaled by the standard deviation of each feature
    near: NDArray[np.bool_]  # (queries, items): the nearest hundredth by pixels
    same: NDArray[np.bool_]  # (queries, items): the items of the query's class


@dataclass(frozen=True)
class Measured:
    """Measurements of a trained network."""

    balance: Doubles  # (width,): λ_k at which the gradients of L1 and of the reconstruction have equal norms
    weights: Doubles  # (width,): mean absolute weight
    errors: Doubles  # MSE by length
    flips: Doubles  # by NOISES: share of flipped bits
    found: Doubles  # (QUERIES, METHODS, TRUTHS): precision


def precision(runs: list[Measured], query: int, method: int, truth: int) -> Doubles:
    """Return the precision of retrieval, by seed."""
    return np.array([one.found[query, method, truth] for one in runs])


def make_task(lab: Lab) -> Task:
    """Return CIFAR-10 if it is given, downsampled to 8 x 8 pixels unless at full scale, else digits."""
    items, count = lab.pick(toy=400, quick=10_000, full=50_000), lab.pick(toy=50, quick=500, full=2000)
    if lab.data is None:
        rows, labels = digits()
        order = np.random.default_rng(0).permutation(len(rows))
        train_rows, held = order[300:][:items], order[:300][:count]
        X, queries, same, name = rows[train_rows], rows[held], labels[train_rows] == labels[held][:, None], "digits"
    else:
        images = lab.images(items, count).downsampled(lab.pick(toy=8, quick=8, full=32))
        assert images.labels is not None
        assert images.test_labels is not None
        X, queries = as_rows(images.train), as_rows(images.test)
        same, name = images.labels == images.test_labels[:, None], images.name
    noise = X.std(axis=0) * np.random.default_rng(1).standard_normal(queries.shape).astype(np.float32)
    return Task(name, X, queries, noise, near_mask(X, queries, len(X) // 100), same)


def near_mask(X: Floats, queries: Floats, count: int) -> NDArray[np.bool_]:
    """Return which items are among the `count` nearest, (queries, items)."""
    near = np.zeros((len(queries), len(X)), dtype=bool)
    np.put_along_axis(near, exact_neighbors(queries, X, count), True, axis=1)
    return near


def preset(lab: Lab, recipe: str) -> Preset:
    """Return the paper's retrieval network, or one of the same size with our bits and lengths, without a penalty."""
    training = Training(
        steps=lab.pick(toy=80, quick=400, full=1500), batch_size=lab.pick(toy=100, quick=200, full=500),
        learning_rate=lab.pick(toy=5e-3, quick=2e-3, full=5e-4), invariance_share=0.5,
        device=lab.pick(toy="cpu", quick="cpu", full="auto"), compile=False,
    )  # fmt: skip
    paper = find_preset("paper-retrieval")
    width, layers = lab.pick(toy=128, quick=256, full=512), lab.pick(toy=(32,), quick=(128,), full=paper.layers)
    if recipe == PAPER:
        return replace(paper, width=width, layers=layers, training=training)
    return Preset(width=width, layers=layers, lengths=LogUniform(), training=training)


def powers_of_two(width: int) -> list[int]:
    """Return the powers of two up to the width."""
    return [2**power for power in range(width.bit_length())]


def train_and_measure(lab: Lab, task: Task, recipe: str, seed: int, **changes: Any) -> Measured:
    """Return the measurements of a network trained with these settings, from the cache if they are there."""
    start = preset(lab, recipe)
    how = replace(start, training=start.training.but(seed=seed, **changes))

    def compute() -> dict[str, Doubles]:
        torch.manual_seed(seed)
        network = how.build(task.X.shape[1])
        train(network, task.X, how.training, QUIET)
        return asdict(measure(network.eval(), task, how))

    return Measured(**lab.cached("regularization", compute, preset=how, task=task.name))


def measure(network: OrderedAutoencoder, task: Task, how: Preset) -> Measured:
    """Return all measurements of a trained network."""
    device = network.mean.device
    queries = torch.from_numpy(task.queries).to(device)
    codes, clean = encode(network, task.X), encode(network, task.queries)
    noisy = [encode(network, task.queries + np.float32(deviation) * task.noise) for deviation in NOISES]
    weight = network.code_weights()[0].detach().double().abs().mean(dim=1).cpu().numpy()
    assert isinstance(how.lengths, Lengths)
    return Measured(
        weights=weight,
        errors=errors_by_length(network, queries, powers_of_two(how.width)),
        flips=np.array([np.mean(clean.bits() != other.bits()) for other in noisy]),
        found=np.array([retrieval_precision(task, codes, queries) for queries in (clean, *noisy[1:])]),
        balance=balances(network, torch.from_numpy(task.X[:2000]).to(device), how.lengths),
    )


def encode(network: OrderedAutoencoder, X: Floats) -> Codes:
    """Return the codes of items."""
    with torch.inference_mode():
        parts = [network.encode(rows.to(network.mean.device)) > 0 for rows in torch.from_numpy(X).split(5000)]
    return Codes.from_bits(torch.cat(parts).cpu().numpy())


def retrieval_precision(task: Task, codes: Codes, queries: Codes) -> Doubles:
    """Return the precision of neighborhoods and of the nearest by Hamming distance, (METHODS, TRUTHS)."""
    prefix = [hood.ids for hood in PrefixTree(codes).neighborhoods(queries, size=FOUND)]
    hamming = [np.argsort(queries[place].hamming(codes)[0], kind="stable")[:FOUND] for place in range(len(queries))]
    return np.array([
        [np.mean([truth[place, ids].mean() for place, ids in enumerate(found)]) for truth in (task.near, task.same)]
        for found in (prefix, hamming)
    ])  # fmt: skip


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
