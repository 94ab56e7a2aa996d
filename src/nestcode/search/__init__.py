"""Search: how codes are scored, and what one query does from call to answer.

    Index.search(queries, k)
      │
      ▼
    plan       check the queries, choose rank and metric                          plan.py
      ▼
    probe      inverted lists, nearest first, until they hold `candidates` items  inverted_lists.py
      ▼
    estimate   distances by part of the bits: 4-bit fast-scan, ADC lookup         fastscan.py, adc.py, hamming.py
      ▼        tables, or Hamming
    rerank     the best `rerank` by decoded codes, or by the vectors themselves   decoded.py, vectors.py
      ▼
    top-k      Hits: ids, distances, compared                                     hits.py

`Searcher` (searcher.py) runs these steps on a snapshot that was prepared once (prepared.py). Segments with a graph are
walked (graph.py) instead of probed and estimated. A budget that covers all items skips probing: it estimates everything
in float32, codes decoded or by lookup tables over all their bits (product_tables.py), and compares in float64 what is
close (exhaustive.py). Plain searches take all steps after the plan in one call of the core (row_search.py says which).
Rows that stay in files are requested in batches (read_ahead.py). `Index.evaluate` and `Index.tune` measure recall
(evaluation.py).

Scorers (scorer.py) are built from what a coder reports about its codes: `Coder.projection`, `Coder.layout` and
`Coder.coefficients`. This package knows coders, and no coder knows this package.
"""

from nestcode.search.adc import asymmetric_distances, cell_distances
from nestcode.search.hits import Evaluation, Hits, RangeHits
from nestcode.search.plan import Effort

__all__ = ["Effort", "Evaluation", "Hits", "RangeHits", "asymmetric_distances", "cell_distances"]
