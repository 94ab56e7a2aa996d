"""Rough distances for many items at once: codes of bit planes, regrouped into half bytes (cpp/nestcode/scan.hpp).

A half byte holds the first bits of up to four directions. What it adds to a squared distance is looked up in a table of
16 whole numbers. Items are around the centres of cells, queries around those of the cells' parents, so that numbers
stay small; twice the inner product of their difference and the item's rest is the item's bias.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nestcode import _core
from nestcode.arrays import PIECE, Floats
from nestcode.coders.bit_planes import Planes
from nestcode.codes import CORES, Codes
from nestcode.search import adc as _tables

GROUPS = 52  # half bytes that are looked at: 208 bits
ROOM = 4  # bits in each
BLOCK = 32  # items that the core scans at once


@dataclass(frozen=True)
class Blocks:
    """Half bytes of items as the core scans them."""

    cells: NDArray[np.uint8]  # (blocks, planes, 32)
    starts: NDArray[np.uint32]  # where each cell begins: at a block of its own
    biases: NDArray[np.int16]  # (blocks * 32,)


class Scan:
    """What the half bytes of codes stand for, when `width` bits are kept."""

    def __init__(self, centers: Floats, planes: Planes, width: int, spread: float) -> None:
        parents = _choose_parents(centers, spread)
        self._shifted = centers - np.repeat(parents, len(centers) // len(parents), axis=0)
        self._layout = _longest_layout(planes, len(centers).bit_length() - 1, width)
        groups = self._layout.groups
        self._numbers = np.zeros((len(groups), ROOM, 1 << ROOM), dtype=np.float32)
        directions = np.full((len(groups), ROOM), -1, dtype=np.int32)
        largest = np.zeros(centers.shape[1], dtype=np.float32)  # number of each direction
        for g, group in enumerate(groups):
            below = sum(int(self._layout.depths[d]) for d in group)
            for j, d in enumerate(group):
                depth = int(self._layout.depths[d])
                below -= depth
                cells = np.arange(1 << ROOM) >> below & ((1 << depth) - 1)
                self._numbers[g, j], directions[g, j] = planes.centers[d, (1 << depth) + cells], d
                largest[d] = np.abs(self._numbers[g, j]).max()
        self.groups = _core.ScanGroups(directions, self._numbers, parents)
        bound = 2 * float((np.abs(self._shifted) @ largest).max(initial=0))
        self.unit = min(max(bound / np.iinfo(np.int16).max, 1e-30), 1e38)  # of biases

    def blocks(self, codes: Codes, cells: NDArray[np.int64]) -> Blocks:
        """Codes as blocks; `cells` says which cell each lies in."""
        groups = self._layout.groups
        counts = np.bincount(cells, minlength=len(self._shifted))
        ends = np.cumsum(-(-counts // BLOCK))
        starts, planes = (ends - -(-counts // BLOCK)).astype(np.uint32), -(-len(groups) // 2)
        shifts = BLOCK * starts.astype(np.int64) - (np.cumsum(counts) - counts)
        places = (np.arange(len(codes)) + shifts[cells]).astype(np.uint32)
        sources = np.full((planes, 2, ROOM), -1, dtype=np.int32)
        sources.reshape(-1, ROOM)[: len(groups)] = self._layout.sources.reshape(-1, ROOM)
        ordered = np.ascontiguousarray(sources[:, ::-1]).reshape(-1)  # the second of two lies high in its byte
        out = np.zeros((int(ends[-1]), planes, BLOCK), dtype=np.uint8)
        biases = np.zeros(len(out) * BLOCK, dtype=np.int16)
        for first in range(0, len(codes), PIECE):
            part, at = codes.packed[first : first + PIECE], places[first : first + PIECE]
            halves = np.empty((len(part), planes), dtype=np.uint8)
            _core.permute_bits(part, ordered, halves, threads=CORES)
            _core.fill_blocks(halves, at, out)
            biases[at] = self._biases(halves, cells[first : first + PIECE])
        return Blocks(out, starts, biases)

    def _biases(self, halves: NDArray[np.uint8], cells: NDArray[np.int64]) -> NDArray[np.int16]:
        if not self._shifted.any():
            return np.zeros(len(halves), dtype=np.int16)
        rest = np.zeros((len(halves), self._shifted.shape[1]), dtype=np.float32)
        for g, group in enumerate(self._layout.groups):
            values = halves[:, g // 2] >> 4 * (g % 2) & 15
            for j, d in enumerate(group):
                rest[:, d] = self._numbers[g, j].take(values)
        twice = 2 * np.einsum("nd,nd->n", rest, self._shifted.take(cells, axis=0))
        biases: NDArray[np.int16] = np.rint(twice / self.unit).clip(-32768, 32767).astype(np.int16)
        return biases


def _choose_parents(centers: Floats, spread: float) -> Floats:
    """The means of as few and large families of cells as lie closer than `spread` to them, (parents, directions)."""
    parents = centers.mean(axis=0, keepdims=True)
    while len(parents) < len(centers):
        shifted = centers.reshape(len(parents), -1, centers.shape[1]) - parents[:, None]
        if np.sqrt(np.mean(np.sum(shifted**2, axis=2))) <= spread:
            break
        parents = centers.reshape(2 * len(parents), -1, centers.shape[1]).mean(axis=1)
    return np.ascontiguousarray(parents)


def _longest_layout(planes: Planes, first: int, width: int) -> _tables.Layout:
    """The groups of as many bits as fit into GROUPS half bytes."""

    def layout(length: int) -> _tables.Layout:
        return _tables.plan(planes.owners[:length], len(planes.centers), first, ROOM)

    low, high = 0, min(width - first, len(planes.owners))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if len(layout(middle).groups) <= GROUPS else (low, middle - 1)
    return layout(low)
