"""Checking and normalizing what users pass in: rows of data, their dtypes, integers, ids.

Rows are checked once, processed in pieces that fit the cache, and become float32 only after centering.
"""

import math
import operator
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nestcode import _core
from nestcode.errors import InvalidInput, NotNumeric

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Ids = NDArray[np.int64]
StoredIds = NDArray[np.uint32] | NDArray[np.int64]  # of 32 bits where all of them fit
Bytes = NDArray[np.uint8]
# Cores that this process may use, fewer than the machine has in a container with a cpuset or by `nestcode --threads`; a
# CPU quota is not counted. They are counted once: the call costs as much as thousands of distances.
if sys.platform == "linux":
    CORES = len(os.sched_getaffinity(0))
else:
    CORES = os.cpu_count() or 1
PIECE = 4096  # rows
FLOAT32_MAX = np.finfo(np.float32).max
LARGEST = 1e36  # of values that are not L2-normalized: their differences and norms fit float32 too
LARGEST_SQUARE = 1e37  # squared norm of a vector whose distances fit float32
SMALLEST_SQUARE = 1e-36  # squared distance of items from their mean whose parts fit float32
INT64_MAX = 2**63 - 1
MAX_SAMPLES = 2**31 - 1  # random values that are drawn at once
MAX_SEED = 2**128 - 1  # as NumPy draws seeds
SHOWN = 40  # characters of a value in an error
FINITE_REMEDY = "drop or impute rows with NaN or inf first, as in X[np.isfinite(X).all(axis=1)]"


def pieces(X: ArrayLike | Iterable[ArrayLike]) -> Iterator[NDArray[Any]]:
    """Yield the checked rows of an array, a memory map or an iterable of arrays, at most `PIECE` at a time."""
    chunks = isinstance(X, list | tuple) and len(X) > 0 and np.ndim(X[0]) == 2
    whole = not chunks and (
        hasattr(X, "__array__") or hasattr(X, "toarray") or isinstance(X, list | tuple | memoryview)
    )
    features = None
    for part in [X] if whole or not isinstance(X, Iterable) else X:
        rows = check_rows(part)  # type: ignore[arg-type]
        if features not in (None, rows.shape[1]):
            raise InvalidInput(
                f"all parts of the data must have the same number of features, got {features} and {rows.shape[1]}"
            )
        features = rows.shape[1]
        for first in range(0, len(rows), PIECE):
            yield rows[first : first + PIECE]


def as_array(X: ArrayLike, name: str = "data") -> NDArray[Any]:
    """Return data as NumPy reads it, or raise."""
    if np.ma.is_masked(X):
        raise InvalidInput(f"{name} must have no masked values: fill them with X.filled(value), or drop their rows")
    if hasattr(X, "toarray"):
        raise InvalidInput(f"{name} must be dense, got a sparse {type(X).__name__}: convert it with X.toarray()")
    try:
        array = np.asarray(X)
    except (RuntimeError, TypeError, ValueError) as error:  # tensors with gradients, on other devices, ragged lists
        if isinstance(X, list | tuple):
            rule, remedy = "have the same number of features in each row", "drop or fill some"
        else:
            rule, remedy = (
                "be an array of numbers",
                "give a tensor as X.detach().cpu().numpy(), one of bfloat16 as X.float()",
            )
        raise InvalidInput(
            f"{name} must {rule}, got a {type(X).__name__} that NumPy does not read ({error}): {remedy}"
        ) from error
    if array.dtype == object and array.ndim == 1 and len(array) and isinstance(array[0], np.ndarray | list):
        raise InvalidInput(  # a column of lists, of pandas or Arrow
            f"{name} must be numbers in one array, got a {type(X).__name__} of arrays: give np.stack(np.asarray(X))"
        )
    return array


