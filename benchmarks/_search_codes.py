"""Quantizers in the recall-by-bits table of the search benchmark: FAISS's, turbovec's, and sign bits."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import faiss
import numpy as np

from _search_task import NEAREST, Task, first
from nestcode.arrays import Floats
from nestcode.metrics import exact_neighbors

DIRECTIONS = 512  # principal components that peers get of wider data: as many as the widest code has bits


@dataclass(frozen=True)
class Result:
    """One method at one code size."""

    recall: float
    fit: float  # seconds
    encode: float  # seconds


Peer = Callable[[Task, int], Result | None]  # None if the method has no code of this size


class Principal(NamedTuple):
    """Principal directions as columns, of descending variance, and the seconds the PCA took."""

    mean: Floats
    vectors: Floats
    seconds: float


def principal_directions(rows: Floats) -> Principal:
    """Return all principal directions."""
    start = time.perf_counter()
    mean: Floats = rows.mean(axis=0)
    _, vectors = np.linalg.eigh(np.cov((rows - mean).T))
    return Principal(mean, np.ascontiguousarray(vectors[:, ::-1], dtype=np.float32), time.perf_counter() - start)


def reduce(task: Task, principal: Principal) -> Task:
    """Return the task in its first principal components if it has many features: FAISS's rotations get too slow."""
    if task.base.shape[1] <= DIRECTIONS:
        return task
    mean, turn = principal.mean, principal.vectors[:, :DIRECTIONS]
    parts = (task.base, task.queries, task.training)
    base, queries, train = (((part - mean) @ turn).astype(np.float32) for part in parts)
    return replace(task, base=base, queries=queries, train=train)


def sign_bits(task: Task, principal: Principal, lengths: tuple[int, ...]) -> dict[int, Result | None]:
    """Return results of the signs of the first principal components, ranked by Hamming distance."""
    longest = max((length for length in lengths if length <= task.base.shape[1]), default=0)
    start = time.perf_counter()
    turn = principal.vectors[:, :longest]
    base, queries = (np.sign((part - principal.mean) @ turn) for part in (task.base, task.queries))
    encode = time.perf_counter() - start
    results: dict[int, Result | None] = {}
    for length in lengths:
        if length > longest:
            break
        parts = (queries[i : i + 256, :length] for i in range(0, len(queries), 256))
        found = np.concatenate([first(-(part @ base[:, :length].T)) for part in parts])
        last = length == longest
        results[length] = Result(task.recall(found), principal.seconds if last else 0.0, encode if last else 0.0)
    return results


def itq(task: Task, length: int) -> Result:
    """Measure iterative quantization (ITQ), ranked by Hamming distance."""
    return searched(task, itq_index(task.base.shape[1], length))


def itq_index(features: int, length: int) -> Any:
    """Return FAISS's index of ITQ codes."""
    wide = length > features  # then a random rotation first adds dimensions
    chain: list[Any] = [faiss.RandomRotationMatrix(features, length)] if wide else []
    chain.append(faiss.ITQTransform(length if wide else features, length, not wide))
    index = faiss.IndexPreTransform(faiss.IndexLSH(length, length, False, False))
    for transform in reversed(chain):
        index.prepend_transform(transform)
    return index


def product(task: Task, length: int) -> Result | None:
    """Measure product quantization (PQ) with sub-vectors of nearly equal size."""
    parts, features = length // 8, task.base.shape[1]
    if parts > features:
        return None
    sizes = [len(part) for part in np.array_split(np.arange(features), parts)]
    wanted = np.concatenate(
        [np.arange(max(sizes)) < size for size in sizes]
    )  # smaller sub-vectors are padded with zeros
    spread = []
    for rows in (task.base, task.queries, task.training):
        spread.append(np.zeros((len(rows), len(wanted)), dtype=np.float32))
        spread[-1][:, wanted] = rows
    padded = replace(task, base=spread[0], queries=spread[1], train=spread[2])
    return decoded(padded, faiss.IndexPQ(len(wanted), parts, 8))


