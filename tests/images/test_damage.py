"""Streams of images: damage is detected, what precedes it decodes, and hostile tables take no memory."""

import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nestcode.errors import DamagedFile, InvalidInput
from nestcode.images import ImageCodec, ImageStreamDecoder, ImageStreamReader, compress_images, decompress_images
from nestcode.images.bitplanes import PASSES
from nestcode.images.format import FIXED, MAX_TABLE
from nestcode.images.stream import check_memory
from tests.images.samples import codec, crop, crops, forged, header_of, same, stream, stream_info, table_of
from tests.images.test_stream import BAD_NAMES

SMALL = stream(((12, 20, 3), (1, 1, 4)))
LONG = stream(((90, 70, 3), (64, 64), (1, 1, 4)))
START = stream_info(LONG).header_bytes
NONE = [0] * PASSES


@given(st.sampled_from([SMALL, LONG]), st.data())
def test_any_changed_byte_is_detected(data: bytes, draw: st.DataObject) -> None:
    start = stream_info(data).header_bytes
    at = draw.draw(st.integers(0, len(data) - 1) | st.integers(0, start - 1))
    changed = bytearray(data)
    changed[at] ^= draw.draw(st.integers(1, 255))
    with pytest.raises((DamagedFile, InvalidInput)):
        decompress_images(changed, codec())
    if at >= start:
        assert stream_info(changed).damaged == (at - start) // 4100


def test_every_changed_byte_of_a_header_is_detected() -> None:
    for at in range(stream_info(SMALL).header_bytes):
        changed = bytearray(SMALL)
        changed[at] ^= 1
        with pytest.raises(DamagedFile if at not in range(12, 20) else (DamagedFile, InvalidInput)):
            stream_info(changed)  # larger sizes may look like a truncated header


def test_what_precedes_a_damaged_block_decodes() -> None:
    for block in range(header_of(LONG).blocks):
        changed = bytearray(LONG)
        changed[START + 4100 * block + 30] ^= 1
        with pytest.raises(DamagedFile, match=rf"block {block} of \d+ does not match .* bpp of all 3 images"):
            decompress_images(changed, codec())
        with pytest.warns(UserWarning, match=f"block {block} of"):
            kept = decompress_images(changed, codec(), on_damage="keep")
        assert same(kept, decompress_images(LONG[: START + 4100 * block], codec()))
        known = stream_info(changed)
        assert f"block {block} is damaged" in str(known)
        assert (known.damaged, known.verified, known.unverified) == (block, 4096 * block, 0)


def test_of_several_damaged_blocks_the_first_is_reported(tmp_path: Path) -> None:
    changed = bytearray(LONG)
    for block in (0, 1):
        changed[START + 4100 * block + 30] ^= 1
    path = tmp_path / "damaged.nest"
    path.write_bytes(changed)
    with pytest.raises(DamagedFile, match="block 0 of"):
        decompress_images(changed, codec())
    with pytest.raises(DamagedFile, match="block 0 of"), ImageStreamReader(path, codec()) as reader:
        reader[2]
    decoder = ImageStreamDecoder(codec())
    with pytest.raises(DamagedFile, match="block 0 of"):
        decoder.feed(changed)
    assert stream_info(changed).damaged == 0


def test_blocks_of_other_places_and_streams_are_detected() -> None:
    first, second = LONG[START : START + 4100], LONG[START + 4100 : START + 8200]
    assert stream_info(LONG[:START] + second + first + LONG[START + 8200 :]).damaged == 0
    other = compress_images(crops(((90, 70, 3), (64, 64), (1, 1, 4))), codec(), names=["a", "b", "c"])
    assert stream_info(LONG[:START] + other[stream_info(other).header_bytes :]).damaged == 0


def test_trailing_bytes_are_detected(tmp_path: Path) -> None:
    with pytest.raises(DamagedFile, match="3 bytes follow the end"):
        decompress_images(SMALL + b"abc", codec())
    path = tmp_path / "long.nest"
    path.write_bytes(SMALL + b"abc")
    with pytest.raises(DamagedFile, match="3 bytes follow the end"):
        ImageStreamReader(path, codec())
    with pytest.warns(UserWarning, match="3 bytes follow the end"):
        reader = ImageStreamReader(path, codec(), on_damage="keep")
    assert same(list(reader), decompress_images(SMALL, codec()))
    assert stream_info(SMALL + b"abc").trailing == 3
    assert "3 bytes follow the end" in str(stream_info(SMALL + b"abc"))
    with pytest.warns(UserWarning, match="3 bytes follow"):
        kept = decompress_images(SMALL + b"abc", codec(), on_damage="keep")
    assert same(kept, decompress_images(SMALL, codec()))


