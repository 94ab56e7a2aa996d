"""Every version of the format of image streams can be read, and the current version is written byte for byte."""

import json
import struct
import zlib
from base64 import b64decode
from typing import Any

import numpy as np
import pytest

from nestcode import _core
from nestcode.errors import DamagedFile
from nestcode.images import decompress_images
from nestcode.images.bitplanes import CHANNELS, UNLIMITED
from nestcode.images.codec import ImageDecoder
from nestcode.images.format import LOSSY_VERSION, VERSION, lay_out, parse_image_header
from tests.golden.make_stream import (
    HERE,
    PROFILES,
    SHAPES,
    bitstreams,
    blank,
    decoders,
    images,
    known_bits,
    pixel_digests,
)
from tests.images.samples import stream_info
from tests.images.twins import known_values

every_version = pytest.mark.parametrize("version", range(1, VERSION + 1))


def golden_images(version: int) -> tuple[bytes, dict[str, Any]]:
    path = HERE / f"images-v{version}.nest"
    return path.read_bytes(), json.loads(path.with_suffix(".json").read_text())


@every_version
def test_golden_images_decode_as_they_did(version: int) -> None:
    """Coefficients bit for bit; pixels within 1, since values halfway between integers may be rounded either way."""
    data, held = golden_images(version)
    known = stream_info(data)
    assert dict(zip(known.names, known.shapes, strict=True)) == SHAPES
    assert (known.coder, known.damaged, known.trailing) == (held["coder"], None, 0)
    assert blank(version).fingerprint == held["coder"]
    for arrived, expected in held["held"].items():
        arrivals = decoders(data, int(arrived))
        assert [known_bits(decoder) for decoder in arrivals] == expected["numbers"]
        for decoder, pixels in zip(arrivals, expected["pixels"], strict=True):
            filtered = version > LOSSY_VERSION  # those of the others are older than the filter
            assert np.abs(decoder.image(filtered=filtered).ravel()[::97].astype(int) - pixels).max() <= 1
    for image, decoded in zip(images(version), decompress_images(data, blank(version)), strict=True):
        assert decoded.dtype == image.dtype
        assert version <= LOSSY_VERSION or np.array_equal(image, decoded)
        assert np.mean((image.astype(float) - decoded) ** 2) < 5 * (257**2 if image.dtype == np.uint16 else 1)
    assert [entry.profile for entry in parse_image_header(memoryview(data)).entries] == PROFILES[version]


@every_version
def test_pixels_are_the_same_on_every_machine(version: int) -> None:
    """One order of floating-point operations; tests/web compares the decoder for browsers with the same checksums."""
    expected = json.loads((HERE / f"images-v{version}-pixels.json").read_text())
    assert pixel_digests(golden_images(version)[0]) == expected


@every_version
def test_a_reader_written_from_the_documentation_agrees(version: int) -> None:
    """The twin: a reader written from `docs/format.md` alone."""
    data, _ = golden_images(version)
    magic, _, size, embedded, total, fingerprint = struct.unpack("<8sIIIQ32s", data[:60])
    assert (magic.hex(" "), embedded, fingerprint.hex()) == ("89 4e 45 53 50 0d 0a 1a", 0, blank(version).fingerprint)
    table, quality, *profiles = json.loads(zlib.decompress(data[60 : 60 + size]))
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
    passes = 45 + (version > 4)
    for k in range(passes):
        for image, (_, _, sizes, *_) in enumerate(table):
            parts[image] += payload[at : at + sizes[k]]
            at += sizes[k]
    assert at == total
    assert len(quality) == passes
    for part, (_, shape, sizes, *more), decoded in zip(
        parts, table, decompress_images(data, blank(version)), strict=True
    ):
        assert not any(sizes[: 3 * (15 - (part[0] & 0x1F))])
        depth, profile = more or (8, None)
        lossy = sum(sizes[:45])
        shown = blank(version).decode(part[:lossy], shape, f"u{depth // 8}")
        if version > 4:
            _core.ResidualDecoder(shown.reshape(*shape[:2], -1)).feed(part[lossy:])
        assert np.array_equal(shown, decoded)
        assert profile is None or b64decode(profiles[0][profile]) in PROFILES[version]


def rotation_and_weights(part: bytes, channels: int) -> tuple[list[int], list[int]]:
    """The rotation and the weights that a bitstream begins with."""
    at = 4 if part[0] & 0x80 else 1
    return np.frombuffer(part[1:at], dtype=np.int8).tolist(), list(part[at : at + channels] if part[0] & 0x20 else b"")


def test_the_current_version_is_written_byte_for_byte() -> None:
    """Given the quantized coefficients: these come from floats, on which machines may differ."""
    data, _ = golden_images(LOSSY_VERSION)
    header, codec, written = parse_image_header(memoryview(data)), blank(), []
    for decoder, part in zip(decoders(data, header.payload), bitstreams(data, header.payload).values(), strict=True):
        known = known_values(decoder)
        quantized = (np.sign(known) * (np.abs(known) // 2)).astype(np.int16)
        bits, planes, *_ = _core.encode_image(
            codec._model, CHANNELS[len(known)], quantized, UNLIMITED, False, np.empty((0, 0, 0), dtype=np.uint8),
            codec.step, *rotation_and_weights(part, len(known)),
        )  # fmt: skip
        assert planes == part[0] & 0x1F
        written.append(bits)
    assert written[0][0] >> 5 == 0b111  # rotated colors, planes of subbands, weights
    assert b"".join(lay_out(header, b"", lambda image, part: written[image][part])) == data


def test_residuals_are_written_byte_for_byte() -> None:
    data, _ = golden_images(VERSION)
    header = parse_image_header(memoryview(data))
    parts = bitstreams(data, header.payload).values()
    for image, entry, part in zip(images(VERSION), header.entries, parts, strict=True):
        shown = blank().decode(part[: entry.lossy], entry.shape, image.dtype)
        pixels = [one.reshape(*entry.shape[:2], -1) for one in (shown, image)]
        assert _core.encode_residual(*pixels) == part[entry.lossy :]


@every_version
def test_flags_of_later_versions_are_refused(version: int) -> None:
    header = parse_image_header(memoryview(golden_images(version)[0]))
    first = b"\x41"  # one bit plane, and the bit planes of subbands, which came with version 3
    decoder = ImageDecoder(blank(version), (8, 8), flags=header.flags)
    if version >= 3:
        decoder.feed(first)
        return
    with pytest.raises(DamagedFile, match="begins with no flags 96, got the byte 65: restore"):
        decoder.feed(first)
