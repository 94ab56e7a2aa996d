"""Sections 4.2 and 4.4: adaptive regularization coefficients, and code invariance.

The paper, on a single coefficient: "the ratio of the magnitudes of the gradients of the reconstruction and the
regularization vanishes as a function of the index. Therefore, a single regularization term would not be appropriate for
nested dropout, since the regularization gradient would dominate the high-index gradients." The coefficients λ_k are
assigned "by fixing in advance the ratio between the magnitude of the reconstruction gradient and the regularization
gradient". On invariance: "We attain better retrieval results when we demand code invariance. That is, when we require
that similar examples map to similar codes."

Measured: gradients, weights and errors by unit with no, constant and adaptive L1 penalties; and the table of
`design.py`, fixed before it was run: sweeping, adaptive penalty and invariance, on and off, with paired intervals.
"""

from nestcode.reproduce.regularization.experiment import EXPERIMENT

__all__ = ["EXPERIMENT"]
