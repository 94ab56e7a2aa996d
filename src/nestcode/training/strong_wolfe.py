"""A line search for the strong Wolfe conditions: bracketing, then zoom (Nocedal & Wright, algorithms 3.5 and 3.6).

Scalars only, no tensors: a line is a function from a step to a `Trial`.

>>> def parabola(step):
...     return Trial(step, value=(step - 3) ** 2, slope=2 * (step - 3))
>>> line_search(parabola, parabola(0.0), first=1.0, wolfe=Wolfe(c1=1e-4, c2=0.1), limit=10)
Trial(step=3.0, value=0.0, slope=0.0)
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

EXPANSION = 10.0  # the largest factor between steps while bracketing
EDGE = 0.01  # how near to an end of the bracket, in brackets, an interpolated step may lie
CLOSE = 1e-4  # an interpolated step that moves the guess by less, relatively, is not worth an evaluation


@dataclass(frozen=True)
class Trial:
    """The value φ(α) and the slope φ′(α) of a line at a step α."""

    step: float
    value: float
    slope: float

    @property
    def finite(self) -> bool:
        """Whether value and slope are finite; if not, the step is too long."""
        return math.isfinite(self.value) and math.isfinite(self.slope)


@dataclass(frozen=True)
class Wolfe:
    """The strong Wolfe conditions: sufficient decrease (Armijo) with `c1`, curvature with `c2`.

    Values are compared up to `noise`, their rounding error. Where the whole decrease is below it, only the slopes
    decide; if c2 ≤ 1 − 2·c1 these are then the approximate Wolfe conditions of Hager & Zhang (2005).
    """

    c1: float
    c2: float
    noise: float = 0.0

    def sufficient_decrease(self, start: Trial, trial: Trial) -> bool:
        """Return whether the decrease is sufficient: φ(α) ≤ φ(0) + c1·α·φ′(0)."""
        return trial.finite and trial.value <= start.value + self.c1 * trial.step * start.slope + self.noise

    def curvature(self, start: Trial, trial: Trial) -> bool:
        """Return whether the slope is flat enough: |φ′(α)| ≤ c2·|φ′(0)|."""
        return abs(trial.slope) <= self.c2 * abs(start.slope)

    def hold(self, start: Trial, trial: Trial) -> bool:
        """Return whether both conditions hold."""
        return self.sufficient_decrease(start, trial) and self.curvature(start, trial)


def line_search(line: Callable[[float], Trial], start: Trial, first: float, wolfe: Wolfe, limit: int) -> Trial | None:
    """Return a trial that satisfies both conditions, or else the lowest if it decreases, or else None.

    Args:
        line: the line to search along; it descends at `start`.
        start: the trial at step 0.
        first: the first step to try; 1 where it is not a positive finite number.
        wolfe: the conditions.
        limit: the most trials.

    """
    low, high = start, None  # the bracket: the lowest trial with sufficient decrease, and its other end
    step, guessed = first if 0 < first < math.inf else 1.0, True
    for count in range(1, limit + 1):
        trial = line(step)
        if wolfe.hold(start, trial):
            return _improve(line, start, trial, wolfe) if guessed and count < limit else trial
        if not wolfe.sufficient_decrease(start, trial) or trial.value > low.value + wolfe.noise:
            high = trial
        else:
            before, ahead = low, math.inf if high is None else high.step - low.step
            if trial.slope * ahead >= 0:
                high = low
            low = trial
        if high is None:
            step, guessed = _expand(before, low, wolfe.noise)
        else:
            step, guessed = _zoom(start, low, high, wolfe.noise, bisect=count % 3 == 0)
            if step in (low.step, high.step):
                break  # the bracket has no float between its ends
    return low if low.value < start.value else None


def _improve(line: Callable[[float], Trial], start: Trial, guess: Trial, wolfe: Wolfe) -> Trial:
    """Interpolate once more from a first guess that satisfied the conditions.

    Conjugate directions depend on accurate line searches: without this a quadratic can take twice as many steps.
    """
    step = _interpolate(start, guess, wolfe.noise)
    if step is None or not CLOSE < abs(step / guess.step - 1) < 1:
        return guess
    trial = line(step)
    better = wolfe.hold(start, trial) and abs(trial.slope) < abs(guess.slope)
    return trial if better else guess


def _expand(before: Trial, low: Trial, noise: float) -> tuple[float, bool]:
    """Bracketing: return a longer step, as the line still descends at `low`; and whether it is a guess."""
    shortest, longest = low.step + EDGE * (low.step - before.step), EXPANSION * low.step
    interpolated = _interpolate(before, low, noise)
    if interpolated is not None and shortest <= interpolated <= longest:
        return interpolated, False
    return longest, True


def _zoom(start: Trial, low: Trial, high: Trial, noise: float, *, bisect: bool) -> tuple[float, bool]:
    """Zoom phase: return a step between `low` and `high`; and whether it is a guess."""
    gap = high.step - low.step
    if not high.finite:  # nothing to interpolate, and perhaps far too long
        return low.step + gap * (0.1 if low is start else 0.5), True
    interpolated = None if bisect else _interpolate(low, high, noise)
    share = 0.5 if interpolated is None else (interpolated - low.step) / gap
    if interpolated is not None and EDGE <= share <= 1 - EDGE:
        return interpolated, False
    return low.step + min(max(share, EDGE), 1 - EDGE) * gap, True


def _interpolate(a: Trial, b: Trial, noise: float) -> float | None:
    """Return the minimum of the cubic through both trials, or where values are noise, the root of their slopes."""
    width = b.step - a.step
    if abs(b.value - a.value) <= noise:
        rise = b.slope - a.slope
        minimum = b.step - width * b.slope / rise if rise * width > 0 else math.nan
    else:
        middle = a.slope + b.slope - 3 * (b.value - a.value) / width
        square = middle * middle - a.slope * b.slope
        root = math.copysign(math.sqrt(square), width) if square >= 0 else math.nan
        rise = b.slope - a.slope + 2 * root
        minimum = b.step - width * (b.slope + root - middle) / rise if rise else math.nan
    return minimum if math.isfinite(minimum) else None
