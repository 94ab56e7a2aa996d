"""`nestcode index`: build, update, compact and verify an index."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from nestcode.cli.files import check_place, item_coder
from nestcode.cli.options import AreCodes, ArrayName, AsJson, CoderIfAny, Data, Size, Threads, messages, printable
from nestcode.errors import DamagedFile, InvalidInput, import_extra

if TYPE_CHECKING:
    from nestcode.codes import Codes
    from nestcode.index import Index
    from nestcode.index.autotune import Choice

index = typer.Typer(
    help="Build, update, compact and verify an index.",
    epilog="Example: nestcode index build data.npy -o my.index",
    no_args_is_help=True,
)
Folder = Annotated[Path, typer.Argument(help="The folder of an index.", show_default=False)]
Folders = Annotated[
    list[Path],
    typer.Argument(
        metavar="PATH...", help="The folder of an index, or the folders of its parts, read as one.", show_default=False
    ),
]


def _some_folder(paths: list[Path]) -> list[Path]:
    if not paths:  # a single argument is taken for the queries
        raise typer.BadParameter("give the folder of an index, then the file of queries, as in my.index queries.npy")
    return paths


FoldersFirst = Annotated[
    list[Path],
    typer.Argument(
        metavar="PATH...",
        help="The folder of an index, or the folders of its parts, read as one.",
        default_factory=list,
        show_default=False,
        callback=_some_folder,
    ),
]
Ids = Annotated[Path | None, typer.Option(help="A .npy file with one id per item.", show_default="consecutive")]
TableFile = Annotated[Path | None, typer.Option(help="A .parquet or .csv file with a row of attributes for each item.")]


@index.command(
    epilog="Example: nestcode index build data.npy -o my.index --metric cosine --recall 0.95, or with a coder of your "
    "choice: nestcode index build data.npy -o my.index --coder my.coder"
)
def build(
    data: Data,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the index.")],
    coder: CoderIfAny = None,
    width: Annotated[
        int | None, typer.Option(min=1, help="Bits of each code to store.", show_default="the coder's width")
    ] = None,
    vectors: Annotated[
        Literal["float16", "int8", "float32"] | None,
        typer.Option(help="Store the vectors too, as this type; searches rerank by them.", show_default="codes only"),
    ] = None,
    ids: Ids = None,
    attributes: TableFile = None,
    graph: Annotated[
        bool,
        typer.Option(
            "--graph",
            help="Build a graph: faster searches in more memory. Needs a linear or rotation coder and 4,096 items.",
        ),
    ] = False,
    codes: AreCodes = False,
    metric: Annotated[
        Literal["l2", "cosine"] | None, typer.Option(help="Squared Euclidean distance, or cosine.", show_default="l2")
    ] = None,
    recall: Annotated[
        float | None,
        typer.Option(help="Recall to reach: the share of the k nearest items found.", show_default="0.95"),
    ] = None,
    k: Annotated[
        int | None, typer.Option("--k", "-k", min=1, help="Number of neighbors that recall counts.", show_default="10")
    ] = None,
    max_bytes: Annotated[
        float | None, typer.Option(help="Most bytes of memory per item.", show_default="no bound")
    ] = None,
    prefer: Annotated[
        Literal["latency", "memory", "build"] | None,
        typer.Option(
            help="What to optimize among indexes that reach the recall.",
            show_default="latency",
        ),
    ] = None,
    queries: Annotated[
        Path | None,
        typer.Option(help="A file of sample queries.", show_default="held-out items"),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of the trials.", show_default="0")] = None,
    seconds: Annotated[
        float | None, typer.Option(help="Begin no trial after this time.", show_default="no limit")
    ] = None,
    array: ArrayName = None,
    size: Size = 32,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS", help="Build on this Ray cluster: auto, local, or host:port.", show_default="here"
        ),
    ] = None,
    parts: Annotated[int, typer.Option(min=1, help="With --ray: number of folders to write, out/part-0000 on.")] = 1,
    threads: Threads = None,  # noqa: ARG001 (its callback does the work)
    force: Annotated[
        bool, typer.Option("--force", "-f", help="Overwrite an existing index; inputs are never overwritten.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Build an index of items.

    Without --coder, trial searches on samples choose the fastest index that reaches --recall, and its effort. Ctrl-C
    ends the trials and builds the best so far; a second one ends the command, and nothing is written.
    """
    wishes = {
        "metric": metric, "recall": recall, "k": k, "max_bytes": max_bytes, "prefer": prefer, "queries": queries,
        "seed": seed, "seconds": seconds,
    }  # fmt: skip
    by_trials = coder is None and not codes
    own: dict[str, Any] = {"width": width, "vectors": vectors, "graph": graph or None, "ray": ray}
    unused = own if by_trials else wishes
    for name in (name for name, value in unused.items() if value is not None):
        option = "--" + name.replace("_", "-")
        if by_trials:
            raise typer.BadParameter(f"{option} needs --coder; without it trials choose the index: leave out {option}")
        raise typer.BadParameter(f"{option} is for trials, which --coder and --codes replace: leave out {option}")
    if vectors is not None and codes:
        raise typer.BadParameter("--vectors stores the items, and --codes have none: leave one of them out")
    if ray is None and parts > 1:
        raise typer.BadParameter("--parts divides what --ray builds: give --ray local, or leave it out")
    if ray is not None and (codes or force or attributes is not None):
        raise typer.BadParameter("--ray encodes items into a new folder: leave out --codes, --attributes and --force")
    if ray is not None and coder is not None:
        from nestcode.cli.ray import build_on_ray

        folders = build_on_ray(
            ray, data, out, item_coder(coder), ids=ids, parts=parts, width=width, vectors=vectors, graph=graph,
            array=array, size=size,
        )  # fmt: skip
        print(json.dumps({"paths": folders}) if as_json else "\n".join(folders))
        return
    fresh = _check_folder(out, data, coder, ids, queries, force=force)
    from nestcode.cli.inputs import open_rows, read_codes, read_ids
    from nestcode.index import Index, compaction

    columns = None if attributes is None else _read_table(attributes)
    if by_trials:
        given: dict[str, Any] = {name: value for name, value in wishes.items() if value is not None}
        if queries is not None:
            given["queries"] = open_rows(queries).whole()
        rows, names = open_rows(data, array, size).whole(), None if ids is None else read_ids(ids)
        made = Index.build(rows, names, attributes=columns, verbose=not messages().quiet, **given)
        _save(made, out, force=force, fresh=fresh)
        choice: Any = made.choice
        messages().print(printable(str(choice)), soft_wrap=True, markup=False, highlight=False)
        _report([out], made, as_json=as_json, added=len(made), **({"choice": _facts(choice)} if as_json else {}))
        return
    chosen = None if coder is None else item_coder(coder)
    known = read_codes(data, array, chosen, width) if codes else None
    made = Index(chosen, width=width if known is None else known.width, vectors=vectors, graph=graph)
    count = _add(made, data, ids, codes=known, array=array, size=size, attributes=columns)
    _save(made, out, force=force, fresh=fresh)
    if graph and count < compaction.MIN_GRAPH:
        messages().print(f"no graph: {compaction.MIN_GRAPH:,} items or more get one, fewer are scanned as fast")
    _report([out], made, as_json=as_json, added=count)


