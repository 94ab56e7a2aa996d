"""Section 5.1: retrieval takes time logarithmic in the database size and independent of the code length.

The paper: "Assuming marginals x_k ~ Bern(β) and neglecting dependence between the x_k, this results in expected
retrieval time O(log(N/R) / H(Bern(β)))." "This retrieval time is logarithmic in the database size N, and independent of
the representation space dimensionality K. If one wishes to retrieve a fixed fraction of the dataset, this renders the
retrieval complexity also independent of the dataset size." "We expect the cardinality of these [neighborhoods] to decay
approximately exponentially as a function of index."

Measured: the depth of queries in the prefix tree (bits walked) and their time, for random codes with independent bits
and for codes of images, by N, R, K and β; and the mean size of neighborhoods by length.
"""

from nestcode.reproduce.complexity.experiment import EXPERIMENT

__all__ = ["EXPERIMENT"]
