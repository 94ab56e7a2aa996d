"""Chapter 5: an index searches patches of photographs, and shows what it found."""

import time

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from nestcode.coders import CellCoder
from nestcode.data import patches, photographs
from nestcode.demo._pictures import found_figure
from nestcode.index import Index
from nestcode.report import Page

SIDE, WIDTH, ITEMS, QUERIES, SHOWN = 16, 256, 30_000, 500, 10
EFFORTS = (0.005, 0.01, 0.02, 0.05, 0.1, 1.0)  # of all items that are looked at


def add_chapter(page: Page, *, console: Console) -> None:
    """Fit a coder, build an index, search it at several efforts."""
    with console.status(f"  an index of {ITEMS:,} patches"):
        items, queries = _patches()
        start = time.perf_counter()
        index = Index(CellCoder(WIDTH).fit(items))
        index.add(items)
        built = time.perf_counter() - start
        true = index.search(queries, SHOWN, candidates=ITEMS, vectors=items)
        rows = []
        for effort in EFFORTS:
            start = time.perf_counter()
            hits = index.search(queries, SHOWN, candidates=int(effort * ITEMS), rerank=400, vectors=items)
            seconds = (time.perf_counter() - start) / QUERIES
            found = np.mean(hits.distances <= 1.00001 * true.distances[:, -1:])
            rows.append([f"{100 * hits.compared.mean() / ITEMS:.1f} %", f"{found:.3f}", f"{1e6 * seconds:.0f}"])
    page.section(
        "Searching",
        f"{ITEMS:,} patches of {SIDE} x {SIDE} pixels became codes of {WIDTH} bits, in an index that took "
        f"{built:.1f} seconds to fit and build. A search looks at the items of the cells nearest to its query, ranks "
        "them by part of their bits, and the best 400 of them by the patches themselves.",
    )

    def images(rows: NDArray[np.float32]) -> NDArray[np.float32]:
        return rows.reshape(*rows.shape[:-1], SIDE, SIDE, 3)

    page.figure(
        "found",
        found_figure(list(zip(images(queries[:6]), images(items[hits.ids[:6]]), strict=True)), "found", 4, 0.1),
        f"Six patches, and the {SHOWN} nearest of the others.",
    )
    page.table(
        ["compared", "found", "µs a query"],
        rows,
        caption=f"The share of the {SHOWN} nearest that is found when part of the index is compared, over {QUERIES} "
        "queries that are not in it.",
    )


def _patches() -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Items and queries: the busier half of random patches, as all clear sky looks alike."""
    rng = np.random.default_rng(2)
    cut = patches(list(photographs().values()), size=SIDE, n=2 * (ITEMS + QUERIES), rng=rng)
    X = cut.reshape(len(cut), -1).astype(np.float32) / np.float32(255)
    contrast = cut.reshape(len(cut), -1, 3).var(axis=1).sum(axis=1)
    busy = rng.permutation(np.argsort(contrast)[ITEMS + QUERIES :])
    return X[busy[:ITEMS]], X[busy[ITEMS:]]
