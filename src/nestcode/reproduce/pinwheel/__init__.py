"""Figure 2 and section 5.2: nested neighborhoods of a two-dimensional toy problem.

The paper: "we applied ordered retrieval to a toy problem where we trained a tiny 2-16-32-16-2 autoencoder on 2D
synthetic pinwheel data. Here we can visualize the nesting of neighborhood families for different queries. Note that, as
expected, the nested neighborhood boundaries are orthogonal to the direction of local variation of the data. This
follows from the model's reconstruction loss function."

Measured: the angle between the normal of a boundary, the gradient of the bit's pre-activation, and the tangent of the
arm, for the best of several trained networks and for untrained ones; that neighborhoods are nested; and the distance of
members to the query by depth.
"""

from nestcode.reproduce.pinwheel.experiment import EXPERIMENT

__all__ = ["EXPERIMENT"]
