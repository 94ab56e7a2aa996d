"""Documents by name, found by the cosine of their embeddings: what the stores for other frameworks share.

Documents are attributes of an `Index`, in columns: their name, their text, the rest as JSON, and one for each key and
type of their metadata (metadata.py). In a folder each change is one commit of that index.

    no embedding yet ──▶ codes of zeros ──▶ all embeddings compared, as float32 ──rows_to_fit──▶ a coder chosen by them

If comparing all embeddings is as fast, the choice is repeated at twice the size. Each state is an index of its own: the
next one is written beside the last, then one small file names it.
"""

import json
import re
import shutil
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nestcode.arrays import Floats, Ids, check_int, check_rows
from nestcode.coders import Coder, RotationCoder
from nestcode.codes import Codes
from nestcode.errors import DamagedFile, InvalidInput
from nestcode.index import Index
from nestcode.integrations.fitting import choose_index, index_of_width, index_with
from nestcode.integrations.metadata import Metadata, Where, all_of, columns_of, types_of
from nestcode.search.schema import MAX_COLUMNS
from nestcode.search.vectors import VectorFormat, VectorType
from nestcode.storage import Record, read_record, write_record

FILE, VERSION = "store.nestcode", 1  # names the folder of the index, beside it
FOLDER = re.compile(r"index-[0-9]{6}")
SETTINGS = ("width", "rows_to_fit", "vectors")  # of a store, that its file has
NAME, SOURCE, TEXT, REST, EMBEDDED = OWN = ("name", "source", "text", "document", "embedded")
TYPES = {NAME: "string", SOURCE: "string", TEXT: "string", REST: "string", EMBEDDED: "bool"}
ROWS = 50_000  # documents that are copied or read at once
Mode = Literal["a", "r"]
Document = TypeVar("Document")


class Row:
    """A document as it is stored.

    Args:
        name: its id.
        rest: what it is but for its text and embedding, as JSON values.
        fields: keys and values that conditions look at.
        text: its text.
        source: the id of what it is a part of.

    """

    def __init__(
        self,
        name: str,
        rest: Any,
        fields: Iterable[tuple[str, Any]],
        text: str | None = None,
        source: str | None = None,
    ) -> None:
        encoded = _to_json(name, text, rest)
        self.columns = {NAME: name, SOURCE: source, TEXT: text, REST: encoded, **columns_of(fields)}


