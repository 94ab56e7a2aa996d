"""Test images decoded from prefixes: MSE at every length, PSNR and SSIM at some."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from nestcode.arrays import Doubles, Ids
from nestcode.coders import AdaptiveCoder, Coder
from nestcode.metrics import ssim
from nestcode.reproduce.lab import Experiment, Images, Lab
from nestcode.reproduce.lab.compression import (
    ORDERED,
    READINGS,
    REFITTED,
    SHOWN,
    SHOWN_LENGTHS,
    Compressed,
    Reading,
    compression,
    compression_coder,
    compression_images,
    reading_seeds,
)
from nestcode.reproduce.lab.images import Pixels, as_pixels, as_rows, pixel_mse
from nestcode.reproduce.lab.verdicts import SIMILAR_SSIM, judged
from nestcode.reproduce.reconstructions.figures import Decoded, figure_errors, figure_rows, psnr_of

Networks = Mapping[Reading, Sequence[Compressed]]  # one per seed
Decode = Callable[[int], Pixels]  # test images from a prefix of this length, (n, features)

CODER_IMAGES = 500  # test images of the coder, which decodes at every eighth length
CODER = "our adaptive coder"


def run(lab: Lab) -> None:
    """Decode test images from prefixes of both networks' codes and of a coder's."""
    images = compression_images(lab)
    networks = {
        reading: [compression(lab, images, reading, seed) for seed in reading_seeds(lab, reading)]
        for reading in READINGS
    }
    found = {READINGS[reading]: as_decoded(each) for reading, each in networks.items()}
    with lab.console.status(f"  {CODER}"):
        coder = compression_coder(lab, images, AdaptiveCoder)
        test = images.test[:CODER_IMAGES]
        decode, bits = coder_decoder(coder, test), np.arange(0, coder.width + 1, 8)
        coder_errors = [pixel_mse(test, decode(length)) for length in bits.tolist()]
        found[CODER] = decode_lengths(images, bits, np.array([coder_errors]), decode)
    add_claims(lab, networks)
    add_coder(lab, found[CODER])
    whole, longest = 8 * images.test.shape[1], found[CODER].width
    lab.finding("an original image has 24,576 bits", ours=f"{whole}, {whole / longest:.0f} times the longest code",
                holds=whole == 24_576 if images.side == 32 else None, seeds=())  # fmt: skip
    add_figures(lab, images, found)
    add_departures(lab, images, networks)
    lab.measured |= {
        name: {
            "bits": decoded.bits.tolist(),
            "errors": decoded.errors.tolist(),
            "ssim": {str(length): value for length, value in decoded.ssim.items()},
        }
        for name, decoded in found.items()
    }


def as_decoded(each: Sequence[Compressed]) -> Decoded:
    """Return what networks decode; images and SSIM are the first's."""
    errors = np.array([one.errors[REFITTED] for one in each])
    return Decoded(np.arange(each[0].width + 1), errors, each[0].shown, each[0].ssim)


def coder_decoder(coder: Coder, X: Pixels) -> Decode:
    """Return a function that decodes prefixes of a coder's codes."""
    codes = coder.encode(as_rows(X))
    return lambda length: as_pixels(coder.decode(codes.prefix(length)))


def decode_lengths(images: Images, bits: Ids, errors: Doubles, decode: Decode) -> Decoded:
    """Decode test images at the lengths shown, and measure their SSIM."""
    by_length = {length: decode(length) for length in SHOWN_LENGTHS if length <= bits[-1]}
    similarity = {
        length: round(ssim(images.as_images(images.test[: len(rows)]), images.as_images(rows)), 4)
        for length, rows in by_length.items()
    }
    return Decoded(bits, errors, {length: rows[:SHOWN] for length, rows in by_length.items()}, similarity)


def falls(errors: Doubles) -> str:
    """Describe how many steps of a curve fall, and by how much it rises at most.

    >>> falls(np.array([4.0, 2.0, 3.0, 1.0]))
    '2 of 3 fall, the largest rise is 50.0%'
    """
    changes = errors[1:] / errors[:-1] - 1
    rise = f", the largest rise is {changes.max():.1%}" if changes.max() > 0 else ""
    return f"{(changes < 0).sum()} of {len(changes)} fall{rise}"


