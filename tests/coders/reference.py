"""Plain twins of encoding and decoding: item by item, bit by bit."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestcode import AdaptiveCoder, CellCoder, Codes, LinearCoder, ResidualCoder, RotationCoder
from nestcode.coders.adaptive.codebooks import HIGHEST, LOWEST, STEPS, AdaptiveCodebooks
from nestcode.coders.scalar_quantizer import BitPlanes

Rows = NDArray[np.float32]
Doubles = NDArray[np.float64]
Bits = list[list[int]]


def quantize(coefficients: Any, planes: BitPlanes) -> list[int]:
    """Walk down the tree of the direction that each bit refines."""
    nodes, bits = [1] * len(coefficients), []
    for direction in planes.allocation:
        if direction < 0:
            bits.append(0)
            continue
        bit = int(coefficients[direction] > planes.thresholds[direction, nodes[direction]])
        nodes[direction] = 2 * nodes[direction] + bit
        bits.append(bit)
    return bits


def dequantize(bits: list[int], planes: BitPlanes) -> Doubles:
    nodes = [1] * len(planes.levels)
    for direction, bit in zip(planes.allocation, bits, strict=False):
        if direction >= 0:
            nodes[direction] = 2 * nodes[direction] + int(bit)
    return np.array([planes.levels[d, node] if node > 1 else 0.0 for d, node in enumerate(nodes)])


def encode_linear(coder: LinearCoder | RotationCoder, rows: Rows) -> Bits:
    model = coder._fitted()
    return [quantize(coefficients, model.planes) for coefficients in coder._project(rows)]


def decode_linear(coder: LinearCoder | RotationCoder, codes: Codes) -> Doubles:
    model = coder._fitted()
    return np.array([model.mean + dequantize(bits, model.planes) @ model.directions for bits in codes.bits().tolist()])


def encode_cell(coder: CellCoder, rows: Rows) -> Bits:
    """The number of the nearest centroid, then the scalar-quantized residual."""
    model, codes = coder._fitted(), []
    for coefficients in coder._project(rows):
        cell = int(np.argmin(((coefficients - model.centroids) ** 2).sum(axis=1)))
        head = [int(bit) for bit in f"{cell:0{model.cell_bits}b}"]
        codes.append(head + quantize(coefficients - model.centroids[cell], model.planes))
    return codes


def decode_cell(coder: CellCoder, codes: Codes) -> Doubles:
    model, out = coder._fitted(), []
    names = [[int(bit) for bit in f"{cell:0{model.cell_bits}b}"] for cell in range(len(model.centroids))]
    for bits in codes.bits().tolist():
        head = bits[: model.cell_bits]
        subtree = [cell for cell, name in enumerate(names) if name[: len(head)] == head]
        mean: Doubles = np.average(model.centroids[subtree], axis=0, weights=model.counts[subtree] + 1e-6)
        coefficients = mean + dequantize(bits[model.cell_bits :], model.planes)
        out.append(model.mean + (coefficients if head else 0 * coefficients) @ model.directions)
    return np.array(out)


def encode_residual(coder: ResidualCoder, rows: Rows) -> Bits:
    """Beam search: keep the best partial sums, and answer with the best at the end."""
    model, beams, codes = coder._fitted(), coder._fitted().settings["beams"], []
    bits = [min(8, model.width - 8 * stage) for stage in range(len(model.codebooks))]
    for coefficients in coder._project(rows):
        beam: list[tuple[Any, list[int]]] = [(coefficients, [])]
        for stage, codebook in enumerate(model.codebooks):
            entries = codebook[:: 256 >> bits[stage]]
            longer = [(left - entry, [*path, e]) for left, path in beam for e, entry in enumerate(entries)]
            beam = sorted(longer, key=lambda one: float(np.sum(one[0].astype(float) ** 2)))[:beams]
        path = zip(beam[0][1], bits, strict=True)
        codes.append([int(bit) for entry, count in path for bit in f"{entry:0{count}b}"])
    return codes


def decode_residual(coder: ResidualCoder, codes: Codes) -> Doubles:
    """Sums of entries; of a byte that is cut, the mean of the entries that share its bits."""
    model, out = coder._fitted(), []
    for bits in codes.bits().tolist():
        coefficients = np.zeros(len(model.directions))
        for first in range(0, len(bits), 8):
            known = "".join(map(str, map(int, bits[first : first + 8])))
            entries = [entry for entry in range(256) if f"{entry:08b}".startswith(known)]
            codebook, counts = model.codebooks[first // 8], model.counts[first // 8]
            coefficients += np.average(codebook[entries], axis=0, weights=counts[entries] + 1e-6)
        out.append(model.mean + coefficients @ model.directions)
    return np.array(out)


class AdaptiveTwin:
    """One item: integer log-scales, of which the largest come first, and of equal ones the first."""

    def __init__(self, codebooks: AdaptiveCodebooks, length: int) -> None:
        self.codebooks, self.length, self.dims = codebooks, length, codebooks.entries.shape[1]

    def widest(self, log_scales: NDArray[np.int64]) -> NDArray[np.intp]:
        return np.argsort(-log_scales, kind="stable")[: self.dims]

    def step(self, stage: int, log_scales: NDArray[np.int64], entry: int) -> tuple[Doubles, NDArray[np.int64]]:
        """What a byte adds, and the log-scales after it."""
        at, codebook = self.widest(log_scales), self.codebooks.entries[stage]
        bits = min(8, self.length - 8 * stage)
        if bits < 8:
            codebook = self.codebooks.truncated(stage, bits)
        added, after = np.zeros(len(log_scales)), log_scales.copy()
        added[at] = codebook[:, entry] * np.exp2(log_scales[at] / STEPS)
        after[at] = np.clip(log_scales[at] + self.codebooks.changes[stage, entry], LOWEST, HIGHEST)
        return added, after

    def decode(self, code: NDArray[np.uint8]) -> Doubles:
        log_scales, out = self.codebooks.log_scales.astype(np.int64), np.zeros(len(self.codebooks.log_scales))
        for stage in range(-(-self.length // 8)):
            added, log_scales = self.step(stage, log_scales, int(code[stage]))
            out += added
        return out * float(self.codebooks.unit[0])

    def encode(self, row: Rows, beams: int) -> tuple[float, list[int]]:
        """The error that a beam search ends with, and its bytes."""
        beam: list[tuple[Any, ...]] = [
            (row.astype(np.float64) / self.codebooks.unit[0], self.codebooks.log_scales.astype(np.int64), [])
        ]
        for stage in range(len(self.codebooks.entries)):
            longer: list[tuple[Any, ...]] = []
            for rest, log_scales, path in beam:
                at = self.widest(log_scales)
                steps = self.codebooks.entries[stage] * np.exp2(log_scales[at] / STEPS)[:, None]
                errors = (rest**2).sum() - (rest[at] ** 2).sum() + ((rest[at, None] - steps) ** 2).sum(axis=0)
                longer += [(error, len(longer) + e, rest, log_scales, [*path, e]) for e, error in enumerate(errors)]
            beam = []
            for _, _, rest, log_scales, path in sorted(longer, key=lambda one: one[:2])[:beams]:
                added, after = self.step(stage, log_scales, path[-1])
                beam.append((rest - added, after, path))
        return float((beam[0][0] ** 2).sum() * self.codebooks.unit[0] ** 2), beam[0][2]


def encode_adaptive(coder: AdaptiveCoder, rows: Rows) -> Bits:
    model = coder._fitted()
    twin = AdaptiveTwin(model.codebooks, 8 * len(model.codebooks.entries))
    paths = [twin.encode(row, model.settings["beams"])[1] for row in coder._project(rows)]
    return np.unpackbits(np.array(paths, dtype=np.uint8), axis=1)[:, : model.width].tolist()  # type: ignore[no-any-return]


def decode_adaptive(coder: AdaptiveCoder, codes: Codes) -> Doubles:
    model = coder._fitted()
    twin = AdaptiveTwin(model.codebooks, codes.width)
    return np.array([model.mean + twin.decode(code) @ model.directions for code in codes.packed])


def tree_order(points: NDArray[np.float32]) -> NDArray[np.intp]:
    """The order of 2^bits points as leaves of a tree whose nodes are halved along their principal directions."""
    if len(points) == 1:
        return np.zeros(1, dtype=np.intp)
    centered = points - points.mean(axis=0)
    _, vectors = np.linalg.eigh(centered.T.astype(np.float64) @ centered)
    order, half = np.argsort(centered @ vectors[:, -1], kind="stable"), len(points) // 2
    return np.concatenate([part[tree_order(points[part])] for part in (order[:half], order[half:])])
