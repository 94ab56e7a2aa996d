"""The cell coder: which cell of k-means an item lies in, then ordered bit planes of what the cell's centre leaves.

Cells of k-means follow the data where it is dense, so a search reads the few that are nearest to its query. They are
the leaves of a binary tree, in order: the first bits of a cell's number name the part of the tree it lies in, and stand
for the mean of that part.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nestcode.arrays import Doubles, Floats, center, check_int, check_rows, pieces, squared_norms
from nestcode.coders import sampling as _principal
from nestcode.coders.base import ScalarLayout, warn_of_useless_bits
from nestcode.coders.bit_planes import Planes, check_planes, order_bits, pack_bits, read_bits
from nestcode.coders.cell.kmeans import (
    DIRECTIONS,
    MOST_BITS,
    MOST_CHOSEN_BITS,
    assign,
    choose_bits,
    leading_directions,
    prefix_centroids,
    train_centroids,
    training_rows,
)
from nestcode.coders.projected import DirectionsCoder
from nestcode.coders.sampling import Reservoir, moments_and_sample, principal_directions
from nestcode.codes import CORES, Codes
from nestcode.errors import InvalidInput
from nestcode.storage import Record, check_arrays

SAMPLE_BYTES = 1 << 30
_ARRAYS = ("mean", "directions", "centers", "counts", "errors")
_PLANES = {"owners": "owners", "thresholds": "thresholds", "levels": "centers"}  # as the file names them


class CellCoder(DirectionsCoder["_Model"]):
    """Cells of k-means with ordered bit planes inside; best for fast search.

    >>> from nestcode.data import digits
    >>> X, _ = digits()
    >>> coder = CellCoder(width=64, cells=16).fit(X)
    >>> codes = coder.encode(X)
    >>> [round(float(np.mean((X - coder.decode(codes.prefix(k))) ** 2)), 4) for k in (0, 2, 4, 32, 64)]
    [0.0733, 0.056, 0.037, 0.0148, 0.0067]

    Args:
        width: bits of a code.
        metric: "l2", or "cosine" to scale every item to length 1 first and compare what decodes by angle.
        cells: how many, a power of two of at most 65,536; their number takes the first bits of a code. None has one
            for about 160 items, and at most 4,096.
        seed: of the sample that is trained on, and of where k-means begins.

    """

    def __init__(
        self, width: int, metric: Literal["l2", "cosine"] = "l2", cells: int | None = None, seed: int = 0
    ) -> None:
        check_int(width, "width", least=1)
        check_int(seed, "seed", least=0)
        if metric not in ("l2", "cosine"):
            raise InvalidInput(f'metric must be "l2" or "cosine", got {metric!r}')
        if cells is not None:
            number = check_int(cells, "cells", least=2)
            if number & (number - 1) or number > 1 << MOST_BITS:
                raise InvalidInput(f"cells must be a power of two of at most {1 << MOST_BITS}, got {number}")
            if number.bit_length() - 1 > width:
                raise InvalidInput(
                    f"a cell's number must fit the width {width}, but {number} cells take {number.bit_length() - 1} "
                    f"bits: have at most {1 << width} cells or wider codes"
                )
        self.width = width
        self.metric = metric
        self.cells = cells
        self.seed = seed
        self._model: _Model | None = None

    def fit(self, X: ArrayLike | Iterable[ArrayLike], y: object = None) -> Self:  # noqa: ARG002
        """Learn from data, (n, features): an array, a memory map, or an iterable of arrays larger than memory."""
        rng = np.random.default_rng(self.seed)
        normalize = self.metric == "cosine"
        most = training_rows(self.cells or 1 << MOST_CHOSEN_BITS) + _principal.SAMPLE_ROWS
        moments, sample = moments_and_sample(
            pieces(X), normalize=normalize, reservoir=Reservoir(rng, most, SAMPLE_BYTES)
        )
        cells = 1 << min(choose_bits(moments.count), self.width) if self.cells is None else int(self.cells)
        sample = sample[rng.permutation(len(sample))[: training_rows(cells) + _principal.SAMPLE_ROWS]]
        mean, covariance = moments.mean(), moments.covariance()
        directions = principal_directions(covariance, min(max(self.width, DIRECTIONS), len(mean)), rng)
        seen = directions[: leading_directions(directions, covariance)]
        learnt = (center(part, mean, normalize=normalize) @ seen.T for part in pieces(sample[: training_rows(cells)]))
        centers, counts = train_centroids(np.concatenate(list(learnt)), cells, rng)
        # Mostly rows that k-means has not seen: of those it has, centres leave less.
        rows = [center(part, mean, normalize=normalize) for part in pieces(sample[-_principal.SAMPLE_ROWS :])]
        planes, errors = _order_planes(rows, directions, centers, counts, self.width)
        used = max(len(planes.centers), len(seen))
        directions = np.ascontiguousarray(directions[:used])
        planes = replace(planes, thresholds=_widen(planes.thresholds, used), centers=_widen(planes.centers, used))
        self._model = _Model(mean, directions, _widen(centers.T, used).T.copy(), counts, planes, errors, normalize)
        useful = int(np.argmin(errors))  # the first of the smallest: they never rise
        if useful < self.width:
            warn_of_useless_bits(useful, self.width)
        self._learn_columns(X)
        return self

    def encode(self, X: ArrayLike) -> Codes:
        """(n, features) -> codes of `width` bits."""
        model = self._fitted()
        rows = check_rows(X, features=len(model.mean))
        packed = np.empty((len(rows), -(-model.width // 8)), dtype=np.uint8)
        bits, seen = model.cell_bits, int(np.flatnonzero(model.centers.any(axis=0)).max(initial=-1)) + 1
        book, done = np.ascontiguousarray(model.centers[:, :seen]), 0
        for part in pieces(rows):
            coefficients = self._project(part)
            cells = assign(coefficients[:, :seen], book)
            coefficients -= model.centers.take(cells, axis=0)
            heads = (cells << (MOST_BITS - bits)).astype(">u2").view(np.uint8).reshape(-1, 2)
            pack_bits(coefficients, model.planes, packed[done : done + len(part)], heads, bits)
            done += len(part)
        return Codes.unchecked(packed, model.width)

    def layout(self, length: int) -> ScalarLayout:
        """Return the centroids and bit planes of the first `length` bits."""
        model = self._fitted()
        planes, left = model.planes, max(length - model.cell_bits, 0)
        planes = replace(planes, owners=planes.owners[:left], errors=planes.errors[: left + 1])
        return ScalarLayout(model.centers_at(length), planes)

    def coefficients(self, codes: Codes, threads: int = CORES) -> Floats:
        """Decode codes to principal coefficients around the mean, (n, directions)."""
        model = self._fitted()
        self.check_codes(codes)
        bits = model.cell_bits
        out = read_bits(codes.packed, model.planes, max(codes.width - bits, 0), bits, threads)
        out += model.centers_at(codes.width).take(model.cells_of(codes), axis=0)
        return out

    def to_record(self) -> Record:
        """Return the fitted coder as a record."""
        model = self._fitted()
        arrays: dict[str, NDArray[Any]] = {name: getattr(model, name) for name in _ARRAYS}
        planes = {name: getattr(model.planes, field) for name, field in _PLANES.items()}
        settings = {
            "width": model.width,
            "metric": "cosine" if model.normalize else "l2",
            "cells": None if self.cells is None else len(model.centers),
            "seed": int(self.seed),
        }
        return Record("CellCoder", self.VERSION, settings, {**arrays, **planes})

    @classmethod
    def _read(cls, record: Record) -> Self:
        coder = cls(**record.settings)
        arrays = {name: record.arrays[name] for name in _ARRAYS}
        cells, count = coder.cells or len(arrays["centers"]), len(arrays["directions"])
        CellCoder(coder.width, cells=cells)  # which refuses a number of cells that cannot be
        expected: dict[str, tuple[type[Any], tuple[int, ...]]] = {
            "mean": (np.float64, arrays["mean"].shape[:1]),
            "directions": (np.float32, (count, len(arrays["mean"]))),
            "centers": (np.float32, (cells, count)),
            "counts": (np.int64, (cells,)),
            "errors": (np.float64, (coder.width + 1,)),
        }
        check_arrays(arrays, expected)
        if arrays["counts"].min() < 0:
            raise ValueError("its counts are below 0")
        bits = cells.bit_length() - 1
        fields = {field: record.arrays[name] for name, field in _PLANES.items()}
        planes = Planes(**fields, errors=arrays["errors"][bits:])
        check_planes(planes, coder.width - bits, count)
        coder._model = _Model(**arrays, planes=planes, normalize=coder.metric == "cosine")
        return coder


@dataclass(frozen=True)
class _Model:
    """What a fit found."""

    mean: Doubles
    directions: Floats  # (directions, features)
    centers: Floats  # (cells, directions): zeros in directions that k-means did not see
    counts: NDArray[np.int64]  # (cells,): rows of the sample in each
    planes: Planes  # of what the centres leave
    errors: Doubles  # (width + 1,): the mean squared error of a row by length
    normalize: bool

    @property
    def width(self) -> int:
        return len(self.errors) - 1

    @property
    def cell_bits(self) -> int:
        return len(self.centers).bit_length() - 1

    def centers_at(self, length: int) -> Floats:
        """The centres when `length` bits are known, (2^length or cells, directions)."""
        return prefix_centroids(self.centers, self.counts, min(length, self.cell_bits))

    def cells_of(self, codes: Codes) -> NDArray[np.int64]:
        """Which of these centres each code names."""
        bits = min(codes.width, self.cell_bits)
        numbers = np.zeros(len(codes), dtype=np.int64)
        for byte in range(-(-bits // 8)):
            numbers = numbers << 8 | codes.packed[:, byte]
        return numbers >> -bits % 8


def _order_planes(
    rows: list[Floats], directions: Floats, centers: Floats, counts: NDArray[np.int64], width: int
) -> tuple[Planes, Doubles]:
    """The bit planes of what centres leave of rows around the mean, and all errors by length."""
    bits, seen = len(centers).bit_length() - 1, centers.shape[1]
    left = np.concatenate([part @ directions.T for part in rows])
    near = left[:, :seen].copy()
    cells = assign(near, centers)
    outside = sum(float(squared_norms(part).sum()) for part in rows) / len(near) - squared_norms(near).mean()
    parts = (prefix_centroids(centers, counts, length)[cells >> (bits - length)] for length in range(bits + 1))
    errors = max(outside, 0.0) + np.array([squared_norms(near - part).mean() for part in parts])
    left[:, :seen] -= centers[cells]
    planes = order_bits(left, errors[-1], width - bits, smallest=1e-9 * errors[0])
    errors = np.minimum.accumulate(np.concatenate([errors, planes.errors[1:]]))
    return replace(planes, errors=errors[bits:]), errors


def _widen(rows: Floats, count: int) -> Floats:
    """These rows, and zeros up to `count` of them."""
    return np.concatenate([rows, np.zeros((count - len(rows), rows.shape[1]), dtype=np.float32)])
