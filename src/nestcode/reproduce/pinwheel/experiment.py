"""Nested neighborhoods on a pinwheel, and the direction of their boundaries."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestcode import AutoencoderCoder, Codes
from nestcode.arrays import Doubles, Floats, Ids
from nestcode.data import pinwheel
from nestcode.index import PrefixTree
from nestcode.lengths import Geometric, LogUniform
from nestcode.reproduce.lab import Experiment, Lab
from nestcode.reproduce.pinwheel.figures import DEPTHS, figure_angles, figure_neighborhoods, mean_angle, plane
from nestcode.training import Network, Training

ARMS, WIDTH, LAYERS = 5, 32, (16,)
LENGTHS = (1, 2, 4, 8, 16, 32)
LARGE = 1 / 16  # share of the points from which a neighborhood is large: most of an arm, or several


@dataclass(frozen=True)
class Trained:
    """Codes and errors of a trained coder."""

    codes: Codes  # of the points
    grid: Codes  # of the plane
    errors: Doubles  # mean squared distance of decoded points, by LENGTHS


def run(lab: Lab) -> None:
    """Train the coders for all seeds, measure their boundaries, and draw the first."""
    points, arm = pinwheel(lab.pick(toy=1000, quick=5000, full=20_000), ARMS, np.random.default_rng(0))
    queries = central_points(points, arm)
    trained = {name: [train(lab, name, points, seed) for seed in lab.progress(lab.seeds, f"training {name}")]
               for name in recipes(lab)}  # fmt: skip
    least = max(50, len(points) // 100)
    boundaries = {name: [boundary_angles(points, one.codes, least) for one in runs] for name, runs in trained.items()}
    angles = add_angles(lab, boundaries, len(points))
    nested, distances = zip(*(by_depth(points, one.codes, queries) for one in trained["ours"]), strict=True)
    lab.finding("each neighborhood contains the next", paper="N_b+1 ⊆ N_b",
                ours="all do" if all(nested) else "not all do", holds=all(nested))  # fmt: skip
    mean_distances = np.mean(distances, axis=(0, 1))
    lab.finding(
        "members of deeper neighborhoods are nearer to the query",
        paper="nested around the query",
        ours=f"mean distance {mean_distances[0]:.2f}, and {mean_distances[-1]:.2f} at 1/{2**DEPTHS} of the points",
        holds=bool(np.all(np.diff(mean_distances) < 0)),
    )
    errors = {name: np.mean([one.errors for one in runs], axis=0) for name, runs in trained.items()}
    lab.finding(
        "bits with straight-through gradients decode better than bits trained through tied weights only",
        ours=f"squared error at 32 bits {errors['ours'][-1]:.3f} and {errors['paper'][-1]:.3f}",
        holds=bool(errors["ours"][-1] < errors["paper"][-1]),
    )
    lab.figure(
        "pinwheel-neighborhoods",
        figure_neighborhoods(points, trained["ours"][0].codes, trained["ours"][0].grid, queries),
        f"Five queries (red) and their nested neighborhoods in the plane, deeper ones darker; 2-16-32-16-2, seed "
        f"{lab.seeds[0]}. Dots are the points.",
    )
    lab.figure(
        "pinwheel-paper",
        figure_neighborhoods(points, trained["paper"][0].codes, trained["paper"][0].grid, queries),
        "The same with the paper's recipe: tied weights, bits without a gradient, nonlinear conjugate gradients.",
    )
    lab.figure("pinwheel-angles", figure_angles(boundaries, len(points)),
               "Angle of boundaries by the size of the neighborhood that they split; all seeds.")  # fmt: skip
    lab.table(
        ["coder", *(f"{b} bits" for b in LENGTHS)],
        [[name, *map(float, errors[name])] for name in errors],
        caption="Mean squared distance of decoded points by length; means over seeds.",
    )
    lab.departure(
        "The paper gives neither β nor p_B nor noise for this network. We chose β = 0.5, Geometric(0.9) for its recipe "
        "and LogUniform for ours, and neither corruption nor dropout, since both inputs are needed."
    )
    lab.departure(
        "The paper shows one image and no values. We chose the angle between a boundary and the local variation, after "
        "other measures that showed less; the two recipes are not trained equally long."
    )
    lab.measured |= {"angles": angles,
                     "errors": {name: mean.tolist() for name, mean in errors.items()},
                     "distances by depth": mean_distances.tolist()}  # fmt: skip


def recipes(lab: Lab) -> dict[str, dict[str, Any]]:
    """Return the settings of the coders: ours, the paper's, and an untrained one."""
    ours = Training(steps=lab.pick(toy=300, quick=2000, full=20_000), batch_size=256, learning_rate=5e-3)
    rounds, batch = lab.pick(toy=(2, 500), quick=(15, 4000), full=(200, 10_000))
    paper = Training(steps=rounds, batch_size=batch, optimizer="conjugate")
    return {
        "ours": {"lengths": LogUniform(), "training": ours},
        "paper": {"lengths": Geometric(0.9), "network": Network(tied=True, gradient="none", signed=False),
                  "training": paper},
        "untrained": {"lengths": LogUniform(), "training": Training(steps=1, learning_rate=1e-12)},
    }  # fmt: skip


