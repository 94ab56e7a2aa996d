"""Streams of items read from files, for collections larger than memory."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from nestcode.arrays import check_int
from nestcode.coders import Coder
from nestcode.container.blocks import OnDamage, StoredBlocks, check_on_damage, report_damage
from nestcode.container.files import FileView
from nestcode.errors import InvalidInput
from nestcode.streams.format import check_length, parse_header
from nestcode.streams.info import ItemStreamInfo, describe
from nestcode.streams.items import find_coder
from nestcode.streams.payload import Payload, check_limit, decode_range, read_payload


class StreamReader:
    """Reads items of a stream in a file, whole or truncated; memory is used only for the items that are read.

    >>> import tempfile
    >>> import nestcode as nc
    >>> X = np.random.default_rng(0).standard_normal((100, 8))
    >>> coder = nc.LinearCoder(width=32).fit(X)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "vectors.nest"
    ...     size = path.write_bytes(nc.compress(X, coder))
    ...     with StreamReader(path, coder) as reader:
    ...         len(reader), reader[3].shape, reader[10:20].shape, sum(len(batch) for batch in reader.batches(40))
    (100, (8,), (10, 8), 100)

    Blocks are verified when they are read. An entropy coded stream can only be decoded
    from its beginning: opening it does so and keeps the codes in memory.

    Args:
        path: the file.
        coder: the coder that made the stream, unless it is embedded.
        length: use at most this many bits of each item.
        limit: refuse streams whose coder, and entropy-coded ones whose items, take more bytes of memory than this; by
            default 4 GiB, and codes of at most 256 times their entropy-coded payload.
        on_damage: "keep" reads the bytes before the first damaged block, and warns.

    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        coder: Coder | None = None,
        *,
        length: int | None = None,
        limit: int | None = None,
        on_damage: OnDamage = "error",
    ) -> None:
        check_on_damage(on_damage)
        self.path = Path(path)
        self._view = FileView(self.path)
        self._header = header = parse_header(self._view)
        self.length = check_length(length, header.width)
        check_limit(header, limit, header.count if header.entropy else 0)
        self._coder = find_coder(header, self._view, coder)
        blocks = StoredBlocks(header, self._view)
        self._payload: Payload | None = blocks
        if header.entropy:
            self._payload, error = read_payload(header, self._view)
        else:
            if on_damage == "keep":
                blocks.verify()
            error = blocks.error()
        report_damage(error, on_damage)
        self.shape, self.dtype = header.shape, header.numpy_dtype

    @property
    def info(self) -> ItemStreamInfo:
        """What the stream holds; all blocks are verified."""
        payload = self._open() if self._header.entropy else read_payload(self._header, self._view)[0]
        return describe(self._header, payload, self._coder, len(self._view))

    def __len__(self) -> int:
        return self._header.count

    def __getitem__(self, items: int | slice) -> NDArray[Any]:
        """Return one item by its position, or some by a slice without steps."""
        if isinstance(items, slice):
            first, last, step = items.indices(len(self))
            if step != 1:
                raise InvalidInput(f"items are read by slices without steps, got {items}: take every nth afterwards")
            return decode_range(self._header, self._open(), self._coder, self.length, first, max(first, last))
        at = items if isinstance(items, int | np.integer) and not isinstance(items, bool) else None
        if at is None:
            raise InvalidInput(f"items are read by positions and slices, got {items!r}")
        if not -len(self) <= at < len(self):
            raise IndexError(f"item must be between 0 and {len(self) - 1}, got {at}")
        at %= len(self)
        one: NDArray[Any] = decode_range(self._header, self._open(), self._coder, self.length, at, at + 1)[0]
        return one

    def batches(self, size: int = 1024) -> Iterator[NDArray[Any]]:
        """Return all items in arrays of `size`; the last one may be smaller."""
        check_int(size, "size", least=1)
        return (self[first : first + size] for first in range(0, len(self), size))

    def __iter__(self) -> Iterator[NDArray[Any]]:
        return (item for batch in self.batches() for item in batch)

    def _open(self) -> Payload:
        if self._payload is None:
            raise InvalidInput(f"{self.path} is closed: open another StreamReader")
        return self._payload

    def close(self) -> None:
        """Release the file."""
        self._payload = None
        self._view.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
