"""Items as arrays of any shape and type; coders see rows of values. Also the choice of a stream's coder."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nestcode.arrays import is_number, shown
from nestcode.coders import Coder, coder_from_record
from nestcode.codes import Codes
from nestcode.container.files import FileView
from nestcode.errors import DamagedFile, InvalidInput
from nestcode.storage import parse_record
from nestcode.streams.format import DTYPES, SCALES, Header

BATCH = 1 << 22  # values that are encoded or decoded at a time
LARGEST_FLOAT16 = 65504
EMBEDDED = "the coder in the stream"  # what errors call it


def as_items(items: ArrayLike, features: int) -> NDArray[Any]:
    """Return a collection, (n, …), whose items the coder can encode."""
    array = np.asarray(items)
    if array.ndim < 2:
        raise InvalidInput(
            f"items must come as an array (n, …) of at least 2 dimensions, got shape {array.shape}: "
            "put one item into x[None], scalars into x[:, None]"
        )
    if array.dtype.str[1:] not in DTYPES:
        names = ", ".join(np.dtype(name).name for name in DTYPES)
        raise InvalidInput(f"items must be {names}, got {array.dtype}: convert them, as in items.astype(np.float32)")
    if math.prod(array.shape[1:]) != features:
        raise InvalidInput(
            f"items must have the {features} values the coder was fitted on, got {math.prod(array.shape[1:])} "
            f"in shape {array.shape[1:]}: fit a new coder or give items of that size"
        )
    return array


def check_coder(coder: Any) -> Coder:
    """Return the coder, or raise if it is none."""
    if not isinstance(coder, Coder):
        raise InvalidInput(f"coder must be a fitted coder, got {coder!r}: LinearCoder(width=256).fit(X) makes one")
    return coder


def check_scale(scale: float) -> float:
    """Return the divisor of items as a number, or raise if it is out of range."""
    if not is_number(scale):
        raise InvalidInput(f"scale must be a number, got {shown(scale)}")
    if not SCALES[0] <= scale <= SCALES[1]:
        raise InvalidInput(f"scale must be between {SCALES[0]:g} and {SCALES[1]:g}, got {shown(scale)}")
    return float(scale)


def encode_items(items: NDArray[Any], coder: Coder, scale: float, width: int) -> Iterator[NDArray[np.uint8]]:
    """Yield packed codes of `width` bits, batch by batch."""
    step = max(BATCH // items[:1].size, 1) if len(items) else 1
    for first in range(0, len(items), step):
        rows = items[first : first + step]
        rows = rows.reshape(len(rows), -1)
        if scale != 1:
            rows = _as_floats(rows, rows.dtype) / scale
        yield coder.encode(rows).prefix(width).packed


def decode_items(header: Header, coder: Coder, packed: NDArray[np.uint8], length: int, out: NDArray[Any]) -> None:
    """Decode the first `length` bits of packed codes into an array of items."""
    step = max(BATCH // header.features, 1)
    dtype = header.numpy_dtype
    for first in range(0, len(out), step):
        codes = Codes.unchecked(packed[first : first + step], 8 * packed.shape[1]).prefix(length)
        with np.errstate(over="ignore"):
            rows = _as_floats(coder.decode(codes), dtype) * header.scale
        if dtype.kind in "ui":
            limits = np.iinfo(dtype)
            rows = np.clip(np.rint(rows), limits.min, limits.max)
        elif dtype.itemsize == 2:
            rows = np.clip(rows, -LARGEST_FLOAT16, LARGEST_FLOAT16)
        out[first : first + step] = rows.reshape(-1, *header.shape)


def _as_floats(rows: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return rows in the precision that items of a type need."""
    return rows.astype(np.float64 if dtype.itemsize == 8 else np.float32, copy=False)


def find_coder(header: Header, view: memoryview | FileView, given: Any) -> Coder:
    """Return the coder that made a stream: the given one, or the embedded one."""
    made_by = f"the stream was made by a {header.kind} with fingerprint {header.coder}"
    if given is not None:
        coder = check_coder(given)
        if coder.fingerprint != header.coder:
            raise InvalidInput(
                f"{made_by}, the given coder is a {type(coder).__name__} with {coder.fingerprint}: "
                "give the coder that made it"
            )
    elif header.embedded:
        embedded = bytes(view[header.size - header.embedded : header.size])
        coder = coder_from_record(parse_record(embedded, EMBEDDED), EMBEDDED)
        if coder.fingerprint != header.coder:
            raise DamagedFile(f"{made_by}, but {coder.fingerprint} is embedded: restore a copy")
    else:
        raise InvalidInput(f"{made_by}, which is not embedded: give the coder, on the command line as --coder")
    if coder.n_features_in_ != header.features or coder.width_ < header.width:
        raise DamagedFile(
            f"the stream has items of {header.features} values in {header.width} bits, its coder encodes "
            f"{coder.n_features_in_} in {coder.width_}: restore a copy"
        )
    return coder
