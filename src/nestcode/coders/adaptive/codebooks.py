"""Backward-adaptive residual quantization: each byte refines the coordinates with the largest remaining scale.

Every coordinate has a log-scale: log2 of the standard deviation of its residual, as a fixed-point integer with 8
fractional bits, so that encoder and decoder agree on it exactly on every machine. A byte's codebook entry holds values
for the coordinates of the largest scales, in units of these scales, and the change of each log-scale. An outlying entry
lowers its log-scales little, so busy items get more bytes for the same coordinates; smooth items move on to others.
`cpp/nestcode/adaptive_quantizer.hpp` encodes and decodes.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from nestcode import _core
from nestcode.arrays import CORES, PIECE, Floats, squared_norms
from nestcode.coders.codebooks import ENTRIES, BeamResiduals, sum_by_entry, train_codebook, truncate_codebook

STEPS = 256  # of a log-scale, per factor of two
LOWEST, HIGHEST = -30000, 30000
DIMS = 32  # coordinates that a byte refines
MANY = 100 * ENTRIES  # training rows that are enough for the largest codebooks
SLACK = 1.1  # a smaller codebook is preferred up to this factor of the held-out error
TINY = 1e-30
PRIOR = 20  # rows that the common scale counts for in the scale of each entry
LogScales = NDArray[np.int16]


def to_log_scales(scales: NDArray[np.floating]) -> LogScales:
    """Return scales as log-scales.

    >>> to_log_scales(np.array([1.0, 2.0, 0.0]))
    array([     0,    256, -30000], dtype=int16)
    """
    logs = np.log2(np.maximum(scales.astype(np.float64), 1e-30))
    return np.where(scales > 0, np.clip(np.round(STEPS * logs), LOWEST, HIGHEST), LOWEST).astype(np.int16)


def to_scales(log_scales: LogScales) -> Floats:
    """Return log-scales as scales."""
    return np.exp2(log_scales.astype(np.float32) / STEPS)


@dataclass
class AdaptiveCodebooks:
    """The codebooks of all bytes, and how their entries change the log-scales."""

    unit: NDArray[np.float32]  # (1,): a power of two that rows are divided by, so that squares stay in range
    log_scales: LogScales  # (directions,): before the first byte, in these units
    entries: Floats  # (stages, dims, 256)
    changes: LogScales  # (stages, 256, dims)
    counts: NDArray[np.int64]  # (stages, 256): training rows that chose each entry

    def encode(self, rows: Floats, beams: int, threads: int = CORES) -> NDArray[np.uint8]:
        """Return the bytes of rows by beam search: (n, directions) -> (n, stages)."""
        out = np.empty((len(rows), len(self.entries)), dtype=np.uint8)
        _core.encode_adaptive(
            rows / self.unit, self.log_scales, self.entries, self.changes, beams, out, threads=threads
        )
        return out

    def decode(self, packed: NDArray[np.uint8], length: int, threads: int = CORES) -> Floats:
        """Return the coefficients that the first `length` bits decode to, (n, directions)."""
        stages = -(-length // 8)
        entries = self.entries[:stages]
        if length % 8:
            entries = np.concatenate([entries[:-1], self.truncated(stages - 1, length % 8)[None]])
        out = np.empty((len(packed), len(self.log_scales)), dtype=np.float32)
        _core.decode_adaptive(packed[:, :stages], self.log_scales, entries, self.changes[:stages], out, threads=threads)
        out *= self.unit
        return out

    def truncated(self, stage: int, bits: int) -> Floats:
        """Return the codebook of a stage, (dims, 256), when only the first bits of its byte are known."""
        codebook = np.ascontiguousarray(self.entries[stage].T)
        return np.ascontiguousarray(truncate_codebook(codebook, self.counts[stage], bits).T)

    def measure_errors(self, rows: Floats, beams: int, width: int) -> NDArray[np.float64]:
        """Return the mean squared error of these rows at every length, (width + 1,)."""
        errors = np.zeros(width + 1)
        for first in range(0, len(rows), PIECE):
            some = rows[first : first + PIECE]
            state, packed = Residuals(some / self.unit, self.log_scales), self.encode(some, beams)
            errors[0] += squared_norms(state.residuals).sum()
            for stage in range(len(self.entries)):
                at = state.select(self.entries.shape[1])
                others = squared_norms(state.residuals) - squared_norms(at.residuals)
                for bits in range(1, min(8, width - 8 * stage) + 1):
                    codebook = self.entries[stage] if bits == 8 else self.truncated(stage, bits)
                    left = at.residuals - at.scales * codebook[:, packed[:, stage]].T
                    errors[8 * stage + bits] += (others + squared_norms(left)).sum()
                state.subtract(at, self.entries[stage].T[packed[:, stage]], self.changes[stage][packed[:, stage]])
        return errors / len(rows) * float(self.unit[0]) ** 2

    def additive_approximation(self, length: int) -> Floats:
        """Return codebooks whose summed entries approximate what the first bits decode to, (bytes, 256, directions).

        An entry's coordinates and scales depend on the bytes before it; here they follow the average log-scales.
        """
        stages = -(-length // 8)
        log_scale = self.log_scales.astype(np.float64)
        codebooks = np.zeros((stages, ENTRIES, len(log_scale)), dtype=np.float32)
        for stage in range(stages):
            widest = np.argsort(-log_scale, kind="stable")[: self.entries.shape[1]]
            known = min(8, length - 8 * stage)
            codebook = self.entries[stage] if known == 8 else self.truncated(stage, known)
            codebooks[stage][:, widest] = codebook.T * np.exp2(log_scale[widest] / STEPS).astype(np.float32)
            weights = self.counts[stage] + 1e-6
            log_scale[widest] += weights @ self.changes[stage] / weights.sum()
        return codebooks * self.unit


@dataclass
class WidestCoordinates:
    """The coordinates that the next byte refines, for each row: (n, dims) each."""

    coordinates: NDArray[np.int32]
    scales: Floats
    residuals: Floats

    def columns(self, some: slice) -> "WidestCoordinates":
        """Return some of the coordinates."""
        return WidestCoordinates(self.coordinates[:, some], self.scales[:, some], self.residuals[:, some])


class Residuals:
    """Rows that are being encoded: their residuals and log-scales."""

    def __init__(self, rows: Floats, log_scales: LogScales) -> None:
        self.residuals = rows.copy()  # (n, directions)
        self.log_scales = np.repeat(log_scales[None], len(rows), axis=0)  # (n, directions)

    def select(self, dims: int) -> WidestCoordinates:
        """Return the `dims` coordinates of the largest scales of each row."""
        widest = np.empty((len(self.residuals), dims), dtype=np.int32)
        _core.find_largest_scales(self.log_scales, widest, threads=CORES)
        scales = to_scales(np.take_along_axis(self.log_scales, widest, axis=1))
        return WidestCoordinates(widest, scales, np.take_along_axis(self.residuals, widest, axis=1))

    def subtract(self, at: WidestCoordinates, entries: Floats, changes: LogScales) -> None:
        """Subtract the chosen entries, (n, dims), and change the log-scales."""
        np.put_along_axis(self.residuals, at.coordinates, at.residuals - at.scales * entries, axis=1)
        log_scales = np.take_along_axis(self.log_scales, at.coordinates, axis=1).astype(np.int32) + changes
        np.put_along_axis(
            self.log_scales, at.coordinates, np.clip(log_scales, LOWEST, HIGHEST).astype(np.int16), axis=1
        )


def train(rows: Floats, held_out: Floats, width: int, rng: np.random.Generator) -> AdaptiveCodebooks:
    """Return codebooks that are trained stage by stage, each on the residuals of the stages before it.

    Where rows are few, a product codebook with fewer parameters is tried first: the full one must have a clearly
    smaller held-out error, as overfitting in one stage misleads all later stages.
    """
    scales = np.sqrt(np.mean(rows.astype(np.float64) ** 2, axis=0))
    unit = np.exp2(np.round(np.log2(scales.max() or 1.0)), dtype=np.float32).reshape(1)
    start = to_log_scales(scales / unit)
    state, test_state = Residuals(rows / unit, start), Residuals(held_out / unit, start)
    dims = min(DIMS, len(start))
    kinds = [(1, dims)] if len(rows) >= MANY else [(2, -(-dims // 2)), (1, dims)]  # (parts, coordinates)
    entries, changes, counts = [], [], []
    for stage in range(-(-width // 8)):
        bits = min(8, width - 8 * stage)
        at, test = state.select(dims), test_state.select(dims)
        codebooks = [_shrink(_train_product(at, bits, parts, some, rng), test) for parts, some in kinds]
        errors = np.array([_squared_errors(test, codebook, _nearest(test, codebook)).sum() for codebook in codebooks])
        codebook = codebooks[int(np.argmax(errors <= SLACK * errors.min()))]
        chosen, test_chosen = _nearest(at, codebook), _nearest(test, codebook)
        change, count = _log_scale_changes(at, codebook, chosen)
        change += _generalization_gap(
            _squared_errors(at, codebook, chosen), at, _squared_errors(test, codebook, test_chosen), test
        )
        state.subtract(at, codebook[chosen], change[chosen])
        test_state.subtract(test, codebook[test_chosen], change[test_chosen])
        repeat = ENTRIES >> bits  # the last byte may have fewer bits
        entries.append(np.repeat(codebook, repeat, axis=0).T)
        changes.append(np.repeat(change, repeat, axis=0))
        counts.append(np.repeat(count, repeat))
    return AdaptiveCodebooks(unit, start, np.array(entries), np.array(changes), np.array(counts))


def _train_product(at: WidestCoordinates, bits: int, parts: int, dims: int, rng: np.random.Generator) -> Floats:
    """Return a codebook for the first `dims` coordinates, (2^bits, all coordinates), in tree order.

    With two parts it is a product codebook: the first bits of a byte choose an entry for the first coordinates, the
    other bits one for the next coordinates. So each entry has more rows to be trained on.
    """
    parts = min(parts, bits)
    edges = np.linspace(0, dims, parts + 1).astype(int)
    codebook = np.zeros((1, 0), dtype=np.float32)
    for part, (begin, end) in enumerate(pairwise(edges)):
        own = _train_scaled(at.columns(slice(begin, end)), bits * (part + 1) // parts - bits * part // parts, rng)
        codebook = np.concatenate([np.repeat(codebook, len(own), axis=0), np.tile(own, (len(codebook), 1))], axis=1)
    padded: Floats = np.pad(codebook, ((0, 0), (0, at.residuals.shape[1] - dims)))
    return padded


def _train_scaled(at: WidestCoordinates, bits: int, rng: np.random.Generator) -> Floats:
    """Return a codebook in units of the scales, (2^bits, dims)."""
    weights = np.sqrt(np.mean(at.scales.astype(np.float64) ** 2, axis=0)).astype(np.float32)
    rows = (at.residuals / at.scales * weights)[rng.permutation(len(at.residuals))]
    codebook: Floats = train_codebook(BeamResiduals.of(rows), bits, rng) / np.maximum(weights, 1e-30)
    for _ in range(2):  # Lloyd iterations in which each row has its own scales
        chosen = _nearest(at, codebook)
        sums, _ = sum_by_entry(at.scales * at.residuals, chosen, len(codebook))
        norms, _ = sum_by_entry(at.scales**2, chosen, len(codebook))
        codebook = np.where(norms > 0, sums / np.where(norms > 0, norms, 1), codebook)
    return codebook


def _nearest(at: WidestCoordinates, codebook: Floats) -> NDArray[np.intp]:
    """Return the entry of each row with the smallest squared error, under the row's own scales."""
    both = np.concatenate([-2 * codebook, codebook**2], axis=1).T
    chosen = np.empty(len(at.residuals), dtype=np.intp)
    for first in range(0, len(chosen), PIECE):
        some = slice(first, first + PIECE)
        terms = np.concatenate([at.scales[some] * at.residuals[some], at.scales[some] ** 2], axis=1)
        np.argmin(terms @ both, axis=1, out=chosen[some])
    return chosen


