"""Streams of items: damage is detected, what precedes it decodes, and hostile headers take no memory."""

import json
import tracemalloc
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nestcode import StreamDecoder, StreamReader, compress, decompress
from nestcode.errors import DamagedFile, InvalidInput
from nestcode.streams.format import parse_header
from tests.streams.collections import skewed, some_coder, some_items, stream, stream_info, with_header, with_json

ITEMS = some_items(40)
PLAIN, CODED = stream(ITEMS), skewed(120)
EMBEDDED = compress(ITEMS, some_coder(), embed=True)
every_kind = pytest.mark.parametrize("data", [PLAIN, CODED], ids=["plain", "entropy"])


@given(st.sampled_from([PLAIN, CODED, EMBEDDED]), st.data())
def test_any_changed_byte_is_detected(data: bytes, draw: st.DataObject) -> None:
    at, change = draw.draw(st.integers(0, len(data) - 1)), draw.draw(st.integers(1, 255))
    changed = bytearray(data)
    changed[at] ^= change
    with pytest.raises((DamagedFile, InvalidInput)):
        decompress(changed, some_coder())
    start = stream_info(data).header_bytes
    if at >= start:
        block = stream_info(data).damaged
        assert block is None
        assert stream_info(changed).damaged == (at - start) // (parse_header(memoryview(data)).block + 4)


@every_kind
def test_what_precedes_a_damaged_block_decodes(data: bytes) -> None:
    start = stream_info(data).header_bytes
    blocks = (len(data) - start) // 68
    assert blocks > 5
    for block in range(blocks):
        changed = bytearray(data)
        changed[start + 68 * block + 30] ^= 1
        with pytest.raises(DamagedFile, match=rf"block {block} of \d+ does not match"):
            decompress(changed, some_coder())
        with pytest.warns(UserWarning, match=f"block {block} of"):
            kept = decompress(changed, some_coder(), on_damage="keep")
        np.testing.assert_allclose(kept, decompress(data[: start + 68 * block], some_coder()), atol=1e-5)
        assert f"block {block} is damaged" in str(stream_info(changed))
        assert (stream_info(changed).damaged, stream_info(changed).verified, stream_info(changed).unverified) == (
            block,
            64 * block,
            0,
        )


@every_kind
def test_blocks_of_other_places_and_streams_are_detected(data: bytes) -> None:
    start = stream_info(data).header_bytes
    swapped = data[:start] + data[start + 68 : start + 136] + data[start : start + 68] + data[start + 136 :]
    assert stream_info(swapped).damaged == 0
    other = stream(ITEMS[::-1].copy(), width=140)
    assert stream_info(data[:start] + other[stream_info(other).header_bytes :]).damaged == 0


