"""Items as they come and go: of any shape and type; coders see rows of numbers."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nestcode.coders import Coder, coder_from_record, load_coder
from nestcode.coders.pretrained import find_pretrained
from nestcode.codes import Codes
from nestcode.errors import DamagedFile, InvalidInput
from nestcode.storage import parse_record
from nestcode.streams.format import DTYPES, SCALES, Header, check_length

PIECE = 1 << 22  # numbers that are coded at a time


def as_items(items: ArrayLike, features: int) -> NDArray[Any]:
    """A collection, (n, …), whose items the coder can take."""
    array = np.asarray(items)
    if array.ndim < 2:
        raise InvalidInput(
            f"items must come as an array (n, …) of at least 2 dimensions, got shape {array.shape}: "
            "put one item into x[None], single numbers into x[:, None]"
        )
    if array.dtype.str[1:] not in DTYPES:
        names = ", ".join(np.dtype(name).name for name in DTYPES)
        raise InvalidInput(f"items must be {names}, got {array.dtype}: convert them, as in items.astype(np.float32)")
    if math.prod(array.shape[1:]) != features:
        raise InvalidInput(
            f"items must have the {features} numbers the coder was fitted on, got {math.prod(array.shape[1:])} "
            f"in shape {array.shape[1:]}: fit a new coder or give items of that size"
        )
    return array


def check_coder(coder: Coder, length: int | None) -> int:
    """How many bits of a coder's codes to keep."""
    if not isinstance(coder, Coder):
        raise InvalidInput(f"coder must be a fitted coder, got {coder!r}: LinearCoder(width=256).fit(X) makes one")
    return check_length(length, coder.width_)


def scale_for(dtype: np.dtype[Any], scale: float | None, fingerprint: str) -> float:
    """What items are divided by; shipped coders take numbers between 0 and 1."""
    if scale is None:
        return float(np.iinfo(dtype).max) if dtype.kind == "u" and find_pretrained(fingerprint, "items") else 1.0
    if isinstance(scale, bool) or not isinstance(scale, int | float | np.number):
        raise InvalidInput(f"scale must be a number, got {scale!r}")
    if not SCALES[0] <= scale <= SCALES[1]:
        raise InvalidInput(f"scale must be between {SCALES[0]:g} and {SCALES[1]:g}, got {scale!r}")
    return float(scale)


def encode_items(items: NDArray[Any], coder: Coder, scale: float, width: int) -> Iterator[NDArray[np.uint8]]:
    """Packed codes of `width` bits, a piece of the collection after the other."""
    step = max(PIECE // items[:1].size, 1) if len(items) else 1
    for first in range(0, len(items), step):
        rows = items[first : first + step]
        rows = rows.reshape(len(rows), -1)
        if scale != 1:
            rows = _floats(rows, rows.dtype) / scale
        yield coder.encode(rows).prefix(width).packed


def decode_items(header: Header, coder: Coder, packed: NDArray[np.uint8], length: int, out: NDArray[Any]) -> None:
    """Decode packed codes, of which `length` bits count, into an array of items."""
    step = max(PIECE // header.features, 1)
    dtype = header.numpy_dtype
    for first in range(0, len(out), step):
        codes = Codes.unchecked(packed[first : first + step], 8 * packed.shape[1]).prefix(length)
        with np.errstate(over="ignore"):
            rows = _floats(coder.decode(codes), dtype) * header.scale
        if dtype.kind in "ui":
            limits = np.iinfo(dtype)
            rows = np.clip(np.rint(rows), limits.min, limits.max)
        elif dtype.itemsize == 2:
            rows = np.clip(rows, -65504, 65504)  # the largest float16
        out[first : first + step] = rows.reshape(-1, *header.shape)


def _floats(rows: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Rows as fine as items of a type need them."""
    return rows.astype(np.float64 if dtype.itemsize == 8 else np.float32, copy=False)


def find_coder(header: Header, embedded: bytes, coder: Coder | None) -> Coder:
    """The coder that made a stream: the one given, embedded or shipped."""
    made_by = f"the stream was made by a {header.kind} with fingerprint {header.coder}"
    if coder is not None:
        check_coder(coder, None)
        if coder.fingerprint != header.coder:
            raise InvalidInput(
                f"{made_by}, the coder given is a {type(coder).__name__} with {coder.fingerprint}: "
                "give the coder that made it"
            )
    elif embedded:
        coder = _embedded_coder(embedded)
        if coder.fingerprint != header.coder:
            raise DamagedFile(f"{made_by}, but {coder.fingerprint} is embedded: restore a copy")
    elif shipped := find_pretrained(header.coder, "items"):
        coder = load_coder(shipped)
    else:
        raise InvalidInput(f"{made_by}, which neither comes with Nestcode nor is embedded: give the coder that made it")
    if coder.n_features_in_ != header.features or coder.width_ < header.width:
        raise DamagedFile(
            f"the stream has items of {header.features} numbers in {header.width} bits, its coder codes "
            f"{coder.n_features_in_} in {coder.width_}: restore a copy"
        )
    return coder


def _embedded_coder(data: bytes) -> Coder:
    return coder_from_record(parse_record(data, "the coder in the stream"), "the coder in the stream")
