"""Nested neighborhoods on a pinwheel, and the direction of their boundaries."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from nestcode import Codes
from nestcode.arrays import Doubles, Floats, Ids
from nestcode.data import pinwheel
from nestcode.index import PrefixTree
from nestcode.lengths import Geometric
from nestcode.nn import Binarize, OrderedAutoencoder
from nestcode.reproduce.lab import Experiment, Lab
from nestcode.reproduce.lab.networks import QUIET
from nestcode.reproduce.lab.verdicts import is_converged
from nestcode.reproduce.pinwheel.figures import DEPTHS, figure_angles, figure_neighborhoods, plane
from nestcode.training import Sweep, Training, errors_by_length, train

ARMS, WIDTH, LAYERS = 5, 32, (16,)
KEPT = Geometric(0.9)
LENGTHS = (1, 2, 4, 8, 16, 32)
NEAR = 0.02  # from a boundary: points there are where it cuts through the data
FIRST = 8  # bits: the neighborhoods drawn have fewer
CHANCE = 45.0  # degrees, on average
SHARES = (1, 0.25, 0)  # of the steps: whether a quarter of them is enough shows whether training has converged


@dataclass(frozen=True)
class Trained:
    """Codes, errors and boundaries of a network."""

    codes: Codes  # of the points
    grid: Codes  # of the plane
    errors: Doubles  # mean squared distance of decoded points, by LENGTHS
    loss: float  # of the last steps
    angles: Doubles  # (pairs, 2): bit and degrees, for every point near a boundary


def run(lab: Lab) -> None:
    """Train restarts, take the one of least loss, and measure its boundaries beside an untrained network's."""
    points, arm = data(lab)
    queries, seeds = central_points(points, arm), restarts(lab)
    trained, shorter, untrained = (
        [trained_network(lab, points, arm, seed, int(share * full_steps(lab))) for seed in lab.progress(seeds, text)]
        for share, text in zip(SHARES, ("restarts", "with fewer steps", "untrained"), strict=True)
    )
    best = least_loss(trained)
    angles = add_angles(lab, (trained, shorter, untrained), seeds)
    ideal, error = quantizer(points, arm)
    lab.finding(
        "by the loss alone, boundaries are orthogonal once a cell is a piece of an arm",
        ours=f"tree-structured vector quantizer: {', '.join(f'{angle:.0f}°' for angle in ideal)} at bits 1 to {FIRST}; "
        f"squared error of a coordinate {error:.4f} at {FIRST} bits, that of the network is "
        f"{best.errors[LENGTHS.index(FIRST)]:.4f}",
        holds=min(ideal) < CHANCE / 2,
        seeds=(),
    )
    nested, distances = by_depth(points, best.codes, queries)
    lab.finding("each neighborhood contains the next", where="section 5.1", ours="all do" if nested else "not all do",
                holds=nested, seeds=seeds)  # fmt: skip
    mean_distances = distances.mean(axis=0)
    lab.finding(
        "members of deeper neighborhoods are nearer to the query",
        paper="nested around the query",
        ours=f"mean distance {mean_distances[0]:.2f}, and {mean_distances[-1]:.2f} at 1/{2**DEPTHS} of the points",
        holds=bool(np.all(np.diff(mean_distances) < 0)),
        seeds=seeds,
    )
    lab.figure(
        "pinwheel-neighborhoods",
        figure_neighborhoods(points, best.codes, best.grid, queries),
        f"Five queries (red) and their nested neighborhoods in the plane, deeper ones darker; 2-16-32-16-2, the best "
        f"of {len(seeds)} restarts by its loss. Dots are the points.",
    )
    lab.figure("pinwheel-angles", figure_angles(best.angles, [one.angles for one in trained],
                                                [one.angles for one in untrained]),
               "Angle between the normal of a boundary and the tangent of the arm, at points near the boundary; thin "
               "lines are restarts.")  # fmt: skip
    lab.table(
        ["network", *(f"{b} bits" for b in LENGTHS)],
        [["best", *map(float, best.errors)], ["mean of restarts", *map(float, np.mean([t.errors for t in trained], 0))],
         ["untrained", *map(float, np.mean([t.errors for t in untrained], 0))]],
        caption="Mean squared error of a coordinate of decoded points by length.",
    )  # fmt: skip
    lab.departure(
        "The paper gives neither β nor p_B nor noise for this network. We chose β = 0.5 and Geometric(0.9), and "
        "neither corruption nor dropout, since both inputs are needed. Bits are sampled at first, then deterministic "
        "and swept, with straight-through gradients; restarts are compared by their training error only."
    )
    lab.departure(
        "The paper shows one image and no values. The normal of a boundary is the gradient of the bit's "
        f"pre-activation; it is compared with the tangent of the arm at all points within {NEAR} of a boundary of the "
        f"first {FIRST} bits. A boundary counts as orthogonal if it is nearer to 0° than to chance, 45°."
    )
    lab.departure(
        "That boundaries are orthogonal follows from the loss for a quantizer that splits each cell on its own, after "
        "two bits that tell arms apart and before cells are as short as an arm is wide. A bit of the network is one "
        "function of the plane for all cells, and the network stays far from the error of that quantizer."
    )
    lab.measured |= {"angles": angles, "losses": [one.loss for one in trained],
                     "errors": {"best": best.errors.tolist()},
                     "distances by depth": mean_distances.tolist()}  # fmt: skip


