"""The fitted cell coder: a mean, principal directions, centroids, and bit planes of the residual."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from nestcode.arrays import Bytes, Doubles, Floats, center, pieces, squared_norms
from nestcode.coders import sampling
from nestcode.coders.base import ScalarLayout
from nestcode.coders.cell.kmeans import (
    DIRECTIONS,
    MOST_CELL_BITS,
    MOST_CHOSEN_BITS,
    assign,
    check_cells,
    choose_bits,
    leading_directions,
    prefix_centroids,
    train_centroids,
    training_rows,
)
from nestcode.coders.projected import ProjectedModel
from nestcode.coders.scalar_quantizer import BitPlanes, allocate_bits, check_bit_planes, dequantize, quantize
from nestcode.codes import Codes
from nestcode.fork import lazy_property
from nestcode.storage import Arrays, check_arrays

SAMPLE_BYTES = 1 << 30
ON_DISK = {"mean": "mean", "directions": "directions", "centers": "centroids", "counts": "counts", "errors": "errors"}
PLANES_ON_DISK = {"owners": "allocation", "thresholds": "thresholds", "levels": "levels"}


@dataclass(frozen=True, eq=False)
class CellModel(ProjectedModel):
    """A coarse quantizer and the scalar quantizers of the residual."""

    centroids: Floats  # (cells, directions): zeros in directions that k-means did not see
    counts: NDArray[np.int64]  # (cells,): training rows assigned to each
    planes: BitPlanes  # of the residual

    @classmethod
    def train(cls, parts: Iterable[NDArray[Any]], settings: dict[str, Any]) -> Self:
        """Return the model of rows that come in pieces: PCA, k-means, then bit allocation for the residual."""
        rng, width = np.random.default_rng(settings["seed"]), settings["width"]
        normalize = settings["metric"] == "cosine"
        most = training_rows(settings["cells"] or 1 << MOST_CHOSEN_BITS) + sampling.SAMPLE_ROWS
        reservoir = sampling.Reservoir(rng, most, SAMPLE_BYTES)
        summary = sampling.summarize(parts, normalize=normalize, reservoir=reservoir)
        cells = settings["cells"] or 1 << min(choose_bits(summary.total), width)
        order = rng.permutation(len(summary.sample))[: training_rows(cells) + sampling.SAMPLE_ROWS]
        summary = summary._replace(sample=summary.sample[order])
        _, mean, covariance, sample = summary
        count = min(max(width, DIRECTIONS), len(mean))
        directions = sampling.principal_directions(covariance, count, rng)
        seen = directions[: leading_directions(directions, covariance)]
        train = pieces(sample[: training_rows(cells)])
        coefficients = np.concatenate([center(part, mean, normalize=normalize) @ seen.T for part in train])
        centroids, counts = train_centroids(coefficients, cells, rng)
        # Mostly rows that k-means was not trained on: the residuals of its own rows are smaller.
        rows = [center(part, mean, normalize=normalize) for part in pieces(sample[-sampling.SAMPLE_ROWS :])]
        planes, errors = _allocate_residual(rows, directions, centroids, counts, width)
        used = max(len(planes.levels), len(seen))
        directions = np.ascontiguousarray(directions[:used])
        planes = replace(planes, thresholds=_pad_rows(planes.thresholds, used), levels=_pad_rows(planes.levels, used))
        return cls(settings, mean, directions, errors, _pad_rows(centroids.T, used).T.copy(), counts, planes)

    @property
    def cell_bits(self) -> int:
        """Bits of a cell's number."""
        return len(self.centroids).bit_length() - 1

    @property
    def useful_bits(self) -> int:
        """Bits up to the length of the smallest error."""
        return int(np.argmin(self.errors))  # the first of the smallest: errors never rise

    @lazy_property
    def _seen_centroids(self) -> Floats:
        """Centroids in the directions that k-means saw, (cells, seen)."""
        seen = int(np.flatnonzero(self.centroids.any(axis=0)).max(initial=-1)) + 1
        return np.ascontiguousarray(self.centroids[:, :seen])

    def encode(self, coefficients: Floats, packed: Bytes) -> None:
        """Write the codes of coefficients, (n, directions), into packed rows: the cell, then the residual's bits."""
        bits, centroids = self.cell_bits, self._seen_centroids
        cells = assign(coefficients[:, : centroids.shape[1]], centroids)
        coefficients -= self.centroids.take(cells, axis=0)
        centroid_bits = (cells << (MOST_CELL_BITS - bits)).astype(">u2").view(np.uint8).reshape(-1, 2)
        quantize(coefficients, self.planes, packed, centroid_bits, bits)

    def decode(self, codes: Codes, threads: int) -> Floats:
        """Return the coefficients that codes of any length decode to, (n, directions)."""
        bits = self.cell_bits
        out = dequantize(codes.packed, self.planes, max(codes.width - bits, 0), bits, threads)
        cells = codes.leading_bits(min(codes.width, bits))  # of the centroids at this length
        out += self.centroids_at(codes.width).take(cells, axis=0)
        return out

    def layout(self, length: int) -> ScalarLayout:
        """Return the centroids and bit planes of the first `length` bits."""
        left = max(length - self.cell_bits, 0)
        planes = replace(self.planes, allocation=self.planes.allocation[:left], errors=self.planes.errors[: left + 1])
        return ScalarLayout(self.centroids_at(length), planes)

    def centroids_at(self, length: int) -> Floats:
        """Return the centroids when `length` bits are known, (2^length or cells, directions)."""
        return prefix_centroids(self.centroids, self.counts, min(length, self.cell_bits))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the model's arrays under their names on disk."""
        planes = {name: getattr(self.planes, field) for name, field in PLANES_ON_DISK.items()}
        return {**{name: getattr(self, field) for name, field in ON_DISK.items()}, **planes}

    @classmethod
    def from_arrays(cls, settings: dict[str, Any], arrays: Arrays) -> Self:
        """Return the model of checked settings and unchecked arrays, or raise ValueError."""
        width, cells = settings["width"], settings["cells"] or len(arrays["centers"])
        check_cells(cells, width)
        directions, features = len(arrays["directions"]), len(arrays["mean"])
        expected: dict[str, tuple[type[Any], tuple[int, ...]]] = {
            "mean": (np.float64, (features,)),
            "directions": (np.float32, (directions, features)),
            "centers": (np.float32, (cells, directions)),
            "counts": (np.int64, (cells,)),
            "errors": (np.float64, (width + 1,)),
        }
        check_arrays(arrays, expected)
        if arrays["counts"].min() < 0:
            raise ValueError("its counts are below 0")
        bits = cells.bit_length() - 1
        fields = {field: arrays[name] for name, field in PLANES_ON_DISK.items()}
        planes = BitPlanes(**fields, errors=arrays["errors"][bits:])
        check_bit_planes(planes, width - bits, directions)
        return cls(settings, **{field: arrays[name] for name, field in ON_DISK.items()}, planes=planes)


