"""The base of the PyTorch coders: training data, the estimator around a fitted model, networks in files.

    RefinedCoder, ImplicitCoder, AutoencoderCoder, SupervisedCoder ──fit──▶ a model: a network and its error by length

Each coder has its algorithm in the `model.py` of its package; this module gives the model the coders' protocol.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn

from nestcode.arrays import PIECE, Floats, as_array, as_floats, check_int, check_rows
from nestcode.coders.base import Coder, Metric, error_at
from nestcode.codes import Codes
from nestcode.errors import InvalidInput
from nestcode.nn.network import OrderedNetwork
from nestcode.storage import Arrays, Record
from nestcode.training.config import Training
from nestcode.training.data import Source, as_source
from nestcode.training.runtime.sampler import split_holdout

EVALUATED = 512  # held-out items that the error by length is measured on
VALUES = 1 << 25  # of the widest layer that are in memory at a time


class NetworkModel(Protocol):
    """The result of a fit."""

    @property
    def network(self) -> nn.Module:
        """The trained network."""

    @property
    def errors(self) -> NDArray[np.float64]:
        """Squared error of an item by length, (width + 1,)."""

    @property
    def normalize(self) -> bool:
        """Whether items are L2-normalized first (metric "cosine")."""

    @property
    def width(self) -> int:
        """Bits of a code."""

    @property
    def features(self) -> int:
        """Features of an item."""

    def encode(self, source: Source) -> NDArray[np.uint8]:
        """Return the packed bits of items, (n, bytes)."""

    def decode(self, codes: Codes) -> Floats:
        """Return the items that codes of any length decode to, (n, features)."""

    def to_record(self) -> tuple[dict[str, Any], Arrays]:
        """Return the settings and arrays of a file."""


Model = TypeVar("Model", bound=NetworkModel)
Network = TypeVar("Network", bound=nn.Module)
Base = TypeVar("Base", bound=Coder)


class NetworkCoder(Coder, Generic[Model]):
    """A coder whose fitted model holds a PyTorch network; subclasses train the model."""

    _model: Model | None = None
    _kind: str  # of its file: coders of earlier versions keep the kind they were saved as, and so their fingerprint
    _preset: str | None  # that it was fitted with

    def _set_model(self, model: Model, preset: str | None = None, kind: str | None = None) -> None:
        self._model, self._preset, self._kind = model, preset, type(self).__name__ if kind is None else kind

    def _fitted(self) -> Model:
        if self._model is None:
            raise self._not_fitted()
        return self._model

    def encode(self, X: ArrayLike) -> Codes:
        """Return the codes of items, (n, features) -> `width` bits each."""
        model = self._fitted()
        if isinstance(X, np.ndarray) and X.shape == (0, model.features):
            return Codes.unchecked(np.zeros((0, -(-model.width // 8)), dtype=np.uint8), model.width)
        source = rows_or_source(X)
        self._check_items(source)
        return Codes.unchecked(model.encode(source), model.width)

    def _check_items(self, source: Source) -> None:
        features = self._fitted().features
        if source.features != features:
            raise InvalidInput(
                f"data must have the {features} features the coder was fitted on, got {source.features}: "
                "fit a new coder or give the same features"
            )

    def decode(self, codes: Codes) -> Floats:
        """Return the items that codes of any length from 0 to `width` decode to, (n, features).

        Trailing bits that raise the error on held-out items are ignored, so the error never rises with the length.
        """
        model = self._fitted()
        self.check_codes(codes)
        return model.decode(codes)

    def expected_error(self, length: int) -> float:
        """Return the mean squared error of a feature at `length` bits, measured on held-out items."""
        model = self._fitted()
        return error_at(length, model.errors, model.features)

    @property
    def n_features_in_(self) -> int:
        """How many features the coder was fitted on."""
        return self._fitted().features

    @property
    def width_(self) -> int:
        """Bits of a code of the fitted coder."""
        return self._fitted().width

    @property
    def metric_(self) -> Metric:
        """The metric that the coder was fitted for."""
        return "cosine" if self._fitted().normalize else "l2"

    @property
    def network_(self) -> nn.Module:
        """The trained network."""
        return self._fitted().network

    @property
    def decoder_parameters(self) -> int:
        """How many parameters the network has."""
        return sum(one.numel() for one in self.network_.parameters())

    def to_record(self) -> Record:
        """Return the fitted coder as a record."""
        settings, arrays = self._fitted().to_record()
        settings = {"modules": False, **settings, "metric": self.metric_, "preset": self._preset}
        return Record(self._kind, self.VERSION, settings, dict(arrays))


# Training data


def rows_or_source(X: Any) -> Source:
    """Return data of any supported kind as a source; tables of rows are checked as other coders check them."""
    read = hasattr(X, "__array__") and not hasattr(X, "__getitem__")  # others may lie on disk, and are read by items
    if read or isinstance(X, np.ndarray) or hasattr(X, "to_numpy") or hasattr(X, "toarray"):
        array = as_array(X)
        X = check_rows(X) if array.ndim < 3 else array
    return as_source(X)


def training_rows(source: Source, training: Training) -> list[NDArray[Any]]:
    """Return the items that are not held out, in pieces."""
    train = split_holdout(len(source), training)[1]
    return [source.rows(train[first : first + PIECE]) for first in range(0, len(train), PIECE)]


def fitted_copy(base: Base, source: Source, training: Training) -> Base:
    """Return a copy of a base coder, fitted on the training items unless it is already fitted."""
    if not base.__sklearn_is_fitted__():
        return deepcopy(base).fit(training_rows(source, training))
    if base.n_features_in_ != source.features:
        raise InvalidInput(
            f"base was fitted on {base.n_features_in_} features, the data has {source.features}: "
            "fit base on this data, or give one that is not fitted"
        )
    return deepcopy(base)


def encode_bits(network: OrderedNetwork, source: Source, width: int, *, normalize: bool) -> NDArray[np.uint8]:
    """Return the packed bits of a network's units, (n, bytes) of `width` bits; bits beyond the network's are 0."""
    packed = np.zeros((len(source), -(-width // 8)), dtype=np.uint8)
    piece = piece_size(network, network.features)
    with torch.inference_mode():
        for first in range(0, len(source), piece):
            rows = source.rows(np.arange(first, min(first + piece, len(source))))
            floats = as_floats(rows, normalize=normalize).astype(np.float32, copy=False)
            units = network.encode(torch.from_numpy(floats).to(network.mean.device))
            bits = np.packbits((units > 0).cpu().numpy(), axis=1)
            packed[first : first + len(bits), : bits.shape[1]] = bits
    return packed


def piece_size(network: nn.Module, features: int) -> int:
    """Return how many items to pass through a network at a time; convolutions have outputs at every pixel."""
    widest = max(weight.shape[0] * (features if weight.ndim > 2 else 1) for weight in network.parameters())
    return min(PIECE, max(VALUES // widest, 1))


class UnitModel:
    """A model whose bits are those of an ordered network's units."""

    network: OrderedNetwork
    decode_at: NDArray[np.int64]  # (width + 1,): the length that codes of a length are decoded at
    normalize: bool

    @property
    def width(self) -> int:
        """Bits of a code."""
        return len(self.decode_at) - 1

    @property
    def features(self) -> int:
        """Features of an item."""
        return self.network.features

    def encode(self, source: Source) -> NDArray[np.uint8]:
        """Return the packed bits of items, (n, bytes)."""
        return encode_bits(self.network, source, self.width, normalize=self.normalize)


