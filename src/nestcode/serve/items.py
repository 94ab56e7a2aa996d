"""The appearance of an index's items: texts or images by id, for people who look at results."""

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from nestcode.data import ImageFolder
from nestcode.data.folder import pillow
from nestcode.data.lines import read_lines
from nestcode.errors import InvalidInput

SIDE = 128  # pixels, of the images of a folder


class Items:
    """Texts, or images of bytes, (height, width, 3) or (height, width); item i has the id i.

    >>> items = Items("text", ["a tree", "a fugue"])
    >>> items.show(1)
    (b'a fugue', 'text/plain; charset=utf-8')
    """

    def __init__(self, kind: Literal["text", "images"], contents: Sequence[Any]) -> None:
        self.kind, self._contents = kind, contents

    @classmethod
    def open(cls, path: Path) -> "Items":
        """Open a folder of images, images in a .npy file, or a text file with one line per item."""
        if path.is_dir():
            return cls("images", ImageFolder(path, SIDE))  # type: ignore[arg-type]
        if not path.is_file():
            raise FileNotFoundError(f"there is no file {path}: give a folder of images, a .npy file or a text file")
        if path.suffix != ".npy":
            return cls("text", read_lines(path))
        images = np.load(path, mmap_mode="r", allow_pickle=False)
        if images.dtype != np.uint8 or images.ndim not in (3, 4) or images.shape[3:] not in ((), (3,)):
            raise InvalidInput(
                f"{path} must hold images, uint8 (n, height, width, 3) or (n, height, width), got {images.dtype} "
                f"{images.shape}: write them with np.save"
            )
        return cls("images", images)

    def __len__(self) -> int:
        return len(self._contents)

    def image_of(self, features: int) -> dict[str, Any] | None:
        """Return the shape and the layout of vectors that are images; None where these features are none.

        The images of a folder are what `nestcode index build` makes of them, channels first and square; rows of a .npy
        file are its images flattened.
        """
        if self.kind == "text":
            return None
        if isinstance(self._contents, ImageFolder):
            side = math.isqrt(features // 3)
            return {"shape": [side, side], "layout": "channels first"} if features == 3 * side**2 else None
        shape = self._contents[0].shape
        fits = len(shape) == 3 and features == math.prod(shape)
        return {"shape": list(shape[:2]), "layout": "channels last"} if fits else None

    def show(self, item: int) -> tuple[bytes, str]:
        """Return an item to look at, and its media type."""
        if self.kind == "text":
            return self._contents[item].encode(), "text/plain; charset=utf-8"
        file = io.BytesIO()
        pillow("Image").fromarray(np.ascontiguousarray(self._contents[item])).save(file, "PNG")
        return file.getvalue(), "image/png"
