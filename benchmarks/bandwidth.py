"""Distortion at receivers of different bandwidths, by the distribution of lengths that a stream was trained for.

Two populations of receivers: mobile links and fiber. Ordered autoencoders of digits are trained with nested dropout for
the lengths of each population and for other distributions. The first table is the distortion on held-out digits,
trained for against received by.

In the second table a receiver plays a bandwidth trace drawn from its population; each bandwidth lasts for ten periods:

    truncated stream          trained for its population, truncated to what arrived
    truncated, other lengths  the same, trained for the other population
    truncated, both lengths   the same, trained for both populations
    bitrate ladder            seven prefixes of the first stream as fixed encodings, by throughput-based ABR
    separate encodings        the same with seven autoencoders, each trained for its one length
    oracle ladder             the longest of those seven that fits into each period: the optimum without a buffer
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray

from _report import arguments, save, show
from nestcode.arrays import Doubles, Floats
from nestcode.coders import AutoencoderCoder
from nestcode.data import digits
from nestcode.lengths import Empirical, Geometric, Lengths, LogUniform, Mixture, Uniform
from nestcode.simulate import Playback, bitrate_ladder, evaluate, play_ladder, play_truncated, play_whole
from nestcode.training import Training

WIDTH = 64
POPULATIONS = {"mobile": (6, 0.5), "fiber": (48, 0.3)}  # log-normal bits per item: median and sigma
COLORS = {
    "mobile": "#c1121f", "fiber": "#1565c0", "both": "#5a189a", "Uniform": "#0b7a75", "LogUniform": "#8d8d8d",
    "Geometric(0.9)": "#f0941f",
}  # fmt: skip
BUFFER = 4
CONSTANT = 10  # periods for which a bandwidth lasts


def main() -> None:
    """Measure, print and save."""
    options = arguments(__doc__)
    torch.set_num_threads(1)
    steps, seeds = (3, 1) if options.quick else (600, 3)
    X = np.random.default_rng(0).permutation(digits()[0])
    train, test = (X[:100], X[-20:]) if options.quick else (X[:1400], X[1400:])
    errors = partial(errors_by_length, train, test, steps)
    traces = {name: trace(name, seed=1) for name in POPULATIONS}
    receivers = {name: Empirical.from_samples(bits) for name, bits in traces.items()}
    choices: dict[str, Lengths] = {
        **receivers,
        "both": Mixture(list(receivers.values())),
        "Uniform": Uniform(),
        "LogUniform": LogUniform(),
        "Geometric(0.9)": Geometric(0.9),
    }
    curves = {name: np.array([errors(lengths, seed) for seed in range(seeds)]) for name, lengths in choices.items()}
    matrix = list(distortions(curves, receivers))
    how = f"Digits, {WIDTH} bits, a hidden layer of 64 units, {steps} steps; MSE, mean ± deviation of {seeds} seeds."
    show("Distortion by population of receivers, and its ratio to that of the matching stream", matrix, how)
    rungs = bitrate_ladder(WIDTH)
    own = np.full(WIDTH + 1, np.nan)
    for rung in rungs:
        own[rung] = errors(Empirical([1], lengths=[rung]), 0)[rung]
    own[0] = curves["mobile"][0, 0]
    playbacks = [row for name in POPULATIONS for row in play(name, curves, own, rungs)]
    show(f"Playback of 4,000 periods, a buffer of {BUFFER} items", playbacks, f"Rungs {rungs}; the first seed.")
    if options.figure is not None:
        draw(curves, traces, matrix).savefig(options.figure, dpi=130)
    save(options.json, [*matrix, *playbacks], ["nestcode", "numpy", "torch"])


def trace(population: str, seed: int) -> NDArray[np.int64]:
    """Return the bits per item of 4,000 receivers."""
    median, spread = POPULATIONS[population]
    drawn = np.random.default_rng(seed).lognormal(np.log(median), spread, 4000)
    return np.clip(np.round(drawn), 1, WIDTH).astype(np.int64)


def errors_by_length(train: Floats, test: Floats, steps: int, lengths: Lengths, seed: int) -> Doubles:
    """Train for these lengths; return the MSE on held-out digits at all lengths from 0."""
    training = Training(steps=steps, learning_rate=3e-3, seed=seed)
    coder = AutoencoderCoder(WIDTH, layers=(64,), lengths=lengths, training=training).fit(train, progress=False)
    codes = coder.encode(test)
    return np.array([np.mean((test - coder.decode(codes.prefix(length))) ** 2) for length in range(WIDTH + 1)])


def distortions(curves: dict[str, Doubles], receivers: dict[str, Empirical]) -> Sequence[dict[str, Any]]:
    """Return a row for each stream with its distortion for each population."""
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


def play(population: str, curves: dict[str, Doubles], own: Doubles, rungs: list[int]) -> Sequence[dict[str, Any]]:
    """Return the quality of each strategy for one receiver."""
    bits = np.repeat(trace(population, seed=2)[:400], CONSTANT)
    truncated, ladder = play_truncated(bits, WIDTH, BUFFER), play_ladder(bits, rungs, BUFFER)
    oracle = play_whole(bits, lambda throughputs: fitting(bits[len(throughputs)], rungs), buffer=1)
    (other,) = POPULATIONS.keys() - {population}
    strategies: dict[str, tuple[Playback, Doubles]] = {
        "truncated stream": (truncated, curves[population][0]),
        "truncated, other lengths": (truncated, curves[other][0]),
        "truncated, both lengths": (truncated, curves["both"][0]),
        "bitrate ladder": (ladder, curves[population][0]),
        "separate encodings": (ladder, own),
        "oracle ladder": (oracle, own),
    }
    rows = []
    for name, (playback, errors) in strategies.items():
        quality = evaluate(playback, errors)
        rows.append({
            "receiver": population, "strategy": name,
            "MSE": quality.error, "MSE with stalls": quality.error_with_stalls,
            "bits": quality.length, "stalls": quality.stalls, "stall ratio": quality.stall_ratio,
            "unused": quality.unused,
        })  # fmt: skip
    return rows


def fitting(bits: int, rungs: list[int]) -> int:
    """Return the longest rung of at most `bits` bits, or the first."""
    return max((rung for rung in rungs if rung <= bits), default=rungs[0])


def draw(curves: dict[str, Doubles], traces: dict[str, NDArray[np.int64]], matrix: Sequence[dict[str, Any]]) -> Figure:
    """Draw the error by length with the populations' bits per item, and the distortion for each population."""
    figure = Figure(figsize=(12, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    lengths = np.arange(1, WIDTH + 1)
    below = left.twinx()
    for name, bits in traces.items():
        counts = np.bincount(bits, minlength=WIDTH + 1)[1:] / len(bits)
        below.fill_between(lengths, counts, step="mid", color=COLORS[name], alpha=0.2, linewidth=0)
        below.text(POPULATIONS[name][0], counts[:-1].max() * 1.05, f"bits of {name}", color=COLORS[name], ha="center")
    below.set(ylim=(0, 0.6), yticks=[])
    for name, errors in curves.items():
        left.plot(lengths, errors.mean(axis=0)[1:], color=COLORS[name], linewidth=2, label=f"trained for {name}")
    left.set(xlabel="bits that arrived", ylabel="mean squared error of a pixel", xlim=(0, WIDTH + 1), ylim=(0, 0.075))
    left.legend(frameon=False, loc="upper right", fontsize=9)
    left.set_zorder(below.get_zorder() + 1)
    left.patch.set_visible(False)
    step = 0.13
    for place, row in enumerate(matrix):
        name = row["trained for"]
        for group, to in enumerate(POPULATIONS):
            at = group + (place - (len(matrix) - 1) / 2) * step
            right.bar(at, row[to], step * 0.92, yerr=row[f"± {to}"], color=COLORS[name])
            ratio = row[f"{to}, ratio"]
            right.annotate(f"{ratio:.2f}", (at, row[to] + row[f"± {to}"]), (0, 2), "data", "offset points", ha="center")
    right.set_xticks(range(len(POPULATIONS)), [f"received by {to}" for to in POPULATIONS])
    right.set(ylabel="MSE (labels: ratio to the matching stream)")
    right.margins(y=0.08)
    for axes in (left, right, below):
        axes.spines[["top", "right"]].set_visible(False)
    return figure


if __name__ == "__main__":
    main()