@every_kind
def test_trailing_bytes_are_detected(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(DamagedFile, match="3 bytes follow the end"):
        decompress(data + b"abc", some_coder())
    (tmp_path / "long.nest").write_bytes(data + b"abc")
    with pytest.raises(DamagedFile, match="3 bytes follow the end"):
        StreamReader(tmp_path / "long.nest", some_coder())
    with pytest.warns(UserWarning, match="3 bytes follow the end"):
        reader = StreamReader(tmp_path / "long.nest", some_coder(), on_damage="keep")
    np.testing.assert_array_equal(reader[:], decompress(data, some_coder()))
    assert stream_info(data + b"abc").trailing == 3
    assert "3 bytes follow the end" in str(stream_info(data + b"abc"))
    with pytest.warns(UserWarning, match="3 bytes follow"):
        kept = decompress(data + b"abc", some_coder(), on_damage="keep")
    np.testing.assert_array_equal(kept, decompress(data, some_coder()))


@given(st.binary(max_size=300))
def test_noise_is_refused(noise: bytes) -> None:
    for data in (noise, PLAIN[:16] + noise, with_json(noise), with_json(PLAIN[16:-4] + noise)):
        with pytest.raises((DamagedFile, InvalidInput)):
            stream_info(data)
        with pytest.raises((DamagedFile, InvalidInput)):
            decompress(data)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from([2**40, 2**62, -1]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=5,
)


@given(st.sampled_from(sorted(asdict(parse_header(memoryview(PLAIN))))), JSON, st.booleans())
def test_hostile_headers_are_refused_before_memory_is_allocated(key: str, value: Any, entropy: bool) -> None:
    header = {**asdict(parse_header(memoryview(PLAIN))), key: value}
    if entropy:
        header["entropy"] = True
    data = with_json(json.dumps(header, sort_keys=True, separators=(",", ":")).encode(), PLAIN[-500:])
    looks = (
        stream_info,
        partial(decompress, coder=some_coder(), limit=1 << 20),
        StreamDecoder(some_coder(), limit=1 << 20).feed,
    )
    tracemalloc.start()
    try:
        for look in looks:
            with suppress(DamagedFile, InvalidInput):
                look(data)
        assert tracemalloc.get_traced_memory()[1] < 30 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "changes",
    [
        {"count": 2**40, "payload": 2**40 * 19},
        {"count": 2**40, "width": 0, "errors": (1.0,), "payload": 0},
        {"count": 2**36, "entropy": True},
        {"shape": (2**31,), "count": 40},
        {"shape": (2**20, 2**20)},
        {"count": -1, "payload": -19},
        {"scale": float("1e31")},
        {"width": 2**30},
        {"shape": ()},
        {"dtype": "|O"},
        {"dtype": "<f16"},
        {"payload": 761},
        {"block": 0},
        {"embedded": 2**39},
        {"coder": "00"},
        {"errors": (1.0, -1.0, 1.0, 1.0)},
    ],
    ids=str,
)
def test_invalid_headers_are_refused(changes: dict[str, Any]) -> None:
    data = with_header(parse_header(memoryview(PLAIN)), PLAIN, **changes)
    tracemalloc.start()
    try:
        with pytest.raises((DamagedFile, InvalidInput)):
            decompress(data, some_coder())
        assert tracemalloc.get_traced_memory()[1] < 30 << 20
    finally:
        tracemalloc.stop()


def test_deep_and_long_json_is_refused() -> None:
    for text in (b"[" * 200_000, b'{"count":' + b"9" * 10_000 + b"}", b'{"scale":NaN}', b"[]", b"\xff"):
        with pytest.raises(DamagedFile, match="header is invalid"):
            stream_info(with_json(text))
    with pytest.raises(DamagedFile, match="claims 2000000 bytes"):
        stream_info(with_json(b" " * 2_000_000))
    with pytest.raises(DamagedFile, match="version 2"):
        stream_info(PLAIN[:8] + b"\2" + PLAIN[9:])


def test_an_embedded_coder_must_match_the_header() -> None:
    header = parse_header(memoryview(EMBEDDED))
    with pytest.raises(DamagedFile, match="is embedded"):
        decompress(with_header(header, EMBEDDED, coder="0" * 64))
    changed = bytearray(EMBEDDED)
    changed[header.size - 1] ^= 1
    with pytest.raises(DamagedFile, match="coder in the stream is damaged"):
        decompress(changed)
    noise = with_header(header, b"", embedded=9, embedded_crc=0)
    with pytest.raises(DamagedFile):
        decompress(noise + b"\0" * 9)


def test_an_entropy_coded_payload_must_be_complete() -> None:
    header = parse_header(memoryview(CODED))
    for payload in (0, 120 * 19):
        with pytest.raises(DamagedFile, match="not the size of that many codes"):
            stream_info(with_header(header, b"", payload=payload))
    few = parse_header(memoryview(with_header(header, b"", payload=20)))
    data = few.data + b"".join(few.seal([CODED[header.size : header.size + 20]]))
    with pytest.raises(DamagedFile, match="fewer bits than its header claims"):
        decompress(data, some_coder())
