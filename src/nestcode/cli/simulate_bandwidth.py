"""`nestcode simulate-bandwidth`: play a bandwidth trace against a truncated stream and a bitrate ladder."""

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.table import Table

from nestcode.cli.files import check_distinct
from nestcode.cli.options import AsJson, Threads, check_positive, messages
from nestcode.errors import InvalidInput, import_extra

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from nestcode.arrays import Doubles
    from nestcode.coders import Coder
    from nestcode.simulate import Playback, Quality

    Ints = NDArray[np.int64]

UNITS = {"bit": 1.0, "byte": 8.0, "kbit": 1e3, "Mbit": 1e6}
CUT, LADDER, OTHER = "truncated stream", "bitrate ladder", "truncated, other lengths"
COLORS = {CUT: "#c1121f", LADDER: "#1565c0", OTHER: "#f0941f"}
SHOWN = 120  # periods in a plot


def simulate_bandwidth(
    trace: Annotated[
        Path | None,
        typer.Argument(help="A bandwidth trace: bits per second, one line per period; or lines of seconds and bits."),
    ] = None,
    generate: Annotated[
        Literal["markov", "lognormal", "uniform"] | None,
        typer.Option(help="Generator of a synthetic trace if none is given.", show_default="markov"),
    ] = None,
    mean: Annotated[
        float | None,
        typer.Option(
            callback=check_positive,
            help="Its mean in bits per second.",
            show_default="half a code per item",
        ),
    ] = None,
    periods: Annotated[int | None, typer.Option(min=1, help="Its number of periods.", show_default="1000")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the trace and of training.")] = 0,
    unit: Annotated[Literal["bit", "byte", "kbit", "Mbit"], typer.Option(help="Unit of the trace.")] = "bit",
    period: Annotated[float, typer.Option(callback=check_positive, help="Seconds that an item is shown.")] = 1.0,
    items: Annotated[int, typer.Option(min=1, help="Items that share a period, such as tiles of an image.")] = 1,
    buffer: Annotated[int, typer.Option(min=1, help="Items that a receiver may prefetch.")] = 4,
    rungs: Annotated[int, typer.Option(min=1, help="Encodings of the bitrate ladder.")] = 7,
    safety: Annotated[
        float,
        typer.Option(max=1, callback=check_positive, help="Share of the estimated throughput that the ladder uses."),
    ] = 0.8,
    coder: Annotated[
        str | None, typer.Option(help="The coder.", show_default="trained on digits for this trace")
    ] = None,
    other: Annotated[
        str | None,
        typer.Option(help="A coder fitted for other receivers.", show_default="for a quarter of the bandwidth"),
    ] = None,
    width: Annotated[int, typer.Option(min=1, help="Bits of a code, if coders are trained.")] = 64,
    steps: Annotated[int, typer.Option(min=1, help="Training steps, if coders are trained.")] = 300,
    threads: Threads = None,  # noqa: ARG001 (its callback does the work)
    as_json: AsJson = False,
    plot: Annotated[Path | None, typer.Option(help="Write a figure to a .png, .svg or .pdf file.")] = None,
) -> None:
    """Compare a nested stream, truncated to the bandwidth, with a bitrate ladder of fixed encodings on a trace.

    Distortion is the coder's mean squared error at the lengths that arrived. A stall is an item that arrives late.
    """
    import numpy as np

    from nestcode import simulate
    from nestcode.coders import load_coder
    from nestcode.simulate.traces import GENERATORS

    if trace is not None:
        _check_trace(trace, {"--generate": generate, "--mean": mean, "--periods": periods})
    if plot is not None:  # raises before any work
        import_extra("matplotlib", extra="reproduce", purpose="--plot")
        _check_name(plot)
        check_distinct(plot, trace, coder, other)
    given = None if coder is None else load_coder(coder)
    width = width if given is None else given.width_
    if trace is None:
        mean = width * items / 2 / period if mean is None else mean
        carried = GENERATORS[generate or "markov"](periods or 1000, mean * period, np.random.default_rng(seed))
    else:
        carried = simulate.read_trace(trace, period) * UNITS[unit]
    bits = simulate.bits_per_item(carried, items)
    cut = simulate.play_truncated(bits, width, buffer)
    lengths = simulate.bitrate_ladder(width, rungs)
    fixed = simulate.play_ladder(bits, lengths, buffer, safety)
    curve, others = _curves(given, other, cut.lengths, width, steps=steps, seed=seed)
    plays = {CUT: (cut, curve), LADDER: (fixed, curve)} | ({} if others is None else {OTHER: (cut, others)})
    outcomes = {name: simulate.evaluate(played, errors) for name, (played, errors) in plays.items()}
    if plot is not None:
        _write_figure(plot, bits, {name: played for name, (played, _) in plays.items()}, outcomes)
    facts = {"periods": len(bits), "mean_bits": float(bits.mean()), "width": width, "buffer": buffer, "rungs": lengths}
    if as_json:
        strategies = {name: found.as_dict() for name, found in outcomes.items()}
        print(json.dumps({**facts, "strategies": strategies}, indent=2))
    else:
        _show(facts, outcomes)


def _check_trace(trace: Path, synthetic: dict[str, Any]) -> None:
    given = [option for option, value in synthetic.items() if value is not None]
    if given:
        raise typer.BadParameter(f"{given[0]} is for synthetic traces, got {trace} too: leave out one of them")
    if trace.is_dir():
        raise InvalidInput(f"the trace must be a file, got {trace}, which is a folder: give a file in it")
    if not trace.exists():
        raise FileNotFoundError(f"there is no file {trace}: give a trace, or none for a synthetic one")


def _curves(
    given: "Coder | None", other: str | None, lengths: "Ints", width: int, *, steps: int, seed: int
) -> "tuple[Doubles, Doubles | None]":
    """Return the errors by length of the coder for these receivers, and of the one for others, if any."""
    from nestcode.coders import load_coder

    others = None if other is None else load_coder(other)
    if others is not None and others.width_ < width:
        raise InvalidInput(f"--other must have at least the width {width}, got {others.width_}: fit a wider coder")
    if given is None:
        mine, slower = _trained(lengths, width, steps=steps, seed=seed, both=others is None)
        given, others = mine, others if slower is None else slower
    return _errors(given, width), None if others is None else _errors(others, width)


def _trained(lengths: "Ints", width: int, *, steps: int, seed: int, both: bool) -> tuple["Coder", "Coder | None"]:
    """Return ordered autoencoders of digits for these lengths, and for a quarter of the bandwidth."""
    import numpy as np

    import_extra("torch", extra="reproduce", purpose="training a coder for this trace (or give one by --coder)")
    from nestcode.coders import AutoencoderCoder
    from nestcode.data import digits
    from nestcode.lengths import Empirical
    from nestcode.training import Training

    received = lengths[lengths > 0]  # length 0 decodes to the mean with any coder
    X, _ = digits()
    training = Training(steps=steps, learning_rate=3e-3, holdout=0.2, seed=seed)
    fitted: list[Coder] = []
    with messages().status("Training coders on digits"):
        for observed in (received, np.maximum(received // 4, 1))[: 1 + both]:
            receivers = Empirical.from_samples(observed)
            coder = AutoencoderCoder(width, layers=(64,), lengths=receivers, training=training)
            fitted.append(coder.fit(X, progress=False))
    return fitted[0], fitted[1] if both else None


def _errors(coder: "Coder", width: int) -> "Doubles":
    import numpy as np

    return np.array([coder.expected_error(length) for length in range(width + 1)])


def _show(facts: dict[str, Any], outcomes: dict[str, "Quality"]) -> None:
    title = f"{facts['periods']:,} periods of {facts['mean_bits']:.4g} bits per item on average"
    rungs = ", ".join(map(str, facts["rungs"]))
    note = f"Codes of {facts['width']} bits; buffer of {facts['buffer']} items; rungs {rungs}."
    table = Table(title=title, title_justify="left", caption=note, caption_justify="left")
    for name in ("", "distortion", "with stalls", "mean bits", "stalls", "time stalled", "bits unused"):
        table.add_column(name, justify="right" if name else "left", no_wrap=True)
    for name, found in outcomes.items():
        cells = [f"{found.error:.5f}", f"{found.error_with_stalls:.5f}", f"{found.length:.1f}", f"{found.stalls:,}"]
        table.add_row(name, *cells, f"{found.stall_ratio:.1%}", f"{found.unused:.1%}")
    console = Console()
    console.width = max(console.width, 110)
    console.print(table)


def _check_name(path: Path) -> None:
    from nestcode.storage import writable

    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise typer.BadParameter(f"--plot must be a .png, .svg or .pdf file, got {path}: give a name that ends so")
    writable(path)


def _write_figure(path: Path, bits: "Ints", plays: dict[str, "Playback"], outcomes: dict[str, "Quality"]) -> None:
    from nestcode.storage import write_atomic

    buffer = io.BytesIO()
    _draw(bits, plays, outcomes).savefig(buffer, format=path.suffix[1:].lower(), dpi=150)
    write_atomic(path, buffer.getvalue())


def _draw(bits: "Ints", plays: dict[str, "Playback"], outcomes: dict[str, "Quality"]) -> "Figure":
    """Return a figure: the lengths of the first items over time, and the distortion of all."""
    import numpy as np
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(2.4, 1))
    width = max(int(played.lengths.max()) for played in plays.values())
    shown = min(SHOWN, len(bits))
    left.stairs(
        np.minimum(bits[:shown], 1.15 * width), np.arange(shown + 1), fill=True, color="#dddddd", label="bandwidth"
    )
    for name in (CUT, LADDER):
        played = plays[name]
        times = np.arange(1, len(bits) + 1) + np.cumsum(played.stalls)
        ends = np.append(times, times[-1] + 1)[: shown + 1]
        left.stairs(played.lengths[: len(ends) - 1], ends, baseline=None, color=COLORS[name], linewidth=1.6, label=name)
        late = np.flatnonzero(played.stalls[: len(ends) - 1])
        if len(late):
            left.hlines(
                np.full(len(late), -0.04 * width), ends[late] - played.stalls[late], ends[late], color="black",
                linewidth=5, label="stalled",
            )  # fmt: skip
    left.set(xlabel="time in periods", ylabel="bits per item", xlim=(0, shown), ylim=(-0.08 * width, 1.18 * width))
    left.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4, frameon=False)
    names = list(outcomes)
    seen = [outcomes[name].error for name in names]
    right.bar(names, seen, color=[COLORS[name] for name in names])
    right.bar(
        names, [outcomes[name].error_with_stalls - outcomes[name].error for name in names], bottom=seen, color="black"
    )
    for place, name in enumerate(names):
        found = outcomes[name]
        text = f"{found.error_with_stalls:.4f}\nstalled {found.stall_ratio:.1%}"
        right.annotate(text, (place, found.error_with_stalls), (0, 3), "data", "offset points", ha="center", fontsize=9)
    top = 1.2 * max(found.error_with_stalls for found in outcomes.values())
    right.set(ylabel="distortion (MSE), stalls included", ylim=(0, top or 1))
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    return figure
