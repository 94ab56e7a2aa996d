"""Peer codes, trained for each length, and the retrieval metrics of all codes: mAP@1000 and k-NN accuracy."""

from collections.abc import Callable, Mapping
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nestcode import Codes, Index

Encoder = Callable[[Tensor], Tensor]  # to values whose signs are the bits, (n, features) -> (n, bits)
ITERATIONS = 50  # of ITQ
DEPTH = 1000  # of the rankings
BATCH = 500  # queries ranked at a time


def lsh(X: Tensor, bits: int, generator: torch.Generator) -> Encoder:
    """Return signs of random projections around the mean (LSH)."""
    mean, directions = X.mean(dim=0), _normal(X.shape[1], bits, X, generator)
    return lambda rows: (rows - mean) @ directions


def sign_pca(X: Tensor, bits: int, generator: torch.Generator) -> Encoder:  # noqa: ARG001
    """Return signs of the principal components."""
    mean, directions = X.mean(dim=0), principal(X)[:, :bits]
    return lambda rows: (rows - mean) @ directions


def itq(X: Tensor, bits: int, generator: torch.Generator) -> Encoder:
    """Return signs of rotated principal components: iterative quantization (Gong and Lazebnik 2011)."""
    mean, directions = X.mean(dim=0), principal(X)[:, :bits]
    rows = (X - mean) @ directions
    rotation = torch.linalg.qr(_normal(directions.shape[1], directions.shape[1], X, generator))[0]
    for _ in range(ITERATIONS):
        left, _, right = torch.linalg.svd((rows @ rotation).sign().T @ rows)
        rotation = (left @ right).T
    return lambda rows: (rows - mean) @ directions @ rotation


PEERS: dict[str, Callable[[Tensor, int, torch.Generator], Encoder]] = {"LSH": lsh, "sign PCA": sign_pca, "ITQ": itq}


@lru_cache(maxsize=1)  # of the same tensor, for each length
def principal(X: Tensor) -> Tensor:
    """Return the principal directions by descending variance, (features, features).

    >>> principal(torch.tensor([[0.0, 1.0], [0.0, -1.0], [0.1, 0.0]]))[:, 0].abs().round()
    tensor([0., 1.])
    """
    rows = (X - X.mean(dim=0)).double()
    directions: Tensor = torch.linalg.eigh(rows.T @ rows)[1].flip(1).float()
    return directions


def peer_precision(
    name: str, X: Tensor, labels: Tensor, queries: Tensor, query_labels: Tensor, lengths: list[int]
) -> dict[int, float]:
    """Return the mAP@1000 of a peer's codes by length."""
    precision = {}
    for bits in lengths:
        code = PEERS[name](X, bits, torch.Generator().manual_seed(0))
        precision[bits] = mean_precision(code(X) > 0, labels, code(queries) > 0, query_labels)
    return precision


def mean_precision(bits: Tensor, labels: Tensor, queries: Tensor, query_labels: Tensor) -> float:
    """Return the mAP@1000 by class of a ranking by Hamming distance; bits are (n, width) booleans.

    >>> bits = torch.tensor([[0, 0], [1, 0], [1, 1]]) > 0
    >>> round(mean_precision(bits, torch.tensor([5, 7, 5]), bits[:1], torch.tensor([5])), 4)    # right, wrong, right
    0.8333

    Ties are ranked in the order of the database.
    """
    dtype = torch.float16 if bits.device.type == "cuda" else torch.float32  # exact for sums of up to 2048 ones
    base = bits.to(dtype) * 2 - 1
    tie_break = torch.arange(len(base), device=bits.device) / len(base)  # below 1; products differ by 2
    depth = min(DEPTH, len(base))
    ranks = torch.arange(1, depth + 1, device=bits.device)
    total = torch.zeros((), device=bits.device)
    for piece, labels_of in zip(queries.split(BATCH), query_labels.split(BATCH), strict=True):
        near = (piece.to(dtype) * 2 - 1) @ base.T
        nearest = (near.float() - tie_break).topk(depth, dim=1).indices
        right = (labels[nearest] == labels_of[:, None]).float()
        precision = right.cumsum(dim=1) / ranks
        total += ((precision * right).sum(dim=1) / right.sum(dim=1).clamp(min=1)).sum()
    return float(total / len(queries))


def precision_of(code: Mapping[str, NDArray[np.bool_]], labels: Tensor, query_labels: Tensor, length: int) -> float:
    """Return the mAP@1000 of the prefixes of codes."""
    base, queries = (torch.from_numpy(code[part][:, :length]).to(labels.device) for part in ("base", "queries"))
    return mean_precision(base, labels, queries, query_labels)


def knn_accuracy(
    bits: NDArray[np.bool_],
    labels: NDArray[np.int64],
    queries: NDArray[np.bool_],
    query_labels: NDArray[np.int64],
    k: int,
) -> float:
    """Return the accuracy of a k-nearest-neighbor vote in an index of all codes.

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
    return float((votes.argmax(axis=1) == query_labels).mean())


def _normal(rows: int, columns: int, like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(rows, columns, generator=generator).to(like)
