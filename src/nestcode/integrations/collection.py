"""Documents by name, found by the cosine of their embeddings: what the stores for other frameworks share.

The first embeddings are all compared; once there are enough, a coder is fitted to them, and codes choose those to
compare, as in `nestcode.integrations.faiss.NestedIndex`.
"""

import json
import operator
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from nestcode.arrays import Floats
from nestcode.errors import DamagedFile, InvalidInput
from nestcode.integrations.faiss import NestedIndex
from nestcode.storage import Record, read_record, write_record

VERSION = NestedIndex.VERSION  # of the file, which holds such an index
SETTINGS = ("width", "rows_to_fit", "vectors")  # of an index, that a store takes
Document = TypeVar("Document")


class Collection(Generic[Document]):
    """Documents by name, with or without embeddings; its methods are thread-safe.

    >>> collection = Collection[str]({"width": 64})
    >>> collection.put({"a": "east", "b": "north"}, [[1, 0], [0, 1]])
    >>> collection.nearest([0, 2], 1)
    [('b', 1.0)]
    >>> collection.delete(["b"])
    1
    >>> collection.documents
    {'a': 'east'}

    Args:
        settings: keyword arguments of `NestedIndex`.

    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.documents: dict[str, Document] = {}
        self.lock = threading.RLock()
        self.settings = dict(settings)
        self._index: NestedIndex | None = None  # created with the first embeddings, which have its dimension
        self._rows: dict[str, int] = {}  # names of documents with an embedding -> ids in the index
        self._names: dict[int, str] = {}

    def put(self, documents: Mapping[str, Document], embeddings: Iterable[ArrayLike | None]) -> None:
        """Add documents, replacing those with the same names; refused embeddings leave everything as it was."""
        _check_names(documents)
        rows = {name: row for name, row in zip(documents, embeddings, strict=True) if row is not None}
        with self.lock:
            first = 0
            if rows:
                try:
                    vectors = np.asarray(list(rows.values()), dtype=np.float32)
                except ValueError as error:
                    raise InvalidInput(
                        f"embeddings must be lists of equally many numbers ({error}): embed all by one model"
                    ) from error
                index = self._index
                if index is None:
                    index = self._make_index(vectors.shape[1])
                first = index.next_id
                index.add(vectors)
                self._index = index
            self.delete(documents)  # after add, which may refuse the new ones
            self.documents.update(documents)
            for row, name in enumerate(rows, start=first):
                self._rows[name], self._names[row] = row, name

    def _make_index(self, features: int) -> NestedIndex:
        return NestedIndex(features, metric="cosine", **self.settings)

    def delete(self, names: Iterable[str]) -> int:
        """Delete the documents with these names, and return how many there were."""
        with self.lock:
            known = [name for name in dict.fromkeys(_check_names(names)) if name in self.documents]
            rows = [self._rows.pop(name) for name in known if name in self._rows]
            if rows and self._index is not None:
                self._index.remove_ids(rows)
            for row in rows:
                del self._names[row]
            for name in known:
                del self.documents[name]
        return len(known)

    def nearest(
        self, embedding: ArrayLike, k: int, wanted: Callable[[Document], bool] | None = None
    ) -> list[tuple[str, float]]:
        """Return the names and cosines of the k nearest documents that are wanted, the nearest first."""
        with self.lock:
            if self._index is None or not self._rows:
                return []
            allowed = None
            if wanted is not None:
                allowed = [row for row, name in self._names.items() if wanted(self.documents[name])]
            cosines, rows = self._index.search(np.asarray([embedding], dtype=np.float32), k, filter=allowed)
            pairs = zip(rows[0], cosines[0], strict=True)
            return [(self._names[int(row)], float(cosine)) for row, cosine in pairs if row >= 0]

    def embeddings(self, names: Iterable[str]) -> Floats:
        """Return the embeddings of documents as the index has them: exact at first, rounded or decoded later."""
        with self.lock:
            if self._index is None:
                raise InvalidInput("there are no embeddings yet: add documents with embeddings first")
            return self._index.reconstruct_batch([self._rows[name] for name in names])

    def save(self, path: str | os.PathLike[str], kind: str, dump: Callable[[Document], list[Any]]) -> None:
        """Write a file atomically, where `dump` gives the JSON values of a document."""
        with self.lock:
            entries = [_to_json([self._rows.get(name), name, *dump(one)]) for name, one in self.documents.items()]
            index, coder = self._index, self.settings.get("coder")
            if index is None and coder is not None:  # the file keeps it
                index = self._make_index(coder.n_features_in_)
            without = {name: self.settings.get(name) for name in SETTINGS}  # what there is before the first embedding
            record = Record(kind, VERSION, without, {}) if index is None else index.to_record()
        arrays = {**record.arrays, "documents": np.frombuffer(b"[" + b",".join(entries) + b"]", dtype=np.uint8)}
        write_record(path, Record(kind, VERSION, record.settings, arrays))

    @classmethod
    def load(cls, path: str | os.PathLike[str], kind: str, parse: Callable[..., Document]) -> Self:
        """Read what `save` wrote, where `parse` makes a document of its name and its JSON values."""
        record = read_record(path)
        if record.kind != kind or record.version > VERSION:
            raise DamagedFile(
                f"{path} holds a {record.kind} of version {record.version}, not a {kind} of version {VERSION}: "
                "give a file of this kind of store, or upgrade nestcode"
            )
        arrays = dict(record.arrays)
        self = cls({name: record.settings.get(name) for name in SETTINGS})
        try:
            for row, name, *values in json.loads(arrays.pop("documents").tobytes()):
                self.documents[name] = parse(name, *values)
                if row is not None:
                    self._rows[name] = operator.index(row)
                    self._names[row] = name
            if not np.array_equal(sorted(self._rows.values()), np.sort(arrays.get("ids", ()))):
                raise ValueError("they have other ids than its embeddings")
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise DamagedFile(f"the documents in {path} are damaged ({error}): restore a copy") from error
        if "d" in record.settings:
            self._index = NestedIndex.from_record(
                Record(NestedIndex.KIND, record.version, record.settings, arrays), str(path)
            )
        return self


def _to_json(entry: list[Any]) -> bytes:
    """Return a document as JSON; raise if it would be read as another one."""
    try:
        text = json.dumps(entry, ensure_ascii=False, allow_nan=False)
        encoded = text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(
            f"metadata must be JSON values to be saved, got another type or NaN in document {entry[1]!r} ({error}): "
            "convert them first"
        ) from error
    if json.loads(text) != entry:
        raise InvalidInput(
            f"metadata must be JSON values to be saved, got {_changed(entry, json.loads(text))} in document "
            f"{entry[1]!r}: make keys strings, and tuples lists"
        )
    return encoded


def _changed(value: Any, read: Any) -> str:
    """Return the first key or value that JSON changes, to be shown."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                return f"the key {key!r}"
            if inner != read[key]:
                return f"{key}: {_changed(inner, read[key])}" if isinstance(inner, dict) else f"{key}: {inner!r:.60}"
    if isinstance(value, list):
        return next(_changed(inner, other) for inner, other in zip(value, read, strict=True) if inner != other)
    return f"{value!r:.60}"


def _check_names(names: Iterable[str]) -> list[str]:
    """Return the names of documents; raise if they are no strings, or a single one, whose letters would be names."""
    found = list(names)
    if isinstance(names, str) or not all(isinstance(name, str) for name in found):
        raise InvalidInput(f"ids must be a list of strings, got {names!r}: convert them, as in ['5', '7']")
    return found
