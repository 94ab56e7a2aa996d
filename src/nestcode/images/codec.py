"""The picture coder: nested bits of a picture of any size.

    pixels ──colors──▶ channels ──lapped cosines──▶ tiles ──planes, with their chances──▶ bytes that can be cut anywhere

Tiles coded alone are 5 dB worse, so a picture is coded as a whole: its coefficients come
plane by plane, and what is known of the picture so far says how likely each bit is (`cpp/nestcode/pictures.hpp`).
`_lapped.py` keeps seams away, `_colors.py` turns colors so that most is in the first channel. What is learnt from other
pictures is where the chances begin.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from nestcode import _core
from nestcode.arrays import Floats
from nestcode.coders.pretrained import pretrained_names, pretrained_path
from nestcode.errors import DamagedFile, InvalidInput, NotFitted
from nestcode.images.color import MIDDLE, OPAQUE, TURN, colors_of, find_turn, to_channels, to_pixels
from nestcode.images.lapped_dct import TILE, from_tiles, means_of, to_tiles
from nestcode.storage import Record, Storable, check_arrays, read_record

Picture = NDArray[np.uint8]
KINDS = {1: [0], 2: [0, 3], 3: [0, 1, 2], 4: [0, 1, 2, 3]}  # of channels: lightness, two colors, opacity
PLANES, PASSES = 15, 45  # at most
FIRST, LATER = 0.4, 0.48  # where in its range a magnitude is taken to be: with its first bit, and with more of them
SEEN = 0.8  # the share of coefficients' errors that reaches pixels: laps shrink some, guesses others
SLOPE = 0.11  # of a tile, as a share of what the means on both sides of it differ by
EVERYTHING = 1 << 62


@dataclass(frozen=True)
class Encoded:
    """The bytes of a picture, and after each pass, from the highest plane that can be, how many and what is left."""

    data: bytes
    sizes: tuple[int, ...]  # (PASSES,)
    errors: tuple[float, ...]  # (PASSES,): roughly, of a pixel in grey levels, squared


class ImageCodec(Storable):
    """Codes pictures of any size, grey or in color, with or without opacity; every prefix of the bytes decodes.

    >>> from nestcode.data import sample_images
    >>> picture = sample_images()["flower"][:128, :128]
    >>> coder = ImageCodec().fit([picture])
    >>> data = coder.encode(picture)
    >>> rough, fine = (coder.decode(data[:n], picture.shape) for n in (200, 2000))
    >>> errors = [float(np.mean((picture - some.astype(float)) ** 2)) for some in (rough, fine)]
    >>> errors[0] > 2 * errors[1]
    True

    Args:
        step: what the last bit of a coefficient is worth, in grey levels: 4 ends at 44 to 48 dB, 1 about 10 above.

    """

    def __init__(self, step: float = 4.0) -> None:
        if isinstance(step, bool) or not isinstance(step, int | float) or not 1 <= step <= 1000:
            raise InvalidInput(f"step must be between 1 and 1000 grey levels, got {step!r}: 4 is good")
        self.step = float(step)
        self._is_fitted = False
        self._model = _core.PictureModel()

    def fit(self, pictures: Sequence[Picture]) -> Self:
        """Learn from pictures, arrays of bytes (height, width) or (height, width, channels); one after the other."""
        if not isinstance(pictures, Sequence) or len(pictures) == 0:
            raise InvalidInput(f"pictures must be a list with at least one picture, got {_told(pictures)}")
        model = _core.PictureModel()
        for picture in pictures:
            self._code(picture, model, EVERYTHING, learn=True)
        self._is_fitted = True
        self._model.read(**_arrays(model))  # with no more memory than a file has, so that it codes as when loaded
        return self

    def encode(self, picture: Picture, limit: int | None = None) -> bytes:
        """A picture -> its bytes; the best that `limit` bytes can do are its first ones."""
        return self._encode(picture, EVERYTHING if limit is None else limit).data[:limit]

    def decode(self, data: bytes, shape: Sequence[int]) -> Picture:
        """As many bytes as there are -> a picture of that shape; none give grey."""
        decoder = ImageDecoder(self, shape)
        decoder.feed(data)
        return decoder.picture()

    def _encode(self, picture: Picture, limit: int = EVERYTHING) -> "Encoded":
        self._check_fitted()
        return self._code(picture, self._model, limit, learn=False)

    def _code(self, picture: Picture, model: _core.PictureModel, limit: int, *, learn: bool) -> "Encoded":
        turn = find_turn(check_image(picture))
        cosines = to_tiles(to_channels(picture, colors_of(turn)))
        cosines /= np.float32(self.step)
        numbers = np.empty(cosines.shape, dtype=np.int32)
        np.clip(cosines, -(1 << PLANES) + 1, (1 << PLANES) - 1, out=numbers, casting="unsafe")  # towards 0
        error = float(np.vdot(cosines, cosines)) * self.step**2 / numbers.size
        floor = sum(map(_rounded_off, cosines, numbers)) * self.step**2 / numbers.size
        del cosines
        planes = max(int(numbers.max()), -int(numbers.min())).bit_length()
        data, passes = _core.encode_picture(model, KINDS[len(numbers)], numbers, planes, limit, learn)
        start = bytes([planes | bool(turn) << 7]) + turn
        none = 3 * (PLANES - planes)  # passes over planes that this picture does not have
        sizes = [0] * none + [len(start) + size for size, _ in passes]
        errors = [SEEN * error] * none + [floor + SEEN * left * self.step**2 / numbers.size for _, left in passes]
        rest = PASSES - len(sizes)
        sizes, errors = sizes + [0] * rest, errors + errors[-1:] * rest
        sizes[len(sizes) - rest - 1 :] = [len(start) + len(data)] * (rest + 1)
        return Encoded(start + data, tuple(sizes), tuple(errors))

    def _check_fitted(self) -> None:
        if not self._is_fitted:
            raise NotFitted("this ImageCodec is not fitted: call fit(pictures) first, or take ImageCodec.load()")

    @classmethod
    def load(cls, path: str | os.PathLike[str] = "photos") -> Self:
        """Load one that `save` wrote, or one that comes with Nestcode, by its name.

        >>> ImageCodec.load()
        ImageCodec(step=4)
        """
        shipped = str(path) in pretrained_names("images")  # whatever is in the working directory: "./photos" is a file
        record = read_record(pretrained_path(str(path)) if shipped else path)
        if record.kind != "PictureCoder":
            raise InvalidInput(
                f"{path} holds a {record.kind}, which codes items: give a coder of pictures (load_coder reads it)"
            )
        return cls.from_record(record, path)

    def __repr__(self) -> str:
        return f"ImageCodec(step={self.step:g})"

    def to_record(self) -> Record:
        """Return the fitted coder as a record."""
        self._check_fitted()
        return Record("PictureCoder", self.VERSION, {"step": self.step}, _arrays(self._model))

    @classmethod
    def _read(cls, record: Record) -> Self:
        coder = cls(**record.settings)
        learners, weights = _core.picture_model_sizes()
        arrays = dict(record.arrays)
        check_arrays(
            arrays,
            {
                "chances": (np.uint16, (learners,)),
                "seen": (np.uint8, (learners,)),
                "weights": (np.int32, (weights,)),
            },
        )
        coder._model.read(**arrays)
        coder._is_fitted = True
        return coder


class ImageDecoder:
    """A picture that gets better as its bytes come.

    >>> from nestcode.data import sample_images
    >>> picture = sample_images()["flower"][:64, :64]
    >>> coder = ImageCodec().fit([picture])
    >>> data, decoder = coder.encode(picture), ImageDecoder(coder, picture.shape)
    >>> for first in range(0, len(data), 100):
    ...     decoder.feed(data[first : first + 100])
    >>> bool((decoder.picture() == coder.decode(data, picture.shape)).all())
    True
    """

    def __init__(self, coder: ImageCodec, shape: Sequence[int]) -> None:
        self.shape = check_shape(shape)
        coder._check_fitted()
        self._coder, self._colors = coder, colors_of(b"")
        self._kinds = KINDS[self.shape[2] if len(self.shape) == 3 else 1]
        self._start = b""  # what came before its first bits
        self._known: NDArray[np.int32] | None = None
        self._reader: _core.PictureReader | None = None

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        if self._reader is None:
            self._start += data
            data = self._begin()
        if self._reader is not None and data:
            self._reader.feed(data)

    def _begin(self) -> bytes:
        """Make ready once the first bytes are there; those that come after them."""
        if not self._start:
            return b""
        planes, turned = self._start[0] & 0x7F, TURN * (self._start[0] >> 7)
        if planes > PLANES:
            raise DamagedFile(f"a picture has at most {PLANES} planes, this one says {planes}: send it again")
        if len(self._start) < 1 + turned:
            return b""
        self._colors = colors_of(self._start[1 : 1 + turned])
        rows, columns = (-(-size // TILE) for size in self.shape[:2])
        self._known = np.zeros((len(self._kinds), rows, columns, TILE, TILE), dtype=np.int32)
        self._reader = _core.PictureReader(self._coder._model, self._kinds, planes, self._known)
        return self._start[1 + turned :]

    def picture(self) -> Picture:
        """The picture as far as it is known."""
        if self._known is None or self._reader is None:
            out = np.full(self.shape, MIDDLE, dtype=np.uint8)
            if len(self._kinds) in (2, 4):
                out[..., -1] = OPAQUE
            return out
        numbers = _numbers(self._known)
        _guess_slopes(numbers, 2**self._reader.plane)
        channels = from_tiles(numbers * np.float32(self._coder.step))
        return to_pixels(channels, self._colors, self.shape)


def _arrays(model: _core.PictureModel) -> dict[str, NDArray[Any]]:
    """What a model has learnt."""
    learners, weights = _core.picture_model_sizes()
    arrays: dict[str, NDArray[Any]] = {
        "chances": np.empty(learners, np.uint16), "seen": np.empty(learners, np.uint8),
        "weights": np.empty(weights, np.int32),
    }  # fmt: skip
    model.write(**arrays)
    return arrays


def _rounded_off(cosines: Floats, numbers: NDArray[np.int32]) -> float:
    """The sum of squares that whole numbers leave of a channel."""
    left: Floats = np.abs(cosines) - np.abs(numbers)
    left[numbers != 0] -= np.float32(LATER)
    return float(np.vdot(left, left))


def _numbers(known: NDArray[np.int32]) -> Floats:
    """What coefficients probably are: (2 m + 1) 2^p stands for a magnitude from m 2^p up to (m + 1) 2^p."""
    out: Floats = np.empty(known.shape, dtype=np.float32)
    for channel, numbers in zip(known, out, strict=True):
        twice = np.abs(channel)
        width = twice & -twice
        low = twice - width >> 1
        np.multiply(width, np.where(low == width, np.float32(FIRST), np.float32(LATER)), out=numbers)
        numbers += low
        np.copysign(numbers, channel, out=numbers)
    return out


def _guess_slopes(numbers: Floats, bound: int) -> None:
    """Let tiles of which little is known slope from one neighbour's mean to the other's, not beyond what is known."""
    means = np.pad(means_of(numbers), [(0, 0), (1, 1), (1, 1)], mode="edge")
    for slope, guess in (
        (numbers[..., 0, 1], means[:, 1:-1, :-2] - means[:, 1:-1, 2:]),
        (numbers[..., 1, 0], means[:, :-2, 1:-1] - means[:, 2:, 1:-1]),
    ):
        slope[slope == 0] = np.clip(SLOPE * guess, -bound / 2, bound / 2)[slope == 0]


def check_image(picture: Any) -> Picture:
    """An array that is a picture, or an error that says why it is none."""
    if not isinstance(picture, np.ndarray) or picture.dtype != np.uint8:
        raise InvalidInput(
            f"a picture must be an array of bytes (uint8), got {_told(picture)}: convert it, as by np.asarray(image), "
            "or by np.rint(255 * x).astype(np.uint8) from numbers between 0 and 1"
        )
    check_shape(picture.shape)
    return picture


def check_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """The shape of a picture, or an error that says why it is none."""
    sizes = tuple(int(size) for size in shape)
    if len(sizes) not in (2, 3) or min(sizes) < 1 or (len(sizes) == 3 and sizes[2] not in KINDS):
        raise InvalidInput(
            f"a picture must be (height, width) or (height, width, channels) with 1 to 4 channels, got shape {sizes}: "
            "channels come last, as in X.transpose(1, 2, 0)"
        )
    return sizes


def _told(value: Any) -> str:
    return f"an array of {value.dtype}" if isinstance(value, np.ndarray) else f"a {type(value).__name__}"
