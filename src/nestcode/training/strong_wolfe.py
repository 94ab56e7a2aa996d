"""A step along a line that satisfies the strong Wolfe conditions (algorithms 3.5 and 3.6 of Nocedal & Wright).

Only numbers here, no tensors: a line is a function of the step that answers with a `Trial`.

>>> def parabola(step):
...     return Trial(step, value=(step - 3) ** 2, slope=2 * (step - 3))
>>> search(parabola, parabola(0.0), first=1.0, wolfe=Wolfe(c1=1e-4, c2=0.1), limit=10)
Trial(step=3.0, value=0.0, slope=0.0)
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

GROWTH = 10.0  # the longest next step while the slope still falls, in steps
EDGE = 0.01  # how near to an end of the bracket, in brackets, a fitted step may lie
CLOSE = 1e-4  # a fitted step that moves the guess by less, relatively, is not worth an evaluation


@dataclass(frozen=True)
class Trial:
    """The value and the slope of a line at one step."""

    step: float
    value: float
    slope: float

    @property
    def finite(self) -> bool:
        """Whether the line could be evaluated here; if not, the step is too long."""
        return math.isfinite(self.value) and math.isfinite(self.slope)


@dataclass(frozen=True)
class Wolfe:
    """The strong Wolfe conditions.

    The value must fall by `c1` of what the first slope promises, up to `noise`, the rounding error of a value. Where
    the whole decrease is less than that, a value says nothing and the slopes alone decide. If c2 ≤ 1 − 2·c1 these are
    then the approximate Wolfe conditions of Hager & Zhang (2005).
    """

    c1: float
    c2: float
    noise: float = 0.0

    def decreases(self, start: Trial, trial: Trial) -> bool:
        """φ(α) ≤ φ(0) + c1·α·φ′(0)."""
        return trial.finite and trial.value <= start.value + self.c1 * trial.step * start.slope + self.noise

    def flattens(self, start: Trial, trial: Trial) -> bool:
        """|φ′(α)| ≤ c2·|φ′(0)|."""
        return abs(trial.slope) <= self.c2 * abs(start.slope)

    def hold(self, start: Trial, trial: Trial) -> bool:
        """Both conditions."""
        return self.decreases(start, trial) and self.flattens(start, trial)


def search(line: Callable[[float], Trial], start: Trial, first: float, wolfe: Wolfe, limit: int) -> Trial | None:
    """The trial that satisfies both conditions, or else the lowest if it decreases at all, or else none.

    Args:
        line: what to search along; it falls at `start`.
        start: the trial at step 0.
        first: the first step to try; 1 where it is no positive number.
        wolfe: the conditions.
        limit: how many trials may be made.

    """
    low, high = start, None  # of the steps that decrease, the lowest; the other end of what holds a good one
    step, guessed = first if 0 < first < math.inf else 1.0, True
    for made in range(1, limit + 1):
        trial = line(step)
        if wolfe.hold(start, trial):
            return _refine(line, start, trial, wolfe) if guessed and made < limit else trial
        if not wolfe.decreases(start, trial) or trial.value > low.value + wolfe.noise:
            high = trial
        else:
            before, ahead = low, math.inf if high is None else high.step - low.step
            if trial.slope * ahead >= 0:
                high = low
            low = trial
        if high is None:
            step, guessed = _extend(before, low, wolfe.noise)
        else:
            step, guessed = _divide(start, low, high, wolfe.noise, halve=made % 3 == 0)
            if step in (low.step, high.step):
                break  # nothing lies between
    return low if low.value < start.value else None


def _refine(line: Callable[[float], Trial], start: Trial, guess: Trial, wolfe: Wolfe) -> Trial:
    """One more trial, fitted to a guess that happened to hold.

    Conjugate directions are as good as their line searches: without this a quadratic can take twice as many steps.
    """
    step = _fit(start, guess, wolfe.noise)
    if step is None or not CLOSE < abs(step / guess.step - 1) < 1:
        return guess
    trial = line(step)
    better = wolfe.hold(start, trial) and abs(trial.slope) < abs(guess.slope)
    return trial if better else guess


def _extend(before: Trial, low: Trial, noise: float) -> tuple[float, bool]:
    """A longer step, as the line still falls at `low`; and whether it is a guess."""
    shortest, longest = low.step + EDGE * (low.step - before.step), GROWTH * low.step
    fitted = _fit(before, low, noise)
    if fitted is not None and shortest <= fitted <= longest:
        return fitted, False
    return longest, True


def _divide(start: Trial, low: Trial, high: Trial, noise: float, *, halve: bool) -> tuple[float, bool]:
    """A step between `low` and `high`; and whether it is a guess."""
    gap = high.step - low.step
    if not high.finite:  # nothing to fit; far too long, perhaps
        return low.step + gap * (0.1 if low is start else 0.5), True
    fitted = None if halve else _fit(low, high, noise)
    share = 0.5 if fitted is None else (fitted - low.step) / gap
    if fitted is not None and EDGE <= share <= 1 - EDGE:
        return fitted, False
    return low.step + min(max(share, EDGE), 1 - EDGE) * gap, True


def _fit(a: Trial, b: Trial, noise: float) -> float | None:
    """Where the cubic through both trials is least; the parabola through their slopes where values are but noise."""
    width = b.step - a.step
    if abs(b.value - a.value) <= noise:
        rise = b.slope - a.slope
        fitted = b.step - width * b.slope / rise if rise * width > 0 else math.nan
    else:
        middle = a.slope + b.slope - 3 * (b.value - a.value) / width
        square = middle * middle - a.slope * b.slope
        root = math.copysign(math.sqrt(square), width) if square >= 0 else math.nan
        rise = b.slope - a.slope + 2 * root
        fitted = b.step - width * (b.slope + root - middle) / rise if rise else math.nan
    return fitted if math.isfinite(fitted) else None
