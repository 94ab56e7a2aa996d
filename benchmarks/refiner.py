"""Train the network that refines decoded images (nestcode.images.Refiner), and print its PSNR on held-out images.

    python benchmarks/refiner.py --photos DIR --minutes 7 --save photos.refiner

Each image is encoded as a whole, at two scales, and decoded at several cuts, so that one network learns every rate:
nested dropout over the passes of the codec. The loss of a patch is its MSE relative to that of its decoded image, whose
mean over images and rates is PSNR to first order. Training takes minutes on a GPU; without --save it only measures the
shipped network, or another one (--refiner FILE).

The shipped network was trained on 319 images of a folder of 333, mostly photographs, of wallpaper packages of Debian
and Ubuntu: gnome-backgrounds, mate-backgrounds, plasma-workspace-wallpapers, budgie-backgrounds, and the packages of
all releases named budgie-, edubuntu-, ubuntu-, ubuntu-gnome-, ubuntu-mate-, ubuntukylin-, ubuntustudio- and
xubuntu-community-wallpapers. Files of at least 200 kB and 700 pixels along the shorter side were scaled to 768 pixels.
Flat drawings were left out (many equal adjacent values, or less than 0.55 bpp as JPEG), and images alike to another one
by their difference hashes. The images of lomiri-wallpapers, on which benchmarks/compression.py measures, are not among
them, nor any that is alike to one of these.
"""

import argparse
import math
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from _report import save, show
from nestcode import data, metrics
from nestcode.images import ImageCodec
from nestcode.images.codec import ImageDecoder
from nestcode.images.refiner import SHIPPED, Refiner
from nestcode.nn.restoration import RestorationUNet
from nestcode.training.runtime.accelerator import pick_device

SCALES = (1.0, 2 / 3)
RATES = (0.03, 2.0)  # bpp that cuts are drawn from, log-uniformly
CUTS = 12  # of an image
TILE, PATCH = 256, 192  # pixels on a side of a stored tile, and of what a step takes of it
GRID = 16  # pixels on a side of the codec's blocks, which patches are aligned to
HELD_OUT = 24
MEASURED = (0.1, 0.25, 0.5, 1.0, 2.0, math.inf)  # bpp
CHECKPOINT = 60  # seconds
Pixels = NDArray[np.uint8]


