"""MSE by bits of an image: ordered and truncated networks, coders and image codecs."""

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

Errors = dict[str, Doubles]  # by order of the units, (seeds, width + 1): MSE by length

LONGEST = 1024  # bits, in the paper's figure
SEEN, ROUNDS = 1000, 32  # images that saliencies are estimated on, and rounds of iterative pruning
ORDERED, OBD, ITERATIVE_OBD, TRUNCATED = "nested dropout", "OBD", "OBD, iterative", "truncated"
NAMES = {"paper": "the paper's recipe", "ours": "repaired"}
NEEDS = {"JPEG": "jpg", "WebP": "webp", "AVIF": "avif", "JPEG 2000": "jpg_2000"}  # features of Pillow
TABLE = (16, 64, 128, 256, 512, 1024)


def run(lab: Lab) -> None:
    """Train networks, fit coders, encode by codecs, and compare their rate–distortion curves."""
    images = compression_images(lab)
    networks: dict[str, Errors] = {}
    for recipe in RECIPES:
        runs = [network_errors(lab, images, recipe, seed) for seed in lab.progress(lab.seeds, f"training {recipe}")]
        networks[recipe] = {name: np.array([one[name] for one in runs]) for name in runs[0]}
    kinds: tuple[type[LinearCoder | AdaptiveCoder], ...] = (LinearCoder, AdaptiveCoder)
    coders = [coder_curve(lab, images, kind) for kind in lab.progress(kinds, "fitting coders")]
    available = [name for name, need in NEEDS.items() if features.check(need)]
    codecs = {name: cached_codec(lab, images, CODECS[name]) for name in lab.progress(available, "codecs")}
    for recipe, errors in networks.items():
        add_orders(lab, NAMES[recipe], {name: each.mean(axis=0) for name, each in errors.items()})
    add_jpeg(lab, images.side, codecs["JPEG"], networks, coders)
    add_codecs(lab, coders[-1], codecs)
    lab.figure(
        "rates-bits",
        figure_rates(networks, coders, codecs),
        f"MSE of pixels on the scale from 0 to 1 by bits of an image, test images of {images.name}; bands are the "
        f"range over {len(lab.seeds)} seeds. Left and middle: networks with one layer of bits, trained with nested "
        "dropout, or without it and truncated, in the order of Optimal Brain Damage (OBD) or as they are. Right: "
        "codecs as files (solid) and without headers (dashed), and our coders.",
    )
    curves = [*coders, *(curve for pair in codecs.values() for curve in pair)]
    add_table(lab, networks, curves)
    add_departures(lab, images, networks, [name for name in NEEDS if name not in available])
    lab.measured |= {
        "networks": {NAMES[recipe]: {name: each.tolist() for name, each in errors.items()}
                     for recipe, errors in networks.items()},
        "curves": {curve.name: {"bits": curve.bits.tolist(), "errors": curve.errors.tolist()} for curve in curves},
    }  # fmt: skip


def network_errors(lab: Lab, images: Images, recipe: str, seed: int) -> Errors:
    """Return the MSE of the ordered network, and of the standard one in several orders, each (width + 1,)."""
    ordered = compression_network(lab, images, recipe, seed)
    plain = compression_network(lab, images, recipe, seed, nested=False)
    rows, identity = as_rows(images.train[:SEEN]), np.arange(plain.width)
    orders = {
        OBD: pruning_order(plain, rows),
        ITERATIVE_OBD: pruning_order(plain, rows, ROUNDS),
        TRUNCATED: identity,
    }
    return {
        ORDERED: errors_in_order(ordered, images.test, identity),
        **{name: errors_in_order(plain, images.test, order) for name, order in orders.items()},
    }


def measured_images(lab: Lab) -> int:
    """Return how many test images coders and codecs are measured on."""
    return lab.pick(toy=10, quick=200, full=2000)


