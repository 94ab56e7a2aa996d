"""Figure 1 of the paper: the filters of a binarised network of 100 units, without unit sweeping and with it."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator
from numpy.typing import NDArray

from nestcode.arrays import Doubles, Floats
from nestcode.lengths import Geometric
from nestcode.nn import OrderedAutoencoder
from nestcode.reproduce.lab import Experiment, Images, Lab
from nestcode.reproduce.lab.images import as_rows
from nestcode.reproduce.lab.networks import RECIPES, trained_network
from nestcode.training import Preset, Sweep, Training, errors_by_length

WIDTH, HALF = 100, 50
LENGTHS = Geometric(0.9)
RECIPE_NAMES = {"paper": "the paper's recipe", "ours": "ours"}
KINDS = {"without sweeping": ("#D55E00", "--"), "with sweeping": ("#0072B2", "-")}
TENS = (slice(0, 10), slice(45, 55), slice(90, 100))  # first, middle and last units


@dataclass(frozen=True)
class Learnt:
    """What is measured of one trained network."""

    filters: Floats  # (WIDTH, features)
    fineness: Doubles  # (WIDTH,)
    moved: Doubles  # (WIDTH,)
    errors: Doubles  # (WIDTH + 1,): of test images, by length


def preset(lab: Lab, recipe: str, kind: str, seed: int) -> Preset:
    """A network of 100 units; unit sweeping fixes one after the other, once the first have had time to settle."""
    if recipe == "paper":
        steps, after, every = lab.pick(toy=(110, 5, 1), quick=(110, 10, 1), full=(120, 20, 1))
        batch, searches = lab.pick(toy=(50, 1), quick=(250, 2), full=(10_000, 2))
        training = RECIPES[recipe].training.but(
            epochs=None, batch_size=batch, searches=searches, precision="float32"
        )  # a line search compares losses
    else:
        steps, after, every = lab.pick(toy=(200, 100, 1), quick=(800, 200, 6), full=(5000, 1000, 40))
        rate = lab.pick(toy=1e-2, quick=3e-3, full=1e-3)
        training = Training(
            batch_size=lab.pick(toy=50, quick=128, full=512), learning_rate=rate, schedule="constant", compile=False
        )
    sweep = Sweep(after=after, every=every, patience=1) if kind == "with sweeping" else None
    device = lab.pick(toy="cpu", quick="cpu", full="auto")
    return replace(
        RECIPES[recipe],
        width=WIDTH,
        lengths=LENGTHS,
        training=training.but(steps=steps, sweep=sweep, seed=seed, device=device),
    )


def filters(network: OrderedAutoencoder) -> Floats:
    """What each unit adds to the reconstruction, (width, features): with its bit alone, less without any."""
    with torch.inference_mode():
        found: Floats = (network.decode(torch.eye(network.width)) - network.decode(torch.zeros(1, 0))).numpy()
    return found


def fineness(rows: NDArray[np.floating], side: int) -> Doubles:
    """The mean spatial frequency of each filter's energy, cycles a pixel: 0 for flat ones, about 0.38 for noise."""
    energy = np.square(np.abs(np.fft.fft2(rows.reshape(len(rows), 3, side, side)))).sum(axis=1)
    frequency = np.hypot(*np.meshgrid(np.fft.fftfreq(side), np.fft.fftfreq(side)))
    return np.asarray((energy * frequency).sum(axis=(1, 2)) / energy.sum(axis=(1, 2)))


def noise_fineness(side: int) -> float:
    """The fineness to expect of white noise, which has the same energy at all frequencies."""
    point = np.zeros((1, 3, side, side))
    point[..., 0, 0] = 1
    return float(fineness(point, side)[0])


def measure(lab: Lab, images: Images, recipe: str, kind: str, seed: int) -> Learnt:
    """Train a network, or take the one that was kept."""
    own = preset(lab, recipe, kind, seed)
    network = trained_network(lab, "filters", own, as_rows(images.train))
    torch.manual_seed(seed)
    start = own.build(network.features)  # as training began
    start.mean.copy_(network.mean)
    start.spread.copy_(network.spread)
    before, after = filters(start), filters(network)
    moved = np.linalg.norm(after - before, axis=1) / np.linalg.norm(before, axis=1)
    errors = errors_by_length(network, torch.from_numpy(as_rows(images.test)), range(WIDTH + 1))
    return Learnt(after, fineness(after, images.side), moved.astype(np.float64), errors)