def check_rows(X: ArrayLike, features: int | None = None) -> NDArray[Any]:
    """Return numeric rows, (n, features), in their own dtype, or raise an error in words scikit-learn expects."""
    if X is None:
        raise InvalidInput("data must be an array (items, features), got None: give rows of numbers")
    array = np.require(as_array(X), requirements="A")  # views of bytes may be unaligned
    if array.ndim == 0:
        given = repr(array.item())[:40]
        raise InvalidInput(f"data must be an array (items, features), got {given}: give rows of numbers")
    if array.ndim != 2:
        remedy = (
            ": flatten images with X.reshape(len(X), -1)"
            if array.ndim > 2
            else ". Reshape your data: put one item into x[None, :], single values into x[:, None]"
        )
        raise InvalidInput(f"data must have 2 dimensions (items, features), got shape {array.shape}{remedy}")
    if array.dtype == object:  # as data frames with columns of several types convert to
        array = _objects_as_float64(array)
    if array.dtype.kind not in "fiub":
        remedy = "convert them with X.astype(np.float32)"
        if array.dtype.kind == "c":
            remedy = "Complex data not supported, take X.real or np.abs(X)"
        raise InvalidInput(f"data must be numeric, got {array.dtype}: {remedy}")
    if features is not None and array.shape[1] != features:
        raise InvalidInput(
            f"data must have the {features} features the coder was fitted on, got {array.shape[1]}: "
            "fit a new coder or give the same features"
        )
    if array.shape[1] == 0:
        raise InvalidInput(
            f"data must have features, got rows of 0 feature(s) (shape={array.shape}) while a minimum of 1 is "
            "required: give at least one column"
        )
    return array


def _objects_as_float64(array: NDArray[np.object_]) -> NDArray[Any]:
    """Return an array of Python numbers as float64, or unchanged if it holds strings."""
    try:
        return array.astype(np.float64)
    except ValueError:
        return array
    except TypeError as error:
        raise NotNumeric(f"data must be numeric, got objects ({error}): keep columns of numbers only") from error


def as_floats(rows: NDArray[Any], *, normalize: bool = False) -> NDArray[np.floating[Any]]:
    """Return a floating point copy of finite rows, L2-normalized where `normalize` is set (zeros stay zeros).

    The copy is float32, or float64 for dtypes of more precision: those are rounded once they are centered.
    """
    dtype = _float_type(rows)
    return _center(rows, np.zeros(0, dtype), np.empty(rows.shape, dtype), normalize=normalize)


def _float_type(rows: NDArray[Any]) -> type[np.floating[Any]]:
    """Return the type that rows are computed in: float32, or float64 for dtypes of more precision."""
    return np.float64 if rows.dtype.itemsize > (4 if rows.dtype.kind == "f" else 2) else np.float32


def _center(
    rows: NDArray[Any], mean: NDArray[np.floating[Any]], out: NDArray[np.floating[Any]], *, normalize: bool
) -> NDArray[np.floating[Any]]:
    """Return finite rows in `out`, computed in the mean's type: L2-normalized, less the mean unless it is empty."""
    floats = np.require(rows, mean.dtype, ("C", "A"))
    most = float(FLOAT32_MAX) if normalize else LARGEST
    if not _core.center_rows(floats, mean, normalize, most, out, CORES) and rows.dtype.kind == "f":
        first = rows[~(np.abs(floats) <= most)][0]
        rule, remedy = "finite and within float32", FINITE_REMEDY
        if np.isfinite(first):
            rule, remedy = f"at most {most:.1g}, well within float32", "rescale it"
        raise InvalidInput(f"data must be {rule}, but some of it is {first}: {remedy}")
    return out


def as_float64(rows: NDArray[Any], *, normalize: bool = False) -> Doubles:
    """Return a float64 copy of finite rows, L2-normalized where `normalize` is set (zeros stay zeros)."""
    return as_floats(np.asarray(rows, dtype=np.float64), normalize=normalize).astype(np.float64, copy=False)


def center(rows: NDArray[Any], mean: NDArray[np.float64], *, normalize: bool) -> Floats:
    """Return rows minus the mean, L2-normalized first where `normalize` is set; rounded to float32 last."""
    return _center(rows, mean.astype(_float_type(rows)), np.empty(rows.shape, np.float32), normalize=normalize)


def project(X: ArrayLike, mean: NDArray[np.float64], directions: Floats, *, normalize: bool) -> Floats:
    """Return checked, centered rows in `directions`: (n, features), (directions, features) -> (n, directions)."""
    return multiply(center(check_rows(X, features=len(mean)), mean, normalize=normalize), directions.T)


def multiply(rows: Floats, matrix: Floats) -> Floats:
    """Return rows @ matrix; a row alone gives the same bits as the row in a batch.

    BLAS multiplies one row by another routine than several, which adds in another order.
    """
    product: Floats = (rows if len(rows) != 1 else np.repeat(rows, 2, axis=0)) @ matrix
    return product[: len(rows)]