@index.command(epilog="Example: nestcode index add my.index more.npy --ids more-ids.npy --replace")
def add(
    path: Folder,
    data: Data,
    ids: Ids = None,
    attributes: TableFile = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace items with the same ids.")] = False,
    codes: AreCodes = False,
    array: ArrayName = None,
    size: Size = 32,
    threads: Threads = None,  # noqa: ARG001 (its callback does the work)
    as_json: AsJson = False,
) -> None:
    """Add items to an index, all or none of them."""
    from nestcode.cli.inputs import read_codes
    from nestcode.index import Index

    columns = None if attributes is None else _read_table(attributes)
    with Index.open(path, mode="a") as opened:
        known = read_codes(data, array, opened.coder, opened.width) if codes else None
        count = _add(
            opened, data, ids, codes=known, array=array, size=size, replace=replace, attributes=columns
        )  # fmt: skip
        opened.commit()
        _report([path], opened, as_json=as_json, added=count)


@index.command(epilog="Example: nestcode index remove my.index 17 42")
def remove(
    path: Folder,
    item_ids: Annotated[
        list[int] | None, typer.Argument(metavar="ID", help="Ids of the items.", show_default=False)
    ] = None,
    ids: Annotated[Path | None, typer.Option(help="A .npy file of ids.")] = None,
    as_json: AsJson = False,
) -> None:
    """Remove items from an index: all of them, or none if an id is unknown."""
    if bool(item_ids) == (ids is not None):
        raise typer.BadParameter("ids must be given as arguments or by --ids: nestcode index remove my.index 17 42")
    from nestcode.cli.inputs import read_ids
    from nestcode.index import Index

    unwanted: Any = item_ids if ids is None else read_ids(ids)
    with Index.open(path, mode="a") as opened:
        opened.remove(unwanted)
        opened.commit()
        _report([path], opened, as_json=as_json, removed=len(unwanted))