class Collection(Generic[Document]):
    """Documents by name, with or without embeddings; its methods are thread-safe.

    Args:
        kind: the name of the store in its file.
        dump: returns a document as a `Row`.
        parse: returns the document of a name, a text and the rest.
        settings: the width of codes, a coder, the number of embeddings at which one is chosen, and how embeddings are
            stored from then on.
        path: the folder that keeps the documents; None keeps them in memory.
        mode: "a" opens or creates the folder, and commits every change; "r" reads what it holds.

    """

    def __init__(
        self,
        kind: str,
        dump: Callable[[Document], Row],
        parse: Callable[[str, str | None, Any], Document],
        settings: Mapping[str, Any],
        path: Path | None = None,
        mode: Mode = "a",
    ) -> None:
        if mode not in ("a", "r"):
            raise InvalidInput(f'mode must be "a" to change a store or "r" to read it, got {mode!r}')
        self.lock = threading.RLock()
        self.settings, self.path = dict(settings), path
        self._kind, self._dump, self._parse, self._mode = kind, dump, parse, mode
        self._coder: Coder | None = self.settings.pop("coder", None)
        self._check_settings()
        self._ids: dict[str, int] = {}  # by names, in the order of addition
        self._folder: Path | None = None  # of the index
        if path is not None and ((path / FILE).exists() or mode == "r"):
            self._open(path)
        else:
            self._start()

    def _check_settings(self) -> None:
        width, rows, vectors = (self.settings[name] for name in SETTINGS)
        self._vectors: VectorType | None = None if vectors is None else VectorFormat(vectors, 1).dtype
        self._next_choice = check_int(rows, "rows_to_fit", least=1)  # embeddings at which a coder is chosen
        if width is not None:
            check_int(width, "width", least=1)
        if self._coder is not None and width is not None and width > self._coder.width_:
            raise InvalidInput(
                f"width must be at most the coder's {self._coder.width_}, got {width}: leave it out, or fit a wider one"
            )

    # contents

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, name: object) -> bool:
        return name in self._ids

    def documents(self, names: Iterable[str]) -> list[Document]:
        """Return the documents with these names, in their order; unknown names are ignored."""
        with self.lock:
            return self._read([self._ids[name] for name in _check_names(names) if name in self._ids])

    def select(self, where: Where | None = None) -> list[Document]:
        """Return the documents for which a condition holds, in the order of addition; all by default."""
        with self.lock:
            return self._read(self._select(where))

    def names(self, where: Where | None = None) -> list[str]:
        """Return the names of the documents for which a condition holds; all by default."""
        with self.lock:
            return list(self._ids) if where is None else self._texts(self._select(where), NAME)

    @property
    def metadata(self) -> Metadata:
        """What conditions on metadata are made of."""
        return Metadata.of_columns(self._index.columns)

    def embeddings(self, names: Iterable[str]) -> Floats:
        """Return the embeddings of documents as the index has them: exact at first, rounded or decoded later."""
        with self.lock:
            if self._index.coder is None:
                raise InvalidInput("there are no embeddings yet: add documents with embeddings first")
            return _vectors(self._index, np.array([self._ids[name] for name in names], dtype=np.int64))

    def distinct_texts(self, key: str) -> list[str]:
        """Return the different texts that documents have as a value of a key."""
        with self.lock:
            name = f"s:{key}"
            if name not in self._index.columns:
                return []
            values = self._index.attributes(list(self._ids.values()), [name])[name]
            return [text for text in values.unique().to_pylist() if text is not None]

    # changes

    def put(self, documents: Mapping[str, Document], embeddings: Iterable[ArrayLike | None]) -> None:
        """Add documents, replacing those with the same names, in one commit; errors leave everything as it was."""
        _check_names(documents)
        rows = [self._dump(one).columns for one in documents.values()]
        given = list(embeddings)
        if not rows:
            return
        with self.lock:
            self._check_writable()
            vectors, embedded = _as_vectors(given)
            if vectors is not None:
                self._prepare(vectors)
            index = self._index
            if index.coder is None:
                items: Codes | NDArray[Any] = Codes.from_bits(np.zeros((len(rows), index.width), dtype=np.bool_))
            else:
                items = np.zeros((len(rows), index.coder.n_features_in_), dtype=np.float32)
                if vectors is not None:
                    items[embedded] = vectors
            columns = [{**one, EMBEDDED: bool(own)} for one, own in zip(rows, embedded, strict=True)]
            first = next(reversed(self._ids.values()), -1) + 1  # ids ascend, in the order of addition
            ids = np.arange(first, first + len(rows))
            gone = [self._ids[name] for name in documents if name in self._ids]

            def write() -> None:
                self._add_columns(columns)
                index.add(items, ids=ids, attributes=_table(columns, index.columns))
                index.remove(gone)

            self._commit(write)
            for name in documents:
                self._ids.pop(name, None)
            self._ids |= dict(zip(documents, ids.tolist(), strict=True))

    def update(self, documents: Mapping[str, Document]) -> None:
        """Change documents and keep their embeddings, in one commit."""
        rows = [self._dump(one).columns for one in documents.values()]
        with self.lock:
            index, ids = self._index, np.array([self._ids[name] for name in documents], dtype=np.int64)
            if not len(ids):
                return
            embedded = index.attributes(ids, [EMBEDDED])[EMBEDDED].to_pylist()
            columns = [{**one, EMBEDDED: own} for one, own in zip(rows, embedded, strict=True)]
            stored = None if index.vector_type is None else index.vectors(ids)

            def write() -> None:
                self._add_columns(columns)
                index.update(index.codes(ids), ids, vectors=stored, attributes=_table(columns, index.columns))

            self._commit(write)

    def delete(self, names: Iterable[str]) -> int:
        """Delete the documents with these names in one commit, and return how many there were."""
        with self.lock:
            known = [name for name in dict.fromkeys(_check_names(names)) if name in self._ids]
            if known:
                gone = [self._ids[name] for name in known]
                self._commit(lambda: self._index.remove(gone))
            for name in known:
                del self._ids[name]
        return len(known)

    # search

    def nearest(self, embedding: ArrayLike, k: int, where: Where | None = None) -> list[tuple[Document, float]]:
        """Return the k nearest documents for which a condition holds, the nearest first, with their cosines."""
        with self.lock:
            ids, cosines = self._nearest(embedding, k, where)
            return list(zip(self._read(ids), cosines, strict=True))

    def nearest_names(self, embedding: ArrayLike, k: int, where: Where | None = None) -> list[str]:
        """Return the names of the k nearest documents for which a condition holds, the nearest first."""
        with self.lock:
            return self._texts(self._nearest(embedding, k, where)[0], NAME)

    def _nearest(self, embedding: ArrayLike, k: int, where: Where | None) -> tuple[list[int], list[float]]:
        index = self._index
        if index.coder is None:
            return [], []
        query = self._rows(np.asarray(embedding, dtype=np.float32)[None], index.coder)
        found = all_of([Where(EMBEDDED), *([] if where is None else [where])])
        every = None if self._is_fitted else max(len(index), 1)
        hits = index.search(
            query, k, filter=(found.text, found.values), metric="cosine", candidates=every, threads=None
        )
        there = hits.ids[0] >= 0
        return hits.ids[0][there].tolist(), (1 - hits.distances[0][there] / 2).tolist()

    def _select(self, where: Where | None) -> list[int]:
        return list(self._ids.values()) if where is None else self._index.matching((where.text, where.values)).tolist()

    # files

    @classmethod
    def read_settings(cls, path: Path, kind: str) -> dict[str, Any]:
        """Return the settings of the store in a folder."""
        return dict(_read_file(path, kind)["settings"])

    def save(self, path: Path) -> None:
        """Write the documents to a new folder, or to one that holds a store, which they replace."""
        with self.lock:
            if self.path is not None and path.resolve() == self.path.resolve():
                return  # every change is there already
            _check_folder(path)
            there = (path / FILE).exists()  # refused while another process writes it
            held = Index.open(path / _read_file(path, self._kind)["index"], mode="a") if there else None
            try:
                folder = _next_folder(path)
                self._index.save(folder)
                self._name(path, folder)
            finally:
                if held is not None:
                    held.close(save_graphs=False)
            _delete_obsolete(path, folder)

    def close(self) -> None:
        """Let another process write the folder."""
        with self.lock:
            self._index.close()

    def __del__(self) -> None:
        if getattr(self, "_folder", None) is not None:  # users of frameworks do not close stores
            self._index.close(save_graphs=False)

    def _start(self) -> None:
        """Begin an index without documents."""
        if self.path is not None:
            _check_folder(self.path)
        coder = self._coder
        self._set(Index(width=8) if coder is None else index_with(coder, self.settings["width"], self._vectors))

    def _open(self, path: Path) -> None:
        while True:
            settings = _read_file(path, self._kind)
            folder = path / settings["index"]
            try:
                index = Index.open(folder, mode=self._mode)
            except FileNotFoundError as error:
                if _read_file(path, self._kind) == settings:
                    raise DamagedFile(f"{folder} is missing: restore a copy of {path}") from error
                continue
            if _read_file(path, self._kind) == settings:  # and no writer went on to another index meanwhile
                break
            index.close()
        self._index, self._folder = index, folder
        self.settings = dict(settings["settings"])
        self._check_settings()
        if self._mode == "a":
            _delete_obsolete(path, folder)
        if any(index.columns.get(name) != kind for name, kind in TYPES.items()):
            raise DamagedFile(f"{folder} is not the index of a store, it has other columns: restore a copy")
        ids = index.ids
        for start in range(0, len(ids), ROWS):
            some = ids[start : start + ROWS].tolist()
            self._ids |= dict(zip(self._texts(some, NAME), some, strict=True))
        if len(self._ids) != len(ids) or None in self._ids:
            raise DamagedFile(f"the documents in {path} are damaged (names repeat or are missing): restore a copy")

    def _set(self, index: Index) -> None:
        """Go on with another index: in a folder, beside the last, which is deleted once a file names the new one."""
        if not index.columns:
            index.add_columns(TYPES)
        if self.path is None:
            self._index = index
            return
        folder, before = _next_folder(self.path), self._folder
        index.save(folder)
        opened = Index.open(folder, mode="a")
        try:
            self._name(self.path, folder)
        except BaseException:
            opened.close(save_graphs=False)
            raise
        if before is not None:
            self._index.close(save_graphs=False)
        self._index, self._folder = opened, folder
        _delete_obsolete(self.path, folder)

    def _name(self, path: Path, folder: Path) -> None:
        """Make a folder the index of a store."""
        write_record(path / FILE, Record(self._kind, VERSION, {"index": folder.name, "settings": self.settings}, {}))

    def _commit(self, write: Callable[[], None]) -> None:
        """Make a change, and commit it if there is a folder; errors leave everything as it was."""
        if self.path is None:
            write()
            return
        self._check_writable()
        try:
            write()
            self._index.commit()
        except BaseException:
            self._index.rollback()
            raise

    def _check_writable(self) -> None:
        if self._mode == "r":
            raise InvalidInput(f'{self.path} was opened to read: open it with mode="a" to change it')

    # the index

    @property
    def _is_fitted(self) -> bool:
        """Whether codes choose what is compared; before, all embeddings are."""
        return self._index.effort is not None

    def _prepare(self, new: Floats) -> None:
        """Have an index that takes these embeddings, of another coder once there are enough."""
        index = self._index
        if index.coder is not None:
            self._rows(new, index.coder)
            if self._is_fitted:
                return
            where = np.array(index.matching(EMBEDDED), dtype=np.int64)
        else:
            where = np.empty(0, dtype=np.int64)
        width, count = self.settings["width"], len(where) + len(new)
        chosen = None
        if count >= self._next_choice:
            before = _vectors(index, where) if len(where) else np.empty((0, new.shape[1]), dtype=np.float32)
            rows = check_rows(np.concatenate([before, new]))
            if width is None:
                chosen = choose_index(rows, "cosine", self._vectors)
            else:
                chosen = index_of_width(rows, width, "cosine", self._vectors)
            self._next_choice = 2 * count
        if chosen is not None:
            self._move(chosen)
        elif index.coder is None:
            check_rows(new)
            self._move(Index(_rotation(new.shape[1]), vectors="float32"))

    def _move(self, index: Index) -> None:
        """Copy all items to an index with another coder, and go on with that."""
        old, ids = self._index, self._index.ids
        index.add_columns(old.columns)
        assert index.coder is not None
        for start in range(0, len(ids), ROWS):
            some = ids[start : start + ROWS]
            rows = np.zeros((len(some), index.coder.n_features_in_), dtype=np.float32)
            if old.coder is not None:
                rows = _vectors(old, some)
            index.add(rows, ids=some, attributes=old.attributes(some))
        self._set(index)

    def _add_columns(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add the columns of new keys and types."""
        known = self._index.columns
        names = dict.fromkeys(name for row in rows for name in row if name not in known)
        if len(known) + len(names) > MAX_COLUMNS:
            raise InvalidInput(
                f"metadata must have at most {MAX_COLUMNS - len(OWN)} different keys in a store, got "
                f"{list(names)[-1][2:]!r:.80} too: put the metadata that no filter needs into one key, as a dictionary"
            )
        if names:
            self._index.add_columns(types_of(names))

    def _rows(self, rows: Floats, coder: Coder) -> Floats:
        rows = check_rows(rows)
        if rows.shape[1] != coder.n_features_in_:
            raise InvalidInput(
                f"vectors must have the {coder.n_features_in_} features of the index, got {rows.shape[1]}: embed all "
                "by one model, or make another index"
            )
        return rows

    def _read(self, ids: Sequence[int]) -> list[Document]:
        if not len(ids):
            return []
        table, found = self._index.attributes(ids, [NAME, TEXT, REST]), []
        for name, text, rest in zip(*(table[column].to_pylist() for column in (NAME, TEXT, REST)), strict=True):
            try:
                found.append(self._parse(name, text, json.loads(rest)))
            except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
                place = "memory" if self.path is None else self.path
                raise DamagedFile(
                    f"the documents in {place} are damaged (of {name!r:.80}: {error}): restore a copy"
                ) from error
        return found

    def _texts(self, ids: Sequence[int], column: str) -> list[str]:
        return list(self._index.attributes(ids, [column])[column].to_pylist()) if len(ids) else []


def _rotation(features: int) -> Coder:
    """Return a coder that needs no items: embeddings are L2-normalized, so their spread is known."""
    rows = np.random.default_rng(0).standard_normal((256, features))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of few features: not all bits are used
        return RotationCoder(min(8 * features, 256), "cosine").fit(rows)


def _vectors(index: Index, ids: Ids) -> Floats:
    return index.reconstruct(ids) if index.vector_type is None else index.vectors(ids)


def _as_vectors(embeddings: Sequence[ArrayLike | None]) -> tuple[Floats | None, NDArray[np.bool_]]:
    """Return the embeddings that there are, and which documents have one."""
    embedded = np.array([one is not None for one in embeddings], dtype=np.bool_)
    if not embedded.any():
        return None, embedded
    try:
        with np.errstate(over="ignore"):  # what is too large is refused as infinite
            rows = np.asarray([one for one in embeddings if one is not None], dtype=np.float32)
    except ValueError as error:
        raise InvalidInput(
            f"embeddings must be lists of equally many numbers ({error}): embed all by one model"
        ) from error
    return rows, embedded


def _table(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> Any:
    """Return rows as a table of the columns that one of them has."""
    from nestcode.search.attributes import arrow_type, pa

    names = [name for name in columns if any(name in row for row in rows)]
    return pa.table({name: pa.array([row.get(name) for row in rows], arrow_type(columns[name])) for name in names})


def _read_file(path: Path, kind: str) -> dict[str, Any]:
    file = path / FILE
    record = read_record(file)
    if record.kind != kind or record.version > VERSION:
        raise DamagedFile(
            f"{file} holds a {record.kind} of version {record.version}, not a {kind} of version {VERSION}: "
            "give the folder of this kind of store, or upgrade nestcode"
        )
    settings = record.settings
    name, own = settings.get("index"), settings.get("settings")
    if not isinstance(name, str) or not FOLDER.fullmatch(name) or not isinstance(own, dict) or set(own) != {*SETTINGS}:
        raise DamagedFile(f"{file} does not describe a store: restore a copy")
    return settings


def _check_folder(path: Path) -> None:
    """Raise if a path is not that of a store, or free for one."""
    ours = path.is_dir() and ((path / FILE).exists() or all(FOLDER.fullmatch(one.name) for one in path.iterdir()))
    if path.exists() and not ours:
        raise InvalidInput(f"a store has a folder of its own, but {path} holds other files: give a new or empty one")


def _next_folder(path: Path) -> Path:
    numbers = [int(one.name[-6:]) for one in path.glob("index-*") if FOLDER.fullmatch(one.name)]
    return path / f"index-{max(numbers, default=0) + 1:06d}"


def _delete_obsolete(path: Path, current: Path) -> None:
    """Delete the folders of other indexes: earlier ones, or what a crash left."""
    for one in path.glob("index-*"):
        if FOLDER.fullmatch(one.name) and one != current:
            shutil.rmtree(one, ignore_errors=True)


def _to_json(name: str, text: str | None, rest: Any) -> str:
    """Return the rest of a document as JSON; raise if it would be read as another one."""
    try:
        encoded = json.dumps(rest, ensure_ascii=False, allow_nan=False)
        f"{name}{text}{encoded}".encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(
            f"metadata must be JSON values, got another type, NaN or a text that is no Unicode in document {name!r} "
            f"({error}): convert them first"
        ) from error
    if json.loads(encoded) != rest:
        raise InvalidInput(
            f"metadata must be JSON values, got {_changed(rest, json.loads(encoded))} in document {name!r}: make keys "
            "strings, and tuples lists"
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
