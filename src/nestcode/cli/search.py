"""`nestcode search`: find the nearest items of an index."""

import io
import json
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from nestcode.cli.files import check_distinct, check_out, read_array
from nestcode.cli.index import FoldersFirst
from nestcode.cli.options import AreCodes, ArrayName, AsJson, Data, Force, Size, Threads, messages, printable
from nestcode.errors import InvalidInput

if TYPE_CHECKING:
    from nestcode.index import Index
    from nestcode.search.hits import Hits

SHOWN = 10  # queries in a table


def search(
    paths: FoldersFirst,
    queries: Data,
    k: Annotated[int, typer.Option("--k", "-k", min=1, help="Neighbors per query.")] = 10,
    candidates: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Candidate budget: items scored per query. More candidates raise recall and take longer.",
            show_default="as tuned, or automatic",
        ),
    ] = None,
    rerank: Annotated[
        int | None, typer.Option(min=1, help="Candidates to rerank by all bits.", show_default="as tuned, or 10 k")
    ] = None,
    rank: Annotated[
        Literal["asymmetric", "hamming", "exact"] | None,
        typer.Option(help="Score by asymmetric (ADC), Hamming, or exact distances to vectors."),
    ] = None,
    metric: Annotated[
        Literal["l2", "cosine", "inner"] | None,
        typer.Option(help="Squared Euclidean distance, cosine or inner product.", show_default="the coder's"),
    ] = None,
    vectors: Annotated[
        Path | None,
        typer.Option(
            help="A .npy file of the original vectors by id, to rerank by exact distances.",
            show_default="the stored vectors",
        ),
    ] = None,
    names: Annotated[
        Path | None, typer.Option(help="Names of the items: a text file with one line per id, or the folder of images.")
    ] = None,
    condition: Annotated[
        str | None,
        typer.Option("--filter", metavar="CONDITION", help="Search only items that meet a condition: \"lang = 'en'\"."),
    ] = None,
    text: Annotated[
        str | None,
        typer.Option(metavar="WORDS", help="Words to match as well (hybrid search): BM25 in a column of strings."),
    ] = None,
    text_column: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Where to match --text.", show_default="the only column of strings"),
    ] = None,
    columns: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Attributes to show with each hit, such as title,year.")
    ] = None,
    codes: AreCodes = False,
    array: ArrayName = None,
    size: Size = 32,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Output .npz file with ids, distances and compared.")
    ] = None,
    threads: Threads = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Find the nearest items of each query; --json prints one line per query."""
    if out is not None:
        if out.suffix != ".npz":
            raise typer.BadParameter(f"--out must be a .npz file, got {out}: give a name that ends in .npz")
        check_out(out, force=force)
        check_distinct(out, queries, vectors, names)
    if vectors is not None and rank not in (None, "exact"):
        raise typer.BadParameter(f"--vectors need --rank exact, got --rank {rank}: leave one of them out")
    if codes and (vectors is not None or rank == "asymmetric"):
        raise typer.BadParameter("--codes are ranked by Hamming distance: leave out --codes, or --vectors and --rank")
    if text_column is not None and text is None:
        raise typer.BadParameter("--text-column needs --text: give the words to match")
    matched = text if text is None or text_column is None else {text_column: text}
    item_names = None if names is None else _read_names(names)
    from nestcode.index import Index

    with Index.open(paths) as opened:
        if rank == "exact" and vectors is None and opened.vector_type is None:
            raise typer.BadParameter("--rank exact needs the original vectors: give them by --vectors")
        if names is not None and item_names is not None:
            note_count(names, len(item_names), len(opened))
        points = read_queries(opened, queries, array, size, codes=codes)
        items = None if vectors is None else read_array(vectors)
        hits = opened.search(
            points, k, candidates=candidates, rerank=rerank, rank=rank, metric=metric, threads=threads,
            vectors=None if items is None else items.reshape(len(items), -1), filter=condition, text=matched,
        )  # fmt: skip
        shown = None if columns is None else opened.attributes(hits.ids, columns.split(",")).to_pylist()
    if out is not None:
        _write(out, hits)
    if as_json:
        for line in _lines(hits, item_names, shown):
            print(json.dumps(line, default=str))  # dates and times as ISO 8601 has them
    elif out is not None:
        print(out)
    else:
        _show(hits, item_names, shown)


def read_queries(opened: "Index", path: Path, array: str | None, size: int, *, codes: bool) -> Any:
    """Return the queries of a file as an index takes them: vectors, or packed codes."""
    import numpy as np

    from nestcode.cli.inputs import open_rows, pieces_for, read_codes

    if codes:
        return read_codes(path, array, opened.coder, opened.width)
    if opened.coder is None:
        raise InvalidInput(f"an index without a coder takes packed codes: add --codes if {path} holds them")
    return np.concatenate(list(pieces_for(opened.coder, open_rows(path, array, size), "Reading")))


def _read_names(path: Path) -> Sequence[str]:
    from nestcode.data.folder import image_files
    from nestcode.data.lines import read_lines

    if path.is_dir():
        return [str(file.relative_to(path)) for file in image_files(path)]
    if not path.is_file():
        raise FileNotFoundError(
            f"there is no file {path}: give a text file with one line per id, or the folder of images"
        )
    return read_lines(path)


def note_count(path: Path, named: int, items: int) -> None:
    """Print a note where a file or a folder names more or fewer items than there are."""
    if named != items:
        messages().print(
            f"{escape(str(path))} has {named:,} items and the index {items:,}: the first of them belongs to id 0",
            soft_wrap=True,
        )


def _write(out: Path, hits: "Hits") -> None:
    import numpy as np

    from nestcode.storage import write_atomic

    memory = io.BytesIO()
    np.savez(memory, ids=hits.ids, distances=hits.distances, compared=hits.compared)
    write_atomic(out, memory.getvalue())


def _lines(hits: "Hits", names: Sequence[str] | None, shown: list[dict[str, Any]] | None) -> Iterator[dict[str, Any]]:
    """Yield the hits of each query without missing items."""
    for query, (ids, distances) in enumerate(zip(hits.ids, hits.distances, strict=True)):
        there = ids >= 0
        line = {"query": query, "ids": ids[there].tolist(), "distances": distances[there].tolist()}
        if names is not None:
            line["names"] = [names[i] if i < len(names) else None for i in line["ids"]]
        if shown is not None:
            own = shown[query * len(ids) : (query + 1) * len(ids)]
            line["attributes"] = [row for row, found in zip(own, there, strict=True) if found]
        yield {**line, "compared": int(hits.compared[query])}


def _show(hits: "Hits", names: Sequence[str] | None, shown: list[dict[str, Any]] | None) -> None:
    table = Table("query", "id", "distance", box=None, padding=(0, 2, 0, 0))
    if names is not None:
        table.add_column("name")
    for column in shown[0] if shown else ():
        table.add_column(escape(printable(column)))
    for line in islice(_lines(hits, names, shown), SHOWN):
        for place, (found, distance) in enumerate(zip(line["ids"], line["distances"], strict=True)):
            name = [] if names is None else [escape(printable(line["names"][place] or ""))]
            cells = line["attributes"][place].values() if shown else ()
            texts = ["" if cell is None else escape(printable(str(cell))) for cell in cells]
            table.add_row("" if place else str(line["query"]), str(found), f"{distance:.4g}", *name, *texts)
    Console().print(table)
    if len(hits.ids) > SHOWN:
        messages().print(f"and {len(hits.ids) - SHOWN:,} more queries: -o hits.npz or --json give all")
