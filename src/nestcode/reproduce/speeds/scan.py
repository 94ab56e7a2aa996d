"""The cost of a linear scan, O(KN) in the paper: exponents of the code length K and of the number of items N.

The design, fixed before the run:

    sizes      a grid of code lengths and numbers of items, random codes: what codes contain does not matter to a scan
    time       CPU time of one scan by Hamming distance on one thread, the least of several rounds in which the sizes
               take turns. Each scan reads its codes from memory (`cold_cpu_seconds_each`): in earlier runs, timed by
               the clock beside other processes, short codes came from a cache, and 8 times the bits took 14 to 18
               times the time. A trial of this method on two busy cores had exponents of 0.97 and 0.96, each ± 0.05
    exponents  log time = c + α log K + γ log N by least squares, with intervals by Student's t at 95 %
    verdict    in `lab/verdicts.py`: O(KN) holds if both intervals are within the tolerance around 1

Codes have at least 256 bits: below, a scan spends most of its time per item, not per bit.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from scipy.special import stdtrit

from nestcode import Codes
from nestcode.arrays import Doubles
from nestcode.reproduce.complexity.experiment import random_codes
from nestcode.reproduce.lab.timing import EVICTING_BYTES, cold_cpu_seconds_each
from nestcode.reproduce.lab.verdicts import Interval

WIDTHS = (256, 512, 1024, 2048)
SHARES = (8, 4, 2, 1)  # one item in so many is scanned


def scan_seconds(count: int, rng: np.random.Generator, rounds: int, evicting: int = EVICTING_BYTES) -> Doubles:
    """Return the CPU seconds of a scan of at most `count` items, (widths, shares)."""
    jobs: dict[str, Callable[[], object]] = {}
    for width in WIDTHS:
        codes, query = random_codes(count, width, 0.5, rng), random_codes(1, width, 0.5, rng)
        jobs |= {f"{width} bits, 1 in {share}": partial(scan, query, codes[: count // share]) for share in SHARES}
    best = cold_cpu_seconds_each(jobs, rounds, evicting)
    return np.array(list(best.values())).reshape(len(WIDTHS), len(SHARES))


def scan(query: Codes, codes: Codes) -> object:
    """Compare a query with all codes."""
    return query.hamming(codes)


def fit_exponents(widths: Sequence[float], counts: Sequence[float], seconds: Doubles) -> tuple[Interval, Interval]:
    """Return the exponents of width and count in seconds, (widths, counts).

    >>> widths, counts = [2.0, 4.0, 8.0], [10.0, 100.0]
    >>> for exponent in fit_exponents(widths, counts, np.outer(np.sqrt(widths), counts)):
    ...     print(exponent)
    0.50 (0.50 to 0.50)
    1.00 (1.00 to 1.00)
    """
    bits, items = np.meshgrid(np.log(widths), np.log(counts), indexing="ij")
    design = np.stack([np.ones(seconds.size), bits.ravel(), items.ravel()], axis=1)
    logs = np.log(seconds).ravel()
    inverse = np.linalg.inv(design.T @ design)
    fitted = inverse @ design.T @ logs
    freedom = len(logs) - design.shape[1]
    variance = float(np.square(logs - design @ fitted).sum()) / freedom
    reach = float(stdtrit(freedom, 0.975)) * np.sqrt(variance * inverse.diagonal())
    first, second = (
        Interval(*map(float, (value, value - off, value + off)))
        for value, off in zip(fitted[1:], reach[1:], strict=True)
    )
    return first, second
