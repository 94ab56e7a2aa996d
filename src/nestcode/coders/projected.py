"""The base of LinearCoder, ResidualCoder, CellCoder and AdaptiveCoder, whose codes decode in principal directions.

    X ──center──▶ project ──▶ coefficients ──model.encode──▶ Codes ──model.decode──▶ coefficients ──▶ X̂
 (n, features)              (n, directions)                                       (n, directions)

A coder is an estimator with settings (`coder.py` of its package) and, once fitted, a model that never changes
(`model.py`). The model keeps the settings of its fit: changing the estimator's settings changes nothing until the next
fit.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nestcode.arrays import CORES, PIECE, Bytes, Doubles, Floats, check_int, check_rows, multiply, pieces, project
from nestcode.coders.base import Coder, Layout, Metric, Projection, Selection, error_at, warn_of_unallocated_bits
from nestcode.codes import Codes, thread_count
from nestcode.errors import InvalidInput
from nestcode.storage import Arrays, Record


@dataclass(frozen=True, eq=False)
class ProjectedModel(ABC):
    """The fitted part of a coder; subclasses quantize coefficients."""

    settings: dict[str, Any]  # the estimator's, when it was fitted
    mean: Doubles  # (features,)
    directions: Floats  # (directions, features): orthonormal rows
    errors: Doubles  # (width + 1,): the mean squared error of a row at every length

    @classmethod
    @abstractmethod
    def train(cls, parts: Iterable[NDArray[Any]], settings: dict[str, Any]) -> Self:
        """Return a model trained on rows that come in pieces."""

    @abstractmethod
    def encode(self, coefficients: Floats, packed: Bytes) -> None:
        """Write the codes of coefficients, (n, directions), into packed rows; coefficients may be overwritten."""

    @abstractmethod
    def decode(self, codes: Codes, threads: int) -> Floats:
        """Return the coefficients that codes of any length decode to, (n, directions)."""

    @abstractmethod
    def layout(self, length: int) -> Layout:
        """Return how the first `length` bits of a code decode."""

    @abstractmethod
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the model's arrays under their names on disk."""

    @classmethod
    @abstractmethod
    def from_arrays(cls, settings: dict[str, Any], arrays: Arrays) -> Self:
        """Return the model of checked settings and unchecked arrays, or raise ValueError."""

    @property
    def width(self) -> int:
        """Bits of a code."""
        return len(self.errors) - 1

    @property
    def normalize(self) -> bool:
        """Whether items are L2-normalized first."""
        return bool(self.settings["metric"] == "cosine")

    @property
    def useful_bits(self) -> int:
        """Bits that lower the error; later ones are unallocated."""
        return self.width

    def used_directions(self, length: int) -> int:  # noqa: ARG002
        """Return how many leading directions may have coefficients other than 0 at this length."""
        return len(self.directions)


Model = TypeVar("Model", bound=ProjectedModel, covariant=True)  # so that different coders make a typed list


class ProjectedCoder(Coder, Generic[Model]):
    """A coder with a `ProjectedModel`. Subclasses name the model and check their settings."""

    MODEL: type[Model]
    KIND: str  # of the record on disk
    metric: Metric
    _model: Model | None = None

    def fit(self, X: ArrayLike | Iterable[ArrayLike], y: object = None) -> Self:  # noqa: ARG002
        """Fit the coder to data, (n, features): an array, a memory map, or an iterable of arrays larger than memory."""
        model = self.MODEL.train(pieces(X), self._plain_settings())
        if not all(np.isfinite(array).all() for array in model.arrays().values()):
            raise InvalidInput(
                f"{type(self).__name__} overflows float32 in training: rescale the data, or clip outliers"
            )
        self._model, self.selection_ = model, None
        if model.useful_bits < model.width:
            left = model.errors[-1] / model.errors[0] if model.errors[0] > 0 else 0.0
            warn_of_unallocated_bits(model.useful_bits, model.width, float(left))
        self._store_columns(X)
        return self

    def encode(self, X: ArrayLike) -> Codes:
        """Return the codes of items: (n, features) -> n codes of `width_` bits."""
        model = self._fitted()
        rows = check_rows(X, features=len(model.mean))
        packed = np.empty((len(rows), -(-model.width // 8)), dtype=np.uint8)
        for first in range(0, len(rows), PIECE):
            model.encode(self._project(rows[first : first + PIECE]), packed[first : first + PIECE])
        return Codes.unchecked(packed, model.width)

    def decode(self, codes: Codes) -> Floats:
        """Decode codes of any length to items, (n, features); length 0 decodes to the mean."""
        model, coefficients = self._fitted(), self.coefficients(codes)
        used = model.used_directions(codes.width)
        out = multiply(coefficients[:, :used], model.directions[:used])
        out += model.mean.astype(np.float32)
        return out

    def expected_error(self, length: int) -> float:
        """Return the mean squared error of a feature at `length` bits, as `fit` measured it on rows of its data."""
        model = self._fitted()
        return error_at(length, model.errors, len(model.mean))

    @property
    def n_features_in_(self) -> int:
        """The number of features the coder was fitted on."""
        return len(self._fitted().mean)

    @property
    def width_(self) -> int:
        """Bits of a code of the fitted coder."""
        return self._fitted().width

    @property
    def metric_(self) -> Metric:
        """The metric the coder was fitted for."""
        return "cosine" if self._fitted().normalize else "l2"

    def projection(self) -> Projection:
        """Return the principal directions around the mean."""
        model = self._fitted()
        return Projection(model.mean, model.directions)

    def layout(self, length: int) -> Layout:
        """Return how the first `length` bits of a code decode."""
        return self._fitted().layout(check_int(length, "length", least=0, most=self.width_))

    def coefficients(self, codes: Codes, threads: int = CORES) -> Floats:
        """Return the coefficients that codes of any length decode to, (n, directions)."""
        self.check_codes(codes)
        return self._fitted().decode(codes, thread_count(threads))

    def to_record(self) -> Record:
        """Return the fitted coder as a record."""
        model = self._fitted()
        notes = {} if self.selection_ is None else {"selection": vars(self.selection_)}
        return Record(self.KIND, self.VERSION, model.settings, model.arrays(), notes)

    @classmethod
    def _read(cls, record: Record) -> Self:
        coder = cls(**record.settings)
        model = cls.MODEL.from_arrays(coder._plain_settings(), record.arrays)
        if len(model.directions) > len(model.mean) or not len(model.mean):
            raise ValueError(f"it has {len(model.directions)} directions for {len(model.mean)} features")
        coder._model = model
        coder.selection_ = Selection.from_notes(record.notes)
        return coder

    def _plain_settings(self) -> dict[str, Any]:
        """Return the settings as JSON has them: NumPy's integers become Python's."""
        settings = self.get_params(deep=False)
        return {
            name: value if value is None or isinstance(value, str) else operator.index(value)
            for name, value in settings.items()
        }

    def _fitted(self) -> Model:
        if self._model is None:
            raise self._not_fitted()
        return self._model

    def _project(self, X: ArrayLike) -> Floats:
        """Return checked rows as coefficients: (n, features) -> (n, directions)."""
        model = self._fitted()
        return project(X, model.mean, model.directions, normalize=model.normalize)
