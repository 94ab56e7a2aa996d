"""A folder of images as squares of one size, read on demand."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestcode.arrays import CORES, check_int
from nestcode.errors import DamagedFile, InvalidInput, import_extra
from nestcode.storage import open_file

SUFFIXES = (
    ".avif", ".bmp", ".gif", ".heic", ".heif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp",
)  # fmt: skip
FORMATS = ("AVIF", "BMP", "GIF", "HEIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")  # of contents, whatever the suffix
THREADS = min(8, CORES)  # reading waits for the disk, and Pillow decodes without the GIL

Images = NDArray[np.uint8]


class ImageFolder:
    """The images in a folder and its subfolders, each a square of `size` pixels.

    >>> import tempfile
    >>> from PIL import Image
    >>> with tempfile.TemporaryDirectory() as path:
    ...     Image.new("RGB", (60, 40), "red").save(Path(path) / "wide.png")
    ...     images = ImageFolder(path, size=8)
    ...     images[0].shape, images[0][0, 0].tolist(), images.rows(np.array([0])).shape
    ((8, 8, 3), [255, 0, 0], (1, 192))

    It is a source of training data that keeps nothing in memory. An image is rotated by its EXIF orientation, cropped
    to the central square and resized; transparent parts become white, and of several frames the first is used. Images
    come in the order of their names; hidden files and folders (.name) are skipped.

    Args:
        path: the folder. AVIF, BMP, GIF, JPEG, PNG, PPM, TIFF and WebP files are read, and HEIC with `pillow-heif`.
        size: the height and width of each image.
        color: RGB if true, else gray.
        skip_damaged: leave out the files that cannot be read, and list them in `damaged`. This reads every file once
            at the start; otherwise reading a damaged file raises.

    Attributes:
        paths: the file of each image.
        damaged: the files that were left out.
        shape: of one image, (size, size, 3) or (size, size).
        features: values of one image: row by row, the colors of a pixel side by side.

    """

    resident = False  # for training: it may be larger than memory

    def __init__(self, path: str | Path, size: int = 32, color: bool = True, *, skip_damaged: bool = False) -> None:
        pillow("Image")
        size = check_int(size, "size", least=1)
        self.shape = (size, size, 3) if color else (size, size)
        self.features = int(np.prod(self.shape))
        files = image_files(Path(path))
        fine = self._readable(files) if skip_damaged else [True] * len(files)
        self.paths = tuple(file for file, good in zip(files, fine, strict=True) if good)
        self.damaged = tuple(file for file, good in zip(files, fine, strict=True) if not good)
        if not self.paths:
            raise InvalidInput(
                f"{path} must hold images, found none among {len(files)} files with a suffix of images: "
                f"give a folder with some of {', '.join(SUFFIXES)}"
            )

    def __len__(self) -> int:
        return len(self.paths)

    def __repr__(self) -> str:
        return f"ImageFolder({len(self)} images of {' x '.join(map(str, self.shape))})"

    def __getitem__(self, key: int | slice | Sequence[int] | NDArray[Any]) -> Images:
        """Return one image, (size, size, 3), or those of a slice or an array of positions, (n, size, size, 3)."""
        positions = np.arange(len(self))[key]
        images = self._read(positions.reshape(-1))
        return images if positions.ndim else images[0]

    def rows(self, indices: NDArray[np.int64]) -> Images:
        """Return the images at some positions, flattened: (n, features)."""
        return self._read(indices).reshape(len(indices), self.features)

    def whole(self) -> Images:
        """Return all images, flattened: (n, features)."""
        return self.rows(np.arange(len(self)))

    def _read(self, positions: NDArray[np.int64]) -> Images:
        images = np.empty((len(positions), *self.shape), dtype=np.uint8)
        with ThreadPoolExecutor(THREADS) as pool:
            read = pool.map(lambda at: read_square(self.paths[at], self.shape), positions)
            for i, image in enumerate(read):
                images[i] = image
        return images

    def _readable(self, files: Sequence[Path]) -> list[bool]:
        """Read all files as training will: only that detects truncated ones."""

        def is_fine(file: Path) -> bool:
            try:
                read_square(file, self.shape)
            except DamagedFile:
                return False
            return True

        with ThreadPoolExecutor(THREADS) as pool:
            return list(pool.map(is_fine, files))


def read_square(path: Path, shape: tuple[int, ...]) -> Images:
    """Return one image as a square, of the shape (size, size, 3) or (size, size).

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "ramp.ppm"
    ...     _ = path.write_bytes(b"P5 4 2 255 " + bytes([9, 10, 20, 9, 9, 30, 40, 9]))
    ...     read_square(path, (2, 2))
    array([[10, 20],
           [30, 40]], dtype=uint8)
    """
    images = pillow("Image")
    size, mode = shape[0], "RGB" if len(shape) == 3 else "L"
    with open_file(path) as file:
        try:
            image = images.open(file, formats=formats())
            image.draft(mode, (2 * size, 2 * size))  # a large JPEG need not be decoded in full
            image = _opaque(upright(image), mode)
            side = min(image.size)
            left, top = ((length - side) // 2 for length in image.size)
            box = (left, top, left + side, top + side)
            return np.asarray(image.resize((size, size), images.Resampling.LANCZOS, box))
        except MemoryError:
            raise
        except Exception as error:  # damaged files make Pillow's plugins raise many types
            raise unreadable(path, error) from error


def unreadable(path: Path, error: Exception) -> DamagedFile:
    """Return the error for a file that Pillow cannot read."""
    if isinstance(error, pillow("Image").UnidentifiedImageError):
        missing = "" if "HEIF" in formats() else "; pip install pillow-heif if it is HEIC"
        return DamagedFile(
            f"{path} cannot be read as an image, it is damaged or none of {', '.join(formats())}: "
            f"repair, convert or remove it{missing}"
        )
    return DamagedFile(f"{path} cannot be read as an image ({error}): repair or remove it")


@cache
def formats() -> tuple[str, ...]:
    """Return those of `FORMATS` that Pillow reads here: old versions lack AVIF, and HEIF needs `pillow-heif`.

    >>> {"JPEG", "PNG", "TIFF"} <= set(formats())
    True
    """
    images = pillow("Image")
    if find_spec("pillow_heif") is not None:
        import_module("pillow_heif").register_heif_opener()
    images.init()
    return tuple(name for name in FORMATS if name in images.OPEN)


def upright(image: Any) -> Any:
    """Return the image rotated by its EXIF orientation, with at most 8 bits per channel."""
    pillow("ImageOps").exif_transpose(image, in_place=True)
    if image.mode.startswith("I"):  # 16 bits, which Pillow would clip at 255
        return pillow("Image").fromarray((np.asarray(image) >> 8).astype(np.uint8))
    return image


def _opaque(image: Any, mode: str) -> Any:
    """Return the image composed on white, in a mode without transparency."""
    if "A" in image.getbands() or "transparency" in image.info:
        images, image = pillow("Image"), image.convert("RGBA")
        image = images.alpha_composite(images.new("RGBA", image.size, "white"), image)
    return image.convert(mode)


def pillow(module: str) -> ModuleType:
    """Return a module of Pillow, or raise an error that says how to install it."""
    return import_extra(f"PIL.{module}", extra="reproduce", purpose="reading images")


def image_files(folder: Path) -> list[Path]:
    """Return the files with a suffix of images, in the order of their names."""
    if not folder.is_dir():
        raise InvalidInput(f"path must be a folder of images, got {folder}: there is no such folder")
    found = []
    for here, below, names in os.walk(folder):
        below[:] = [name for name in below if not name.startswith(".")]
        found += [
            os.path.join(here, name)  # noqa: PTH118 (a million times)
            for name in names
            if name.lower().endswith(SUFFIXES) and not name.startswith(".")
        ]
    return [Path(name) for name in sorted(found)]
