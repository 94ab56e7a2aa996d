"""The linear coder: principal directions and ordered bit planes.

PCA is the exact solution of nested dropout for a linear autoencoder (section 3 of the paper), and `_planes.py` turns
its units into bits in order of importance. It needs no training loop, and it is the bar that learned coders must clear.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from nestcode.arrays import Doubles, Floats, center, check_int, check_rows, pieces, project, squared_norms
from nestcode.coders import sampling as _principal
from nestcode.coders.base import Coder, Projection, ScalarLayout, error_at, warn_of_useless_bits
from nestcode.coders.bit_planes import Planes, check_planes, order_bits, pack_bits, read_bits
from nestcode.coders.sampling import Reservoir, moments_and_sample, principal_directions
from nestcode.codes import CORES, Codes
from nestcode.errors import InvalidInput
from nestcode.storage import Record, check_arrays


class LinearCoder(Coder):
    """Principal directions with ordered bit planes; best for images and other data with a steep spectrum.

    >>> from nestcode.data import digits
    >>> X, _ = digits()
    >>> coder = LinearCoder(width=64).fit(X)
    >>> codes = coder.encode(X)
    >>> [round(float(np.mean((X - coder.decode(codes.prefix(k))) ** 2)), 4) for k in (0, 8, 16, 32, 64)]
    [0.0733, 0.0396, 0.0274, 0.0159, 0.007]

    Args:
        width: bits of a code. A direction takes at most 8, so at most 8 x features of them can be useful.
        metric: "l2", or "cosine" to scale every item to length 1 first.
        seed: of the sample that the bit planes are grown on (at most 25,000 rows).

    """

    def __init__(self, width: int, metric: Literal["l2", "cosine"] = "l2", seed: int = 0) -> None:
        check_int(width, "width", least=1)
        check_int(seed, "seed", least=0)
        if metric not in ("l2", "cosine"):
            raise InvalidInput(f'metric must be "l2" or "cosine", got {metric!r}')
        self.width = width
        self.metric = metric
        self.seed = seed
        self._model: tuple[Doubles, Floats, Planes] | None = None  # mean, directions as rows, bit planes
        self._normalize = False  # of the fit: a setting changed since waits for the next one

    def fit(self, X: ArrayLike | Iterable[ArrayLike], y: object = None) -> Self:  # noqa: ARG002
        """Learn from data, (n, features): an array, a memory map, or an iterable of arrays larger than memory."""
        rng = np.random.default_rng(self.seed)
        normalize = self.metric == "cosine"
        sample_of = Reservoir(rng, _principal.SAMPLE_ROWS, _principal.SAMPLE_BYTES)
        moments, rows = moments_and_sample(pieces(X), normalize=normalize, reservoir=sample_of)
        mean = moments.mean()
        directions = principal_directions(moments.covariance(), min(self.width, len(mean)), rng)
        sample = [center(part, mean, normalize=normalize) for part in pieces(rows)]
        total = float(sum(squared_norms(part).sum() for part in sample) / len(rows))
        for count in (len(directions) // 2 + 1, len(directions)):  # half of them is mostly enough, and half the work
            coefficients = np.concatenate([part @ directions[:count].T for part in sample])
            planes = order_bits(coefficients, total, self.width)
            if len(planes.thresholds) < count:
                break
        self._model = mean, np.ascontiguousarray(directions[: len(planes.thresholds)]), planes
        self._normalize = normalize
        useful = int((planes.owners >= 0).sum())
        if useful < self.width:
            warn_of_useless_bits(useful, self.width)
        self._learn_columns(X)
        return self

    def encode(self, X: ArrayLike) -> Codes:
        """(n, features) -> codes of `width` bits."""
        mean, _, planes = self._fitted()
        rows = check_rows(X, features=len(mean))
        packed = np.empty((len(rows), -(-len(planes.owners) // 8)), dtype=np.uint8)
        done = 0
        for part in pieces(rows):
            pack_bits(self._project(part), planes, packed[done : done + len(part)])
            done += len(part)
        return Codes.unchecked(packed, len(planes.owners))

    def decode(self, codes: Codes) -> Floats:
        """Codes of any length from 0 to `width` -> (n, features); length 0 gives the mean."""
        mean, directions, planes = self._fitted()
        coefficients = self.coefficients(codes)
        used = int(planes.owners[: codes.width].max(initial=-1)) + 1
        out: Floats = coefficients[:, :used] @ directions[:used]
        out += mean.astype(np.float32)
        return out

    def expected_error(self, length: int) -> float:
        """The mean squared error of a feature at `length` bits, as measured on the sample the bits were grown on."""
        mean, _, planes = self._fitted()
        return error_at(length, planes.errors, len(mean))

    @property
    def n_features_in_(self) -> int:
        """How many features the coder was fitted on."""
        return len(self._fitted()[0])

    def _fitted(self) -> tuple[Doubles, Floats, Planes]:
        if self._model is None:
            raise self._not_fitted()
        return self._model

    def _project(self, queries: ArrayLike) -> Floats:
        """Rows in principal directions around the mean, (n, directions)."""
        mean, directions, _ = self._fitted()
        return project(queries, mean, directions, normalize=self._normalize)

    @property
    def width_(self) -> int:
        """Bits of a code, as fitted."""
        return len(self._fitted()[2].owners)

    @property
    def metric_(self) -> Literal["l2", "cosine"]:
        """The metric the coder was fitted for."""
        self._fitted()
        return "cosine" if self._normalize else "l2"

    def projection(self) -> Projection:
        """Return the principal directions around the mean."""
        mean, directions, _ = self._fitted()
        return Projection(mean, directions)

    def layout(self, length: int) -> ScalarLayout:
        """Return the first `length` bit planes: a scalar quantizer without a coarse one."""
        _, directions, planes = self._fitted()
        none = np.zeros((1, len(directions)), dtype=np.float32)
        return ScalarLayout(none, replace(planes, owners=planes.owners[:length], errors=planes.errors[: length + 1]))

    def coefficients(self, codes: Codes, threads: int = CORES) -> Floats:
        """Decode codes to principal coefficients around the mean, (n, directions)."""
        planes = self._fitted()[2]
        self.check_codes(codes)
        return read_bits(codes.packed, planes, codes.width, threads=threads)

    def to_record(self) -> Record:
        """Return the fitted coder as a record."""
        mean, directions, planes = self._fitted()
        arrays = {"mean": mean, "directions": directions, **vars(planes)}
        metric = "cosine" if self._normalize else "l2"
        settings = {"width": len(planes.owners), "metric": metric, "seed": int(self.seed)}
        return Record("LinearCoder", self.VERSION, settings, arrays)

    @classmethod
    def _read(cls, record: Record) -> Self:
        coder = cls(**record.settings)
        planes = Planes(**{name: record.arrays[name] for name in ("owners", "errors", "thresholds", "centers")})
        mean, directions = record.arrays["mean"], record.arrays["directions"]
        shapes: dict[str, tuple[type[Any], tuple[int, ...]]] = {
            "mean": (np.float64, mean.shape[:1]),
            "directions": (np.float32, (len(directions), len(mean))),
        }
        check_arrays(record.arrays, shapes)
        check_planes(planes, coder.width, len(directions))
        coder._model, coder._normalize = (mean, directions, planes), coder.metric == "cosine"
        return coder
