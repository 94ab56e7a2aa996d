"""The filters of a binarized autoencoder with 100 units, without and with unit sweeping."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from nestcode.arrays import Doubles, Floats
from nestcode.lengths import Geometric
from nestcode.nn import OrderedAutoencoder
from nestcode.reproduce.filters.figures import KINDS, WIDTH, figure_curves, figure_filters
from nestcode.reproduce.lab import Experiment, Images, Lab
from nestcode.reproduce.lab.images import as_rows
from nestcode.reproduce.lab.networks import RECIPES, trained_network
from nestcode.training import Sweep, Training, errors_by_length
from nestcode.training.presets import Preset

HALF = WIDTH // 2
LENGTHS = Geometric(0.9)
RECIPE_NAMES = {"paper": "the paper's recipe", "ours": "ours"}
TENS = (slice(0, 10), slice(45, 55), slice(90, 100))  # first, middle and last units


@dataclass(frozen=True)
class Trained:
    """Measurements of one trained network."""

    filters: Floats  # (WIDTH, features)
    fineness: Doubles  # (WIDTH,)
    moved: Doubles  # (WIDTH,): distance from the random start, in units of its norm
    errors: Doubles  # (WIDTH + 1,): MSE of test images by length


def run(lab: Lab) -> None:
    """Train the paper's network and ours, without and with unit sweeping."""
    images = filter_images(lab)
    noise = noise_fineness(images.side)
    add_probabilities(lab)
    for recipe, name in RECIPE_NAMES.items():
        runs = {
            kind: [measure(lab, images, recipe, kind, seed) for seed in lab.progress(lab.seeds, f"{name}, {kind}")]
            for kind in KINDS
        }
        add_findings(lab, name, runs, noise)
        lab.figure(
            f"filters-{recipe}",
            figure_filters({kind: images.as_images(each[0].filters) for kind, each in runs.items()}),
            f"{name.capitalize()}: what each of the 100 units adds to a reconstruction of {images.name}, first to last "
            "by rows, each scaled to its largest absolute value. The line separates the first 50 units from the last.",
        )
        curves = {
            key: {kind: np.array([getattr(one, key) for one in each]) for kind, each in runs.items()}
            for key in ("fineness", "moved", "errors")
        }
        lab.figure(
            f"filters-{recipe}-curves",
            figure_curves(curves["fineness"], curves["moved"], curves["errors"], noise),
            f"{name.capitalize()}. Left: fineness of filters; untrained filters have that of white noise. Middle: "
            "distance of a filter from its random start, in units of the start; Adam, our optimizer, moves starved "
            "units too, as its steps do not shrink with the gradient. Right: MSE of test images. Bands are the range "
            "over seeds.",
        )
        lab.measured[recipe] = {
            kind: {key: curves[key][kind].tolist() for key in ("fineness", "moved", "errors")} for kind in KINDS
        }
    add_departures(lab, images)


def filter_images(lab: Lab) -> Images:
    """Return the images that the networks are trained on."""
    images = lab.images(lab.pick(toy=400, quick=4000, full=None), lab.pick(toy=100, quick=1000, full=None))
    return images.downsampled(lab.pick(toy=8, quick=16, full=32))


def train_seed(lab: Lab, seed: int) -> None:
    """Train all networks of a seed."""
    images = filter_images(lab)
    for recipe in RECIPE_NAMES:
        for kind in KINDS:
            trained_network(lab, "filters", preset(lab, recipe, kind, seed), as_rows(images.train))


def preset(lab: Lab, recipe: str, kind: str, seed: int) -> Preset:
    """Return a network of 100 units; sweeping freezes one after the other, once the first had time to converge."""
    if recipe == "paper":
        steps, after = lab.pick(toy=(110, 5), quick=(110, 10), full=(120, 20))
        batch, searches = lab.pick(toy=(50, 1), quick=(250, 2), full=(10_000, 2))
        training = RECIPES[recipe].training.but(
            epochs=None, batch_size=batch, searches=searches, precision="float32"
        )  # a line search compares losses
    else:
        steps, after = lab.pick(toy=(200, 100), quick=(800, 200), full=(5000, 1000))
        rate = lab.pick(toy=1e-2, quick=3e-3, full=1e-3)
        training = Training(
            batch_size=lab.pick(toy=50, quick=128, full=512), learning_rate=rate, schedule="constant", compile=False
        )
    sweep = Sweep(after=after / steps, blocks=WIDTH) if kind == "with sweeping" else None
    device = lab.pick(toy="cpu", quick="cpu", full="auto")
    return replace(
        RECIPES[recipe],
        width=WIDTH,
        lengths=LENGTHS,
        training=training.but(steps=steps, sweep=sweep, seed=seed, device=device),
    )


