"""`nestcode index`: build an index, change it, and see that it is well."""

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nestcode.cli.files import check_place, item_coder
from nestcode.cli.info import tell_index
from nestcode.cli.options import AreCodes, ArrayName, AsJson, CoderIfAny, Data, Size, Threads, messages
from nestcode.errors import DamagedFile, InvalidInput

if TYPE_CHECKING:
    from nestcode.codes import Codes
    from nestcode.index import Index

index = typer.Typer(
    help="Build an index, change it, and see that it is well.",
    epilog="Example: nestcode index build data.npy --coder my.coder -o my.index",
    no_args_is_help=True,
)
Folder = Annotated[Path, typer.Argument(help="An index, which is a folder.", show_default=False)]
Ids = Annotated[
    Path | None, typer.Option(help="A .npy file with the id of each item.", show_default="the next numbers")
]


@index.command(epilog="Example: nestcode index build data.npy --coder my.coder -o my.index")
def build(
    data: Data,
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder of the index.")],
    coder: CoderIfAny = None,
    width: Annotated[int | None, typer.Option(min=1, help="Bits to keep.", show_default="all")] = None,
    ids: Ids = None,
    codes: AreCodes = False,
    array: ArrayName = None,
    size: Size = 32,
    threads: Threads = None,  # noqa: ARG001 (its callback does the work)
    force: Annotated[bool, typer.Option("--force", "-f", help="Replace an index that is there.")] = False,
    as_json: AsJson = False,
) -> None:
    """Build an index of items."""
    if coder is None and not codes:
        raise typer.BadParameter("an index needs a --coder, or --codes: give one of them")
    fresh = _check_folder(out, force=force)
    from nestcode.cli.inputs import read_codes
    from nestcode.index import Index

    chosen = None if coder is None else item_coder(coder)
    known = read_codes(data, array, chosen, width) if codes else None
    made = Index(chosen, width=width if known is None else known.width)
    count = _add(made, data, ids, codes=known, array=array, size=size)
    try:
        made.save(out)
    except BaseException:
        if fresh:
            shutil.rmtree(out, ignore_errors=True)
        raise
    _tell(out, made, as_json=as_json, added=count)


@index.command(epilog="Example: nestcode index add my.index more.npy --ids more-ids.npy --replace")
def add(
    path: Folder,
    data: Data,
    ids: Ids = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace items whose ids are in use.")] = False,
    codes: AreCodes = False,
    array: ArrayName = None,
    size: Size = 32,
    threads: Threads = None,  # noqa: ARG001 (its callback does the work)
    as_json: AsJson = False,
) -> None:
    """Add items to an index: all of them, or none if something is wrong."""
    from nestcode.cli.inputs import read_codes
    from nestcode.index import Index

    with Index.open(path, mode="a") as opened:
        known = read_codes(data, array, opened.coder, opened.width) if codes else None
        count = _add(opened, data, ids, codes=known, array=array, size=size, replace=replace)
        opened.commit()
        _tell(path, opened, as_json=as_json, added=count)


@index.command(epilog="Example: nestcode index remove my.index 17 42")
def remove(
    path: Folder,
    numbers: Annotated[list[int] | None, typer.Argument(help="Ids of items.", show_default=False)] = None,
    ids: Annotated[Path | None, typer.Option(help="A .npy file of ids.")] = None,
    as_json: AsJson = False,
) -> None:
    """Remove items from an index: all of them, or none if one is not there."""
    if bool(numbers) == (ids is not None):
        raise typer.BadParameter("ids come as arguments or by --ids, one of them: nestcode index remove my.index 17 42")
    from nestcode.cli.inputs import read_ids
    from nestcode.index import Index

    unwanted: Any = numbers if ids is None else read_ids(ids)
    with Index.open(path, mode="a") as opened:
        opened.remove(unwanted)
        opened.commit()
        _tell(path, opened, as_json=as_json, removed=len(unwanted))


@index.command(epilog="Example: nestcode index compact my.index")
def compact(path: Folder, as_json: AsJson = False) -> None:
    """Merge all segments of an index into one, without what was removed: searches are faster then."""
    from nestcode.index import Index

    with Index.open(path, mode="a") as opened:
        before = _bytes(path)
        with messages().status("Merging"):
            opened.compact()
            opened.commit()
        _tell(path, opened, as_json=as_json, bytes_before=before, bytes=_bytes(path))


@index.command(epilog="Example: nestcode index verify my.index")
def verify(path: Folder, as_json: AsJson = False) -> None:
    """Read all of an index and prove that it is what was written; status 1 if it is not."""
    from nestcode.index import Index

    try:
        with Index.open(path) as opened:
            with messages().status("Reading"):
                opened.verify()
            _tell(path, opened, as_json=as_json, intact=True)
    except DamagedFile as error:
        if as_json:
            print(json.dumps({"path": str(path), "intact": False, "error": str(error)}))
        raise


@index.command(epilog="Example: nestcode index info my.index --json")
def info(path: Folder, as_json: AsJson = False) -> None:
    """Say what an index holds, and the error to expect of its codes by length."""
    tell_index(path, as_json=as_json)


def _check_folder(out: Path, *, force: bool) -> bool:
    """Whether the folder is new; refuse one that must not be replaced, before any work."""
    from nestcode.index.store import Store

    if out.exists() and not out.is_dir():
        raise InvalidInput(f"{out} is a file, and an index is a folder: give another name")
    if out.exists() and Store(out, write=False).exists() and not force:
        raise InvalidInput(f"{out} is there already: give another name, --force to replace it, or nestcode index add")
    check_place(out)
    return not out.exists()


def _add(
    opened: "Index",
    data: Path,
    ids: Path | None,
    *,
    codes: "Codes | None",
    array: str | None,
    size: int,
    replace: bool = False,
) -> int:
    """Add items at once, so that all are added or none."""
    import numpy as np

    from nestcode.cli.inputs import encode_all, open_rows, read_ids

    known = None if ids is None else read_ids(ids)
    if known is not None and not replace:
        taken = known[np.isin(known, opened.ids)]
        if len(taken):
            raise InvalidInput(f"ids must be new, but {taken[0]} is in use: give others, or --replace it")
    if codes is not None:
        items = codes
    elif opened.coder is None:
        raise InvalidInput(f"an index without a coder takes codes: add --codes if {data} holds them")
    else:
        items = encode_all(opened.coder, open_rows(data, array, size), opened.width)
    opened.add(items, known, on_duplicate="replace" if replace else "error")
    return len(items)


def _bytes(path: Path) -> int:
    return sum(entry.stat().st_size for entry in path.iterdir())


def _tell(path: Path, opened: "Index", *, as_json: bool, **facts: Any) -> None:
    if as_json:
        print(json.dumps({"path": str(path), "count": len(opened), **facts}))
        return
    what = ", ".join(f"{name.replace('_', ' ')} {value:,}" for name, value in facts.items() if value is not True)
    said = "all of it is what was written" if "intact" in facts else what
    messages().print(f"{said}: {len(opened):,} items of {opened.width} bits", soft_wrap=True)
    print(path)