def test_an_embedded_codec_must_match_the_header() -> None:
    data = compress_images(crops(((3, 3),)), codec(), embed=True)
    start = stream_info(data).header_bytes
    changed = bytearray(data)
    changed[start - 100] ^= 1
    with pytest.raises(DamagedFile):
        decompress_images(changed)
    named = FIXED.pack(*FIXED.unpack(data[: FIXED.size])[:5], bytes(32)) + data[FIXED.size :]
    with pytest.raises(DamagedFile, match="but another is embedded"):
        decompress_images(forged(named, table_of(data)))


@given(st.binary(max_size=200))
def test_noise_is_refused(noise: bytes) -> None:
    for data in (noise, SMALL[:8] + noise, SMALL[: FIXED.size] + noise, forged(SMALL, text=noise)):
        with pytest.raises((DamagedFile, InvalidInput)):
            stream_info(data)
        with pytest.raises((DamagedFile, InvalidInput)):
            decompress_images(data)


def looks(limit: int) -> list[Callable[[bytes], Any]]:
    return [
        stream_info,
        partial(decompress_images, codec=codec(), limit=limit),
        ImageStreamDecoder(codec(), limit=limit).feed,
    ]


def row(name: Any = "x", shape: Any = (4, 4), steps: Any = NONE) -> list[Any]:
    return [name, list(shape) if isinstance(shape, tuple) else shape, steps]


HUGE = [2**40 - 1] * PASSES
TABLES: dict[str, Any] = {
    "no list": {"a": 1},
    "one list": [[]],
    "rows that are none": [["x"], NONE],
    "short row": [[["x", [4, 4]]], NONE],
    "negative side": [[row(shape=(-4, 4))], NONE],
    "no side": [[row(shape=(0, 4))], NONE],
    "huge side": [[row(shape=(2**31, 4))], NONE],
    "side as text": [[row(shape=("4", 4))], NONE],
    "true side": [[row(shape=(True, 4))], NONE],
    "side and a half": [[row(shape=(4.5, 4))], NONE],
    "one side": [[row(shape=(4,))], NONE],
    "four sides": [[row(shape=(4, 4, 3, 1))], NONE],
    "five channels": [[row(shape=(4, 4, 5))], NONE],
    "few passes": [[row(steps=NONE[1:])], NONE],
    "many passes": [[row(steps=[*NONE, 0])], NONE],
    "negative bytes": [[row(steps=[-1, 1, *NONE[2:]])], NONE],
    "bytes beyond the payload": [[row(steps=[1, *NONE[1:]])], NONE],
    "few qualities": [[row()], NONE[1:]],
    "odd quality": [[row()], [10_000, *NONE[1:]]],
    "quality as text": [[row()], ["9", *NONE[1:]]],
    "twice": [[row(), row()], NONE],
    "twice in two ways": [[row("a/b"), row("a//b")], NONE],
    "deep": [[[[[[[[[[]]]]]]]]], NONE],
    **{f"name {name!r}": [[row(name)], NONE] for name in [*BAD_NAMES, None, 7, "x" * 1001]},
}


@pytest.mark.parametrize("table", TABLES.values(), ids=[name[:16] for name in TABLES])
def test_invalid_tables_are_refused(table: Any) -> None:
    data = forged(SMALL, table, payload=0)
    for look in looks(1 << 30):
        with pytest.raises(DamagedFile, match="the stream's table"):
            look(data)


