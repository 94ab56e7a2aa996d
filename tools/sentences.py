"""Write English sentences of Debian's documentation packages, one per line in random order: the text of the benchmarks.

    python tools/sentences.py DIR       writes DIR/sentences.txt, which `benchmarks/search.py --sentences DIR` embeds

Needs apt-get and dpkg-deb of Debian 12, and `apt-get update` before. Packages that another release does not have are
named and left out, and updates of packages change a few sentences: figures are of 645,236 sentences.
"""

import argparse
import gzip
import html
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

PACKAGES = (
    "linux-doc-6.1", "python3.11-doc", "rust-doc", "perl-doc", "postgresql-doc-15", "libreoffice-help-en-us",
    "gimp-help-en", "octave-doc", "maxima-doc", "r-doc-html", "manpages", "manpages-dev",
)  # fmt: skip
SHORTEST, LONGEST = 25, 300  # characters
LETTERS = 0.8  # share of letters and spaces: more signs are code


def main() -> None:
    """Fetch the packages, and write the sentences."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="DIR", help="folder for sentences.txt")
    out: Path = parser.parse_args().folder
    out.mkdir(parents=True, exist_ok=True)
    distinct: dict[str, str] = {}  # by lower case
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for package in PACKAGES:
            fetch(package, folder)
        for paragraph in paragraphs(folder):
            for sentence in sentences(paragraph):
                distinct.setdefault(sentence.lower(), sentence)
    lines = sorted(distinct.values())
    random.Random(0).shuffle(lines)
    (out / "sentences.txt").write_text("\n".join(lines) + "\n")
    print(f"{len(lines):,} sentences in {out / 'sentences.txt'}")


def fetch(package: str, folder: Path) -> None:
    """Download a package and unpack it into a folder of its name, or name it if there is none."""
    if subprocess.run(["apt-get", "download", "-qq", package], cwd=folder, capture_output=True, check=False).returncode:
        print(f"left out, as apt-get does not find it: {package}", file=sys.stderr)
        return
    (archive,) = folder.glob(f"{package}_*.deb")
    subprocess.run(["dpkg-deb", "-x", archive, folder / f"x-{package}"], check=True)
    archive.unlink()


def paragraphs(folder: Path) -> Iterator[str]:
    """Yield the paragraphs of all web pages and manual pages below a folder, in the order of their paths."""
    pages = {page for kind in ("*.html", "*.htm", "*.html.gz") for page in folder.glob(f"x-*/usr/share/**/{kind}")}
    for page in sorted(pages, key=str):
        text = re.sub(r"(?s)<(script|style|pre).*?</\1>", " ", read(page))
        for block in re.split(r"</?(?:p|li|td|dd|div|h\d)[^>]*>", text):
            yield html.unescape(re.sub(r"<[^>]+>", "", block))
    for page in sorted(folder.glob("x-*/usr/share/man/**/*.gz"), key=str):
        text = "".join(line for line in read(page).splitlines(keepends=True) if not line.startswith("."))
        yield from re.split(r"\n\s*\n", re.sub(r"\\f.|\\-|\\&", "", text))


def read(page: Path) -> str:
    """Return the text of a file that may be compressed; of links that lead nowhere, none."""
    try:
        data = page.read_bytes()
    except OSError:
        return ""
    return (gzip.decompress(data) if page.suffix == ".gz" else data).decode(errors="ignore")


def sentences(paragraph: str) -> Iterator[str]:
    """Yield the sentences of a paragraph that are neither short nor long, and that are no code."""
    for part in re.split(r"(?<=[.!?;])\s+(?=[A-Z\"(])", re.sub(r"\s+", " ", paragraph)):
        sentence = part.strip()
        letters = sum(character.isalpha() or character == " " for character in sentence)
        if SHORTEST <= len(sentence) <= LONGEST and letters > LETTERS * len(sentence):
            yield sentence


if __name__ == "__main__":
    main()