class NormalizedSource(Source):
    """A source whose items are L2-normalized."""

    def __init__(self, source: Source) -> None:
        self._source, self.features, self.resident = source, source.features, False

    def __len__(self) -> int:
        return len(self._source)

    def rows(self, indices: NDArray[np.int64]) -> NDArray[Any]:
        """Return the rows at these indices."""
        return as_floats(self._source.rows(indices), normalize=True)

    def whole(self) -> NDArray[Any]:
        """Return all rows."""
        return self.rows(np.arange(len(self)))


# Error by length


def best_lengths(errors: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return for each length the best length up to it, at which to decode.

    >>> best_lengths(np.array([4.0, 2.0, 3.0, 1.0]))
    array([0, 1, 1, 3])
    """
    least = np.minimum.accumulate(errors)
    return np.maximum.accumulate(np.where(errors <= least, np.arange(len(errors)), 0))


def evaluated_lengths(width: int) -> NDArray[np.int64]:
    """Return the lengths at which errors are measured: the first 64, then every eighth. The rest is interpolated.

    >>> evaluated_lengths(80)[-3:]
    array([64, 72, 80])
    """
    return np.array(sorted({*range(min(64, width) + 1), *range(64, width, 8), width}))


# Checks


def check_instance(value: object, kind: type | tuple[type, ...], name: str) -> None:
    """Raise unless a setting is None or of its class."""
    kinds = kind if isinstance(kind, tuple) else (kind,)
    if value is not None and not isinstance(value, kinds):
        raise InvalidInput(f"{name} must be {' or '.join(f'{each.__name__}(…)' for each in kinds)}, got {value!r}")


def check_adam(training: Training, coder: str) -> None:
    """Raise if settings name a technique that acts on an autoencoder's code."""
    weights = training.invariance.weight, training.contrastive.weight
    if training.optimizer != "adam" or any((training.penalty, *weights, training.sweep, training.growth)):
        raise InvalidInput(
            f"{coder} is trained by Adam, and its bits are not: leave out optimizer, penalty, invariance, "
            "contrastive, sweep and growth, or train an AutoencoderCoder"
        )


def check_sizes(sizes: object, name: str) -> None:
    """Raise unless these are positive integers, or None."""
    if sizes is not None and (not isinstance(sizes, Sequence) or isinstance(sizes, str)):
        raise InvalidInput(f"{name} must be a sequence of integers, as in (256, 128), got {sizes!r}")
    for size in sizes or ():
        check_int(size, name, least=1)


# Networks in files


def weights_of(network: nn.Module) -> Arrays:
    """Return a network's parameters and buffers for a file."""
    return {name: tensor.cpu().numpy() for name, tensor in network.state_dict().items()}


def load_network(build: Callable[[], Network], arrays: Arrays, *, modules: bool = False) -> Network:
    """Return the network that `build` makes with the weights that `weights_of` gave, also if stored as float16.

    If the file's weights have other names or shapes, the network is never allocated. With `modules` parts of it are the
    user's, and so is their size.
    """
    if not modules:
        _check_shapes(build, arrays)
    network = build()
    known = network.state_dict()
    tensors = {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}
    same = {name: tensor.to(known[name].dtype) if name in known else tensor for name, tensor in tensors.items()}
    if any(not tensor.isfinite().all() for tensor in same.values()):
        raise ValueError("its weights are not finite")
    try:
        network.load_state_dict(same)
    except RuntimeError as error:  # the user's modules have other weights
        raise ValueError(str(error)) from error
    return network.eval()


def _check_shapes(build: Callable[[], nn.Module], arrays: Arrays) -> None:
    """Raise unless arrays are the weights of the network that `build` makes; here it is built without memory."""
    with torch.device("meta"):
        shapes = {name: tuple(tensor.shape) or (1,) for name, tensor in build().state_dict().items()}
    for name in sorted(shapes.keys() | arrays.keys()):
        held = arrays[name].shape if name in arrays else None
        if held != shapes.get(name):
            raise ValueError(f"its {name} has shape {held}, its network {shapes.get(name)}")


def check_errors(errors: NDArray[Any], lengths: NDArray[Any], width: int) -> None:
    """Raise unless the errors and decoding lengths of a file are consistent."""
    if errors.shape != (width + 1,) or lengths.shape != errors.shape:
        raise ValueError(f"its errors have shape {errors.shape}, expected {(width + 1,)}")
    if not np.isfinite(errors).all() or (lengths > np.arange(len(lengths))).any() or (lengths < 0).any():
        raise ValueError("its errors or useful lengths are out of range")


def check_record_sizes(record: Record) -> None:
    """Raise if the settings name sizes beyond the values a file holds, or more layers than arrays."""
    held = sum(array.size for array in record.arrays.values())
    claimed = [value for name, value in record.settings.items() if name != "training"]
    while claimed:
        value = claimed.pop()
        if isinstance(value, dict | list):
            claimed += value.values() if isinstance(value, dict) else value
        elif isinstance(value, int) and abs(value) > held:
            raise ValueError(f"its settings have a size of {value}, its arrays {held} values")
    named = [record.settings.get(name, []) for name in ("layers", "blocks")]
    named.append(record.settings.get("refiner", {}).get("channels", []))
    if sum(map(len, named)) > len(record.arrays):
        raise ValueError(f"its settings name {sum(map(len, named))} layers, it has {len(record.arrays)} arrays")
