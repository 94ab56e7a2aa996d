"""The store of an index: a folder of immutable `.npy` files, and a manifest that names the current ones.

Whatever happens, the folder holds the last commit: new files are written and synced first, then the manifest is
replaced atomically, then files that it no longer names are deleted. The layout is in docs/format.md.
"""

import math
import os
import re
import secrets
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from nestcode.coders import Coder, load_coder
from nestcode.codes import Codes
from nestcode.errors import DamagedFile, InvalidInput
from nestcode.fork import ForkSafeLock
from nestcode.index.manifest import (
    MALFORMED,
    MANIFEST,
    array_names,
    checked_int,
    checked_name,
    file_numbers,
    no_index,
    read_manifest,
    sha256,
    write_manifest,
)
from nestcode.index.memory import NAVIGATED, Memory
from nestcode.index.segment import MAX_ITEMS, MAX_WIDTH, LiveSegment, Segment, StoredGraph
from nestcode.search.graph import DEGREE, MAX_BITS, NavigatingCodes
from nestcode.search.nodes import NodeLayout, StoredNodes, count_blocks, node_blocks, place_nodes
from nestcode.search.planner import Effort
from nestcode.search.schema import Schema, check_schema, is_extended
from nestcode.search.scorer import ScanLayout
from nestcode.search.vectors import NO_SCALES, StoredVectors, VectorFormat
from nestcode.storage import (
    BLOCK,
    HEADER,
    PAGE,
    Mapped,
    MappedArrays,
    lock_file,
    make_folder,
    sync_folder,
    unlock_file,
    write_array,
    write_atomic,
    write_pages,
)

LOCK = "lock"
NUMBER, CODER = re.compile(r"[0-9]{6,18}"), re.compile(r"coder-[0-9a-f]{16}")
OURS = re.compile(
    r"[0-9]{6,18}\.(codes|ids|heads|tables|places|blocks|biases|norms|vectors|scales|attributes|neighbors|groups|corrections|slots|nodes|sums"
    r"|removed)"
    r"\.npy"
    r"|coder-[0-9a-f]{16}|\.(manifest\.json|coder-[0-9a-f]{16})\.[0-9a-f]{16}"  # and drafts
)
CHECKED = PAGE  # bytes under one checksum: searches read few of them, from anywhere
EARLY_CHECKED = {"vectors": CHECKED}  # up to version 3: other arrays had BLOCK bytes under one
DTYPES = {"codes": "|u1", "ids": "<i8", "heads": "<u8", "tables": "<u4", "places": "<u4", "scales": "<f4"}
LAYOUT_DTYPES = {"blocks": "|u1", "biases": "<i2", "norms": "<f4"}
VECTOR_DTYPES = {"float32": "<f4", "float16": "<f2", "int8": "|i1"}
GRAPH_ARRAYS = ("neighbors", "groups", "corrections", "slots", "nodes", "sums")  # of a graph, that it may have
MAX_FEATURES = 2**24
Made = TypeVar("Made")
Spec = tuple[np.dtype[Any], tuple[int, ...]]  # the dtype and the shape of an array


@dataclass(frozen=True)
class Commit:
    """What a commit holds."""

    width: int
    coder: Coder | None
    largest: int  # the largest id ever used, or -1
    segments: tuple[LiveSegment, ...]
    vector_format: VectorFormat | None = None  # how vectors are stored, if they are
    effort: Effort | None = None  # that `Index.tune` chose
    graph: bool = False  # whether large segments get graphs
    schema: Schema | None = None  # the columns of attributes, if items have some


