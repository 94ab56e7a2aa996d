"""Exhaustive search: every query against every item, exact.

A search whose candidate budget covers all items is a scan. The core scans vectors, codes of bit planes or codebooks,
and Hamming distances (`cpp/nestcode/scan.hpp`, `code_scan.hpp`); it estimates in float32, and decides in float64. What
it cannot read is fetched here a block at a time: vectors that the caller gives as a mapping, a function or in another
dtype, and what codes decode to that only their coder decodes.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestcode import _core
from nestcode.arrays import Floats, Ids
from nestcode.search.decoded import DecodedScorer
from nestcode.search.request import Request
from nestcode.search.selection import Selection
from nestcode.search.vectors import GivenVectors

ITEMS = 1 << 14  # fetched or decoded at once


def scan(selection: Selection, request: Request, ids: Ids, distances: Floats) -> bool:
    """Write the nearest of all items that may be found to each query, (n, k), or to a single one, (k,).

    Return whether distances fit float32; it is False for queries that are not finite, too.
    """
    ids.fill(-1)
    distances.fill(np.inf)
    if not selection.count:
        return True
    prepared = selection.prepared
    if request.by_codes:
        assert request.codes is not None
        packed = request.packed(request.codes.width)
        for known, codes in selection.items():
            _core.scan_hamming(packed, codes.packed, known, distances, ids, request.threads)
        return True
    queries = request.row if ids.ndim == 1 else request.batch_given
    how = request.metric, distances, ids, request.threads
    if request.vectors is None:
        vectors = prepared.scanned_vectors if request.rank == "exact" else prepared.decoded_vectors
        if vectors is not None:
            core, items = selection.scanned(vectors)
            try:
                return _core.scan_vectors(core, queries, items, selection.ids, *how)
            finally:
                vectors.check()
        if prepared.code_scan is not None:
            return prepared.code_scan.search(queries, selection.positions, selection.ids, *how)
    blocks, fit = _decoded(selection) if request.vectors is None else _given(selection, request.vectors), True
    for block, positions, known in blocks:
        fit &= _core.scan_vectors(block, queries, positions, known, *how)
    return fit


def _decoded(selection: Selection) -> Iterator[tuple[_core.VectorRuns, Ids, Ids]]:
    """Yield what all codes decode to, the positions of vectors, and ids."""
    scorer = selection.prepared.scorer
    assert isinstance(scorer, DecodedScorer)
    for ids, codes in selection.items():
        for first in range(0, len(ids), ITEMS):
            own = ids[first : first + ITEMS]
            yield _block(scorer.coder.decode(codes[first : first + ITEMS])), np.arange(len(own)), own


def _given(selection: Selection, given: GivenVectors) -> Iterator[tuple[_core.VectorRuns, Ids, Ids]]:
    """Yield the vectors of all items, the positions of vectors, and ids."""
    ids = selection.sorted_ids
    core = given.direct(ids)
    if core is not None:
        yield core, ids, ids
        return
    for first in range(0, len(ids), ITEMS):
        own = ids[first : first + ITEMS]
        yield _block(given.rows(own)), np.arange(len(own)), own


def _block(rows: NDArray[Any]) -> _core.VectorRuns:
    fine = np.result_type(rows.dtype, np.float32) != np.float32
    return _core.VectorRuns(np.require(rows, np.float64 if fine else np.float32, ["C", "A"]))
