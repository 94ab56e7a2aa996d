"""Distributions of the kept length: how many leading bits or units survive (p_B in the paper).

Nested dropout keeps a random prefix of a code; a stream's receivers have bandwidths. Both are a
distribution over lengths 1, 2, …, width, and the objective weighs what unit k adds by the survival
P(length ≥ k) (Eq. 5 of the paper).

A distribution is a small frozen object without a width; its methods take the width:

>>> lengths = Geometric(0.9)
>>> round(float(lengths.survival(100)[50]), 3)    # P(length ≥ 51), "≈ 0.005" in the paper
0.005
>>> f"{lengths.survival(100)[99]:.5f}"            # P(unit 100 is kept), "≈ 0.00003"
'0.00003'

A draw beyond the width keeps everything, as a receiver with more bandwidth than the stream gets all of it.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nestcode.arrays import MAX_SAMPLES, check_int, shown
from nestcode.errors import InvalidInput

MAX_WIDTH = 1 << 24  # bits of a code, each with a probability in memory


class Lengths(ABC):
    """A distribution over lengths 1, …, width. Subclasses are frozen dataclasses that define its survival function.

    >>> class First(Lengths):
    ...     '''The first unit only.'''
    ...     def _survival(self, k, width):
    ...         return (k == 1).astype(float)
    >>> First().pmf(4)
    array([1., 0., 0., 0.])
    """

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen: make a new one, and make subclasses frozen dataclasses")

    @abstractmethod
    def _survival(self, k: NDArray[np.int64], width: int) -> NDArray[np.float64]:
        """Return P(length ≥ k) for k in 1, …, width: 1 at k = 1, nonincreasing."""

    def _survival_beyond(self, first: int, k: NDArray[np.int64], width: int) -> NDArray[np.float64]:
        """Return P(length ≥ k | length > first) for k in first + 1, …, width."""
        survival = self._survival(np.append(first + 1, k), width)
        if survival[0] < np.finfo(np.float64).tiny:
            raise InvalidInput(
                f"lengths must go beyond the first {first} of {width}, got P(length > {first}) = {survival[0]} "
                f"for {self}: choose a distribution that does, for example LogUniform()"
            )
        given: NDArray[np.float64] = survival[1:] / survival[0]
        return given

    def survival(self, width: int) -> NDArray[np.float64]:
        """Return P(length ≥ k) for k = 1, …, width: the probability that unit k is kept, its weight in the objective.

        >>> Uniform().survival(4)
        array([1.  , 0.75, 0.5 , 0.25])
        """
        width = check_int(width, "width", least=1, most=MAX_WIDTH)
        return self._survival(np.arange(1, width + 1), width)

    def pmf(self, width: int) -> NDArray[np.float64]:
        """Return P(length = k) for k = 1, …, width.

        >>> Geometric(0.5).pmf(4)
        array([0.5  , 0.25 , 0.125, 0.125])
        """
        survival = self.survival(width)
        survival[:-1] -= survival[1:]
        return survival

    def mean(self, width: int) -> float:
        """Return the mean length.

        >>> Uniform().mean(4)
        2.5
        """
        return float(self.survival(width).sum())

    def covers(self, width: int) -> bool:
        """Return whether every length has support, the paper's condition for a strict order of the units.

        >>> Uniform().covers(8), Empirical([0, 0, 1]).covers(3)
        (True, False)
        """
        return bool(self._support(check_int(width, "width", least=1, most=MAX_WIDTH)).all())

    def _support(self, width: int) -> NDArray[np.bool_]:
        return self.pmf(width) > 0

    def sample(self, n: int, width: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return `n` random lengths.

        >>> Geometric(0.5).sample(8, width=4, rng=np.random.default_rng(0))
        array([2, 1, 1, 1, 3, 4, 2, 2])
        """
        n = check_int(n, "n", least=0, most=MAX_SAMPLES)
        if not isinstance(rng, np.random.Generator):
            raise InvalidInput(
                f"rng must be a numpy.random.Generator, got {rng!r}: np.random.default_rng(seed) makes one"
            )
        return 1 + np.searchsorted(self.cdf(width), rng.random(n), side="right")

    def cdf(self, width: int) -> NDArray[np.float64]:
        """Return P(length ≤ k) for k = 1, …, width (F_B in the paper), exactly 1 at the width.

        >>> Uniform().cdf(4)
        array([0.25, 0.5 , 0.75, 1.  ])
        """
        return np.append(1.0 - self.survival(width)[1:], 1.0)


