"""Every version of the stream format can be read, and the current version is written byte for byte."""

import json
from typing import Any

import numpy as np
import pytest

from nestcode import StreamDecoder, decompress, load_coder
from nestcode.codes import Codes
from nestcode.streams.format import VERSION
from nestcode.streams.stream import lay_out
from tests.golden.make_stream import HERE, KINDS, items
from tests.streams.collections import stream_info

every_version = pytest.mark.parametrize("version", range(1, VERSION + 1))
every_kind = pytest.mark.parametrize("kind", KINDS)


def golden(version: int, kind: str) -> tuple[bytes, dict[str, Any]]:
    held = json.loads((HERE / f"stream-v{version}.json").read_text())
    return (HERE / f"stream-v{version}-{kind}.nest").read_bytes(), held


@every_version
@every_kind
def test_a_golden_stream_decodes_as_it_did(version: int, kind: str) -> None:
    data, held = golden(version, kind)
    coder = None if kind == "embedded" else load_coder(HERE / f"stream-v{version}.coder")
    known = stream_info(data)
    assert (known.count, known.shape, known.dtype, known.width, known.length) == (700, (4, 3), "uint8", 70, 70)
    assert (known.entropy, known.embedded, known.damaged) == (kind == "entropy", kind == "embedded", None)
    decoded = decompress(data, coder).astype(int)
    assert np.abs(decoded[:50] - held["items"]).max() <= 1  # values halfway between integers may be rounded either way
    assert np.mean((decoded - items()) ** 2.0) < 1.5 * known.expected_error + 0.5
    decoder = StreamDecoder(coder)
    for first in range(0, len(data), 1000):
        decoder.feed(data[first : first + 1000])
    assert np.abs(decoder.items().astype(int) - decoded).max() <= 1


@every_version
def test_a_truncated_golden_stream_decodes_as_it_did(version: int) -> None:
    data, held = golden(version, "plain")
    decoded = decompress(data[:4000], load_coder(HERE / f"stream-v{version}.coder")).astype(int)
    assert np.abs(decoded[:50] - held["cut at 4000"]).max() <= 1


@every_kind
def test_the_current_version_is_written_byte_for_byte(kind: str) -> None:
    """Given the codes: these are integers, so that every machine agrees."""
    data, held = golden(VERSION, kind)
    coder, dtype = load_coder(HERE / f"stream-v{VERSION}.coder"), np.dtype(np.uint8)
    packed = np.frombuffer(bytes.fromhex(held["codes"]), dtype=np.uint8).reshape(700, 9)
    assert Codes(packed, 70).width == 70
    options = {"embed": False, "entropy": False, **KINDS[kind]}
    assert b"".join(lay_out(packed, coder, (4, 3), dtype, 1.0, 70, **options)) == data
