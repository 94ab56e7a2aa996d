"""Figure 5a of the paper: images decoded from ever longer prefixes of one code."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray

from nestcode.arrays import Doubles, Floats
from nestcode.coders import AdaptiveCoder, Coder
from nestcode.metrics import ssim
from nestcode.nn import OrderedAutoencoder
from nestcode.reproduce.lab import Experiment, Images, Lab
from nestcode.reproduce.lab.images import Pixels, as_pixels, as_rows, pixel_mse
from nestcode.reproduce.lab.networks import RECIPES, compression_coder, compression_images, compression_network
from nestcode.reproduce.lab.optimal_brain_damage import encode_units, errors_in_order

Decode = Callable[[int], Pixels]  # test images from so many bits, (n, features)

LENGTHS = (16, 64, 128, 256, 1024)
SHOWN = 8
FEW = 500  # test images of the coder, which decodes at every eighth length
SIMILAR = 0.9  # SSIM
NAMES = {"paper": "the paper's network", "ours": "the repaired network"}
CODER = "our adaptive coder"


@dataclass(frozen=True)
class Decoded:
    """What a method makes of the test images."""

    bits: NDArray[np.int64]  # lengths, from 0 to the width
    errors: Doubles  # (seeds, lengths)
    shown: dict[int, Pixels]  # the first test images, by length
    similar: dict[int, float]  # SSIM of all, by length

    @property
    def width(self) -> int:
        """Bits of its codes."""
        return int(self.bits[-1])

    @property
    def means(self) -> Doubles:
        """Over seeds."""
        return np.asarray(self.errors.mean(axis=0))

    def at(self, length: int) -> Doubles:
        """Errors at a length, of each seed."""
        return self.errors[:, int(np.flatnonzero(self.bits == length)[0])]


def decibels(mse: float) -> float:
    """Return the PSNR of an MSE of pixels on the scale from 0 to 1.

    >>> decibels(0.01)
    20.0
    """
    return round(float(-10 * np.log10(mse)), 2)


def of_network(network: OrderedAutoencoder, X: Pixels) -> Decode:
    """Decodes prefixes of a network's units."""
    units = encode_units(network, as_rows(X))

    def decode(length: int) -> Pixels:
        with torch.no_grad():
            made: Floats = network.decode(units[:, :length]).cpu().numpy()
        return as_pixels(made)

    return decode


def of_coder(coder: Coder, X: Pixels) -> Decode:
    """Decodes prefixes of a coder's codes."""
    codes = coder.encode(as_rows(X))
    return lambda length: as_pixels(coder.decode(codes.prefix(length)))


def look(images: Images, bits: NDArray[np.int64], errors: Doubles, decode: Decode) -> Decoded:
    """Images and their likeness to the originals at the lengths that are shown."""
    made = {length: decode(length) for length in LENGTHS if length <= bits[-1]}
    similar = {
        length: round(ssim(images.as_images(images.test[: len(rows)]), images.as_images(rows)), 4)
        for length, rows in made.items()
    }
    return Decoded(bits, errors, {length: rows[:SHOWN] for length, rows in made.items()}, similar)


def run(lab: Lab) -> None:
    """Rows of images, and their errors at all lengths."""
    images = compression_images(lab)
    found = {}
    for recipe, name in NAMES.items():
        seeds = lab.progress(lab.seeds, f"training {name}")
        networks = [compression_network(lab, images, recipe, seed) for seed in seeds]
        errors = [errors_in_order(network, images.test, np.arange(network.width)) for network in networks]
        decode = of_network(networks[0], images.test)
        found[name] = look(images, np.arange(networks[0].width + 1), np.array(errors), decode)
    with lab.console.status(f"  {CODER}"):
        coder = compression_coder(lab, images, AdaptiveCoder)
        some = images.test[:FEW]
        decode, bits = of_coder(coder, some), np.arange(0, coder.width + 1, 8)
        own = [pixel_mse(some, decode(length)) for length in bits.tolist()]
        found[CODER] = look(images, bits, np.array([own]), decode)
    for name, decoded in found.items():
        add_findings(lab, name, decoded)
    add_repair(lab, found[NAMES["paper"]], found[NAMES["ours"]])
    whole, longest = 8 * images.test.shape[1], found[CODER].width
    lab.finding("bits of an original", paper="24576", ours=f"{whole}, {whole / longest:.0f} times the longest code",
                holds=whole == 24_576 if images.side == 32 else None)  # fmt: skip
    add_blocks(lab, images, found)
    add_departures(lab, images, found)
    lab.measured |= {
        name: {
            "bits": decoded.bits.tolist(),
            "errors": decoded.errors.tolist(),
            "ssim": {str(length): s for length, s in decoded.similar.items()},
        }
        for name, decoded in found.items()
    }