def run(lab: Lab) -> None:
    """Train the paper's network and ours, without unit sweeping and with it."""
    images = lab.images(lab.pick(toy=400, quick=4000, full=None), lab.pick(toy=100, quick=1000, full=None))
    images = images.downsampled(lab.pick(toy=8, quick=16, full=32))
    say_lengths(lab)
    for recipe, called in RECIPE_NAMES.items():
        found = {
            kind: [measure(lab, images, recipe, kind, seed) for seed in lab.progress(lab.seeds, f"{called}, {kind}")]
            for kind in KINDS
        }
        say(lab, called, found, noise_fineness(images.side))
        lab.figure(
            f"filters-{recipe}",
            figure_filters(images, {kind: runs[0].filters for kind, runs in found.items()}),
            f"{called.capitalize()}: what each of the 100 units adds to a reconstruction of {images.name}, first to "
            "last by rows, each scaled to its largest number. The line parts the first 50 units from the last 50.",
        )
        lab.figure(
            f"filters-{recipe}-numbers",
            figure_numbers(found, noise_fineness(images.side)),
            f"{called.capitalize()}. Left: fineness of filters, which is that of white noise where one has learnt "
            "nothing. Middle: how far a filter is from its random start, in units of the start; Adam, which ours has, "
            "moves starved units too, as its steps do not shrink with the gradient. Right: error of test images. "
            "Ranges are of seeds.",
        )
        lab.measured[recipe] = {
            kind: {name: [getattr(one, name).tolist() for one in runs] for name in ("fineness", "moved", "errors")}
            for kind, runs in found.items()
        }
    tell_departures(lab, images)


def say_lengths(lab: Lab) -> None:
    """How rarely late units are kept, by the formula and by drawing."""
    part, parts = 200_000, lab.pick(toy=1, quick=25, full=250)
    draws, counts, rng = part * parts, np.zeros(2), np.random.default_rng(lab.seeds[0])
    for _ in range(parts):
        drawn = LENGTHS.sample(part, rng, WIDTH)
        counts += np.count_nonzero(drawn > HALF), np.count_nonzero(drawn == WIDTH)
    survival = LENGTHS.survival(WIDTH)
    told = ((f"P(b > {HALF})", survival[HALF], "0.005"), (f"P(unit {WIDTH} is kept)", survival[-1], "0.00003"))
    for (name, exact, paper), count in zip(told, counts, strict=True):
        near = abs(count - draws * exact) < 5 * np.sqrt(draws * exact)  # standard errors
        lab.finding(
            f"{name} with Geometric(0.9)",
            paper=f"≈ {paper}",
            ours=f"{exact:.2g}; {count:,.0f} of {draws:,} draws",
            holds=f"{exact:.{len(paper) - 2}f}" == paper and near,
        )


def say(lab: Lab, called: str, found: dict[str, list[Learnt]], noise: float) -> None:
    """What sweeping does to the late units of one recipe."""
    fine, moved, errors = (
        {kind: np.array([getattr(one, name) for one in runs]) for kind, runs in found.items()}
        for name in ("fineness", "moved", "errors")
    )
    never, swept = KINDS
    late = {kind: each[:, HALF:].mean(axis=1) / noise for kind, each in fine.items()}
    lab.finding(
        f"late filters are trained with sweeping, {called}",
        paper="without it, very unlikely to sample these",
        ours=f"fineness of units {HALF + 1}-{WIDTH}, 1 for noise: {_told(late[swept])} with, {_told(late[never])} "
        f"without; of the last ten {_told(fine[swept][:, 90:].mean(axis=1) / noise)} and "
        f"{_told(fine[never][:, 90:].mean(axis=1) / noise)}",
        holds=late[swept].max() < late[never].min(),
    )
    far = {kind: each[:, HALF:].mean(axis=1) / each[:, :HALF].mean(axis=1) for kind, each in moved.items()}
    lab.finding(
        f"late filters move farther from their random start with sweeping, {called}",
        paper="gradients vanish with the index",
        ours=f"units {HALF + 1}-{WIDTH} moved {_told(far[swept])} of what units 1-{HALF} did with, "
        f"{_told(far[never])} without",
        holds=far[swept].min() > far[never].max(),
    )
    change = {kind: each[:, WIDTH] / each[:, HALF] - 1 for kind, each in errors.items()}
    lab.finding(
        f"bits {HALF + 1}-{WIDTH} lower the error with sweeping only, {called}",
        paper="not measured",
        ours=f"{_told(100 * change[swept], '+.0f')} % with, {_told(100 * change[never], '+.0f')} % without",
        holds=change[swept].max() < 0 <= change[never].min(),
    )
    tens = np.array([fine[swept][:, ten].mean() for ten in TENS]) / noise
    ranks = fine[swept].argsort(axis=1).argsort(axis=1)
    rising = np.array([np.corrcoef(np.arange(WIDTH), own)[0, 1] for own in ranks])
    lab.finding(
        f"filters become finer with the index, {called} with sweeping",
        paper="note the increase of fineness",
        ours=f"rank correlation {_told(rising)}; fineness {tens[0]:.2f} of units 1-10, {tens[1]:.2f} of 46-55, "
        f"{tens[2]:.2f} of 91-100",
        holds=bool(rising.min() > 0.5),
    )
    lengths = (0, 1, 5, 10, 25, 50, 75, 100)
    lab.table(
        ["mean squared error", *(f"{length} bits" for length in lengths)],
        [[kind, *(f"{errors[kind][:, length].mean():.4f}" for length in lengths)] for kind in KINDS],
        caption=f"{called.capitalize()}: error of test images, pixels from 0 to 1, mean of {len(lab.seeds)} seeds.",
    )


