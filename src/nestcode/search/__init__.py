"""Search: how codes are scored, and what one query does from call to answer.

    Index.search ──▶ request    what the caller wants, checked once                      request.py, filters.py
                 ──▶ selection  the items that may be found, of a prepared snapshot      selection.py, prepared.py
                 ──▶ plan       scan, lists or walk, and how much of it                  planner.py
                 ──▶ operators  of the core, over the bitmaps of the selection           execution.py
                                  scan    compares all items exactly, in two passes      scan.py
                                  lists   probes inverted lists; estimates by 4-bit fast-scan, ADC or Hamming distances
                                  walk    visits nodes of a graph; estimates by fast-scan
                 ──▶ rerank     the best estimates by vectors or whole codes; more while others may be nearer
                 ──▶ Hits       ids, distances, compared                                 hits.py

`Searcher` (searcher.py) walks this way for a snapshot (runs.py). What it computes of a run is kept with the run
(preparation.py). Where only their coder decodes codes, or the caller gives vectors, the core calls Python for the
distances of candidates. `Index.evaluate` and `Index.tune` measure recall (evaluation.py).

Scorers (scorer.py) are built from what a coder reports about its codes: `Coder.projection`, `Coder.layout` and
`Coder.coefficients`. This package knows coders, and no coder knows this package.
"""

from nestcode.search.adc import asymmetric_distances
from nestcode.search.filters import Filter
from nestcode.search.fusion import reciprocal_rank_fusion
from nestcode.search.hits import Evaluation, Hits, RangeHits
from nestcode.search.planner import Effort, Plan

__all__ = [
    "Effort",
    "Evaluation",
    "Filter",
    "Hits",
    "Plan",
    "RangeHits",
    "asymmetric_distances",
    "reciprocal_rank_fusion",
]
