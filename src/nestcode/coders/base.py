"""What every coder does.

    X ──fit──▶ coder          X ──encode──▶ Codes ──prefix──▶ Codes ──decode──▶ X̂
 (n, features)                          (n, width)         (n, length)     (n, features)

A coder also follows scikit-learn's protocol without depending on it: `transform` and `inverse_transform` speak of
bits as columns of 0 and 1.
"""

import warnings
from abc import abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nestcode.arrays import PIECE, Floats, as_floats, center, check_int, check_rows, squared_norms
from nestcode.coders.estimator import Estimator
from nestcode.codes import CORES, Codes
from nestcode.errors import InvalidInput, NotFitted
from nestcode.storage import Storable

if TYPE_CHECKING:
    from nestcode.search.sums import DecodedRanking


class Coder(Storable, Estimator):
    """Fits data, encodes items to codes of `width` bits, decodes any prefix back (f and g in the paper).

    Subclasses have their settings as keyword arguments of the constructor, stored under the same names, and implement
    `fit`, `encode`, `decode`, `expected_error` and the two ways to and from a `Record`.

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

    def _basis(self) -> tuple[NDArray[np.float64], Floats]:
        """The mean, and the directions that `_coefficients` are in, where decoding is linear in them."""
        raise NotImplementedError

    def _coefficients(self, codes: Codes, threads: int = CORES) -> Floats:
        """What codes decode to in those directions around the mean, (n, directions)."""
        raise NotImplementedError

    @abstractmethod
    def _ranking(self, width: int) -> "DecodedRanking":
        """How an index that keeps `width` bits ranks items."""

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

    def _check_length(self, codes: Codes, width: int) -> None:
        if not isinstance(codes, Codes):
            raise InvalidInput(f"expected Codes, got {type(codes).__name__}: encode(X) makes them")
        if codes.width > width:
            raise InvalidInput(
                f"codes must have at most the coder's width {width}, got {codes.width}: "
                "decode with the coder that made them"
            )

    def _decoded_distances(self, queries: ArrayLike, codes: Codes, *, normalize: bool) -> Floats:
        """Squared distances from raw queries to decoded codes, (queries, items); by angle if they are normalized."""
        rows = as_floats(check_rows(queries, self.n_features_in_), normalize=normalize).astype(np.float32)
        decoded = self.decode(codes)
        own, norms = squared_norms(rows)[:, None], squared_norms(decoded)
        distances = np.maximum(own + norms - 2.0 * (rows @ decoded.T), 0).astype(np.float32)
        return self._by_angle(queries, codes, distances) if normalize else distances

    def _by_angle(self, queries: ArrayLike, codes: Codes, distances: Floats) -> Floats:
        """What squared distances become when the decoded items are scaled to length 1."""
        parts = (squared_norms(self.decode(codes[first : first + PIECE])) for first in range(0, len(codes), PIECE))
        norms = np.concatenate([np.zeros(0), *parts])
        rows = check_rows(queries)
        own = squared_norms(center(rows, np.zeros(rows.shape[1]), normalize=True))[:, None]  # 1, or 0 for a zero
        products = (own + norms - distances) / 2
        cosines = np.divide(products, np.sqrt(norms), out=np.zeros(products.shape), where=norms > 0)
        return np.asarray(own + (norms > 0) - 2 * cosines, dtype=np.float32)

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
