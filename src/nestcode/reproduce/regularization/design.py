"""The design of the table of sections 4.2 and 4.4, fixed before any of its networks was trained.

One combination is the paper's: unit sweeping, the adaptive L1 penalty (ratio 0.05), and the invariance penalty as it is
printed, on rectified units without weights. Each other combination changes one factor: no sweeping, no L1 penalty, or
another weight of the invariance penalty. All are trained with every seed by Adam, with the same data, batches and
steps, which are two percent of the paper's budget; bits, gradients and noise are the paper's.

Measured for each network, on test images as queries among the training images:

    recall      share of a query's ten nearest images by L2 of pixels among R members of its neighborhood of size R,
                drawn at random, for R = 2, 32 and 512. Whole neighborhoods do not compare: in a first table, with
                weights of 1 to 100, codes collapsed, and neighborhoods of thousands of images contained everything
    flips       share of the first 64 bits that noise of 0.3 standard deviations of each pixel flips
    error       MSE at full width

An effect is the difference to the same network and seed without the factor. Its interval is Student's over seeds, at 95
% for all effects of a claim together (Bonferroni). An effect is there if the interval excludes 0, else the verdict is
inconclusive. Primary measure of section 4.4 is recall at R = 32: "better retrieval results" holds if one weight raises
it, and differs if one lowers it and none raises it.

Power: in an earlier table paired differences of recall at R = 32 had a standard deviation of 0.006. Five seeds and
four weights then find an effect of 0.014 in four of five tables (`detectable`), an eighth of the recall of 0.11 there.

Weights rise tenfold. An earlier table had 0.01, 0.1 and 1: already at 0.01 the first bits told nothing of the image
(MSE .0618 at one bit, .0617 without any). So this one begins at 0.0001, and the paper's combination is at 0.001. The
scale of the units, the standard deviation of their pre-activations, is measured beside: thresholds are quantiles, so
that a smaller scale lowers the penalty without changing a bit.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import stdtrit

from nestcode.arrays import Doubles

RATIO = 0.05  # of the gradients of regularization and reconstruction
WEIGHTS = (0.0, 0.0001, 0.001, 0.01, 0.1)  # of invariance
SIZES = (2, 32, 512)  # terminal sizes R
PRIMARY = SIZES.index(32)
NOISE = 0.3  # added to queries, in standard deviations of each pixel
FLIPPED = 64  # leading bits
SEEDS = (0, 1, 2, 3, 4)


@dataclass(frozen=True)
class Cell:
    """One combination of the factors."""

    sweeping: bool
    adaptive: bool
    invariance: float

    def __str__(self) -> str:
        parts = ("sweeping" if self.sweeping else "no sweeping", "adaptive L1" if self.adaptive else "no penalty")
        return f"{', '.join(parts)}, invariance {self.invariance:g}"


PAPER = Cell(sweeping=True, adaptive=True, invariance=WEIGHTS[2])
NO_SWEEPING, NO_PENALTY = replace(PAPER, sweeping=False), replace(PAPER, adaptive=False)
CELLS = (NO_SWEEPING, NO_PENALTY, *(replace(PAPER, invariance=weight) for weight in WEIGHTS))
POWER = 0.8


def detectable(deviation: float, seeds: int, claims: int) -> float:
    """Return the mean paired difference that an interval excludes 0 for with a probability of about `POWER`.

    >>> round(detectable(0.006, seeds=5, claims=4), 3)
    0.014
    """
    reach, beyond = (float(stdtrit(seeds - 1, share)) for share in (1 - 0.05 / claims / 2, POWER))
    return (reach + beyond) * deviation / float(np.sqrt(seeds))


@dataclass(frozen=True)
class Effect:
    """The mean paired difference over seeds, and its interval."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, with_it: Doubles, without: Doubles, claims: int = 1) -> "Effect":
        """Return the effect of a factor, (seeds,) each, at 95 % for all `claims` together.

        >>> Effect.of(np.array([1.0, 2.0, 3.0]), np.array([0.0, 1.1, 1.9]))
        Effect(mean=1.0, low=0.7516, high=1.2484)
        """
        difference = np.asarray(with_it) - np.asarray(without)
        count, mean = len(difference), float(difference.mean())
        if count < 2:
            return cls(round(mean, 4), -np.inf, np.inf)
        reach = float(stdtrit(count - 1, 1 - 0.05 / claims / 2) * difference.std(ddof=1) / np.sqrt(count))
        return cls(round(mean, 4), round(mean - reach, 4), round(mean + reach, 4))

    @property
    def sign(self) -> int:
        """Return 1 or -1 where the interval excludes 0, else 0."""
        return int(self.low > 0) - int(self.high < 0)

    def __str__(self) -> str:
        return f"{self.mean:+.3g} ({self.low:+.3g} to {self.high:+.3g})"
