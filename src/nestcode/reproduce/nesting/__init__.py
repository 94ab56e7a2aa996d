"""Section 7: nestings other than the chain of prefixes.

The paper: "Finally, the nesting idea can be generalized to more complicated dependency structures."

Measured: autoencoders trained with groups of units and with a binary tree of subsets, beside the chain: the error of
every subset, the cost of swapping two units, and how the leaves of the tree specialize.
"""

from nestcode.reproduce.nesting.experiment import EXPERIMENT

__all__ = ["EXPERIMENT"]
