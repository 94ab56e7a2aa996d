"""Items that refine while bytes arrive."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestcode.coders import Coder
from nestcode.streams.format import parse_header
from nestcode.streams.items import find_coder
from nestcode.streams.payload import Arrival, decode_range
from nestcode.streams.shared import Chunked
from nestcode.streams.stream import LIMIT, Info, check_limit, describe, embedded_bytes


class StreamDecoder(Chunked[Arrival]):
    """Decodes a stream as it arrives, in chunks of any size.

    >>> import nestcode as nc
    >>> X = np.random.default_rng(0).standard_normal((100, 32))
    >>> data = nc.compress(X, nc.LinearCoder(width=128).fit(X), embed=True)
    >>> decoder = StreamDecoder()
    >>> for first in range(0, len(data), 1000):
    ...     decoder.feed(data[first : first + 1000])
    >>> int(decoder.lengths.min()), bool(np.mean((decoder.items() - X) ** 2) < 0.1)
    (128, True)

    `items()` decodes again only those items of which more arrived since it was last called.

    Args:
        coder: the one that made the stream, unless it is embedded or comes with Nestcode.
        limit: refuse streams whose items take more bytes than this.

    """

    def __init__(self, coder: Coder | None = None, *, limit: int = LIMIT) -> None:
        super().__init__(limit)
        self._given = coder

    def _begin(self, view: memoryview) -> Arrival:
        header = parse_header(view)
        check_limit(header, self._limit)
        self._coder = find_coder(header, embedded_bytes(header, view), self._given)
        self._decoded: NDArray[Any] = np.empty((header.count, *header.shape), dtype=header.numpy_dtype)
        self._at = np.full(header.count, -1, dtype=np.int32)  # the length that each item was decoded at
        return Arrival(header)

    @property
    def info(self) -> Info | None:
        """What the stream holds, or None while its header is not whole."""
        return None if self._arrival is None else describe(self._arrival.header, self._arrival, self._coder, self._fed)

    @property
    def lengths(self) -> NDArray[np.int32]:
        """How many bits of each item arrived."""
        arrival = self._opened()
        found = np.empty(arrival.header.count, dtype=np.int32)
        for first, last, length in arrival.header.segments(arrival.bits, arrival.header.width):
            found[first:last] = length
        return found

    def items(self) -> NDArray[Any]:
        """All items, each as well as what arrived of it says."""
        arrival = self._opened()
        for begin, end, length in arrival.header.segments(arrival.bits, arrival.header.width):
            changed = begin + np.flatnonzero(self._at[begin:end] != length)
            if len(changed):
                first, last = int(changed[0]), int(changed[-1]) + 1
                decode_range(arrival.header, arrival, self._coder, length, first, last, self._decoded[first:last])
                self._at[first:last] = length
        return self._decoded.copy()
