"""Figure 3 and section 1: query time by code length, of linear scan, semantic hashing and ordered retrieval.

The paper: "we perform retrieval on a dataset of a million entries of code length 2048 in an average time of 200 µs per
query—15,000 times faster than a linear scan or semantic hashing." "Although semantic hashing is independent of the
database size, for a radius greater than 2 it requires more time than a brute force linear scan even for very short
codes. In addition, as the code length increases, it becomes very likely that many queries will not find any neighbors
for any feasible radii." "Each multiplicative variation in the terminal neighborhood size R, from 2 to 32 to 512, leads
to a constant shift downward on the logarithmic scale plot."

Measured: the time of one query by each method at widths from 16 to 2,048 bits, the share of empty Hamming balls, and,
which the paper leaves out, recall@10 of each method by the true neighbors of images.
"""

from nestcode.reproduce.speeds.experiment import EXPERIMENT

__all__ = ["EXPERIMENT"]
