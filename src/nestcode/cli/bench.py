"""`nestcode bench`: QPS and recall of a search on this machine, against an exact scan by NumPy."""

import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer
from rich.console import Console
from rich.table import Table

from nestcode.cli.fit import Metric, fit_kind
from nestcode.cli.options import ArrayName, AsJson, Seed, Size, Threads, messages
from nestcode.errors import InvalidInput

if TYPE_CHECKING:
    from nestcode.arrays import Floats, Ids

Result = TypeVar("Result")
MAX_ITEMS, QUERIES = 50_000, 500


def bench(
    data: Annotated[
        Path | None,
        typer.Argument(
            help="Items, as for nestcode fit; at most 50,000 are used.", show_default="20,000 x 64 synthetic"
        ),
    ] = None,
    width: Annotated[int, typer.Option(min=1, help="Bits of a code.")] = 256,
    kind: Annotated[
        Literal["auto", "cell", "linear", "residual"], typer.Option(help="The coder, as for nestcode fit.")
    ] = "cell",
    metric: Annotated[Metric, typer.Option(help="Squared Euclidean distance, or cosine.")] = "l2",
    k: Annotated[int, typer.Option("--k", "-k", min=1, help="Neighbors per query.")] = 10,
    candidates: Annotated[
        int | None, typer.Option(min=1, help="Candidate budget: items scored per query.", show_default="auto")
    ] = None,
    seed: Seed = 0,
    array: ArrayName = None,
    size: Size = 32,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Fit a coder, encode and search, and compare QPS and recall with an exact scan by NumPy."""
    import numpy as np

    from nestcode.arrays import as_floats
    from nestcode.index import Index

    rows = _synthetic(seed) if data is None else _read(data, array, size)
    items, queries = _split(as_floats(rows, normalize=metric == "cosine"), seed)
    if k > len(items):
        raise InvalidInput(f"k must be at most the number of items {len(items)}, got {k}: give a smaller one")
    with messages().status("Measuring"):
        coder, fitting = _timed(lambda: fit_kind(items, kind, width, metric, "search", seed))
        codes, encoding = _timed(lambda: coder.encode(items))
        index = Index(coder)
        _, building = _timed(lambda: index.add(codes))
        how: dict[str, Any] = {"candidates": candidates, "threads": threads}
        for vectors in (None, items):
            index.search(queries[:1], k, vectors=vectors, **how)  # the first search builds the scorer
        exact, scanning = _timed(lambda: _scan(items, queries, k))
        found = {"exact scan": _measures(exact, exact, scanning, scanning, 1.0, items.nbytes / len(items))}
        for name, vectors in (("codes", None), ("codes, reranked by vectors", items)):
            hits, seconds = _timed(partial(index.search, queries, k, vectors=vectors, **how))
            stored = (index.nbytes + (0 if vectors is None else vectors.nbytes)) / len(items)
            compared = float(np.mean(hits.compared)) / len(items)
            found[name] = _measures(exact, hits.ids, seconds, scanning, compared, stored)
    facts: dict[str, Any] = {
        "count": len(items), "features": items.shape[1], "kind": type(coder).__name__, "width": width,
        "metric": metric, "k": k, "queries": len(queries),
        "fit_seconds": fitting, "encode_per_second": len(items) / encoding, "index_seconds": building, "search": found,
    }  # fmt: skip
    if as_json:
        print(json.dumps(facts, indent=2))
    else:
        _show(facts)


def _measures(
    exact: "Ids", ids: "Ids", seconds: float, scanning: float, compared: float, size: float
) -> dict[str, float]:
    """Return a search's recall, QPS, speed-up over the scan, and cost."""
    from nestcode.metrics import recall

    return {
        "recall": recall(ids, exact), "queries_per_second": len(exact) / seconds, "times_scan": scanning / seconds,
        "compared": compared, "bytes_per_item": size,
    }  # fmt: skip


def _timed(work: Callable[[], Result]) -> tuple[Result, float]:
    start = time.perf_counter()
    result = work()
    return result, time.perf_counter() - start


def _synthetic(seed: int) -> "Floats":
    """Return a mixture of 200 Gaussians with a decaying spectrum, as embeddings have."""
    import numpy as np

    rng = np.random.default_rng(seed)
    spread = np.arange(1, 65) ** -0.5
    centers, own = rng.standard_normal((200, 64)), rng.standard_normal((20_000 + QUERIES, 64))
    return ((centers[rng.integers(200, size=len(own))] + own) * spread).astype(np.float32)


def _read(path: Path, array: str | None, size: int) -> "Floats":
    import numpy as np

    from nestcode.arrays import as_floats
    from nestcode.cli.inputs import open_rows

    parts, count = [], 0
    for piece in open_rows(path, array, size):
        parts.append(as_floats(piece[: MAX_ITEMS - count]).astype(np.float32))
        count += len(parts[-1])
        if count == MAX_ITEMS:
            break
    if count < 100:
        raise InvalidInput(f"{path} must hold at least 100 items, got {count}: give more, or none for synthetic items")
    return np.concatenate(parts)


def _split(rows: "Floats", seed: int) -> "tuple[Floats, Floats]":
    """Split rows into items and held-out queries."""
    import numpy as np

    order = np.random.default_rng(seed).permutation(len(rows))
    count = min(QUERIES, len(rows) // 10)
    return rows[np.sort(order[count:])], rows[order[:count]]


def _scan(items: "Floats", queries: "Floats", k: int) -> "Ids":
    """Return the k nearest items of each query by float32 matrix products, 100 queries at a time: what is timed."""
    import numpy as np

    norms = np.einsum("ij,ij->i", items, items)
    found = []
    for first in range(0, len(queries), 100):
        distances = norms - 2 * (queries[first : first + 100] @ items.T)
        found.append(np.argpartition(distances, k - 1, axis=1)[:, :k])
    return np.concatenate(found)


def _show(facts: dict[str, Any]) -> None:
    console = Console()
    console.width = max(console.width, 100)
    console.print(
        f"{facts['count']:,} items of {facts['features']:,} features, {facts['kind']} of {facts['width']} bits: "
        f"fit {facts['fit_seconds']:.2g} s, encode {facts['encode_per_second']:,.0f} items/s, "
        f"index {facts['index_seconds']:.2g} s",
        highlight=False,
        soft_wrap=True,
    )
    table = Table(title=f"{facts['k']} nearest neighbors of {facts['queries']} queries", title_justify="left")
    for name in ("", f"recall@{facts['k']}", "QPS", "speed-up", "compared", "bytes/item"):
        table.add_column(name, justify="right" if name else "left", no_wrap=True)
    for name, row in facts["search"].items():
        table.add_row(
            name, f"{row['recall']:.3f}", f"{row['queries_per_second']:,.0f}", f"{row['times_scan']:.1f}",
            f"{row['compared']:.1%}", f"{row['bytes_per_item']:,.0f}",
        )  # fmt: skip
    console.print(table)
