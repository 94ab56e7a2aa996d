"""How a search scores and walks: scorers, list probing, exhaustive search, the plan of a query."""

from nestcode.search.adc import asymmetric_distances, cell_distances
from nestcode.search.hits import Evaluation, Hits, RangeHits

__all__ = ["Evaluation", "Hits", "RangeHits", "asymmetric_distances", "cell_distances"]
