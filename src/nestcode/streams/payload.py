"""The payload of a stream of items: packed codes in prefix-major order, whole or in part."""

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from nestcode import _core
from nestcode.arrays import Bytes, check_int
from nestcode.coders import Coder
from nestcode.container.blocks import ArrivingBlocks, StoredBlocks
from nestcode.container.files import FileView
from nestcode.errors import DamagedFile, InvalidInput
from nestcode.streams.format import GROUP, RATIO, Header
from nestcode.streams.items import decode_items

LIMIT = 4 << 30  # bytes of memory, by default
LOADING = 6  # bytes of memory for each byte of an embedded coder, while it is loaded
BATCH = 1 << 24  # bytes of codes that are read at a time


class Payload(Protocol):
    """Codes in prefix-major order, entropy coding undone."""

    bits: int  # that arrived, up to the first damaged block
    verified: int  # bytes whose checksum matches
    damaged: int | None  # the first block that does not match its checksum, as far as is known

    @property
    def unverified(self) -> int:
        """Bytes that arrived without their checksum."""

    def read(self, begin: int, end: int) -> Bytes:
        """Return bytes of all packed codes, group after group; zeros stand for missing bytes."""


class ArrivingCodes(ArrivingBlocks):
    """The codes of a stream as its chunks arrive, entropy coded or not; they are kept in memory."""

    header: Header

    def __init__(self, header: Header) -> None:
        super().__init__(header)
        self._codes = np.zeros(header.count * header.code_bytes, dtype=np.uint8)
        self._decoder = _core.CodeDecoder(header.count, header.width, self._codes) if header.entropy else None
        # No byte stands for more than this many, lest a few take hours: a cut stream may hold some bits back.
        self._ratio = max(RATIO, -(-self._codes.size // max(header.payload, 1)))

    def read(self, begin: int, end: int) -> Bytes:
        """Return bytes of all packed codes, group after group; zeros stand for missing bytes."""
        return self._codes[begin:end]

    def _store(self, at: int, data: Bytes) -> int:
        if self._decoder is not None:
            return self._decoder.feed(data, 8 * self._ratio * (at + len(data)))
        self._codes[at : at + len(data)] = data
        return 8 * (at + len(data))

    def _end_block(self) -> None:
        super()._end_block()
        if self.complete and self.bits < self.header.count * self.header.width:
            raise DamagedFile("the stream's payload holds fewer bits than its header claims: restore a copy")


class CountedBits:
    """An entropy-coded payload that is not decoded: its bits are estimated by the share that arrived."""

    def __init__(self, header: Header, blocks: StoredBlocks) -> None:
        self.verified, self.unverified, self.damaged = blocks.verified, blocks.unverified, blocks.damaged
        self.bits = header.count * header.width * (self.verified + self.unverified) // header.payload


def read_payload(header: Header, view: memoryview | FileView) -> tuple[Payload, DamagedFile | None]:
    """Return all of the payload that arrived and what is wrong with it; every block is verified."""
    if header.entropy:
        arrival = ArrivingCodes(header)
        try:
            arrival.feed(view[header.size :])
        except DamagedFile as error:
            return arrival, error
        return arrival, None
    blocks = StoredBlocks(header, view)
    blocks.verify()
    return blocks, blocks.error()


def read_codes(header: Header, payload: Payload, first: int, last: int, length: int) -> Bytes:
    """Return packed codes, (n, bytes), of items from `first` to before `last`; only `length` bits are set."""
    groups = []
    for group in range(-(-length // GROUP)):
        wide = min(8, header.code_bytes - 8 * group)
        begin = 8 * group * header.count
        groups.append(payload.read(begin + first * wide, begin + last * wide).reshape(-1, wide))
    return np.concatenate(groups, axis=1) if groups else np.zeros((last - first, 0), dtype=np.uint8)


def decode_range(
    header: Header,
    payload: Payload,
    coder: Coder,
    length: int,
    first: int,
    last: int,
    out: NDArray[Any] | None = None,
) -> NDArray[Any]:
    """Return items from `first` to before `last`, each from the longest prefix that arrived, at most `length`."""
    if out is None:
        out = np.empty((last - first, *header.shape), dtype=header.numpy_dtype)
    step = max(BATCH // max(header.code_bytes, 1), 1)
    for begin, end, reached in header.runs(payload.bits, length):
        begin, end = max(begin, first), min(end, last)
        if not reached and begin < end:  # without bits all items decode alike
            one = np.empty((1, *header.shape), dtype=header.numpy_dtype)
            decode_items(header, coder, np.zeros((1, 0), dtype=np.uint8), 0, one)
            out[begin - first : end - first] = one
            continue
        for at in range(begin, end, step):
            until = min(at + step, end)
            packed = read_codes(header, payload, at, until, reached)
            decode_items(header, coder, packed, reached, out[at - first : until - first])
    return out


def check_limit(header: Header, limit: int | None, count: int | None = None) -> None:
    """Refuse a stream whose coder, codes and items, all or `count` of them, take more memory than `limit` bytes.

    Where the caller gives no limit, entropy-coded codes must also be at most `RATIO` times their payload.
    """
    count = header.count if count is None else count
    item = header.features * header.numpy_dtype.itemsize + header.code_bytes + 8  # and its length
    most = count * item + LOADING * header.embedded
    allowed = LIMIT if limit is None else check_int(limit, "limit", least=0)
    if most > allowed:
        raise InvalidInput(
            f"the stream's {header.count} items and its coder take {most} bytes, more than the limit of {allowed}: "
            "give a larger limit, or read items in batches with StreamReader"
        )
    codes = header.count * header.code_bytes
    if header.entropy and limit is None and codes > RATIO * header.payload:
        raise InvalidInput(
            f"entropy-coded codes must be at most {RATIO} times their payload by default, got {codes} bytes in "
            f"{header.payload}: give a limit if you trust the stream, as decoding it may take long"
        )
