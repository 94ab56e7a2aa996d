"""Every version of the layout that was ever written can be read, and the present one is still written so."""

import json
import struct
import zlib
from typing import Any

import numpy as np
import pytest

from nestcode import StreamDecoder, _core, decompress, info, load_coder
from nestcode.codes import Codes
from nestcode.images import decompress_images, stream_info
from nestcode.images.codec import EVERYTHING
from nestcode.images.format import VERSION as PICTURES_VERSION
from nestcode.images.format import lay_out as lay_out_pictures
from nestcode.images.format import parse_image_header
from nestcode.streams.format import VERSION
from nestcode.streams.stream import lay_out
from tests.golden.make_stream import HERE, KINDS, SHAPES, blank, decoders, images, numbers, pictures

every_version = pytest.mark.parametrize("version", range(1, VERSION + 1))
every_kind = pytest.mark.parametrize("kind", KINDS)


def golden(version: int, kind: str) -> tuple[bytes, dict[str, Any]]:
    held = json.loads((HERE / f"stream-v{version}.json").read_text())
    return (HERE / f"stream-v{version}-{kind}.nest").read_bytes(), held


@every_version
@every_kind
def test_a_golden_stream_holds_what_it_held(version: int, kind: str) -> None:
    data, held = golden(version, kind)
    coder = None if kind == "embedded" else load_coder(HERE / f"stream-v{version}.coder")
    known = info(data)
    assert (known.count, known.shape, known.dtype, known.width, known.length) == (700, (4, 3), "uint8", 70, 70)
    assert (known.entropy, known.embedded, known.damaged) == (kind == "entropy", kind == "embedded", None)
    decoded = decompress(data, coder).astype(int)
    assert np.abs(decoded[:50] - held["items"]).max() <= 1  # a number on the edge may be rounded to either side
    assert np.mean((decoded - images()) ** 2.0) < 1.5 * known.expected_error + 0.5
    decoder = StreamDecoder(coder)
    for first in range(0, len(data), 1000):
        decoder.feed(data[first : first + 1000])
    assert np.abs(decoder.items().astype(int) - decoded).max() <= 1


@every_version
def test_a_golden_stream_can_be_cut(version: int) -> None:
    data, held = golden(version, "plain")
    decoded = decompress(data[:4000], load_coder(HERE / f"stream-v{version}.coder")).astype(int)
    assert np.abs(decoded[:50] - held["cut at 4000"]).max() <= 1


@every_kind
def test_the_present_version_is_still_written_so(kind: str) -> None:
    """Byte for byte, given the codes: whole numbers only, so that every machine agrees."""
    data, held = golden(VERSION, kind)
    coder, dtype = load_coder(HERE / f"stream-v{VERSION}.coder"), np.dtype(np.uint8)
    packed = np.frombuffer(bytes.fromhex(held["codes"]), dtype=np.uint8).reshape(700, 9)
    assert Codes(packed, 70).width == 70
    options = {"embed": False, "entropy": False, **KINDS[kind]}
    assert b"".join(lay_out(packed, coder, (4, 3), dtype, 1.0, 70, **options)) == data


every_pictures_version = pytest.mark.parametrize("version", range(1, PICTURES_VERSION + 1))


def golden_pictures(version: int) -> tuple[bytes, dict[str, Any]]:
    path = HERE / f"pictures-v{version}.nest"
    return path.read_bytes(), json.loads(path.with_suffix(".json").read_text())


@every_pictures_version
def test_golden_pictures_are_what_they_were(version: int) -> None:
    """Whole numbers to the last bit; pixels are rounded, and one on the edge may go to either side."""
    data, held = golden_pictures(version)
    known = stream_info(data)
    assert dict(zip(known.names, known.shapes, strict=True)) == SHAPES
    assert (known.coder, known.damaged, known.trailing) == (held["coder"], None, 0)
    assert blank().fingerprint == held["coder"]
    for arrived, expected in held["held"].items():
        cut = data[: known.header_bytes + int(arrived) + 4 * (int(arrived) // 4096)]
        assert [numbers(decoder) for decoder in decoders(data, int(arrived))] == expected["numbers"]
        for picture, pixels in zip(decompress_images(cut, blank()), expected["pixels"], strict=True):
            assert np.abs(picture.ravel()[::97].astype(int) - pixels).max() <= 1
    for picture, decoded in zip(pictures(), decompress_images(data, blank()), strict=True):
        assert np.mean((picture.astype(float) - decoded) ** 2) < 5


@every_pictures_version
def test_pictures_lie_where_the_text_says(version: int) -> None:
    """The twin: a reader made from `docs/format.md` alone."""
    data, _ = golden_pictures(version)
    magic, _, size, embedded, total, fingerprint = struct.unpack("<8sIIIQ32s", data[:60])
    assert (magic.hex(" "), embedded, fingerprint.hex()) == ("89 4e 45 53 50 0d 0a 1a", 0, blank().fingerprint)
    table, quality = json.loads(zlib.decompress(data[60 : 60 + size]))
    at, own = 64 + size, data[60 + size : 64 + size]
    assert zlib.crc32(data[: 60 + size]) == int.from_bytes(own, "little")
    payload = b""
    for number in range(-(-total // 4096)):
        block = data[at : at + min(4096, total - len(payload))]
        at += len(block) + 4
        assert zlib.crc32(number.to_bytes(8, "little") + own + block) == int.from_bytes(data[at - 4 : at], "little")
        payload += block
    assert at == len(data)
    parts, at = [b""] * len(table), 0
    for k in range(45):
        for number, (_, _, steps) in enumerate(table):
            parts[number] += payload[at : at + steps[k]]
            at += steps[k]
    assert at == total
    assert len(quality) == 45
    for part, (_, shape, steps), decoded in zip(parts, table, decompress_images(data, blank()), strict=True):
        assert not any(steps[: 3 * (15 - (part[0] & 0x7F))])
        assert np.array_equal(blank().decode(part, shape), decoded)


def test_pictures_are_still_written_so() -> None:
    """Byte for byte, given the whole numbers: those are found in floats, on which machines may differ."""
    data, _ = golden_pictures(PICTURES_VERSION)
    header, coder, written = parse_image_header(memoryview(data)), blank(), []
    for decoder in decoders(data, header.payload):
        assert decoder._known is not None
        whole = np.sign(decoder._known) * (np.abs(decoder._known) // 2)
        start = decoder._start[: 4 if decoder._start[0] >> 7 else 1]
        bits, _ = _core.encode_picture(coder._model, decoder._kinds, whole, start[0] & 0x7F, EVERYTHING, False)
        written.append(start + bits)
    assert written[0][0] >> 7 == 1  # turned
    assert b"".join(lay_out_pictures(header, b"", lambda number, some: written[number][some])) == data
