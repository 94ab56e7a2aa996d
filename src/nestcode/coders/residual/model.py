"""The fitted residual coder: a mean, principal directions and one codebook per byte."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from nestcode import _core
from nestcode.arrays import CORES, PIECE, Bytes, Doubles, Floats, squared_norms
from nestcode.coders.base import CodebookLayout
from nestcode.coders.codebooks import (
    ENTRIES,
    LLOYD,
    TREE_ROWS,
    BeamSearch,
    Lloyd,
    Stage,
    encode,
    refit_codebooks,
    scale_of,
    stages_of,
    train_codebook,
    truncate_codebook,
)
from nestcode.coders.projected import ProjectedModel
from nestcode.coders.sampling import add_synthetic_rows, project_sample
from nestcode.codes import Codes
from nestcode.fork import lazy_property
from nestcode.lengths import Uniform
from nestcode.storage import Arrays, check_arrays

SAMPLE_BYTES = 1 << 30  # of training rows, all beams counted
SLACK = 2.0  # bits below the water level, down to which directions are kept: their variance is not all noise
SPARE = 100  # rows, from which on some are held out
BLOCK = 64  # bits whose codebooks are refitted together
BEAM_ROWS = 16 * TREE_ROWS  # residuals of beams that are enough to train on, in the first block
LATER_LLOYD = Lloyd(3 * TREE_ROWS, (1.5, 1.2, 1.0))  # of codebooks after it
ON_DISK = {"mean": "mean", "directions": "directions", "books": "codebooks", "counts": "counts", "errors": "errors"}


@dataclass(frozen=True, eq=False)
class ResidualModel(ProjectedModel):
    """Codebooks whose entries add up to coefficients."""

    codebooks: Floats  # (stages, 256, directions)
    counts: NDArray[np.int64]  # (stages, 256): training rows that chose each entry

    @classmethod
    def train(cls, parts: Iterable[NDArray[Any]], settings: dict[str, Any]) -> Self:
        """Return the model of rows that come in pieces; its errors are those of held-out rows."""
        rng, width, beams = np.random.default_rng(settings["seed"]), settings["width"], settings["beams"]
        normalize = settings["metric"] == "cosine"
        most_bytes = SAMPLE_BYTES // beams
        sample = project_sample(parts, width, rng, most_bytes, normalize=normalize, slack=SLACK, spare=SPARE)
        held_out, scale = sample.held_out, scale_of(sample.rows)
        rows = sample.rows / scale
        train = add_synthetic_rows(rows[rng.permutation(np.flatnonzero(~held_out))], rng)
        codebooks, counts = _train_codebooks(train, width, beams, rng)
        test = rows[held_out] if held_out.any() else rows
        errors = _measure_errors(test, codebooks, counts, width, beams) * float(scale) ** 2 + sample.outside
        return cls(settings, sample.mean, sample.directions, errors, codebooks * scale, counts)

    def encode(self, coefficients: Floats, packed: Bytes) -> None:
        """Write the codes of coefficients, (n, directions), into packed rows."""
        scale, stages = self._scaled_stages
        packed[:] = _encode(coefficients / scale, stages, self.width, self.settings["beams"])

    @lazy_property
    def _scaled_stages(self) -> tuple[np.float32, list[Stage]]:
        """A scale, and stages of the codebooks divided by it: no square of them overflows float32."""
        scale = scale_of(self.codebooks)
        return scale, _stages(self.codebooks if scale == 1 else self.codebooks / scale, self.width)

    def decode(self, codes: Codes, threads: int) -> Floats:
        """Return the sums of the entries that codes of any length choose, (n, directions)."""
        out = np.zeros((len(codes), len(self.directions)), dtype=np.float32)
        _core.sum_codebook_entries(codes.packed, self.codebooks_at(codes.width), out, threads=threads)
        return out

    def layout(self, length: int) -> CodebookLayout:
        """Return the codebooks of the first `length` bits."""
        return CodebookLayout(self.codebooks_at(length))

    def codebooks_at(self, length: int) -> Floats:
        """Return the codebooks when `length` bits are known, (ceil(length / 8), 256, directions)."""
        whole, bits = divmod(length, 8)
        if bits == 0:
            return self.codebooks[:whole]
        last = truncate_codebook(self.codebooks[whole], self.counts[whole], bits)
        return np.concatenate([self.codebooks[:whole], last[None]])

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the model's arrays under their names on disk."""
        return {name: getattr(self, field) for name, field in ON_DISK.items()}

    @classmethod
    def from_arrays(cls, settings: dict[str, Any], arrays: Arrays) -> Self:
        """Return the model of checked settings and unchecked arrays, or raise ValueError."""
        width = settings["width"]
        stages, directions, features = -(-width // 8), len(arrays["directions"]), len(arrays["mean"])
        expected: dict[str, tuple[type[Any], tuple[int, ...]]] = {
            "mean": (np.float64, (features,)),
            "directions": (np.float32, (directions, features)),
            "books": (np.float32, (stages, ENTRIES, directions)),
            "counts": (np.int64, (stages, ENTRIES)),
            "errors": (np.float64, (width + 1,)),
        }
        check_arrays(arrays, expected)
        if arrays["counts"].min(initial=0) < 0:
            raise ValueError("its counts are below 0")
        return cls(settings, **{field: arrays[name] for name, field in ON_DISK.items()})


def _train_codebooks(
    rows: Floats, width: int, beams: int, rng: np.random.Generator
) -> tuple[Floats, NDArray[np.int64]]:
    """Return codebooks and counts, (stages, 256, …), of rows in random order.

    Each block of 64 bits is trained on what the block before it leaves of the rows. That is close to noise after the
    first one: there other beams and more iterations hardly lower the error.
    """
    codebooks: list[Floats] = []
    counts: list[NDArray[np.int64]] = []
    for first in range(0, width, BLOCK):
        bits = min(BLOCK, width - first)
        used, lloyd = (min(beams, -(-BEAM_ROWS // len(rows))), LLOYD) if first == 0 else (1, LATER_LLOYD)
        block, codes = _train_block(rows, bits, beams, used, lloyd, rng)
        step = 1 << -bits % 8  # a last byte of fewer bits is padded with zeros
        block[-1] = np.repeat(block[-1, ::step], step, axis=0)
        counts += [np.bincount(chosen, minlength=ENTRIES) for chosen in codes.T]
        counts[-1] = np.repeat(counts[-1][::step], step)
        codebooks += list(block)
        if first + BLOCK < width:
            sums = np.zeros_like(rows)
            _core.sum_codebook_entries(codes, block, sums, threads=CORES)
            rows = rows - sums
    return np.array(codebooks), np.array(counts, dtype=np.int64)


def _train_block(
    rows: Floats, width: int, beams: int, used: int, lloyd: Lloyd, rng: np.random.Generator
) -> tuple[Floats, Bytes]:
    """Return codebooks of `width` bits and the codes of rows: trained one by one, then refitted together.

    Few rows overfit less where the residuals of their other beams are trained on too, the best `used` of each row.
    """
    searches = [BeamSearch(rows[i : i + PIECE]) for i in range(0, len(rows), PIECE)]
    codebooks: list[Floats] = []
    for stage in range(-(-width // 8)):
        bits = min(8, width - 8 * stage)
        codebook = train_codebook([search.beam_residuals(used) for search in searches], bits, rng, lloyd)
        last = Stage.after(codebooks, codebook)
        for search in searches:
            search.extend(last, beams)
        codebooks.append(np.repeat(codebook, ENTRIES >> bits, axis=0))
    codes = np.concatenate([search.entries[:, 0] for search in searches])
    codes[:, -1] <<= -width % 8
    return refit_codebooks(rows, codes, np.array(codebooks), Uniform().survival(len(codebooks))), codes


def _stages(codebooks: Floats, width: int) -> list[Stage]:
    """Return the stages of codebooks, the last one with an entry for each value of its bits."""
    return stages_of([*codebooks[:-1], codebooks[-1][:: 1 << -width % 8]])


def _encode(coefficients: Floats, stages: list[Stage], width: int, beams: int) -> Bytes:
    """Return the bytes of coefficients, (n, stages); a last byte of fewer bits is padded with zeros."""
    packed = encode(coefficients, stages, beams)
    packed[:, -1] <<= -width % 8
    return packed


def _measure_errors(rows: Floats, codebooks: Floats, counts: NDArray[np.int64], width: int, beams: int) -> Doubles:
    """Return the mean squared error of these rows at every length, (width + 1,)."""
    errors = np.zeros(width + 1)
    stages = _stages(codebooks, width)
    packed = np.concatenate([_encode(rows[i : i + PIECE], stages, width, beams) for i in range(0, len(rows), PIECE)])
    residuals = rows
    errors[0] = squared_norms(residuals).mean()
    for stage, (codebook, count) in enumerate(zip(codebooks, counts, strict=True)):
        for bits in range(1, min(8, width - 8 * stage) + 1):
            known = codebook if bits == 8 else truncate_codebook(codebook, count, bits)
            errors[8 * stage + bits] = squared_norms(residuals - known[packed[:, stage]]).mean()
        residuals = residuals - codebook[packed[:, stage]]
    return errors
