"""Receivers and their bandwidths: what a stream that can be cut anywhere is worth (section 6 of the paper).

    trace ──▶ cut_to_fit     bits of each item that arrived when it is due       (never waits)
          └─▶ ladder         one of a few fixed encodings, chosen beforehand     (waits until it is there)

Items are shown one a period. The first is due a period after the start, each later one a period after the one before
it. Both clients may fetch items ahead, up to a `buffer` of items that are not shown yet. Here are numbers only: bits by
period come in, lengths and waiting times come out, and a coder's error by length says what they are worth.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nestcode.arrays import check_int
from nestcode.errors import InvalidInput

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
MEMORY = 5  # items that a throughput is estimated from
SAFETY = 0.8  # the share of it that a ladder dares to use
BUFFER = 4  # items that are fetched ahead
RUNGS = 7  # as video sites have
TINY = 1e-9  # what rounding may do to times, in periods
ROUNDING = 1e-6  # and to sums of bits


@dataclass(frozen=True)
class Played:
    """What a receiver saw: the length of each item, and how long it was waited for."""

    lengths: Ints  # (items,)
    waits: Floats  # (items,) in periods, 0 where the item was there in time
    offered: float  # bits that the link could carry until the last item was shown


@dataclass(frozen=True)
class Outcome:
    """What that is worth."""

    error: float  # mean over items
    error_in_time: float  # mean over time, where nothing is shown while waiting
    length: float  # mean over items
    stalls: int
    stalled: float  # share of time
    unused: float  # share of the bits that the link could carry

    def as_dict(self) -> dict[str, float]:
        """The numbers by name."""
        return asdict(self)


def judge(played: Played, errors: ArrayLike) -> Outcome:
    """What was seen, by a coder's error at the lengths 0, 1, …, width.

    >>> errors = [1.0, 0.5, 0.25, 0.125]
    >>> judge(cut_to_fit([3, 0, 2], width=3), errors)
    Outcome(error=0.4583333333333333, error_in_time=0.4583333333333333, length=1.6666666666666667, stalls=0, \
stalled=0.0, unused=0.0)
    """
    by_length = np.asarray(errors, dtype=np.float64)
    if by_length.ndim != 1 or len(by_length) <= played.lengths.max():
        raise InvalidInput(
            f"errors must be those of the lengths 0 to {played.lengths.max()}, got an array of shape {by_length.shape}"
        )
    items, waited = len(played.lengths), float(played.waits.sum())
    seen = float(by_length[played.lengths].mean())
    return Outcome(
        error=seen,
        error_in_time=(seen * items + float(by_length[0]) * waited) / (items + waited),
        length=float(played.lengths.mean()),
        stalls=int((played.waits > 0).sum()),
        stalled=waited / (items + waited),
        unused=max(0.0, 1 - float(played.lengths.sum()) / played.offered) if played.offered else 0.0,
    )


def cut_to_fit(bits: ArrayLike, width: int, buffer: int = 1) -> Played:
    """Play an ordered stream: each item has the bits that arrived when it is due.

    >>> cut_to_fit([30, 10, 90], width=64).lengths
    array([30, 10, 64])

    With a buffer, bits go to the items in it: in turn to what the link carried on average of late, then to all alike.

    >>> cut_to_fit([0, 60, 0, 60, 0, 60], width=64, buffer=2).lengths
    array([ 0, 30, 30, 30, 30, 60])
    """
    arrivals, width = _check_bits(bits), check_int(width, "width", least=1)
    buffer = check_int(buffer, "buffer", least=1)
    lengths = np.minimum(arrivals, width) if buffer == 1 else _shared(arrivals.tolist(), width, buffer)
    return Played(lengths, np.zeros(len(lengths)), float(arrivals.sum()))


def _shared(arrivals: list[int], width: int, buffer: int) -> Ints:
    """The lengths where each period's bits are shared among the items in the buffer."""
    held = [0] * len(arrivals)
    for period, arrived in enumerate(arrivals):
        recent = arrivals[max(0, period - MEMORY) : period]
        expected = min(width, sum(recent) // len(recent)) if recent else width
        window = slice(period, period + buffer)
        held[window] = _fill_alike(*_fill_in_turn(held[window], arrived, expected), width)
    return np.array(held, dtype=np.int64)


def _fill_in_turn(held: list[int], left: int, level: int) -> tuple[list[int], int]:
    """Fill one after the other to a level; also how many bits are left."""
    filled = []
    for length in held:
        given = min(left, max(0, level - length))
        filled.append(length + given)
        left -= given
    return filled, left


def _fill_alike(held: list[int], left: int, width: int) -> list[int]:
    """Fill the shortest first, so that they end up alike."""
    ascending = sorted(held)
    level, spare = 0, 0
    for count in range(len(held), 0, -1):  # so many of the shortest can be filled to the same level
        level, spare = divmod(left + sum(ascending[:count]), count)
        if level >= ascending[count - 1]:
            break
    if level >= width:
        level, spare = width, 0
    filled = []
    for length in held:
        extra = int(length <= level and spare > 0)  # the first ones take what cannot be divided
        filled.append(max(length, level + extra))
        spare -= extra
    return filled


def ladder_rungs(width: int, count: int = RUNGS) -> list[int]:
    """Lengths of fixed encodings, each longer by the same factor, the last 32 times the first.

    >>> ladder_rungs(1024)
    [32, 57, 102, 181, 323, 575, 1024]
    """
    width = check_int(width, "width", least=1)
    count = check_int(count, "count", least=1)
    if count == 1:
        return [width]
    return sorted({max(1, round(width * 32 ** (i / (count - 1) - 1))) for i in range(count)})


def ladder(bits: ArrayLike, rungs: Sequence[int], buffer: int = BUFFER, safety: float = SAFETY) -> Played:
    """Play fixed encodings: the longest that the throughput of late promises to carry in a period.

    >>> played = ladder([100] * 6, rungs=[10, 40, 80, 160])
    >>> played.lengths
    array([10, 80, 80, 80, 80, 80])
    >>> ladder([100, 100] + [20] * 10, rungs=[10, 40, 80, 160], buffer=1).waits[:4]
    array([0., 0., 3., 0.])

    The throughput is the harmonic mean over the last items; the first item takes the shortest encoding. Where an item
    is not there when it is due, showing waits for it. A trace that is over begins again.
    """
    ascending = [check_int(rung, "a rung", least=1) for rung in rungs]
    if not ascending or ascending != sorted(set(ascending)):
        raise InvalidInput(f"rungs must be one or more rising lengths, got {list(rungs)}")
    if not 0 < safety <= 1:
        raise InvalidInput(f"safety must be above 0 and at most 1, got {safety}")

    def choose(throughputs: list[float]) -> int:
        recent = throughputs[-MEMORY:]
        promised = safety * len(recent) / sum(1 / rate for rate in recent) if recent else 0.0
        return max((rung for rung in ascending if rung <= promised * (1 + TINY)), default=ascending[0])

    return send_whole(bits, choose, buffer)


def send_whole(bits: ArrayLike, choose: Callable[[list[float]], int], buffer: int = BUFFER) -> Played:
    """Play items that are of use only whole; `choose` says how long the next is, given the throughputs so far.

    >>> send_whole([8, 8, 8], lambda throughputs: 16, buffer=1).waits
    array([1., 1., 1.])
    """
    arrivals, buffer = _check_bits(bits), check_int(buffer, "buffer", least=1)
    link = _Link(arrivals)
    lengths: list[int] = []
    shown: list[float] = []
    waits: list[float] = []
    throughputs: list[float] = []
    done = 0.0
    for item in range(len(arrivals)):
        start = done if item < buffer else max(done, shown[item - buffer])
        length = choose(throughputs)
        done = link.arrival(start, length)
        due = shown[-1] + 1 if shown else 1.0
        late = done - due
        waits.append(late if late > TINY else 0.0)
        shown.append(due + waits[-1])
        lengths.append(length)
        throughputs.append(length / max(done - start, TINY))
    return Played(np.array(lengths, dtype=np.int64), np.array(waits), link.carried(shown[-1]))


class _Link:
    """A trace that repeats, by time in periods."""

    def __init__(self, arrivals: Ints) -> None:
        self._arrivals = arrivals.tolist()
        self._before = np.append(0, np.cumsum(arrivals)).tolist()  # bits carried before each period
        if not self._before[-1]:
            raise InvalidInput(
                "a trace must carry bits in some period, this one has less than one for each item: "
                "raise the bandwidth, or let fewer items share it"
            )

    def carried(self, time: float) -> float:
        """Bits since the start."""
        rounds, rest = divmod(time, len(self._arrivals))
        period = int(rest)
        within = self._before[period] + (rest - period) * self._arrivals[period]
        return float(rounds * self._before[-1] + within)

    def arrival(self, start: float, length: int) -> float:
        """When so many bits have arrived."""
        total = self._before[-1]
        target = self.carried(start) + length
        # A bit that is there but for rounding must not wait until a dead link comes back.
        rounds = math.ceil((target - 2 * ROUNDING) / total) - 1
        rest = min(target - rounds * total, total)
        after = bisect_left(self._before, rest - ROUNDING)  # the end of the period in which the last of them arrives
        share = min(1.0, (rest - self._before[after - 1]) / self._arrivals[after - 1])
        return float(rounds * len(self._arrivals) + after - 1 + share)


def _check_bits(bits: ArrayLike) -> Ints:
    array = np.asarray(bits)
    if array.ndim != 1 or array.size == 0 or not np.issubdtype(array.dtype, np.integer) or array.min() < 0:
        raise InvalidInput(
            f"bits must be whole numbers of at least 0, one for each period, got {array.dtype} of shape {array.shape}: "
            "bits_per_item makes them"
        )
    return array.astype(np.int64)