def squared_norms(rows: Floats) -> NDArray[np.float64]:
    """Return the squared L2 norm of each row in float64: (n, features) -> (n,)."""
    norms = np.empty(len(rows))
    _core.sum_squares(np.require(rows, requirements=("C", "A")), norms, CORES)
    return norms


def check_int(value: Any, name: str, least: int, most: int | None = INT64_MAX) -> int:
    """Return the value as Python's int, from `least` to `most`, or raise an error that names it.

    >>> check_int(np.uint8(3), "width", least=1)
    3
    """
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise InvalidInput(f"{name} must be an integer of at least {least}, got {shown(value)}") from None
    if number < least:
        raise InvalidInput(f"{name} must be an integer of at least {least}, got {shown(number)}")
    if most is not None and number > most:
        raise InvalidInput(f"{name} must be at most {most:,}, got {shown(number)}: give a smaller one")
    return number


def check_budget(value: Any, name: str, least: int = 1) -> int:
    """Return a number of items as an int; beyond what any index holds, all numbers mean all items.

    >>> check_budget(10**400, "candidates") == INT64_MAX
    True
    """
    return min(check_int(value, name, least, most=None), INT64_MAX)


def check_seed(seed: Any) -> int:
    """Return the seed of a random generator as an int, or raise an error.

    >>> check_seed(2**100) == 2**100
    True
    """
    return check_int(seed, "seed", least=0, most=MAX_SEED)


def is_number(value: Any) -> bool:
    """Return whether a value is a number, Python's or NumPy's, that a float holds: finite, and no bool.

    >>> is_number(np.float32(0.5)), is_number(float("nan")), is_number(10**400), is_number("3")
    (True, False, False, False)
    """
    try:
        numeric = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
        return numeric and math.isfinite(value)
    except OverflowError:
        return False


def shown(value: object) -> str:
    """Return the beginning of a value for an error: an integer may have thousands of digits, an array many rows.

    >>> shown(2.5), shown(10**400), shown([0] * 1000)
    ('2.5', 'an integer of 1,329 bits', '[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,…')
    """
    if isinstance(value, int) and value.bit_length() > 128:
        return f"{'a negative' if value < 0 else 'an'} integer of {value.bit_length():,} bits"
    try:
        text = repr(value)
    except ValueError:  # of the digits of an integer in it
        text = f"a {type(value).__name__}"
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"


def check_ids(ids: ArrayLike, count: int | None = None, *, distinct: bool = True) -> Ids:
    """Return ids as an array: integers of at least 0, one for each of `count` items.

    >>> check_ids([5, 3], count=2)
    array([5, 3])
    """
    array = np.atleast_1d(as_array(ids, "ids"))
    if array.size == 0:
        array = array.astype(np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InvalidInput(
            f"ids must be integers in 1 dimension, got {array.dtype} of shape {array.shape}: "
            "number your items, and keep names in a list beside the index"
        )
    if count is not None and len(array) != count:
        raise InvalidInput(f"there must be one id for each item, got {len(array)} ids for {count} items: give {count}")
    if array.size and (array.min() < 0 or array.max() > np.iinfo(np.int64).max):
        missing = array.min() == -1 and array.max() <= np.iinfo(np.int64).max
        remedy = (
            "leave out missing hits, as in ids[ids >= 0]"
            if missing
            else ("clear the highest bit of hashes, as in ids & (2**63 - 1)")
        )
        raise InvalidInput(
            f"ids must be from 0 to 2^63 - 1, as -1 marks missing hits, got {array.min()} to {array.max()}: {remedy}"
        )
    array = array.astype(np.int64)
    if distinct:
        ordered = np.sort(array)
        twice = ordered[1:][ordered[1:] == ordered[:-1]]
        if twice.size:
            raise InvalidInput(f"ids must be distinct, got {twice[0]} more than once: name each id once")
    return array


def next_ids(largest: int, count: int) -> Ids:
    """Return `count` ids that follow the largest one used so far.

    >>> next_ids(4, count=3)
    array([5, 6, 7])
    """
    if largest + count >= 2**63:
        raise InvalidInput(
            f"ids must be below 2^63, but {count} more would follow {largest}, the largest so far: give ids of your own"
        )
    return np.arange(count) + (largest + 1)  # not arange up to 2^63, which is no int64
