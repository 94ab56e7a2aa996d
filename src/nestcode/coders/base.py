"""What every coder does.

    X ──fit──▶ coder          X ──encode──▶ Codes ──prefix──▶ Codes ──decode──▶ X̂
 (n, features)                          (n, width)         (n, length)     (n, features)

A coder also follows scikit-learn's protocol without depending on it: `transform` and `inverse_transform` speak of
bits as columns of 0 and 1.
"""

import warnings
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nestcode.arrays import Doubles, Floats, check_int
from nestcode.coders.bit_planes import Planes
from nestcode.coders.estimator import Estimator
from nestcode.codes import CORES, Codes
from nestcode.errors import InvalidInput, NotFitted
from nestcode.storage import Storable


@dataclass(frozen=True, eq=False)
class Projection:
    """The affine projection x -> directions (x - mean), in which codes decode to coefficients."""

    mean: Doubles  # (features,)
    directions: Floats  # (directions, features): orthonormal rows


@dataclass(frozen=True, eq=False)
class ScalarLayout:
    """A coarse quantizer, then the scalar-quantized residual as ordered bit planes.

    The first log2(centroids) bits choose a centroid, each later bit refines one coefficient of the residual.
    """

    centroids: Floats  # (centroids, directions): a power of two of them; one of zeros without a coarse quantizer
    planes: Planes  # of the bits after the centroid's

    @property
    def centroid_bits(self) -> int:
        """Bits of a code that choose the centroid."""
        return len(self.centroids).bit_length() - 1


@dataclass(frozen=True, eq=False)
class CodebookLayout:
    """A residual quantizer: each byte of a code chooses a codebook entry, and coefficients are their sum."""

    codebooks: Floats  # (bytes, 256, directions)
    exact: bool = True  # False: entries depend on earlier bytes; these are typical ones of the first few bytes


@dataclass(frozen=True, eq=False)
class BaseLayout:
    """The code of another coder: its layout estimates distances, only this coder's `decode` has the exact ones."""

    base: "Coder"


Layout = ScalarLayout | CodebookLayout | BaseLayout


class Coder(Storable, Estimator):
    """Fits data, encodes items to codes of `width` bits, decodes any prefix back (f and g in the paper).

    Subclasses have their settings as keyword arguments of the constructor, stored under the same names, and implement
    `fit`, `encode`, `decode`, `expected_error`, `width_`, `metric_` and the two ways to and from a `Record`. That is
    enough to search; codes of a coder that also describes how they decode (`projection`, `layout`, `coefficients`) are
    searched faster.

    >>> import numpy as np
    >>> from nestcode.coders import LinearCoder
    >>> X = np.random.default_rng(0).standard_normal((500, 4))
    >>> coder = LinearCoder(width=12).fit(X)
    >>> [round(float(np.mean((X - coder.decode(coder.encode(X).prefix(k))) ** 2)), 2) for k in (0, 4, 8, 12)]
    [1.0, 0.36, 0.12, 0.03]
    """

    width: int

    @abstractmethod
    def fit(self, X: ArrayLike | Iterable[ArrayLike], y: object = None) -> Self:
        """Learn from data, (n, features): an array, a memory map, or an iterable of arrays larger than memory."""

    @abstractmethod
    def encode(self, X: ArrayLike) -> Codes:
        """(n, features) -> codes of `width` bits."""

    @abstractmethod
    def decode(self, codes: Codes) -> NDArray[np.float32]:
        """Codes of any length from 0 to `width` -> (n, features); length 0 gives the mean."""

    @abstractmethod
    def expected_error(self, length: int) -> float:
        """The mean squared error of a feature when `length` bits are kept, as measured in fitting."""

    @property
    @abstractmethod
    def n_features_in_(self) -> int:
        """How many features the coder was fitted on."""

    @property
    @abstractmethod
    def width_(self) -> int:
        """Bits of a code, as fitted: a setting that was changed since then waits for the next `fit`."""

    @property
    @abstractmethod
    def metric_(self) -> Literal["l2", "cosine"]:
        """The metric the coder was fitted for; items of "cosine" are L2-normalized before encoding."""

    # what search/ builds its scorers from

    def projection(self) -> Projection | None:
        """Return the projection that `coefficients` are in; None where codes decode to features directly."""
        return None

    def layout(self, length: int) -> Layout | None:  # noqa: ARG002
        """Return how the first `length` bits of a code decode; None where only `decode` can tell."""
        return None

    def coefficients(self, codes: Codes, threads: int = CORES) -> Floats:  # noqa: ARG002
        """Decode codes to coefficients of the projection, (n, directions); to features where there is none."""
        return self.decode(codes)

    # scikit-learn's protocol; the rest of it is in `_estimator.py`

    def transform(self, X: ArrayLike) -> NDArray[np.uint8]:
        """The bits as numbers 0 and 1, (n, width); as a data frame after `set_output`."""
        if self.__sklearn_is_fitted__():
            self._check_columns(X)
        bits: NDArray[np.uint8] = self._framed(self.encode(X).bits().view(np.uint8), X)
        return bits

    def inverse_transform(self, bits: ArrayLike) -> NDArray[np.float32]:
        """Decode any number of leading columns of bits."""
        return self.decode(Codes.from_bits(bits))

    def fit_transform(self, X: ArrayLike, y: object = None) -> NDArray[np.uint8]:
        """Fit, then transform the same data."""
        return self.fit(X, y).transform(X)

    def _count_out(self) -> int:
        return self.encode(np.empty((0, self.n_features_in_), dtype=np.float32)).width

    def check_codes(self, codes: Codes) -> None:
        """Raise unless these are codes of at most the fitted width."""
        if not isinstance(codes, Codes):
            raise InvalidInput(f"expected Codes, got {type(codes).__name__}: encode(X) makes them")
        if codes.width > self.width_:
            raise InvalidInput(
                f"codes must have at most the coder's width {self.width_}, got {codes.width}: "
                "decode with the coder that made them"
            )

    def _not_fitted(self) -> NotFitted:
        return NotFitted(f"this {type(self).__name__} is not fitted: call fit(X) first")


def error_at(length: int, errors: NDArray[np.float64], features: int) -> float:
    """The error of a feature at a length, given those of rows by length."""
    if check_int(length, "length", least=0) >= len(errors):
        raise InvalidInput(f"length must be between 0 and the coder's width {len(errors) - 1}, got {length}")
    return float(errors[length] / features)


def warn_of_useless_bits(useful: int, width: int) -> None:
    """Say once that the data does not fill the code."""
    warnings.warn(
        f"the data carries {useful} useful bits, the other {width - useful} of {width} are always 0: "
        f"a coder of width {max(useful, 1)} does as well",
        stacklevel=3,
    )