def measure(lab: Lab, images: Images, recipe: str, kind: str, seed: int) -> Trained:
    """Return the measurements of a trained network."""
    own = preset(lab, recipe, kind, seed)
    network, _ = trained_network(lab, "filters", own, as_rows(images.train))
    test = torch.from_numpy(as_rows(images.test)).to(network.mean.device)
    errors = errors_by_length(network, test, range(WIDTH + 1))
    network.cpu()
    torch.manual_seed(seed)
    start = own.build(network.features)  # the same random start
    start.mean.copy_(network.mean)
    start.spread.copy_(network.spread)
    before, after = filters(start), filters(network)
    moved = np.linalg.norm(after - before, axis=1) / np.linalg.norm(before, axis=1)
    return Trained(after, fineness(after, images.side), moved.astype(np.float64), errors)


def filters(network: OrderedAutoencoder) -> Floats:
    """Return what each unit adds to the reconstruction, (width, features): its bit alone, less no bit at all."""
    with torch.inference_mode():
        rows: Floats = (network.decode(torch.eye(network.width)) - network.decode(torch.zeros(1, 0))).numpy()
    return rows


def fineness(rows: NDArray[np.floating], side: int) -> Doubles:
    """Return the mean spatial frequency of each filter's energy in cycles per pixel: 0 if flat, 0.38 for noise."""
    energy = np.square(np.abs(np.fft.fft2(rows.reshape(len(rows), 3, side, side)))).sum(axis=1)
    frequency = np.hypot(*np.meshgrid(np.fft.fftfreq(side), np.fft.fftfreq(side)))
    return np.asarray((energy * frequency).sum(axis=(1, 2)) / energy.sum(axis=(1, 2)))


def noise_fineness(side: int) -> float:
    """Return the expected fineness of white noise, which has the same energy at all frequencies."""
    point = np.zeros((1, 3, side, side))
    point[..., 0, 0] = 1
    return float(fineness(point, side)[0])


def add_probabilities(lab: Lab) -> None:
    """Report how rarely late units are kept, by the formula and by sampling."""
    part, parts = 200_000, lab.pick(toy=1, quick=25, full=250)
    draws, counts, rng = part * parts, np.zeros(2), np.random.default_rng(lab.seeds[0])
    for _ in range(parts):
        lengths = LENGTHS.sample(part, WIDTH, rng)
        counts += np.count_nonzero(lengths > HALF), np.count_nonzero(lengths == WIDTH)
    survival = LENGTHS.survival(WIDTH)
    claims = ((f"P(b > {HALF})", survival[HALF], "0.005"), (f"P(unit {WIDTH} is kept)", survival[-1], "0.00003"))
    for (name, exact, paper), count in zip(claims, counts, strict=True):
        near = abs(count - draws * exact) < 5 * np.sqrt(draws * exact)  # standard errors
        lab.finding(
            f"{name} with Geometric(0.9) is {paper}",
            ours=f"{exact:.2g}; {count:,.0f} of {draws:,} draws",
            holds=f"{exact:.{len(paper) - 2}f}" == paper and near,
            seeds=lab.seeds[:1],
        )


