"""What a deep coder needs beside its network: its input and its settings as JSON."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from nestcode import lengths
from nestcode.arrays import as_floats, check_int, check_rows
from nestcode.errors import InvalidInput
from nestcode.nn import nesting
from nestcode.storage import Arrays, Record
from nestcode.training.data import Source, as_source


def rows_or_source(X: Any) -> Source:
    """Anything that can be trained on; tables of rows are checked as other coders check them."""
    read = hasattr(X, "__array__") and not hasattr(X, "__getitem__")  # others may lie on disk, and are read by items
    if read or isinstance(X, np.ndarray) or hasattr(X, "to_numpy") or hasattr(X, "toarray"):
        array = np.asarray(X)
        X = check_rows(X) if array.ndim < 3 else array
    return as_source(X)


def check_shape(sizes: object, name: str) -> None:
    """Raise unless these are whole numbers, or None."""
    if sizes is not None and (not isinstance(sizes, Sequence) or isinstance(sizes, str) or not sizes):
        raise InvalidInput(f"{name} must be whole numbers, as in (3, 32, 32), got {sizes!r}")
    for size in sizes or ():
        check_int(size, name, least=1)


class NormalizedSource(Source):
    """Data with every item scaled to length 1."""

    def __init__(self, source: Source) -> None:
        self._source, self.features, self.resident = source, source.features, False

    def __len__(self) -> int:
        return len(self._source)

    def rows(self, indices: NDArray[np.int64]) -> NDArray[Any]:
        """Some of the rows."""
        return as_floats(self._source.rows(indices), normalize=True)

    def whole(self) -> NDArray[Any]:
        """All rows."""
        return self.rows(np.arange(len(self)))


def useful_lengths(errors: NDArray[np.float64]) -> NDArray[np.int64]:
    """For each length the one up to it that has the least error: what to decode at.

    >>> useful_lengths(np.array([4.0, 2.0, 3.0, 1.0]))
    array([0, 1, 1, 3])
    """
    least = np.minimum.accumulate(errors)
    return np.maximum.accumulate(np.where(errors <= least, np.arange(len(errors)), 0))


def some_lengths(width: int) -> NDArray[np.int64]:
    """Lengths that errors are measured at: the first 64, then every eighth.

    >>> some_lengths(80)[-3:]
    array([64, 72, 80])
    """
    return np.array(sorted({*range(min(64, width) + 1), *range(64, width, 8), width}))


def weights_of(network: nn.Module) -> Arrays:
    """A network's parameters for a file."""
    return {name: tensor.cpu().numpy() for name, tensor in network.state_dict().items()}


def load_weights(network: nn.Module, arrays: Arrays) -> None:
    """What `weights_of` gave; numbers may be stored with half the digits."""
    known = network.state_dict()
    tensors = {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}
    same = {name: tensor.to(known[name].dtype) if name in known else tensor for name, tensor in tensors.items()}
    if any(not tensor.isfinite().all() for tensor in same.values()):
        raise ValueError("its weights are not finite")
    try:
        network.load_state_dict(same)
    except RuntimeError as error:  # other names or shapes
        raise ValueError(str(error)) from error


def check_table(errors: NDArray[Any], useful: NDArray[Any], width: int) -> None:
    """Raise unless errors and lengths from a file can be those of a coder."""
    if errors.shape != (width + 1,) or useful.shape != errors.shape:
        raise ValueError(f"its errors have shape {errors.shape}, expected {(width + 1,)}")
    if not np.isfinite(errors).all() or (useful > np.arange(len(useful))).any() or (useful < 0).any():
        raise ValueError("its errors or useful lengths are out of range")


def lengths_to_json(given: object) -> dict[str, Any] | None:
    """A distribution of `nestcode.lengths`, or a nesting of `nestcode.nn`, by name; None for others.

    >>> lengths_to_json(lengths.Beyond(lengths.Geometric(0.5), 3))
    {'kind': 'Beyond', 'lengths': {'kind': 'Geometric', 'decay': 0.5}, 'first': 3}
    """
    if type(given) not in _kinds():
        return None
    values = {field.name: getattr(given, field.name) for field in fields(given) if field.init}  # type: ignore[arg-type]
    return {"kind": type(given).__name__, **{name: _plain(value) for name, value in values.items()}}


def _kinds() -> list[type]:
    """The distributions and nestings that come with Nestcode."""
    every = [*lengths.Lengths.__subclasses__(), *nesting.Nesting.__subclasses__()]
    return [kind for kind in every if kind.__module__ in (lengths.__name__, nesting.__name__)]


def _plain(value: Any) -> Any:
    if isinstance(value, lengths.Lengths):
        return lengths_to_json(value)
    return [_plain(part) for part in value] if isinstance(value, tuple) else value


def lengths_from_json(values: Any) -> Any:
    """What `lengths_to_json` gave."""
    if isinstance(values, list):
        return [lengths_from_json(value) for value in values]
    if not isinstance(values, dict):
        return values
    kinds: dict[str, Any] = {kind.__name__: kind for kind in _kinds()}
    return kinds[values["kind"]](**{name: lengths_from_json(part) for name, part in values.items() if name != "kind"})


def check_sizes(record: Record) -> None:
    """Raise if settings speak of layers with more numbers than a file holds: no network is made of them."""
    held = sum(array.size for array in record.arrays.values())
    said = [value for name, value in record.settings.items() if name != "training"]
    while said:
        value = said.pop()
        if isinstance(value, dict | list):
            said += value.values() if isinstance(value, dict) else value
        elif isinstance(value, int) and abs(value) > held:
            raise ValueError(f"its settings have a size of {value}, its arrays {held} numbers")
