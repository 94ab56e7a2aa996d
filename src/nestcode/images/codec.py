"""The image codec: an image of any size as an embedded bitstream, whose every prefix decodes.

    pixels ──color transform──▶ channels ──lapped transform──▶ coefficients ──bit planes──▶ bitstream

An image is coded as a whole: tiles that are coded independently have no contexts across their borders. Coded by an
`AdaptiveCoder` they were 3.7 and 5.5 dB worse at 0.5 bpp (docs/research-log.md). Fitting only trains the context model
that every image starts from.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import DTypeLike

from nestcode import _core
from nestcode.arrays import Floats, check_int, is_number, shown
from nestcode.errors import DamagedFile, InvalidInput, NotFitted
from nestcode.images.bitplanes import (
    CHANNELS,
    MAX_PLANES,
    UNLIMITED,
    Bitstream,
    encode_planes,
    model_arrays,
    set_model,
)
from nestcode.images.color import color_matrix, find_rotation, to_channels
from nestcode.images.image import SCALES, Image, Tune, check_image, check_shape, check_tune, scaled_shape, type_of
from nestcode.images.lapped_dct import lapped_dct
from nestcode.images.pretrained import PRETRAINED, pretrained_path
from nestcode.images.refiner import Refiner
from nestcode.storage import Record, Storable, read_record

# Weights of the quantizer's step in units of 1/32, by kind of channel: three times as coarse for chroma as for luma.
SSIM_WEIGHTS = [16, 48, 48, 32]
FINEST_FOR_SSIM = 2  # a step; with half of it for luma, coefficients still fit into 15 bit planes
TRAINING_RATES = (-2, 0, 2)  # of the passes over training images: how often the rate of coding is halved
FLAGS = 0xE0  # of a bitstream's first byte: a rotation, bit planes of subbands, weights
REDUCED = (1, 1 / 2, 1 / 4, 1 / 8)  # scales of images
RECORD_KIND = "PictureCoder"  # in files, which keep the codec's first name


class ImageCodec(Storable):
    """Codes images of any size, gray or color, with or without alpha, as embedded bitstreams.

    >>> from nestcode.data import sample_images
    >>> image = sample_images()["flower"][:128, :128]
    >>> codec = ImageCodec().fit([image])
    >>> data = codec.encode(image)
    >>> decoded = [codec.decode(data[:size], image.shape) for size in (200, 2000)]
    >>> errors = [float(np.mean((image - some.astype(float)) ** 2)) for some in decoded]
    >>> errors[0] > 2 * errors[1]
    True

    Args:
        step: the quantizer's step size in pixel values from 0 to 255. With step 4 a complete stream has a PSNR of 44 to
            48 dB; with step 1 about 10 dB more.

    """

    VERSION = 2

    def __init__(self, step: float = 4.0) -> None:
        if not is_number(step) or not 1 <= step <= 1000:
            raise InvalidInput(f"step must be between 1 and 1000 pixel values, got {shown(step)}: 4 is a good choice")
        self.step = float(step)
        self._is_fitted = False
        self._model = _core.ImageModel()

    def fit(self, images: Sequence[Image]) -> Self:
        """Train the context model on images as `compress_images` takes them, in order and three times."""
        if not isinstance(images, Sequence) or len(images) == 0:
            raise InvalidInput(f"images must be a list with at least one image, got {type_of(images)}")
        model = _core.ImageModel()
        for halvings in TRAINING_RATES:
            model.halve_rate(halvings)
            for image in images:
                self._encode(image, model, UNLIMITED, "psnr", adapt=True, measure=False)
        self._model = _core.ImageModel()
        set_model(self._model, model.version, model_arrays(model))  # at the rate of coding
        self._is_fitted = True
        return self

    def encode(self, image: Image, limit: int | None = None, *, tune: Tune = "psnr") -> bytes:
        """Return the bitstream of an image, or its first `limit` bytes; `tune` is as in `compress_images`."""
        self.check_fitted()
        most = UNLIMITED if limit is None else check_int(limit, "limit", least=0)
        return self._encode(image, self._model, most, check_tune(tune), adapt=False, measure=False).data

    def encode_passes(self, image: Image, limit: int = UNLIMITED, *, tune: Tune = "psnr") -> Bitstream:
        """Return the bitstream of an image, or its first `limit` bytes, with rate and error after each coding pass."""
        self.check_fitted()
        most = check_int(limit, "limit", least=0)
        return self._encode(image, self._model, most, check_tune(tune), adapt=False, measure=True)

    def decode(self, data: bytes, shape: Sequence[int], dtype: DTypeLike = np.uint8, *, scale: float = 1) -> Image:
        """Decode any prefix of a bitstream to an image of this shape and type; an empty prefix decodes to gray.

        A `scale` of 1/2, 1/4 or 1/8 uses only the lowest frequencies of each block.
        """
        check_scale(scale)
        decoder = ImageDecoder(self, shape, dtype)
        decoder.feed(data)
        return decoder.image(scale=scale)

    def _encode(
        self, image: Image, model: _core.ImageModel, limit: int, tune: Tune, *, adapt: bool, measure: bool
    ) -> Bitstream:
        scale = SCALES[check_image(image).dtype]
        rotation = find_rotation(image, scale)
        original = image.reshape(*image.shape[:2], -1) if measure else None
        kinds = CHANNELS[(*image.shape, 1)[2]]
        weights = [SSIM_WEIGHTS[kind] for kind in kinds] if tune == "ssim" and len(kinds) >= 3 else []
        if weights and self.step < FINEST_FOR_SSIM:  # luma's step is half of it
            raise InvalidInput(
                f"tune='ssim' takes a codec of step {FINEST_FOR_SSIM} or more, got {self.step:g}: use tune='psnr', "
                "which loses next to nothing at such a step"
            )
        coefficients = _coefficients(image, rotation, scale)
        return encode_planes(model, coefficients, self.step, rotation, limit, original, weights, adapt=adapt)

    def check_fitted(self) -> None:
        """Raise unless the codec was fitted or loaded."""
        if not self._is_fitted:
            raise NotFitted("this ImageCodec is not fitted: call fit(images) first, or use ImageCodec.load()")

    @classmethod
    def load(cls, path: str | os.PathLike[str] = "photos") -> Self:
        """Return the codec that `save` wrote to a file, or a pretrained one by its name.

        >>> ImageCodec.load()
        ImageCodec(step=4)
        """
        # A name wins over a file of that name in the working directory, which is "./photos".
        pretrained = str(path) in PRETRAINED
        if not pretrained and not Path(path).exists() and not Path(path).parent.name:
            raise FileNotFoundError(
                f"there is no file {path}: give the path that was saved to, or one of {', '.join(PRETRAINED)}"
            )
        record = read_record(pretrained_path(str(path)) if pretrained else path)
        if record.kind != RECORD_KIND:
            raise InvalidInput(f"{path} must hold an image codec, got a {record.kind}: load_coder reads it")
        return cls.from_record(record, path)

    def __repr__(self) -> str:
        return f"ImageCodec(step={self.step:g})"

    def to_record(self) -> Record:
        """Return the fitted codec as a record."""
        self.check_fitted()
        return Record(RECORD_KIND, self._model.version, {"step": self.step}, model_arrays(self._model))

    @classmethod
    def _read(cls, record: Record) -> Self:
        codec = cls(**record.settings)
        set_model(codec._model, record.version, record.arrays)
        codec._is_fitted = True
        return codec


def _coefficients(image: Image, rotation: bytes, scale: int) -> Iterator[Floats]:
    """Yield the coefficients of each channel, (rows, columns, 16, 16): one at a time, to save memory."""
    for channel in to_channels(image, color_matrix(rotation), scale):
        yield lapped_dct(channel[None])[0]


class ImageDecoder:
    """Decodes one image progressively, as its bitstream arrives.

    >>> from nestcode.data import sample_images
    >>> image = sample_images()["flower"][:64, :64]
    >>> codec = ImageCodec().fit([image])
    >>> data, decoder = codec.encode(image), ImageDecoder(codec, image.shape)
    >>> for first in range(0, len(data), 100):
    ...     decoder.feed(data[first : first + 100])
    >>> bool((decoder.image() == codec.decode(data, image.shape)).all())
    True

    The bitstream of a lossless image ends after `lossy` bytes, and its residual follows.
    """

    def __init__(
        self,
        codec: ImageCodec,
        shape: Sequence[int],
        dtype: DTypeLike = np.uint8,
        flags: int = FLAGS,
        lossy: int = UNLIMITED,
    ) -> None:
        self.shape, self.dtype, self._unknown = check_shape(shape), np.dtype(dtype), FLAGS & ~flags
        if self.dtype not in SCALES:
            raise InvalidInput(f"dtype must be uint8 or uint16, got {self.dtype}: convert the decoded image")
        codec.check_fitted()
        self._decoder = _core.ImageDecoder(codec._model, codec.step, *(*self.shape, 1)[:3])
        self._finest = codec.step
        self._lossy = lossy  # bytes that are missing before the residual
        self._exact: Image | None = None  # the image as far as its residual arrived
        self._residual: _core.ResidualDecoder | None = None

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the bitstream, and of the residual behind it."""
        data, residual = data[: self._lossy], data[self._lossy :]
        self._lossy -= len(data)
        if data and data[0] & self._unknown:
            raise DamagedFile(
                f"an image of this stream's version begins with no flags {self._unknown}, got the byte {data[0]}: "
                "restore a copy"
            )
        if data:
            self._unknown = 0  # only the first byte has flags
        if not self._decoder.feed(data):
            raise DamagedFile(
                f"an image has at most {MAX_PLANES} bit planes, got {self._decoder.planes}: send it again"
            )
        if residual:
            if self._exact is None or self._residual is None:
                self._exact = self._shown(None)
                self._residual = _core.ResidualDecoder(self._exact.reshape(*self.shape[:2], -1))
            self._residual.feed(residual)

    @property
    def step(self) -> float:
        """The quantizer step that was reached: it halves with every bit plane, and is the codec's after all of them.

        If channels have steps of their own (`tune="ssim"`), it is the step of luma.
        """
        return float(self._finest * self._decoder.weight * 2 ** (MAX_PLANES - self._decoder.passes / 3))

    def image(self, refiner: Refiner | None = None, *, scale: float = 1, filtered: bool = True) -> Image:
        """Return the image from what arrived so far, refined if a network for that is given, or at a scale below 1.

        It is filtered, unless it is refined or smaller. At 1/2, 1/4 or 1/8 only that share of each block's frequencies
        is transformed. A pixel is the mean of a square of pixels without the other frequencies; squares at the lower
        and right edge may reach beyond the image. At scale 1 lines whose residual arrived equal the original.
        """
        if self._exact is None or self._residual is None or scale != 1:
            return self._shown(refiner, scale, filtered=filtered)
        lines = self._residual.lines
        if refiner is None or lines == len(self._exact):
            return self._exact.copy()
        out = self._shown(refiner)
        out[:lines] = self._exact[:lines]
        return out

    def _shown(self, refiner: Refiner | None, scale: float = 1, *, filtered: bool = True) -> Image:
        """Return the image without its residual."""
        out = np.empty(scaled_shape(self.shape, check_scale(scale, refiner)), dtype=self.dtype)
        self._decoder.write(out.reshape(-1), round(1 / scale), filtered=filtered and refiner is None)
        return out if refiner is None else refiner.refine(out, self.step)


def check_refiner(refiner: Any) -> Refiner | None:
    """Return the refiner, or raise if it is none."""
    if refiner is not None and (isinstance(refiner, type) or not hasattr(refiner, "refine")):
        raise InvalidInput(f"refiner must be a Refiner, got {refiner!r}: nestcode.images.Refiner.load() returns one")
    found: Refiner | None = refiner
    return found


def check_scale(scale: Any, refiner: Refiner | None = None) -> float:
    """Return the scale, or raise if it is none, or below 1 with a refiner."""
    if not is_number(scale) or scale not in REDUCED:
        raise InvalidInput(f"scale must be 1, 1/2, 1/4 or 1/8, got {shown(scale)}: resize the decoded image")
    if scale != 1 and refiner is not None:
        raise InvalidInput(f"a refiner takes images of scale 1, got {scale:g}: leave out one of them")
    return float(scale)