@dataclass(frozen=True)
class Geometric(Lengths):
    """The geometric distribution P(length = k) = decay^(k−1) (1 − decay), the paper's choice; memoryless.

    >>> Geometric(0.97).mean(1024) # doctest: +ELLIPSIS
    33.33...

    Late units are hardly trained: at decay 0.97 unit 500 is kept in one draw of four million. Prefer `LogUniform`
    or `Uniform` unless you reproduce the paper.
    """

    decay: float

    def __post_init__(self) -> None:
        try:
            decay = float(self.decay)
        except (TypeError, ValueError, OverflowError):
            decay = float("nan")
        if not 0 < decay < 1:
            raise InvalidInput(
                f"decay must lie strictly between 0 and 1, got {shown(self.decay)}: 0.97 keeps 33 bits on average"
            )
        object.__setattr__(self, "decay", decay)

    def _survival(self, k: NDArray[np.int64], width: int) -> NDArray[np.float64]:  # noqa: ARG002
        return np.power(self.decay, k - 1)

    def _survival_beyond(self, first: int, k: NDArray[np.int64], width: int) -> NDArray[np.float64]:  # noqa: ARG002
        return np.power(self.decay, k - 1 - first)  # memoryless, exact even where both survivals underflow

    def _support(self, width: int) -> NDArray[np.bool_]:
        return np.ones(width, dtype=np.bool_)  # even where the probabilities underflow


@dataclass(frozen=True)
class Uniform(Lengths):
    """The uniform distribution: all lengths are equally likely.

    >>> Uniform().pmf(4)
    array([0.25, 0.25, 0.25, 0.25])
    """

    def _survival(self, k: NDArray[np.int64], width: int) -> NDArray[np.float64]:
        return (width + 1 - k) / width


@dataclass(frozen=True)
class LogUniform(Lengths):
    """The log-uniform distribution: all octaves are equally likely, P(length = k) ∝ log(1 + 1/k).

    >>> pmf = LogUniform().pmf(7)
    >>> [round(float(octave.sum()), 3) for octave in np.split(pmf, [1, 3])]   # 1, 2–3, 4–7
    [0.333, 0.333, 0.333]
    """

    def _survival(self, k: NDArray[np.int64], width: int) -> NDArray[np.float64]:
        survival: NDArray[np.float64] = 1.0 - np.log(k) / np.log(width + 1)
        return survival


@dataclass(frozen=True)
class Full(Lengths):
    """The whole width, always: the ordinary model without truncation.

    >>> Mixture([Full(), Uniform()], weights=[1, 3]).pmf(4)     # keep everything in one of four draws, or more
    array([0.1875, 0.1875, 0.1875, 0.4375])
    """

    def _survival(self, k: NDArray[np.int64], width: int) -> NDArray[np.float64]:  # noqa: ARG002
        return np.ones(len(k))


@dataclass(frozen=True)
class Empirical(Lengths):
    """A distribution with a weight for each of `lengths`, which default to 1, 2, ….

    >>> Empirical([1, 0, 3]).pmf(3)
    array([0.25, 0.  , 0.75])
    >>> Empirical([1, 3], lengths=[2, 4]).pmf(4)
    array([0.  , 0.25, 0.  , 0.75])

    Lengths beyond the width count as the width; a width beyond all lengths has no support there.
    """

    weights: Sequence[float]
    lengths: Sequence[int] | None = None

    def __post_init__(self) -> None:
        weights = _check_weights(self.weights)
        lengths = _check_lengths(range(1, len(weights) + 1) if self.lengths is None else self.lengths)
        if len(lengths) != len(weights) or len(np.unique(lengths)) != len(lengths):
            raise InvalidInput(f"lengths must be different, one for each of the {len(weights)} weights, got {lengths}")
        order = np.argsort(lengths)  # tuples, so that it is hashable
        object.__setattr__(self, "weights", tuple(weights[order].tolist()))
        object.__setattr__(self, "lengths", tuple(lengths[order].tolist()))

    @classmethod
    def from_samples(cls, observed: ArrayLike) -> Self:
        """Return the distribution of observed lengths, such as a log of the bits that receivers took.

        >>> Empirical.from_samples([8, 8, 16, 32])
        Empirical(weights=(2.0, 1.0, 1.0), lengths=(8, 16, 32))
        """
        lengths, counts = np.unique(_check_lengths(observed), return_counts=True)
        return cls(counts.tolist(), lengths.tolist())

    def _survival(self, k: NDArray[np.int64], width: int) -> NDArray[np.float64]:  # noqa: ARG002
        tail = np.cumsum(self.weights[::-1])[::-1]  # summed from the end: no cancellation, exact zeros
        return np.append(tail / tail[0], 0.0)[np.searchsorted(np.array(self.lengths), k)]

    def _support(self, width: int) -> NDArray[np.bool_]:
        kept = np.minimum(np.array(self.lengths)[np.array(self.weights) > 0], width)  # a longer draw keeps everything
        return np.isin(np.arange(1, width + 1), kept)


