"""Figure 5b of the paper: errors by bits, of ordered and of truncated networks, and of image codecs."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import features

from nestcode.arrays import Doubles
from nestcode.coders import AdaptiveCoder, LinearCoder
from nestcode.reproduce.lab import Experiment, Images, Lab
from nestcode.reproduce.lab.codecs import CODECS, Codec
from nestcode.reproduce.lab.images import as_pixels, as_rows, pixel_mse
from nestcode.reproduce.lab.networks import RECIPES, compression_coder, compression_images, compression_network
from nestcode.reproduce.lab.optimal_brain_damage import errors_in_order, pruning_order
from nestcode.reproduce.lab.rate_distortion import Curve, codec_curves
from nestcode.reproduce.rates.figures import figure_rates

Errors = dict[str, Doubles]  # (seeds, width + 1) of each order: by length

LONGEST = 1024  # bits, in the paper's figure
SEEN, ROUNDS = 1000, 32  # images that damage is estimated on, and how often where it is repeated
ORDERED, DAMAGE, REPEATED, TRUNCATED = "nested dropout", "OBD", "OBD, repeated", "truncated"
NAMES = {"paper": "the paper's recipe", "ours": "repaired"}
NEEDS = {"JPEG": "jpg", "WebP": "webp", "AVIF": "avif", "JPEG 2000": "jpg_2000"}  # as Pillow calls them
TABLE = (16, 64, 128, 256, 512, 1024)


def network_errors(lab: Lab, images: Images, recipe: str, seed: int) -> Errors:
    """Errors of the ordered network, and of the standard one in several orders, each (width + 1,)."""
    ordered = compression_network(lab, images, recipe, seed)
    plain = compression_network(lab, images, recipe, seed, nested=False)
    rows, own = as_rows(images.train[:SEEN]), np.arange(plain.width)
    orders = {DAMAGE: pruning_order(plain, rows), REPEATED: pruning_order(plain, rows, ROUNDS), TRUNCATED: own}
    return {
        ORDERED: errors_in_order(ordered, images.test, own),
        **{name: errors_in_order(plain, images.test, order) for name, order in orders.items()},
    }


def few(lab: Lab) -> int:
    """How many test images coders and codecs have, the same for all."""
    return lab.pick(toy=10, quick=200, full=2000)


def coder_curve(lab: Lab, images: Images, kind: type[LinearCoder | AdaptiveCoder]) -> Curve:
    """One of our coders, at every eighth length."""
    coder, test = compression_coder(lab, images, kind), images.test[: few(lab)]
    codes, bits = coder.encode(as_rows(test)), np.arange(8, coder.width + 1, 8)
    errors = [pixel_mse(test, as_pixels(coder.decode(codes.prefix(int(length))))) for length in bits]
    return Curve(kind.__name__, "ours", bits.astype(np.float64), np.array(errors))


def kept_codec(lab: Lab, images: Images, codec: Codec) -> tuple[Curve, Curve]:
    """A codec's curves, or those that were kept; the worst and the best quality are among them."""
    every = lab.pick(toy=12, quick=4, full=2)
    qualities = sorted({*codec.qualities[::every], codec.qualities[-1]})
    pictures = np.ascontiguousarray(images.as_images(images.test[: few(lab)]))

    def make() -> dict[str, NDArray[Any]]:
        files, bare = codec_curves(codec, pictures, qualities)
        return {"files": np.array([files.bits, files.errors]), "bare": np.array([bare.bits, bare.errors])}

    kept = lab.cached(f"rates-{codec.name.replace(' ', '-')}", make, qualities=qualities, items=len(pictures))
    return (
        Curve(codec.name, "codec", *kept["files"]),
        Curve(f"{codec.name}, no headers", "codec", *kept["bare"]),
    )


def first_crossing(lower: Doubles, upper: Doubles) -> int | None:
    """The first length, from 1 on, at which the first error is not below the second.

    >>> first_crossing(np.array([9.0, 4.0, 3.0, 2.0]), np.array([9.0, 5.0, 3.5, 1.0]))
    3
    """
    above = np.flatnonzero(lower[1:] >= upper[1:])
    return int(above[0]) + 1 if len(above) else None


