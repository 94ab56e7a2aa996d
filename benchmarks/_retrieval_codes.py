"""Codes of the peers, trained anew for each length, and how well codes of any kind find their class."""

from collections.abc import Callable, Mapping
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nestcode import Codes, Index

Coding = Callable[[Tensor], Tensor]  # from rows to numbers whose signs are bits, (n, features) -> (n, bits)
ROUNDS = 50  # of ITQ
DEPTH = 1000  # of the rankings
PIECE = 500  # queries ranked at a time


def lsh(X: Tensor, bits: int, generator: torch.Generator) -> Coding:
    """Random directions through the mean."""
    mean, directions = X.mean(dim=0), _normal(X.shape[1], bits, X, generator)
    return lambda rows: (rows - mean) @ directions


def sign_pca(X: Tensor, bits: int, generator: torch.Generator) -> Coding:  # noqa: ARG001
    """Principal directions through the mean."""
    mean, directions = X.mean(dim=0), principal(X)[:, :bits]
    return lambda rows: (rows - mean) @ directions


def itq(X: Tensor, bits: int, generator: torch.Generator) -> Coding:
    """Principal directions, turned so that rows are near to corners (Gong and Lazebnik 2011)."""
    mean, directions = X.mean(dim=0), principal(X)[:, :bits]
    rows = (X - mean) @ directions
    turn = torch.linalg.qr(_normal(directions.shape[1], directions.shape[1], X, generator))[0]
    for _ in range(ROUNDS):
        left, _, right = torch.linalg.svd((rows @ turn).sign().T @ rows)
        turn = (left @ right).T
    return lambda rows: (rows - mean) @ directions @ turn


PEERS: dict[str, Callable[[Tensor, int, torch.Generator], Coding]] = {"LSH": lsh, "sign PCA": sign_pca, "ITQ": itq}


@lru_cache(maxsize=1)  # of the same tensor, for each length
def principal(X: Tensor) -> Tensor:
    """Principal directions, the one of the largest variance first, (features, features).

    >>> principal(torch.tensor([[0.0, 1.0], [0.0, -1.0], [0.1, 0.0]]))[:, 0].abs().round()
    tensor([0., 1.])
    """
    rows = (X - X.mean(dim=0)).double()
    directions: Tensor = torch.linalg.eigh(rows.T @ rows)[1].flip(1).float()
    return directions


def peer_precision(
    name: str, X: Tensor, labels: Tensor, queries: Tensor, asked: Tensor, lengths: list[int]
) -> dict[int, float]:
    """The mean average precision of a peer's codes, by length."""
    found = {}
    for bits in lengths:
        code = PEERS[name](X, bits, torch.Generator().manual_seed(0))
        found[bits] = mean_precision(code(X) > 0, labels, code(queries) > 0, asked)
    return found


def mean_precision(bits: Tensor, labels: Tensor, queries: Tensor, asked: Tensor) -> float:
    """Mean average precision of the thousand nearest by Hamming distance, by class: bits are (n, width) booleans.

    >>> bits = torch.tensor([[0, 0], [1, 0], [1, 1]]) > 0
    >>> round(mean_precision(bits, torch.tensor([5, 7, 5]), bits[:1], torch.tensor([5])), 4)    # right, wrong, right
    0.8333

    Of items at the same distance the first of the data comes first.
    """
    kind = torch.float16 if bits.device.type == "cuda" else torch.float32  # exact: sums of up to 2048 ones
    base = bits.to(kind) * 2 - 1
    order = torch.arange(len(base), device=bits.device) / len(base)  # below 1, where distances differ by 2
    depth = min(DEPTH, len(base))
    places = torch.arange(1, depth + 1, device=bits.device)
    total = torch.zeros((), device=bits.device)
    for piece, labels_of in zip(queries.split(PIECE), asked.split(PIECE), strict=True):
        near = (piece.to(kind) * 2 - 1) @ base.T
        nearest = (near.float() - order).topk(depth, dim=1).indices
        right = (labels[nearest] == labels_of[:, None]).float()
        precision = right.cumsum(dim=1) / places
        total += ((precision * right).sum(dim=1) / right.sum(dim=1).clamp(min=1)).sum()
    return float(total / len(queries))


def precision_of(code: Mapping[str, NDArray[np.bool_]], labels: Tensor, asked: Tensor, length: int) -> float:
    """The mean average precision of prefixes of codes."""
    base, queries = (torch.from_numpy(code[part][:, :length]).to(labels.device) for part in ("base", "queries"))
    return mean_precision(base, labels, queries, asked)


def knn_accuracy(
    bits: NDArray[np.bool_], labels: NDArray[np.int64], queries: NDArray[np.bool_], asked: NDArray[np.int64], k: int
) -> float:
    """How often most of the k nearest in an index of all codes are of the query's class.

    >>> bits = np.array([[0, 0, 0], [0, 0, 1], [1, 1, 1], [1, 1, 0]], dtype=bool)
    >>> knn_accuracy(bits, np.array([4, 4, 2, 2]), bits[1:3], np.array([4, 2]), k=2)
    1.0
    """
    index = Index(width=bits.shape[1])
    index.add(Codes.from_bits(bits))
    hits = index.search(Codes.from_bits(queries), k=k, candidates=len(bits), threads=None)
    votes = np.zeros((len(queries), labels.max() + 1), dtype=np.int64)
    for column in labels[hits.ids].T:
        votes[np.arange(len(votes)), column] += 1
    return float((votes.argmax(axis=1) == asked).mean())


def _normal(rows: int, columns: int, like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(rows, columns, generator=generator).to(like)