def rotated_product(task: Task, length: int) -> Result:
    """Measure optimized product quantization (OPQ)."""
    parts, features = length // 8, task.base.shape[1]
    width = parts * max(-(-min(features, 4 * parts) // parts), -(-features // parts) if features <= 128 else 1)
    index = faiss.IndexPreTransform(faiss.OPQMatrix(features, parts, width), faiss.IndexPQ(width, parts, 8))
    return decoded(task, index)


def residual(task: Task, length: int) -> Result:
    """Measure FAISS's residual quantizer (RQ), ranked by exact distances to decoded items."""
    index = faiss.IndexResidualQuantizer(task.base.shape[1], length // 8, 8)
    index.rq.max_beam_size = 8
    return decoded(task, index)


def local_search(task: Task, length: int, iterations: int | None = None) -> Result:
    """Measure FAISS's local search quantizer (LSQ), ranked by exact distances to decoded items."""
    index = faiss.IndexLocalSearchQuantizer(task.base.shape[1], length // 8, 8)
    if iterations is not None or len(task.base) < 1000:  # a smoke test
        index.lsq.train_iters = iterations or 1
    return decoded(task, index)


def decoded(task: Task, index: Any) -> Result:
    """Rank by distances to decoded items."""
    start = time.perf_counter()
    index.train(task.training)
    fitted = time.perf_counter()
    codes = index.sa_encode(task.base)
    encoded = time.perf_counter()
    return Result(recall_of_decoded(task, index.sa_decode(codes)), fitted - start, encoded - fitted)


def recall_of_decoded(task: Task, rows: Floats) -> float:
    """Return the recall of ranking by distances to decoded items; for the cosine, of distances or angles."""
    found = [exact_neighbors(task.queries, rows, NEAREST)]
    if task.metric == "cosine":
        found.append(exact_neighbors(task.queries, rows, NEAREST, "cosine"))
    return max(map(task.recall, found))


def searched(task: Task, index: Any) -> Result:
    """Rank by the index's own search."""
    start = time.perf_counter()
    index.train(task.training)
    fitted = time.perf_counter()
    index.add(task.base)
    encoded = time.perf_counter()
    return Result(task.recall(index.search(task.queries, NEAREST)[1]), fitted - start, encoded - fitted)


def rabitq(task: Task, length: int) -> Result | None:
    """Measure RaBitQ without query quantization."""
    return best_fit(task, length, faiss.IndexRaBitQ)


def eden(task: Task, length: int) -> Result | None:
    """Measure EDEN: one to eight bits per dimension after a random rotation."""
    return best_fit(task, length, faiss.IndexEDEN)


def best_fit(task: Task, length: int, kind: Any) -> Result | None:
    """Return the best result of 1, 2, 4 and 8 bits per dimension, with as many principal components as fit."""
    results = []
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
            results.append(searched(task, faiss.IndexPreTransform(turn, index)))
    return max(results, key=lambda result: result.recall, default=None)


def turbovec(task: Task, length: int) -> Result | None:
    """Measure TurboQuant of 2 or 4 bits per dimension, with as many principal components as fit beside its norm."""
    if task.metric == "l2" or find_spec("turbovec") is None:
        return None
    results = []
    for bits in (2, 4):
        size = min((length - 32) // bits, task.base.shape[1]) // 8 * 8
        if size <= 0:
            continue
        start = time.perf_counter()
        turn = faiss.PCAMatrix(task.base.shape[1], size, 0, True)
        turn.train(task.training)
        index = import_module("turbovec").TurboQuantIndex(dim=size, bit_width=bits)
        index.calibrate(turn.apply(task.training))
        fitted = time.perf_counter()
        index.add(turn.apply(task.base))
        encoded = time.perf_counter()
        found = np.asarray(index.search(turn.apply(task.queries), NEAREST)[1], dtype=np.int64)
        results.append(Result(task.recall(found), fitted - start, encoded - fitted))
    return max(results, key=lambda result: result.recall, default=None)


PEERS: dict[str, Peer] = {
    "FAISS ITQ": itq,
    "FAISS PQ": product,
    "FAISS OPQ": rotated_product,
    "FAISS RaBitQ": rabitq,
    "FAISS EDEN": eden,
    "turbovec": turbovec,
    "FAISS RQ": residual,
    "FAISS LSQ": local_search,
}
