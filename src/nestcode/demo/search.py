"""Chapter 2: an index finds similar patches of images."""

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from rich.console import Console

from nestcode.arrays import Bytes, Floats, Ids
from nestcode.coders import CellCoder
from nestcode.data import sample_images
from nestcode.demo.widgets import lookup
from nestcode.index import Index
from nestcode.report import Page
from nestcode.storage import naming_file

TITLE = "Search similar patches"
SHRINK = 3  # image pixels per patch pixel
SIDE, STEP = 24, 12  # image pixels: side of a patch, and distance of the queries that can be pointed at
WIDTH, SHOWN, NEAREST = 256, 9, 10
BUDGETS = (0.005, 0.01, 0.02, 0.05, 0.1, 1.0)  # candidates, as a share of all items
START = (0, 31, 21)  # image, row and column of the query shown first

CODE = """
coder = nc.CellCoder(width=256).fit(patches)
index = nc.Index(coder)
index.add(patches)
hits = index.search(queries, k=10)  # hits.ids, hits.distances
"""


def add_chapter(page: Page, *, folder: Path, console: Console) -> str:
    """Fit a coder, build an index, and search it with several candidate budgets and for every place of both images.

    The index and its patches are saved to the folder, for the explorer of `nestcode serve`.
    """
    images = list(sample_images().values())
    items, places = all_patches(images)
    pointed = np.flatnonzero((places[:, 1:] % STEP == 0).all(axis=1))
    with console.status(f"  indexing {len(items):,} patches"):
        start = time.perf_counter()
        coder = CellCoder(WIDTH).fit(items)
        index = Index(coder)
        index.add(items)
        built = time.perf_counter() - start
        index.save(folder / "patches.index")
        side = SIDE // SHRINK
        pixels = np.rint(255 * items).astype(np.uint8).reshape(-1, side, side, 3)
        with naming_file(folder / "patches.npy"):
            np.save(folder / "patches.npy", pixels)
        start = time.perf_counter()
        hits = index.search(items[pointed], k=500)
        seconds = (time.perf_counter() - start) / len(pointed)
    page.section(
        TITLE,
        f"Each patch of {SIDE} x {SIDE} pixels in two images, downsampled to {SIDE // SHRINK} x {SIDE // SHRINK}, "
        f"becomes a code of {WIDTH // 8} bytes: {len(items):,} patches in {WIDTH // 8 * len(items) / 1e6:.1f} MB "
        f"instead of {items.size / 1e6:.1f} MB. Fitting the coder and building the index took {built:.1f} s. Point at "
        "a place, or move with the arrow keys: the patches found are framed, and shown below.",
    )
    found = [without_overlap(place, places[ids]) for place, ids in zip(places[pointed], hits.ids, strict=True)]
    rows, columns = places[pointed].max(axis=0)[1:] // STEP + 1
    page.html_block(
        lookup(
            "found", "Two images; the patches most similar to the one pointed at are framed", images,
            np.array(found).reshape(len(images), rows, columns, SHOWN + 1, 3), side=SIDE, step=STEP, start=START,
        )
    )  # fmt: skip
    page.text(
        f"These results are ranked by codes alone. A search for the 500 nearest took {1e3 * seconds:.1f} ms; of "
        "patches that overlap, the nearest is shown."
    )
    page.code(CODE.strip())
    textured = pointed[items[pointed].var(axis=1).argsort()[len(pointed) // 2 :: 4]]  # clear sky has only ties
    mirrored = items[textured].reshape(-1, SIDE // SHRINK, SIDE // SHRINK, 3)[:, :, ::-1]
    table = recall_by_budget(index, items, mirrored.reshape(len(mirrored), -1))
    page.table(
        ["items scored", f"recall@{NEAREST}", "µs per query"],
        table,
        caption=f"Recall by candidate budget, with the best 400 candidates reranked by their pixels; the queries are "
        f"{len(mirrored)} mirrored patches, which are not in the index.",
    )
    scored, recall, _ = table[3]
    return f"recall@{NEAREST} {recall} with {scored} of {len(items):,} patches scored"


def all_patches(images: Sequence[Bytes]) -> tuple[Floats, Ids]:
    """Return all patches, downsampled, as rows; and the image, y and x of each."""
    rows, places = [], []
    for number, image in enumerate(images):
        height, width = (size // SHRINK for size in image.shape[:2])
        blocks = image[: height * SHRINK, : width * SHRINK].reshape(height, SHRINK, width, SHRINK, 3)
        small = blocks.mean(axis=(1, 3), dtype=np.float32) / np.float32(255)
        windows: Floats = sliding_window_view(small, (SIDE // SHRINK, SIDE // SHRINK), axis=(0, 1))
        rows.append(windows.transpose(0, 1, 3, 4, 2).reshape(-1, 3 * (SIDE // SHRINK) ** 2))
        y, x = np.indices(windows.shape[:2]).reshape(2, -1) * SHRINK
        places.append(np.column_stack([np.full(len(x), number), y, x]))
    return np.concatenate(rows), np.concatenate(places)


def without_overlap(query: Ids, found: Ids) -> Ids:
    """Return the query and the first SHOWN patches that overlap neither it nor each other, padded with the query."""
    kept = [query]
    while len(kept) <= SHOWN:
        apart = (found[:, 0] != kept[-1][0]) | (np.abs(found[:, 1:] - kept[-1][1:]).max(axis=1) >= SIDE)
        found = found[apart]
        if not len(found):
            return np.array(kept + [query] * (SHOWN + 1 - len(kept)))
        kept.append(found[0])
    return np.array(kept)


def recall_by_budget(index: Index, items: Floats, queries: Floats) -> list[list[str]]:
    """Return the share of items scored, recall and microseconds per query, for each candidate budget.

    Items at the distance of the last exact neighbor count as found.
    """
    exact = index.search(queries, NEAREST, candidates=len(items), vectors=items)
    rows = []
    for budget in BUDGETS:
        start = time.perf_counter()
        hits = index.search(queries, NEAREST, candidates=int(budget * len(items)), rerank=400, vectors=items)
        seconds = (time.perf_counter() - start) / len(queries)
        recall = np.mean(hits.distances <= 1.00001 * exact.distances[:, -1:])
        scored = 100 * hits.compared.mean() / len(items)
        rows.append([f"{scored:.1f} %", f"{recall:.3f}", f"{1e6 * seconds:,.0f}"])
    return rows
