"""`nestcode simulate-bandwidth`: what a link's bandwidth does to a stream that is cut, and to fixed encodings."""

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.table import Table

from nestcode.cli.options import AsJson, Threads, check_positive, messages
from nestcode.errors import InvalidInput, import_extra

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from nestcode.coders import Coder
    from nestcode.simulate import Playback, Quality

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

UNITS = {"bit": 1.0, "byte": 8.0, "kbit": 1e3, "Mbit": 1e6}
CUT, LADDER, OTHER = "truncated stream", "bitrate ladder", "truncated, other lengths"
COLOURS = {CUT: "#c1121f", LADDER: "#1565c0", OTHER: "#f0941f"}
SHOWN = 120  # periods that a plot shows


def simulate_bandwidth(
    trace: Annotated[
        Path | None,
        typer.Argument(
            help="A log: bits a second, a line for each period; or seconds and the bits since the line before."
        ),
    ] = None,
    generate: Annotated[
        Literal["markov", "lognormal", "uniform"] | None,
        typer.Option(help="What is made up where no log is given.", show_default="markov"),
    ] = None,
    mean: Annotated[
        float | None,
        typer.Option(callback=check_positive, help="Its mean in bits a second.", show_default="half a code an item"),
    ] = None,
    periods: Annotated[int | None, typer.Option(min=1, help="Its length.", show_default="1000")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of what is made up, and of training.")] = 0,
    unit: Annotated[Literal["bit", "byte", "kbit", "Mbit"], typer.Option(help="What the log counts.")] = "bit",
    period: Annotated[float, typer.Option(callback=check_positive, help="Seconds for which an item is shown.")] = 1.0,
    items: Annotated[int, typer.Option(min=1, help="Items that share a period, as tiles of a picture.")] = 1,
    buffer: Annotated[int, typer.Option(min=1, help="Items a receiver may have fetched before they are shown.")] = 4,
    rungs: Annotated[int, typer.Option(min=1, help="Fixed encodings of the ladder.")] = 7,
    safety: Annotated[
        float, typer.Option(max=1, callback=check_positive, help="The share of the throughput that the ladder uses.")
    ] = 0.8,
    coder: Annotated[
        str | None, typer.Option(help="A fitted coder.", show_default="one trained on digits for this trace")
    ] = None,
    other: Annotated[
        str | None, typer.Option(help="One fitted for other receivers.", show_default="for receivers a quarter as fast")
    ] = None,
    width: Annotated[int, typer.Option(min=1, help="Bits of a code, where coders are trained here.")] = 64,
    steps: Annotated[int, typer.Option(min=1, help="Training steps, where coders are trained here.")] = 300,
    threads: Threads = None,  # noqa: ARG001 (its callback does the work)
    as_json: AsJson = False,
    plot: Annotated[Path | None, typer.Option(help="Also draw a figure (PNG, SVG or PDF by its name).")] = None,
) -> None:
    """Play a trace of a link against an ordered stream that is cut to fit and a ladder of fixed encodings.

    Distortion is a coder's mean squared error at the lengths that arrived. Stalls are items that were waited for.
    """
    import numpy as np

    from nestcode import simulate
    from nestcode.coders import load_coder
    from nestcode.simulate.traces import GENERATORS

    if trace is not None:
        _check_log(trace, {"--generate": generate, "--mean": mean, "--periods": periods})
    if plot is not None:  # what is missing is better known before the work
        import_extra("matplotlib", extra="reproduce", purpose="--plot")
        _check_name(plot)
    given = None if coder is None else load_coder(coder)
    width = width if given is None else given.width
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


def _check_log(trace: Path, made_up: dict[str, Any]) -> None:
    given = [option for option, value in made_up.items() if value is not None]
    if given:
        raise typer.BadParameter(f"{given[0]} is for traces that are made up, got {trace} too: leave out one of them")
    if trace.is_dir():
        raise InvalidInput(f"{trace} must be a log, but it is a folder: give a file of it")
    if not trace.exists():
        raise FileNotFoundError(f"there is no file {trace}: give a log, or none to have one made up")


def _curves(
    given: "Coder | None", other: str | None, lengths: "Ints", width: int, *, steps: int, seed: int
) -> "tuple[Floats, Floats | None]":
    """Errors by length: of the coder for these receivers, and of one for others where there is one."""
    from nestcode.coders import load_coder

    others = None if other is None else load_coder(other)
    if others is not None and others.width < width:
        raise InvalidInput(f"the other coder must have at least the width {width}, got {others.width}")
    if given is None:
        mine, slower = _trained(lengths, width, steps=steps, seed=seed, both=others is None)
        given, others = mine, others if slower is None else slower
    return _errors(given, width), None if others is None else _errors(others, width)


def _trained(lengths: "Ints", width: int, *, steps: int, seed: int, both: bool) -> tuple["Coder", "Coder | None"]:
    """Ordered autoencoders of digits: for receivers of these lengths, and for those a quarter as fast."""
    import numpy as np

    import_extra("torch", extra="reproduce", purpose="training a coder for this trace (or name one by --coder)")
    from nestcode.coders import AutoencoderCoder
    from nestcode.data import digits
    from nestcode.lengths import Empirical
    from nestcode.training import Training

    known = lengths[lengths > 0]  # where nothing arrives no coder helps
    X, _ = digits()
    training = Training(steps=steps, learning_rate=3e-3, holdout=0.2, seed=seed)
    made: list[Coder] = []
    with messages().status("Training coders on digits"):
        for observed in (known, np.maximum(known // 4, 1))[: 1 + both]:
            receivers = Empirical.from_samples(observed)
            fresh = AutoencoderCoder(width, layers=(64,), lengths=receivers, training=training)
            made.append(fresh.fit(X, progress=False))
    return made[0], made[1] if both else None


def _errors(coder: "Coder", width: int) -> "Floats":
    import numpy as np

    return np.array([coder.expected_error(length) for length in range(width + 1)])


def _show(facts: dict[str, Any], outcomes: dict[str, "Quality"]) -> None:
    title = f"{facts['periods']:,} periods of {facts['mean_bits']:.4g} bits an item on average"
    note = (
        f"Codes of {facts['width']} bits; a buffer of {facts['buffer']}; rungs {', '.join(map(str, facts['rungs']))}."
    )
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
        raise typer.BadParameter(f"--plot must name a .png, .svg or .pdf file, got {path}")
    writable(path)


def _write_figure(path: Path, bits: "Ints", plays: dict[str, "Playback"], outcomes: dict[str, "Quality"]) -> None:
    from nestcode.storage import write_atomic

    buffer = io.BytesIO()
    _draw(bits, plays, outcomes).savefig(buffer, format=path.suffix[1:].lower(), dpi=150)
    write_atomic(path, buffer.getvalue())


def _draw(bits: "Ints", plays: dict[str, "Playback"], outcomes: dict[str, "Quality"]) -> "Figure":
    """The lengths of the first items by the time they are shown, and the distortion of all."""
    import numpy as np
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(2.4, 1))
    width = max(int(played.lengths.max()) for played in plays.values())
    shown = min(SHOWN, len(bits))
    left.stairs(
        np.minimum(bits[:shown], 1.15 * width), np.arange(shown + 1), fill=True, color="#dddddd", label="carried"
    )
    for name in (CUT, LADDER):
        played = plays[name]
        times = np.arange(1, len(bits) + 1) + np.cumsum(played.stalls)
        ends = np.append(times, times[-1] + 1)[: shown + 1]
        left.stairs(
            played.lengths[: len(ends) - 1], ends, baseline=None, color=COLOURS[name], linewidth=1.6, label=name
        )
        late = np.flatnonzero(played.stalls[: len(ends) - 1])
        if len(late):
            left.hlines(
                np.full(len(late), -0.04 * width), ends[late] - played.stalls[late], ends[late], color="black",
                linewidth=5, label="stalled",
            )  # fmt: skip
    left.set(xlabel="time in periods", ylabel="bits of an item", xlim=(0, shown), ylim=(-0.08 * width, 1.18 * width))
    left.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4, frameon=False)
    names = list(outcomes)
    seen = [outcomes[name].error for name in names]
    right.bar(names, seen, color=[COLOURS[name] for name in names])
    right.bar(
        names, [outcomes[name].error_with_stalls - outcomes[name].error for name in names], bottom=seen, color="black"
    )
    for place, name in enumerate(names):
        found = outcomes[name]
        text = f"{found.error_with_stalls:.4f}\nstalled {found.stall_ratio:.1%}"
        right.annotate(text, (place, found.error_with_stalls), (0, 3), "data", "offset points", ha="center", fontsize=9)
    top = 1.2 * max(found.error_with_stalls for found in outcomes.values())
    right.set(ylabel="distortion, nothing shown while stalled", ylim=(0, top or 1))
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    return figure