def add_claims(lab: Lab, networks: Networks) -> None:
    """Report whether every unit lowers the error, and how similar images of the longest code are."""
    for name, paper in ((ORDERED, "decreases monotonically with b"), (REFITTED, None)):
        verdicts = {
            reading: all(bool(np.all(np.diff(one.errors[name]) < 0)) for one in each)
            for reading, each in networks.items()
        }
        text, holds = judged(verdicts)
        words = "; ".join(
            f"{READINGS[reading]}: {' | '.join(falls(one.errors[name]) for one in each)}"
            for reading, each in networks.items()
        )
        lab.finding(
            f"the error falls with every unit{'' if paper else ', decoder refitted'}",
            paper=paper,
            ours=f"{text}. Steps of test images by seed, {words}",
            holds=holds,
        )
    shown = [b for b in SHOWN_LENGTHS if b <= networks["bits"][0].width]
    last = shown[-1]
    text, holds = judged({r: min(one.ssim[last] for one in each) >= SIMILAR_SSIM for r, each in networks.items()})
    similar = "; ".join(
        f"{READINGS[reading]}: PSNR {psnr_of(float(np.mean([one.errors[REFITTED][last] for one in each])))} dB, SSIM "
        f"{np.mean([one.ssim[last] for one in each]):.2f}"
        for reading, each in networks.items()
    )
    lab.finding(
        f"images of {last} bits look very similar to the originals",
        paper="very similar at 1024",
        ours=f"{text} (SSIM of {SIMILAR_SSIM:g} and above). {similar}",
        holds=holds if last == max(SHOWN_LENGTHS) else None,
    )


def add_coder(lab: Lab, decoded: Decoded) -> None:
    """Report the same of our coder."""
    length = max(decoded.ssim)
    lab.finding(
        f"the error falls with every 8 bits, {CODER}",
        ours=f"steps: {falls(decoded.means)}; at {length} bits PSNR {psnr_of(decoded.at(length).mean())} dB, SSIM "
        f"{decoded.ssim[length]:.2f}",
        holds=bool(np.all(np.diff(decoded.means) < 0)),
        seeds=(),
    )


def add_figures(lab: Lab, images: Images, found: dict[str, Decoded]) -> None:
    """Add the figures and the table."""
    lab.figure(
        "reconstructions-rows",
        figure_rows(images, found),
        f"The first {SHOWN} test images of {images.name}, decoded from prefixes of their codes, above the originals. "
        "On the right of each row, PSNR in dB over all test images.",
    )
    lab.figure("reconstructions-errors", figure_errors(found),
               "MSE at every length, mean and range over seeds. Circles mark the minimum.")  # fmt: skip
    rows = [[name, *(cell(decoded, length) for length in SHOWN_LENGTHS)] for name, decoded in found.items()]
    lab.table(["MSE; PSNR; SSIM", *(f"{length} bits or units" for length in SHOWN_LENGTHS)], rows,
              caption="MSE of pixels on the scale from 0 to 1, PSNR, and SSIM.")  # fmt: skip


def cell(decoded: Decoded, length: int) -> str:
    """Format MSE, PSNR and SSIM at a length."""
    if length > decoded.width:
        return "-"
    error = decoded.at(length).mean()
    return f"{error:.4f}; {psnr_of(error)} dB; {decoded.ssim[length]:.2f}"


def add_departures(lab: Lab, images: Images, networks: Networks) -> None:
    """Record where the experiment departs from the paper."""
    one = networks["bits"][0]
    if one.width != max(SHOWN_LENGTHS):
        lab.departure(f"At this scale the networks have {one.width} units instead of {max(SHOWN_LENGTHS)}.")
    lab.departure(
        "The paper does not state whether this network was binarized, nor its p_B and β: both readings are trained, "
        f"with a geometric p_B of mean {one.width // 5} and β = 0.5, on {one.examples / 1e6:.3g} million examples of "
        f"{images.name}, swept, and their "
        "decoders refitted (see figure 5b)."
    )
    lab.departure(f"The networks are measured on {len(images.test):,} test images, the coder on "
                  f"{min(CODER_IMAGES, len(images.test))} of them and at every eighth length.")  # fmt: skip
    lab.departure(f'The paper does not measure "very similar"; we take an SSIM of {SIMILAR_SSIM:g}.')


EXPERIMENT = Experiment(
    "reconstructions",
    "figure 5a, section 6",
    "Images decoded from prefixes",
    "A single-layer 3072-1024-3072 autoencoder trained with nested dropout on CIFAR-10 decodes any number of bits, and "
    "its error falls with each of them. Reconstructions from 1024 bits look very similar to the originals of 24576 "
    "bits.",
    run,
)
