"""The protocol of coders: their methods, and the data that they provide to search.

    X ──fit──▶ coder          X ──encode──▶ Codes ──prefix──▶ Codes ──decode──▶ X̂
 (n, features)                          (n, width)         (n, length)     (n, features)

A coder also follows scikit-learn's protocol without depending on it (`estimator.py`): `transform` returns bits as
columns of 0 and 1, `inverse_transform` takes any number of leading columns.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nestcode.arrays import CORES, Doubles, Floats, check_int, check_seed
from nestcode.coders.estimator import Estimator
from nestcode.coders.scalar_quantizer import BitPlanes
from nestcode.codes import Codes
from nestcode.errors import InvalidInput, NotFitted
from nestcode.storage import Storable

Metric = Literal["l2", "cosine"]


@dataclass(frozen=True)
class Selection:
    """How `nestcode.fit` chose a coder: the score of each candidate, and why the winner won."""

    goal: str  # "search", "codes", "distortion" or "graph"
    measure: str  # what the scores are
    scores: dict[str, float]  # by candidate; empty where none were compared
    chosen: str
    reason: str

    @classmethod
    def from_notes(cls, notes: Mapping[str, Any]) -> Selection | None:
        """Return the selection in a record's notes, None if there is none; raise ValueError if it is malformed."""
        if "selection" not in notes:
            return None
        values = notes["selection"]
        names = [field.name for field in fields(cls)]
        if not isinstance(values, dict) or sorted(values) != sorted(names):
            raise ValueError(f"its selection must have {', '.join(names)}")
        scores = values["scores"]
        if not isinstance(scores, dict) or not all(isinstance(score, int | float) for score in scores.values()):
            raise ValueError("the scores of its selection must be numbers by candidate")
        if not all(isinstance(values[name], str) for name in names if name != "scores"):
            raise ValueError("its selection must describe the choice by strings")
        return cls(**values)

    def __str__(self) -> str:
        """Return the choice and its reason in one line."""
        return f"{self.chosen}: {self.reason}"


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
    planes: BitPlanes  # of the bits after the centroid's
    ordered: bool = True  # False: no bit of a plane tells more than another, so leading bits name no inverted lists

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

    base: Coder


Layout = ScalarLayout | CodebookLayout | BaseLayout
MOST_BITS = 1 << 20  # of a code
NOTHING = 1e-9  # of the variance: rounding errors


