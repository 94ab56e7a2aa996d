"""Section 2.1: the objective as a weighted sum of marginal information gains.

The paper, with Δ_b the gain of unit b: "−C = Ĩ_1 + Σ_b [F_B(K) − F_B(b−1)] Δ_b" (equation 5). "Note that the
coefficients of the marginal mutual information are positive and monotonically decrease as a function of b regardless of
the choice of distribution p_B. This establishes the ordering property." "If for some b we have p_B(b) = 0, then the
ordering of representation dimensions b and b−1 no longer matters. If we set p_B(K) = 1, we recover the original
order-free autoencoder formulation." "Equation (5) informs us of how our prior choice of p_B dictates the optimal
information allocation per unit."

Measured: the identity itself, gains of trained semi-linear autoencoders under five distributions, and the cost of
swapping adjacent units.
"""

from nestcode.reproduce.information.experiment import EXPERIMENT

__all__ = ["EXPERIMENT"]
