"""Section 7: models with infinitely many latent dimensions.

The paper: "ordered representations provide insight into how one might practically train models with an infinite number
of latent dimensions, in the spirit of Bayesian nonparametric methods. For example, the distribution p_B can be chosen
to have infinite support, while having finite mean and variance."

Measured: moments of p_B; and networks that grow under geometric lengths until a new unit gains too little: the width
they reach, their errors beside networks of the same width trained at once, and whether old codes stay valid.
"""

from nestcode.reproduce.infinite.experiment import EXPERIMENT

__all__ = ["EXPERIMENT"]
