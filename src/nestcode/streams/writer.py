"""Streams of items written to files, for collections larger than memory."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nestcode.coders import Coder
from nestcode.container.files import SpooledWriter
from nestcode.errors import InvalidInput
from nestcode.storage import write_pieces
from nestcode.streams.format import check_length
from nestcode.streams.items import as_items, check_coder, check_scale, encode_items
from nestcode.streams.stream import lay_out


class StreamWriter(SpooledWriter):
    """Writes a stream of items that come in batches; the file appears when it is complete, or not at all.

    >>> import tempfile
    >>> from pathlib import Path
    >>> import nestcode as nc
    >>> X = np.random.default_rng(0).standard_normal((100, 8))
    >>> coder = nc.LinearCoder(width=32).fit(X)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "vectors.nest"
    ...     with StreamWriter(path, coder) as writer:
    ...         writer.add(X[:60])
    ...         writer.add(X[60:])
    ...     path.read_bytes() == nc.compress(X, coder)
    True

    Until then codes are spooled to an unnamed temporary file in the same folder, which disappears however the process
    ends. With `entropy` the entropy coded payload is held in memory.

    Args:
        path: the file; an existing one is replaced once the new one is complete.
        coder, embed, entropy, scale, length: as `compress` takes them.

    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        coder: Coder,
        *,
        embed: bool = False,
        entropy: bool = False,
        scale: float = 1,
        length: int | None = None,
    ) -> None:
        self._coder, self._embed, self._entropy, self._scale = coder, embed, entropy, check_scale(scale)
        self._width = check_length(length, check_coder(coder).width_)
        self._first: NDArray[Any] | None = None  # an empty array of the first items' shape and type
        self.count = 0  # items written so far
        super().__init__(path)

    def add(self, items: ArrayLike) -> None:
        """Add items, (n, …), of the shape and type of the first batch; if one is refused, none is added."""
        self._check_open()
        array = as_items(items, self._coder.n_features_in_)
        first = array[:0] if self._first is None else self._first
        if (array.shape[1:], array.dtype) != (first.shape[1:], first.dtype):
            raise InvalidInput(
                f"items must be {first.dtype} of shape {first.shape[1:]} as the first ones, "
                f"got {array.dtype} of {array.shape[1:]}: convert them, or write another stream"
            )
        try:
            for packed in encode_items(array, self._coder, self._scale, self._width):
                self._append(np.ascontiguousarray(packed).data)
        except InvalidInput:
            self._truncate(self.count * -(-self._width // 8))  # the spool may hold half a batch
            raise
        except BaseException:
            self.discard()
            raise
        self._first = np.empty(first.shape, dtype=first.dtype)
        self.count += len(array)

    def _finish(self) -> None:
        first = self._first
        if first is None:
            first = np.empty((0, self._coder.n_features_in_), dtype=np.float32)
        shape = self.count, -(-self._width // 8)
        codes = np.zeros(shape, dtype=np.uint8)
        if codes.size:
            codes = np.ndarray(shape, np.uint8, self._map_spool())
        pieces = lay_out(
            codes, self._coder, first.shape[1:], first.dtype, self._scale, self._width,
            embed=self._embed, entropy=self._entropy,
        )  # fmt: skip
        write_pieces(self.path, pieces)
