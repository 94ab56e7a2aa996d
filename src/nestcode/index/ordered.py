"""Ordered access to codes: what a prefix tree and a database have in common.

Sorted by their bytes, codes that share a prefix lie side by side. Whatever keeps them in this order answers the paper's
retrieval by three scans: ascend from a code, descend from it, and read the range of a prefix.
"""

from typing import NamedTuple, Protocol

from nestcode.arrays import Ids
from nestcode.codes import Codes
from nestcode.errors import InvalidInput


class Scan(NamedTuple):
    """Items that lie side by side: their ids and codes."""

    ids: Ids
    codes: Codes


class OrderedCodes(Protocol):
    """Items in the order of their codes; those of equal codes are in any order.

    >>> from nestcode.index import PrefixTree
    >>> tree = PrefixTree(Codes.from_bits([[0, 0, 1], [0, 0, 0], [0, 1, 0], [1, 1, 1]]))
    >>> code = Codes.from_bits([[0, 1, 0]])
    >>> tree.ascend(code, limit=2).ids, tree.descend(code, limit=1).ids, tree.range(code.prefix(1)).ids
    (array([2, 3]), array([0]), array([1, 0, 2]))
    """

    @property
    def width(self) -> int:
        """Bits of a code."""

    def ascend(self, code: Codes, limit: int) -> Scan:
        """Return the first `limit` items whose codes are at least `code`, ascending."""

    def descend(self, code: Codes, limit: int) -> Scan:
        """Return the last `limit` items whose codes are less than `code`, descending."""

    def range(self, prefix: Codes) -> Scan:
        """Return all items whose codes begin with `prefix`, ascending."""


def key_range(prefix: Codes, width: int) -> tuple[bytes, bytes]:
    r"""Return the bounds of the codes of `width` bits with a prefix: the first code, and the first code after them.

    >>> key_range(Codes.from_bits([[1, 0, 1]]), width=16), key_range(Codes.from_bits([[1]]), width=16)
    ((b'\xa0', b'\xc0'), (b'\x80', b'\xff\xff\xff'))

    Args:
        prefix: one code of at most `width` bits.
        width: bits of the codes.

    """
    if prefix.width > width:
        raise InvalidInput(f"a prefix must have at most the {width} bits of the codes, got {prefix.width}: shorten it")
    return keys_with(key_of(prefix), prefix.width, width)


def keys_with(key: bytes, length: int, width: int) -> tuple[bytes, bytes]:
    r"""Return the same bounds for the first `length` bits of a key.

    >>> keys_with(b"\xbf\x12", 3, width=16)
    (b'\xa0', b'\xc0')
    """
    size, rest = -(-length // 8), -length % 8
    first = int.from_bytes(key[:size]) >> rest
    low = (first << rest).to_bytes(size)
    if (first + 1) >> length:  # all ones: more bytes than codes have are greater than all of them
        return low, b"\xff" * (-(-width // 8) + 1)
    return low, (first + 1 << rest).to_bytes(size)


def key_of(code: Codes) -> bytes:
    """Return the bytes of one code."""
    if not isinstance(code, Codes):
        raise InvalidInput(f"expected Codes of one item, got {type(code).__name__}: encode it with the coder")
    if len(code) != 1:
        raise InvalidInput(f"expected Codes of one item, got {len(code)}: take one, as in codes[i]")
    return bytes(code.packed[0])
