"""The fitted linear coder: a mean, principal directions and bit planes."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from nestcode.arrays import center, pieces, squared_norms
from nestcode.coders import sampling
from nestcode.coders.bit_planes import BitPlaneModel
from nestcode.coders.scalar_quantizer import BitPlanes, TreeQuantizer, allocate_bits, check_bit_planes
from nestcode.storage import Arrays, check_arrays

ON_DISK = {"owners": "allocation", "errors": "errors", "thresholds": "thresholds", "centers": "levels"}  # of planes


@dataclass(frozen=True, eq=False)
class LinearModel(BitPlaneModel):
    """Principal directions and the bits of each."""

    @classmethod
    def train(cls, parts: Iterable[NDArray[Any]], settings: dict[str, Any]) -> Self:
        """Return the model of rows that come in pieces: PCA, then greedy bit allocation on a sample."""
        rng, width = np.random.default_rng(settings["seed"]), settings["width"]
        normalize = settings["metric"] == "cosine"
        reservoir = sampling.Reservoir(rng, sampling.SAMPLE_ROWS, sampling.SAMPLE_BYTES)
        summary = sampling.summarize(parts, normalize=normalize, reservoir=reservoir)
        _, mean, covariance, rows = summary
        directions = sampling.principal_directions(covariance, min(width, len(mean)), rng)
        sample = [center(part, mean, normalize=normalize) for part in pieces(rows)]
        total = float(sum(squared_norms(part).sum() for part in sample) / len(rows))
        coefficients, trees = np.empty((len(rows), 0), dtype=np.float32), dict[int, TreeQuantizer]()
        for count in (len(directions) // 2 + 1, len(directions)):  # half of them mostly suffice, at half the work
            more = directions[coefficients.shape[1] : count]
            coefficients = np.hstack([coefficients, np.concatenate([part @ more.T for part in sample])])
            planes = allocate_bits(coefficients, total, width, trees=trees)
            if len(planes.thresholds) < count:
                break
        used = np.ascontiguousarray(directions[: len(planes.thresholds)])
        return cls(settings, mean, used, planes.errors, planes)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the model's arrays under their names on disk."""
        planes = {name: getattr(self.planes, field) for name, field in ON_DISK.items()}
        return {"mean": self.mean, "directions": self.directions, **planes}

    @classmethod
    def from_arrays(cls, settings: dict[str, Any], arrays: Arrays) -> Self:
        """Return the model of checked settings and unchecked arrays, or raise ValueError."""
        mean, directions = arrays["mean"], arrays["directions"]
        check_arrays(
            arrays,
            {"mean": (np.float64, mean.shape[:1]), "directions": (np.float32, (len(directions), len(mean)))},
        )
        planes = BitPlanes(**{field: arrays[name] for name, field in ON_DISK.items()})
        check_bit_planes(planes, settings["width"], len(directions))
        return cls(settings, mean, directions, planes.errors, planes)
