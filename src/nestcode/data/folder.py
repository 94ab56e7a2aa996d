"""A folder of images as rows of bytes, read when they are asked for."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestcode.arrays import check_int
from nestcode.errors import DamagedFile, InvalidInput, import_extra

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".webp")
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "WEBP")  # what a file may hold, whatever its name says
THREADS = min(8, os.cpu_count() or 1)  # reading waits for the disk, and Pillow decodes outside Python's lock

Images = NDArray[np.uint8]


class ImageFolder:
    """The images in a folder and in those below it, each a square of `size` pixels.

    >>> import tempfile
    >>> from PIL import Image
    >>> with tempfile.TemporaryDirectory() as path:
    ...     Image.new("RGB", (60, 40), "red").save(Path(path) / "wide.png")
    ...     images = ImageFolder(path, size=8)
    ...     images[0].shape, images[0][0, 0].tolist(), images.rows(np.array([0])).shape
    ((8, 8, 3), [255, 0, 0], (1, 192))

    It can be trained on as it is: nothing is kept in memory. An image is turned as its camera was held, cropped to the
    square in its middle, and reduced (or enlarged) to the size; transparent parts become white, and of several frames
    the first is taken. Images come in the order of their names; hidden files and folders (.name) are passed over.

    Args:
        path: the folder. PNG, JPEG, WebP, BMP, GIF and PPM files are read.
        size: the height and width of each image.
        color: red, green and blue; False for grey alone.
        skip_damaged: leave out the files that cannot be read, and list them in `damaged`. This reads every file once
            at the start; otherwise a damaged file is an error when it is asked for.

    Attributes:
        paths: the file of each image.
        damaged: the files that were left out.
        shape: of one image, (size, size, 3) or (size, size).
        features: how many numbers that is: row by row, the colors of a pixel side by side.

    """

    resident = False  # larger than memory, for all that training knows

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
                f"{path} must hold images, found none among {len(files)} files that are named like one: "
                f"give a folder with some of {', '.join(SUFFIXES)}"
            )

    def __len__(self) -> int:
        return len(self.paths)

    def __repr__(self) -> str:
        return f"ImageFolder({len(self)} images of {' x '.join(map(str, self.shape))})"

    def __getitem__(self, key: int | slice | Sequence[int] | NDArray[Any]) -> Images:
        """One image, (size, size, 3), or those of a slice or an array of numbers, (n, size, size, 3)."""
        numbers = np.arange(len(self))[key]
        images = self._read(numbers.reshape(-1))
        return images if numbers.ndim else images[0]

    def rows(self, indices: NDArray[np.int64]) -> Images:
        """The images of these numbers, flattened: (n, features)."""
        return self._read(indices).reshape(len(indices), self.features)

    def whole(self) -> Images:
        """All images, flattened: (n, features)."""
        return self.rows(np.arange(len(self)))

    def _read(self, numbers: NDArray[np.int64]) -> Images:
        images = np.empty((len(numbers), *self.shape), dtype=np.uint8)
        with ThreadPoolExecutor(THREADS) as pool:
            read = pool.map(lambda number: read_square(self.paths[number], self.shape), numbers)
            for i, image in enumerate(read):
                images[i] = image
        return images

    def _readable(self, files: Sequence[Path]) -> list[bool]:
        """Read all files as training will, as only that finds what is missing at the end of one."""

        def is_fine(file: Path) -> bool:
            try:
                read_square(file, self.shape)
            except DamagedFile:
                return False
            return True

        with ThreadPoolExecutor(THREADS) as pool:
            return list(pool.map(is_fine, files))


def read_square(path: Path, shape: tuple[int, ...]) -> Images:
    """Read one image as a square, of the shape (size, size, 3) or (size, size).

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
    with path.open("rb") as file:
        try:
            image = images.open(file, formats=FORMATS)
            image.draft(mode, (2 * size, 2 * size))  # a large JPEG need not be decoded in full
            image = _opaque(upright(image), mode)
            side = min(image.size)
            left, top = ((length - side) // 2 for length in image.size)
            box = (left, top, left + side, top + side)
            return np.asarray(image.resize((size, size), images.Resampling.LANCZOS, box))
        except MemoryError:
            raise
        except Exception as error:  # Pillow's plugins raise many kinds, and so do damaged files
            raise unreadable(path, error) from error


def unreadable(path: Path, error: Exception) -> DamagedFile:
    """The error for a file that is no image, as Pillow says it is."""
    if isinstance(error, pillow("Image").UnidentifiedImageError):
        return DamagedFile(
            f"{path} cannot be read as an image, it is damaged or none of {', '.join(FORMATS)}: "
            "repair, convert or remove it"
        )
    return DamagedFile(f"{path} cannot be read as an image ({error}): repair or remove it")


def upright(image: Any) -> Any:
    """The image as its camera was held, with at most 8 bits a color."""
    pillow("ImageOps").exif_transpose(image, in_place=True)
    if image.mode.startswith("I"):  # 16 bits, which Pillow would cut off at 255
        return pillow("Image").fromarray((np.asarray(image) >> 8).astype(np.uint8))
    return image


def _opaque(image: Any, mode: str) -> Any:
    """The image on white, in a mode without transparency."""
    if "A" in image.getbands() or "transparency" in image.info:
        images, image = pillow("Image"), image.convert("RGBA")
        image = images.alpha_composite(images.new("RGBA", image.size, "white"), image)
    return image.convert(mode)


def pillow(module: str) -> ModuleType:
    """A module of Pillow, or an error that says how to install it."""
    return import_extra(f"PIL.{module}", extra="reproduce", purpose="reading images")


def image_files(folder: Path) -> list[Path]:
    """The files named like images, in the order of their names."""
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
