"""Codes that the first table of the search benchmark compares ours with: FAISS's, and sign bits."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import faiss
import numpy as np

from _search_task import NEAREST, Floats, Task, first
from nestcode.metrics import exact_neighbors

DIRECTIONS = 512  # principal directions that peers see of wider data: as many as a code has bits at most


@dataclass(frozen=True)
class Answer:
    """One method at one length."""

    recall: float
    fit: float  # seconds
    encode: float


Peer = Callable[[Task, int], Answer | None]  # nothing where the method has no code of so few or so many bits


class Principal(NamedTuple):
    """Principal directions as columns, the largest first, and the seconds it took to find them."""

    mean: Floats
    vectors: Floats
    seconds: float


def principal_directions(rows: Floats) -> Principal:
    """All of them."""
    start = time.perf_counter()
    mean: Floats = rows.mean(axis=0)
    _, vectors = np.linalg.eigh(np.cov((rows - mean).T))
    return Principal(mean, np.ascontiguousarray(vectors[:, ::-1], dtype=np.float32), time.perf_counter() - start)


def reduce(task: Task, principal: Principal) -> Task:
    """The task in its first principal directions, where it has very many: FAISS's rotations get too slow there."""
    if task.base.shape[1] <= DIRECTIONS:
        return task
    mean, turn = principal.mean, principal.vectors[:, :DIRECTIONS]
    base, queries = (((part - mean) @ turn).astype(np.float32) for part in (task.base, task.queries))
    return replace(task, base=base, queries=queries)


def sign_bits(task: Task, principal: Principal, lengths: tuple[int, ...]) -> dict[int, Answer | None]:
    """The signs of the first principal components, compared by Hamming distance."""
    longest = max((length for length in lengths if length <= task.base.shape[1]), default=0)
    start = time.perf_counter()
    turn = principal.vectors[:, :longest]
    base, queries = (np.sign((part - principal.mean) @ turn) for part in (task.base, task.queries))
    encode = time.perf_counter() - start
    answers: dict[int, Answer | None] = {}
    for length in lengths:
        if length > longest:
            break
        parts = (queries[i : i + 256, :length] for i in range(0, len(queries), 256))
        found = np.concatenate([first(-(part @ base[:, :length].T)) for part in parts])
        last = length == longest
        answers[length] = Answer(task.recall(found), principal.seconds if last else 0.0, encode if last else 0.0)
    return answers


def itq(task: Task, length: int) -> Answer:
    """Iterative quantization: signs after a rotation that suits them, compared by Hamming distance."""
    return searched(task, itq_index(task.base.shape[1], length))


def itq_index(features: int, length: int) -> Any:
    """FAISS's index of such codes."""
    wide = length > features  # then the rows are first rotated into more directions than they have
    chain: list[Any] = [faiss.RandomRotationMatrix(features, length)] if wide else []
    chain.append(faiss.ITQTransform(length if wide else features, length, not wide))
    index = faiss.IndexPreTransform(faiss.IndexLSH(length, length, False, False))
    for transform in reversed(chain):
        index.prepend_transform(transform)
    return index


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
    return decoded(replace(task, base=spread[0], queries=spread[1]), faiss.IndexPQ(len(wanted), parts, 8))


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
    found = [exact_neighbors(task.queries, rows, NEAREST)]
    if task.metric == "cosine":
        found.append(exact_neighbors(task.queries, rows, NEAREST, "cosine"))
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
    "FAISS ITQ": itq,
    "FAISS PQ": product,
    "FAISS OPQ": rotated_product,
    "FAISS RaBitQ": rabitq,
    "FAISS EDEN": eden,
    "FAISS RQ": residual,
    "FAISS LSQ": local_search,
}
