"""Streams of pictures in files: nothing is held in memory that need not be."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal, Self

import numpy as np

from nestcode.errors import InvalidInput
from nestcode.images.codec import ImageCodec, Picture
from nestcode.images.format import lay_out, parse_image_header
from nestcode.images.stream import (
    LIMIT,
    Collection,
    ImageStreamInfo,
    check_memory,
    decode_one,
    describe,
    find_codec,
)
from nestcode.storage import write_pieces
from nestcode.streams.payload import Blocks, settle
from nestcode.streams.shared import Spooled, map_file
from nestcode.streams.stream import check_choice


class ImageStreamWriter(Spooled):
    """Writes a stream of pictures that come one by one; the file appears when it is whole, or not at all.

    >>> from nestcode.data import sample_images
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "photographs.nest"
    ...     with ImageStreamWriter(path, length=64) as writer:
    ...         for name, picture in sample_images().items():
    ...             writer.add(name, picture)
    ...     with ImageStreamReader(path) as reader:
    ...         reader.names, reader["china"].shape
    (('china', 'flower'), (427, 640, 3))

    Until then bytes are kept in a file without a name in the same folder, which is gone however the process ends.

    Args:
        path: the file; one that is there gives way when the new one is whole.
        coder, embed, length, budget, max_error: as `compress_images` takes them.

    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        coder: ImageCodec | None = None,
        *,
        embed: bool = False,
        length: int | None = None,
        budget: int | None = None,
        max_error: float | None = None,
    ) -> None:
        self._embed, self._length, self._budget = embed, length, budget
        self._collection = Collection(ImageCodec.load() if coder is None else coder, max_error)
        self._starts = [0]  # of the pictures in the spool
        super().__init__(path)

    def add(self, name: str, picture: Picture) -> None:
        """Add a picture, an array of bytes (height, width) or (height, width, channels)."""
        self._check_open()
        data = self._collection.add(name, picture)
        try:
            self._spool.write(data)
        except BaseException:
            self.discard()
            raise
        self._starts.append(self._starts[-1] + len(data))

    def _finish(self) -> None:
        header, embedded = self._collection.finish(embed=self._embed, length=self._length, budget=self._budget)
        kept = self._mapped() if self._starts[-1] else b""

        def read(number: int, some: slice) -> bytes:
            return kept[self._starts[number] + some.start : self._starts[number] + some.stop]

        write_pieces(self.path, lay_out(header, embedded, read))


class ImageStreamReader:
    """Reads pictures of a stream in a file, whole or cut, one at a time: by name, by number, or one after the other.

    >>> from nestcode.images import compress_images
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "cut.nest"
    ...     size = path.write_bytes(compress_images([np.eye(40, 50, dtype=np.uint8)], names=["line"])[:-4])
    ...     with ImageStreamReader(path) as reader:
    ...         len(reader), reader.names, reader[0].shape
    (1, ('line',), (40, 50))

    The file is mapped, and blocks are checked when they are read.

    Args:
        path: the file.
        coder: the one that made it, unless it is embedded or comes with Nestcode.
        length: use at most so many bits of a tile of 32 x 32 pixels, on average.
        limit: refuse pictures that take more bytes of memory than this.
        on_damage: "keep" reads what precedes a damaged block, and warns.

    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        coder: ImageCodec | None = None,
        *,
        length: int | None = None,
        limit: int = LIMIT,
        on_damage: Literal["error", "keep"] = "error",
    ) -> None:
        check_choice(on_damage)
        self.path, self._limit = Path(path), limit
        view = map_file(self.path)
        self._header, self._view = parse_image_header(view), view
        self._coder = find_codec(self._header, view, coder)
        self._blocks: Blocks | None = Blocks(self._header, view)
        if on_damage == "keep":
            self._blocks.verify()
        settle(self._blocks.error(), on_damage)
        self._arrived = min(self._blocks.bits // 8, self._header.bytes_for(length))
        self.names = tuple(entry.name for entry in self._header.entries)

    @property
    def info(self) -> ImageStreamInfo:
        """What the stream holds; all blocks are checked."""
        self._open()
        blocks = Blocks(self._header, self._view)  # those that are read from stay as they are, and raise
        blocks.verify()
        return describe(self._header, blocks)

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, picture: int | str) -> Picture:
        """A picture by its number or name."""
        if isinstance(picture, str):
            if picture not in self.names:
                raise KeyError(f"there is no picture {picture!r} among {len(self)}: names lists them")
            picture = self.names.index(picture)
        if isinstance(picture, bool) or not isinstance(picture, int | np.integer):
            raise InvalidInput(f"pictures are read by numbers and names, got {picture!r}")
        if not -len(self) <= picture < len(self):
            raise IndexError(f"picture must be between 0 and {len(self) - 1}, got {picture}")
        number = int(picture) % len(self)
        check_memory(replace(self._header, entries=(self._header.entries[number],)), self._limit)
        return decode_one(self._header, self._open(), self._coder, number, self._arrived)

    def __iter__(self) -> Iterator[Picture]:
        return (self[number] for number in range(len(self)))

    def _open(self) -> Blocks:
        if self._blocks is None:
            raise InvalidInput(f"{self.path} is closed: open another ImageStreamReader")
        return self._blocks

    def close(self) -> None:
        """Let go of the file."""
        self._blocks, self._view = None, memoryview(b"")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