def add_findings(lab: Lab, recipe: str, runs: dict[str, list[Trained]], noise: float) -> None:
    """Report the effect of sweeping on the late units of one recipe."""
    of_paper = recipe == RECIPE_NAMES["paper"]
    fine, moved, errors = (
        {kind: np.array([getattr(one, name) for one in each]) for kind, each in runs.items()}
        for name in ("fineness", "moved", "errors")
    )
    never, swept = KINDS
    late = {kind: each[:, HALF:].mean(axis=1) / noise for kind, each in fine.items()}
    lab.finding(
        f"late filters are trained with sweeping, {recipe}",
        paper="without it, very unlikely to sample these" if of_paper else None,
        ours=f"fineness of units {HALF + 1}-{WIDTH}, 1 for noise: {mean_range(late[swept])} with, "
        f"{mean_range(late[never])} without; of the last ten {mean_range(fine[swept][:, 90:].mean(axis=1) / noise)} "
        f"and {mean_range(fine[never][:, 90:].mean(axis=1) / noise)}",
        holds=late[swept].max() < late[never].min(),
    )
    far = {kind: each[:, HALF:].mean(axis=1) / each[:, :HALF].mean(axis=1) for kind, each in moved.items()}
    lab.finding(
        f"late filters move farther from their random start with sweeping, {recipe}",
        paper="gradients vanish with the index" if of_paper else None,
        ours=f"units {HALF + 1}-{WIDTH} moved {mean_range(far[swept])} of what units 1-{HALF} did with, "
        f"{mean_range(far[never])} without",
        holds=far[swept].min() > far[never].max(),
    )
    change = {kind: each[:, WIDTH] / each[:, HALF] - 1 for kind, each in errors.items()}
    lab.finding(
        f"bits {HALF + 1}-{WIDTH} lower the MSE with sweeping only, {recipe}",
        ours=f"{mean_range(100 * change[swept], '+.0f')} % with, {mean_range(100 * change[never], '+.0f')} % without",
        holds=change[swept].max() < 0 <= change[never].min(),
    )
    tens = np.array([fine[swept][:, ten].mean() for ten in TENS]) / noise
    ranks = fine[swept].argsort(axis=1).argsort(axis=1)
    rising = np.array([np.corrcoef(np.arange(WIDTH), own)[0, 1] for own in ranks])
    lab.finding(
        f"fineness rises with the index, {recipe} with sweeping",
        paper="note the increase of filter fineness" if of_paper else None,
        ours=f"rank correlation {mean_range(rising)}; fineness {tens[0]:.2f} of units 1-10, {tens[1]:.2f} of 46-55, "
        f"{tens[2]:.2f} of 91-100",
        holds=bool(rising.min() > 0.5),
    )
    lengths = (0, 1, 5, 10, 25, 50, 75, 100)
    lab.table(
        ["MSE", *(f"{length} bits" for length in lengths)],
        [[kind, *(f"{errors[kind][:, length].mean():.4f}" for length in lengths)] for kind in KINDS],
        caption=f"{recipe.capitalize()}: MSE of test images, pixels from 0 to 1, mean over {len(lab.seeds)} seeds.",
    )


def mean_range(values: Doubles, spec: str = ".2f") -> str:
    """Format the mean over seeds, with their range if there is one."""
    low, mean, high = (format(value, spec) for value in (values.min(), values.mean(), values.max()))
    return mean if low == high else f"{mean} ({low} to {high})"


def add_departures(lab: Lab, images: Images) -> None:
    """Record where the experiment departs from the paper."""
    if images.side < 32:
        lab.departure(
            f"{len(images.train):,} images of {images.side} x {images.side} pixels ({images.name}) make the network "
            f"{images.train.shape[1]}-100-{images.train.shape[1]} instead of 3072-100-3072, to save time or for lack "
            "of data."
        )
    lab.departure(
        "The paper does not define when a unit has converged: here units share the steps after a plain phase equally, "
        "and are frozen early if their bits stop changing. The paper's dropout of 0.2 is for hidden layers, and this "
        "network has none."
    )


EXPERIMENT = Experiment(
    "filters",
    "figure 1, sections 4.1 and 4.3",
    "Unit sweeping trains late filters",
    "The 100 filters of a binarized 3072-100-3072 network on CIFAR-10 with geometric lengths of rate 0.9. An index "
    "above 50 is sampled with probability 0.005, the 100th with 0.00003, so late units are hardly trained unless "
    "converged units are frozen, first to last. The fineness of filters rises with the index.",
    run,
)
