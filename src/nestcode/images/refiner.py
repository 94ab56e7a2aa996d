"""The learned decoder: a network that refines what a bitstream, cut anywhere, decodes to (needs PyTorch).

    bitstream ──ImageDecoder──▶ pixels, quantizer step ──Refiner──▶ pixels

The bitstream stays the same, so receivers without PyTorch decode it too. `benchmarks/refiner.py` trains the network
that ships with Nestcode.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray

from nestcode.arrays import check_int
from nestcode.coders.network import check_record_sizes, load_network, weights_of
from nestcode.errors import InvalidInput
from nestcode.images.codec import Image, check_image
from nestcode.nn.restoration import FINEST, MULTIPLE, PERIOD, UNSHUFFLE, RestorationUNet
from nestcode.storage import Record, Storable, read_record

SHIPPED = Path(__file__).parent / "photos.refiner"
LARGEST_STEP = 1024.0  # beyond it hardly more than a mean arrived: nothing that a network could know more of
TILE = 1024  # pixels on a side that are refined at a time: about 400 MB of memory


class Refiner(Storable):
    """Refines decoded images by a network, given the quantizer step that their decoder reached.

    >>> import nestcode as nc
    >>> image = nc.data.sample_images()["china"][:128, :192]
    >>> data = nc.compress_images([image], bpp=0.5)
    >>> plain, refined = (nc.decompress_images(data, refiner=each)[0] for each in (None, Refiner.load()))
    >>> nc.metrics.psnr(image, refined) > nc.metrics.psnr(image, plain)
    True

    Args:
        network: the trained network.
        tile: pixels on a side that are refined at a time, a multiple of 16; memory grows with its square.

    """

    VERSION = 2

    def __init__(self, network: RestorationUNet, tile: int = TILE) -> None:
        if not isinstance(network, RestorationUNet):
            raise InvalidInput(f"network must be a RestorationUNet, got {network!r}: Refiner.load() has a trained one")
        if check_int(tile, "tile", least=PERIOD) % PERIOD:
            raise InvalidInput(f"tile must be a multiple of {PERIOD} pixels, got {tile}: {TILE} is a good choice")
        self.network, self.tile = network.eval(), tile

    def refine(self, image: Image, step: float) -> Image:
        """Return a decoded image, refined.

        At a step of 4 and below, as with all bits of a codec of that step, it stays as it is; so it does above 1,024,
        after a few bytes.

        Args:
            image: what an `ImageDecoder` returned. An alpha channel stays as it is.
            step: the quantizer step that the decoder reached, its `step`.

        """
        refined = check_image(image).copy()
        if isinstance(step, bool) or not isinstance(step, int | float | np.number) or not step > 0:
            raise InvalidInput(f"step must be a quantizer step above 0, got {step!r}: ImageDecoder.step is one")
        if not FINEST < step <= LARGEST_STEP:
            return refined
        channels = refined.reshape(*image.shape[:2], -1)  # a view
        count = 3 if channels.shape[2] > 2 else 1
        colors = channels[..., :count]
        largest = np.float32(np.iinfo(image.dtype).max)
        for tile, window, inner in self._tiles(*image.shape[:2]):
            pixels = image.reshape(channels.shape)[window][..., :count].astype(np.float32) / largest
            colors[tile] = np.rint(largest * np.clip(self._refined(pixels, step)[inner], 0, 1))
        return refined

    def _tiles(self, height: int, width: int) -> Iterator[tuple[tuple[slice, slice], ...]]:
        """Yield each tile, the window around it that its pixels depend on, and where the tile lies in that window."""
        margin = -(-self.network.reach // PERIOD) * PERIOD
        for top in range(0, height, self.tile):
            for left in range(0, width, self.tile):
                starts, sizes = (top, left), (height, width)
                begin = [max(0, start - margin) for start in starts]
                ends = [min(size, start + self.tile) for start, size in zip(starts, sizes, strict=True)]
                beyond = [min(size, end + margin) for end, size in zip(ends, sizes, strict=True)]
                inside = [slice(a - b, c - b) for a, b, c in zip(starts, begin, ends, strict=True)]
                tile = slice(top, ends[0]), slice(left, ends[1])
                window = slice(begin[0], beyond[0]), slice(begin[1], beyond[1])
                yield tile, window, (inside[0], inside[1])

    def _refined(self, pixels: NDArray[np.float32], step: float) -> NDArray[np.float32]:
        """Return pixels in [0, 1] after the network, (height, width, 1 or 3) -> the same shape.

        They are the mean of what it makes of the image and of its transpose, whose errors partly cancel.
        """
        height, width, count = pixels.shape
        padded = np.pad(pixels, ((0, -height % MULTIPLE), (0, -width % MULTIPLE), (0, 0)), mode="edge")
        colors = np.broadcast_to(padded, (*padded.shape[:2], 3)).transpose(2, 0, 1)[None]
        device = next(self.network.parameters()).device
        with torch.inference_mode():
            x = torch.from_numpy(np.ascontiguousarray(colors, dtype=np.float32)).to(device)
            steps = torch.tensor([step], dtype=torch.float32, device=device)
            both = self.network(x, steps) + self.network(x.transpose(2, 3), steps).transpose(2, 3)
            out = (both[0] / 2).cpu().numpy()
        cropped: NDArray[np.float32] = out.transpose(1, 2, 0)[:height, :width]
        return cropped if count == 3 else cropped.mean(axis=2, keepdims=True)

    @classmethod
    def load(cls, path: str | os.PathLike[str] = SHIPPED) -> Self:
        """Return the refiner that `save` wrote to a file; by default the one that ships with Nestcode."""
        record = read_record(path)
        if record.kind != cls.__name__:
            raise InvalidInput(f"{path} must hold a Refiner, got a {record.kind}: give a file that Refiner.save wrote")
        return cls.from_record(record, path)

    def to_record(self) -> Record:
        """Return the refiner as a record."""
        network = self.network
        settings = {"channels": list(network.channels), "blocks": list(network.blocks)}
        return Record(type(self).__name__, self.VERSION, settings, dict(weights_of(network)))

    @classmethod
    def _read(cls, record: Record) -> Self:
        check_record_sizes(record)
        channels, blocks = (tuple(map(int, record.settings[name])) for name in ("channels", "blocks"))
        if len(channels) != 2 or len(blocks) != 2 or sum(blocks) > len(record.arrays):
            raise ValueError(f"its network has {channels} channels in {blocks} blocks")
        arrays = dict(record.arrays)
        if record.version == 1:  # without biases of places
            places = PERIOD // UNSHUFFLE
            arrays["place"] = np.zeros((len(arrays["begin.bias"]), places, places), dtype=np.float32)
        return cls(load_network(lambda: RestorationUNet(channels, blocks), arrays))
