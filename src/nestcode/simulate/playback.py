"""Playback over a bandwidth trace: what a stream that may be truncated anywhere is worth (section 6 of the paper).

    trace ──▶ play_truncated    the prefix of each item that arrived by its deadline              (never stalls)
          └─▶ play_ladder       adaptive bitrate: one of a few fixed encodings, chosen beforehand (stalls if late)

Items are shown one per period; the first deadline is one period after the start. Both clients may prefetch up to a
`buffer` of items that are not shown yet. Only integers are simulated: bits per period come in, lengths and stalls come
out, and a coder's error at each length gives the distortion.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nestcode.arrays import Doubles, check_int, is_number, shown
from nestcode.errors import InvalidInput

Ints = NDArray[np.int64]
HISTORY = 5  # items that the throughput is estimated from
SAFETY = 0.8  # the share of the estimated throughput that the ladder uses
BUFFER = 4  # items that are prefetched
RUNGS = 7  # a typical bitrate ladder of video services
MAX_RUNGS = 1000  # of a ladder
TINY = 1e-9  # rounding errors of times, in periods
ROUNDING = 1e-6  # rounding errors of sums of bits


@dataclass(frozen=True)
class Playback:
    """What a receiver was shown.

    >>> play_truncated([30, 10, 90], width=64).capacity
    130.0
    """

    lengths: Ints  # (items,) bits of each item
    stalls: Doubles  # (items,) periods that each item was late, 0 if it was on time
    capacity: float  # bits that the link could carry until the last item was shown


@dataclass(frozen=True)
class Quality:
    """The quality of a playback.

    >>> quality = evaluate(play_truncated([3, 0, 2], width=3), errors=[1.0, 0.5, 0.25, 0.125])
    >>> quality.length, quality.stalls
    (1.6666666666666667, 0)
    """

    error: float  # mean distortion over items
    error_with_stalls: float  # mean distortion over time; during stalls the distortion of length 0
    length: float  # mean over items
    stalls: int  # items that were late
    stall_ratio: float  # share of time
    unused: float  # share of the link's capacity

    def as_dict(self) -> dict[str, float]:
        """Return the values by name."""
        return asdict(self)


def evaluate(playback: Playback, errors: ArrayLike) -> Quality:
    """Return the quality of a playback, given a coder's error at the lengths 0, 1, …, width.

    >>> errors = [1.0, 0.5, 0.25, 0.125]
    >>> evaluate(play_truncated([3, 0, 2], width=3), errors)
    Quality(error=0.4583333333333333, error_with_stalls=0.4583333333333333, length=1.6666666666666667, stalls=0, \
stall_ratio=0.0, unused=0.0)
    """
    by_length = np.asarray(errors, dtype=np.float64)
    longest = playback.lengths.max()
    if by_length.ndim != 1 or len(by_length) <= longest:
        raise InvalidInput(
            f"errors must have one value for each length from 0 to {longest}, got an array of shape {by_length.shape}"
        )
    items, stalled = len(playback.lengths), float(playback.stalls.sum())
    error = float(by_length[playback.lengths].mean())
    used = float(playback.lengths.sum())
    return Quality(
        error=error,
        error_with_stalls=(error * items + float(by_length[0]) * stalled) / (items + stalled),
        length=float(playback.lengths.mean()),
        stalls=int((playback.stalls > 0).sum()),
        stall_ratio=stalled / (items + stalled),
        unused=max(0.0, 1 - used / playback.capacity) if playback.capacity else 0.0,
    )


def play_truncated(bits: ArrayLike, width: int, buffer: int = 1) -> Playback:
    """Play a stream that may be truncated anywhere: each item has the prefix that arrived by its deadline.

    >>> play_truncated([30, 10, 90], width=64).lengths
    array([30, 10, 64])

    With a buffer, bits go first to its items in turn, up to the average throughput, then to the shortest of them.

    >>> play_truncated([0, 60, 0, 60, 0, 60], width=64, buffer=2).lengths
    array([ 0, 30, 30, 30, 30, 60])

    Args:
        bits: of an item that the link carries in each period, integers.
        width: bits of a whole item.
        buffer: items that may be prefetched, the next one included.

    """
    arrivals, width = _check_bits(bits), check_int(width, "width", least=1)
    buffer = check_int(buffer, "buffer", least=1)
    lengths = np.minimum(arrivals, width) if buffer == 1 else _share_bits(arrivals.tolist(), width, buffer)
    return Playback(lengths, np.zeros(len(lengths)), float(arrivals.sum()))


def _share_bits(arrivals: list[int], width: int, buffer: int) -> Ints:
    """Return the lengths where each period's bits are shared among the items in the buffer."""
    held = [0] * len(arrivals)
    for period, arrived in enumerate(arrivals):
        recent = arrivals[max(0, period - HISTORY) : period]
        expected = min(width, sum(recent) // len(recent)) if recent else width
        window = slice(period, period + buffer)
        held[window] = _fill_shortest(*_fill_in_turn(held[window], arrived, expected), width)
    return np.array(held, dtype=np.int64)


def _fill_in_turn(held: list[int], left: int, level: int) -> tuple[list[int], int]:
    """Fill items one after another up to a level; return their lengths and how many bits are left."""
    filled = []
    for length in held:
        given = min(left, max(0, level - length))
        filled.append(length + given)
        left -= given
    return filled, left


def _fill_shortest(held: list[int], left: int, width: int) -> list[int]:
    """Fill the shortest items first, so that they end at a common level (water-filling)."""
    ascending = sorted(held)
    level, spare = 0, 0
    for count in range(len(held), 0, -1):  # the number of items that reach the level
        level, spare = divmod(left + sum(ascending[:count]), count)
        if level >= ascending[count - 1]:
            break
    if level >= width:
        level, spare = width, 0
    filled = []
    for length in held:
        extra = int(length <= level and spare > 0)  # the first items take the remainder of the division
        filled.append(max(length, level + extra))
        spare -= extra
    return filled


def bitrate_ladder(width: int, count: int = RUNGS) -> list[int]:
    """Return the lengths of fixed encodings in geometric progression, the last 32 times the first.

    >>> bitrate_ladder(1024)
    [32, 57, 102, 181, 323, 575, 1024]
    """
    width = check_int(width, "width", least=1)
    count = check_int(count, "count", least=1, most=MAX_RUNGS)
    if count == 1:
        return [width]
    return sorted({max(1, round(width * 32 ** (i / (count - 1) - 1))) for i in range(count)})


def play_ladder(bits: ArrayLike, rungs: Sequence[int], buffer: int = BUFFER, safety: float = SAFETY) -> Playback:
    """Play fixed encodings by throughput-based adaptive bitrate: the longest that should arrive within a period.

    >>> playback = play_ladder([100] * 6, rungs=[10, 40, 80, 160])
    >>> playback.lengths
    array([10, 80, 80, 80, 80, 80])
    >>> play_ladder([100, 100] + [20] * 10, rungs=[10, 40, 80, 160], buffer=1).stalls[:4]
    array([0., 0., 3., 0.])

    The throughput is estimated by its harmonic mean over the last items; the first item takes the shortest encoding. A
    late item stalls the playback. A trace that ends begins again.

    Args:
        bits: of an item that the link carries in each period, integers.
        rungs: lengths of the encodings, rising.
        buffer: items that may be prefetched, the next one included.
        safety: the share of the estimated throughput to use.

    """
    ascending = [check_int(rung, "a rung", least=1) for rung in rungs]
    if not ascending or ascending != sorted(set(ascending)):
        raise InvalidInput(f"rungs must be one or more rising lengths, got {list(rungs)}")
    if not is_number(safety) or not 0 < safety <= 1:
        raise InvalidInput(f"safety must be above 0 and at most 1, got {shown(safety)}")

    def choose(throughputs: list[float]) -> int:
        recent = throughputs[-HISTORY:]
        estimate = safety * len(recent) / sum(1 / rate for rate in recent) if recent else 0.0
        return max((rung for rung in ascending if rung <= estimate * (1 + TINY)), default=ascending[0])

    return play_whole(bits, choose, buffer)


def play_whole(bits: ArrayLike, choose: Callable[[list[float]], int], buffer: int = BUFFER) -> Playback:
    """Play items that are useless before their last bit arrived; `choose` returns the next length from throughputs.

    >>> play_whole([8, 8, 8], lambda throughputs: 16, buffer=1).stalls
    array([1., 1., 1.])
    """
    arrivals, buffer = _check_bits(bits), check_int(buffer, "buffer", least=1)
    link = _Link(arrivals)
    lengths: list[int] = []
    shown: list[float] = []
    stalls: list[float] = []
    throughputs: list[float] = []
    done = 0.0
    for item in range(len(arrivals)):
        start = done if item < buffer else max(done, shown[item - buffer])
        length = choose(throughputs)
        done = link.arrival(start, length)
        due = shown[-1] + 1 if shown else 1.0
        late = done - due
        stalls.append(late if late > TINY else 0.0)
        shown.append(due + stalls[-1])
        lengths.append(length)
        throughputs.append(length / max(done - start, TINY))
    return Playback(np.array(lengths, dtype=np.int64), np.array(stalls), link.carried(shown[-1]))


class _Link:
    """A link whose trace repeats; times are in periods."""

    def __init__(self, arrivals: Ints) -> None:
        self._arrivals = arrivals.tolist()
        self._before = np.append(0, np.cumsum(arrivals)).tolist()  # bits carried before each period
        if not self._before[-1]:
            raise InvalidInput(
                "a trace must carry bits in some period, this one has less than one bit per item: "
                "raise the bandwidth, or let fewer items share it"
            )

    def carried(self, time: float) -> float:
        """Return the bits carried since the start."""
        rounds, rest = divmod(time, len(self._arrivals))
        period = int(rest)
        within = self._before[period] + (rest - period) * self._arrivals[period]
        return float(rounds * self._before[-1] + within)

    def arrival(self, start: float, length: int) -> float:
        """Return when the last of `length` bits, sent from `start` on, arrives."""
        total = self._before[-1]
        target = self.carried(start) + length
        # A bit that is missing only by rounding must not wait until a dead link recovers.
        rounds = math.ceil((target - 2 * ROUNDING) / total) - 1
        rest = min(target - rounds * total, total)
        after = bisect_left(self._before, rest - ROUNDING)  # the end of the period in which the last bit arrives
        share = min(1.0, (rest - self._before[after - 1]) / self._arrivals[after - 1])
        return float(rounds * len(self._arrivals) + after - 1 + share)


def _check_bits(bits: ArrayLike) -> Ints:
    array = np.asarray(bits)
    if array.ndim != 1 or array.size == 0 or not np.issubdtype(array.dtype, np.integer) or array.min() < 0:
        raise InvalidInput(
            f"bits must be nonnegative integers, one per period, got {array.dtype} of shape {array.shape}: "
            "bits_per_item makes them"
        )
    return array.astype(np.int64)
