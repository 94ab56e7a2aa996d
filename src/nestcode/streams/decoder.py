"""Progressive decoding: items refine while the chunks of their stream arrive."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestcode.coders import Coder
from nestcode.container.decoder import ProgressiveDecoder
from nestcode.streams.format import parse_header
from nestcode.streams.info import ItemStreamInfo, describe
from nestcode.streams.items import find_coder
from nestcode.streams.payload import LIMIT, ArrivingCodes, check_limit, decode_range


class StreamDecoder(ProgressiveDecoder[ArrivingCodes]):
    """Decodes a stream of items as it arrives, in chunks of any size.

    >>> import nestcode as nc
    >>> X = np.random.default_rng(0).standard_normal((100, 32))
    >>> data = nc.compress(X, nc.LinearCoder(width=128).fit(X), embed=True)
    >>> decoder = StreamDecoder()
    >>> for first in range(0, len(data), 1000):
    ...     decoder.feed(data[first : first + 1000])
    >>> int(decoder.lengths.min()), bool(np.mean((decoder.items() - X) ** 2) < 0.1)
    (128, True)

    `items()` decodes an item only if more of its bytes have arrived since the last call.

    Args:
        coder: the coder that made the stream, unless it is embedded.
        limit: the most bytes of memory for items and coder, by default 4 GiB; a stream that needs more is refused. By
            default codes may take at most 256 times their entropy-coded payload.

    """

    def __init__(self, coder: Coder | None = None, *, limit: int | None = None) -> None:
        super().__init__(LIMIT if limit is None else limit)
        self._given, self._given_limit = coder, limit

    def _begin(self, view: memoryview) -> ArrivingCodes:
        header = parse_header(view)
        check_limit(header, self._given_limit)
        self._coder = find_coder(header, view, self._given)
        self._decoded: NDArray[Any] = np.empty((header.count, *header.shape), dtype=header.numpy_dtype)
        self._decoded_at = np.full(header.count, -1, dtype=np.int32)  # the length that each item was decoded at
        return ArrivingCodes(header)

    @property
    def info(self) -> ItemStreamInfo | None:
        """The contents of the stream, or None while its header is not complete."""
        return None if self._arrival is None else describe(self._arrival.header, self._arrival, self._coder, self._fed)

    @property
    def lengths(self) -> NDArray[np.int32]:
        """The number of bits that arrived of each item."""
        payload = self._payload()
        lengths = np.empty(payload.header.count, dtype=np.int32)
        for first, last, length in payload.header.runs(payload.bits, payload.header.width):
            lengths[first:last] = length
        return lengths

    def items(self) -> NDArray[Any]:
        """Return all items, each decoded from the bits of it that arrived."""
        payload = self._payload()
        for begin, end, length in payload.header.runs(payload.bits, payload.header.width):
            changed = begin + np.flatnonzero(self._decoded_at[begin:end] != length)
            if len(changed):
                first, last = int(changed[0]), int(changed[-1]) + 1
                decode_range(payload.header, payload, self._coder, length, first, last, self._decoded[first:last])
                self._decoded_at[first:last] = length
        return self._decoded.copy()