def add_findings(lab: Lab, name: str, decoded: Decoded) -> None:
    """Whether each bit helps, and how near the longest code comes."""
    changes = np.diff(decoded.means)
    best, step = int(decoded.bits[decoded.means.argmin()]), int(decoded.bits[1])
    rises = f"{decoded.means[-1] / decoded.means.min() - 1:.1%} above its least, at {best} bits"
    lab.finding(
        f"the error falls with every bit, {name}",
        paper="decreases monotonically",
        ours=f"at {(changes < 0).sum()} of {len(changes)} {'bits' if step == 1 else f'steps of {step} bits'}; at the "
        f"end it is {'least' if best == decoded.width else rises}",
        holds=bool(np.all(changes < 0)),
    )
    length = max(decoded.similar)
    lab.finding(
        f"{length} bits look very similar to the originals, {name}",
        paper="very similar at 1024 bits",
        ours=f"PSNR {decibels(decoded.at(length).mean())} dB, SSIM {decoded.similar[length]:.2f} "
        f"(similar from {SIMILAR:g} on)",
        holds=decoded.similar[length] >= SIMILAR if length == max(LENGTHS) else None,
    )


def add_repair(lab: Lab, paper: Decoded, ours: Decoded) -> None:
    """What bits of −1 and 1 with gradients of their own and other lengths are worth."""
    lengths = [length for length in LENGTHS if length <= ours.width]
    ratios = [float(ours.at(length).mean() / paper.at(length).mean()) for length in lengths]
    told = ", ".join(f"{ratio:.2f} at {length}" for ratio, length in zip(ratios, lengths, strict=True))
    lab.finding("the repaired network is nearer at all lengths shown", paper="not measured",
                ours=f"its error in units of the paper's network: {told} bits", holds=max(ratios) < 1)  # fmt: skip


def add_blocks(lab: Lab, images: Images, found: dict[str, Decoded]) -> None:
    """The figures and the table."""
    lab.figure(
        "reconstructions-rows",
        figure_rows(images, found),
        f"The first {SHOWN} test images of {images.name}, decoded from prefixes of their codes, above the originals. "
        "Numbers are the PSNR in dB over all that were measured.",
    )
    lab.figure("reconstructions-errors", figure_errors(found),
               "The error at every length, mean and range over seeds. Circles are where it is least.")  # fmt: skip
    rows = [[name, *(told(decoded, length) for length in LENGTHS)] for name, decoded in found.items()]
    lab.table(["", *(f"{length} bits" for length in LENGTHS)], rows,
              caption="Mean squared error of a pixel between 0 and 1 (± standard deviation over seeds), PSNR in dB and "
              "SSIM of the first seed.")  # fmt: skip


def told(decoded: Decoded, length: int) -> str:
    """Errors at a length in words."""
    if length > decoded.width:
        return "-"
    error, spread = decoded.at(length).mean(), decoded.at(length).std()
    plus = f" ± {spread:.4f}" if len(decoded.errors) > 1 else ""
    return f"{error:.4f}{plus}; {decibels(error)} dB; {decoded.similar[length]:.2f}"


