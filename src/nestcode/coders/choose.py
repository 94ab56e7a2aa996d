"""Which coder suits the data: the one whose codes leave less of rows it has not seen."""

import warnings
from collections.abc import Iterable, Iterator
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from nestcode.coders._rows import Sample, center, pieces, squares
from nestcode.coders.linear import LinearCoder
from nestcode.coders.residual import ResidualCoder
from nestcode.errors import InvalidInput

TRIAL_ROWS, TRIAL_NUMBERS, TRIAL_WIDTH = 100_000, 1 << 23, 128
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
    chosen = LinearCoder(width, metric, seed=seed), ResidualCoder(width, metric, seed=seed)  # settings are checked
    linear, residual = trial_errors(X, width, metric, seed)
    return chosen[int(residual < MARGIN * linear)].fit(X)


def trial_errors(
    X: ArrayLike | Iterable[ArrayLike], width: int, metric: Literal["l2", "cosine"], seed: int
) -> tuple[float, float]:
    """The error of rows held out, by the linear and by the residual coder."""
    rng = np.random.default_rng(seed)
    sample = Sample(rng, TRIAL_ROWS, TRIAL_NUMBERS * np.asarray(next(pieces(X))).itemsize)
    for part in pieces(X):
        sample.add(part)
    rows = sample.rows()
    unseen = rng.random(len(rows)) < 0.2
    if len(rows) < 50:
        return 0.0, 1.0  # too few to learn codebooks from
    coders = (
        LinearCoder(min(width, TRIAL_WIDTH), metric, seed=seed),
        ResidualCoder(min(width, TRIAL_WIDTH), metric, beams=1, seed=seed),
    )
    true = center(rows[unseen], np.zeros(rows.shape[1]), normalize=metric == "cosine")
    errors = []
    for coder in coders:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of useless bits: the real fit will say so
            coder.fit(rows[~unseen])
        errors.append(float(squares(true - coder.decode(coder.encode(rows[unseen]))).mean()))
    return errors[0], errors[1]
