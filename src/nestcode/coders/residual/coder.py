"""The residual coder: nested residual codebooks, found by k-means and read by beam search.

Successive refinement by whole vectors: each byte of a code names an entry that refines what the bytes before it left.
Where the spectrum is flat, as that of most embeddings, an entry of 256 says more than 8 bits of single directions.
"""

from collections.abc import Iterable
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nestcode import _core
from nestcode.arrays import PIECE, Doubles, Floats, check_int, check_rows, pieces, squared_norms
from nestcode.coders.base import CodebookLayout
from nestcode.coders.codebooks import ENTRIES, BeamSearch, encode, train_codebook, truncate_codebook
from nestcode.coders.projected import DirectionsCoder
from nestcode.coders.sampling import held_out_mask, project_sample
from nestcode.codes import CORES, Codes
from nestcode.errors import InvalidInput
from nestcode.storage import Record, check_arrays

_ARRAYS = ("mean", "directions", "books", "counts", "errors")
SAMPLE_BYTES = 1 << 30  # of what is trained on, all beams counted


class ResidualCoder(DirectionsCoder["_Model"]):
    """Nested residual codebooks; best for embeddings and other data with a flat spectrum.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((2000, 2)) @ rng.standard_normal((2, 16)) + 0.1 * rng.standard_normal((2000, 16))
    >>> coder = ResidualCoder(width=32).fit(X)
    >>> codes = coder.encode(X)
    >>> [round(float(np.mean((X - coder.decode(codes.prefix(k))) ** 2) / X.var()), 3) for k in (0, 4, 8, 16, 32)]
    [1.0, 0.11, 0.009, 0.002, 0.0]

    Args:
        width: bits of a code; every 8 of them choose one of 256 entries.
        metric: "l2", or "cosine" to scale every item to length 1 first and compare what decodes by angle.
        beams: how many candidates encoding keeps for each item; more make better codes and take longer.
        seed: of the sample that is trained on (at most 524,288 rows) and of where codebooks begin.

    """

    def __init__(self, width: int, metric: Literal["l2", "cosine"] = "l2", beams: int = 4, seed: int = 0) -> None:
        check_int(width, "width", least=1)
        check_int(seed, "seed", least=0)
        if check_int(beams, "beams", least=1) > 1024:
            raise InvalidInput(f"beams must be at most 1024, got {beams}: 4 is good, 32 hardly better")
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
        found = project_sample(pieces(X), self.width, rng, SAMPLE_BYTES // self.beams, normalize=normalize)
        held_out = held_out_mask(len(found.rows), rng)
        books, counts = _train(found.rows[~held_out], self.width, self.beams, rng)
        model = _Model(found.mean, found.directions, books, counts, np.zeros(self.width + 1), normalize)
        model.errors = model.measure(found.rows[held_out] if held_out.any() else found.rows, self.beams) + found.outside
        self._model = model
        self._learn_columns(X)
        return self

    def encode(self, X: ArrayLike) -> Codes:
        """(n, features) -> codes of `width` bits."""
        model = self._fitted()
        rows = check_rows(X, features=len(model.mean))
        packed = np.empty((len(rows), len(model.books)), dtype=np.uint8)
        done = 0
        for part in pieces(rows):
            packed[done : done + len(part)] = model.encode(self._project(part), self.beams)
            done += len(part)
        return Codes.unchecked(packed, model.width)

    def layout(self, length: int) -> CodebookLayout:
        """Return the codebooks of the first `length` bits."""
        return CodebookLayout(self._fitted().at_length(length))

    def coefficients(self, codes: Codes, threads: int = CORES) -> Floats:
        """Decode codes to principal coefficients around the mean, (n, directions)."""
        self.check_codes(codes)
        return self._fitted().sums(codes, threads)

    def to_record(self) -> Record:
        """Return the fitted coder as a record."""
        model = self._fitted()
        arrays: dict[str, NDArray[Any]] = {name: getattr(model, name) for name in _ARRAYS}
        metric = "cosine" if model.normalize else "l2"
        settings = {"width": model.width, "metric": metric, "beams": int(self.beams), "seed": int(self.seed)}
        return Record("ResidualCoder", self.VERSION, settings, arrays)

    @classmethod
    def _read(cls, record: Record) -> Self:
        coder = cls(**record.settings)
        arrays = {name: record.arrays[name] for name in _ARRAYS}
        stages, count = -(-coder.width // 8), len(arrays["directions"])
        expected: dict[str, tuple[type[Any], tuple[int, ...]]] = {
            "mean": (np.float64, arrays["mean"].shape[:1]),
            "directions": (np.float32, (count, len(arrays["mean"]))),
            "books": (np.float32, (stages, ENTRIES, count)),
            "counts": (np.int64, (stages, ENTRIES)),
            "errors": (np.float64, (coder.width + 1,)),
        }
        check_arrays(arrays, expected)
        if arrays["counts"].min(initial=0) < 0:
            raise ValueError("its counts are below 0")
        coder._model = _Model(**arrays, normalize=coder.metric == "cosine")
        return coder


class _Model:
    """What a fit found."""

    def __init__(
        self,
        mean: Doubles,
        directions: Floats,
        books: Floats,
        counts: NDArray[np.int64],
        errors: Doubles,
        normalize: bool,
    ) -> None:
        self.mean = mean
        self.directions = directions  # (directions, features)
        self.books = books  # (stages, 256, directions)
        self.counts = counts  # (stages, 256): how many rows chose each entry
        self.errors = errors  # (width + 1,): the mean squared error of a row by length
        self.normalize = normalize

    @property
    def width(self) -> int:
        return len(self.errors) - 1

    def encode(self, rows: Floats, beams: int) -> NDArray[np.uint8]:
        return encode(rows, [self.book(stage) for stage in range(len(self.books))], beams) << self._shifts()

    def book(self, stage: int) -> Floats:
        """The entries of a stage without repetition: the last stage may have fewer than 256."""
        return self.books[stage, :: 1 << int(self._shifts()[stage])]

    def at_length(self, length: int) -> Floats:
        """The codebooks when `length` bits are known, (ceil(length / 8), 256, features)."""
        whole, bits = divmod(length, 8)
        if bits == 0:
            return self.books[:whole]
        return np.concatenate(
            [self.books[:whole], truncate_codebook(self.books[whole], self.counts[whole], bits)[None]]
        )

    def sums(self, codes: Codes, threads: int = CORES) -> Floats:
        """What codes say, in principal directions around the mean."""
        out = np.zeros((len(codes), len(self.directions)), dtype=np.float32)
        _core.sum_entries(codes.packed, self.at_length(codes.width), out, threads=threads)
        return out

    def measure(self, rows: Floats, beams: int) -> Doubles:
        """The mean squared error of these rows by length."""
        errors = np.zeros(self.width + 1)
        cells = np.concatenate([self.encode(rows[i : i + PIECE], beams) for i in range(0, len(rows), PIECE)])
        left = rows
        errors[0] = squared_norms(left).mean()
        for stage, (book, counts) in enumerate(zip(self.books, self.counts, strict=True)):
            for bits in range(1, min(8, self.width - 8 * stage) + 1):
                shortened = book if bits == 8 else truncate_codebook(book, counts, bits)
                errors[8 * stage + bits] = squared_norms(left - shortened[cells[:, stage]]).mean()
            left = left - book[cells[:, stage]]
        return errors

    def _shifts(self) -> NDArray[np.uint8]:
        """How far the entries of each stage stand to the left in their byte."""
        shifts = np.zeros(len(self.books), dtype=np.uint8)
        shifts[-1] = -self.width % 8
        return shifts


def _train(rows: Floats, width: int, beams: int, rng: np.random.Generator) -> tuple[Floats, NDArray[np.int64]]:
    """The codebooks, each trained on what the best candidates of the stages before it leave."""
    searches = [BeamSearch(rows[i : i + PIECE]) for i in range(0, len(rows), PIECE)]
    books, counts = [], []
    for stage in range(-(-width // 8)):
        bits = min(8, width - 8 * stage)
        book = train_codebook(np.concatenate([search.residuals[:, 0] for search in searches]), bits, rng)
        for search in searches:
            search.extend(book, beams)
        chosen = np.concatenate([search.entries[:, 0, -1] for search in searches])
        books.append(np.repeat(book, ENTRIES >> bits, axis=0))
        counts.append(np.repeat(np.bincount(chosen, minlength=len(book)), ENTRIES >> bits))
    return np.array(books), np.array(counts, dtype=np.int64)