def coder_curve(lab: Lab, images: Images, kind: type[LinearCoder | AdaptiveCoder]) -> Curve:
    """Return the curve of one of our coders, at every eighth length."""
    coder, test = compression_coder(lab, images, kind), images.test[: measured_images(lab)]
    codes, bits = coder.encode(as_rows(test)), np.arange(8, coder.width + 1, 8)
    errors = [pixel_mse(test, as_pixels(coder.decode(codes.prefix(int(length))))) for length in bits]
    return Curve(kind.__name__, "ours", bits.astype(np.float64), np.array(errors))


def cached_codec(lab: Lab, images: Images, codec: Codec) -> tuple[Curve, Curve]:
    """Return the curves of a codec with and without headers, over a part of its qualities and always the best."""
    every = lab.pick(toy=12, quick=4, full=2)
    qualities = sorted({*codec.qualities[::every], codec.qualities[-1]})
    test = np.ascontiguousarray(images.as_images(images.test[: measured_images(lab)]))

    def compute() -> dict[str, NDArray[Any]]:
        files, bare = codec_curves(codec, test, qualities)
        return {"files": np.array([files.bits, files.errors]), "bare": np.array([bare.bits, bare.errors])}

    stored = lab.cached(f"rates-{codec.name.replace(' ', '-')}", compute, qualities=qualities, items=len(test))
    return (
        Curve(codec.name, "codec", *stored["files"]),
        Curve(f"{codec.name}, no headers", "codec", *stored["bare"]),
    )


def first_crossing(lower: Doubles, upper: Doubles) -> int | None:
    """Return the first length, from 1 on, at which the first error is not below the second.

    >>> first_crossing(np.array([9.0, 4.0, 3.0, 2.0]), np.array([9.0, 5.0, 3.5, 1.0]))
    3
    """
    above = np.flatnonzero(lower[1:] >= upper[1:])
    return int(above[0]) + 1 if len(above) else None


def compare(curve: Curve, rival: Curve) -> tuple[str, bool | None]:
    """Return, in words and as a verdict, whether a curve is above its rival at all rates up to 1024 bits."""
    most = min(LONGEST, rival.bits[-1])
    ratios = {bits: error / own for bits, error in zip(curve.bits, curve.errors, strict=True)
              if bits <= most and (own := rival.at(bits)) is not None}  # fmt: skip
    if not ratios:
        return f"too large to compare: its smallest has {curve.bits[0]:,.0f} bits", None
    lowest = min(ratios, key=lambda bits: ratios[bits])
    above = sum(ratio > 1 for ratio in ratios.values())
    text = f"at {above} of {len(ratios)} rates up to {most:.0f} bits; lowest ratio of MSE {ratios[lowest]:.2f}, "
    return text + f"at {lowest:.0f} bits", above == len(ratios)


