"""Random sequences of operations on an index and on a plain dict: both hold the same after every step."""

import tempfile
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from numpy.typing import NDArray

from nestcode import Codes, Index, LinearCoder
from nestcode.errors import InvalidInput
from nestcode.index import Neighborhood, buffer, compaction
from nestcode.search.vectors import VectorType
from tests.twins import Bits

Row = NDArray[np.bool_]
Ids = NDArray[np.int64]
OnDuplicate = Literal["error", "replace"]

# Where an item leaves the path that all share, and how it goes on: few of each, so that codes and prefixes are shared.
KINDS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 2)), max_size=6)
SOME_IDS = st.lists(st.integers(0, 15), min_size=6, max_size=6, unique=True)
PICKS = st.lists(st.integers(0, 40), max_size=6)  # of what is there
WIDTHS, FEATURES = [1, 5, 64, 65, 200], 30
CODER = LinearCoder(width=max(WIDTHS)).fit(np.random.default_rng(0).standard_normal((50, FEATURES)))
ON_DUPLICATE = st.sampled_from(["error", "replace"])


def row_of(kind: tuple[int, int], width: int) -> Row:
    """Zeros, a 1 at a place of interest, then one of three endings."""
    place = min([0, 1, width // 2, 62, 63, 64, width - 1][kind[0]], width - 1)
    row = np.random.default_rng(kind[1]).random(width) < 0.5
    row[: place + 1] = False
    row[place] = kind[1] > 0
    return row


def vectors_of(rows: Bits) -> NDArray[np.float32]:
    """Vectors that codes are stored with: their first bits, and how many there are."""
    first = np.zeros((len(rows), FEATURES), dtype=np.float32)
    first[:, : min(FEATURES, rows.shape[1])] = rows[:, :FEATURES]
    first[:, -1] = rows.sum(axis=1)
    return first


def new_index(width: int, vectors: VectorType | None) -> Index:
    return Index(width=width) if vectors is None else Index(CODER, width=width, vectors=vectors)


@dataclass
class Beside:
    """An index and what it should hold."""

    index: Index
    items: dict[int, Row] = field(default_factory=dict)
    largest: int = -1
    path: Path | None = None  # where it was opened
    committed: tuple[dict[int, Row], int] = field(default_factory=lambda: ({}, -1))

    def stored(self, rows: Bits) -> NDArray[np.float32] | None:
        """The vectors to write with these codes."""
        return None if self.index.vector_type is None else vectors_of(rows)

    def put(self, ids: list[int], rows: Bits) -> None:
        self.items.update(zip(ids, rows, strict=True))
        self.largest = max([self.largest, *ids])

    def known(self, picks: list[int]) -> list[int]:
        """Ids of the index, picked by any integers."""
        ids = sorted(self.items)
        return list(dict.fromkeys(ids[pick % len(ids)] for pick in picks)) if ids else []

    def bits(self) -> Bits:
        rows = [self.items[one] for one in sorted(self.items)]
        return np.array(rows, dtype=np.bool_).reshape(len(rows), self.index.width)

    def family(self, query: Row) -> list[Ids]:
        """The members of N_0, N_1, ..., counted length by length, as long as there are any."""
        ids, bits = np.array(sorted(self.items), dtype=np.int64), self.bits()
        found = [ids]
        for length in range(1, len(query) + 1):
            members = ids[(bits[:, :length] == query[:length]).all(axis=1)]
            if not len(members):
                break
            found.append(members)
        return found

    def check(self, queries: Bits, index: Index | None = None) -> None:
        """Compare all queries."""
        index = self.index if index is None else index
        ids = sorted(self.items)
        assert len(index) == len(ids)
        assert index.ids.tolist() == ids
        assert [one in index for one in range(-1, 40)] == [one in self.items for one in range(-1, 40)]
        assert np.array_equal(index.codes(ids[::-1]).bits(), self.bits()[::-1])
        if index.vector_type is not None:
            np.testing.assert_allclose(index.vectors(ids), vectors_of(self.bits()), atol=0.5)
        codes = Codes.from_bits(queries)
        families = [self.family(query) for query in queries]
        for code, family in zip(codes, families, strict=True):
            nested = index.nested(code)
            assert nested.length.tolist() == list(range(len(family)))
            assert nested.count.tolist() == [len(members) for members in family]
            assert sorted(nested[-1].ids.tolist()) == family[-1].tolist()
        sizes: list[dict[str, Any]] = [{"size": size} for size in (1, 2, 6)]
        for request in [*sizes, {"fraction": 0.28}, {"fraction": 1.0}]:
            least = request.get("size") or request["fraction"] * len(ids) - 1e-9
            hoods = index.neighborhood(codes, **request)
            for i, (code, family) in enumerate(zip(codes, families, strict=True)):
                length = max((b for b, members in enumerate(family) if len(members) >= least), default=0)
                for hood in (hoods[i], index.neighborhood(code, **request)):
                    assert (hood.length, hood.count) == (length, len(family[length]))
                    assert sorted(hood.ids.tolist()) == family[length].tolist()
            assert hoods.ids.tolist() == [item for hood in hoods for item in hood.ids]


class Life(RuleBasedStateMachine):
    """Two indexes that are changed in turn, so that one may be merged into the other more than once."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()  # so that few items make many segments
        self.patch.setattr(buffer, "BUFFER_ITEMS", 4)
        self.patch.setattr(compaction, "SIZE_RATIO", 2)
        self.patch.setattr(compaction, "STALL", 3)
        self.folder = tempfile.TemporaryDirectory()
        self.saves = 0
        self.seen: list[tuple[Neighborhood, list[int]]] = []

    def teardown(self) -> None:
        for one in (self.one, self.other):
            one.index.close()
        self.folder.cleanup()
        self.patch.undo()

    @initialize(width=st.sampled_from(WIDTHS), vectors=st.sampled_from([None, "int8", "float16"]))
    def begin(self, width: int, vectors: VectorType | None) -> None:
        self.one, self.other = (Beside(new_index(width, vectors)) for _ in range(2))
        self.queries = np.array([row_of(kind, width) for kind in [(3, 0), (0, 1), (2, 2), (5, 1)]])

    def rows(self, kinds: list[tuple[int, int]]) -> Bits:
        width = self.one.index.width
        return np.array([row_of(kind, width) for kind in kinds], dtype=np.bool_).reshape(-1, width)

    # writes

    @rule()
    def swap(self) -> None:
        self.one, self.other = self.other, self.one

    @rule(kinds=KINDS)
    def add(self, kinds: list[tuple[int, int]]) -> None:
        rows, first = self.rows(kinds), self.one.largest + 1
        self.one.index.add(Codes.from_bits(rows), vectors=self.one.stored(rows))
        self.one.put(list(range(first, first + len(rows))), rows)

    @rule(kinds=KINDS, ids=SOME_IDS, on_duplicate=ON_DUPLICATE)
    def add_under_ids(self, kinds: list[tuple[int, int]], ids: list[int], on_duplicate: OnDuplicate) -> None:
        rows, ids = self.rows(kinds), ids[: len(kinds)]
        if on_duplicate == "error" and any(one in self.one.items for one in ids):
            with pytest.raises(InvalidInput, match=r"ids must be new, but .* in use"):
                self.one.index.add(Codes.from_bits(rows), ids, vectors=self.one.stored(rows))
            return
        self.one.index.add(Codes.from_bits(rows), ids, vectors=self.one.stored(rows), on_duplicate=on_duplicate)
        self.one.put(ids, rows)

    @rule(picks=PICKS)
    def remove(self, picks: list[int]) -> None:
        ids = self.one.known(picks)
        self.one.index.remove(ids)
        for one in ids:
            del self.one.items[one]

    @rule(kinds=KINDS, picks=PICKS)
    def update(self, kinds: list[tuple[int, int]], picks: list[int]) -> None:
        ids = self.one.known(picks)[: len(kinds)]
        rows = self.rows(kinds[: len(ids)])
        self.one.index.update(Codes.from_bits(rows), ids, vectors=self.one.stored(rows))
        self.one.put(ids, rows)

    @rule(picks=PICKS)
    def name_an_id_that_is_not_there(self, picks: list[int]) -> None:
        ids = [*self.one.known(picks), self.one.largest + 1]
        rows = self.rows([(0, 0)] * len(ids))
        update = partial(self.one.index.update, Codes.from_bits(rows), vectors=self.one.stored(rows))
        for call in (self.one.index.remove, self.one.index.codes, update):
            with pytest.raises(InvalidInput, match=f"ids must be of items in the index, but {ids[-1]} is not"):
                call(ids)

    @rule(on_duplicate=ON_DUPLICATE)
    def merge(self, on_duplicate: OnDuplicate) -> None:
        if on_duplicate == "error" and self.one.items.keys() & self.other.items.keys():
            with pytest.raises(InvalidInput, match=r"ids must be new, but .* in use"):
                self.one.index.merge(self.other.index)
            return
        self.one.index.merge(self.other.index, on_duplicate=on_duplicate)
        self.one.items.update(self.other.items)
        self.one.largest = max(self.one.largest, self.other.largest)

    @rule(step=st.integers(1, 3))
    def remove_many(self, step: int) -> None:
        ids = self.one.index.ids[::step]
        self.one.index.remove(ids)
        for one in ids.tolist():
            del self.one.items[one]

    @rule()
    def truncate_both(self) -> None:
        width = max(1, self.one.index.width * 2 // 3)
        if self.one.index.vector_type is None:
            for beside in (self.one, self.other):
                beside.index.truncate(width)
                beside.items = {one: row[:width] for one, row in beside.items.items()}
                if beside.path is not None:
                    beside.index.commit()
                    beside.committed = dict(beside.items), beside.largest
            self.queries = self.queries[:, :width]

    @rule()
    def compact(self) -> None:
        self.one.index.compact()
        segments = self.one.index._live.current.segments
        assert [len(segment.tombstones) for segment in segments] == [0] * min(len(self.one.items), 1)

    @rule()
    def wait_for_compaction(self) -> None:
        self.one.index._live.wait()

    # files

    @rule()
    def save_and_open(self) -> None:
        self.saves += 1
        path = Path(self.folder.name) / str(self.saves)
        self.one.index.save(path)
        self.one.index.close()
        self.one.index, self.one.path = Index.open(path, mode="a"), path
        self.one.committed = dict(self.one.items), self.one.largest

    @rule()
    def commit_and_read(self) -> None:
        if self.one.path is not None:
            self.one.index.commit()
            self.one.committed = dict(self.one.items), self.one.largest
            reader = Index.open(self.one.path)
            self.one.check(self.queries[:1], reader)
            reader.verify()

    @rule()
    def open_what_was_committed(self) -> None:
        if self.one.path is not None:
            self.one.index.close()
            self.one.index = Index.open(self.one.path, mode="a")
            self.one.items, self.one.largest = dict(self.one.committed[0]), self.one.committed[1]

    # laws

    @rule(size=st.integers(1, 4))
    def look(self, size: int) -> None:
        hood = self.one.index.neighborhood(Codes.from_bits(self.queries)[0], size=size)
        self.seen.append((hood, hood.ids.tolist()))

    @invariant()
    def both_hold_the_same(self) -> None:
        self.one.check(self.queries)

    @invariant()
    def neighborhoods_keep_their_snapshot(self) -> None:
        for hood, ids in self.seen:
            assert hood.ids.tolist() == ids


TestLife = pytest.mark.filterwarnings("ignore:rounding to int8")(Life.TestCase)
TestLife.settings = settings(stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck))
