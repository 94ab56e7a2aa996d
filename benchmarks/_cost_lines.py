"""Lines through measured times."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Line:
    """intercept + slope x, fitted to relative errors between the first and the last x."""

    slope: float
    intercept: float
    error: float  # the largest relative error
    first: float
    last: float


def fit_line(xs: Sequence[float], ys: Sequence[float]) -> Line:
    """Return the line whose relative errors have the least sum of squares.

    >>> line = fit_line([1, 2, 4], [7.0, 9.0, 13.0])
    >>> round(line.slope, 6), round(line.intercept, 6), round(line.error, 6)
    (2.0, 5.0, 0.0)
    """
    x, y = np.asarray(xs, dtype=np.float64), np.asarray(ys, dtype=np.float64)
    (slope, intercept), *_ = np.linalg.lstsq(np.stack([x, np.ones_like(x)], axis=1) / y[:, None], np.ones_like(y))
    error = np.abs((intercept + slope * x) / y - 1).max()
    return Line(float(slope), float(intercept), float(error), float(x.min()), float(x.max()))