def add_orders(lab: Lab, recipe: str, means: Errors) -> None:
    """Report whether nested dropout is below Optimal Brain Damage and that below truncation, and where they cross."""
    width = len(means[ORDERED]) - 1
    short = slice(1, width // 4 + 1)
    for lower, upper in ((ORDERED, OBD), (OBD, TRUNCATED), (ORDERED, ITERATIVE_OBD)):
        ratio = means[lower][short] / means[upper][short]
        cross = first_crossing(means[lower], means[upper])
        end = means[lower][-1] / means[upper][-1]
        lab.finding(
            f"{lower} is below {upper} at short lengths, {recipe}",
            paper="below" if upper != ITERATIVE_OBD and recipe == NAMES["paper"] else None,
            ours=f"at {(ratio < 1).mean():.0%} of lengths up to {width // 4} bits, with {ratio.mean():.2f} of its MSE; "
            + ("nowhere above" if cross is None else f"first not below at {cross} bits")
            + f", {end:.2f} of it at {width}",
            holds=bool((ratio < 1).all()),
        )


def add_jpeg(lab: Lab, side: int, jpeg: tuple[Curve, Curve], networks: dict[str, Errors], coders: list[Curve]) -> None:
    """Report JPEG on small images, and at its best quality."""
    files, bare = jpeg
    rivals = {
        f"{ORDERED}, {NAMES[recipe]}": Curve(recipe, "network", np.arange(len(errors[ORDERED][0])).astype(np.float64),
                                             errors[ORDERED].mean(axis=0))
        for recipe, errors in networks.items()
    } | {coder.name: coder for coder in coders}  # fmt: skip
    lab.finding(
        f"JPEG is not suited for images of {side} x {side} pixels: its files are larger",
        paper=f"above the ordered codes up to {LONGEST} bits",
        ours=f"the smallest file has {files.bits[0]:,.0f} bits, {bare.bits[0]:,.0f} without headers",
        holds=bool(files.bits[0] > LONGEST),
        seeds=(),
    )
    for name, rival in rivals.items():
        text, holds = compare(bare, rival)
        claim = f"above up to {LONGEST} bits" if name.endswith(NAMES["paper"]) else None
        lab.finding(f"JPEG without headers is above {name}", paper=claim, ours=text, holds=holds, seeds=())
    lab.finding("MSE of JPEG at its maximum quality", paper="approximately 0.0003",
                ours=f"{files.errors[-1]:.5f} at {files.bits[-1]:,.0f} bits",
                holds=bool(0.00015 < files.errors[-1] < 0.0006), seeds=())  # fmt: skip


def add_codecs(lab: Lab, best: Curve, codecs: dict[str, tuple[Curve, Curve]]) -> None:
    """Report modern codecs beside our best coder, with and without headers."""
    for curve in (curve for name, pair in codecs.items() if name != "JPEG" for curve in pair):
        text, holds = compare(curve, best)
        lab.finding(f"{curve.name} is above {best.name}", ours=text, holds=holds, seeds=())


def add_table(lab: Lab, networks: dict[str, Errors], curves: list[Curve]) -> None:
    """Add a table of MSE at some rates."""
    rows = []
    for recipe, errors in networks.items():
        for name, each in errors.items():
            cells = [f"{each[:, b].mean():.4f} ± {each[:, b].std():.4f}" if b < each.shape[1] else "-" for b in TABLE]
            rows.append([f"{name}, {NAMES[recipe]}", *cells])
    for curve in curves:
        found = [curve.at(b) for b in TABLE]
        rows.append([curve.name, *("-" if error is None else f"{error:.4f}" for error in found)])
    lab.table(["MSE", *(f"{b} bits" for b in TABLE)], rows,
              caption=f"MSE by bits; networks with the standard deviation over {len(lab.seeds)} seeds.")  # fmt: skip


def add_departures(lab: Lab, images: Images, networks: dict[str, Errors], missing: list[str]) -> None:
    """Record where the experiment departs from the paper."""
    width = networks["paper"][ORDERED].shape[1] - 1
    if width != RECIPES["paper"].width:
        lab.departure(f"At this scale the networks have {width} bits instead of {RECIPES['paper'].width}.")
    lab.departure(
        f"Networks are trained on {len(images.train):,} images of {images.name} for a time that fits the scale and "
        f"measured on {len(images.test):,} others; coders and codecs on the first {measured_images(lab):,} of these. "
        "Decoded pixels are rounded to 8 bits."
    )
    lab.departure("The paper does not state whether JPEG's headers count: both are shown. Its libjpeg is Pillow's "
                  "here, with chroma subsampling and optimized Huffman tables.")  # fmt: skip
    if images.side != 32:
        lab.departure(f"Without CIFAR-10, images have {images.side} x {images.side} pixels.")
    if missing:
        lab.departure(f"This Pillow lacks {', '.join(missing)}.")


EXPERIMENT = Experiment(
    "rates",
    "figure 5b",
    "Rate–distortion of ordered codes, truncated codes and codecs",
    "An ordered representation has a lower error at short lengths than a standard autoencoder of the same "
    "architecture, truncated in the order of Optimal Brain Damage, and that a lower one than plain truncation. JPEG is "
    "not suited for images of 32 x 32 pixels; at its maximum quality its loss is about 0.0003.",
    run,
)