def train(lab: Lab, name: str, points: Floats, seed: int) -> Trained:
    """Return codes and errors of a coder trained by this recipe, or read them from the cache."""
    recipe = recipes(lab)[name]
    training = recipe.pop("training").but(seed=seed, device="cpu")

    def compute() -> dict[str, NDArray[Any]]:
        coder = AutoencoderCoder(width=WIDTH, layers=LAYERS, training=training, **recipe).fit(points, progress=False)
        codes = coder.encode(points)
        errors = [np.mean(np.sum((coder.decode(codes.prefix(b)) - points) ** 2, axis=1)) for b in LENGTHS]
        return {"codes": codes.packed, "grid": coder.encode(plane(points)).packed, "errors": np.array(errors)}

    stored = lab.cached(f"pinwheel-{name}", compute, seed=seed, points=len(points), training=training.to_json())
    return Trained(Codes(stored["codes"], WIDTH), Codes(stored["grid"], WIDTH), stored["errors"])


def central_points(points: Floats, arm: Ids) -> Ids:
    """Return the point nearest to the center of each arm."""
    arms = [np.flatnonzero(arm == a) for a in range(ARMS)]
    return np.array([own[np.linalg.norm(points[own] - points[own].mean(axis=0), axis=1).argmin()] for own in arms])


def boundary_angles(points: Floats, codes: Codes, least: int = 50) -> Doubles:
    """Return (length, members, degrees) for each neighborhood that its next bit splits.

    The angle is between the direction of largest variance of the members and the normal of the line that separates
    both sides best (linear discriminant analysis). It is 0 if the boundary is orthogonal to the variation, and 45 on
    average by chance. Neighborhoods without a clear direction are left out.
    """
    bits, found = codes.bits(), []
    hood = np.zeros(len(points), dtype=np.int64)
    for length in range(codes.width):
        for members in (np.flatnonzero(hood == h) for h in np.unique(hood)):
            side = bits[members, length]
            if len(members) < least or not 0.1 <= side.mean() <= 0.9:
                continue
            own = points[members].astype(np.float64)
            covariance = np.cov(own.T)
            variances, directions = np.linalg.eigh(covariance)
            if variances[1] < 1.5**2 * variances[0]:
                continue
            normal = np.linalg.solve(covariance, own[side].mean(axis=0) - own[~side].mean(axis=0))
            cosine = abs(normal @ directions[:, 1]) / np.linalg.norm(normal)
            found.append((length, len(members), np.degrees(np.arccos(min(cosine, 1.0)))))
        hood = np.unique(2 * hood + bits[:, length], return_inverse=True)[1]
    return np.array(found, dtype=np.float64).reshape(-1, 3)


def by_depth(points: Floats, codes: Codes, queries: Ids) -> tuple[bool, Doubles]:
    """Return whether all neighborhoods of the queries are nested, and RMS distances of members by depth."""
    tree, nested, distances = PrefixTree(codes), True, np.empty((len(queries), DEPTHS + 1))
    for row, query in enumerate(queries):
        family = tree.nested(codes[query : query + 1])
        members = [set(hood.ids.tolist()) for hood in family]
        nested &= all(inner <= outer for outer, inner in pairwise(members))
        for depth in range(DEPTHS + 1):
            ids = tree.neighborhood(codes[query : query + 1], fraction=0.5**depth).ids
            distances[row, depth] = np.sqrt(np.mean(np.sum((points[ids] - points[query]) ** 2, axis=1)))
    return nested, distances


def add_angles(lab: Lab, boundaries: dict[str, list[Doubles]], points: int) -> dict[str, dict[str, list[float]]]:
    """Report the angles of boundaries in all, large and small neighborhoods; return them by coder and seed."""
    sizes = {
        "all": (0.0, 1.0),
        f"large, 1/{1 / LARGE:.0f} of the points and more": (LARGE, 1.0),
        "smaller": (0.0, LARGE),
    }
    angles: dict[str, dict[str, list[float]]] = {}
    for size, (low, high) in sizes.items():
        angles[size] = by_name = {
            name: [mean_angle(one[(low * points <= one[:, 1]) & (one[:, 1] <= high * points)]) for one in runs]
            for name, runs in boundaries.items()
        }
        text = {name: f"{np.mean(each):.0f}° ± {np.std(each):.0f}°" for name, each in by_name.items()}
        if size == "all":
            lab.finding("boundaries are orthogonal to the direction of local variation", paper="0°, by eye",
                        ours=f"{text['ours']} off", holds=max(by_name["ours"]) < 10)  # fmt: skip
        lab.finding(
            f"boundaries are nearer to orthogonal than by chance (45°) and than untrained; neighborhoods: {size}",
            ours=f"{text['ours']}; the paper's recipe {text['paper']}, untrained {text['untrained']}",
            holds=max(by_name["ours"]) < min(45.0, *by_name["untrained"]),
        )
    return angles


EXPERIMENT = Experiment(
    "pinwheel",
    "figure 2, section 5.2",
    "Nested neighborhoods on a pinwheel",
    "A tiny 2-16-32-16-2 autoencoder on synthetic pinwheel data shows the nesting of neighborhoods for several "
    "queries. Their boundaries are orthogonal to the direction of local variation of the data, which follows from the "
    "loss.",
    run,
)
