"""The entropy stage: lossless, certain, and as short as bits tell."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from nestcode import _core
from nestcode.streams.entropy import entropy_encode


def in_order(packed: NDArray[np.uint8], width: int) -> NDArray[np.uint8]:
    """The twin: the bits, group after group of 64."""
    bits = np.unpackbits(packed, axis=1, count=width)
    return np.concatenate([bits[:, first : first + 64].ravel() for first in range(0, width, 64)])


def decode(pieces: list[bytes], count: int, width: int) -> tuple[int, NDArray[np.uint8]]:
    """How many bits are certain, and all of them in order."""
    plain = np.zeros(count * -(-width // 8), dtype=np.uint8)
    decoder, certain = _core.CodeDecoder(count, width, plain), 0
    for piece in pieces:
        certain = decoder.feed(np.frombuffer(piece, dtype=np.uint8), count * width)
    groups, at = [], 0
    for first in range(0, width, 64):
        wide = min(64, width - first)
        size = count * -(-wide // 8)
        groups.append(np.unpackbits(plain[at : at + size].reshape(count, -(-wide // 8)), axis=1, count=wide).ravel())
        at += size
    return certain, np.concatenate(groups)


@settings(max_examples=60)
@given(st.integers(1, 30), st.integers(1, 200), st.floats(0, 1), st.data())
def test_codes_come_back_and_truncation_gives_a_prefix(count: int, width: int, one: float, draw: st.DataObject) -> None:
    packed = np.packbits(np.random.default_rng(0).random((count, width)) < one, axis=1)
    data, bits = entropy_encode(packed, width), in_order(packed, width)
    certain, found = decode([data], count, width)
    assert certain == count * width
    np.testing.assert_array_equal(found, bits)
    cut = draw.draw(st.integers(0, len(data)))
    certain, found = decode([data[:cut]], count, width)
    np.testing.assert_array_equal(found[:certain], bits[:certain])
    assert not found[certain:].any()
    slowly = decode([data[at : at + 1] for at in range(cut)], count, width)
    assert slowly[0] == certain
    np.testing.assert_array_equal(slowly[1], found)


@given(st.binary(max_size=200), st.integers(0, 9), st.integers(1, 200))
def test_noise_decodes_without_an_error(noise: bytes, count: int, width: int) -> None:
    certain, _ = decode([noise], count, width)
    assert certain <= count * width


@pytest.mark.parametrize("one", [0.02, 0.2, 0.5])
def test_the_rate_is_near_the_entropy(one: float) -> None:
    packed = np.packbits(np.random.default_rng(0).random((2000, 128)) < one, axis=1)
    entropy = -(one * np.log2(one) + (1 - one) * np.log2(1 - one))
    assert len(entropy_encode(packed, 128)) / packed.size < 1.01 * entropy + 0.002


def test_redundant_bytes_take_few_bits() -> None:
    """Bits that are predictable from those before them in their byte, and bytes from the byte before them."""
    rng = np.random.default_rng(0)
    entries = rng.integers(0, 256, 16, dtype=np.uint8)  # 4 bits a byte
    packed = entries[rng.integers(0, 16, (3000, 8))]
    assert len(entropy_encode(packed, 64)) / packed.size < 0.55
    follows = rng.integers(0, 256, 16, dtype=np.uint8)
    packed = np.repeat(rng.integers(0, 256, (3000, 1), dtype=np.uint8), 2, axis=1)
    packed[:, 1] = follows[packed[:, 0] >> 4]
    assert len(entropy_encode(packed, 16)) / packed.size < 0.56


def test_the_output_of_the_decoder_is_checked() -> None:
    with pytest.raises(ValueError, match="plain must have room for every code"):
        _core.CodeDecoder(3, 64, np.zeros(23, dtype=np.uint8))
    with pytest.raises(ValueError, match="must be one of the codes' groups"):
        _core.CodeEncoder(64).encode(np.zeros((3, 8), dtype=np.uint8), 1)
