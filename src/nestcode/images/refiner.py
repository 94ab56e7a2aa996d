"""The learned decoder: a network that refines the image decoded from a bitstream that was truncated anywhere.

    bitstream ──ImageDecoder──▶ pixels, quantizer step ──Refiner──▶ pixels

The bitstream stays the same. `benchmarks/refiner.py` trains the network that ships with Nestcode, in PyTorch
(`images/restoration.py`); here it runs in 8-bit integers, in the C++ core.
"""

import math
import os
from collections.abc import Iterator
from typing import Self

import numpy as np
from numpy.typing import NDArray

from nestcode import _core
from nestcode.arrays import Floats, check_int, shown
from nestcode.codes import thread_count
from nestcode.errors import InvalidInput
from nestcode.images.image import Image, check_image
from nestcode.images.pretrained import REFINER
from nestcode.storage import Arrays, Record, Storable, read_record

UNSHUFFLE = 4  # pixels on a side that make the features of a position
PERIOD = 16  # pixels on a side of the codec's blocks: images that are shifted by it are corrected alike
OCTAVES = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1, 2)  # waves of the step's embedding in a doubling of the step
FINEST = 4.0  # the step, in pixel values from 0 to 255, at which nothing is corrected; the correction fades in up to 8
ERROR = 1 / 8  # of a decoded image, about, in quantizer steps
COARSEST = 128.0  # the step beyond which corrections do not grow
LARGEST_STEP = 1024.0  # beyond it hardly more than a mean arrived: nothing that a network could know more of
TILE = 1024  # pixels on a side that are refined at a time: about 150 MB of memory
Sizes = tuple[int, int, int]


