"""Adaptive codebooks: each byte refines the coordinates that are least known, given the bytes before it.

Every coordinate has a level, log2 of its remaining spread in steps of 1/256: a whole number, so that whoever decodes
finds the same ones. A byte's entry holds numbers for the coordinates of the highest levels, in units of their spreads,
and how much it lowers each level. An entry far out says that an item is busy there, and its coordinates come again
soon; smooth items move on to others. `cpp/nestcode/adaptive.hpp` encodes and decodes.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from nestcode import _core
from nestcode.arrays import PIECE, Floats, squared_norms
from nestcode.coders.codebooks import ENTRIES, gather, grow_book, shorten
from nestcode.codes import CORES

STEPS = 256  # of a level, to a factor of two
LOWEST, HIGHEST = -30000, 30000
DIMS = 32  # coordinates that a byte refines
MANY = 100 * ENTRIES  # rows that are enough for the largest books
WORTH = 1.1  # times as much may be left by a smaller book
TINY = 1e-30
PRIOR = 20  # rows that an entry's spread is worth before it has seen any
Levels = NDArray[np.int16]


def levels_of(spreads: NDArray[np.floating]) -> Levels:
    """Spreads as levels.

    >>> levels_of(np.array([1.0, 2.0, 0.0]))
    array([     0,    256, -30000], dtype=int16)
    """
    logs = np.log2(np.maximum(spreads.astype(np.float64), 1e-30))
    return np.where(spreads > 0, np.clip(np.round(STEPS * logs), LOWEST, HIGHEST), LOWEST).astype(np.int16)


def spreads_of(levels: Levels) -> Floats:
    """Levels as spreads."""
    return np.exp2(levels.astype(np.float32) / STEPS)


@dataclass
class Books:
    """The codebooks of all bytes, and what they do to levels."""

    unit: NDArray[np.float32]  # (1,): rows are divided by it, so that no square leaves the range; a power of two
    levels: Levels  # (directions,): before the first byte, in these units
    entries: Floats  # (stages, dims, 256)
    changes: Levels  # (stages, 256, dims)
    counts: NDArray[np.int64]  # (stages, 256): how many rows chose each entry

    def encode(self, rows: Floats, beams: int, threads: int = CORES) -> NDArray[np.uint8]:
        """The bytes of rows, (n, stages), by beam search."""
        out = np.empty((len(rows), len(self.entries)), dtype=np.uint8)
        _core.encode_adaptive(rows / self.unit, self.levels, self.entries, self.changes, beams, out, threads=threads)
        return out

    def decode(self, packed: NDArray[np.uint8], length: int, threads: int = CORES) -> Floats:
        """What the first `length` bits of codes stand for, (n, directions)."""
        stages = -(-length // 8)
        entries = self.entries[:stages]
        if length % 8:
            entries = np.concatenate([entries[:-1], self.shortened(stages - 1, length % 8)[None]])
        out = np.empty((len(packed), len(self.levels)), dtype=np.float32)
        _core.decode_adaptive(packed[:, :stages], self.levels, entries, self.changes[:stages], out, threads=threads)
        out *= self.unit
        return out

    def shortened(self, stage: int, bits: int) -> Floats:
        """The book of a stage, (dims, 256), when only the first bits of its byte are known."""
        book = np.ascontiguousarray(self.entries[stage].T)
        return np.ascontiguousarray(shorten(book, self.counts[stage], bits).T)

    def errors(self, rows: Floats, beams: int, width: int) -> NDArray[np.float64]:
        """The mean squared error of these rows by length."""
        found = np.zeros(width + 1)
        for first in range(0, len(rows), PIECE):
            some = rows[first : first + PIECE]
            state, packed = State(some / self.unit, self.levels), self.encode(some, beams)
            found[0] += squared_norms(state.rest).sum()
            for stage in range(len(self.entries)):
                at = state.look(self.entries.shape[1])
                whole = squared_norms(state.rest) - squared_norms(at.rest)
                for bits in range(1, min(8, width - 8 * stage) + 1):
                    book = self.entries[stage] if bits == 8 else self.shortened(stage, bits)
                    left = at.rest - at.spreads * book[:, packed[:, stage]].T
                    found[8 * stage + bits] += (whole + squared_norms(left)).sum()
                state.apply(at, self.entries[stage].T[packed[:, stage]], self.changes[stage][packed[:, stage]])
        return found / len(rows) * float(self.unit[0]) ** 2

    def typical(self, length: int) -> Floats:
        """The books of the first bits as vectors, (bytes, 256, directions), along the way that most rows go."""
        stages = -(-length // 8)
        level = self.levels.astype(np.float64)
        books = np.zeros((stages, ENTRIES, len(level)), dtype=np.float32)
        for stage in range(stages):
            widest = np.argsort(-level, kind="stable")[: self.entries.shape[1]]
            known = min(8, length - 8 * stage)
            book = self.entries[stage] if known == 8 else self.shortened(stage, known)
            books[stage][:, widest] = book.T * np.exp2(level[widest] / STEPS).astype(np.float32)
            weights = self.counts[stage] + 1e-6
            level[widest] += weights @ self.changes[stage] / weights.sum()
        return books * self.unit


@dataclass
class Look:
    """The coordinates that come next, of each row: (n, dims) each."""

    widest: NDArray[np.int32]
    spreads: Floats
    rest: Floats

    def part(self, some: slice) -> "Look":
        """Some of them."""
        return Look(self.widest[:, some], self.spreads[:, some], self.rest[:, some])


class State:
    """Rows on their way: what is left of them, and their levels."""

    def __init__(self, rows: Floats, levels: Levels) -> None:
        self.rest = rows.copy()  # (n, directions)
        self.levels = np.repeat(levels[None], len(rows), axis=0)  # (n, directions)

    def look(self, dims: int) -> Look:
        """The coordinates of the highest levels."""
        widest = np.empty((len(self.rest), dims), dtype=np.int32)
        _core.find_widest(self.levels, widest, threads=CORES)
        spreads = spreads_of(np.take_along_axis(self.levels, widest, axis=1))
        return Look(widest, spreads, np.take_along_axis(self.rest, widest, axis=1))

    def apply(self, at: Look, entries: Floats, changes: Levels) -> None:
        """Take off what entries, (n, dims), say."""
        np.put_along_axis(self.rest, at.widest, at.rest - at.spreads * entries, axis=1)
        levels = np.take_along_axis(self.levels, at.widest, axis=1).astype(np.int32) + changes
        np.put_along_axis(self.levels, at.widest, np.clip(levels, LOWEST, HIGHEST).astype(np.int16), axis=1)


def learn(rows: Floats, probe: Floats, width: int, rng: np.random.Generator) -> Books:
    """The codebooks, each learnt from what the ones before it leave.

    Where rows are few, smaller books are tried first: larger ones must leave clearly less of the `probe`, as what they
    learn by heart misleads all that come after.
    """
    spreads = np.sqrt(np.mean(rows.astype(np.float64) ** 2, axis=0))
    unit = np.exp2(np.round(np.log2(spreads.max() or 1.0)), dtype=np.float32).reshape(1)
    start = levels_of(spreads / unit)
    state, other = State(rows / unit, start), State(probe / unit, start)
    dims = min(DIMS, len(start))
    kinds = [(1, dims)] if len(rows) >= MANY else [(2, -(-dims // 2)), (1, dims)]
    entries, changes, counts = [], [], []
    for stage in range(-(-width // 8)):
        bits = min(8, width - 8 * stage)
        at, there = state.look(dims), other.look(dims)
        books = [_trusted(_learn_book(at, bits, parts, some, rng), there) for parts, some in kinds]
        left = np.array([_left(there, book, _nearest(there, book)).sum() for book in books])
        book = books[int(np.argmax(left <= WORTH * left.min()))]
        owners, others = _nearest(at, book), _nearest(there, book)
        change, count = _changes(at, book, owners)
        change += _overlooked(_left(at, book, owners), at, _left(there, book, others), there)
        state.apply(at, book[owners], change[owners])
        other.apply(there, book[others], change[others])
        repeat = ENTRIES >> bits  # the last byte may have fewer bits
        entries.append(np.repeat(book, repeat, axis=0).T)
        changes.append(np.repeat(change, repeat, axis=0))
        counts.append(np.repeat(count, repeat))
    return Books(unit, start, np.array(entries), np.array(changes), np.array(counts))


def _learn_book(at: Look, bits: int, parts: int, dims: int, rng: np.random.Generator) -> Floats:
    """A codebook for the first `dims` coordinates, (2^bits, all of them), in the order of a binary tree.

    It may have two parts: the first bits of a byte choose an entry for the first coordinates, the others for the next
    ones. So there are fewer entries to learn, from more rows each.
    """
    parts = min(parts, bits)
    edges = np.linspace(0, dims, parts + 1).astype(int)
    book = np.zeros((1, 0), dtype=np.float32)
    for part, (begin, end) in enumerate(pairwise(edges)):
        own = _grow(at.part(slice(begin, end)), bits * (part + 1) // parts - bits * part // parts, rng)
        book = np.concatenate([np.repeat(book, len(own), axis=0), np.tile(own, (len(book), 1))], axis=1)
    padded: Floats = np.pad(book, ((0, 0), (0, at.rest.shape[1] - dims)))
    return padded


def _grow(at: Look, bits: int, rng: np.random.Generator) -> Floats:
    """A codebook in units of spreads, (2^bits, dims)."""
    weights = np.sqrt(np.mean(at.spreads.astype(np.float64) ** 2, axis=0)).astype(np.float32)
    book: Floats = grow_book(at.rest / at.spreads * weights, bits, rng) / np.maximum(weights, 1e-30)
    for _ in range(2):  # now each row by its own spreads
        owners = _nearest(at, book)
        sums, _ = gather(at.spreads * at.rest, owners, len(book))
        norms, _ = gather(at.spreads**2, owners, len(book))
        book = np.where(norms > 0, sums / np.where(norms > 0, norms, 1), book)
    return book


def _nearest(at: Look, book: Floats) -> NDArray[np.intp]:
    """The entry of each row that leaves least."""
    both = np.concatenate([-2 * book, book**2], axis=1).T
    owners = np.empty(len(at.rest), dtype=np.intp)
    for first in range(0, len(owners), PIECE):
        some = slice(first, first + PIECE)
        numbers = np.concatenate([at.spreads[some] * at.rest[some], at.spreads[some] ** 2], axis=1)
        np.argmin(numbers @ both, axis=1, out=owners[some])
    return owners


def _left(at: Look, book: Floats, owners: NDArray[np.intp]) -> Floats:
    """What entries leave of each coordinate, squared, (n, dims)."""
    left: Floats = (at.rest - at.spreads * book[owners]) ** 2
    return left


def _trusted(book: Floats, probe: Look) -> Floats:
    """The book as far as rows that it was not learnt from confirm it: entries of few rows say too much."""
    steps = probe.spreads * book[_nearest(probe, book)]
    norm = float(np.vdot(steps, steps))
    share = np.clip(np.vdot(steps, probe.rest) / norm, 0, 1) if norm > 0 else 1
    trusted: Floats = book * np.float32(share)
    return trusted


def _changes(at: Look, book: Floats, owners: NDArray[np.intp]) -> tuple[Levels, NDArray[np.int64]]:
    """How each entry changes the levels of its coordinates, and how many rows chose it."""
    left, norms = _left(at, book, owners), at.spreads**2
    own_left, counts = gather(left, owners, len(book))
    own_norms, _ = gather(norms, owners, len(book))
    common = left.sum(axis=0) / np.maximum(norms.sum(axis=0), TINY)
    own = own_left / np.maximum(own_norms, TINY)
    share = (own * counts[:, None] + PRIOR * common) / (counts[:, None] + PRIOR)
    change = np.round(STEPS / 2 * np.log2(np.maximum(share, TINY)))
    return np.clip(change, -3 * STEPS, STEPS).astype(np.int16), counts


def _overlooked(left: Floats, at: Look, left_there: Floats, there: Look) -> np.int16:
    """How much higher levels should be, by rows that the book was not learnt from."""
    own = float(left.sum()) / max(float((at.spreads**2).sum()), TINY)
    others = float(left_there.sum()) / max(float((there.spreads**2).sum()), TINY)
    return np.int16(np.clip(round(STEPS / 2 * np.log2(max(others, TINY) / max(own, TINY))), 0, STEPS))