@dataclass(frozen=True)
class Pairs:
    """Tiles of images, and what they decode to at each cut."""

    targets: Tensor  # (n, 3, 256, 256) uint8
    decoded: Tensor  # (n, cuts, 3, 256, 256) uint8
    steps: Tensor  # (n, cuts) quantizer steps
    errors: Tensor  # (n, cuts) MSE of the decoded image

    def batches(self, size: int, patch: int, rng: torch.Generator) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
        """Yield random patches without end: decoded and original in [0, 1], quantizer steps, MSE in [0, 1]."""
        device, (count, cuts) = self.targets.device, self.steps.shape
        while True:
            tile, cut = (torch.randint(most, (size,), generator=rng, device=device) for most in (count, cuts))
            places = torch.randint((TILE - patch) // GRID + 1, (2,), generator=rng, device=device).tolist()
            top, left = (GRID * place for place in places)
            turned, down, right = torch.randint(2, (3,), generator=rng, device=device).tolist()
            both = []
            for tiles in (self.decoded[tile, cut], self.targets[tile]):
                some = tiles[:, :, top : top + patch, left : left + patch].float() / 255
                some = some.transpose(2, 3) if turned else some
                both.append(some.flip([axis for axis, flipped in ((2, down), (3, right)) if flipped]))
            yield both[0], both[1], self.steps[tile, cut], self.errors[tile, cut] / 255**2


def main() -> None:
    """Train or load, measure, print and save."""
    options = read_options()
    start = time.perf_counter()
    images = read_images(options)
    train = [image for i, image in enumerate(images) if i % HELD_OUT]
    held_out = images[::HELD_OUT]
    if options.save is None and not options.quick:
        refiner = Refiner.load(options.refiner)
    else:
        pairs = make_pairs(train, options.cuts)
        print(f"{len(train)} images, {pairs.steps.numel()} tiles, {time.perf_counter() - start:.0f} s", flush=True)
        refiner = train_network(pairs, options, start)
    refiner.network.to(pick_device(options.device))
    rows = measure(refiner, held_out)
    show("PSNR in dB by bpp, mean of held-out images", rows, f"{len(held_out)} images. Rates without headers.")
    save(options.json, rows, ["nestcode", "numpy", "torch"])


def read_options() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few steps on the sample images, for a smoke test")
    parser.add_argument("--photos", type=Path, metavar="DIR", help="folder of images (scikit-learn's two)")
    parser.add_argument("--minutes", type=float, default=7, help="of training, from the start of the program (7)")
    parser.add_argument("--batch-size", type=int, default=128, help="(128)")
    parser.add_argument("--learning-rate", type=float, default=1e-3, help="(0.001)")
    parser.add_argument("--channels", nargs=2, type=int, default=[64, 128], help="of the convolutions (64 128)")
    parser.add_argument("--blocks", nargs=2, type=int, default=[2, 3], help="residual blocks (2 3)")
    parser.add_argument("--cuts", type=int, default=CUTS, help=f"of each image ({CUTS})")
    parser.add_argument("--device", default="auto", help='"auto" takes a GPU if there is one')
    parser.add_argument("--save", type=Path, metavar="FILE", help="train, and write this file, also every minute")
    parser.add_argument(
        "--refiner", type=Path, default=SHIPPED, metavar="FILE", help="network to measure (the shipped)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results as JSON")
    options = parser.parse_args()
    if options.quick:
        options.minutes, options.batch_size, options.cuts, options.channels = 0.01, 2, 2, [8, 8]
    return options


def read_images(options: argparse.Namespace) -> list[Pixels]:
    """Return the images of the folder, or the sample images."""
    if options.photos is None:
        images = list(data.sample_images().values())
        return [image[:TILE, :TILE] for image in images] if options.quick else images
    images = []
    for path in sorted(options.photos.iterdir()):
        with Image.open(path) as image:
            images.append(np.asarray(image.convert("RGB")))
    return images


def make_pairs(images: list[Pixels], cuts: int) -> Pairs:
    """Encode all images, and decode them at random cuts."""
    codec = ImageCodec.load()
    jobs = [(image, scale, seed) for seed, image in enumerate(images) for scale in SCALES]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        made = list(pool.map(lambda job: decode_cuts(codec, job[0], job[1], job[2], cuts), jobs))
    targets, decoded, steps, errors = (torch.from_numpy(np.concatenate(part)) for part in zip(*made, strict=True))
    return Pairs(targets, decoded, steps, errors)


def decode_cuts(codec: ImageCodec, image: Pixels, scale: float, seed: int, cuts: int) -> tuple[NDArray[Any], ...]:
    """Return the tiles of an image, of what it decodes to, and the step and MSE at each cut."""
    if scale != 1:
        size = round(scale * image.shape[1]), round(scale * image.shape[0])
        image = np.asarray(Image.fromarray(image).resize(size, Image.Resampling.LANCZOS))
    pixels = image.shape[0] * image.shape[1]
    places = (np.arange(cuts) + np.random.default_rng(seed).random(cuts)) / cuts  # stratified
    rates = RATES[0] * (RATES[1] / RATES[0]) ** places
    sizes = (rates * pixels / 8).astype(int)
    stream = codec.encode(image, int(sizes[-1]))
    decoder, fed = ImageDecoder(codec, image.shape), 0
    decoded: list[NDArray[Any]] = []
    steps, errors = [], []
    for size in sizes.tolist():
        decoder.feed(stream[fed:size])
        fed = size
        some = decoder.image()
        decoded.append(tiles_of(some))
        steps.append(decoder.step)
        errors.append(max(np.mean((some.astype(np.float32) - image) ** 2), 1))
    targets = tiles_of(image)
    rows = np.ones((len(targets), 1), dtype=np.float32)
    each = (rows * np.array(values, dtype=np.float32) for values in (steps, errors))
    return targets, np.stack(decoded, axis=1), *each


def tiles_of(image: NDArray[Any]) -> NDArray[Any]:
    """Return square tiles that cover an image but for less than a block, (n, 3, 256, 256)."""
    tops, lefts = (
        [int(place) // GRID * GRID for place in np.linspace(0, size - TILE, -(-size // TILE))] if size >= TILE else []
        for size in image.shape[:2]
    )
    tiles = [image[top : top + TILE, left : left + TILE].transpose(2, 0, 1) for top in tops for left in lefts]
    return np.stack(tiles) if tiles else np.empty((0, 3, TILE, TILE), dtype=np.uint8)


def train_network(pairs: Pairs, options: argparse.Namespace, start: float) -> Refiner:
    """Train until the minutes are over, by Adam with a cosine schedule; return the moving average of the weights."""
    torch.manual_seed(0)
    device = pick_device(options.device)
    pairs = Pairs(*(tensor.to(device) for tensor in vars(pairs).values()))
    torch.backends.cudnn.benchmark = True
    network = RestorationUNet(tuple(options.channels), tuple(options.blocks)).to(device)
    print(f"{sum(weight.numel() for weight in network.parameters()):,} parameters on {device}", flush=True)
    averaged = AveragedModel(network, multi_avg_fn=get_ema_multi_avg_fn(0.999))
    optimizer = torch.optim.Adam(network.parameters(), lr=options.learning_rate, fused=device.type == "cuda")
    batches = pairs.batches(options.batch_size, PATCH, torch.Generator(device).manual_seed(0))
    began = time.perf_counter()
    seconds = max(60 * options.minutes - (began - start), 1e-3)
    done, step, saved, losses = 0.0, 0, 0.0, []
    while done < 1:
        warm_up = min(1.0, (step + 1) / 200)
        optimizer.param_groups[0]["lr"] = options.learning_rate * warm_up * (1 + math.cos(math.pi * done)) / 2
        decoded, target, steps, errors = next(batches)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            restored = network(decoded, steps)
        before, loss = (relative_error(some, target, errors) for some in (decoded, restored))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        averaged.update_parameters(network)
        losses.append(torch.stack([before, loss.detach()]))
        step += 1
        if step % 20 == 0 or device.type == "cpu":
            if device.type == "cuda":
                torch.cuda.synchronize()
            elapsed = time.perf_counter() - began
            done = elapsed / seconds
            if done >= 1 or elapsed - saved > CHECKPOINT:
                saved = elapsed
                plain, mean = torch.stack(losses).mean(0).tolist()
                losses = []
                print(f"{elapsed:.0f} s, step {step}: {10 * math.log10(plain / mean):+.3f} dB", flush=True)
                refiner = Refiner(averaged.module)  # type: ignore[arg-type]
                if options.save is not None:
                    refiner.save(options.save, dtype="float16")
    return refiner


def relative_error(images: Tensor, target: Tensor, errors: Tensor) -> Tensor:
    """Return the mean of the MSE of patches, each relative to that of its decoded image."""
    return ((images.float() - target).square().mean((1, 2, 3)) / errors).mean()


def measure(refiner: Refiner, images: list[Pixels]) -> list[dict[str, Any]]:
    """Return the mean PSNR of images by rate, decoded and refined."""
    codec = ImageCodec.load()
    plain: dict[str, Any] = {"decoder": "plain"}
    refined: dict[str, Any] = {"decoder": "refined"}
    streams = [codec.encode(image) for image in images]
    for rate in MEASURED:
        both = []
        for image, stream in zip(images, streams, strict=True):
            decoder = ImageDecoder(codec, image.shape)
            decoder.feed(stream[: int(min(rate * image.shape[0] * image.shape[1] / 8, len(stream)))])
            decoded = decoder.image()
            both.append((metrics.psnr(image, decoded), metrics.psnr(image, refiner.refine(decoded, decoder.step))))
        plain[f"{rate:g}"], refined[f"{rate:g}"] = (round(float(value), 2) for value in np.mean(both, axis=0))
    return [plain, refined]


if __name__ == "__main__":
    main()
