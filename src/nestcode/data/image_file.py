"""One image file, read without loss of what it holds: 8 or 16 bits per channel, alpha, orientation, ICC profile."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from warnings import warn

import numpy as np
from numpy.typing import NDArray

from nestcode.data.folder import formats, pillow, unreadable, upright
from nestcode.data.png import Pixels
from nestcode.errors import InvalidInput
from nestcode.storage import open_file

PEAK8, PEAK16 = 255, 65535
BOXES = 1 << 16  # bytes of an AVIF file that its configuration is in
STILLS = ("HEIF", "MPO")  # formats whose first image is the photograph, and further ones previews or depth maps
# Pillow reads the high bytes of colors with 16 bits: what it has to take the layout for to read the low bytes.
OTHER = {"16B": "16L", "16L": "16B", "16N": "16B" if sys.byteorder == "little" else "16L"}
LOW_BYTES = {
    "LA;16B": "RGBA", **{f"{mode};{at}": f"{mode};{OTHER[at]}" for mode in ("RGB", "RGBA", "RGBX") for at in OTHER},
}  # fmt: skip
FEW_BITS = {"L;2": 85, "L;4": 17}  # Pillow scales these to 8 bits, but not the gray that stands for transparency


def read_image(path: Path) -> Pixels:
    """Return an image rotated by its EXIF orientation: (height, width) if gray, else (height, width, channels).

    Values are uint16 if the file has 16 bits per channel, else uint8. Animations are refused, and so are values that
    would lose bits: CMYK of 16 bits, floats.

    >>> import tempfile
    >>> from nestcode.data.png import png_bytes
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "deep.png"
    ...     _ = path.write_bytes(png_bytes(np.array([[[0, 300, 65535]]], dtype=np.uint16)))
    ...     read_image(path)
    array([[[    0,   300, 65535]]], dtype=uint16)
    """
    with _opened(path) as image:
        raw = _raw_mode(image)
        if image.mode.startswith("I"):
            return _with_transparency(_gray16(path, image), image)
        if _has_deep_planes(image):
            raise _unsupported(path, "16 in one plane for each channel")
        if raw in LOW_BYTES:
            return _with_transparency(_join_bytes(path, image, raw), image)
        if image.mode == "F" or "16" in raw:
            raise _unsupported(path, raw)
        if _has_more_bits(path, image):
            warn(f"{path} has more than 8 bits per channel, and only 8 are read: convert it to PNG", stacklevel=2)
        if image.format == "PNG" and raw in FEW_BITS and "transparency" in image.info:
            image.info["transparency"] *= FEW_BITS[raw]
        image = upright(image)
        alpha = image.mode.endswith(("A", "a")) or "transparency" in image.info
        colors = "L" if image.mode in ("1", "L", "LA", "La") else "RGB"
        return np.asarray(image.convert(colors + "A" if alpha else colors))


def read_profile(path: Path) -> bytes:
    """Return the ICC profile of an image's file, or nothing if it has none for the colors that `read_image` returns."""
    with _opened(path) as image:
        profile = bytes(image.info.get("icc_profile") or b"")
        gray = image.mode[0] in "1LI" or _raw_mode(image) == "LA;16B"
        if profile and profile[16:20] != (b"GRAY" if gray else b"RGB "):
            warn(f"{path} has a profile for other colors than gray or RGB, which is left out", stacklevel=2)
            return b""
        return profile


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Yield a file as an image of Pillow; errors name the file, and animations are refused."""
    with open_file(path) as file:
        try:
            image = pillow("Image").open(file, formats=formats())
            frames = 1 if image.format in STILLS else getattr(image, "n_frames", 1)
            if frames > 1:
                raise InvalidInput(
                    f"{path} must hold one image, got {frames} frames or pages: extract some of them as PNG files, "
                    "as ffmpeg and ImageMagick do"
                )
            yield image
        except (InvalidInput, MemoryError):
            raise
        except Exception as error:  # damaged files make Pillow's plugins raise many types
            raise unreadable(path, error) from error


def _raw_mode(image: Any) -> str:
    """Return how Pillow names the layout of a file's values, such as RGB;16B."""
    if not image.tile:
        return ""
    arguments = image.tile[0].args
    first = arguments[0] if isinstance(arguments, tuple) and arguments else arguments
    return first if isinstance(first, str) else ""


def _has_deep_planes(image: Any) -> bool:
    """Return whether a TIFF file stores 16 bits channel by channel, which Pillow takes for 8 bits."""
    return bool(image.format == "TIFF" and image.tag_v2.get(284) == 2 and max(image.tag_v2.get(258, [1])) > 8)


def _join_bytes(path: Path, image: Any, raw: str) -> NDArray[np.uint16]:
    """Return pixels of 16 bits per channel: Pillow reads the high bytes, and this function the low bytes too."""
    high = np.asarray(upright(image))
    with _opened(path) as again:
        again.tile = [
            tile._replace(args=(LOW_BYTES[raw], *tile.args[1:]) if isinstance(tile.args, tuple) else LOW_BYTES[raw])
            for tile in again.tile
        ]
        low = np.asarray(upright(again))
    # Gray and alpha are read as four bytes.
    pixels = low.view(">u2") if raw == "LA;16B" else high.astype(np.uint16) << 8 | low
    return pixels.astype(np.uint16)


def _gray16(path: Path, image: Any) -> NDArray[np.uint16]:
    """Return a gray image of 16 bits; raise if its values do not fit."""
    pillow("ImageOps").exif_transpose(image, in_place=True)
    values = np.asarray(image)
    if values.min() < 0 or values.max() > PEAK16:
        raise _unsupported(path, f"values from {values.min()} to {values.max()}")
    return values.astype(np.uint16)


def _with_transparency(pixels: NDArray[np.uint16], image: Any) -> NDArray[np.uint16]:
    """Return pixels with an alpha channel if a color of the image stands for transparency."""
    if "transparency" not in image.info:
        return pixels
    channels = pixels[..., None] if pixels.ndim == 2 else pixels
    is_key = (channels == np.array(image.info["transparency"])).all(axis=2, keepdims=True)
    return np.concatenate([channels, np.where(is_key, 0, PEAK16).astype(np.uint16)], axis=2)


def _has_more_bits(path: Path, image: Any) -> bool:
    """Return whether a file has more bits per channel than the 8 that Pillow reads of its format."""
    if image.format == "AVIF":
        with path.open("rb") as file:
            start = file.read(BOXES)
        at = start.find(b"av1C") + 4
        return 4 <= at < len(start) - 2 and bool(start[at + 2] & 0x40)  # high_bitdepth of the AV1 configuration
    if image.format == "PPM":
        return any(isinstance(tile.args, tuple) and tile.args[-1] > PEAK8 for tile in image.tile)
    return int(image.info.get("bit_depth", 8)) > 8  # HEIF


def _unsupported(path: Path, kind: str) -> InvalidInput:
    return InvalidInput(f"{path} must have 8 or 16 bits per channel, gray or RGB, got {kind}: convert it to a PNG file")
