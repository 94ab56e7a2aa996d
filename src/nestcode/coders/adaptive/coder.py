"""The adaptive coder: bytes go where they are needed, in principal directions.

Smooth and busy items need different directions refined, and what was decoded so far says which. `_adaptive.py` holds
the idea; it keeps the promise of nesting, as whoever decodes follows along.
"""

from collections.abc import Iterable
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nestcode.arrays import PIECE, Doubles, Floats, check_int, check_rows, pieces
from nestcode.coders.adaptive.model import HIGHEST, AdaptiveCodebooks, train
from nestcode.coders.base import CodebookLayout
from nestcode.coders.codebooks import ENTRIES
from nestcode.coders.projected import DirectionsCoder
from nestcode.coders.sampling import held_out_mask, project_sample
from nestcode.codes import CORES, Codes
from nestcode.errors import InvalidInput
from nestcode.storage import Record, check_arrays

SAMPLE_BYTES = 1 << 30  # of what is trained on
TYPICAL_BITS = 32  # whose entries have typical values: later ones vary too much


class AdaptiveCoder(DirectionsCoder["_Model"]):
    """Codebooks for the coordinates that are least known; the best without a network for images.

    >>> from nestcode.data import digits
    >>> X, _ = digits()
    >>> coder = AdaptiveCoder(width=64).fit(X)
    >>> codes = coder.encode(X)
    >>> errors = [float(np.mean((X - coder.decode(codes.prefix(k))) ** 2)) for k in (0, 8, 16, 32, 64)]
    >>> bool(np.all(np.diff(errors) < 0))
    True

    Args:
        width: bits of a code; every 8 of them choose one of 256 entries.
        metric: "l2", or "cosine" to scale every item to length 1 first and compare what decodes by angle.
        beams: how many candidates encoding keeps for each item; more make better codes and take longer.
        seed: of the sample that is trained on and of where codebooks begin.

    """

    def __init__(self, width: int, metric: Literal["l2", "cosine"] = "l2", beams: int = 8, seed: int = 0) -> None:
        check_int(width, "width", least=1)
        check_int(seed, "seed", least=0)
        if check_int(beams, "beams", least=1) > 1024:
            raise InvalidInput(f"beams must be at most 1024, got {beams}: 8 is good, 32 a little better")
        if metric not in ("l2", "cosine"):
            raise InvalidInput(f'metric must be "l2" or "cosine", got {metric!r}')
        self.width = width
        self.metric = metric
        self.beams = beams
        self.seed = seed
        self._model: _Model | None = None

    def fit(self, X: ArrayLike | Iterable[ArrayLike], y: object = None) -> Self:  # noqa: ARG002
        """Learn from data, (n, features): an array, a memory map, or an iterable of arrays larger than memory."""
        rng = np.random.default_rng(self.seed)
        normalize = self.metric == "cosine"
        found = project_sample(pieces(X), self.width, rng, SAMPLE_BYTES, normalize=normalize)
        held_out = held_out_mask(len(found.rows), rng)
        probe = found.rows[held_out] if held_out.any() else found.rows
        books = train(found.rows[~held_out], probe, self.width, rng)
        errors = books.measure_errors(probe, self.beams, self.width) + found.outside
        self._model = _Model(found.mean, found.directions, books, errors, normalize)
        self._learn_columns(X)
        return self

    def encode(self, X: ArrayLike) -> Codes:
        """(n, features) -> codes of `width` bits."""
        model = self._fitted()
        rows = check_rows(X, features=len(model.mean))
        packed = np.empty((len(rows), -(-model.width // 8)), dtype=np.uint8)
        for first in range(0, len(rows), PIECE):
            some = slice(first, first + PIECE)
            packed[some] = model.books.encode(self._project(rows[some]), self.beams)
        if model.width % 8:
            packed[:, -1] &= 0xFF << (-model.width % 8) & 0xFF
        return Codes.unchecked(packed, model.width)

    def layout(self, length: int) -> CodebookLayout:
        """Return typical codebooks of the first bytes: what an entry stands for depends on the bytes before it."""
        return CodebookLayout(self._fitted().books.additive_approximation(min(length, TYPICAL_BITS)), exact=False)

    def coefficients(self, codes: Codes, threads: int = CORES) -> Floats:
        """Decode codes to principal coefficients around the mean, (n, directions)."""
        self.check_codes(codes)
        return self._fitted().books.decode(codes.packed, codes.width, threads)

    def to_record(self) -> Record:
        """Return the fitted coder as a record."""
        model = self._fitted()
        arrays: dict[str, NDArray[Any]] = {"mean": model.mean, "directions": model.directions, "errors": model.errors}
        metric = "cosine" if model.normalize else "l2"
        settings = {"width": model.width, "metric": metric, "beams": int(self.beams), "seed": int(self.seed)}
        return Record("AdaptiveCoder", self.VERSION, settings, {**arrays, **vars(model.books)})

    @classmethod
    def _read(cls, record: Record) -> Self:
        coder = cls(**record.settings)
        arrays = dict(record.arrays)
        stages, count, dims = -(-coder.width // 8), len(arrays["directions"]), arrays["entries"].shape[1]
        expected: dict[str, tuple[type[Any], tuple[int, ...]]] = {
            "mean": (np.float64, arrays["mean"].shape[:1]),
            "directions": (np.float32, (count, len(arrays["mean"]))),
            "errors": (np.float64, (coder.width + 1,)),
            "unit": (np.float32, (1,)),
            "levels": (np.int16, (count,)),
            "entries": (np.float32, (stages, dims, ENTRIES)),
            "changes": (np.int16, (stages, ENTRIES, dims)),
            "counts": (np.int64, (stages, ENTRIES)),
        }
        check_arrays(arrays, expected)
        highest = {"levels": HIGHEST, "changes": 1 << 12}
        if any(abs(arrays[name].astype(np.int32)).max() > most for name, most in highest.items()):
            raise ValueError("its levels or their changes are out of range")
        if not 1 <= dims <= count or arrays["counts"].min() < 0 or arrays["unit"][0] <= 0:
            raise ValueError("its books are out of range")
        books = AdaptiveCodebooks(**{name: arrays[name] for name in ("unit", "levels", "entries", "changes", "counts")})
        model = _Model(arrays["mean"], arrays["directions"], books, arrays["errors"], coder.metric == "cosine")
        coder._model = model
        return coder


class _Model:
    """What a fit found."""

    def __init__(
        self, mean: Doubles, directions: Floats, books: AdaptiveCodebooks, errors: Doubles, normalize: bool
    ) -> None:
        self.mean = mean
        self.directions = directions  # (directions, features)
        self.books = books
        self.errors = errors  # (width + 1,): the mean squared error of a row by length
        self.normalize = normalize

    @property
    def width(self) -> int:
        return len(self.errors) - 1