def data(lab: Lab) -> tuple[Floats, Ids]:
    """Return the points, and the arm of each."""
    return pinwheel(lab.pick(toy=1000, quick=5000, full=20_000), ARMS, np.random.default_rng(0))


def restarts(lab: Lab) -> tuple[int, ...]:
    """Return the seeds of the networks, of which the one of least loss is judged."""
    return tuple(range(lab.pick(toy=2, quick=4, full=16)))


def full_steps(lab: Lab) -> int:
    """Return the steps of each of the two phases."""
    return lab.pick(toy=120, quick=1500, full=20_000)


def train_seed(lab: Lab, seed: int) -> None:
    """Train the networks of a seed."""
    points, arm = data(lab)
    for share in SHARES:
        trained_network(lab, points, arm, seed, int(share * full_steps(lab)))


def least_loss(networks: list[Trained]) -> Trained:
    """Return the network of least loss."""
    return min(networks, key=lambda one: one.loss)


def trained_network(lab: Lab, points: Floats, arm: Ids, seed: int, steps: int) -> Trained:
    """Return the network 2-16-32-16-2: sampled bits first, then deterministic and swept ones; or read the cache.

    With 0 steps it is untrained, its thresholds set to quantiles.
    """
    training = Training(steps=max(steps, 1), batch_size=256, learning_rate=5e-3, seed=seed, device="cpu", holdout=0.0)

    def compute() -> dict[str, NDArray[Any]]:
        torch.manual_seed(seed)
        bits = Binarize(WIDTH, gradient="stochastic", signed=True)
        network = OrderedAutoencoder(2, WIDTH, LAYERS, lengths=KEPT, binarize=bits, corruption=0.0, dropout=0.0)
        loss = np.inf
        if steps:
            train(network, points, training, QUIET)
            bits.gradient = "straight-through"
            loss = train(network, points, replace(training, sweep=Sweep()), QUIET)[-1]["errors"][WIDTH]
        else:
            train(network, points, replace(training, learning_rate=1e-12), QUIET)
        X = torch.from_numpy(points)
        with torch.no_grad():
            codes, grid = (
                np.packbits((network.encode(rows) > 0).numpy(), axis=1) for rows in (X, torch.from_numpy(plane(points)))
            )
        angles = boundary_angles(network, points, arm)
        return {"codes": codes, "grid": grid, "errors": errors_by_length(network, X, LENGTHS),
                "loss": np.array(loss), "angles": angles}  # fmt: skip

    stored = lab.cached("pinwheel", compute, points=len(points), training=training.to_json(), steps=steps)
    codes, grid = (Codes(stored[name], WIDTH) for name in ("codes", "grid"))
    return Trained(codes, grid, stored["errors"], float(stored["loss"]), stored["angles"])


def central_points(points: Floats, arm: Ids) -> Ids:
    """Return the point nearest to the center of each arm."""
    arms = [np.flatnonzero(arm == a) for a in range(ARMS)]
    return np.array([own[np.linalg.norm(points[own] - points[own].mean(axis=0), axis=1).argmin()] for own in arms])


def tangents(points: Floats, arm: Ids) -> Doubles:
    """Return the unit tangent of the arm at each point, (n, 2): the direction of local variation.

    An arm is the spiral (r cos φ, r sin φ) with φ = r + 2π arm / arms.
    """
    radius = np.linalg.norm(points, axis=1)
    angle = 2 * np.pi * arm / ARMS + radius
    cos, sin = np.cos(angle), np.sin(angle)
    along = np.stack([cos - radius * sin, sin + radius * cos], axis=1)
    return np.asarray(along / np.linalg.norm(along, axis=1, keepdims=True), dtype=np.float64)


def boundary_angles(network: OrderedAutoencoder, points: Floats, arm: Ids) -> Doubles:
    """Return (bit, degrees) for each point near the boundary of a bit, (pairs, 2).

    The angle is between the normal of the boundary, the gradient of the bit's pre-activation, and the tangent of the
    arm: 0 if the boundary is orthogonal to the variation.
    """
    assert network.binarize is not None
    X = torch.from_numpy(points).requires_grad_()
    along, found = tangents(points, arm), []
    pre = network.preactivations(X)
    for bit in range(network.width):
        (gradient,) = torch.autograd.grad(pre[:, bit].sum(), X, retain_graph=True)
        normal = gradient.double().numpy()
        size = np.linalg.norm(normal, axis=1)
        height = np.abs((pre[:, bit] - network.binarize.threshold[bit]).detach().double().numpy())
        near = height < NEAR * size  # to first order, the distance is the height over the slope
        cosine = np.abs(np.sum(normal[near] * along[near], axis=1)) / size[near]
        found.append(np.stack([np.full(near.sum(), bit), np.degrees(np.arccos(np.minimum(cosine, 1)))], axis=1))
    return np.concatenate(found)


