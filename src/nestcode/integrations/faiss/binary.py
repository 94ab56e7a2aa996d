"""Codes to and from FAISS's binary indexes, which take packed bytes."""

from typing import Any

import numpy as np

from nestcode.codes import Codes
from nestcode.errors import InvalidInput, import_extra


def from_faiss(source: Any, width: int | None = None) -> Codes:
    """Return the codes in packed bytes, (n, bytes) of uint8, or in a binary index of FAISS.

    >>> from_faiss(np.array([[0b10100000], [0b11100000]], dtype=np.uint8), width=3)
    Codes(2 items of 3 bits: 101, 111)

    Args:
        source: an array, or an `IndexBinaryFlat`, whose codes are copied.
        width: bits of a code; by default 8 per byte.

    """
    if hasattr(source, "xb") and hasattr(source, "code_size"):
        faiss = import_extra("faiss", extra="faiss", purpose="from_faiss of an index")
        source = faiss.vector_to_array(source.xb).reshape(source.ntotal, source.code_size)
    packed = np.asarray(source)
    if packed.ndim != 2 or packed.dtype != np.uint8:
        raise InvalidInput(
            f"source must be uint8 of shape (n, bytes) or an IndexBinaryFlat, got {type(source).__name__}: "
            "pack bits with np.packbits(bits, axis=1)"
        )
    return Codes(packed, 8 * packed.shape[-1] if width is None else width)


def to_faiss(codes: Codes) -> Any:
    """Return an `IndexBinaryFlat` of FAISS that holds the codes; item i has id i.

    >>> codes = Codes.from_bits(np.eye(16, dtype=bool))
    >>> index = to_faiss(codes)
    >>> D, I = index.search(codes.packed[3:4], 1)
    >>> int(D[0, 0]), int(I[0, 0]), from_faiss(index) == codes
    (0, 3, True)

    Other binary indexes take `codes.packed`. FAISS counts whole bytes: bits beyond the width are 0.
    """
    faiss = import_extra("faiss", extra="faiss", purpose="to_faiss")
    index = faiss.IndexBinaryFlat(8 * codes.packed.shape[1])
    index.add(np.ascontiguousarray(codes.packed))
    return index
