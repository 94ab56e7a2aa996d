"""Pictures as files: of any size, grey or in color, with or without opacity."""

import io
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from nestcode.data.folder import FORMATS, SUFFIXES, Images, image_files, pillow, unreadable, upright
from nestcode.errors import InvalidInput
from nestcode.storage import LONGEST, write_atomic


class ImageFiles(Sequence[Images]):
    """The pictures of some files and folders, read when they are asked for.

    >>> import tempfile
    >>> from PIL import Image
    >>> with tempfile.TemporaryDirectory() as path:
    ...     Image.new("RGBA", (60, 40)).save(Path(path) / "wide.png")
    ...     files = ImageFiles([Path(path)])
    ...     files.names, files[0].shape
    (['wide.png'], (40, 60, 4))

    Args:
        paths: files, and folders with all that is named like an image in them and below.

    Attributes:
        paths: the file of each picture.
        names: their paths inside of the folder they were found in.
        passed_over: files in those folders that are not named like an image; hidden ones (.name) do not count.

    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths: list[Path] = []
        self.names: list[str] = []
        self.passed_over: list[Path] = []
        for path in paths:
            found = image_files(path) if path.is_dir() else [path]
            self.passed_over += _other_files(path)
            self.paths += found
            self.names += [(file.relative_to(path) if path.is_dir() else Path(file.name)).as_posix() for file in found]
        for path in self.paths:
            if not path.is_file():
                raise InvalidInput(f"there is no file {path}: give images, or folders of them")
        if not self.paths:
            raise InvalidInput(
                f"there are no images in {', '.join(map(str, paths))}: give some of {', '.join(SUFFIXES)}, or folders "
                "of them"
            )
        often, count = Counter(self.names).most_common(1)[0]
        if count > 1:
            raise InvalidInput(f"names of pictures must differ, got {often} twice: give the folder that holds both")

    def __len__(self) -> int:
        return len(self.paths)

    @overload
    def __getitem__(self, number: int) -> Images: ...
    @overload
    def __getitem__(self, number: slice) -> list[Images]: ...
    def __getitem__(self, number: int | slice) -> Images | list[Images]:
        if isinstance(number, slice):
            return [read_image(path) for path in self.paths[number]]
        return read_image(self.paths[number])


def read_image(path: Path) -> Images:
    """A picture as its camera was held: (height, width) if it is grey, else (height, width, channels)."""
    images = pillow("Image")
    with path.open("rb") as file:
        try:
            image = upright(images.open(file, formats=FORMATS))
            opacity = "A" in image.getbands() or "transparency" in image.info
            colors = "L" if image.mode in ("1", "L", "LA", "La", "F") else "RGB"
            return np.asarray(image.convert(colors + "A" if opacity else colors))
        except MemoryError:
            raise
        except Exception as error:  # Pillow's plugins raise many kinds, and so do damaged files
            raise unreadable(path, error) from error


def write_image(path: Path, picture: NDArray[Any]) -> None:
    """Write a picture as a PNG file, whole or not at all."""
    memory = io.BytesIO()
    pillow("Image").fromarray(np.squeeze(picture, axis=2) if picture.shape[2:] == (1,) else picture).save(memory, "PNG")
    write_atomic(path, memory.getvalue())


def png_paths(folder: Path, names: Sequence[str]) -> list[Path]:
    """Where the pictures of these names go as PNG files: name.jpg becomes name.png, or name.jpg.png if that is taken.

    >>> [path.as_posix() for path in png_paths(Path("out"), ["a.jpg", "same.jpg", "same.png"])]
    ['out/a.png', 'out/same.jpg.png', 'out/same.png.png']
    """
    kept: set[str] = set()  # names that keep their ending
    while True:
        files = [f"{name}.png" if name in kept else str(Path(name).with_suffix(".png")) for name in names]
        often = Counter(files)
        same = {name for name, file in zip(names, files, strict=True) if often[file] > 1}
        if same <= kept:
            break
        kept |= same
    for name, file in zip(names, files, strict=True):
        if any(len(os.fsencode(part)) > LONGEST for part in Path(file).parts):
            raise InvalidInput(f"the picture {name} has a name of more than {LONGEST} bytes: no file can have it")
        within = next((str(above) for above in Path(file).parents if str(above) in often), None)
        if within is not None:
            raise InvalidInput(f"the picture {name} would be inside of {within}, which is a picture too: rename one")
    return [folder / file for file in files]


def _other_files(folder: Path) -> list[Path]:
    """The files below a folder that are not named like images; hidden ones do not count."""
    found = []
    for here, below, names in os.walk(folder):
        below[:] = [name for name in below if not name.startswith(".")]
        found += [
            Path(here, name) for name in names if not name.lower().endswith(SUFFIXES) and not name.startswith(".")
        ]
    return sorted(found)
