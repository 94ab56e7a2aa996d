"""Sums over directions by table look-ups: how far a query is from many codes.

A squared distance in orthonormal directions is a sum over directions, whose terms depend on the query and on a few bits
of the code each. Those bits lie scattered in the code, in order of importance; here they are regrouped, directions
side by side, eight bits to a byte. One table for each byte then holds the terms of its directions.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nestcode import _core
from nestcode.arrays import Floats
from nestcode.coders.bit_planes import depths_of


@dataclass(frozen=True)
class Layout:
    """Which directions' bits share a byte, for codes of one length."""

    groups: tuple[tuple[int, ...], ...]  # the directions in each byte, first ones highest
    depths: NDArray[np.int64]  # (directions,): how many bits each has
    sources: NDArray[np.int32]  # (room * groups,): where the regrouped bits come from


def plan(owners: NDArray[np.int32], directions: int, first: int = 0, room: int = 8) -> Layout:
    """Group directions by best fit, those with most bits first; their bits begin at bit `first` of a code.

    A group has `room` bits; of directions with more the first ones are taken.
    """
    depths = np.minimum(depths_of(owners, directions), room)
    groups: list[list[int]] = []
    free: list[int] = []
    for direction in sorted(np.flatnonzero(depths).tolist(), key=lambda d: -int(depths[d])):
        fitting = [g for g, left in enumerate(free) if left >= depths[direction]]
        if fitting:
            group = min(fitting, key=free.__getitem__)
            groups[group].append(direction)
            free[group] -= int(depths[direction])
        else:
            groups.append([direction])
            free.append(room - int(depths[direction]))
    return Layout(tuple(map(tuple, groups)), depths, _sources(groups, free, owners, depths, first))


def _sources(
    groups: list[list[int]], free: list[int], owners: NDArray[np.int32], depths: NDArray[np.int64], first: int
) -> NDArray[np.int32]:
    """Each group's directions, one after the other, at its low end."""
    places: dict[int, list[int]] = {}
    for place, owner in enumerate(owners.tolist(), start=first):
        places.setdefault(owner, []).append(place)
    sources = [
        [-1] * left + [p for d in group for p in places[d][: depths[d]]]
        for group, left in zip(groups, free, strict=True)
    ]
    return np.array(sources, dtype=np.int32).reshape(-1)


def combine(layout: Layout, terms: dict[int, Floats], queries: int) -> Floats:
    """Tables (queries, groups, 256) from each direction's terms, (queries, 2^depth)."""
    tables = np.zeros((queries, len(layout.groups), 256), dtype=np.float32)
    for place, group in enumerate(layout.groups):
        table = np.zeros((queries, 1), dtype=np.float32)
        for direction in group:
            both = table[:, :, None] + terms[direction][:, None, :]
            table = both.reshape(queries, both.shape[1] * both.shape[2])
        tables[:, place, : table.shape[1]] = table
    return tables


def regroup(packed: NDArray[np.uint8], layout: Layout, threads: int) -> NDArray[np.uint8]:
    """The codes' bits in the layout's order, (items, groups)."""
    out = np.empty((len(packed), len(layout.groups)), dtype=np.uint8)
    _core.permute_bits(packed, layout.sources, out, threads=threads)
    return out


def sum_up(cells: NDArray[np.uint8], tables: Floats, threads: int) -> Floats:
    """(items, groups), (queries, groups, 256) -> (queries, items)."""
    out = np.empty((len(tables), len(cells)), dtype=np.float32)
    _core.sum_tables(cells, tables, out, threads=threads)
    return out
