"""Traces: how many bits a link carries in each period, recorded or generated.

A trace is an array of bits by period, (periods,). A period is the time for which an item is shown.
"""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nestcode.arrays import check_int
from nestcode.errors import InvalidInput

Floats = NDArray[np.float64]
LARGEST = 1e15  # of a number in a trace: sums of them stay exact enough
LONGEST = 10_000_000  # periods of a trace
MOST = 10**11  # bits of an item: beyond any code, and sums over the longest trace still fit 64 bits


def read_trace(path: str | os.PathLike[str], period: float = 1.0) -> Floats:
    r"""Read a log of a link: bits by period.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     log = Path(folder) / "link.csv"
    ...     _ = log.write_text("seconds,bits\n0,0\n2,600\n4,200\n")
    ...     read_trace(log)
    array([300., 300., 100., 100.])

    A line of one number is the bandwidth in bits a second during one period. A line of two is a time in seconds and the
    bits that arrived since the line before; the first such line marks the start. A first line of words is a header,
    empty lines and those after # are left out.
    """
    check_above_0(period, "period")
    text = Path(path).read_text(encoding="utf-8", errors="replace")
    lines = list(_numbers(text, str(path)))
    if not lines:
        raise InvalidInput(f"a trace has one bandwidth a line, {path} has none")
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
        raise InvalidInput(f"times must rise, line {lines[later[0] + 1][0]} of {path} does not: sort the lines")
    return _by_period(table[:, 0], table[:, 1], period, str(path))


def _numbers(text: str, path: str) -> Iterator[tuple[int, list[float]]]:
    """The number of each line and what it holds."""
    first = True
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), start=1):
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
        if not (0 <= values[-1] <= LARGEST and abs(values[0]) <= LARGEST):
            raise InvalidInput(f"line {number} of {path} must have bits from 0 to {LARGEST:g}, got {line[:60]!r}")
        yield number, values


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _by_period(times: Floats, bits: Floats, period: float, path: str) -> Floats:
    """Bits that arrived between times -> bits by period, as if they had come evenly."""
    periods = (times[-1] - times[0]) / period
    count = int(min(periods + 1e-9, LONGEST + 1))
    if not 1 <= count <= LONGEST:
        raise InvalidInput(
            f"a trace must last from one period to {LONGEST:,}, {path} lasts {periods:g}: change the period of {period}"
        )
    arrived = np.cumsum(np.append(0.0, bits[1:]))
    return np.diff(np.interp(times[0] + period * np.arange(count + 1), times, arrived))


def markov(periods: int, mean: float, rng: np.random.Generator) -> Floats:
    """A link that is good or bad, nine times as fast when good, and changes once in ten periods.

    >>> trace = markov(1000, mean=100, rng=np.random.default_rng(0))
    >>> np.unique(trace)
    array([ 20., 180.])
    """
    _check(periods, mean)
    changes = rng.random(periods) < np.append(0.5, np.full(periods - 1, 0.1))
    return np.where(np.cumsum(changes) % 2, 1.8 * mean, 0.2 * mean)


def lognormal(periods: int, mean: float, rng: np.random.Generator) -> Floats:
    """A link whose bandwidth is drawn anew each period, often small and sometimes large.

    >>> round(float(lognormal(10_000, mean=100, rng=np.random.default_rng(0)).mean()))
    100
    """
    _check(periods, mean)
    spread = 0.75
    return rng.lognormal(np.log(mean) - spread**2 / 2, spread, periods)


def uniform(periods: int, mean: float, rng: np.random.Generator) -> Floats:
    """A link whose bandwidth is anything from 0 to twice the mean.

    >>> bool(uniform(1000, mean=100, rng=np.random.default_rng(0)).max() < 200)
    True
    """
    _check(periods, mean)
    return rng.uniform(0, 2 * mean, periods)


GENERATED: dict[str, Callable[[int, float, np.random.Generator], Floats]] = {
    "markov": markov,
    "lognormal": lognormal,
    "uniform": uniform,
}


def bits_per_item(trace: Floats, items: int = 1) -> NDArray[np.int64]:
    """Whole bits for each of so many items that share a period, as the tiles of a picture do.

    >>> bits_per_item(np.array([100.0, 250.0]), items=8)
    array([12, 31])
    """
    items = check_int(items, "items", least=1)
    return np.minimum(np.floor(np.asarray(trace) / items + 1e-9), MOST).astype(np.int64)


def _check(periods: int, mean: float) -> None:
    if check_int(periods, "periods", least=1) > LONGEST:
        raise InvalidInput(f"periods must be at most {LONGEST:,}, got {periods}")
    check_above_0(mean, "mean")


def check_above_0(value: float, name: str) -> None:
    """Raise unless it is a number above 0 that a trace can hold.

    >>> check_above_0(0.5, "period")
    """
    if not 0 < value <= LARGEST:
        raise InvalidInput(f"{name} must be above 0 and at most {LARGEST:g}, got {value}")