@dataclass(frozen=True)
class Mixture(Lengths):
    """A mixture of distributions with `weights`, equal by default.

    >>> Mixture([Geometric(0.5), Uniform()], weights=[1, 3]).pmf(2)
    array([0.5, 0.5])
    """

    components: Sequence[Lengths]
    weights: Sequence[float] | None = None

    def __post_init__(self) -> None:
        components = tuple(self.components) if isinstance(self.components, Sequence) else ()
        if not components or not all(isinstance(component, Lengths) for component in components):
            raise InvalidInput(f"components must be one or more distributions of lengths, got {self.components!r}")
        weights = _check_weights(np.ones(len(components)) if self.weights is None else self.weights)
        if len(weights) != len(components):
            raise InvalidInput(f"weights must be one for each of the {len(components)} components, got {len(weights)}")
        object.__setattr__(self, "components", components)
        object.__setattr__(self, "weights", tuple((weights / weights.sum()).tolist()))

    def _survival(self, k: NDArray[np.int64], width: int) -> NDArray[np.float64]:
        assert self.weights is not None
        parts = zip(self.weights, self.components, strict=True)  # no matrix product, which rounds a k by its place
        survival = np.sum([weight * component._survival(k, width) for weight, component in parts], axis=0)
        return np.where(k == 1, 1.0, survival)  # even where the weights sum to 1 only up to rounding

    def _support(self, width: int) -> NDArray[np.bool_]:
        assert self.weights is not None
        parts = zip(self.weights, self.components, strict=True)
        support = np.zeros(width, dtype=np.bool_)
        for weight, component in parts:
            support |= (weight > 0) & component._support(width)
        return support


@dataclass(frozen=True)
class Beyond(Lengths):
    """The distribution of `lengths` given that they exceed `first`, for training after the first units are frozen.

    >>> Beyond(Uniform(), first=2).pmf(4)
    array([0. , 0. , 0.5, 0.5])
    >>> Beyond(Geometric(0.5), first=5000).survival(5003)[-3:]    # exact: the geometric distribution is memoryless
    array([1.  , 0.5 , 0.25])

    A width of at most `first` keeps everything. A larger width raises an error if `lengths` never exceeds `first`.
    """

    lengths: Lengths
    first: int

    def __post_init__(self) -> None:
        if not isinstance(self.lengths, Lengths):
            raise InvalidInput(
                f"lengths must be a distribution of lengths, got {self.lengths!r}: for example Uniform()"
            )
        first = check_int(self.first, "first", least=0)
        if isinstance(self.lengths, Beyond):  # beyond both means beyond the larger
            first = max(first, self.lengths.first)
            object.__setattr__(self, "lengths", self.lengths.lengths)
        object.__setattr__(self, "first", first)

    def _survival(self, k: NDArray[np.int64], width: int) -> NDArray[np.float64]:
        if self.first >= width:
            return np.ones(len(k))
        return self.lengths._survival_beyond(self.first, np.maximum(k, self.first + 1), width)

    def _support(self, width: int) -> NDArray[np.bool_]:
        return self.lengths._support(width) & (np.arange(1, width + 1) > min(self.first, width - 1))


def _check_weights(weights: ArrayLike) -> NDArray[np.float64]:
    """Return weights as an array, or raise unless they are finite, not negative and not all 0."""
    try:
        array = np.asarray(weights, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InvalidInput(f"weights must be a list of numbers, got {shown(weights)}") from None
    if array.ndim != 1 or array.size == 0:
        raise InvalidInput(f"weights must be a list of at least one number, got an array of shape {array.shape}")
    with np.errstate(over="ignore"):
        total = array.sum()
    if not np.isfinite(total) or (array < 0).any() or total <= 0:
        raise InvalidInput(f"weights must be finite, also in sum, not negative and not all 0, got {array}")
    return array


def _check_lengths(lengths: ArrayLike) -> NDArray[np.int64]:
    """Return lengths as an array, or raise unless they are integers of at least 1."""
    array = np.asarray(lengths)
    if array.ndim != 1 or array.size == 0:
        raise InvalidInput(f"lengths must be a list of at least one, got an array of shape {array.shape}")
    if not np.issubdtype(array.dtype, np.integer):
        raise InvalidInput(f"lengths must be integers, got {array.dtype}: round them, as in x.astype(int)")
    if array.min() < 1 or array.max() >= 2**62:
        wrong = array.min() if array.min() < 1 else array.max()
        raise InvalidInput(f"lengths must be at least 1 and below 2^62, got {wrong}: drop receivers that take no bits")
    return array.astype(np.int64)
