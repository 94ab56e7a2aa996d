"""Codes: immutable arrays of packed bits with prefixes, Hamming distances and lexicographic order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import EllipsisType
from typing import Any, Self, SupportsIndex, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nestcode import _core
from nestcode.arrays import CORES, as_array, check_int
from nestcode.errors import InvalidInput

MAX_WIDTH = 2**31 - 1


class Codes:
    """Immutable codes of `width` bits each, packed most significant bit first.

    >>> codes = Codes.from_bits(np.array([[1, 0, 1, 1], [1, 0, 0, 1], [0, 1, 1, 0]], dtype=bool))
    >>> codes
    Codes(3 items of 4 bits: 1011, 1001, 0110)
    >>> codes.prefix(2)
    Codes(3 items of 2 bits: 10, 10, 01)
    >>> codes.hamming(codes[0]).ravel()
    array([0, 1, 3], dtype=int32)

    Packed rows equal `np.packbits(bits, axis=1)`: the first bit is the highest of the first byte, so
    that comparing bytes compares codes, and sorting puts codes that share a prefix next to each other.

    Args:
        packed: `uint8` of shape (items, ceil(width / 8)); bits past `width` in the last byte are 0. A
            read-only array, such as `np.memmap` with mode "r", is shared; a writable one is copied.
        width: bits in each code.

    """

    __slots__ = ("_packed", "_width")

    def __init__(self, packed: ArrayLike, width: int) -> None:
        array = as_array(packed, "packed codes")
        width = check_int(width, "width", least=0)
        if width > MAX_WIDTH:
            raise InvalidInput(f"width must be at most {MAX_WIDTH}, got {width}: distances are 32-bit integers")
        if array.dtype != np.uint8:
            raise InvalidInput(f"packed codes must be uint8, got {array.dtype}: pack bits with Codes.from_bits(x > 0)")
        if array.ndim != 2:
            raise InvalidInput(
                f"packed codes must have 2 dimensions (items, bytes), got shape {array.shape}: "
                "put one code into packed[None, :]"
            )
        if array.shape[1] != _bytes(width):
            raise InvalidInput(
                f"codes of {width} bits take {_bytes(width)} bytes each, got {array.shape[1]}: "
                "give the width the codes were packed with"
            )
        if _dirty_padding(array, width):
            raise InvalidInput(
                f"bits past the width {width} must be 0, but the last byte of some codes has a 1 there: "
                f"give the width the codes were packed with, or clear them with prefix({width})"
            )
        self._packed = _frozen(array)
        self._width = width

    @classmethod
    def unchecked(cls, packed: NDArray[np.uint8], width: int) -> Self:
        """Wrap packed rows without a check or a copy: their padding must be 0, and nobody may write to them."""
        codes = object.__new__(cls)
        codes._packed, codes._width = _read_only(packed) if packed.flags.writeable else packed, width
        return codes

    @staticmethod
    def from_bits(bits: ArrayLike) -> Codes:
        """Pack bits, (items, width), given as booleans or as the integers 0 and 1.

        >>> Codes.from_bits([[True, True, False]])
        Codes(1 item of 3 bits: 110)
        """
        array = as_array(bits, "bits")
        if array.ndim != 2:
            raise InvalidInput(
                f"bits must have 2 dimensions (items, width), got shape {array.shape}: put one code into bits[None, :]"
            )
        if array.dtype != np.bool_:
            if not np.issubdtype(array.dtype, np.integer):
                raise InvalidInput(f"bits must be booleans, got {array.dtype}: threshold them first, as in x > 0")
            if array.size and (array.min() < 0 or array.max() > 1):
                raise InvalidInput(
                    f"integer bits must be 0 or 1, got values from {array.min()} to {array.max()}: "
                    "threshold them first, as in x > 0, or give packed bytes to Codes(packed, width)"
                )
        rows = np.ascontiguousarray(array, dtype=np.bool_)  # packing keeps the order of a transposed array
        return Codes.unchecked(np.packbits(rows, axis=1), array.shape[1])

    @property
    def width(self) -> int:
        """The number of bits in each code (K in the paper)."""
        return self._width

    @property
    def packed(self) -> NDArray[np.uint8]:
        """The packed bytes, (items, ceil(width / 8)), as a read-only view."""
        return self._packed

    def bits(self) -> NDArray[np.bool_]:
        """Return the bits as booleans, (items, width).

        >>> Codes(np.array([[0b10100000]], dtype=np.uint8), width=3).bits()
        array([[ True, False,  True]])
        """
        return np.unpackbits(self._packed, axis=1, count=self._width).view(np.bool_)

    def prefix(self, length: int) -> Self:
        """Return the first `length` bits of each code (x↓b in the paper); whole bytes share memory.

        >>> Codes.from_bits([[True, False, True]]).prefix(0)
        Codes(1 item of 0 bits)
        """
        length = check_int(length, "length", least=0)
        if length > self._width:
            raise InvalidInput(
                f"length must be between 0 and the code's width {self._width}, got {length}: "
                "shorten the prefix or make wider codes"
            )
        packed = self._packed[:, : _bytes(length)]
        if _dirty_padding(packed, length):
            packed = packed.copy()
            packed[:, -1] &= 0xFF ^ _padding_mask(length)
        return self.unchecked(packed, length)

    def leading_bits(self, bits: int) -> NDArray[np.int64]:
        """Return the first `bits` bits of each code as an integer, (items,).

        >>> Codes.from_bits([[True, False, True], [False, True, True]]).leading_bits(2)
        array([2, 1])

        Args:
            bits: how many; at most 56 and at most the width.

        """
        bits = check_int(bits, "bits", least=0)
        if bits > min(self._width, 56):
            raise InvalidInput(
                f"bits must be at most 56 and at most the code's width {self._width}, got {bits}: take fewer bits"
            )
        integers = np.zeros(len(self), dtype=np.int64)
        for byte in range(_bytes(bits)):
            integers = integers << 8 | self._packed[:, byte]
        return integers >> (-bits % 8)

    def concat(self, *others: Codes) -> Codes:
        """Return these codes followed by `others` of the same width.

        >>> a = Codes.from_bits([[True, False]])
        >>> a.concat(a, a)
        Codes(3 items of 2 bits: 10, 10, 10)
        """
        for other in others:
            self._check_width(other)
        return Codes.unchecked(np.concatenate([self._packed, *(other._packed for other in others)]), self._width)

    def hamming(self, other: Codes, *, threads: int | None = 1) -> NDArray[np.int32]:
        """Return the Hamming distance of every pair, (items, other's items).

        >>> a = Codes.from_bits([[True, False, True], [False, False, False]])
        >>> a.hamming(a)
        array([[0, 2],
               [2, 0]], dtype=int32)

        Args:
            other: codes of the same width.
            threads: the number of threads; None takes every core.

        """
        return self._pairs(_core.hamming, other, threads)

    def common_prefix(self, other: Codes, *, threads: int | None = 1) -> NDArray[np.int32]:
        """Return the length of the common prefix of every pair, (items, other's items).

        >>> a = Codes.from_bits([[True, False, True], [True, True, True]])
        >>> a.common_prefix(a)
        array([[3, 1],
               [1, 3]], dtype=int32)

        Args:
            other: codes of the same width.
            threads: the number of threads; None takes every core.

        """
        return self._pairs(partial(_core.common_prefix, width=self._width), other, threads)

    def _pairs(self, kernel: Callable[..., None], other: Codes, threads: int | None) -> NDArray[np.int32]:
        """Apply a symmetric kernel to every pair; it runs over the longer side."""
        self._check_width(other)
        short, long = (self, other) if len(self) <= len(other) else (other, self)
        out = np.empty((len(short), len(long)), dtype=np.int32)
        kernel(short._packed, long._packed, out=out, threads=thread_count(threads))
        return out if short is self else out.T

    def sort_order(self) -> NDArray[np.int64]:
        """Return the positions of items in lexicographic order of their codes; the sort is stable.

        >>> codes = Codes.from_bits([[True, False], [False, True], [True, False]])
        >>> codes.sort_order()
        array([1, 0, 2])
        >>> codes[codes.sort_order()]
        Codes(3 items of 2 bits: 01, 10, 10)
        """
        order = np.empty(len(self), dtype=np.int64)
        _core.argsort_rows(self._packed, order)
        return order

    def __len__(self) -> int:
        return int(self._packed.shape[0])

    @overload
    def __getitem__(self, items: SupportsIndex) -> Code: ...
    @overload
    def __getitem__(self, items: slice | Sequence[int] | NDArray[Any]) -> Codes: ...
    def __getitem__(self, items: SupportsIndex | slice | Sequence[int] | NDArray[Any]) -> Codes:
        """Return the codes at a position (a `Code`), a slice (shares memory), a list or a mask."""
        if isinstance(items, tuple | None | EllipsisType):
            raise InvalidInput(
                f"codes are indexed by item only, got {items!r}: use an integer, a slice, a list or a mask; "
                "prefix(length) takes leading bits"
            )
        kind = Codes
        if not isinstance(items, slice):
            items = np.asarray(items)
            if items.ndim == 0 and items.dtype == np.bool_:
                raise InvalidInput(
                    f"an item's position must be an integer, got {items!s}: give an integer, or a mask with one value "
                    "for each item"
                )
            if items.ndim == 0:
                items, kind = items[None], Code
            if items.size == 0 and items.dtype != np.bool_:
                items = items.astype(np.int64)  # NumPy takes an empty list for floats
            if items.ndim != 1:
                raise InvalidInput(f"codes are indexed by 1 dimension, got an index of shape {items.shape}: flatten it")
        return kind.unchecked(self._packed[items], self._width)

    def __iter__(self) -> Iterator[Code]:
        return (Code.unchecked(self._packed[i : i + 1], self._width) for i in range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Codes):
            return NotImplemented
        return self._width == other._width and np.array_equal(self._packed, other._packed)

    def __hash__(self) -> int:
        return hash((self._width, self._packed.tobytes()))

    def __reduce__(self) -> tuple[type[Self], tuple[NDArray[np.uint8], int]]:
        return type(self), (self._packed, self._width)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self._packed, dtype=dtype, copy=copy)

    def __repr__(self) -> str:
        items = f"{len(self)} item{'s' if len(self) != 1 else ''} of {self._width} bit{'s' if self._width != 1 else ''}"
        if not len(self) or not self._width:
            return f"Codes({items})"
        shown = min(self._width, 32)
        rows = self[:3].prefix(shown).bits().astype(np.uint8)
        texts = ["".join(map(str, row)) + "…" * (self._width > shown) for row in rows]
        return f"Codes({items}: {', '.join(texts)}{', …' * (len(self) > 3)})"

    def _check_width(self, other: Codes) -> None:
        if not isinstance(other, Codes):
            raise InvalidInput(f"expected Codes, got {type(other).__name__}: wrap packed bytes as Codes(packed, width)")
        if other._width != self._width:
            raise InvalidInput(
                f"codes must have the same width, got {self._width} and {other._width}: "
                f"compare prefixes, as in prefix({min(self._width, other._width)})"
            )


class Code(Codes):
    """One code, as indexing and iteration give it: to a search it is one query, as one vector is.

    >>> codes = Codes.from_bits([[1, 0, 1], [0, 1, 1]])
    >>> codes[0]
    Codes(1 item of 3 bits: 101)
    >>> is_single(codes[0]), is_single(codes[:1])  # as of an array, X[0] and X[:1]
    (True, False)
    """

    __slots__ = ()

    def __init__(self, packed: ArrayLike, width: int) -> None:
        super().__init__(packed, width)
        if len(self) != 1:
            raise InvalidInput(f"a Code is one item, got {len(self)}: make Codes of them")


def is_single(queries: Codes | ArrayLike) -> bool:
    """Return whether queries are a single one, one vector or one `Code`, and no batch."""
    return isinstance(queries, Code) if isinstance(queries, Codes) else np.ndim(queries) == 1


def _bytes(width: int) -> int:
    return -(-width // 8)


def _padding_mask(width: int) -> int:
    """Return the mask of the last byte's bits past the width."""
    return 0xFF >> width % 8 if width % 8 else 0


def _dirty_padding(packed: NDArray[np.uint8], width: int) -> bool:
    mask = _padding_mask(width)
    return bool(mask and np.bitwise_or.reduce(packed[:, -1], initial=0) & mask)


def _frozen(array: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return an array that nobody can write to: the array itself if its memory is read-only, else a copy."""
    owner: Any = array
    while isinstance(owner, np.ndarray):
        writable, owner = owner.flags.writeable, owner.base
        if writable:
            break
    contiguous_rows = array.shape[1] < 2 or array.strides[1] == 1
    return _read_only(array if contiguous_rows and _is_read_only(owner) else array.copy(order="C"))


def _is_read_only(owner: object) -> bool:
    """Return whether memory is read-only for good; an array's own flag can be switched back."""
    try:
        return memoryview(owner).readonly and not isinstance(owner, np.ndarray)  # type: ignore[arg-type]
    except TypeError:
        return False


def _read_only(array: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return a view whose read-only flag cannot be switched back."""
    return np.asarray(memoryview(array).toreadonly()) if array.size else array  # type: ignore[arg-type]


def thread_count(threads: int | None) -> int:
    """Return the number of threads to use; None takes every core."""
    return CORES if threads is None else min(check_int(threads, "threads", least=1), 8 * CORES)