def add_departures(lab: Lab, images: Images, found: dict[str, Decoded]) -> None:
    """What differs from the paper."""
    paper = RECIPES["paper"]
    width = found[NAMES["paper"]].width
    if width != paper.width:
        lab.departure(f"At this scale the networks have {width} bits instead of {paper.width}.")
    lab.departure(
        f"Networks learn from {len(images.train):,} images of {images.name}, for a time that fits the scale. The paper "
        f"does not state p_B and β of its compression network: {paper.lengths} and {paper.network.beta} are chosen."
    )
    lab.departure(f"The networks are measured on {len(images.test):,} test images, the coder on "
                  f"{min(FEW, len(images.test))} of them and at every eighth length.")  # fmt: skip
    lab.departure(f"What looks very similar is not measured in the paper; an SSIM of {SIMILAR:g} stands for it.")


def figure_rows(images: Images, found: dict[str, Decoded]) -> Figure:
    """A block for each method: a row for each length, the originals below."""
    lengths = [length for length in LENGTHS if any(length in decoded.shown for decoded in found.values())]
    side, gap = images.side, 2
    figure = Figure(figsize=(15, 0.55 * (len(lengths) + 1) + 0.6), layout="constrained")
    for number, (axes, (name, decoded)) in enumerate(zip(figure.subplots(1, len(found)), found.items(), strict=True)):
        canvas = np.full(((side + gap) * (len(lengths) + 1), (side + gap) * SHOWN, 3), 255, dtype=np.uint8)
        places = [(side + gap) * row + side / 2 for row in range(len(lengths) + 1)]
        for row, length in enumerate([*lengths, None]):
            rows = images.test[:SHOWN] if length is None else decoded.shown.get(length)
            if rows is None:
                axes.text(0, places[row], f"codes end at {decoded.width} bits", va="center", color="0.4")
                continue
            for column, picture in enumerate(images.as_images(rows)):
                top, left = row * (side + gap), column * (side + gap)
                canvas[top : top + side, left : left + side] = picture
            if length is not None:
                axes.text(canvas.shape[1] + 2, places[row], f"{decibels(decoded.at(length).mean()):.1f}", va="center")
        axes.imshow(canvas, interpolation="nearest")
        axes.set_title(name)
        axes.set_xticks([])
        axes.spines[:].set_visible(False)
        labels = [*(f"{length} bits" for length in lengths), "originals"] if number == 0 else []
        axes.set_yticks(places if labels else [], labels)
        axes.tick_params(length=0)
    return figure


def figure_errors(found: dict[str, Decoded]) -> Figure:
    """Errors by length."""
    figure = Figure(figsize=(7.5, 4.2), layout="constrained")
    axes = figure.subplots()
    for (name, decoded), color, line in zip(found.items(), ("#d55e00", "#0072b2", "#009e73"), ("-", "--", "-."),
                                            strict=True):  # fmt: skip
        bits, best = decoded.bits[1:], int(decoded.means.argmin())
        axes.plot(bits, decoded.means[1:], line, color=color, label=name)
        axes.fill_between(bits, decoded.errors[:, 1:].min(axis=0), decoded.errors[:, 1:].max(axis=0), color=color,
                          alpha=0.2)  # fmt: skip
        axes.plot(decoded.bits[best], decoded.means[best], "o", color=color, markersize=8, markerfacecolor="none")
    ticks = [b for b in (1, 4, *LENGTHS) if b <= max(decoded.width for decoded in found.values())]
    axes.set(xscale="log", yscale="log", xlabel="bits", ylabel="squared error of a pixel")
    axes.set_xticks(ticks, [str(b) for b in ticks])
    axes.set_yticks([0.1, 0.05, 0.02, 0.01, 0.005, 0.002], ["0.1", "0.05", "0.02", "0.01", "0.005", "0.002"])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    return figure


EXPERIMENT = Experiment(
    "reconstructions",
    "figure 5a, section 6",
    "Images from ever longer prefixes",
    "A single-layer 3072-1024-3072 autoencoder trained with nested dropout on CIFAR-10 decodes any number of bits, and "
    "its error falls with each of them. Reconstructions from 1024 bits look very similar to the originals of 24576 "
    "bits.",
    run,
)