def split(rows: Doubles) -> tuple[NDArray[np.bool_], Doubles, Doubles]:
    """Return the half of each row by 2-means, started at the principal axis, and the unit normal and a boundary point.

    >>> split(np.array([[0.0, 0.0], [1.0, 0.0], [8.0, 0.0], [9.0, 0.0]]))[0].tolist()
    [False, False, True, True]
    """
    normal, middle = np.linalg.eigh(np.cov(rows.T))[1][:, -1], rows.mean(axis=0)
    normal = normal if normal[np.abs(normal).argmax()] > 0 else -normal
    for _ in range(50):
        upper = (rows - middle) @ normal > 0
        low, high = rows[~upper].mean(axis=0), rows[upper].mean(axis=0)
        normal, middle = (high - low) / np.linalg.norm(high - low), (low + high) / 2
    return upper, normal, middle


def quantizer(points: Floats, arm: Ids) -> tuple[list[float], float]:
    """Return the mean angle at the boundaries of a tree-structured vector quantizer, by depth, and its squared error.

    It splits each cell in two by 2-means: the loss decides alone, without the limits of a network.
    """
    rows, along, means = points.astype(np.float64), tangents(points, arm), []
    cells = [np.arange(len(points))]
    for _ in range(FIRST):
        angles, halves = [], []
        for cell in cells:
            upper, normal, middle = split(rows[cell])
            near = np.abs((rows[cell] - middle) @ normal) < NEAR
            angles.append(np.degrees(np.arccos(np.minimum(np.abs(along[cell][near] @ normal), 1))))
            halves += [cell[upper], cell[~upper]]
        means.append(float(np.concatenate(angles).mean()))
        cells = [half for half in halves if len(half) > 2]
    squares = sum(np.square(rows[cell] - rows[cell].mean(axis=0)).sum() for cell in cells)
    return means, float(squares / rows.size)


def by_depth(points: Floats, codes: Codes, queries: Ids) -> tuple[bool, Doubles]:
    """Return whether all neighborhoods of the queries are nested, and RMS distances of members by depth."""
    tree, nested, distances = PrefixTree(codes), True, np.empty((len(queries), DEPTHS + 1))
    for row, query in enumerate(queries):
        family = tree.nested(codes[query])
        members = [set(hood.ids.tolist()) for hood in family]
        nested &= all(inner <= outer for outer, inner in pairwise(members))
        for depth in range(DEPTHS + 1):
            ids = tree.neighborhood(codes[query], fraction=0.5**depth).ids
            distances[row, depth] = np.sqrt(np.mean(np.sum((points[ids] - points[query]) ** 2, axis=1)))
    return nested, distances


def mean_angle(angles: Doubles, bits: int = FIRST) -> float:
    """Return the mean angle at the boundaries of the first bits."""
    own = angles[angles[:, 0] < bits, 1]
    return float(own.mean()) if len(own) else float("nan")


def add_angles(lab: Lab, kinds: Sequence[list[Trained]], seeds: tuple[int, ...]) -> dict[str, Any]:
    """Report the angles of boundaries of networks trained, with fewer steps and not at all, and return them."""
    trained, shorter, untrained = kinds
    best, place = least_loss(trained), LENGTHS.index(FIRST)
    after, before = ([mean_angle(one.angles) for one in runs] for runs in (trained, untrained))
    own, growth = mean_angle(best.angles), float(least_loss(shorter).errors[place] / best.errors[place])
    lab.finding(
        "boundaries are orthogonal to the direction of local variation",
        paper="orthogonal, by eye",
        ours=f"{own:.0f}° off on average, median {np.median(best.angles[best.angles[:, 0] < FIRST, 1]):.0f}°; all "
        f"restarts {np.mean(after):.0f}° ± {np.std(after):.0f}°, untrained {np.mean(before):.0f}° ± "
        f"{np.std(before):.0f}°. A quarter of the steps has {growth:.2f} times the error at {FIRST} bits",
        holds=own < CHANCE / 2 if is_converged(growth) else None,
        seeds=seeds,
    )
    lab.finding(
        "training turns boundaries toward orthogonal",
        ours=f"{np.mean(after):.0f}° after and {np.mean(before):.0f}° before, chance is {CHANCE:.0f}°; all bits "
        f"{np.mean([mean_angle(one.angles, WIDTH) for one in trained]):.0f}°",
        holds=float(np.mean(after)) < min(CHANCE, float(np.mean(before))),
        seeds=seeds,
    )
    return {"best": own, "trained": after, "untrained": before, "error of a quarter of the steps": growth}


EXPERIMENT = Experiment(
    "pinwheel",
    "figure 2, section 5.2",
    "Nested neighborhoods on a pinwheel",
    "A tiny 2-16-32-16-2 autoencoder on synthetic pinwheel data shows the nesting of neighborhoods for several "
    "queries. Their boundaries are orthogonal to the direction of local variation of the data, which follows from the "
    "loss.",
    run,
)
