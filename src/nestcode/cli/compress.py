"""`nestcode compress`: images or vectors as a stream that can be cut anywhere."""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import track

from nestcode.errors import DamagedFile, InvalidInput

if TYPE_CHECKING:
    from nestcode.data import PictureFiles

UNITS = {"": 1, "B": 1, "KB": 1000, "MB": 1000**2, "GB": 1000**3, "KIB": 1024, "MIB": 1024**2, "GIB": 1024**3}
WIDTH = 256  # bits of a vector, where a coder is fitted here
PIECE = 1 << 16  # vectors that are coded at a time


def compress(
    inputs: Annotated[list[Path], typer.Argument(help="Images, folders of them, or one .npy file of vectors.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The stream.")],
    coder: Annotated[str | None, typer.Option(help="A coder: a file, or the name of one that comes along.")] = None,
    fit: Annotated[bool, typer.Option("--fit", help="Fit a coder on these inputs, and embed it.")] = False,
    embed: Annotated[bool, typer.Option("--embed", help="Put the coder into the stream.")] = False,
    length: Annotated[
        int | None, typer.Option(min=0, help="Bits to keep: of a vector, or of 32 x 32 pixels on average.")
    ] = None,
    budget: Annotated[str | None, typer.Option(help="Bytes to keep in all, as in 2MB.")] = None,
    max_error: Annotated[
        float | None, typer.Option(help="Keep what leaves this mean squared error of a number; of pixels from 0 to 1.")
    ] = None,
    entropy: Annotated[
        bool, typer.Option("--entropy", help="Code the bits of vectors by how likely they are.")
    ] = False,
    skip_damaged: Annotated[bool, typer.Option("--skip-damaged", help="Leave out images that cannot be read.")] = False,
    force: Annotated[bool, typer.Option("--force", "-f", help="Replace a file that is there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
) -> None:
    """Encode once; whoever receives it may stop after any byte."""
    if out.exists() and not force:
        raise InvalidInput(f"{out} is there already: give another name, or --force to replace it")
    if fit and coder is not None:
        raise InvalidInput("--fit makes a coder of its own: leave out --coder, or --fit")
    bytes_kept = None if budget is None else read_bytes(budget)
    vectors = [path for path in inputs if path.suffix == ".npy"]
    if vectors and len(inputs) > 1:
        raise InvalidInput(f"vectors come as one .npy file, got {len(inputs)} inputs: make a stream of each")
    kept: dict[str, Any] = {"length": length, "budget": bytes_kept, "max_error": max_error}
    if vectors:
        before = _compress_vectors(vectors[0], out, coder, fit=fit, embed=embed, entropy=entropy, **kept)
    else:
        if entropy:
            raise InvalidInput("--entropy is for vectors: pictures are always coded by how likely their bits are")
        before = _compress_pictures(inputs, out, coder, fit=fit, embed=embed, skip_damaged=skip_damaged, **kept)
    after = out.stat().st_size
    if as_json:
        print(json.dumps({"path": str(out), "bytes": after, "raw_bytes": before, "ratio": before / after}))
    else:
        Console(stderr=True).print(f"{before:,} bytes of numbers became {after:,}: {before / after:.1f} times less.")
        print(out)


def _compress_pictures(
    inputs: Sequence[Path],
    out: Path,
    coder: str | None,
    *,
    fit: bool,
    embed: bool,
    skip_damaged: bool,
    length: int | None,
    budget: int | None,
    max_error: float | None,
) -> int:
    """How many bytes the pictures had."""
    from nestcode.coders import PictureCoder
    from nestcode.data import PictureFiles
    from nestcode.streams import PicturesWriter

    console = Console(stderr=True)
    files = PictureFiles(inputs)
    chosen = PictureCoder.load("photos" if coder is None else coder)
    if fit:
        chosen = PictureCoder().fit(_Readable(files, "Learning", console, skip_damaged=skip_damaged))
    before = 0
    with PicturesWriter(out, chosen, embed=embed or fit, length=length, budget=budget, max_error=max_error) as writer:
        readable = _Readable(files, "Encoding", console, skip_damaged=skip_damaged)
        for picture in readable:
            writer.add(files.names[readable.at], picture)
            before += picture.nbytes
        for path in readable.damaged:
            console.print(f"left out {escape(str(path))}", soft_wrap=True)
        if not before:
            raise InvalidInput(f"none of {len(files)} images can be read: give some that can")
    return before


def _compress_vectors(
    path: Path,
    out: Path,
    coder: str | None,
    *,
    fit: bool,
    embed: bool,
    entropy: bool,
    length: int | None,
    budget: int | None,
    max_error: float | None,
) -> int:
    """How many bytes the vectors had."""
    import numpy as np

    import nestcode
    from nestcode.storage import record_bytes
    from nestcode.streams import StreamWriter

    console = Console(stderr=True)
    items = read_array(path)
    if coder is None:
        fit = True
        with console.status(f"Fitting a coder of {length or WIDTH} bits"):
            chosen: nestcode.coders.Coder = nestcode.fit(items.reshape(len(items), -1), width=length or WIDTH)
    else:
        chosen = nestcode.load_coder(coder)
    if budget is not None:
        start = 1024 + 24 * (chosen.width // 64) + (len(record_bytes(chosen._to_record())) if embed or fit else 0)
        room = 8 * ((budget - start) * 1024 // 1025 // len(items))  # bits of an item, in whole bytes
        if room < 0:
            raise InvalidInput(
                f"budget must leave room for the header and the coder, about {start} bytes, got {budget}: give more, "
                "or a --coder that receivers have"
            )
        length = min(chosen.width if length is None else length, room)
    if max_error is not None:
        enough = [k for k in range(chosen.width + 1) if chosen.expected_error(k) <= max_error]
        if not enough:
            raise InvalidInput(
                f"max_error {max_error:g} is less than the {chosen.expected_error(chosen.width):.3g} expected of all "
                f"{chosen.width} bits: give a wider coder, as by --length"
            )
        length = enough[0] if length is None else min(length, enough[0])
    with StreamWriter(out, chosen, embed=embed or fit, entropy=entropy, length=length) as writer:
        for first in track(range(0, len(items), PIECE), "Encoding", console=console, transient=True):
            writer.write(np.asarray(items[first : first + PIECE]))
    return int(items.nbytes)


class _Readable(Sequence[Any]):
    """Pictures with a progress bar, without those that cannot be read if they are to be left out."""

    def __init__(self, files: "PictureFiles", title: str, console: Console, *, skip_damaged: bool) -> None:
        self._files, self._title, self._console, self._skip = files, title, console, skip_damaged
        self.at = 0  # the number of the last one
        self.damaged: list[Path] = []

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, number: Any) -> Any:
        return self._files[number]

    def __iter__(self) -> Iterator[Any]:
        for number in track(range(len(self)), self._title, console=self._console, transient=True):
            self.at = number
            try:
                picture = self._files[number]
            except DamagedFile as error:
                if not self._skip:
                    raise DamagedFile(f"{error}; --skip-damaged leaves it out") from error
                self.damaged.append(self._files.paths[number])
            else:
                yield picture


def read_bytes(text: str) -> int:
    """A number of bytes, as in 2MB.

    >>> read_bytes("2MB"), read_bytes("64 KiB"), read_bytes("100")
    (2000000, 65536, 100)
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    if found is None or found[2].upper() not in UNITS:
        raise InvalidInput(f"budget must be a number of bytes, as in 2MB or 64KiB, got {text!r}")
    return int(float(found[1]) * UNITS[found[2].upper()])


def read_array(path: Path) -> Any:
    """An array in a .npy file, mapped into memory."""
    import numpy as np

    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}: give the path of an array")
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise DamagedFile(f"{path} cannot be read as an array ({error}): save it by np.save") from error
    if array.ndim < 2 or not len(array):
        raise InvalidInput(f"{path} must hold an array (n, …) of at least one item, got shape {array.shape}")
    return array
