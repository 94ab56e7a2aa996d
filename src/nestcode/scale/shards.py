"""Shards of an index: encoded apart, in any order, and merged by ranges of keys.

The result depends on the items alone, byte for byte, not on how they were divided into shards: items are ordered by
code and id, and the sample that splits the ranges is of the items whose ids have the smallest hashes.
"""

import hashlib
import json
import os
import shutil
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nestcode.arrays import PIECE, Bytes, Ids, check_ids, check_int, check_rows
from nestcode.coders import Coder
from nestcode.codes import Codes
from nestcode.errors import InvalidInput
from nestcode.index import Index
from nestcode.index.folders import Folders
from nestcode.index.manifest import MANIFEST
from nestcode.index.ordered import key_of
from nestcode.index.segment import LiveSegment, Segment, gather_attributes
from nestcode.index.snapshot import some_ids
from nestcode.index.store import Commit, Store
from nestcode.search.preparation import StoredLayouts
from nestcode.search.vectors import StoredVectors, VectorType
from nestcode.storage import make_folder, sync_folder, write_atomic

if TYPE_CHECKING:
    from nestcode.search.attributes import Attributes

AnyPath = str | os.PathLike[str]
PLAN = "plan.json"  # what the parts in a folder, or a shard, are of
MAX_PARTS = 1 << 20
SAMPLE = 1000  # items for each range to split: sizes of ranges are within some 10 % of each other
COPIED = ("codes", "ids", "vectors", "scales")  # arrays of a shard that a merge reads
GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio: Fibonacci hashing


def encode_shard(
    items: Codes | ArrayLike,
    ids: ArrayLike,
    out: AnyPath,
    coder: Coder | None = None,
    *,
    width: int | None = None,
    vectors: VectorType | None = None,
    attributes: Any = None,
) -> Path:
    """Encode items, write them to a folder as a sorted shard, and return its path.

    >>> import tempfile
    >>> from nestcode import LinearCoder
    >>> X = np.random.default_rng(0).standard_normal((300, 8)).astype(np.float32)
    >>> coder = LinearCoder(width=32).fit(X)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     shards = [encode_shard(X[i::3], range(i, 300, 3), f"{folder}/{i}", coder) for i in range(3)]
    ...     parts = merge_shards(shards, f"{folder}/whole", parts=2)
    ...     Index.open(parts).search(X[7], k=1).ids
    array([7])

    Args:
        items: (n, features) with a coder, or `Codes`.
        ids: a distinct integer of at least 0 for each; they must be distinct among all shards.
        out: the folder. If it has the shard of these items already, nothing is done; a different shard is refused.
        coder: a fitted coder, the same for all shards; without a coder, items are `Codes`.
        width: the number of leading bits to keep; by default all.
        vectors: store the vectors too, as "float16", "int8" or "float32".
        attributes: columns to filter by, one row for each item, in a form that `Index.add` accepts; all shards have the
            same columns.

    """
    known = check_ids(ids)
    whole = items.width if isinstance(items, Codes) and coder is None else None
    shard = Index(coder, width=whole if width is None else width, vectors=vectors)
    plan: dict[str, Any] = {
        "coder": None if coder is None else coder.fingerprint,
        "width": shard.width,
        "vectors": vectors,
        "checksum": _input_checksum(items, known),
    }
    if attributes is not None:
        from nestcode.search.attributes import Attributes

        attributes = Attributes.read(attributes, len(known))
        plan["attributes"] = [dict(attributes.schema), hashlib.sha256(attributes.file().data).hexdigest()]
        attributes = attributes.table()

    def plan_of(folder: Path) -> bytes:
        manifest = hashlib.sha256((folder / MANIFEST).read_bytes()).hexdigest()  # another after each change
        return json.dumps({**plan, "manifest": manifest}).encode()

    def write(folder: Path) -> None:
        shard.add(items, known, attributes=attributes)
        shard.save(folder)
        write_atomic(folder / PLAN, plan_of(folder))

    path = _write_once(Path(out), write)
    if not (path / PLAN).exists() or (path / PLAN).read_bytes() != plan_of(path):
        raise InvalidInput(
            f"{path} holds an index that is not the shard of these items, ids, coder and settings, or was changed: "
            "give a new folder, or delete this one"
        )
    return path


