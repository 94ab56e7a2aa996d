"""Test images decoded from prefixes: MSE at every length, PSNR and SSIM at some."""

from collections.abc import Callable

import numpy as np
import torch

from nestcode.arrays import Doubles, Floats, Ids
from nestcode.coders import AdaptiveCoder, Coder
from nestcode.metrics import ssim
from nestcode.nn import OrderedAutoencoder
from nestcode.reproduce.lab import Experiment, Images, Lab
from nestcode.reproduce.lab.images import Pixels, as_pixels, as_rows, pixel_mse
from nestcode.reproduce.lab.networks import RECIPES, compression_coder, compression_images, compression_network
from nestcode.reproduce.lab.optimal_brain_damage import encode_units, errors_in_order
from nestcode.reproduce.reconstructions.figures import LENGTHS, SHOWN, Decoded, figure_errors, figure_rows, psnr_of

Decode = Callable[[int], Pixels]  # test images from a prefix of this length, (n, features)

CODER_IMAGES = 500  # test images of the coder, which decodes at every eighth length
SIMILAR = 0.9  # SSIM that stands for "very similar"
NAMES = {"paper": "the paper's network", "ours": "the repaired network"}
CODER = "our adaptive coder"


def run(lab: Lab) -> None:
    """Decode test images from prefixes of two networks' codes and of a coder's."""
    images = compression_images(lab)
    found = {}
    for recipe, name in NAMES.items():
        seeds = lab.progress(lab.seeds, f"training {name}")
        networks = [compression_network(lab, images, recipe, seed) for seed in seeds]
        errors = [errors_in_order(network, images.test, np.arange(network.width)) for network in networks]
        decode = network_decoder(networks[0], images.test)
        found[name] = decode_lengths(images, np.arange(networks[0].width + 1), np.array(errors), decode)
    with lab.console.status(f"  {CODER}"):
        coder = compression_coder(lab, images, AdaptiveCoder)
        test = images.test[:CODER_IMAGES]
        decode, bits = coder_decoder(coder, test), np.arange(0, coder.width + 1, 8)
        coder_errors = [pixel_mse(test, decode(length)) for length in bits.tolist()]
        found[CODER] = decode_lengths(images, bits, np.array([coder_errors]), decode)
    for name, decoded in found.items():
        add_findings(lab, name, decoded)
    add_repair(lab, found[NAMES["paper"]], found[NAMES["ours"]])
    whole, longest = 8 * images.test.shape[1], found[CODER].width
    lab.finding("bits of an original image", paper="24576",
                ours=f"{whole}, {whole / longest:.0f} times the longest code",
                holds=whole == 24_576 if images.side == 32 else None, seeds=())  # fmt: skip
    add_figures(lab, images, found)
    add_departures(lab, images, found)
    lab.measured |= {
        name: {
            "bits": decoded.bits.tolist(),
            "errors": decoded.errors.tolist(),
            "ssim": {str(length): value for length, value in decoded.ssim.items()},
        }
        for name, decoded in found.items()
    }


def network_decoder(network: OrderedAutoencoder, X: Pixels) -> Decode:
    """Return a function that decodes prefixes of a network's units."""
    units = encode_units(network, as_rows(X))

    def decode(length: int) -> Pixels:
        with torch.no_grad():
            rows: Floats = network.decode(units[:, :length]).cpu().numpy()
        return as_pixels(rows)

    return decode


def coder_decoder(coder: Coder, X: Pixels) -> Decode:
    """Return a function that decodes prefixes of a coder's codes."""
    codes = coder.encode(as_rows(X))
    return lambda length: as_pixels(coder.decode(codes.prefix(length)))


def decode_lengths(images: Images, bits: Ids, errors: Doubles, decode: Decode) -> Decoded:
    """Decode test images at the lengths shown, and measure their SSIM."""
    by_length = {length: decode(length) for length in LENGTHS if length <= bits[-1]}
    similarity = {
        length: round(ssim(images.as_images(images.test[: len(rows)]), images.as_images(rows)), 4)
        for length, rows in by_length.items()
    }
    return Decoded(bits, errors, {length: rows[:SHOWN] for length, rows in by_length.items()}, similarity)