class Store:
    """A folder with an index: one writer at a time, any number of readers."""

    def __init__(self, path: str | os.PathLike[str], *, write: bool, memory: Memory | None = None) -> None:
        self.path = Path(path).absolute()  # wherever the process may go
        self.realpath = os.path.realpath(path)
        self.writing = ForkSafeLock()  # held by the thread that commits or closes
        self._lock: IO[bytes] | None = None
        self._owner = os.getpid()  # a forked process inherits the lock, and may not write
        self.read_only, self._memory = not write, memory
        self.nodes = memory is not None and not memory.everything  # whether graphs are written with their nodes
        self._next = 1  # the number of the next file
        self._manifest: dict[str, Any] | None = None  # that was read or written last
        # What was written before, and its entries in the manifest.
        self._segments: dict[Segment, dict[str, Any]] = {}
        self._tombstones: dict[LiveSegment, dict[str, Any] | None] = {}
        self._graphs: dict[StoredGraph | None, dict[str, Any] | None] = {}
        self._coder: tuple[Coder | None, dict[str, str] | None] = (None, None)
        if write:
            if self.path.exists() and not self.path.is_dir():
                raise InvalidInput(f"{self.path} is a file, and an index is a folder: give another path")
            make_folder(self.path)
            self.exists()  # before anything is written to somebody else's folder
            self._lock = _lock(self.path)

    @classmethod
    def existing(cls, path: str | os.PathLike[str], memory: Memory | None = None) -> Self:
        """Return a store to write to, which must exist."""
        if not (Path(path) / MANIFEST).exists():
            raise no_index(path)
        return cls(path, write=True, memory=memory)

    @property
    def writable(self) -> bool:
        """Whether this store holds the lock."""
        return self._lock is not None and self._owner == os.getpid()

    @property
    def inherited(self) -> bool:
        """Whether this process was forked from the one that opened the store to write."""
        return self._lock is not None and self._owner != os.getpid()

    def close(self) -> None:
        """Release the lock, so that other writers can start."""
        with self.writing:
            if self._lock is not None:
                if self.writable:  # and not a forked process, whose lock is its parent's too
                    unlock_file(self._lock)
                self._lock.close()
                self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # reading

    @property
    def last(self) -> tuple[str, dict[str, Any] | None]:
        """The folder, and the manifest that was read or written last, which tells whether another commit came since."""
        return self.realpath, self._manifest

    def exists(self) -> bool:
        """Return whether the folder holds an index; raise if it holds something else."""
        if (self.path / MANIFEST).exists():
            return True
        others = [entry.name for entry in self.path.iterdir() if entry.name != LOCK and not OURS.fullmatch(entry.name)]
        if others:
            raise InvalidInput(
                f"{self.path} is a folder without an index that holds other files, such as {others[0]!r}: "
                "give a new or empty folder"
            )
        return False

    def read(self) -> Commit:
        """Return the last commit, memory-mapped. If a writer replaces it meanwhile, the newer one is read.

        Segments that were read before are the same objects, so what searches prepared of them stays.
        """
        return self._of_last_commit(self._map)

    def describe(self) -> dict[str, Any]:
        """Return the manifest of the last commit. Raise if a file of its segments is missing or has another size."""
        self._of_last_commit(self._map_segments)
        return self._manifest or {}

    def _of_last_commit(self, make: Callable[[dict[str, Any]], Made]) -> Made:
        """Return what `make` returns of the last manifest. If a writer replaces it meanwhile, the newer one is read."""
        while True:
            manifest = read_manifest(self.path)
            before = self._manifest
            if before is not None and (
                any(manifest.get(key) != before.get(key) for key in ("width", "coder", "vectors"))
                or not is_extended(before.get("attributes", {}), manifest.get("attributes", {}))
            ):
                raise InvalidInput(
                    f"{self.path} holds another index now, of another width, coder, vectors or attributes: open it "
                    "again"
                )
            try:
                made = make(manifest)
            except FileNotFoundError as error:
                if read_manifest(self.path) == manifest:
                    missing = error.filename or self.path / manifest["coder"]["name"]
                    raise DamagedFile(f"{missing} is missing: restore a copy of {self.path}") from error
            except (IsADirectoryError, *MALFORMED) as error:
                if isinstance(error, DamagedFile):
                    raise
                raise DamagedFile(
                    f"{self.path / MANIFEST} does not describe an index ({error}): restore a copy of {self.path}"
                ) from error
            else:
                self._manifest = manifest
                return made

    def changed(self) -> bool:
        """Return whether there is another commit than was read or written last."""
        return read_manifest(self.path) != self._manifest

    def _map(self, manifest: dict[str, Any]) -> Commit:
        width, vectors = checked_int(manifest["width"], 1, MAX_WIDTH), _vector_format(manifest)
        segments = self._map_segments(manifest)
        least = 1 + max(map(int, file_numbers(manifest)), default=0)
        self._next = max(self._next, checked_int(manifest["next"], least, 10**17))  # searches may still read old files
        entries = list(zip(segments, manifest["segments"], strict=True))
        self._segments = {one.segment: entry for one, entry in entries}
        self._tombstones = {one: entry["removed"] for one, entry in entries}
        self._graphs = {one.graph: entry.get("graph") for one, entry in entries}
        self.nodes |= bool(manifest.get("nodes"))
        coder = self._load_coder(manifest["coder"])
        self._coder = (coder, manifest["coder"])
        if vectors is not None and (coder is None or coder.n_features_in_ != vectors.features):
            raise ValueError(f"its vectors have {vectors.features} features, unlike its coder")
        largest, effort = checked_int(manifest["largest"], -1, 2**63 - 1), manifest.get("effort")
        tuned, graph = None if effort is None else Effort(**effort), manifest.get("graph", False)
        if type(graph) is not bool or (graph and coder is None):
            raise ValueError(f"{graph!r} should be whether an index with a coder has graphs")
        return Commit(width, coder, largest, tuple(segments), vectors, tuned, graph, _schema(manifest))

    def _map_segments(self, manifest: dict[str, Any]) -> list[LiveSegment]:
        width, beside = checked_int(manifest["width"], 1, MAX_WIDTH), (_vector_format(manifest), _schema(manifest))
        return [self._map_segment(entry, width, *beside) for entry in manifest["segments"]]

    def _map_segment(
        self, entry: dict[str, Any], width: int, vectors: VectorFormat | None, schema: Schema | None
    ) -> LiveSegment:
        known = (
            one for one, own in self._segments.items() if (own["name"], own["sums"]) == (entry["name"], entry["sums"])
        )
        segment, removed = next(known, None) or self._map_files(entry, width, vectors, schema), entry["removed"]
        graph = self._map_graph(entry.get("graph"), len(segment), vectors)
        if removed is None:
            return LiveSegment(segment, graph=graph)
        file, count = f"{checked_name(removed['name'], NUMBER)}.removed.npy", removed["count"]
        tombstones = self._read_small(file, "<u4", checked_int(count, 1, len(segment)), removed["sha256"])
        if tombstones[-1] >= len(segment) or (tombstones[:-1] >= tombstones[1:]).any():
            raise DamagedFile(f"{self.path / file} does not fit the other files: restore a copy")
        return LiveSegment(segment, tombstones.astype(np.uint32), graph)

    def _map_files(
        self, entry: dict[str, Any], width: int, vectors: VectorFormat | None, schema: Schema | None
    ) -> Segment:
        name, specs = checked_name(entry["name"], NUMBER), _specs(entry, width, vectors, schema)
        size_of = {key: CHECKED if "arrays" in entry else EARLY_CHECKED.get(key, BLOCK) for key in specs}
        mapped = self._map_arrays(name, specs, size_of, entry["sums"])
        arrays = {key: one.array for key, one in mapped.items()}
        if self._memory is not None:
            for key in self._memory.held(mapped, walked="blocks" in (entry.get("graph") or {})):
                mapped[key].touch(0, arrays[key].nbytes)
                arrays[key] = np.array(mapped.pop(key).array)
        mapped.few_reads = self._memory is not None
        if self._memory is not None and "codes" in mapped:
            mapped["codes"].expect_few_reads()
        layout = {key: arrays[key] for key in LAYOUT_DTYPES if key in arrays}
        guards = {key: guard for key in layout if key in mapped and (guard := mapped[key].guard) is not None}
        return Segment(
            Codes.unchecked(arrays["codes"], width),
            arrays["tables"],
            arrays["ids"],
            arrays["heads"],
            arrays["places"],
            None if vectors is None else _stored_vectors(arrays, mapped),
            ScanLayout.of_arrays(entry.get("layout", ""), layout, guards),
            mapped,
            None if schema is None or "attributes" not in arrays else (_own(schema, entry), arrays["attributes"]),
        )

    def _map_graph(self, entry: dict[str, Any] | None, count: int, vectors: VectorFormat | None) -> StoredGraph | None:
        if entry is None:
            return None
        for known, own in self._graphs.items():
            if known is not None and own == entry and len(known.neighbors) == count:
                return known
        name, degree = checked_name(entry["name"], NUMBER), checked_int(entry["degree"], DEGREE, DEGREE)
        specs: dict[str, Spec] = {"neighbors": (np.dtype("<u4"), (count, degree))}
        if "layout" in entry:  # no columns where all items are alike
            specs["groups"] = np.dtype("|u1"), (count, checked_int(entry["columns"], 0, MAX_BITS // 8))
            specs["corrections"] = np.dtype("<f2"), (2, count)
        if "blocks" in entry:
            if vectors is None:
                raise ValueError(f"graph {name} has nodes with vectors, and the index stores none")
            blocks = checked_int(entry["blocks"], 1, count), NodeLayout.of(vectors).block_bytes
            specs |= {"slots": (np.dtype("<u4"), (count,)), "nodes": (np.dtype("|u1"), blocks)}
        mapped = self._map_arrays(name, specs, {key: PAGE if key == "nodes" else BLOCK for key in specs}, entry["sums"])
        arrays, nodes = {key: one.array for key, one in mapped.items()}, None
        in_memory = self._memory is None or self._memory.everything
        if not in_memory and "nodes" in mapped:
            for key in NAVIGATED & set(mapped):
                mapped[key].touch(0, arrays[key].nbytes)
                arrays[key] = np.array(mapped.pop(key).array)
            mapped["nodes"].expect_few_reads()
            nodes = StoredNodes(arrays["slots"], arrays["nodes"], mapped.guard("nodes"))
        items = NavigatingCodes(arrays["groups"], arrays["corrections"]) if "layout" in entry else None
        walked = in_memory or nodes is not None
        return StoredGraph(arrays["neighbors"], items, entry.get("layout", ""), mapped, nodes=nodes, walked=walked)

    def _map_arrays(self, name: str, specs: dict[str, Spec], size_of: dict[str, int], checksum: str) -> MappedArrays:
        """Map the files of this name, given the bytes that share a checksum in each, and that of all checksums."""
        blocks = {key: -(-math.prod(shape) * dtype.itemsize // size_of[key]) for key, (dtype, shape) in specs.items()}
        sums = self._read_small(f"{name}.sums.npy", "<u8", sum(blocks.values()), checksum)
        mapped, start = MappedArrays(), 0
        for key, spec in specs.items():
            own = sums[start : start + blocks[key]]
            header = PAGE if key == "nodes" else HEADER
            mapped[key] = Mapped(self.path / f"{name}.{key}.npy", *spec, own, size_of[key], header)
            start += blocks[key]
        return mapped

    def _read_small(self, name: str, dtype: str, count: int, checksum: str) -> NDArray[Any]:
        """Return an array that is read and verified as a whole."""
        path = self.path / name
        array = np.array(Mapped(path, np.dtype(dtype), (count,)).array)
        if sha256(array.tobytes()) != checksum:
            raise DamagedFile(f"{path} is damaged, its checksum does not match: restore a copy")
        return array

    def _load_coder(self, entry: dict[str, str] | None) -> Coder | None:
        if entry is None or entry == self._coder[1]:
            return self._coder[0]
        coder = load_coder(self.path / checked_name(entry["name"], CODER))
        if coder.fingerprint != entry["fingerprint"]:
            raise DamagedFile(f"{self.path / entry['name']} is not the coder of this index: restore a copy")
        return coder

    # writing

    def commit(self, commit: Commit) -> None:
        """Make this what the folder holds. After an error it holds what it held before; try again.

        Only a power failure right after such an error may leave this: a system that cannot sync knows no more.
        """
        self._check_lock()
        self._check_last()
        first = self._next
        try:
            segments = {one.segment: self._write_segment(one.segment) for one in commit.segments}
            tombstones = {one: self._write_tombstones(one) for one in commit.segments}
            graphs = {one.graph: self._write_graph(one.graph, one.vectors) for one in commit.segments}
            coder = self._write_coder(commit.coder)
            sync_folder(self.path)
        except BaseException:
            for number in range(first, self._next):  # no manifest names them
                for path in self.path.glob(f"{number:06d}.*.npy"):
                    path.unlink(missing_ok=True)
            raise
        manifest = {
            "width": commit.width,
            "largest": commit.largest,
            "next": self._next,
            "coder": coder,
            "effort": None if commit.effort is None else vars(commit.effort),
            "segments": [
                {
                    **_with_columns(segments[one.segment], one.segment, commit.schema),
                    "removed": tombstones[one],
                    **({} if one.graph is None else {"graph": graphs[one.graph]}),
                }
                for one in commit.segments
            ],
        }
        if commit.graph:
            manifest["graph"] = True
        if commit.graph and self.nodes:
            manifest["nodes"] = True
        if commit.vector_format is not None:
            manifest["vectors"] = vars(commit.vector_format)
        if commit.schema is not None:
            manifest["attributes"] = dict(commit.schema)
        self._check_lock()  # once more: files take long; they stay, as a copy may have the same names
        self._check_last()
        before = self._keep_manifest()
        try:
            self._manifest = write_manifest(self.path, manifest)
        except BaseException:  # also once it was replaced, where the folder could not be synced
            with suppress(OSError):
                if before is None:
                    (self.path / MANIFEST).unlink(missing_ok=True)
                else:
                    before.replace(self.path / MANIFEST)
                sync_folder(self.path)
            raise
        finally:
            if before is not None:  # replacing a name of the same file leaves both
                with suppress(OSError):
                    before.unlink(missing_ok=True)
        self._segments, self._tombstones, self._graphs = segments, tombstones, graphs
        self._coder = commit.coder, coder
        with suppress(OSError, InvalidInput):  # what is obsolete does no harm: the next commit deletes it
            self._check_lock()  # or another folder has the name now
            self.delete_obsolete_files(manifest)

    def _keep_manifest(self) -> Path | None:
        """Return a second name of the manifest, by which it can be put back whatever the disk cannot write or sync."""
        if not self.exists():
            return None
        kept = self.path / f".{MANIFEST}.{secrets.token_hex(8)}"
        try:
            os.link(self.path / MANIFEST, kept)
        except OSError:  # file systems without links take a copy
            write_atomic(kept, (self.path / MANIFEST).read_bytes())
        return kept

    def _check_lock(self) -> None:
        """Raise unless this is the writer of the folder that is there now."""
        if not self.writable or self._lock is None:
            raise InvalidInput(f"{self.path} was opened to read, or by another process: open it with mode='a'")
        held = os.fstat(self._lock.fileno())
        try:
            found = (self.path / LOCK).stat()
        except FileNotFoundError:
            found = None
        if found is None or (found.st_dev, found.st_ino) != (held.st_dev, held.st_ino):
            raise InvalidInput(
                f"{self.path} was moved, removed or replaced since it was opened: save the index to another folder"
            )

    def _check_last(self) -> None:
        """Raise unless the folder holds the commit that this writer knows: another one would be lost."""
        there = self.exists()
        if there != (self._manifest is not None) or (there and self.changed()):
            raise InvalidInput(
                f"a commit follows the last one of its writer, but {self.path} holds {'another' if there else 'none'} "
                "now, as after a copy was restored: save the index to another folder to keep its changes, then "
                "rollback() and refresh() to continue with the restored folder"
            )

    def delete_obsolete_files(self, manifest: dict[str, Any] | None = None) -> None:
        """Delete the index's files that the manifest does not name: an earlier commit's, or what a crash left."""
        manifest = manifest or read_manifest(self.path)
        named = {
            f"{entry['name']}.{key}.npy"
            for entry in manifest["segments"]
            for key in (*array_names(entry, manifest), "sums")
        }
        named |= {f"{entry['removed']['name']}.removed.npy" for entry in manifest["segments"] if entry["removed"]}
        graphs = [entry["graph"]["name"] for entry in manifest["segments"] if entry.get("graph")]
        named |= {f"{name}.{key}.npy" for name in graphs for key in GRAPH_ARRAYS}
        named |= {manifest["coder"]["name"]} if manifest["coder"] else set()
        for entry in self.path.iterdir():
            if OURS.fullmatch(entry.name) and entry.name not in named and not entry.is_dir():
                entry.unlink(missing_ok=True)  # a reader that maps it can still read it

    def _number(self) -> str:
        self._next += 1
        return f"{self._next - 1:06d}"

    def _write_segment(self, segment: Segment) -> dict[str, Any]:
        if segment in self._segments:
            return self._segments[segment]
        segment.mapped.touch()  # damage must not be copied under new checksums
        name = self._number()
        arrays = {
            key: array.astype(array.dtype.newbyteorder("<"), copy=False) for key, array in segment.arrays().items()
        }
        sums = [write_array(self.path / f"{name}.{key}.npy", array, CHECKED) for key, array in arrays.items()]
        checks = np.concatenate(sums)
        write_array(self.path / f"{name}.sums.npy", checks)
        return {
            "name": name,
            "count": len(segment),
            "arrays": {key: [array.dtype.str, *array.shape] for key, array in arrays.items()},
            "layout": segment.layout.format,
            "sums": sha256(checks.tobytes()),
        }

    def _write_tombstones(self, one: LiveSegment) -> dict[str, Any] | None:
        if one in self._tombstones or not len(one.tombstones):
            return self._tombstones.get(one)
        name = self._number()
        write_array(self.path / f"{name}.removed.npy", one.tombstones)
        return {"name": name, "count": len(one.tombstones), "sha256": sha256(one.tombstones.tobytes())}

    def _write_graph(self, graph: StoredGraph | None, vectors: StoredVectors | None) -> dict[str, Any] | None:
        known, with_nodes = self._graphs.get(graph), self.nodes and vectors is not None
        if graph is None or (known is not None and ("blocks" in known or not with_nodes)):
            return known
        graph.touch()  # damage must not be copied under new checksums
        name = self._number()
        arrays = {key: array.astype(array.dtype.newbyteorder("<"), copy=False) for key, array in graph.arrays().items()}
        sums = [write_array(self.path / f"{name}.{key}.npy", array) for key, array in arrays.items()]
        entry: dict[str, Any] = {"name": name, "degree": arrays["neighbors"].shape[1]}
        if graph.items is not None:
            entry |= {"layout": graph.layout, "columns": graph.items.grouped.shape[1]}
        if vectors is not None and with_nodes:
            layout = NodeLayout.of(vectors.format)
            slots = place_nodes(arrays["neighbors"], layout)
            blocks = count_blocks(slots, layout), layout.block_bytes
            pieces = node_blocks(arrays["neighbors"], vectors, slots, layout)
            sums.append(write_array(self.path / f"{name}.slots.npy", slots.astype("<u4", copy=False)))
            sums.append(write_pages(self.path / f"{name}.nodes.npy", blocks, pieces))
            entry["blocks"] = blocks[0]
        checks = np.concatenate(sums)
        write_array(self.path / f"{name}.sums.npy", checks)
        return {**entry, "sums": sha256(checks.tobytes())}

    def _write_coder(self, coder: Coder | None) -> dict[str, str] | None:
        if coder is None:
            return None
        if coder is self._coder[0]:
            return self._coder[1]
        record = coder.to_record()
        if record.settings.get("modules"):
            raise InvalidInput(
                "an index loads its coder from a file, which cannot hold modules of your own: keep their codes in "
                "Index(width=…), and save the coder itself"
            )
        fingerprint = record.fingerprint
        coder.save(self.path / f"coder-{fingerprint[:16]}")
        return {"name": f"coder-{fingerprint[:16]}", "fingerprint": fingerprint}


def _specs(entry: dict[str, Any], width: int, vectors: VectorFormat | None, schema: Schema | None) -> dict[str, Spec]:
    """Return the dtypes and shapes of a segment's arrays by their names, in the order of their checksums."""
    count = checked_int(entry["count"], 1, MAX_ITEMS)
    shapes: dict[str, tuple[int, ...]] = {"codes": (count, -(-width // 8)), "ids": (count,), "heads": (count,)}
    written = entry.get("arrays")
    tables = entry["tables"] if written is None else written["tables"][1]
    shapes |= {"tables": (checked_int(tables, 1, 2**32),), "places": (count,)}
    known = dict(DTYPES)
    if written is not None:
        known["ids"] = "<u4" if written["ids"][0] == "<u4" else "<i8"
        for key in [key for key in LAYOUT_DTYPES if key in written]:
            known[key], shapes[key] = LAYOUT_DTYPES[key], tuple(checked_int(n, 0, 2**36) for n in written[key][1:])
    if vectors is not None:
        known["vectors"], shapes["vectors"] = VECTOR_DTYPES[vectors.dtype], (count, vectors.features)
        if vectors.dtype == "int8":
            shapes["scales"] = (count,)
    if written is not None and schema is not None and "attributes" in written:
        known["attributes"], shapes["attributes"] = "|u1", (checked_int(written["attributes"][1], 8, 2**48),)
    if written is not None and written != {key: [known[key], *shape] for key, shape in shapes.items()}:
        raise ValueError(f"the arrays of segment {entry['name']} are not those of a segment")
    return {key: (np.dtype(known[key]), shape) for key, shape in shapes.items()}


def _vector_format(manifest: dict[str, Any]) -> VectorFormat | None:
    """Return how the vectors of an index are stored; files of version 1 have none."""
    if "vectors" not in manifest:
        return None
    entry = manifest["vectors"]
    return VectorFormat(entry["dtype"], checked_int(entry["features"], 1, MAX_FEATURES))


def _schema(manifest: dict[str, Any]) -> Schema | None:
    """Return the columns of attributes; files up to version 5 have none."""
    return check_schema(manifest["attributes"]) if "attributes" in manifest else None


def _own(schema: Schema, entry: dict[str, Any]) -> Schema:
    """Return the columns of a segment: the first ones, if columns were added later."""
    if "columns" not in entry:
        return schema
    return dict(list(schema.items())[: checked_int(entry["columns"], 1, len(schema))])


def _with_columns(entry: dict[str, Any], segment: Segment, schema: Schema | None) -> dict[str, Any]:
    """Return the entry of a segment with the number of its columns, if the index has more columns now."""
    own = segment.attributes
    if own is None or schema is None or len(own.schema) == len(schema):
        return entry
    return {**entry, "columns": len(own.schema)}


def _stored_vectors(arrays: dict[str, NDArray[Any]], mapped: MappedArrays) -> StoredVectors:
    in_file = mapped.stays_in_file("vectors")
    if in_file:
        mapped["vectors"].expect_few_reads()
    scales, guards = arrays.get("scales", NO_SCALES), (mapped.guard("vectors"), mapped.guard("scales"))
    return StoredVectors(arrays["vectors"], scales, *guards, in_file)


def remove_unfinished(path: Path) -> None:
    """Delete the folder of an index without a commit, unless another writer uses it."""
    with suppress(InvalidInput, OSError), Store(path, write=True) as store:
        if not store.exists():
            shutil.rmtree(path)


def _lock(folder: Path) -> IO[bytes]:
    """Lock the folder for writing. The system releases the lock when the process ends, however it ends."""
    path = folder / LOCK
    if path.is_symlink() or (path.exists() and not path.is_file()):  # opening a pipe would wait for its reader
        raise DamagedFile(f"{path} is not a file: remove it")
    if not os.access(folder, os.W_OK | os.X_OK):  # before the work whose result could not be written
        raise PermissionError(f"{folder} is not writable: open it to read, or change its permissions")
    file = path.open("ab")
    try:
        lock_file(file)
    except OSError as error:
        file.close()
        raise InvalidInput(
            f"{folder} is being written by another Index, of this process or another: close that one first, "
            "or open this one to read"
        ) from error
    return file
