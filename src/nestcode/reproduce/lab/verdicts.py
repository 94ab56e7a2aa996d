"""The rules of verdicts where the paper leaves a choice, fixed before the run that they judge.

Figure 5       the text speaks of bits: claims are judged on the network of bits. The network of real-valued units is
               reported beside it, and not counted.
Similarity     "very similar" is an SSIM of at least SIMILAR_SSIM.
JPEG           is compared without headers, at every rate up to the longest code.
Seeds          a claim holds if it does for every seed that was run, unless it says otherwise.
Figure 2       is judged once training has converged: a quarter of the steps gives at most CONVERGED times the error.
               If it does not, the verdict is open.
Figure 3       shows time: a factor of R shifts time by a constant if both shifts go down, and differ by at most
               SHIFT_TOLERANCE of the larger.
Depth          grows as log(N/R) / H(β) if its slope is within SLOPE_TOLERANCE of 1: of random codes, and of the
               network's.
Decay          of neighborhoods with the length is exponential if their mean size, on a logarithmic scale, is within
               EXPONENTIAL_LOG2 of a line: of the network's codes, as it is arithmetic for random ones.
Linear scan    costs O(KN) if the intervals of both exponents of its time, of K and of N, are within SLOPE_TOLERANCE
               of 1. It does not if one of them is outside; else the verdict is open.
Log time       time grows with N at most in proportion to log(N/R), times GROWTH_SLACK for what a query costs anyway.
Long codes     are searched if ordered retrieval takes less than twice the time of the longest codes that semantic
               hashing can search: with radius 2 faster than a scan, and a neighbor for half of the queries.
LSH            is inefficient if random projections need at least LSH_FACTOR times the bits of learned codes of LSH_BITS
               for the same recall among the nearest by Hamming distance.
Sigmoid        the paper's "added shifting constants" are an offset for each length; one bias for all lengths is
               reported beside it, and not counted.
Figure 5b      networks are compared as they were trained: a refitted decoder is shown beside them, and not counted.
JPEG, at best  its error is "approximately 0.0003" from half of that to twice.
Figure 4       the network by conjugate gradients, the paper's optimizer, is judged as the one by Adam is.

A statement counts once, however many experiments test it. Settings do not count, nor does arithmetic, such as the bits
of an image or probabilities of p_B. A vague outlook, such as that infinite models might be trained, does not either.
What the paper states of a data set or an optimizer counts for each one that is run, also where it fails.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log

from nestcode.reproduce.lab.compression import READINGS, Reading

JUDGED: Reading = "bits"
SIMILAR_SSIM = 0.9
SHIFT_TOLERANCE = 0.3
SLOPE_TOLERANCE = 0.1
EXPONENTIAL_LOG2 = 1.0  # a factor of two
GROWTH_SLACK = 1.5
CONVERGED = 1.1
LSH_FACTOR, LSH_BITS = 2, 64


@dataclass(frozen=True)
class Interval:
    """A fitted value, and the interval that it lies in."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"


def judged(verdicts: Mapping[Reading, bool]) -> tuple[str, bool]:
    """Return the verdict on the reading that counts, and both in words.

    >>> judged({"bits": False, "real": True})
    ('differs for bits; real-valued units, not counted: holds', False)
    """
    words = {reading: "holds" if holds else "differs" for reading, holds in verdicts.items()}
    others = [f"{READINGS[reading]}, not counted: {word}" for reading, word in words.items() if reading != JUDGED]
    return "; ".join([f"{words[JUDGED]} for {READINGS[JUDGED]}", *others]), verdicts[JUDGED]


def is_constant_shift(costs: Sequence[float]) -> bool:
    """Return whether costs fall by equal factors, given those at sizes that grow by equal factors.

    >>> is_constant_shift([4.0, 2.0, 1.1]), is_constant_shift([4.0, 2.0, 3.0])
    (True, False)
    """
    shifts = [log(before / after) for before, after in pairwise(costs)]
    return min(shifts) > 0 and max(shifts) - min(shifts) <= SHIFT_TOLERANCE * max(shifts)


def is_converged(growth: float) -> bool:
    """Return whether training has converged, given how many times the error a quarter of the steps has.

    >>> is_converged(1.05), is_converged(1.5)
    (True, False)
    """
    return growth <= CONVERGED


def is_unit_slope(slope: float) -> bool:
    """Return whether depth grows as the paper's estimate does."""
    return abs(slope - 1) < SLOPE_TOLERANCE


def are_unit_exponents(exponents: Sequence[Interval]) -> bool | None:
    """Return whether the intervals of all exponents are near 1; None if an interval is partly near.

    >>> near, wide, far = Interval(1.0, 0.95, 1.05), Interval(1.0, 0.8, 1.2), Interval(1.3, 1.2, 1.4)
    >>> are_unit_exponents([near, near]), are_unit_exponents([near, wide]), are_unit_exponents([wide, far])
    (True, None, False)
    """
    least, most = 1 - SLOPE_TOLERANCE, 1 + SLOPE_TOLERANCE
    if any(one.high < least or one.low > most for one in exponents):
        return False
    return True if all(least < one.low and one.high < most for one in exponents) else None


def is_logarithmic(seconds: Sequence[float], counts: Sequence[int], size: int) -> bool:
    """Return whether time grows from the first to the last count at most as log(N/R) does.

    >>> is_logarithmic([1.0, 1.5], [1000, 16_000], size=10), is_logarithmic([1.0, 4.0], [1000, 16_000], size=10)
    (True, False)
    """
    return seconds[-1] / seconds[0] <= GROWTH_SLACK * log(counts[-1] / size) / log(counts[0] / size)