def run(lab: Lab) -> None:
    """Train, truncate, compress, and compare."""
    images = compression_images(lab)
    networks: dict[str, Errors] = {}
    for recipe in RECIPES:
        runs = [network_errors(lab, images, recipe, seed) for seed in lab.progress(lab.seeds, f"training {recipe}")]
        networks[recipe] = {name: np.array([one[name] for one in runs]) for name in runs[0]}
    kinds: tuple[type[LinearCoder | AdaptiveCoder], ...] = (LinearCoder, AdaptiveCoder)
    coders = [coder_curve(lab, images, kind) for kind in lab.progress(kinds, "fitting coders")]
    there = [name for name, need in NEEDS.items() if features.check(need)]
    codecs = {name: kept_codec(lab, images, CODECS[name]) for name in lab.progress(there, "codecs")}
    for recipe, errors in networks.items():
        add_order(lab, NAMES[recipe], {name: each.mean(axis=0) for name, each in errors.items()})
    add_jpeg(lab, images.side, codecs["JPEG"], networks, coders)
    add_codecs(lab, coders[-1], codecs)
    lab.figure(
        "rates-bits",
        figure_rates(networks, coders, codecs),
        f"Mean squared error of a pixel between 0 and 1 by bits of an image, test images of {images.name}; bands are "
        f"the range over {len(lab.seeds)} seeds. Left and middle: networks of one layer of bits with nested dropout, "
        "and the same trained without it, truncated in the order of Optimal Brain Damage (OBD) or in none. Right: "
        "codecs as files (lines) and without headers (dashes), and our coders.",
    )
    add_table(lab, networks, [*coders, *(curve for pair in codecs.values() for curve in pair)])
    add_departures(lab, images, networks, [name for name in NEEDS if name not in there])
    lab.measured |= {
        "networks": {NAMES[recipe]: {name: each.tolist() for name, each in errors.items()}
                     for recipe, errors in networks.items()},
        "curves": {curve.name: {"bits": curve.bits.tolist(), "errors": curve.errors.tolist()}
                   for curve in (*coders, *(curve for pair in codecs.values() for curve in pair))},
    }  # fmt: skip