class Refiner(Storable):
    """A network that refines decoded images, given the quantizer step that their decoder reached.

    >>> import nestcode as nc
    >>> image = nc.data.sample_images()["china"][:128, :192]
    >>> data = nc.compress_images([image], bpp=0.5)
    >>> plain, refined = (nc.decompress_images(data, refiner=each)[0] for each in (None, Refiner.load()))
    >>> nc.metrics.psnr(image, refined) > nc.metrics.psnr(image, plain)
    True

    Args:
        blocks: residual blocks of the network on the way down, at the bottom and on the way up.
        arrays: a trained network, as `nestcode.images.restoration.quantized` returns it.
        tile: the side of the square of pixels that is refined at a time, a multiple of 16; memory grows with its
            square.
        views: how many views of an image are refined and averaged: 1, 2 (it and its transpose) or 4 (both turned by
            180 degrees too). One view takes a quarter of the time of four, and loses about 0.1 dB.
        threads: the number of threads that refine an image; None uses all cores.

    """

    VERSION = 3

    def __init__(
        self, blocks: Sizes, arrays: Arrays, *, tile: int = TILE, views: int = 4, threads: int | None = None
    ) -> None:
        if check_int(tile, "tile", least=PERIOD) % PERIOD:
            raise InvalidInput(f"tile must be a multiple of {PERIOD} pixels, got {tile}: {TILE} is a good choice")
        self.blocks, self.tile, self._threads = blocks, tile, thread_count(threads)
        self.views = _check_views(views)
        self._arrays = dict(arrays)
        self._layers = [_Layer(name, arrays) for name in layer_names(blocks)]
        flat = [part for layer in self._layers for part in layer.parts()]
        self._network = _core.RestorationNetwork(blocks, flat)

    def refine(self, image: Image, step: float) -> Image:
        """Return a decoded image, refined.

        At a step of 4 and below, the step of a complete stream, the image stays unchanged; so it does above 1,024, the
        step after a few bytes.

        Args:
            image: an image that an `ImageDecoder` returned. An alpha channel stays unchanged.
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
        unit = np.float32(np.iinfo(image.dtype).max // 255)
        affine = self._affine(float(step))
        for tile, window, inner in self._tiles(*image.shape[:2]):
            pixels = image.reshape(channels.shape)[window][..., :count]
            values = pixels[inner].astype(np.float32) + unit * self._correction(pixels, unit, affine)[inner]
            colors[tile] = np.rint(np.clip(values, 0, 255 * unit))
        return refined

    def _tiles(self, height: int, width: int) -> Iterator[tuple[tuple[slice, slice], ...]]:
        """Yield each tile, the window around it that its pixels depend on, and where the tile lies in that window."""
        margin = -(-reach(self.blocks) // PERIOD) * PERIOD
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

    def _correction(self, pixels: Image, unit: np.float32, affine: tuple[Floats, Floats]) -> Floats:
        """Return what to add to pixels of 8 bits, (height, width, 1 or 3) -> the same shape.

        It is the mean of the corrections of the image, its transpose and both turned by 180 degrees, or of fewer views,
        whose errors partly cancel.
        """
        height, width, count = pixels.shape
        padded = np.pad(pixels, ((0, -height % PERIOD), (0, -width % PERIOD), (0, 3 - count)), mode="edge")
        colors = (padded if unit == 1 else np.rint(padded / unit)).astype(np.uint8)

        def corrected(transposed: bool, turned: bool) -> Floats:
            out = np.empty(colors.shape, dtype=np.float32)
            self._network.correct(colors, *affine, out, transposed, turned, self._threads)
            return out

        def pair(turned: bool) -> Floats:
            return corrected(False, turned) + corrected(True, turned)

        if self.views == 1:
            total = corrected(False, False)
        else:
            total = pair(False) if self.views == 2 else pair(False) + pair(True)
        cropped = np.multiply(total, np.float32(1 / self.views))[:height, :width]
        return cropped if count == 3 else cropped.mean(axis=2, keepdims=True, dtype=np.float32)

    def _affine(self, step: float) -> tuple[Floats, Floats]:
        """Return the scales and biases of all outputs at a step, which make features or bytes of sums of products."""
        angles = math.log2(step) * 2 * math.pi * np.array(OCTAVES)
        embedding = np.concatenate([np.sin(angles), np.cos(angles)])
        for name in ("step.layers.0", "step.layers.2"):
            embedding = _silu(self._linear(name, embedding))
        scales, biases = [], []
        for layer, reader in zip(self._layers, [*self._layers[1:], None], strict=True):
            scale, bias = layer.scale, layer.bias
            if layer.name.endswith(".first"):
                assert reader is not None
                gain, shift = np.split(self._linear(f"{layer.name.removesuffix('first')}step", embedding), 2)
                scale, bias = scale * (1 + gain), bias * (1 + gain) + shift
                scale, bias = scale * reader.inverse, bias * reader.inverse + 0.5  # bytes at once, rounded
            elif layer.name == "begin":
                bias = (bias + self._arrays["place"].transpose(1, 2, 0).astype(np.float64)).reshape(-1)
            elif layer.name == "end":
                amount = ERROR * min(step, COARSEST) * min(max(math.log2(step / FINEST), 0), 1)
                scale, bias = scale * amount, bias * amount
            scales.append(scale)
            biases.append(bias)
        return np.concatenate(scales).astype(np.float32), np.concatenate(biases).astype(np.float32)

    def _linear(self, name: str, x: NDArray[np.float64]) -> NDArray[np.float64]:
        weights, biases = (self._arrays[f"{name}.{kind}"].astype(np.float64) for kind in ("weight", "bias"))
        result: NDArray[np.float64] = weights @ x + biases
        return result

    @classmethod
    def load(cls, path: str | os.PathLike[str] = REFINER, *, views: int = 4, threads: int | None = None) -> Self:
        """Return the refiner that `save` wrote to a file; by default the pretrained refiner.

        `views` and `threads` are arguments of the class.
        """
        _check_views(views)
        record = read_record(path)
        if record.kind != cls.__name__:
            raise InvalidInput(f"{path} must hold a Refiner, got a {record.kind}: give a file that Refiner.save wrote")
        refiner = cls.from_record(record, path)
        refiner.views, refiner._threads = views, thread_count(threads)
        return refiner

    def to_record(self) -> Record:
        """Return the refiner as a record."""
        return Record(type(self).__name__, self.VERSION, {"blocks": list(self.blocks)}, self._arrays)

    @classmethod
    def _read(cls, record: Record) -> Self:
        if record.version < cls.VERSION:
            raise ValueError(f"version {record.version} has no 8-bit weights")
        down, middle, up = map(int, record.settings["blocks"])
        if not 0 < down + middle + up <= len(record.arrays):
            raise ValueError(f"its network has {down + middle + up} blocks in {len(record.arrays)} arrays")
        refiner = cls((down, middle, up), record.arrays)
        affine = refiner._affine(2 * FINEST)
        refiner._correction(np.zeros((PERIOD, PERIOD, 3), dtype=np.uint8), np.float32(1), affine)
        if not all(np.isfinite(part).all() for part in affine):
            raise ValueError("its weights are not finite")
        return refiner


class _Layer:
    """A convolution: bytes and weights in the order of the core, and the scale and bias of its outputs.

    Features x are read as bytes x · inverse + zero; a sum of bytes by weights, times scale, plus bias is a feature.
    """

    def __init__(self, name: str, arrays: Arrays) -> None:
        self.name = name
        weights, zeros = arrays[f"{name}.weight"], arrays[f"{name}.zero"]
        if weights.dtype != np.int8 or zeros.dtype != np.uint8 or weights.ndim != 4:
            raise ValueError(f"{name} has weights of {weights.dtype}, {weights.shape}")
        scale, bias, inverse = (arrays[f"{name}.{kind}"].astype(np.float64) for kind in ("scale", "bias", "inverse"))
        if not len(weights) == len(scale) == len(bias) or not weights.shape[1] == len(zeros) == len(inverse):
            raise ValueError(f"{name} has {weights.shape} weights, {len(scale)} scales and {len(zeros)} zeros")
        bias = bias - scale * np.einsum("oiyx,i->o", weights.astype(np.float64), zeros)
        if name == "begin":
            weights, zeros, inverse = weights[:, UNSHUFFLED], zeros[UNSHUFFLED], inverse[UNSHUFFLED]
        elif name == "end":
            weights, scale, bias = weights[UNSHUFFLED], scale[UNSHUFFLED], bias[UNSHUFFLED]
        elif name == "finer":  # the four positions of a coarse one, one after the other
            weights, scale, bias = (np.concatenate([part[i::4] for i in range(4)]) for part in (weights, scale, bias))
        self.weights, self.zeros, self.inverse, self.scale, self.bias = weights, zeros, inverse, scale, bias

    def parts(self) -> list[tuple[NDArray[np.int8], Floats, NDArray[np.uint8]]]:
        """Return weights (outputs, taps, inputs), inverse and zeros for the core: of four convolutions for finer."""
        flat = self.weights.transpose(0, 2, 3, 1).reshape(len(self.weights), -1, self.weights.shape[1])
        inverse = self.inverse.astype(np.float32)
        parts = np.split(flat, 4) if self.name == "finer" else [flat]
        return [(np.ascontiguousarray(part), inverse, np.ascontiguousarray(self.zeros)) for part in parts]


# The channels of PyTorch's pixel shuffle, (color, row, column), in the order of pixels in memory: (row, column, color).
UNSHUFFLED = np.arange(3 * UNSHUFFLE**2).reshape(3, UNSHUFFLE, UNSHUFFLE).transpose(1, 2, 0).reshape(-1)


def _check_views(views: int) -> int:
    """Return the number of views, or raise if it is none."""
    if not isinstance(views, int | np.integer) or isinstance(views, bool) or views not in (1, 2, 4):
        raise InvalidInput(f"views must be 1, 2 or 4, got {shown(views)}: 4 is best, 1 is fastest")
    return views


def layer_names(blocks: Sizes) -> list[str]:
    """Return the names of a network's convolutions, in order.

    >>> layer_names((1, 1, 1))[:4]
    ['begin', 'down.0.first', 'down.0.second', 'coarser']
    """
    down, middle, up = (
        [f"{side}.{block}.{conv}" for block in range(count) for conv in ("first", "second")]
        for side, count in zip(("down", "middle", "up"), blocks, strict=True)
    )
    return ["begin", *down, "coarser", *middle, "finer", *up, "end"]


def reach(blocks: Sizes) -> int:
    """Return how many pixels away an input can change an output, at most: the margin of tiles."""
    fine = 2 + 2 * (blocks[0] + blocks[2])  # convolutions of 3 x 3
    return UNSHUFFLE * (fine + 1) + 2 * UNSHUFFLE * (2 * blocks[1] + 1)


def _silu(x: NDArray[np.float64]) -> NDArray[np.float64]:
    result: NDArray[np.float64] = x / (1 + np.exp(-x))
    return result
