"""What the commands of vectors and of images share: sizes of streams, budgets, the kind of a stream."""

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path

import typer

from nestcode.cli.files import STANDARD
from nestcode.cli.options import messages
from nestcode.errors import InvalidInput

UNITS = {"": 1, "B": 1, "KB": 1000, "MB": 1000**2, "GB": 1000**3, "KIB": 1024, "MIB": 1024**2, "GIB": 1024**3}
LARGEST = 1 << 62  # bytes of a budget


@dataclass(frozen=True)
class Sizes:
    """Bytes of the raw values, the input files and the embedded coder of a stream."""

    raw: int
    files: int
    coder: int

    def report(self, out: Path, stream: Path, *, as_json: bool) -> None:
        """Print the sizes beside that of the finished stream, and its name `out`."""
        from nestcode.streams import stream_info

        size = stream.stat().st_size
        if as_json:
            facts = {
                "path": str(out), "bytes": size, "raw_bytes": self.raw, "file_bytes": self.files,
                "coder_bytes": self.coder, "ratio": self.raw / size,
            }  # fmt: skip
            print(json.dumps(facts))
            return
        header = stream_info(stream.read_bytes()).header_bytes if size > self.files else 0
        messages().print(self._summary(size, header), soft_wrap=True)
        if out != STANDARD:
            print(out)

    def _summary(self, stream: int, header: int) -> str:
        line = f"{self.raw:,} bytes raw, {self.files:,} in files, {stream:,} in the stream"
        if self.coder:
            line += f", {'most' if 2 * self.coder > stream else 'some'} of it the embedded coder ({self.coder:,} bytes)"
        if stream > self.files and header >= self.files:  # the header includes the coder
            remedy = "embed no coder" if header - self.coder < self.files else "keep them, or put more into one stream"
            line += f"; that is more than the files, as is the header alone ({header:,} bytes): {remedy}"
        elif stream > self.files:
            line += "; that is more than the files: keep fewer bytes, as by --budget"
        return f"{line}."


def check_kind(stream: Path, *, images: bool) -> None:
    """Raise if a stream holds vectors where images are expected, or images where vectors are."""
    from nestcode.container.layout import IMAGES_MAGIC, ITEMS_MAGIC

    with stream.open("rb") as file:
        start = file.read(8)
    if start == (ITEMS_MAGIC if images else IMAGES_MAGIC):
        found, command = ("vectors", "nestcode decompress") if images else ("images", "nestcode images decompress")
        raise InvalidInput(f"the stream holds {found}: give it to {command}")


def note_unverified(count: int) -> None:
    """Print how many bytes at the end of a truncated stream have no checksum."""
    if count:
        messages().print(f"The stream is truncated: its last {count:,} bytes have no checksum.", soft_wrap=True)


def read_bytes(text: str) -> int:
    """Return the number of bytes that a text such as 2MB stands for.

    >>> read_bytes("2MB"), read_bytes("64 KiB"), read_bytes("100")
    (2000000, 65536, 100)
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    size = float(found[1]) * UNITS.get(found[2].upper(), math.nan) if found else math.nan
    if not size < LARGEST:  # as NaN is not
        raise typer.BadParameter(f"budget must be a number of bytes such as 2MB or 64KiB, got {text[:40]!r}")
    return int(size)