class Coder(Storable, Estimator):
    """An estimator that encodes items to codes of `width` bits and decodes any prefix of them (f and g in the paper).

    Subclasses take their settings as arguments of the constructor, store them under the same names, and implement
    `fit`, `encode`, `decode`, `expected_error`, `n_features_in_`, `width_`, `metric_`, `to_record` and `_read`. That is
    enough to search. Codes are searched faster if the coder also describes how they decode: `projection`, `layout`,
    `coefficients`.

    What was fitted is fixed: `width_` and `metric_` are facts of the last fit, and changing a setting changes nothing
    until the next one.

    >>> import numpy as np
    >>> from nestcode.coders import LinearCoder
    >>> X = np.random.default_rng(0).standard_normal((500, 4))
    >>> coder = LinearCoder(width=12).fit(X)
    >>> [round(float(np.mean((X - coder.decode(coder.encode(X).prefix(k))) ** 2)), 2) for k in (0, 4, 8, 12)]
    [1.0, 0.36, 0.12, 0.03]
    """

    width: int
    selection_: Selection | None = None  # set where `nestcode.fit` chose the coder

    @abstractmethod
    def fit(self, X: ArrayLike | Iterable[ArrayLike], y: object = None) -> Self:
        """Fit the coder to data, (n, features): an array, a memory map, or an iterable of arrays larger than memory."""

    @abstractmethod
    def encode(self, X: ArrayLike) -> Codes:
        """Return the codes of items: (n, features) -> n codes of `width_` bits."""

    @abstractmethod
    def decode(self, codes: Codes) -> NDArray[np.float32]:
        """Decode codes of any length to items, (n, features); length 0 decodes to the mean.

        To decode fewer bits, truncate the codes: `coder.decode(codes.prefix(64))`.
        """

    @abstractmethod
    def expected_error(self, length: int) -> float:
        """Return the mean squared error of a feature at `length` bits, measured by `fit`."""

    @property
    @abstractmethod
    def n_features_in_(self) -> int:
        """The number of features the coder was fitted on."""

    @property
    @abstractmethod
    def width_(self) -> int:
        """Bits of a code of the fitted coder."""

    @property
    @abstractmethod
    def metric_(self) -> Metric:
        """The metric the coder was fitted for; items of "cosine" are L2-normalized before encoding."""

    # what search/ builds its scorers from

    def projection(self) -> Projection | None:
        """Return the projection of `coefficients`; None if codes decode to features directly."""
        return None

    def layout(self, length: int) -> Layout | None:  # noqa: ARG002
        """Return how the first `length` bits of a code decode; None if only `decode` knows."""
        return None

    def coefficients(self, codes: Codes, threads: int = CORES) -> Floats:  # noqa: ARG002
        """Decode codes to coefficients of the projection, (n, directions), or to features without a projection."""
        return self.decode(codes)

    @property
    def decoder_parameters(self) -> int:
        """The approximate number of parameters of the decoding network; 0 without a network."""
        return 0

    # scikit-learn's protocol; the rest of it is in `estimator.py`

    def transform(self, X: ArrayLike) -> NDArray[np.uint8]:
        """Return the bits as integers 0 and 1, (n, width), or as a data frame after `set_output`."""
        if self.__sklearn_is_fitted__():
            self._check_columns(X)
        bits: NDArray[np.uint8] = self._framed(self.encode(X).bits().view(np.uint8), X)
        return bits

    def inverse_transform(self, bits: ArrayLike) -> NDArray[np.float32]:
        """Return the items that leading columns of bits decode to, (n, length) -> (n, features)."""
        return self.decode(Codes.from_bits(bits))

    def fit_transform(self, X: ArrayLike, y: object = None) -> NDArray[np.uint8]:
        """Fit the coder, and return the bits of the same data."""
        return self.fit(X, y).transform(X)

    def _count_out(self) -> int:
        return self.width_

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
    """Return the mean squared error of a feature at a length, given the errors of rows at every length."""
    if check_int(length, "length", least=0) >= len(errors):
        raise InvalidInput(f"length must be between 0 and the coder's width {len(errors) - 1}, got {length}")
    return float(errors[length] / features)


def warn_of_unallocated_bits(useful: int, width: int, left: float) -> None:
    """Warn the caller of `fit` that the data does not fill the code, and that a share of its variance is left."""
    advice = f"a coder of width {max(useful, 1)} does as well"
    if left > NOTHING:
        advice += (
            f", and {left:.2g} of the variance is left, because a direction takes at most 8 bits: a ResidualCoder or "
            "AdaptiveCoder has no such limit, and features of similar spread share the bits"
        )
    warnings.warn(
        f"the data fills {useful} of {width} bits; the other bits are unallocated and always 0: {advice}", stacklevel=3
    )


def check_settings(width: Any, metric: Any, seed: Any = 0) -> None:
    """Raise unless the settings that coders share are valid."""
    if check_int(width, "width", least=1) > MOST_BITS:
        raise InvalidInput(f"width must be at most {MOST_BITS} bits, got {width}: fit a narrower coder")
    check_seed(seed)
    if metric not in ("l2", "cosine"):
        raise InvalidInput(f'metric must be "l2" or "cosine", got {metric!r}')


def check_beams(beams: Any, advice: str) -> None:
    """Raise unless beam search can keep this many partial encodings."""
    if check_int(beams, "beams", least=1) > 1024:
        raise InvalidInput(f"beams must be at most 1024, got {beams}: {advice}")
