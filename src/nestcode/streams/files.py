"""Streams in files, for collections larger than memory."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nestcode.arrays import check_int
from nestcode.coders import Coder
from nestcode.errors import InvalidInput
from nestcode.storage import write_pieces
from nestcode.streams.format import check_length, parse_header
from nestcode.streams.items import as_items, check_coder, encode_items, find_coder, scale_for
from nestcode.streams.payload import Blocks, Payload, decode_range, settle
from nestcode.streams.shared import Spooled, map_file
from nestcode.streams.stream import LIMIT, Info, check_choice, check_limit, describe, embedded_bytes, lay_out, take_all


class StreamWriter(Spooled):
    """Writes a stream of items that come in pieces; the file appears when it is whole, or not at all.

    >>> import nestcode as nc
    >>> X = np.random.default_rng(0).standard_normal((100, 8))
    >>> coder = nc.LinearCoder(width=32).fit(X)
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "numbers.nest"
    ...     with StreamWriter(path, coder) as writer:
    ...         writer.write(X[:60])
    ...         writer.write(X[60:])
    ...     path.read_bytes() == nc.compress(X, coder)
    True

    Until then codes are kept in a file without a name in the same folder, which is gone however the process ends. With
    `entropy` what they become is held in memory.

    Args:
        path: the file; one that is there gives way when the new one is whole.
        coder, embed, entropy, scale, length: as `compress` takes them.

    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        coder: Coder,
        *,
        embed: bool = False,
        entropy: bool = False,
        scale: float | None = None,
        length: int | None = None,
    ) -> None:
        self._coder, self._embed, self._entropy, self._scale = coder, embed, entropy, scale
        self._width = check_coder(coder, length)
        self._fingerprint = coder.fingerprint
        self._first: NDArray[Any] | None = None  # no items, but their shape and type
        self.count = 0  # items written so far
        super().__init__(path)

    def write(self, items: ArrayLike) -> None:
        """Add items, (n, …), of the shape and type that the first ones had."""
        self._check_open()
        array = as_items(items, self._coder.n_features_in_)
        first = array[:0] if self._first is None else self._first
        if (array.shape[1:], array.dtype) != (first.shape[1:], first.dtype):
            raise InvalidInput(
                f"items must be {first.dtype} of shape {first.shape[1:]} as the first ones, "
                f"got {array.dtype} of {array.shape[1:]}"
            )
        scale = scale_for(array.dtype, self._scale, self._fingerprint)
        self._first = np.empty(first.shape, dtype=first.dtype)
        try:
            for packed in encode_items(array, self._coder, scale, self._width):
                self._spool.write(np.ascontiguousarray(packed).data)
                self.count += len(packed)
        except BaseException:
            self.discard()  # the spool may hold half a piece
            raise

    def _finish(self) -> None:
        first = self._first
        if first is None:
            first = np.empty((0, self._coder.n_features_in_), dtype=np.float32)
        scale = scale_for(first.dtype, self._scale, self._fingerprint)
        shape = self.count, -(-self._width // 8)
        codes = np.zeros(shape, dtype=np.uint8)
        if codes.size:
            codes = np.ndarray(shape, np.uint8, self._mapped())
        pieces = lay_out(
            codes, self._coder, first.shape[1:], first.dtype, scale, self._width,
            embed=self._embed, entropy=self._entropy,
        )  # fmt: skip
        write_pieces(self.path, pieces)


class StreamReader:
    """Reads items of a stream in a file, whole or cut, and takes memory only for those asked for.

    >>> import nestcode as nc
    >>> X = np.random.default_rng(0).standard_normal((100, 8))
    >>> coder = nc.LinearCoder(width=32).fit(X)
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "numbers.nest"
    ...     size = path.write_bytes(nc.compress(X, coder))
    ...     with StreamReader(path, coder) as reader:
    ...         len(reader), reader[3].shape, reader[10:20].shape, sum(len(piece) for piece in reader.pieces(40))
    (100, (8,), (10, 8), 100)

    The file is mapped, and blocks are checked when they are read. An entropy coded stream can only be decoded from its
    beginning: opening it does so and keeps the codes in memory.

    Args:
        path: the file.
        coder: the one that made it, unless it is embedded or comes with Nestcode.
        length: use at most so many bits of each item.
        limit: refuse entropy coded streams whose codes take more bytes than this.
        on_damage: "keep" reads what precedes a damaged block, and warns.

    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        coder: Coder | None = None,
        *,
        length: int | None = None,
        limit: int = LIMIT,
        on_damage: Literal["error", "keep"] = "error",
    ) -> None:
        check_choice(on_damage)
        self.path = Path(path)
        self._view = map_file(self.path)
        self._header = header = parse_header(self._view)
        self.length = check_length(length, header.width)
        self._coder = find_coder(header, embedded_bytes(header, self._view), coder)
        blocks = Blocks(header, self._view)
        self._payload: Payload | None = blocks
        if header.entropy:
            check_limit(header, limit)
            self._payload, error = take_all(header, self._view)
        else:
            if on_damage == "keep":
                blocks.verify()
            error = blocks.error()
        settle(error, on_damage)
        self.shape, self.dtype = header.shape, header.numpy_dtype

    @property
    def info(self) -> Info:
        """What the stream holds; all blocks are checked."""
        payload = self._open() if self._header.entropy else take_all(self._header, self._view)[0]
        return describe(self._header, payload, self._coder, len(self._view))

    def __len__(self) -> int:
        return self._header.count

    def __getitem__(self, items: int | slice) -> NDArray[Any]:
        """One item by its number, or some by a slice without steps."""
        if isinstance(items, slice):
            first, last, step = items.indices(len(self))
            if step != 1:
                raise InvalidInput(f"items are read by slices without steps, got {items}: take every nth afterwards")
            return decode_range(self._header, self._open(), self._coder, self.length, first, max(first, last))
        at = items if isinstance(items, int | np.integer) and not isinstance(items, bool) else None
        if at is None:
            raise InvalidInput(f"items are read by numbers and slices, got {items!r}")
        if not -len(self) <= at < len(self):
            raise IndexError(f"item must be between 0 and {len(self) - 1}, got {at}")
        at %= len(self)
        one: NDArray[Any] = decode_range(self._header, self._open(), self._coder, self.length, at, at + 1)[0]
        return one

    def pieces(self, size: int = 1024) -> Iterator[NDArray[Any]]:
        """All items in arrays of `size`, the last one maybe smaller."""
        check_int(size, "size", least=1)
        return (self[first : first + size] for first in range(0, len(self), size))

    def __iter__(self) -> Iterator[NDArray[Any]]:
        return (item for piece in self.pieces() for item in piece)

    def _open(self) -> Payload:
        if self._payload is None:
            raise InvalidInput(f"{self.path} is closed: open another StreamReader")
        return self._payload

    def close(self) -> None:
        """Let go of the file."""
        self._view, self._payload = memoryview(b""), None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
