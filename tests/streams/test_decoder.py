"""Streams of items decoded progressively: as decoding at once, and no item is decoded twice at one length."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nestcode import Codes, LinearCoder, StreamDecoder, compress, decompress
from nestcode.errors import DamagedFile, InvalidInput
from tests.streams.collections import decoded_info, skewed, some_coder, some_items, stream, stream_info

PLAIN, CODED = stream(some_items(40)), skewed(120)
EMPTY = stream(some_items(0))


@settings(max_examples=60)
@given(st.sampled_from([PLAIN, CODED, EMPTY]), st.data())
def test_chunks_of_any_size_decode_as_all_at_once(data: bytes, draw: st.DataObject) -> None:
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(data)), max_size=6)))
    decoder, start = StreamDecoder(some_coder()), stream_info(data).header_bytes
    for first, last in zip([0, *cuts], [*cuts, len(data)], strict=True):
        decoder.feed(data[first:last])
        assert (decoder.info is None) == (last < start)
        if decoder.info is not None:
            assert decoder.info == decoded_info(data[:last])
            assert data is CODED or decoder.info == stream_info(data[:last], some_coder())
            assert decoder.lengths.min(initial=150) == decoder.info.length
            assert decoder.lengths.sum() == decoder.info.bits
            np.testing.assert_allclose(decoder.items(), decompress(data[:last], some_coder()), atol=1e-5)
    assert (decoder.lengths == 150).all()


@pytest.mark.parametrize("data", [PLAIN, CODED], ids=["plain", "entropy"])
def test_single_bytes_decode_as_all_at_once(data: bytes) -> None:
    decoder = StreamDecoder(some_coder())
    for at in range(len(data)):
        decoder.feed(data[at : at + 1])
    assert decoder.info == stream_info(data, some_coder())
    np.testing.assert_allclose(decoder.items(), decompress(data, some_coder()), atol=1e-5)


def test_only_items_of_which_more_arrived_are_decoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    items = some_items(500)
    data = compress(items, some_coder())
    start, decoder, decoded = stream_info(data).header_bytes, StreamDecoder(some_coder()), 0
    plain = LinearCoder.decode

    def counted(self: LinearCoder, codes: Codes) -> np.ndarray:
        nonlocal decoded
        decoded += len(codes)
        return plain(self, codes)

    monkeypatch.setattr(LinearCoder, "decode", counted)
    decoder.feed(data[: start + 800])
    decoder.items()
    assert decoded == 101  # one for all of which nothing arrived
    decoder.items()
    assert decoded == 101
    decoder.feed(data[start + 800 : start + 1600])
    decoder.items()
    assert decoded == 201
    assert (decoder.lengths == [64] * 200 + [0] * 300).all()


@pytest.mark.parametrize("data", [PLAIN, CODED], ids=["plain", "entropy"])
def test_a_damaged_block_raises_and_what_precedes_it_stays_decoded(data: bytes) -> None:
    start, decoder = stream_info(data).header_bytes, StreamDecoder(some_coder())
    changed = bytearray(data)
    changed[start + 3 * 68 + 5] ^= 4
    decoder.feed(changed[: start + 3 * 68 + 60])
    decoder.items()  # from bytes that are not verified yet, and wrong
    for _ in range(2):
        with pytest.raises(DamagedFile, match="block 3 of"):
            decoder.feed(changed[start + 3 * 68 + 60 :])
        assert decoder.info is not None
        assert (decoder.info.damaged, decoder.info.verified, decoder.info.unverified) == (3, 192, 0)
        np.testing.assert_allclose(decoder.items(), decompress(data[: start + 3 * 68], some_coder()), atol=1e-5)


def test_trailing_bytes_raise() -> None:
    decoder = StreamDecoder(some_coder())
    decoder.feed(PLAIN)
    with pytest.raises(DamagedFile, match="1 bytes follow"):
        decoder.feed(b"x")
    np.testing.assert_array_equal(decoder.items(), decompress(PLAIN, some_coder()))


def test_what_is_not_a_stream_is_refused_at_once() -> None:
    with pytest.raises(DamagedFile, match="not a stream"):
        StreamDecoder().feed(b"\x89P")
    decoder = StreamDecoder()
    with pytest.raises(InvalidInput, match="not complete after 0 bytes"):
        decoder.items()
    decoder.feed(b"\x89NEST")
    with pytest.raises(InvalidInput, match="not complete after 5 bytes"):
        decoder.lengths  # noqa: B018
    with pytest.raises(InvalidInput, match="more than the limit of 10"):
        StreamDecoder(some_coder(), limit=10).feed(PLAIN)
    refused = StreamDecoder()
    for again in (lambda: refused.feed(PLAIN), lambda: refused.feed(b""), refused.items):
        with pytest.raises(InvalidInput, match="which is not embedded"):
            again()


def test_returned_items_are_copies() -> None:
    decoder = StreamDecoder(some_coder())
    decoder.feed(PLAIN)
    mine = decoder.items()
    mine[:] = 0
    assert decoder.items().any()
