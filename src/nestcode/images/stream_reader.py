"""Streams of images read from files, one image for each thread in memory at a time."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Self

import numpy as np

from nestcode.codes import thread_count
from nestcode.container.blocks import OnDamage, StoredBlocks, check_on_damage, report_damage
from nestcode.container.files import FileView
from nestcode.errors import InvalidInput
from nestcode.images.codec import ImageCodec, check_refiner, check_scale
from nestcode.images.format import parse_image_header
from nestcode.images.image import Image, scaled_shape
from nestcode.images.info import ImageStreamInfo, describe
from nestcode.images.pool import map_in_order
from nestcode.images.refiner import Refiner
from nestcode.images.stream import LIMIT, check_memory, decode_image, decoder_memory, find_codec


class ImageStreamReader:
    """Reads images of a stream in a file, whole or truncated: by name, by position, or in order.

    >>> import tempfile
    >>> import nestcode as nc
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "cut.nest"
    ...     size = path.write_bytes(nc.compress_images([np.eye(40, 50, dtype=np.uint8)], names=["line"])[:-4])
    ...     with ImageStreamReader(path) as reader:
    ...         len(reader), reader.names, reader[0].shape
    (1, ('line',), (40, 50))

    Blocks are verified when they are read, or all at once by `verify`.

    Args:
        path: the file.
        codec: the codec that made the stream, unless it is embedded or pretrained.
        bpp: use at most this rate, in bits of payload per pixel of all images together.
        refiner: a network that refines the decoded images, such as `Refiner.load()`; it takes some 150 MB beside
            `limit`.
        scale: 1/2, 1/4 or 1/8 for smaller images, as in `decompress_images`.
        limit: refuse images that take more bytes of memory than this.
        on_damage: "keep" reads the bytes before the first damaged block, and warns.

    Attributes:
        names, shapes: the names and shapes of the images, at the scale.
        profiles: their ICC profiles, b"" for none.
        nbytes: bytes of all decoded pixels, at scale 1.

    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        codec: ImageCodec | None = None,
        *,
        bpp: float | None = None,
        refiner: Refiner | None = None,
        scale: float = 1,
        limit: int = LIMIT,
        on_damage: OnDamage = "error",
    ) -> None:
        check_on_damage(on_damage)
        self.path, self._refiner, self._limit = Path(path), check_refiner(refiner), limit
        self._scale = check_scale(scale, refiner)
        view = FileView(self.path)
        self._header, self._view = parse_image_header(view), view
        self._codec = find_codec(self._header, view, codec)
        self._blocks: StoredBlocks | None = StoredBlocks(self._header, view)
        if on_damage == "keep":
            self._blocks.verify()
        report_damage(self._blocks.error(), on_damage)
        self._arrived = min(self._blocks.bits // 8, self._header.bytes_at(bpp))
        self.names = tuple(entry.name for entry in self._header.entries)
        self.shapes = tuple(scaled_shape(entry.shape, scale) for entry in self._header.entries)
        self.profiles = tuple(entry.profile for entry in self._header.entries)
        self.nbytes = sum(entry.nbytes for entry in self._header.entries)

    @property
    def info(self) -> ImageStreamInfo:
        """The contents of the stream; all blocks are verified."""
        self._open()
        blocks = StoredBlocks(self._header, self._view)  # damaged blocks that images are read from keep raising
        blocks.verify()
        return describe(self._header, blocks)

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, image: int | str) -> Image:
        """Return an image by its position or name."""
        if isinstance(image, str):
            if image not in self.names:
                raise KeyError(f"there is no image {image!r} among {len(self)}: names lists them")
            image = self.names.index(image)
        if isinstance(image, bool) or not isinstance(image, int | np.integer):
            raise InvalidInput(f"images are read by positions and names, got {image!r}")
        if not -len(self) <= image < len(self):
            raise IndexError(f"image must be between 0 and {len(self) - 1}, got {image}")
        at = int(image) % len(self)
        check_memory([self._header.entries[at]], self._limit)
        blocks = self._open()
        return decode_image(self._header, blocks, self._codec, at, self._arrived, self._refiner, self._scale)

    def __iter__(self) -> Iterator[Image]:
        return self.decode_all()

    def decode_all(self, threads: int | None = 1) -> Iterator[Image]:
        """Return all images in order, decoded by several threads; None is one for each core.

        Memory holds one image for each thread, within the limit.
        """
        return self.decode_some(range(len(self)), threads)

    def decode_some(self, images: Iterable[int], threads: int | None = 1) -> Iterator[Image]:
        """Return the images at these positions, in this order."""
        memory = [decoder_memory(entry) + entry.nbytes for entry in self._header.entries]
        return map_in_order(self.__getitem__, images, thread_count(threads), memory.__getitem__, self._limit)

    def verify(self) -> None:
        """Raise if a block that images are decoded from is damaged, before any is decoded."""
        self._open().check(0, self._arrived)

    def _open(self) -> StoredBlocks:
        if self._blocks is None:
            raise InvalidInput(f"{self.path} is closed: open another ImageStreamReader")
        return self._blocks

    def close(self) -> None:
        """Release the file."""
        self._blocks = None
        self._view.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