def _told(each: Doubles, how: str = ".2f") -> str:
    """The mean over seeds, and their range where there is one."""
    low, mean, high = (format(value, how) for value in (each.min(), each.mean(), each.max()))
    return mean if low == high else f"{mean} ({low} to {high})"


def tell_departures(lab: Lab, images: Images) -> None:
    """Where this differs from the paper."""
    if images.side < 32:
        lab.departure(
            f"{len(images.train):,} images of {images.side} x {images.side} pixels ({images.name}) make the network "
            f"{images.train.shape[1]}-100-{images.train.shape[1]} and not 3072-100-3072, for want of time or data."
        )
    lab.departure(
        "The paper does not say when a unit counts as converged: here one unit or more is fixed at each look, whatever "
        "it still does, so that the sweep ends with the training. Its dropout of 0.2 is for hidden layers, and this "
        "network has none."
    )


def figure_filters(images: Images, by_kind: dict[str, Floats]) -> Figure:
    """Mosaics of ten by ten filters, side by side."""
    figure = Figure(figsize=(11, 5.9), layout="constrained")
    for axes, (kind, rows) in zip(figure.subplots(1, 2), by_kind.items(), strict=True):
        sheet = mosaic(images.as_images(rows))
        axes.imshow(sheet, interpolation="nearest")
        axes.axhline(len(sheet) / 2 - 0.5, color="black", linewidth=1.5)
        axes.set_title(kind, fontsize=13)
        ticks = (np.arange(10) + 0.5) * len(sheet) / 10 - 0.5
        axes.set_yticks(ticks, [f"{first}-{first + 9}" for first in range(1, WIDTH, 10)])
        axes.set_xticks([])
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
    figure.supylabel("units")
    return figure


def mosaic(pictures: NDArray[np.floating]) -> NDArray[np.floating]:
    """(100, side, side, 3) in rows of ten with white gaps, each with its largest number at full contrast."""
    size = np.abs(pictures).max(axis=(1, 2, 3), keepdims=True)
    shown = 0.5 + 0.5 * pictures / np.where(size > 0, size, 1)
    framed = np.pad(shown, ((0, 0), (0, 1), (0, 1), (0, 0)), constant_values=1)
    side = framed.shape[1]
    return framed.reshape(10, 10, side, side, 3).swapaxes(1, 2).reshape(10 * side, 10 * side, 3)


def figure_numbers(found: dict[str, list[Learnt]], noise: float) -> Figure:
    """Fineness and movement by unit, error by length."""
    figure = Figure(figsize=(12.5, 4), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    for kind, runs in found.items():
        _band(left, kind, np.array([one.fineness for one in runs]), first=1)
        _band(middle, kind, np.array([one.moved for one in runs]), first=1)
        _band(right, kind, np.array([one.errors for one in runs]), first=0)
    left.axhline(noise, color="0.4", linewidth=1, linestyle=":")
    left.text(1, noise * 0.985, "white noise", va="top", color="0.3")
    left.set(title="late filters: noise or not", xlabel="unit", ylabel="fineness (cycles a pixel)", ylim=(0, None))
    middle.set(title="how far filters moved", xlabel="unit", ylabel="distance from start / its norm", yscale="log")
    middle.set_ylim(bottom=0.1)  # units that were never drawn did not move at all
    middle.set_yticks([0.1, 0.3, 1, 3, 10, 30], ["0.1", "0.3", "1", "3", "10", "30"], minor=False)
    middle.yaxis.set_minor_locator(NullLocator())
    right.set(title="what late bits are worth", xlabel="length (bits)", ylabel="mean squared error")
    for axes in (left, middle, right):
        axes.grid(alpha=0.3)
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    return figure


def _band(axes: Axes, kind: str, each: Doubles, first: int) -> None:
    color, style = KINDS[kind]
    x = np.arange(first, first + each.shape[1])
    axes.plot(x, each.mean(axis=0), style, color=color, label=kind)
    axes.fill_between(x, each.min(axis=0), each.max(axis=0), color=color, alpha=0.2, linewidth=0)


EXPERIMENT = Experiment(
    "filters",
    "figure 1, sections 4.1 and 4.3",
    "Unit sweeping trains late filters",
    "The 100 filters of a binarised 3072-100-3072 network on CIFAR-10 with geometric lengths of rate 0.9. An index "
    "above 50 is drawn with probability 0.005, the 100th with 0.00003, so late units hardly learn, unless converged "
    "units are fixed in place, first to last, and lengths drawn beyond them. Filters become finer with the index.",
    run,
)
