"""`nestcode evaluate`: measure the recall of an index's searches."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from nestcode.cli.files import read_array
from nestcode.cli.index import FoldersFirst
from nestcode.cli.options import AreCodes, ArrayName, AsJson, Data, Size, Threads
from nestcode.cli.search import read_queries

if TYPE_CHECKING:
    from nestcode.search.hits import Evaluation

Neighbors = Annotated[int, typer.Option("--k", "-k", min=1, help="Neighbors per query.")]
SearchMetric = Annotated[
    Literal["l2", "cosine", "inner"] | None,
    typer.Option(help="Squared Euclidean distance, cosine or inner product.", show_default="the coder's"),
]
Vectors = Annotated[
    Path | None, typer.Option(help="A .npy file of the original vectors by id: searches rerank by them.")
]
Condition = Annotated[
    str | None,
    typer.Option("--filter", metavar="CONDITION", help="Search only items that meet a condition: \"lang = 'en'\"."),
]
Exact = Annotated[
    Path | None,
    typer.Option(help="Original vectors that only define the true neighbors; searches rank by codes."),
]


def evaluate(
    paths: FoldersFirst,
    queries: Data,
    k: Neighbors = 10,
    candidates: Annotated[
        int | None,
        typer.Option(min=1, help="Candidate budget: items scored per query.", show_default="as tuned, or automatic"),
    ] = None,
    rerank: Annotated[
        int | None,
        typer.Option(min=1, help="Candidates to rerank.", show_default="as tuned, or 10 k"),
    ] = None,
    metric: SearchMetric = None,
    vectors: Vectors = None,
    exact: Exact = None,
    condition: Condition = None,
    codes: AreCodes = False,
    array: ArrayName = None,
    size: Size = 32,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Measure the recall@k of an index by queries that are not in it.

    An exhaustive search defines the true neighbors. It compares vectors: --vectors, --exact, or the stored vectors.
    Without vectors it compares codes, and recall shows only the loss by probing few lists.
    """
    from nestcode.index import Index

    known = true_neighbors(vectors, exact, codes=codes)
    with Index.open(paths) as opened:
        rows = read_queries(opened, queries, array, size, codes=codes)
        found = opened.evaluate(
            rows, k, candidates=candidates, rerank=rerank, metric=metric, threads=threads, filter=condition, **known
        )
        by_codes = codes or not (known or opened.vector_type)
    report(found, k, by_codes=by_codes, as_json=as_json)


def true_neighbors(vectors: Path | None, exact: Path | None, *, codes: bool) -> dict[str, Any]:
    """Return the vectors that searches rank by, or that tell only the true neighbors."""
    if vectors is not None and exact is not None:
        raise typer.BadParameter("--vectors rerank, and --exact only define the true neighbors: give one of them")
    if codes and (vectors is not None or exact is not None):
        raise typer.BadParameter("--codes are compared with codes: leave out --codes, or --vectors and --exact")
    name, file = ("vectors", vectors) if exact is None else ("exact", exact)
    if file is None:
        return {}
    items = read_array(file)
    return {name: items.reshape(len(items), -1)}


def report(found: "Evaluation", k: int, *, by_codes: bool, as_json: bool) -> None:
    """Print what a search finds and what it costs."""
    if as_json:
        print(json.dumps({"k": k, **vars(found)}))
        return
    truth = " of an exhaustive search by codes (--exact measures against vectors)" if by_codes else ""
    print(
        f"recall@{k} {found.recall:.3f} ± {found.standard_error:.3f}{truth}: {found.candidates:,} candidates, "
        f"{found.share:.1%} of the items compared, {found.rerank:,} reranked, {found.seconds * 1e6:,.0f} µs a query"
    )
