"""Chapter 2: an index finds squares of photographs that look alike."""

import time
from collections.abc import Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from rich.console import Console

from nestcode.coders import CellCoder
from nestcode.data import sample_images
from nestcode.demo.widgets import lookup
from nestcode.index import Index
from nestcode.report import Page

TITLE = "Find what looks alike"
SHRINK = 3  # pixels of a photograph that become one
SIDE, STEP = 24, 12  # pixels of a photograph: a square, and from one query that can be pointed at to the next
WIDTH, SHOWN, NEAREST = 256, 9, 10
EFFORTS = (0.005, 0.01, 0.02, 0.05, 0.1, 1.0)  # of all items that are looked at
START = (0, 31, 21)  # the photograph, row and column that are shown at first

CODE = """
coder = nc.CellCoder(width=256).fit(squares)
index = nc.Index(coder)
index.add(squares)
hits = index.search(queries, k=10)  # hits.ids, hits.distances
"""

Rows = NDArray[np.float32]
Places = NDArray[np.int64]


def add_chapter(page: Page, *, console: Console) -> str:
    """Fit a coder, build an index, search it at several efforts, and look up every place of both photographs."""
    photos = list(sample_images().values())
    items, places = squares(photos)
    pointed = np.flatnonzero((places[:, 1:] % STEP == 0).all(axis=1))
    with console.status(f"  an index of {len(items):,} squares"):
        start = time.perf_counter()
        coder = CellCoder(WIDTH).fit(items)
        index = Index(coder)
        index.add(items)
        built = time.perf_counter() - start
        start = time.perf_counter()
        hits = index.search(items[pointed], k=500)
        seconds = (time.perf_counter() - start) / len(pointed)
    page.section(
        TITLE,
        f"Each square of {SIDE} x {SIDE} pixels in two photographs, shrunk to {SIDE // SHRINK} x {SIDE // SHRINK}, "
        f"became a code of {WIDTH // 8} bytes: {len(items):,} squares, {WIDTH // 8 * len(items) / 1e6:.1f} MB in place "
        f"of {items.size / 1e6:.1f}. Fitting the coder and building the index took {built:.1f} seconds here. Point "
        "at a place, or move with the arrow keys: the squares found for it light up, and stand below.",
    )
    found = [_apart(place, places[ids]) for place, ids in zip(places[pointed], hits.ids, strict=True)]
    rows, columns = places[pointed].max(axis=0)[1:] // STEP + 1
    page.html_block(
        lookup(
            "found", "Two photographs; squares that look like the one pointed at are framed", photos,
            np.array(found).reshape(len(photos), rows, columns, SHOWN + 1, 3), side=SIDE, step=STEP, start=START,
        )
    )  # fmt: skip
    page.text(
        f"These answers come from the codes alone. A search for 500 nearest took {1e3 * seconds:.1f} ms; of those that "
        "overlap, the nearest is shown."
    )
    page.code(CODE.strip())
    busy = pointed[items[pointed].var(axis=1).argsort()[len(pointed) // 2 :: 4]]  # all clear sky looks alike
    mirrored = items[busy].reshape(-1, SIDE // SHRINK, SIDE // SHRINK, 3)[:, :, ::-1]
    table = _by_effort(index, items, mirrored.reshape(len(mirrored), -1))
    page.table(
        ["compared", "found", "µs a query"],
        table,
        caption=f"The share of the {NEAREST} nearest that is found when part of the index is compared, and the best "
        f"400 are ranked again by their pixels; for {len(mirrored)} mirrored squares, which are not in it.",
    )
    compared, share, _ = table[3]
    return f"comparing {compared} of {len(items):,} squares finds {100 * float(share):.0f} % of the {NEAREST} nearest"


def squares(photos: Sequence[NDArray[np.uint8]]) -> tuple[Rows, Places]:
    """All squares, shrunk, as rows; and the photograph, y and x of each."""
    rows, places = [], []
    for number, photo in enumerate(photos):
        height, width = (size // SHRINK for size in photo.shape[:2])
        blocks = photo[: height * SHRINK, : width * SHRINK].reshape(height, SHRINK, width, SHRINK, 3)
        small = blocks.mean(axis=(1, 3), dtype=np.float32) / np.float32(255)
        windows: Rows = sliding_window_view(small, (SIDE // SHRINK, SIDE // SHRINK), axis=(0, 1))
        rows.append(windows.transpose(0, 1, 3, 4, 2).reshape(-1, 3 * (SIDE // SHRINK) ** 2))
        y, x = np.indices(windows.shape[:2]).reshape(2, -1) * SHRINK
        places.append(np.column_stack([np.full(len(x), number), y, x]))
    return np.concatenate(rows), np.concatenate(places)


def _apart(query: Places, found: Places) -> Places:
    """The query and the first that overlap neither it nor one another; where they are too few, the query again."""
    kept = [query]
    while len(kept) <= SHOWN:
        other = (found[:, 0] != kept[-1][0]) | (np.abs(found[:, 1:] - kept[-1][1:]).max(axis=1) >= SIDE)
        found = found[other]
        if not len(found):
            return np.array(kept + [query] * (SHOWN + 1 - len(kept)))
        kept.append(found[0])
    return np.array(kept)


def _by_effort(index: Index, items: Rows, queries: Rows) -> list[list[str]]:
    """Compared, found and microseconds, for each effort."""
    true = index.search(queries, NEAREST, candidates=len(items), vectors=items)
    rows = []
    for effort in EFFORTS:
        start = time.perf_counter()
        hits = index.search(queries, NEAREST, candidates=int(effort * len(items)), rerank=400, vectors=items)
        seconds = (time.perf_counter() - start) / len(queries)
        found = np.mean(hits.distances <= 1.00001 * true.distances[:, -1:])
        compared = 100 * hits.compared.mean() / len(items)
        rows.append([f"{compared:.1f} %", f"{found:.3f}", f"{1e6 * seconds:,.0f}"])
    return rows
