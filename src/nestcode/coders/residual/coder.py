"""ResidualCoder: residual quantization of principal coefficients, encoded by beam search.

Successive refinement by whole vectors: each byte of a code chooses the codebook entry that refines the sum of the
entries before it. Where the spectrum is flat, as with most embeddings, 8 bits for a whole vector are worth more than 8
bits for single directions.
"""

from copy import copy
from dataclasses import replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from nestcode.arrays import Doubles, Floats
from nestcode.coders.base import Metric, check_beams, check_settings
from nestcode.coders.projected import ProjectedCoder
from nestcode.coders.residual.model import ResidualModel


class ResidualCoder(ProjectedCoder[ResidualModel]):
    """Residual quantization with nested codebooks: the highest recall per bit on embeddings, but slow to fit.

    Codebooks have 256 entries for each byte, so fit them on 10,000 rows or more. Fewer than 8,192 rows are joined by
    synthetic rows, which mix the coefficients of neighbors; the codes are then about as good as those of a
    `LinearCoder`. With 100 rows or more, `expected_error` is measured on held-out rows.

    Later codebooks suit small residuals. For rows far from all other rows, and for tight clusters that the first bytes
    miss, more bits therefore do not lower the error; use an `AdaptiveCoder`, which scales its entries to the residual.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((2000, 2)) @ rng.standard_normal((2, 16)) + 0.1 * rng.standard_normal((2000, 16))
    >>> coder = ResidualCoder(width=32).fit(X)
    >>> codes = coder.encode(X)
    >>> [round(float(np.mean((X - coder.decode(codes.prefix(k))) ** 2) / X.var()), 2) for k in (0, 4, 8, 16, 32)]
    [1.0, 0.11, 0.01, 0.0, 0.0]

    Args:
        width: bits of a code; every 8 of them choose one of 256 codebook entries.
        metric: "l2", or "cosine" to L2-normalize every item first and compare by angle.
        beams: the number of partial encodings that beam search keeps for each item; more beams give better codes and
            take longer.
        seed: the seed of the codebooks' training sample (at most 524,288 rows) and of their initialization.

    """

    MODEL, KIND = ResidualModel, "ResidualCoder"

    def __init__(self, width: int, metric: Metric = "l2", beams: int = 4, seed: int = 0) -> None:
        check_settings(width, metric, seed)
        check_beams(beams, "4 is good, 32 hardly better")
        self.width = width
        self.metric = metric
        self.beams = beams
        self.seed = seed

    @property
    def codebooks_(self) -> Floats:
        """The codebooks of the fitted coder, (bytes, 256, directions)."""
        return self._fitted().codebooks

    @property
    def counts_(self) -> NDArray[np.int64]:
        """How many training rows chose each codebook entry, (bytes, 256)."""
        return self._fitted().counts

    def with_codebooks(self, codebooks: Floats, counts: NDArray[np.int64], errors: Doubles) -> Self:
        """Return this fitted coder with other codebooks, whose squared error of an item by length is `errors`."""
        coder = copy(self)
        coder._model = replace(self._fitted(), codebooks=codebooks, counts=counts, errors=errors)
        return coder
