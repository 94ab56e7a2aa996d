"""Blocks with checksums: what arrived is read back, in memory or in chunks, up to the first damaged block."""

import zlib
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nestcode.arrays import Bytes
from nestcode.container.blocks import ArrivingBlocks, StoredBlocks
from nestcode.container.layout import Layout
from nestcode.errors import DamagedFile


@dataclass(frozen=True, kw_only=True)
class SmallLayout(Layout):
    @property
    def data(self) -> bytes:
        return b"header" + zlib.crc32(b"header").to_bytes(4, "little")

    def summary(self, bits: int) -> str:
        return f"{bits} bits"


class Collected(ArrivingBlocks):
    """Keeps the payload as it arrives."""

    def __init__(self, header: Layout) -> None:
        super().__init__(header)
        self.payload = bytearray(header.payload)

    def _store(self, at: int, data: Bytes) -> int:
        self.payload[at : at + len(data)] = data.tobytes()
        return 8 * (at + len(data))


def stream(payload: bytes) -> tuple[SmallLayout, bytearray]:
    layout = SmallLayout(payload=len(payload), block=16)
    return layout, bytearray(layout.data + b"".join(layout.seal([payload[:5], payload[5:]])))


payloads = st.binary(max_size=100)


@given(payloads, st.data())
def test_truncated_streams_hold_a_prefix_of_the_payload(payload: bytes, draw: st.DataObject) -> None:
    layout, data = stream(payload)
    assert len(data) == layout.total
    cut = draw.draw(st.integers(layout.size, len(data)))
    stored, arriving = StoredBlocks(layout, memoryview(data)[:cut]), Collected(layout)
    stored.verify()
    for first in range(layout.size, cut, 7):
        arriving.feed(memoryview(data)[first : min(first + 7, cut)])
    blocks, rest = divmod(cut - layout.size, 20)
    arrived = min(16 * blocks + min(rest, 16), len(payload))
    assert stored.bits == arriving.bits == 8 * arrived
    assert (stored.verified, stored.unverified) == (arriving.verified, arriving.unverified)
    assert stored.read(0, arrived).tobytes() == bytes(arriving.payload[:arrived]) == payload[:arrived]
    assert not stored.read(arrived, len(payload)).any()
    assert stored.damaged is arriving.damaged is None


@given(st.binary(min_size=33, max_size=100), st.data())
def test_the_first_damaged_block_is_reported_wherever_reading_starts(payload: bytes, draw: st.DataObject) -> None:
    layout, data = stream(payload)
    damaged = draw.draw(st.sets(st.integers(0, layout.blocks - 1), min_size=1))
    for block in damaged:
        data[layout.size + 20 * block] ^= 1
    first, last = min(damaged), max(damaged)
    stored, arriving = StoredBlocks(layout, memoryview(data)), Collected(layout)
    message = (
        f"block {first} of {layout.blocks} does not match its checksum, {8 * 16 * first} bits before it are intact"
    )
    for begin in (0, 16 * last):
        with pytest.raises(DamagedFile, match=message):
            stored.read(begin, 16 * last + 1)
    assert stored.read(0, 16 * first).tobytes() == payload[: 16 * first]
    with pytest.raises(DamagedFile, match=message):
        arriving.feed(memoryview(data)[layout.size :])
    stored.verify()
    assert stored.damaged == arriving.damaged == first
    assert stored.bits == arriving.bits == 8 * 16 * first
    assert str(stored.error()).startswith(message)


@given(payloads, st.binary(min_size=1, max_size=30))
def test_trailing_bytes_are_reported(payload: bytes, rest: bytes) -> None:
    layout, data = stream(payload)
    stored, arriving = StoredBlocks(layout, memoryview(data + rest)), Collected(layout)
    stored.verify()
    assert stored.trailing == len(rest)
    assert f"{len(rest)} bytes follow the end" in str(stored.error())
    arriving.feed(memoryview(data)[layout.size :])
    with pytest.raises(DamagedFile, match="bytes follow the end"):
        arriving.feed(memoryview(rest))
    assert bytes(arriving.payload) == payload


@given(st.binary(min_size=40, max_size=100))
def test_blocks_in_another_order_are_detected(payload: bytes) -> None:
    layout, data = stream(payload)
    first, second = (data[layout.size + 20 * block : layout.size + 20 * block + 20] for block in range(2))
    moved = data[: layout.size] + second + first + data[layout.size + 40 :]
    stored = StoredBlocks(layout, memoryview(moved))
    stored.verify()
    assert stored.damaged == 0
