"""`nestcode tune`: choose the effort of an index's searches by measurement, and keep it with the index."""

from typing import Annotated

import typer

from nestcode.cli.evaluate import Condition, Exact, Neighbors, SearchMetric, Vectors, report, true_neighbors
from nestcode.cli.index import Folder
from nestcode.cli.options import AreCodes, ArrayName, AsJson, Data, Size, Threads, messages
from nestcode.cli.search import read_queries


def tune(
    path: Folder,
    queries: Data,
    target_recall: Annotated[float, typer.Option("--target-recall", "-t", help="Recall@k to reach.")] = 0.9,
    k: Neighbors = 10,
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
    """Choose the fastest search settings that reach a recall@k, and store them in the index.

    Recall must exceed the target by its standard error over the queries: with more of them searches are faster.
    """
    from nestcode.index import Index

    known = true_neighbors(vectors, exact, codes=codes)
    with Index.open(path, mode="a") as opened:
        rows = read_queries(opened, queries, array, size, codes=codes)
        with messages().status("Measuring"):
            found = opened.tune(
                rows, k, target_recall=target_recall, metric=metric, threads=threads, filter=condition, **known
            )
        opened.commit()
        by_codes = codes or not (known or opened.vector_type)
    report(found, k, by_codes=by_codes, as_json=as_json)
