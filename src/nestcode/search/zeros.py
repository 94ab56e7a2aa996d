"""Zero vectors by angle: the codes that they have.

The cosine with a zero vector is 0, its distance 2 from everything. Its code decodes to a vector that is not quite zero
and points anywhere: L2-normalized, it would be near some query. But a zero vector always has the same code, and if
codes are not too short, an item of ordinary norm in that direction has another code.
"""

import numpy as np
from numpy.typing import NDArray

from nestcode.arrays import Floats, squared_norms
from nestcode.coders import Coder
from nestcode.codes import Codes

DISTANCE = np.float32(2)  # 2 - 2 cos of a zero vector
SHARED_BITS = 15  # codes that are no longer have more than one in 2^16 items each, zero vectors or not


def zero_codes(coder: Coder, width: int) -> Codes:
    """Return the codes of `width` bits that zero vectors have, none where other items may share them.

    >>> from nestcode import LinearCoder
    >>> X = np.random.default_rng(0).standard_normal((200, 4))
    >>> coder = LinearCoder(32, metric="cosine").fit(X)
    >>> [len(zero_codes(coder, width)) for width in (2, 32)]
    [0, 1]

    """
    if width <= SHARED_BITS:
        return Codes.unchecked(np.zeros((0, -(-width // 8)), dtype=np.uint8), width)
    types = (np.float32, np.float64)  # which may round to different codes
    codes = [coder.encode(np.zeros((1, coder.n_features_in_), dtype=dtype)).prefix(width).packed for dtype in types]
    found = Codes.unchecked(np.unique(np.concatenate(codes), axis=0), width)
    decoded = coder.decode(found)
    mean = float(squared_norms(coder.decode(found.prefix(0)[:1]))[0])
    norm = np.sqrt(mean + coder.expected_error(0) * coder.n_features_in_)  # of an item, as a root mean square
    lengths = np.sqrt(squared_norms(decoded))[:, None]
    items = np.divide(norm * decoded, lengths, out=np.zeros(decoded.shape), where=lengths > 0)
    shared = (coder.encode(items).prefix(width).packed == found.packed).all(axis=1)
    return Codes.unchecked(found.packed[~shared], width)


def among(codes: Codes, zeros: Codes) -> NDArray[np.bool_]:
    """Return which codes are those of zero vectors."""
    found = np.zeros(len(codes), dtype=np.bool_)
    for row in zeros.packed:
        found |= (codes.packed == row).all(axis=1)
    return found


def correct(distances: Floats, codes: Codes, zeros: Codes) -> Floats:
    """Return distances by angle, (queries, codes), of which those to zero vectors are 2."""
    if len(zeros):
        distances[:, among(codes, zeros)] = DISTANCE
    return distances
