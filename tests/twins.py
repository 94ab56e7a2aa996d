"""Plain twins of the fast paths, and the data the laws run on."""

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from nestcode import Codes

Bits = NDArray[np.bool_]


def bit_arrays(width: int | None = None, max_items: int = 6, max_width: int = 300) -> st.SearchStrategy[Bits]:
    """(items, width) booleans; Hypothesis shrinks towards few items, narrow codes and zeros."""
    widths = st.integers(0, max_width) if width is None else st.just(width)
    shapes = st.tuples(st.integers(0, max_items), widths)
    return shapes.flatmap(lambda shape: hnp.arrays(np.bool_, shape))


def code_pairs(max_items: int = 6) -> st.SearchStrategy[tuple[Codes, Codes]]:
    """Two arrays of codes of the same width, often with shared prefixes."""

    def of_width(width: int) -> st.SearchStrategy[tuple[Codes, Codes]]:
        codes = bit_arrays(width, max_items).map(Codes.from_bits)
        return st.tuples(codes, codes)

    return st.integers(0, 300).flatmap(of_width)


def hamming(a: Bits, b: Bits) -> NDArray[np.int64]:
    distances: NDArray[np.int64] = (a[:, None, :] != b[None, :, :]).sum(axis=2)
    return distances


def common_prefix(a: Bits, b: Bits) -> NDArray[np.int64]:
    agree = a[:, None, :] == b[None, :, :]
    shared: NDArray[np.int64] = np.logical_and.accumulate(agree, axis=2).sum(axis=2)
    return shared


def random_codes(items: int, width: int, seed: int = 0) -> Codes:
    return Codes.from_bits(np.random.default_rng(seed).random((items, width)) < 0.5)