@index.command(epilog="Example: nestcode index compact my.index")
def compact(path: Folder, as_json: AsJson = False) -> None:
    """Merge all segments of an index into one, drop tombstones and build graphs, which speeds up searches."""
    from nestcode.index import Index

    with Index.open(path, mode="a") as opened:
        before = _bytes(path)
        with messages().status("Compacting"):
            opened.compact()
            opened.commit()
        _report([path], opened, as_json=as_json, bytes_before=before, bytes=_bytes(path))


@index.command(epilog="Example: nestcode index truncate my.index 128")
def truncate(
    path: Folder,
    width: Annotated[int, typer.Argument(min=1, help="Bits of each code to keep.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Keep the first bits of every code of an index; stored vectors stay."""
    from nestcode.index import Index

    with Index.open(path, mode="a") as opened:
        before = _bytes(path)
        opened.truncate(width)
        opened.commit()
        _report([path], opened, as_json=as_json, bytes_before=before, bytes=_bytes(path))


@index.command(epilog="Example: nestcode index verify my.index")
def verify(paths: Folders, as_json: AsJson = False) -> None:
    """Verify all checksums of an index, and that ids are distinct; exit with status 1 otherwise."""
    from nestcode.index import Index

    try:
        with Index.open(paths) as opened:
            with messages().status("Verifying"):
                opened.verify()
            _report(paths, opened, as_json=as_json, intact=True)
    except DamagedFile as error:
        if as_json:
            print(json.dumps({**_named(paths), "intact": False, "error": str(error)}))
        raise


@index.command(epilog="Example: nestcode index health my.index")
def health(
    paths: Folders,
    k: Annotated[int, typer.Option("--k", "-k", min=1, help="Number of nearest items that recall counts.")] = 10,
    target_recall: Annotated[float, typer.Option("--target-recall", "-t", help="Least healthy recall@k.")] = 0.9,
    as_json: AsJson = False,
) -> None:
    """Measure the recall of stored items, and report an index that no longer suits its size or its data."""
    from nestcode.index import Index

    with Index.open(paths) as opened, messages().status("Measuring"):
        found = opened.health(k, target_recall=target_recall)
    if as_json:
        print(json.dumps({**_named(paths), **asdict(found), "ok": found.ok}))
    else:
        print(found)


def _check_folder(out: Path, *inputs: str | Path | None, force: bool) -> bool:
    """Return whether the folder is new; raise if it must not be overwritten, or holds an input."""
    from nestcode.index.store import Store

    if out.exists() and not out.is_dir():
        raise InvalidInput(f"an index must be a folder, got {out}, which is a file: choose another name")
    if out.exists() and Store(out, write=False).exists() and not force:
        raise InvalidInput(
            f"{out} exists already: choose another name, give --force to overwrite it, or use nestcode index add"
        )
    for source in (Path(source) for source in inputs if source is not None):
        if source.exists() and out.resolve() in (source.resolve(), *source.resolve().parents):
            raise InvalidInput(f"the index must not overwrite an input, got {source} in {out}: choose another folder")
    check_place(out)
    return not out.exists()


def _save(made: "Index", out: Path, *, force: bool, fresh: bool) -> None:
    """Save an index; a folder that is new does not stay half-written."""
    from nestcode.index.store import remove_unfinished

    try:
        made.save(out, overwrite=force)
    except BaseException:
        if fresh:
            remove_unfinished(out)
        raise


def _facts(choice: "Choice") -> dict[str, Any]:
    """Return what was chosen and why, for JSON."""
    return {
        "chosen": str(choice.chosen), "reason": choice.reason, "recall": choice.reached,
        "standard_error": choice.standard_error, "target": choice.recall, "k": choice.k,
        "tried": list(map(str, choice.tried)),
    }  # fmt: skip


def _read_table(path: Path) -> Any:
    """Return the table in a Parquet or CSV file."""
    if path.suffix not in (".parquet", ".csv"):
        raise typer.BadParameter(f"--attributes must be a .parquet or .csv file, got {path}: convert it")
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}: give a table with a row for each item")
    module = "pyarrow.parquet" if path.suffix == ".parquet" else "pyarrow.csv"
    reader = import_extra(module, extra="arrow", purpose="--attributes")
    try:
        return reader.read_table(path) if path.suffix == ".parquet" else reader.read_csv(path)
    except (ValueError, OSError) as error:  # Arrow's are one or the other
        raise DamagedFile(f"{path} is damaged or no {path.suffix} file ({error}): restore a copy") from error


def _add(
    opened: "Index",
    data: Path,
    ids: Path | None,
    *,
    codes: "Codes | None",
    array: str | None,
    size: int,
    replace: bool = False,
    attributes: Any = None,
) -> int:
    """Add items in one call, which adds all or none, and return their number."""
    import numpy as np

    from nestcode.cli.inputs import encode_all, open_rows, read_ids

    new = None if ids is None else read_ids(ids)
    if new is not None and not replace:
        taken = new[np.isin(new, opened.ids)]
        if len(taken):
            raise InvalidInput(f"ids must be new, got {taken[0]}, which is in use: give other ids, or --replace")
    vectors = None
    if codes is not None:
        items = codes
    elif opened.coder is None:
        raise InvalidInput(f"an index without a coder takes packed codes: add --codes if {data} holds them")
    else:
        keep = opened.vector_type is not None
        items, vectors = encode_all(opened.coder, open_rows(data, array, size), opened.width, keep=keep)
    how: Literal["error", "replace"] = "replace" if replace else "error"
    opened.add(items, new, vectors=vectors, attributes=attributes, on_duplicate=how)
    return len(items)


def _bytes(path: Path) -> int:
    return sum(entry.stat().st_size for entry in path.iterdir())


def _named(paths: list[Path]) -> dict[str, Any]:
    return {"path": str(paths[0])} if len(paths) == 1 else {"paths": list(map(str, paths))}


def _report(paths: list[Path], opened: "Index", *, as_json: bool, **facts: Any) -> None:
    if as_json:
        print(json.dumps({**_named(paths), "count": len(opened), **facts}))
        return
    what = ", ".join(f"{name.replace('_', ' ')} {value:,}" for name, value in facts.items() if value is not True)
    summary = "all checksums match" if "intact" in facts else what
    messages().print(f"{summary}: {len(opened):,} items of {opened.width} bits", soft_wrap=True)
    print("\n".join(map(str, paths)))
