"""MSE by code length: ordered and truncated networks, coders and image codecs."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import features

from nestcode.arrays import Doubles
from nestcode.coders import AdaptiveCoder, LinearCoder
from nestcode.reproduce.lab import Experiment, Images, Lab
from nestcode.reproduce.lab.codecs import CODECS, Codec
from nestcode.reproduce.lab.compression import (
    ITERATIVE_OBD,
    OBD,
    ORDERED,
    READINGS,
    REFITTED,
    TRUNCATED,
    Compressed,
    Reading,
    compression,
    compression_coder,
    compression_images,
    reading_seeds,
)
from nestcode.reproduce.lab.images import as_pixels, as_rows, pixel_mse
from nestcode.reproduce.lab.rate_distortion import Curve, codec_curves, sign_errors
from nestcode.reproduce.lab.verdicts import judged
from nestcode.reproduce.rates.figures import figure_rates, figure_training

LONGEST = 1024  # bits, in the paper's figure
NEEDS = {"JPEG": "jpg", "WebP": "webp", "AVIF": "avif", "JPEG 2000": "jpg_2000"}  # features of Pillow
TABLE = (16, 64, 128, 256, 512, 1024)
PAPER_PAIRS = 2  # of the comparisons of networks, the first ones, are the paper's
SIGNED = (256, 512, 1024)  # bits that are the signs of as many principal components

Runs = dict[Reading, list[Compressed]]  # one per seed


def run(lab: Lab) -> None:
    """Train networks, fit coders, encode by codecs, and compare their rate–distortion curves."""
    images = compression_images(lab)
    runs: Runs = {
        reading: [
            compression(lab, images, reading, seed)
            for seed in lab.progress(reading_seeds(lab, reading), f"training, {name}")
        ]
        for reading, name in READINGS.items()
    }
    coders, codecs = others(lab, images)
    add_order(lab, runs)
    add_late_units(lab, runs, images)
    add_jpeg(lab, images.side, codecs["JPEG"], runs, coders)
    add_codecs(lab, coders[-1], codecs)
    lab.figure(
        "rates-bits",
        figure_rates(runs, coders, codecs),
        f"MSE of pixels on the scale from 0 to 1 by code length, test images of {images.name}. Left and middle: the "
        "network with 1,024 bits and with 1,024 real-valued units, trained with nested dropout, or without it and "
        "truncated, in the order of Optimal Brain Damage (OBD) or as it is, mean and range over seeds; JPEG is without "
        "headers. Right: codecs as "
        "files (solid) and without headers (dashed), and our coders.",
    )
    lab.figure("rates-training", figure_training(runs),
               "Training loss of the ordered networks by examples seen; thin lines are further seeds.")  # fmt: skip
    signs = [sign_curve(lab, images)] if images.side == 32 and runs["bits"][0].width == LONGEST else []
    curves = [*coders, *signs, *(curve for pair in codecs.values() for curve in pair)]
    add_table(lab, runs, curves)
    add_departures(lab, images, runs, [name for name in NEEDS if name not in codecs])
    lab.measured |= {
        "networks": {
            READINGS[reading]: [
                {"seed": seed, "examples": one.examples, "training images": one.train.tolist(),
                 "curve": one.curve.tolist(), **{name: each.tolist() for name, each in one.errors.items()}}
                for seed, one in zip(lab.seeds, each, strict=False)
            ]
            for reading, each in runs.items()
        },
        "curves": {curve.name: {"bits": curve.bits.tolist(), "errors": curve.errors.tolist()} for curve in curves},
    }  # fmt: skip


def others(lab: Lab, images: Images) -> tuple[list[Curve], dict[str, tuple[Curve, Curve]]]:
    """Return the curves of our coders, and those of the codecs that Pillow has, with and without headers."""
    kinds: tuple[type[LinearCoder | AdaptiveCoder], ...] = (LinearCoder, AdaptiveCoder)
    coders = [coder_curve(lab, images, kind) for kind in lab.progress(kinds, "fitting coders")]
    available = [name for name, need in NEEDS.items() if features.check(need)]
    return coders, {name: cached_codec(lab, images, CODECS[name]) for name in lab.progress(available, "codecs")}


def sign_curve(lab: Lab, images: Images) -> Curve:
    """Return the curve of the signs of principal components."""
    stored = lab.cached("rates-signs", lambda: {"errors": sign_errors(images, SIGNED)}, items=images.train.shape)
    return Curve("signs of principal components", "ours", np.array(SIGNED, dtype=np.float64), stored["errors"])


def measured_images(lab: Lab) -> int:
    """Return how many test images coders and codecs are measured on."""
    return lab.pick(toy=10, quick=200, full=500)


def coder_curve(lab: Lab, images: Images, kind: type[LinearCoder | AdaptiveCoder]) -> Curve:
    """Return the curve of one of our coders, at every eighth length."""
    coder, test = compression_coder(lab, images, kind), images.test[: measured_images(lab)]
    bits = np.arange(8, coder.width + 1, 8)

    def compute() -> dict[str, Doubles]:
        codes = coder.encode(as_rows(test))
        return {"errors": np.array([pixel_mse(test, as_pixels(coder.decode(codes.prefix(int(b))))) for b in bits])}

    stored = lab.cached(f"rates-{kind.__name__}", compute, width=coder.width, items=len(test))
    return Curve(kind.__name__, "ours", bits.astype(np.float64), stored["errors"])


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


def add_order(lab: Lab, runs: Runs) -> None:
    """Report whether nested dropout is below Optimal Brain Damage and that below truncation, and where they cross."""
    pairs = ((ORDERED, OBD), (OBD, TRUNCATED), (REFITTED, OBD), (ORDERED, ITERATIVE_OBD))
    for place, (lower, upper) in enumerate(pairs):
        texts, verdicts = [], {}
        for reading, each in runs.items():
            width = each[0].width
            below, above = (np.array([one.errors[name] for one in each]) for name in (lower, upper))  # (seeds, lengths)
            ratio = (below / above)[:, 1 : width // 4 + 1]
            crossings = [cross for pair in zip(below, above, strict=True) if (cross := first_crossing(*pair))]
            verdicts[reading] = bool((ratio < 1).all())
            texts.append(
                f"{READINGS[reading]}: at {(ratio < 1).mean():.0%} of lengths up to {width // 4}, with "
                f"{ratio.mean():.2f} of its MSE; "
                + (f"first not below at {min(crossings)}" if crossings else "nowhere above")
                + f", {(below / above)[:, -1].mean():.2f} of it at {width}"
            )
        text, holds = judged(verdicts)
        lab.finding(
            f"{lower} is below {upper} at short lengths",
            paper="below" if place < PAPER_PAIRS else None,
            ours=f"{text}. {'. '.join(texts)}" + (f". {concentration(runs)}" if (lower, upper) == pairs[1] else ""),
            holds=holds,
        )


def concentration(runs: Runs) -> str:
    """Describe how unequal the units of the standard autoencoder are: what Optimal Brain Damage can gain by."""
    shares = {}
    for reading, each in runs.items():
        ordered = [np.sort(one.saliency.clip(min=0))[::-1] for one in each]
        shares[reading] = np.mean([own[: len(own) // 10].sum() / own.sum() for own in ordered])
    return "The most salient tenth of the units has " + ", ".join(
        f"{share:.0%} of the saliency of {READINGS[reading]}" for reading, share in shares.items()
    )


def add_late_units(lab: Lab, runs: Runs, images: Images) -> None:
    """Report whether late units carry information: the error at each doubling of the length."""
    for reading, each in runs.items():
        seeds = reading_seeds(lab, reading)
        lengths = [2**k for k in range(4, each[0].width.bit_length())]
        errors = np.array([one.errors[REFITTED] for one in each])  # (seeds, lengths)
        text = ", ".join(f"{errors[:, b].mean():.4f} at {b}" for b in lengths)
        lab.finding(f"the error of test images falls at every doubling of the length, {READINGS[reading]}", ours=text,
                    holds=bool(np.all(np.diff(errors[:, lengths]) < 0)), seeds=seeds)  # fmt: skip
        if images.side == 32 and each[0].width == LONGEST:
            gains = errors[:, SIGNED[1:]] / errors[:, SIGNED[:-1]] - 1
            signs = np.exp(np.diff(np.log(sign_curve(lab, images).errors))) - 1
            lab.finding(
                f"late units gain more than signs of principal components, {READINGS[reading]}",
                ours=f"256 to 512: {gains[:, 0].mean():+.1%} ({signs[0]:+.1%} by signs); 512 to 1024: "
                f"{gains[:, 1].mean():+.1%} ({signs[1]:+.1%})",
                holds=bool(np.all(gains < signs)),
                seeds=seeds,
            )
        plain = np.array([one.errors[ORDERED][-1] for one in each])
        lab.finding(f"the refit lowers the error at full width, {READINGS[reading]}",
                    ours=f"{plain.mean():.4f} before, {errors[:, -1].mean():.4f} after",
                    holds=bool(np.all(errors[:, -1] < plain)), seeds=seeds)  # fmt: skip


def add_jpeg(lab: Lab, side: int, jpeg: tuple[Curve, Curve], runs: Runs, coders: list[Curve]) -> None:
    """Report JPEG on small images, and at its best quality."""
    files, bare = jpeg
    texts, verdicts = [], {}
    for reading, each in runs.items():
        compared = [compare(bare, as_curve(READINGS[reading], one.errors[ORDERED])) for one in each]
        texts.append(f"{READINGS[reading]}: {compared[0][0]}")
        verdicts[reading] = all(holds for _, holds in compared)
    text, holds = judged(verdicts)
    lab.finding(
        f"JPEG is above the ordered codes up to {LONGEST}: it is not suited for images of {side} x {side} pixels",
        paper="above",
        ours=f"without headers: {text}. {'. '.join(texts)}. The smallest file has {files.bits[0]:,.0f} bits",
        holds=holds,
    )
    for coder in coders:
        text, above = compare(bare, coder)
        lab.finding(f"JPEG without headers is above {coder.name}", ours=text, holds=above, seeds=())
    lab.finding("MSE of JPEG at its maximum quality", paper="approximately 0.0003",
                ours=f"{files.errors[-1]:.5f} at {files.bits[-1]:,.0f} bits",
                holds=bool(0.00015 < files.errors[-1] < 0.0006), seeds=())  # fmt: skip


def as_curve(name: str, errors: Doubles) -> Curve:
    """Return the curve of a network by its code length."""
    return Curve(name, "network", np.arange(len(errors)).astype(np.float64), errors)


def add_codecs(lab: Lab, best: Curve, codecs: dict[str, tuple[Curve, Curve]]) -> None:
    """Report modern codecs beside our best coder, with and without headers."""
    for curve in (curve for name, pair in codecs.items() if name != "JPEG" for curve in pair):
        text, holds = compare(curve, best)
        lab.finding(f"{curve.name} is above {best.name}", ours=text, holds=holds, seeds=())


def add_table(lab: Lab, runs: Runs, curves: list[Curve]) -> None:
    """Add a table of MSE at some rates."""
    rows = []
    for reading, each in runs.items():
        for seed, one in zip(lab.seeds, each, strict=False):
            note = f"{READINGS[reading]}, seed {seed}, {one.examples / 1e6:.3g} million examples"
            by_name = {**one.errors, f"{REFITTED}, training images": one.train}
            rows += [
                [f"{name}, {note}", *(f"{errors[b]:.4f}" if b <= one.width else "-" for b in TABLE)]
                for name, errors in by_name.items()
            ]
    for curve in curves:
        found = [curve.at(b) for b in TABLE]
        rows.append([curve.name, *("-" if error is None else f"{error:.4f}" for error in found)])
    lab.table(["MSE", *(f"{b} bits or units" for b in TABLE)], rows, caption="MSE of test images by code length.")


def add_departures(lab: Lab, images: Images, runs: Runs, missing: list[str]) -> None:
    """Record where the experiment departs from the paper."""
    one = runs["bits"][0]
    if one.width != LONGEST:
        lab.departure(f"At this scale the networks have {one.width} units instead of {LONGEST}.")
    lab.departure(
        "The paper does not state whether this network was binarized, nor p_B, nor the budget: we train both readings "
        f"with a geometric p_B of mean {one.width // 5}, by Adam, swept in the second half, on "
        f"{one.examples / 1e6:.3g} million examples of "
        f"{len(images.train):,} images of {images.name} and their mirror images. Claims are judged on networks as they "
        "were trained; the ordered one with a decoder refitted by least squares on its fixed codes is beside it. "
        f"All are measured on {len(images.test):,} other images, coders and codecs on the first "
        f"{measured_images(lab):,} of these. Decoded pixels are rounded to 8 bits."
    )
    lab.departure(
        "The rate of p_B and the lengths that the decoder is refitted for are those, out of two and three, of least "
        "error at full width on 1,000 training images that a network of 256 bits had not seen, downsampled. "
        "Claims are judged on bits, of which the text speaks; the network of real-valued units is shown beside it."
    )
    lab.departure("The paper does not state whether JPEG's headers count: both are shown, and JPEG is judged "
                  "without. Its libjpeg is Pillow's "
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
