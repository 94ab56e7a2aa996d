"""Section 7: k-nearest-neighbor classification on very long codes, in logarithmic time.

The paper: "it allows performing k-nearest-neighbors on very long codes in logarithmic time in their cardinality." "The
purely unsupervised approaches we have described here have not been empirically competitive with state of the art
supervised methods from deep learning. We are optimistic that nested dropout can be meaningfully combined with
supervised learning, but leave that for future work."

Measured: accuracy and time of k-NN by exhaustive scan, by index search and by one neighborhood of the prefix tree, for
supervised and unsupervised codes of 8 to 1,024 bits.
"""

from nestcode.reproduce.knn.experiment import EXPERIMENT

__all__ = ["EXPERIMENT"]
