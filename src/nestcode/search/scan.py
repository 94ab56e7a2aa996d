"""Scan: every query against every allowed item, exact.

The core scans vectors, codes of bit planes or codebooks, and Hamming distances (`cpp/nestcode/scan.hpp`,
`code_scan.hpp`). It estimates distances in float32 and decides in float64. This module fetches rows that the core
cannot read, a block at a time: vectors that the caller gives as a mapping, a function or in another dtype, and codes
that only their coder decodes.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestcode import _core
from nestcode.arrays import FLOAT32_MAX, Floats, Ids
from nestcode.errors import InvalidInput
from nestcode.search.hits import Hits
from nestcode.search.request import Request
from nestcode.search.selection import Selection
from nestcode.search.vectors import GivenVectors

ITEMS = 1 << 14  # fetched or decoded at once


def scan(selection: Selection, request: Request, k: int) -> Hits:
    """Return the allowed items that are nearest to each query."""
    count, n = selection.count, len(request)
    shape = (k,) if request.single else (n, k)
    ids, distances = np.empty(shape, np.int64), np.empty(shape, np.float32)
    ids.fill(-1)
    distances.fill(np.inf)
    if not count or not n:
        request.check()
    elif request.by_codes:
        packed = request.packed(selection.prepared.snapshot.width)
        for known, codes in selection.items():
            _core.scan_hamming(packed, codes.packed, known, distances.reshape(n, k), ids.reshape(n, k), request.threads)
    elif not _scan_rows(selection, request, distances, ids):
        request.check()
        raise out_of_range()
    return Hits(ids, distances, count if request.single else np.full(n, count))


def _scan_rows(selection: Selection, request: Request, distances: Floats, ids: Ids) -> bool:
    """Add all items to hits; return whether distances fit float32, False for queries that are not finite, too."""
    prepared, rows = selection.prepared, request.given
    how = request.metric, distances, ids, request.threads
    if request.vectors is not None:
        blocks, fit = _given(selection, request.vectors), True
    else:
        vectors = prepared.scanned_vectors if request.rank == "exact" else prepared.decoded_vectors
        if vectors is not None:
            core, items = selection.scanned(vectors)
            try:
                return _core.scan(core, rows, items, selection.ids, *how)
            finally:
                vectors.check()
        codes = prepared.scanned_codes(request.metric)
        if codes is not None:
            return _core.scan(codes, rows, selection.positions, selection.ids, *how)
        blocks, fit = _decoded(selection), True
    for block, positions, known in blocks:
        fit &= _core.scan(block, rows, positions, known, *how)
    return fit


def _decoded(selection: Selection) -> Iterator[tuple[_core.VectorRuns, Ids, Ids]]:
    """Yield all decoded codes, the positions of vectors, and ids."""
    for ids, codes in selection.items():
        for first in range(0, len(ids), ITEMS):
            own = ids[first : first + ITEMS]
            decoded = selection.prepared.scorer.coder.decode(codes[first : first + ITEMS])
            yield _block(decoded), np.arange(len(own)), own


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


def out_of_range() -> InvalidInput:
    """Return the error of distances beyond float32."""
    return InvalidInput(
        f"distances and inner products must be below {FLOAT32_MAX:.2g}, the largest float32, but some exceed it: "
        "rescale the data and the queries"
    )
