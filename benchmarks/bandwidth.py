"""Streams for receivers of different bandwidths: the matching distribution wins, and by how much.

Two populations of receivers: phones on bad links, and fibre. Ordered autoencoders of digits are trained with nested
dropout for each of them and for other distributions of lengths, then judged by the distortion that each population
sees, on digits that were not trained on: a matrix, trained for against received by.

Then a receiver plays a trace drawn from its population, where each bandwidth lasts for ten periods:

    cut to fit       the stream trained for its population, cut at what arrived
    cut, for others  the same with the stream trained for the other population
    cut, for all     the same with the stream trained for both populations
    ladder           seven fixed encodings, prefixes of the first stream, chosen by throughput; stalls where too long
    own ladder       the same with seven autoencoders, each trained for its one length
    foreseen ladder  the longest of those seven that fits into each period: without a buffer no choice does better
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray

from _report import arguments, save, show
from nestcode.coders import AutoencoderCoder
from nestcode.data import digits
from nestcode.lengths import Empirical, Geometric, Lengths, LogUniform, Mixture, Uniform
from nestcode.simulate.bandwidth import Played, cut_to_fit, judge, ladder, ladder_rungs, send_whole
from nestcode.training import Training

Floats = NDArray[np.float64]
WIDTH = 64
POPULATIONS = {"phones": (6, 0.5), "fibre": (48, 0.3)}  # the median of their bits an item, and how far it spreads
COLOURS = {
    "phones": "#c1121f", "fibre": "#1565c0", "both": "#5a189a", "Uniform": "#0b7a75", "LogUniform": "#8d8d8d",
    "Geometric(0.9)": "#f0941f",
}  # fmt: skip
BUFFER = 4
LASTING = 10  # periods for which a link stays as it is


def main() -> None:
    """Measure, print and save."""
    options = arguments(__doc__)
    torch.set_num_threads(1)
    steps, seeds = (30, 1) if options.quick else (600, 3)
    traces = {name: trace(name, seed=1) for name in POPULATIONS}
    receivers = {name: Empirical.from_samples(bits) for name, bits in traces.items()}
    choices: dict[str, Lengths] = {
        **receivers,
        "both": Mixture(list(receivers.values())),
        "Uniform": Uniform(),
        "LogUniform": LogUniform(),
        "Geometric(0.9)": Geometric(0.9),
    }
    curves = {
        name: np.array([errors_by_length(lengths, steps, seed) for seed in range(seeds)])
        for name, lengths in choices.items()
    }
    matrix = list(judged(curves, receivers))
    how = f"Digits, {WIDTH} bits, a hidden layer of 64 units, {steps} steps; means of {seeds} seeds ± their deviation."
    show("Distortion that receivers see, and its ratio to that of the matching stream", matrix, how)
    rungs = ladder_rungs(WIDTH)
    own = np.full(WIDTH + 1, np.nan)
    for rung in rungs:
        own[rung] = errors_by_length(Empirical([1], lengths=[rung]), steps, seed=0)[rung]
    own[0] = curves["phones"][0, 0]
    plays = [row for name in POPULATIONS for row in played(name, curves, own, rungs)]
    show(f"A trace of 4,000 periods, a buffer of {BUFFER} items", plays, f"Rungs {rungs}; the first seed.")
    if options.figure is not None:
        draw(curves, traces, matrix).savefig(options.figure, dpi=130)
    save(options.json, [*matrix, *plays], ["nestcode", "numpy", "torch"])


def trace(population: str, seed: int) -> NDArray[np.int64]:
    """Bits an item of 4,000 receivers."""
    median, spread = POPULATIONS[population]
    drawn = np.random.default_rng(seed).lognormal(np.log(median), spread, 4000)
    return np.clip(np.round(drawn), 1, WIDTH).astype(np.int64)


def errors_by_length(lengths: Lengths, steps: int, seed: int) -> Floats:
    """Train for these lengths, and measure on digits held out at all lengths from 0."""
    X = np.random.default_rng(0).permutation(digits()[0])
    train, test = X[:1400], X[1400:]
    training = Training(steps=steps, learning_rate=3e-3, seed=seed)
    coder = AutoencoderCoder(WIDTH, layers=(64,), lengths=lengths, training=training).fit(train, progress=False)
    codes = coder.encode(test)
    return np.array([np.mean((test - coder.decode(codes.prefix(length))) ** 2) for length in range(WIDTH + 1)])


def judged(curves: dict[str, Floats], receivers: dict[str, Empirical]) -> Sequence[dict[str, Any]]:
    """A row for each stream: what each population sees of it."""
    seen = {
        name: {to: errors[:, 1:] @ lengths.pmf(WIDTH) for to, lengths in receivers.items()}
        for name, errors in curves.items()
    }
    rows = []
    for name, by_population in seen.items():
        row: dict[str, Any] = {"trained for": name}
        for to, errors in by_population.items():
            row[to] = float(errors.mean())
            row[f"± {to}"] = float(errors.std())
            row[f"{to}, ratio"] = float(errors.mean() / seen[to][to].mean())
        rows.append(row)
    return rows


def played(population: str, curves: dict[str, Floats], own: Floats, rungs: list[int]) -> Sequence[dict[str, Any]]:
    """What one receiver sees of each strategy."""
    bits = np.repeat(trace(population, seed=2)[:400], LASTING)
    cut, fixed = cut_to_fit(bits, WIDTH, BUFFER), ladder(bits, rungs, BUFFER)
    (other,) = POPULATIONS.keys() - {population}
    strategies: dict[str, tuple[Played, Floats]] = {
        "cut to fit": (cut, curves[population][0]),
        "cut, for others": (cut, curves[other][0]),
        "cut, for all": (cut, curves["both"][0]),
        "ladder": (fixed, curves[population][0]),
        "own ladder": (fixed, own),
        "foreseen ladder": (send_whole(bits, lambda seen: fitting(bits[len(seen)], rungs), buffer=1), own),
    }
    rows = []
    for name, (seen, errors) in strategies.items():
        found = judge(seen, errors)
        row = {"receiver": population, "strategy": name, "distortion": found.error, "with stalls": found.error_in_time}
        rows.append(
            row | {"bits": found.length, "stalls": found.stalls, "stalled": found.stalled, "unused": found.unused}
        )
    return rows


def fitting(bits: int, rungs: list[int]) -> int:
    """The longest rung of at most so many bits, or the first."""
    return max((rung for rung in rungs if rung <= bits), default=rungs[0])


def draw(curves: dict[str, Floats], traces: dict[str, NDArray[np.int64]], matrix: Sequence[dict[str, Any]]) -> Figure:
    """Error by length with the populations below it, and what each population sees."""
    figure = Figure(figsize=(12, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    lengths = np.arange(1, WIDTH + 1)
    below = left.twinx()
    for name, bits in traces.items():
        counts = np.bincount(bits, minlength=WIDTH + 1)[1:] / len(bits)
        below.fill_between(lengths, counts, step="mid", color=COLOURS[name], alpha=0.2, linewidth=0)
        below.text(POPULATIONS[name][0], counts[:-1].max() * 1.05, f"bits of {name}", color=COLOURS[name], ha="center")
    below.set(ylim=(0, 0.6), yticks=[])
    for name, errors in curves.items():
        left.plot(lengths, errors.mean(axis=0)[1:], color=COLOURS[name], linewidth=2, label=f"trained for {name}")
    left.set(xlabel="bits that arrived", ylabel="mean squared error of a pixel", xlim=(0, WIDTH + 1), ylim=(0, 0.075))
    left.legend(frameon=False, loc="upper right", fontsize=9)
    left.set_zorder(below.get_zorder() + 1)
    left.patch.set_visible(False)
    step = 0.13
    for place, row in enumerate(matrix):
        name = row["trained for"]
        for group, to in enumerate(POPULATIONS):
            at = group + (place - (len(matrix) - 1) / 2) * step
            right.bar(at, row[to], step * 0.92, yerr=row[f"± {to}"], color=COLOURS[name])
            ratio = row[f"{to}, ratio"]
            right.annotate(f"{ratio:.2f}", (at, row[to] + row[f"± {to}"]), (0, 2), "data", "offset points", ha="center")
    right.set_xticks(range(len(POPULATIONS)), [f"received by {to}" for to in POPULATIONS])
    right.set(ylabel="distortion (numbers: ratio to the matching stream)")
    right.margins(y=0.08)
    for axes in (left, right, below):
        axes.spines[["top", "right"]].set_visible(False)
    return figure


if __name__ == "__main__":
    main()
