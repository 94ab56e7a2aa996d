"""Bandwidth traces, recorded or generated.

A trace is an array of the bits that a link carries in each period, (periods,). A period is the time for which an item
is shown.
"""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nestcode.arrays import Doubles, check_int, is_number, shown
from nestcode.errors import InvalidInput

MAX_VALUE = 1e15  # of a trace: sums stay exact enough
MAX_PERIODS = 10_000_000
MAX_BITS = 10**11  # of an item: beyond any code, and sums over the longest trace fit 64 bits


def read_trace(path: str | os.PathLike[str], period: float = 1.0) -> Doubles:
    r"""Return the trace in a log of a link.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     log = Path(folder) / "link.csv"
    ...     _ = log.write_text("seconds,bits\n0,0\n2,600\n4,200\n")
    ...     read_trace(log)
    array([300., 300., 100., 100.])

    A line of one number is the bandwidth during one period, in bits per second. A line of two numbers is a time in
    seconds and the bits that arrived since the line before; the first such line marks the start. A first line without
    numbers is a header. Empty lines and comments after # are skipped.

    Args:
        path: the log, a text or CSV file.
        period: the length of a period in seconds.

    """
    check_positive(period, "period")
    text = Path(path).read_text(encoding="utf-8", errors="replace")
    lines = list(_parse_lines(text, str(path)))
    if not lines:
        raise InvalidInput(f"a trace must have one bandwidth per line, {path} has none: give a log of a link")
    for number, values in lines:
        if len(values) != len(lines[0][1]):
            raise InvalidInput(
                f"line {number} of {path} must have {len(lines[0][1])} numbers as those before, got {len(values)}"
            )
    table = np.array([values for _, values in lines])
    if table.shape[1] == 1:
        return table[:, 0] * period
    later = np.flatnonzero(np.diff(table[:, 0]) <= 0)
    if len(later):
        raise InvalidInput(
            f"times must rise, but the time in line {lines[later[0] + 1][0]} of {path} does not: sort the lines"
        )
    return _resample(table[:, 0], table[:, 1], period, str(path))


def _parse_lines(text: str, path: str) -> Iterator[tuple[int, list[float]]]:
    """Yield the number of each line with its values."""
    first = True
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), start=1):
        cells = re.split(r"[,;\s]+", line.partition("#")[0].strip(" \t,;"))
        if cells == [""]:
            continue
        header, first = first and not any(_is_number(cell) for cell in cells), False
        if header:
            continue
        if len(cells) > 2 or not all(_is_number(cell) for cell in cells):
            raise InvalidInput(
                f"line {number} of {path} must be a bandwidth, or a time and bits, as in 12.5,4000: got {line[:60]!r}"
            )
        values = [float(cell) for cell in cells]
        if not (0 <= values[-1] <= MAX_VALUE and abs(values[0]) <= MAX_VALUE):
            raise InvalidInput(f"line {number} of {path} must have bits from 0 to {MAX_VALUE:g}, got {line[:60]!r}")
        yield number, values


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _resample(times: Doubles, bits: Doubles, period: float, path: str) -> Doubles:
    """Return bits per period, given the bits that arrived between times, by linear interpolation."""
    periods = (times[-1] - times[0]) / period
    count = int(min(periods + 1e-9, MAX_PERIODS + 1))
    if not 1 <= count <= MAX_PERIODS:
        raise InvalidInput(
            f"a trace must last from one period to {MAX_PERIODS:,}, {path} lasts {periods:g}: change period, {period}"
        )
    arrived = np.cumsum(np.append(0.0, bits[1:]))
    return np.diff(np.interp(times[0] + period * np.arange(count + 1), times, arrived))


def markov(periods: int, mean: float, rng: np.random.Generator) -> Doubles:
    """Return a two-state Markov trace (Gilbert-Elliott): good is nine times as fast as bad; they switch with P = 0.1.

    >>> trace = markov(1000, mean=100, rng=np.random.default_rng(0))
    >>> np.unique(trace)
    array([ 20., 180.])
    """
    periods, mean = _check(periods, mean)
    switches = rng.random(periods) < np.append(0.5, np.full(periods - 1, 0.1))
    return np.where(np.cumsum(switches) % 2, 1.8 * mean, 0.2 * mean)


def lognormal(periods: int, mean: float, rng: np.random.Generator) -> Doubles:
    """Return a trace of independent log-normal bandwidths (sigma 0.75).

    >>> round(float(lognormal(10_000, mean=100, rng=np.random.default_rng(0)).mean()))
    100
    """
    periods, mean = _check(periods, mean)
    sigma = 0.75
    return rng.lognormal(np.log(mean) - sigma**2 / 2, sigma, periods)


def uniform(periods: int, mean: float, rng: np.random.Generator) -> Doubles:
    """Return a trace of independent bandwidths, uniform from 0 to twice the mean.

    >>> bool(uniform(1000, mean=100, rng=np.random.default_rng(0)).max() < 200)
    True
    """
    periods, mean = _check(periods, mean)
    return rng.uniform(0, 2 * mean, periods)


GENERATORS: dict[str, Callable[[int, float, np.random.Generator], Doubles]] = {
    "markov": markov,
    "lognormal": lognormal,
    "uniform": uniform,
}


def bits_per_item(trace: Doubles, items: int = 1) -> NDArray[np.int64]:
    """Return the integer number of bits for each of several items that share a period, such as patches of an image.

    >>> bits_per_item(np.array([100.0, 250.0]), items=8)
    array([12, 31])
    """
    items = check_int(items, "items", least=1)
    return np.minimum(np.floor(np.asarray(trace) / items + 1e-9), MAX_BITS).astype(np.int64)


def _check(periods: int, mean: float) -> tuple[int, float]:
    check_positive(mean, "mean")
    return check_int(periods, "periods", least=1, most=MAX_PERIODS), float(mean)


def check_positive(value: float, name: str) -> None:
    """Raise unless the value is positive and within what a trace can hold.

    >>> check_positive(0.5, "period")
    """
    if not is_number(value) or not 0 < value <= MAX_VALUE:
        raise InvalidInput(f"{name} must be above 0 and at most {MAX_VALUE:g}, got {shown(value)}")
