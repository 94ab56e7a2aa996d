"""Figure 4 and section 5.2: nested neighborhoods of images become more similar to the query with every bit.

The paper: "Retrieval results for different terminal neighborhood cardinalities. Note the increase in retrieval fineness
as a function of neighborhood index. […] The last neighborhood contains only the query itself." "As we decrease the
terminal neighborhood size, the similarity of the retrieved data to the query increases. As more bits are added to the
representation in the process of retrieval, the resolution of the query increases, and thus it is better resolved from
similar images."

Measured: the distance of members to the query by terminal size R and by length, the length at which the query is the
only member, that neighborhoods are nested, and their recall, for the retrieval network and a LinearCoder.
"""

from nestcode.reproduce.neighborhoods.experiment import EXPERIMENT

__all__ = ["EXPERIMENT"]
