"""The optional entropy stage: codes take as many bits as they tell, and any beginning still decodes."""

import numpy as np
from numpy.typing import NDArray

from nestcode import _core
from nestcode.streams.format import GROUP


def encode_bits(packed: NDArray[np.uint8], width: int) -> bytes:
    """Entropy code packed codes, (n, bytes), in the order of a stream.

    >>> rare = np.packbits(np.random.default_rng(0).random((2000, 64)) < 0.1, axis=1)
    >>> round(8 * len(encode_bits(rare, 64)) / rare.size / 8, 2)      # a bit tells 0.47 bits
    0.48
    """
    if not packed.size:
        return b""
    encoder = _core.CodeEncoder(width)
    for group in range(-(-width // GROUP)):
        encoder.encode(packed, group)
    return encoder.finish()
