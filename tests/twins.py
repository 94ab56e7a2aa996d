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


class BitTree:
    """The paper's tree as it is written there: a node for every prefix, with the items below it."""

    def __init__(self, bits: Bits, ids: NDArray[np.int64]) -> None:
        self.ids = sorted(ids.tolist())
        self.children: list[BitTree] = []
        if bits.shape[1] and len(bits):
            self.children = [BitTree(bits[bits[:, 0] == side, 1:], ids[bits[:, 0] == side]) for side in (False, True)]

    def family(self, query: NDArray[np.bool_]) -> list[list[int]]:
        """The members of N_0, N_1, ... as long as there are any, and of N_0 always."""
        family, node = [self.ids], self
        for bit in query.tolist():
            if not node.children or not node.children[bit].ids:
                break
            node = node.children[bit]
            family.append(node.ids)
        return family

    def neighborhood(self, query: NDArray[np.bool_], size: int) -> tuple[int, list[int]]:
        """Go down until fewer than `size` are left, and answer with the neighborhood before that."""
        length, members = 0, self.ids
        for deeper, ids in enumerate(self.family(query)):
            if deeper and len(ids) >= size:
                length, members = deeper, ids
        return length, members