def add_findings(lab: Lab, name: str, decoded: Decoded) -> None:
    """Report whether every bit lowers the error, and how similar images of the longest code are."""
    changes = np.diff(decoded.means)
    best, step = int(decoded.bits[decoded.means.argmin()]), int(decoded.bits[1])
    rise = f"{decoded.means[-1] / decoded.means.min() - 1:.1%} above its minimum, at {best} bits"
    lab.finding(
        f"the error falls with every bit, {name}",
        paper="decreases monotonically" if name == NAMES["paper"] else None,
        ours=f"at {(changes < 0).sum()} of {len(changes)} {'bits' if step == 1 else f'steps of {step} bits'}; at full "
        f"width it is {'at its minimum' if best == decoded.width else rise}",
        holds=bool(np.all(changes < 0)),
    )
    length = max(decoded.ssim)
    lab.finding(
        f"images of {length} bits look very similar to the originals, {name}",
        paper="very similar at 1024 bits" if name == NAMES["paper"] else None,
        ours=f"PSNR {psnr_of(decoded.at(length).mean())} dB, SSIM {decoded.ssim[length]:.2f} "
        f"(very similar: {SIMILAR:g} and above)",
        holds=decoded.ssim[length] >= SIMILAR if length == max(LENGTHS) else None,
    )


def add_repair(lab: Lab, paper: Decoded, ours: Decoded) -> None:
    """Report the gain of straight-through gradients, bits of −1 and 1 and other lengths."""
    lengths = [length for length in LENGTHS if length <= ours.width]
    ratios = [float(ours.at(length).mean() / paper.at(length).mean()) for length in lengths]
    text = ", ".join(f"{ratio:.2f} at {length}" for ratio, length in zip(ratios, lengths, strict=True))
    lab.finding("the repaired network has a lower MSE at all lengths shown",
                ours=f"MSE relative to the paper's network: {text} bits", holds=max(ratios) < 1)  # fmt: skip


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
    rows = [[name, *(cell(decoded, length) for length in LENGTHS)] for name, decoded in found.items()]
    lab.table(["MSE; PSNR; SSIM", *(f"{length} bits" for length in LENGTHS)], rows,
              caption="MSE of pixels on the scale from 0 to 1 (± standard deviation over seeds), PSNR, and SSIM of the "
              "first seed.")  # fmt: skip


def cell(decoded: Decoded, length: int) -> str:
    """Format MSE, PSNR and SSIM at a length."""
    if length > decoded.width:
        return "-"
    error, spread = decoded.at(length).mean(), decoded.at(length).std()
    plus = f" ± {spread:.4f}" if len(decoded.errors) > 1 else ""
    return f"{error:.4f}{plus}; {psnr_of(error)} dB; {decoded.ssim[length]:.2f}"


def add_departures(lab: Lab, images: Images, found: dict[str, Decoded]) -> None:
    """Record where the experiment departs from the paper."""
    paper = RECIPES["paper"]
    width = found[NAMES["paper"]].width
    if width != paper.width:
        lab.departure(f"At this scale the networks have {width} bits instead of {paper.width}.")
    lab.departure(
        f"Networks are trained on {len(images.train):,} images of {images.name}, for a time that fits the scale. The "
        f"paper does not give p_B and β of its compression network: we chose {paper.lengths} and {paper.network.beta}."
    )
    lab.departure(f"The networks are measured on {len(images.test):,} test images, the coder on "
                  f"{min(CODER_IMAGES, len(images.test))} of them and at every eighth length.")  # fmt: skip
    lab.departure(f'The paper does not measure "very similar"; we take an SSIM of {SIMILAR:g}.')


EXPERIMENT = Experiment(
    "reconstructions",
    "figure 5a, section 6",
    "Images decoded from prefixes",
    "A single-layer 3072-1024-3072 autoencoder trained with nested dropout on CIFAR-10 decodes any number of bits, and "
    "its error falls with each of them. Reconstructions from 1024 bits look very similar to the originals of 24576 "
    "bits.",
    run,
)