def add_order(lab: Lab, name: str, means: Errors) -> None:
    """Nested dropout below Optimal Brain Damage below truncation: where, and where they cross."""
    width = len(means[ORDERED]) - 1
    short = slice(1, width // 4 + 1)
    for lower, upper in ((ORDERED, DAMAGE), (DAMAGE, TRUNCATED), (ORDERED, REPEATED)):
        ratio = means[lower][short] / means[upper][short]
        cross = first_crossing(means[lower], means[upper])
        end = means[lower][-1] / means[upper][-1]
        lab.finding(
            f"{lower} is below {upper} at short lengths, {name}",
            paper="below" if upper != REPEATED else "not measured",
            ours=f"up to {width // 4} bits at {(ratio < 1).mean():.0%} of lengths, {ratio.mean():.2f} of its error; "
            + ("nowhere above" if cross is None else f"first not below at {cross} bits")
            + f", {end:.2f} of it at {width}",
            holds=bool((ratio < 1).all()),
        )


def add_jpeg(lab: Lab, side: int, jpeg: tuple[Curve, Curve], networks: dict[str, Errors], coders: list[Curve]) -> None:
    """JPEG on small images, and at its best."""
    files, bare = jpeg
    rivals = {
        f"{ORDERED}, {NAMES[recipe]}": Curve(recipe, "network", np.arange(len(errors[ORDERED][0])).astype(np.float64),
                                             errors[ORDERED].mean(axis=0))
        for recipe, errors in networks.items()
    } | {coder.name: coder for coder in coders}  # fmt: skip
    lab.finding(
        f"JPEG is not suited for images of {side} x {side} pixels: its files are larger",
        paper=f"above the ordered codes up to {LONGEST} bits",
        ours=f"the smallest has {files.bits[0]:,.0f} bits, {bare.bits[0]:,.0f} of them not headers",
        holds=bool(files.bits[0] > LONGEST),
    )
    for name, rival in rivals.items():
        told, holds = compared(bare, rival)
        says = f"above up to {LONGEST} bits" if ORDERED in name else "not measured"
        lab.finding(f"JPEG without headers is above {name}", paper=says, ours=told, holds=holds)
    lab.finding("the loss of JPEG at its maximum quality", paper="approximately 0.0003",
                ours=f"{files.errors[-1]:.5f} at {files.bits[-1]:,.0f} bits",
                holds=bool(0.00015 < files.errors[-1] < 0.0006))  # fmt: skip


def add_codecs(lab: Lab, best: Curve, codecs: dict[str, tuple[Curve, Curve]]) -> None:
    """Our coder beside modern codecs, with headers and without."""
    for curve in (curve for name, pair in codecs.items() if name != "JPEG" for curve in pair):
        told, holds = compared(curve, best)
        lab.finding(f"{curve.name} is above {best.name}", paper="not measured", ours=told, holds=holds)


def compared(curve: Curve, rival: Curve) -> tuple[str, bool | None]:
    """At which sizes up to the rival's largest, and 1024 bits, a curve is above it; in words, and whether at all."""
    most = min(LONGEST, rival.bits[-1])
    ratios = {bits: error / own for bits, error in zip(curve.bits, curve.errors, strict=True)
              if bits <= most and (own := rival.at(bits)) is not None}  # fmt: skip
    if not ratios:
        return f"too large to compare: its smallest has {curve.bits[0]:,.0f} bits", None
    nearest = min(ratios, key=lambda bits: ratios[bits])
    above = sum(ratio > 1 for ratio in ratios.values())
    told = f"at {above} of {len(ratios)} sizes up to {most:.0f} bits; least {ratios[nearest]:.2f} of its error, "
    return told + f"at {nearest:.0f} bits", above == len(ratios)


def add_table(lab: Lab, networks: dict[str, Errors], curves: list[Curve]) -> None:
    """Errors at some sizes."""
    rows = []
    for recipe, errors in networks.items():
        for name, each in errors.items():
            cells = [f"{each[:, b].mean():.4f} ± {each[:, b].std():.4f}" if b < each.shape[1] else "-" for b in TABLE]
            rows.append([f"{name}, {NAMES[recipe]}", *cells])
    for curve in curves:
        found = [curve.at(b) for b in TABLE]
        rows.append([curve.name, *("-" if error is None else f"{error:.4f}" for error in found)])
    lab.table(["", *(f"{b} bits" for b in TABLE)], rows,
              caption=f"Errors by bits; networks with the standard deviation over {len(lab.seeds)} seeds.")  # fmt: skip


def add_departures(lab: Lab, images: Images, networks: dict[str, Errors], missing: list[str]) -> None:
    """What differs from the paper."""
    width = networks["paper"][ORDERED].shape[1] - 1
    if width != RECIPES["paper"].width:
        lab.departure(f"At this scale the networks have {width} bits instead of {RECIPES['paper'].width}.")
    lab.departure(
        f"Networks learn from {len(images.train):,} images of {images.name} and are measured on "
        f"{len(images.test):,} others, for a time that fits the scale; coders and codecs on the first {few(lab):,} of "
        "these. What decodes is rounded to whole pixels."
    )
    lab.departure("The paper does not say if JPEG's headers count: both are shown. Its libjpeg is Pillow's here, with "
                  "halved colors and tables made for the image.")  # fmt: skip
    if images.side != 32:
        lab.departure(f"Images have {images.side} x {images.side} pixels where CIFAR-10 is not given.")
    if missing:
        lab.departure(f"This Pillow has no {', '.join(missing)}: left out.")


EXPERIMENT = Experiment(
    "rates",
    "figure 5b",
    "Errors by bits: ordered, truncated, and codecs",
    "An ordered representation has a lower error at short lengths than a standard autoencoder of the same "
    "architecture, truncated in the order of Optimal Brain Damage, and that a lower one than plain truncation. JPEG is "
    "not suited for images of 32 x 32 pixels; at its maximum quality its loss is about 0.0003.",
    run,
)
