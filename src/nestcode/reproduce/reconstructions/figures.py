"""Figures of the experiment `reconstructions`."""

from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from nestcode.arrays import Doubles, Ids
from nestcode.report import BLUE, GREEN, VERMILLION
from nestcode.reproduce.drawing import add_grid, band, set_ticks
from nestcode.reproduce.lab import Images
from nestcode.reproduce.lab.compression import READINGS, SHOWN, SHOWN_LENGTHS
from nestcode.reproduce.lab.images import Pixels


@dataclass(frozen=True)
class Decoded:
    """Decoded test images of a method, and their errors."""

    bits: Ids  # lengths, from 0 to the width
    errors: Doubles  # (seeds, lengths): MSE of pixels on the scale from 0 to 1
    shown: dict[int, Pixels]  # the first test images, by length
    ssim: dict[int, float]  # of all test images, by length

    @property
    def width(self) -> int:
        """Return the width of the codes."""
        return int(self.bits[-1])

    @property
    def means(self) -> Doubles:
        """Return the mean over seeds by length."""
        return np.asarray(self.errors.mean(axis=0))

    def at(self, length: int) -> Doubles:
        """Return the errors of all seeds at a length."""
        return self.errors[:, int(np.flatnonzero(self.bits == length)[0])]


def psnr_of(mse: float) -> float:
    """Return the PSNR in dB for an MSE of pixels on the scale from 0 to 1.

    >>> psnr_of(0.01)
    20.0
    """
    return round(float(-10 * np.log10(mse)), 2)


def figure_rows(images: Images, found: dict[str, Decoded]) -> Figure:
    """Draw a block for each method: a row for each length, the originals below."""
    lengths = [length for length in SHOWN_LENGTHS if any(length in decoded.shown for decoded in found.values())]
    side, gap = images.side, 2
    figure = Figure(figsize=(11.5, 0.48 * (len(lengths) + 1) + 0.6), layout="constrained")
    for axes, (name, decoded) in zip(figure.subplots(1, len(found)), found.items(), strict=True):
        canvas = np.full(((side + gap) * (len(lengths) + 1), (side + gap) * SHOWN, 3), 255, dtype=np.uint8)
        places = [(side + gap) * row + side / 2 for row in range(len(lengths) + 1)]
        for row, length in enumerate([*lengths, None]):
            rows = images.test[:SHOWN] if length is None else decoded.shown.get(length)
            if rows is None:
                axes.text(0, places[row], f"codes end at {decoded.width}", va="center", color="0.4")
                continue
            for column, image in enumerate(images.as_images(rows)):
                top, left = row * (side + gap), column * (side + gap)
                canvas[top : top + side, left : left + side] = image
            if length is not None:
                axes.text(canvas.shape[1] + 2, places[row], f"{psnr_of(decoded.at(length).mean()):.1f}",
                          va="center", fontsize=9)  # fmt: skip
        axes.imshow(canvas, interpolation="nearest")
        axes.set_title(name)
        axes.set_xticks([])
        axes.spines[:].set_visible(False)
        unit = "units" if name == READINGS["real"] else "bits"
        axes.set_yticks(places, [*(f"{length} {unit}" for length in lengths), "originals"])
        axes.tick_params(length=0, labelsize=9)
    return figure


def figure_errors(found: dict[str, Decoded]) -> Figure:
    """Draw MSE by length."""
    figure = Figure(figsize=(7.5, 4.2), layout="constrained")
    axes = figure.subplots()
    styles = zip(("-", "--", "-."), (VERMILLION, BLUE, GREEN), strict=True)
    for (name, decoded), (style, color) in zip(found.items(), styles, strict=True):
        best = int(decoded.means.argmin())
        band(axes, decoded.bits[1:], decoded.errors[:, 1:], style, color, label=name)
        axes.plot(decoded.bits[best], decoded.means[best], "o", color=color, markersize=8, markerfacecolor="none")
    axes.set(xscale="log", yscale="log", xlabel="bits or units", ylabel="MSE")
    set_ticks(axes.xaxis, [b for b in (1, 4, *SHOWN_LENGTHS) if b <= max(decoded.width for decoded in found.values())])
    set_ticks(axes.yaxis, (0.1, 0.05, 0.02, 0.01, 0.005, 0.002))
    add_grid(axes)
    axes.legend(frameon=False)
    return figure