def test_a_table_must_agree_with_the_payload() -> None:
    for payload in (0, header_of(SMALL).payload - 1, 2**64 - 1):
        with pytest.raises(DamagedFile, match=f"does not sum to {payload} bytes"):
            stream_info(forged(SMALL, table_of(SMALL), payload=payload))
    much = [[row(f"{k}", steps=HUGE) for k in range(2**17 // PASSES)], NONE]
    payload = (2**17 // PASSES) * PASSES * (2**40 - 1)
    known = stream_info(forged(SMALL, much, payload=payload))  # which does not arrive
    assert known.total_bytes > payload
    assert known.verified + known.unverified < len(SMALL)


@pytest.mark.parametrize(
    "text",
    [b"[" * 200_000, b"[[],[" + b"9" * 10_000 + b"]]", b"[NaN,[]]", b"\xff", b"", b'[[["\\ud800",[4,4],[]]],[]]'],
    ids=["deep", "long number", "not a number", "no text", "empty", "half a letter"],
)
def test_odd_json_is_refused(text: bytes) -> None:
    with pytest.raises(DamagedFile, match="the stream's table"):
        stream_info(forged(SMALL, text=text))


def test_a_table_that_inflates_beyond_the_maximum_is_refused() -> None:
    packed = forged(SMALL, text=b" " * (4 * MAX_TABLE))
    assert len(packed) < 10**5
    tracemalloc.start()
    try:
        for look in looks(1 << 30):
            with pytest.raises(DamagedFile, match=f"does not end after {MAX_TABLE} bytes"):
                look(packed)
        assert tracemalloc.get_traced_memory()[1] < 3 * MAX_TABLE
    finally:
        tracemalloc.stop()
    size = FIXED.pack(*FIXED.unpack(SMALL[: FIXED.size])[:2], MAX_TABLE + 1, 0, 0, bytes(32))
    with pytest.raises(DamagedFile, match="table claims"):
        stream_info(size)


@pytest.mark.parametrize(
    "rows",
    [
        [row(shape=(2**31 - 1, 2**31 - 1, 4), steps=[100, *NONE[1:]])],
        [row(shape=(1, 2**26), steps=[100, *NONE[1:]])],
        [row(shape=(2**26, 1, 4), steps=[100, *NONE[1:]])],
        [row(shape=(10**4, 2 * 10**4), steps=[100, *NONE[1:]])],
    ],
    ids=["huge", "wide", "tall", "square"],
)
def test_large_images_are_refused_before_memory_is_allocated(rows: list[Any]) -> None:
    data = forged(SMALL, [rows, NONE], payload=100)
    stream_info(data)
    tracemalloc.start()
    try:
        for look in looks(1 << 30)[1:]:
            with pytest.raises(InvalidInput, match=r"more than the limit of 1073741824: give a larger limit"):
                look(data)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_many_small_images_count_against_the_limit() -> None:
    """All of them are decoded side by side as they arrive, each with a context model of its own."""
    many = forged(SMALL, [[row(f"{k}", (1, 1), [1, *NONE[1:]]) for k in range(3000)], NONE], payload=3000)
    with pytest.raises(InvalidInput, match="3000 images take"):
        ImageStreamDecoder(codec(), limit=1 << 30).feed(many)
    assert len(stream_info(many).names) == 3000


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of a process is read from /proc")
@pytest.mark.parametrize("rate", [{"bpp": 0.2}, {"lossless": True}], ids=str)
@pytest.mark.parametrize("progressive", [False, True])
def test_the_limit_bounds_the_memory_of_decoding(progressive: bool, rate: dict[str, Any], tmp_path: Path) -> None:
    """Measured from outside, since C++ allocates most of it; and the limit is not overly strict."""
    source = r"""
import re, sys
from pathlib import Path
from nestcode.images import ImageCodec, ImageStreamDecoder, decompress_images
def peak():
    return int(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1])
small, data = (Path(path).read_bytes() for path in sys.argv[2:4])
codec = ImageCodec.load(sys.argv[1])
decompress_images(small, codec)
before = peak()
if sys.argv[4] == "True":
    decoder = ImageStreamDecoder(codec)
    decoder.feed(data)
    decoder.images()
else:
    decompress_images(data, codec)
print(1024 * (peak() - before))
"""
    largest = ImageCodec.load("photos-1")  # has the largest context model
    data = compress_images([crop((420, 600, 3)), *crops(((9, 9),) * 30)], largest, **rate)
    largest.save(tmp_path / "codec")
    (tmp_path / "small").write_bytes(compress_images(crops(((2, 9),)), largest))
    (tmp_path / "data").write_bytes(data)
    command = [sys.executable, "-c", source, *(str(tmp_path / name) for name in ("codec", "small", "data"))]
    run = subprocess.run([*command, str(progressive)], capture_output=True, text=True, check=True)
    with pytest.raises(InvalidInput) as refused:
        check_memory(header_of(data).entries, 0, progressive=progressive)
    counted = int(str(refused.value).split(" bytes of memory")[0].split()[-1])
    assert 0.8 * counted < int(run.stdout) + (8 << 20)
    assert int(run.stdout) < 1.1 * counted + (8 << 20)


@given(st.data())
def test_mutated_tables_take_no_memory(draw: st.DataObject) -> None:
    table = table_of(SMALL)
    value = draw.draw(
        st.none() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from([2**31 - 1, 2**39, [], {}, -1])
    )
    where = draw.draw(st.sampled_from(["name", "side", "step", "quality", "row"]))
    number = draw.draw(st.integers(0, 1))
    if where == "quality":
        table[1][draw.draw(st.integers(0, PASSES - 1))] = value
    elif where == "row":
        table[0][number] = value
    elif where == "name":
        table[0][number][0] = value
    else:
        part = table[0][number][1 if where == "side" else 2]
        part[draw.draw(st.integers(0, len(part) - 1))] = value
    whole = [steps for _, _, steps, *_ in table[0] if isinstance(steps, list)] if where != "row" else []
    claimed = sum(step for steps in whole for step in steps if isinstance(step, int))
    data = forged(SMALL, table, payload=claimed if 0 <= claimed < 2**64 else 0)
    tracemalloc.start()
    try:
        for look in looks(1 << 24):
            with suppress(DamagedFile, InvalidInput):
                look(data)
        assert tracemalloc.get_traced_memory()[1] < 30 << 20
    finally:
        tracemalloc.stop()