def find_splitters(shards: AnyPath | Sequence[AnyPath], parts: int) -> Codes:
    """Return the codes that divide the items of all shards into ranges of about equal size.

    If many items have equal codes, there are fewer splitters, because equal codes stay together.

    >>> import tempfile
    >>> codes = Codes.from_bits([[0, 0, 1], [0, 1, 0], [1, 0, 0], [1, 1, 1]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     find_splitters([encode_shard(codes, [5, 6, 7, 8], f"{folder}/shard")], parts=2)
    Codes(1 item of 3 bits: 100)

    Args:
        shards: the folders of shards, or of any indexes with the same coder; or one folder.
        parts: how many ranges.

    """
    parts = _check_parts(parts)
    count = SAMPLE * parts
    commit = Folders(shards).read()
    packed, marks = [np.empty((0, -(-commit.width // 8)), np.uint8)], [np.empty(0, np.uint64)]
    for segment in commit.segments:
        hashes = _hashes(segment.live_ids())
        positions = np.delete(np.arange(len(segment.codes)), segment.tombstones)
        chosen = np.argsort(hashes)[:count]
        packed.append(segment.codes_at(positions[chosen]).packed)
        marks.append(hashes[chosen])
    sample = np.concatenate(packed)[np.argsort(np.concatenate(marks))[:count]]
    codes = Codes.unchecked(sample, commit.width)
    codes = codes[codes.sort_order()]
    bounds = codes[np.arange(1, parts) * len(codes) // parts] if len(codes) else codes
    return Codes.unchecked(np.unique(bounds.packed, axis=0), commit.width)


def merge_range(
    shards: AnyPath | Sequence[AnyPath], splitters: Codes, part: int, out: AnyPath, *, graph: bool = False
) -> Path:
    """Write the items of all shards in one range of keys to a folder, as an index, and return its path.

    >>> import tempfile
    >>> codes = Codes.from_bits([[0, 0, 1], [0, 1, 0], [1, 0, 0], [1, 1, 1]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     shard = encode_shard(codes, [5, 6, 7, 8], f"{folder}/shard")
    ...     Index.open(merge_range([shard], Codes.from_bits([[1, 0, 0]]), 1, f"{folder}/high")).ids
    array([7, 8])

    Args:
        shards: the folders of the shards, or one folder.
        splitters: the bounds of ranges, as `find_splitters` returns them.
        part: the number of the range: 0 is below the first splitter, and `len(splitters)` begins at the last one.
        out: the folder. If it has an index already, nothing is done.
        graph: build a graph, as `nestcode.Index` does.

    """
    part = check_int(part, "part", least=0)
    if part > len(splitters):
        raise InvalidInput(f"{len(splitters)} splitters divide keys into ranges 0 to {len(splitters)}, got part {part}")

    def write(folder: Path) -> None:
        commit = Folders(shards).read()
        low = splitters[part - 1] if part else None
        high = splitters[part] if part < len(splitters) else None
        spans = [_span(segment, low, high) for segment in commit.segments]
        with Store(folder, write=True) as store:
            store.commit(replace(_merged(commit, spans), effort=None, graph=graph))
        if graph:
            with Index.open(folder, mode="a") as index:
                index.compact()
                index.commit()

    return _write_once(Path(out), write)


def merge_shards(shards: AnyPath | Sequence[AnyPath], out: AnyPath, parts: int, *, graph: bool = False) -> list[Path]:
    """Merge shards into indexes of consecutive key ranges, `out/part-0000` and so on, and return their paths.

    `Index.open` reads them as one index. After a crash, run it again: it writes the missing parts. It refuses a folder
    with parts of other shards, or with another number of parts.

    >>> import tempfile
    >>> codes = Codes.from_bits([[0, 0, 1], [0, 1, 0], [1, 0, 0], [1, 1, 1]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     parts = merge_shards([encode_shard(codes, [5, 6, 7, 8], f"{folder}/shard")], folder, parts=2)
    ...     [Index.open(part).ids.tolist() for part in parts]
    [[5, 6], [7, 8]]

    Args:
        shards: the folders of the shards, or one folder.
        out: a folder for the indexes.
        parts: the number of indexes; there are fewer if items are few or have equal codes. Each is merged in memory.
        graph: build graphs, as `nestcode.Index` does.

    """
    parts = _check_parts(parts)
    splitters = find_splitters(shards, parts)
    check_plan(Path(out), {**_summary(shards), "parts": parts, "graph": graph})
    numbers = range(len(splitters) + 1)
    return [merge_range(shards, splitters, part, part_path(out, part), graph=graph) for part in numbers]


def _check_parts(parts: int) -> int:
    return check_int(parts, "parts", least=1, most=MAX_PARTS)


def check_plan(folder: Path, plan: dict[str, Any], made: str = "part-*") -> None:
    """Write what the files in a folder are made of, or raise if some were made of something else."""
    path = folder / PLAN
    known = json.loads(path.read_bytes()) if path.exists() else None
    if known != plan and any(folder.glob(made)):
        raise InvalidInput(
            f"{folder} has other files, or a shard of other items or settings: give a new folder, or the items of an "
            "interrupted call"
        )
    make_folder(folder)
    write_atomic(path, json.dumps(plan).encode())


def _input_checksum(items: Codes | ArrayLike, ids: Ids) -> str:
    """Return a checksum of what a shard is encoded from; it is much cheaper than to encode it again.

    Equal values have equal checksums, whatever their dtype and layout.
    """
    if isinstance(items, Codes):
        rows, form = items.packed, str(items.width)
    else:
        rows, form = check_rows(np.asarray(items)[None] if np.ndim(items) == 1 else items), "values"
    digest = hashlib.sha256(f"{form} {rows.shape}\n".encode() + ids.astype("<i8").tobytes())
    for first in range(0, len(rows), PIECE):
        piece = rows[first : first + PIECE]
        digest.update(np.ascontiguousarray(piece if isinstance(items, Codes) else _smallest_floats(piece)).data)
    return digest.hexdigest()


def _smallest_floats(rows: NDArray[Any]) -> NDArray[np.floating[Any]]:
    """Return values as float32, or as float64 where that loses some; little-endian."""
    with np.errstate(over="ignore"):
        floats = rows.astype("<f4")
    return floats if np.array_equal(floats, rows) else rows.astype("<f8")


def _summary(shards: AnyPath | Sequence[AnyPath]) -> dict[str, Any]:
    """Return the fingerprint of the items of shards, which does not depend on how they are divided."""
    commit = Folders(shards).read()
    return {
        "coder": None if commit.coder is None else commit.coder.fingerprint,
        "width": commit.width,
        "vectors": None if commit.vector_format is None else commit.vector_format.dtype,
        "columns": None if commit.schema is None else dict(commit.schema),
        "items": sum(len(segment.live_ids()) for segment in commit.segments),
        "checksum": sum(map(_checksum, commit.segments)) % 2**64,
    }


def _checksum(segment: LiveSegment) -> int:
    """Return a sum of hashes of all ids with their codes."""
    total, ids = 0, segment.live_ids()
    positions = np.delete(np.arange(len(segment.codes)), segment.tombstones)
    for first in range(0, len(ids), PIECE):
        hashes = _hashes(ids[first : first + PIECE])
        packed = segment.codes_at(positions[first : first + PIECE]).packed
        for word in np.pad(packed, ((0, 0), (0, -packed.shape[1] % 8))).view(np.uint64).T:
            hashes = (hashes ^ word) * GOLDEN
            hashes ^= hashes >> np.uint64(32)
        total += int(hashes.sum())
    _unmap_pages(segment)
    return total


def _hashes(ids: NDArray[np.int64]) -> NDArray[np.uint64]:
    return ids.astype(np.uint64) * GOLDEN


def part_path(out: AnyPath, part: int) -> Path:
    """Return where the index of a range goes."""
    return Path(out) / f"part-{part:04d}"


class _Span(NamedTuple):
    """The items of a segment in a range of keys: their positions in it."""

    segment: LiveSegment
    positions: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.positions)


def _span(segment: LiveSegment, low: Codes | None, high: Codes | None) -> _Span:
    """Return the items of a segment from code `low` to below code `high`."""
    begin = 0 if low is None else _lower_bound(segment, low)
    end = len(segment.codes) if high is None else _lower_bound(segment, high)
    _unmap_pages(segment)
    gone = segment.tombstones
    inside = gone[np.searchsorted(gone, begin) : np.searchsorted(gone, end)].astype(np.int64) - begin
    return _Span(segment, np.delete(np.arange(begin, end), inside))


def _lower_bound(segment: LiveSegment, code: Codes) -> int:
    """Return the position of the first code that is not less than `code`."""
    key = key_of(code)
    return bisect_left(range(len(segment.codes)), key, key=lambda at: key_of(segment.codes_at(np.array([at]))))


def _merged(commit: Commit, spans: Sequence[_Span]) -> Commit:
    """Return a commit with one segment: the items of all spans, ordered by code and id."""
    ends = np.cumsum([len(span) for span in spans], dtype=np.int64)
    if not len(ends) or not ends[-1]:
        return replace(commit, segments=())
    ids, packed = np.empty(ends[-1], np.int64), np.empty((ends[-1], -(-commit.width // 8)), np.uint8)
    rows = [slice(end - len(span), end) for span, end in zip(spans, ends.tolist(), strict=True)]
    copied = [_copy(span, ids[own], packed[own]) for span, own in zip(spans, rows, strict=True)]
    stored = [vectors for vectors in copied if vectors is not None]
    order = np.argsort(ids)  # of equal codes, the smaller ids come first
    ids, packed = ids[order], packed[order]
    again = np.diff(ids) == 0
    if again.any():
        twice = some_ids(np.unique(ids[1:][again]))
        raise InvalidInput(f"ids must be distinct among all shards, but {twice} not: encode again")
    vectors = StoredVectors.gather(stored, order) if stored else None
    own = [(_attributes(span), len(span)) for span in spans if len(span)]
    columns, codes = gather_attributes(own, order), Codes.unchecked(packed, commit.width)
    segment = Segment.build(codes, ids, vectors, StoredLayouts(commit.coder), columns)
    return replace(commit, segments=(LiveSegment(segment),))


def _copy(span: _Span, ids: NDArray[np.int64], packed: Bytes) -> StoredVectors | None:
    """Copy the ids and codes of a span to arrays, verified, and return its vectors, if it has some.

    What lies in files is let go of afterwards: a merge takes memory for the items of its range, and none for shards.
    """
    segment, positions = span.segment, span.positions
    if not len(positions):
        return None
    for name in COPIED:
        mapped = segment.segment.mapped.get(name)
        if mapped is not None:
            row = mapped.array.nbytes // len(mapped.array)
            mapped.touch(int(positions[0]) * row, (int(positions[-1]) + 1) * row)
    ids[:], packed[:] = segment.ids[positions], segment.codes.packed[positions]
    vectors = None if segment.vectors is None else segment.vectors[positions]
    _unmap_pages(segment)
    return vectors


def _attributes(span: _Span) -> "Attributes | None":
    """Return the attributes of a span, verified, where its shard has some."""
    whole = span.segment.attributes
    own = None if whole is None else whole[span.positions]
    _unmap_pages(span.segment)
    return own


def _unmap_pages(segment: LiveSegment) -> None:
    for mapped in segment.segment.mapped.values():
        mapped.unmap_pages()


def _write_once(out: Path, write: Callable[[Path], None]) -> Path:
    """Write a folder that is complete as soon as it is there, unless it is there."""
    if (out / MANIFEST).exists():
        return out
    make_folder(out.parent)
    draft = out.with_name(f".{out.name}.{uuid4().hex}")
    try:
        write(draft)
        draft.rename(out)
    except OSError:
        if not (out / MANIFEST).exists():  # and nobody else wrote it meanwhile
            raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    sync_folder(out.parent)
    return out
