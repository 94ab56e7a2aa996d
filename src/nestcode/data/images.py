"""Image files of any size, gray or color, with or without alpha, of 8 or 16 bits, read on demand; PNG files written."""

import os
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import overload

from nestcode.data.folder import SUFFIXES, image_files
from nestcode.data.image_file import read_image, read_profile
from nestcode.data.png import Pixels, png_bytes
from nestcode.errors import InvalidInput
from nestcode.storage import LONGEST, write_atomic


class ImageFiles(Sequence[Pixels]):
    """The images of some files and folders at their own sizes, read on demand.

    >>> import tempfile
    >>> from PIL import Image
    >>> with tempfile.TemporaryDirectory() as path:
    ...     Image.new("RGBA", (60, 40)).save(Path(path) / "wide.png")
    ...     files = ImageFiles([Path(path)])
    ...     files.names, files[0].shape
    (['wide.png'], (40, 60, 4))

    Args:
        paths: files and folders. Folders are searched recursively for images by suffix.

    Attributes:
        paths: the file of each image.
        names: their paths relative to the given folder.
        skipped: files in the folders that have no suffix of an image, except hidden files (.name).

    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths: list[Path] = []
        self.names: list[str] = []
        self.skipped: list[Path] = []
        for path in paths:
            if not path.is_dir() and not path.is_file():
                raise InvalidInput(f"there is no file {path}: give images, or folders of them")
            found = image_files(path) if path.is_dir() else [path]
            self.skipped += _other_files(path)
            self.paths += found
            self.names += [(file.relative_to(path) if path.is_dir() else Path(file.name)).as_posix() for file in found]
        if not self.paths:
            raise InvalidInput(
                f"there are no images in {', '.join(map(str, paths))}: give some of {', '.join(SUFFIXES)}, or folders "
                "of them"
            )
        often, count = Counter(self.names).most_common(1)[0]
        if count > 1:
            raise InvalidInput(f"names of images must differ, got {often} twice: give the folder that holds both")

    def __len__(self) -> int:
        return len(self.paths)

    @overload
    def __getitem__(self, at: int) -> Pixels: ...
    @overload
    def __getitem__(self, at: slice) -> list[Pixels]: ...
    def __getitem__(self, at: int | slice) -> Pixels | list[Pixels]:
        if isinstance(at, slice):
            return [read_image(path) for path in self.paths[at]]
        return read_image(self.paths[at])

    def profile(self, at: int) -> bytes:
        """Return the ICC profile of an image, or nothing."""
        return read_profile(self.paths[at])


def write_image(path: Path, image: Pixels, profile: bytes = b"") -> None:
    """Write an image as a PNG file, whole or not at all."""
    write_atomic(path, png_bytes(image, profile))


def png_paths(folder: Path, names: Sequence[str]) -> list[Path]:
    """Return where images of these names go as PNG files: name.jpg becomes name.png, or name.jpg.png on a clash.

    >>> [path.as_posix() for path in png_paths(Path("out"), ["a.jpg", "same.jpg", "same.png"])]
    ['out/a.png', 'out/same.jpg.png', 'out/same.png.png']
    """
    kept: set[str] = set()  # names that keep their suffix
    while True:
        files = [f"{name}.png" if name in kept else str(Path(name).with_suffix(".png")) for name in names]
        often = Counter(files)
        same = {name for name, file in zip(names, files, strict=True) if often[file] > 1}
        if same <= kept:
            break
        kept |= same
    for name, file in zip(names, files, strict=True):
        try:
            longest = max(len(os.fsencode(part)) for part in Path(file).parts)
        except UnicodeEncodeError:
            raise InvalidInput(
                f"the image {name!a} has a name that files cannot have in {sys.getfilesystemencoding()}, the encoding "
                "of this process: set PYTHONUTF8=1"
            ) from None
        if longest > LONGEST:
            raise InvalidInput(
                f"the image {name} has a name of more than {LONGEST} bytes, which no file can have: rename it"
            )
        within = next((str(above) for above in Path(file).parents if str(above) in often), None)
        if within is not None:
            raise InvalidInput(f"the image {name} would be inside of {within}, which is an image too: rename one")
    return [folder / file for file in files]


def _other_files(folder: Path) -> list[Path]:
    """Return the files below a folder without a suffix of images; hidden ones do not count."""
    found = []
    for here, below, names in os.walk(folder):
        below[:] = [name for name in below if not name.startswith(".")]
        found += [
            Path(here, name) for name in names if not name.lower().endswith(SUFFIXES) and not name.startswith(".")
        ]
    return sorted(found)
