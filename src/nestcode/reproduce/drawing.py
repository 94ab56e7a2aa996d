"""Drawing that several figures share."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import NullLocator
from numpy.typing import ArrayLike


def band(axes: Axes, x: ArrayLike, runs: Sequence[ArrayLike] | ArrayLike, style: str, color: str, **line: Any) -> None:
    """Draw the mean over runs (usually seeds) as a line, and their range as a band: (n,), (runs, n)."""
    values = np.asarray(runs)
    axes.plot(x, values.mean(axis=0), style, color=color, **line)
    axes.fill_between(x, values.min(axis=0), values.max(axis=0), color=color, alpha=0.15, linewidth=0)


def set_ticks(axis: Axis, places: Sequence[float], labels: Sequence[str] | None = None) -> None:
    """Put ticks at these places only, also on a logarithmic axis; values are written out by default."""
    axis.set_ticks(places, labels=[f"{place:,g}" for place in places] if labels is None else labels)
    axis.set_minor_locator(NullLocator())


def add_grid(*axes: Axes) -> None:
    """Draw a faint grid behind the curves."""
    for each in axes:
        each.grid(alpha=0.3)
