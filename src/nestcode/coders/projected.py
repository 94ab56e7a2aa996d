"""What coders share whose codes decode in principal directions around a mean."""

from typing import Generic, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from nestcode.arrays import Doubles, Floats, project
from nestcode.coders.base import Coder, Projection, error_at
from nestcode.codes import Codes


class Model(Protocol):
    """The part of a fit that they have in common."""

    @property
    def mean(self) -> Doubles:
        """Of shape (features,)."""

    @property
    def directions(self) -> Floats:
        """Of shape (directions, features)."""

    @property
    def errors(self) -> Doubles:
        """The mean squared error of a row by length, (width + 1,)."""

    @property
    def normalize(self) -> bool:
        """Whether items are scaled to length 1 first."""


Found = TypeVar("Found", bound=Model)


class DirectionsCoder(Coder, Generic[Found]):
    """A coder whose fit is one object; subclasses say what codes decode to in its directions."""

    _model: Found | None

    def decode(self, codes: Codes) -> Floats:
        """Codes of any length from 0 to `width` -> (n, features); length 0 gives the mean."""
        model = self._fitted()
        out: Floats = self.coefficients(codes) @ model.directions
        out += model.mean.astype(np.float32)
        return out

    def expected_error(self, length: int) -> float:
        """The mean squared error of a feature at `length` bits, as measured on a sample of the data."""
        model = self._fitted()
        return error_at(length, model.errors, len(model.mean))

    @property
    def n_features_in_(self) -> int:
        """How many features the coder was fitted on."""
        return len(self._fitted().mean)

    def _fitted(self) -> Found:
        if self._model is None:
            raise self._not_fitted()
        return self._model

    def _project(self, queries: ArrayLike) -> Floats:
        """Rows in principal directions around the mean, (n, directions)."""
        model = self._fitted()
        return project(queries, model.mean, model.directions, normalize=model.normalize)

    @property
    def width_(self) -> int:
        """Bits of a code, as fitted."""
        return len(self._fitted().errors) - 1

    @property
    def metric_(self) -> Literal["l2", "cosine"]:
        """The metric the coder was fitted for."""
        return "cosine" if self._fitted().normalize else "l2"

    def projection(self) -> Projection:
        """Return the principal directions around the mean."""
        model = self._fitted()
        return Projection(model.mean, model.directions)