def _squared_errors(at: WidestCoordinates, codebook: Floats, chosen: NDArray[np.intp]) -> Floats:
    """Return the squared error of each coordinate after the chosen entries, (n, dims)."""
    errors: Floats = (at.residuals - at.scales * codebook[chosen]) ** 2
    return errors


def _shrink(codebook: Floats, test: WidestCoordinates) -> Floats:
    """Return the codebook times the factor that is best for held-out rows, between 0 and 1."""
    steps = test.scales * codebook[_nearest(test, codebook)]
    norm = float(np.vdot(steps, steps))
    factor = np.clip(np.vdot(steps, test.residuals) / norm, 0, 1) if norm > 0 else 1
    shrunk: Floats = codebook * np.float32(factor)
    return shrunk


def _log_scale_changes(
    at: WidestCoordinates, codebook: Floats, chosen: NDArray[np.intp]
) -> tuple[LogScales, NDArray[np.int64]]:
    """Return how each entry changes the log-scales of its coordinates, and how many rows chose it."""
    errors, squared_scales = _squared_errors(at, codebook, chosen), at.scales**2
    own_errors, counts = sum_by_entry(errors, chosen, len(codebook))
    own_scales, _ = sum_by_entry(squared_scales, chosen, len(codebook))
    common = errors.sum(axis=0) / np.maximum(squared_scales.sum(axis=0), TINY)
    own = own_errors / np.maximum(own_scales, TINY)
    ratio = (own * counts[:, None] + PRIOR * common) / (counts[:, None] + PRIOR)
    change = np.round(STEPS / 2 * np.log2(np.maximum(ratio, TINY)))
    return np.clip(change, -3 * STEPS, STEPS).astype(np.int16), counts


def _generalization_gap(
    errors: Floats, at: WidestCoordinates, test_errors: Floats, test: WidestCoordinates
) -> np.int16:
    """Return how much higher log-scales must be for held-out rows than for training rows."""
    own = float(errors.sum()) / max(float((at.scales**2).sum()), TINY)
    others = float(test_errors.sum()) / max(float((test.scales**2).sum()), TINY)
    return np.int16(np.clip(round(STEPS / 2 * np.log2(max(others, TINY) / max(own, TINY))), 0, STEPS))