def _allocate_residual(
    rows: list[Floats], directions: Floats, centroids: Floats, counts: NDArray[np.int64], width: int
) -> tuple[BitPlanes, Doubles]:
    """Return the bit planes of the residuals of centered rows, and the errors at every length, (width + 1,)."""
    bits, seen = len(centroids).bit_length() - 1, centroids.shape[1]
    residuals = np.concatenate([part @ directions.T for part in rows])
    near = residuals[:, :seen].copy()
    cells = assign(near, centroids)
    outside = sum(float(squared_norms(part).sum()) for part in rows) / len(near) - squared_norms(near).mean()
    subtrees = (prefix_centroids(centroids, counts, length)[cells >> (bits - length)] for length in range(bits + 1))
    errors = max(outside, 0.0) + np.array([squared_norms(near - part).mean() for part in subtrees])
    residuals[:, :seen] -= centroids[cells]
    planes = allocate_bits(residuals, errors[-1], width - bits, smallest=1e-9 * errors[0])
    errors = np.minimum.accumulate(np.concatenate([errors, planes.errors[1:]]))
    return replace(planes, errors=errors[bits:]), errors


def _pad_rows(rows: Floats, count: int) -> Floats:
    """Return the rows followed by zeros, `count` in all."""
    return np.concatenate([rows, np.zeros((count - len(rows), rows.shape[1]), dtype=np.float32)])
