"""Section 3 and appendix A: nested dropout recovers PCA exactly.

The paper: "Every optimal solution of the nested dropout problem is necessarily an optimal solution of the standard
autoencoder problem" (theorem 1) and has the form X = T Σ Rᵀ, Γ = Q T⁻¹ "for some matrix T that is commutative in its
truncation and inversion" (theorem 2). "Under the orthonormality constraint ΓᵀΓ = I, the nested dropout problem features
a unique global optimum, and this solution is exactly the set of the K top eigenvectors of the covariance of Y, ordered
by eigenvalue magnitude" (theorem 3). Section 4.1: "gradient magnitudes vanish as a function of representation unit
index."

Measured: cost, T and |cos| with the eigenvectors of trained semi-linear autoencoders on digits; gradients and
covariance of units under truncation; and how many eigenvectors of CIFAR-10 the solver recovers.
"""

from nestcode.reproduce.pca.experiment import EXPERIMENT

__all__ = ["EXPERIMENT"]
