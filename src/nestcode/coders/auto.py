"""Which coder suits the data: the one whose codes leave less of rows it has not seen."""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from nestcode.arrays import center, pieces, squared_norms
from nestcode.coders.adaptive.coder import AdaptiveCoder
from nestcode.coders.linear.coder import LinearCoder
from nestcode.coders.residual.coder import ResidualCoder
from nestcode.coders.sampling import Reservoir
from nestcode.errors import InvalidInput

TRIAL_ROWS, TRIAL_NUMBERS, TRIAL_WIDTH = 100_000, 1 << 23, 128
Choice = LinearCoder | ResidualCoder | AdaptiveCoder
MARGIN = 0.95  # the residual coder takes a hundred times as long, so it must be better by a twentieth


def fit(
    X: ArrayLike | Iterable[ArrayLike], width: int, metric: Literal["l2", "cosine"] = "l2", seed: int = 0
) -> LinearCoder | ResidualCoder:
    """Fit the better of the coders that need no PyTorch.

    >>> import nestcode as nc
    >>> X, _ = nc.data.digits()
    >>> nc.fit(X, width=64)
    ResidualCoder(width=64, metric='l2', beams=4, seed=0)

    Both are tried on a sample, at no more than 128 bits, and judged by the squared error of rows held out of it.
    Photographs mostly get a `LinearCoder`, embeddings a `ResidualCoder`.

    Args:
        X: (n, features): an array, a memory map, or a list of arrays.
        width: bits of a code.
        metric: "l2", or "cosine" to compare items by angle.
        seed: of all that is random.

    """
    if isinstance(X, Iterator):
        raise InvalidInput("fit reads the data more than once, and an iterator ends: give an array or a list of arrays")
    linear, residual = LinearCoder(width, metric, seed=seed), ResidualCoder(width, metric, seed=seed)
    return (linear, residual)[better(X, (linear, residual), MARGIN)].fit(X)


def better(X: ArrayLike | Iterable[ArrayLike], coders: Sequence[Choice], margin: float = 1.0) -> int:
    """Which coder leaves least of rows held out of a sample; later ones must be better by the margin."""
    errors = trial_errors(X, coders)
    best = 0
    for other in range(1, len(coders)):
        if errors[other] < margin * errors[best]:
            best = other
    return best


def trial_errors(X: ArrayLike | Iterable[ArrayLike], coders: Sequence[Choice]) -> list[float]:
    """The error of rows held out, by coders like these that are quick to fit."""
    metric, seed = coders[0].metric, coders[0].seed
    rng = np.random.default_rng(seed)
    sample = Reservoir(rng, TRIAL_ROWS, TRIAL_NUMBERS * np.asarray(next(pieces(X))).itemsize)
    for part in pieces(X):
        sample.add(part)
    rows = sample.rows()
    unseen = rng.random(len(rows)) < 0.2
    if len(rows) < 50:
        return [float(place) for place in range(len(coders))]  # too few to learn codebooks from
    true = center(rows[unseen], np.zeros(rows.shape[1]), normalize=metric == "cosine")
    errors = []
    for coder in coders:
        quick = {"beams": 1} if hasattr(coder, "beams") else {}
        trial = type(coder)(min(coder.width, TRIAL_WIDTH), metric, seed=seed, **quick)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of useless bits: the real fit will say so
            trial.fit(rows[~unseen])
        errors.append(float(squared_norms(true - trial.decode(trial.encode(rows[unseen]))).mean()))
    return errors
