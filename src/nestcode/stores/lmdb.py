"""Codes in an LMDB environment: a memory-mapped b-tree in a folder.

codes      key: code, id      the order of codes; ids, 8 bytes each, big-endian
ids        key: id            value: code
settings   key: width, coder
"""

import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice, takewhile
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Self

import numpy as np

from nestcode.arrays import Bytes, Ids, check_int
from nestcode.coders import Coder
from nestcode.errors import DamagedFile, InvalidInput, import_extra
from nestcode.index.ordered import Scan
from nestcode.stores.base import Closed, CodeStore, DuplicateIds, MissingIds, check_settings, dump_coder, parse_settings
from nestcode.stores.lmdb_pages import check_complete
from nestcode.stores.sql import opened

import_extra("lmdb", extra="lmdb", purpose="LmdbStore")

import lmdb  # noqa: E402

ID_BYTES = 8
MAP_SIZE = 1 << 40  # bytes of address space; the file grows as it is needed
LEAST_MAP_SIZE, MOST_MAP_SIZE = 1 << 16, 1 << 46


class LmdbStore(CodeStore):
    """Codes in an LMDB environment; one store serves all threads of a process.

    >>> import tempfile
    >>> from nestcode import Codes
    >>> with tempfile.TemporaryDirectory() as folder, LmdbStore.create(folder, width=3) as store:
    ...     store.add(Codes.from_bits([[0, 0, 1], [0, 0, 0], [1, 1, 1]]), ids=[5, 6, 7])
    ...     store.neighborhood(Codes.from_bits([[0, 0, 1]]), size=2)[0].ids
    array([6, 5])

    Each call is a transaction. A process opens a folder once; other processes may open it too.

    """

    MAX_BYTES = 511 - ID_BYTES  # LMDB's longest key

    def __init__(self, database: tuple[Any, ...], width: int, coder: Coder | None) -> None:
        super().__init__(width, coder)
        self._environment, self._codes, self._ids, self._settings = database
        self._snapshot = threading.local()

    @classmethod
    def open(cls, path: str | PathLike[str], *, map_size: int = MAP_SIZE) -> Self:
        """Open a store that `create` made.

        Args:
            path: the folder. If its files are not writable, the store is read-only; without a lock.mdb in a folder that
                is not writable, it must not change meanwhile.
            map_size: how large the database may become, in bytes.

        """
        missing = InvalidInput(f"there is no store in {fspath(path)}: make it with LmdbStore.create")
        if not Path(path, "data.mdb").exists():  # or LMDB would make it
            raise missing
        try:
            database = _open(path, map_size, create=False)
        except lmdb.NotFoundError:
            raise missing from None
        environment, _, _, settings = database
        with opened(environment, owned=True):
            with _intact(environment), environment.begin(settings) as transaction:
                width, coder = (bytes(transaction.get(name, b"")) for name in (b"width", b"coder"))
            return cls(database, *parse_settings([(int.from_bytes(width), coder)], f"the store in {fspath(path)}"))

    @classmethod
    def create(
        cls,
        path: str | PathLike[str],
        coder: Coder | None = None,
        *,
        width: int | None = None,
        map_size: int = MAP_SIZE,
    ) -> Self:
        """Create a store in a folder, and return it.

        Args:
            path: the folder; created if it does not exist.
            coder: a fitted coder; without a coder the store accepts `Codes` only.
            width: the number of leading bits to keep, at most 4,024; by default the coder's width.
            map_size: how large the database may become, in bytes.

        """
        width, coder = check_settings(coder, width, cls.MAX_BYTES)
        database = _open(path, map_size, create=True)
        environment, _, _, settings = database
        with opened(environment, owned=True), environment.begin(settings, write=True) as transaction:
            if not transaction.put(b"width", width.to_bytes(4), overwrite=False):
                raise InvalidInput(f"there is a store in {fspath(path)}: open it, or choose another folder")
            transaction.put(b"coder", dump_coder(coder))
        return cls(database, width, coder)

    def close(self) -> None:
        """Close the environment."""
        if not isinstance(self._environment, Closed):
            self._environment.close()
            self._environment = Closed()

    def __len__(self) -> int:
        with self._transaction() as transaction:
            return int(transaction.stat(self._ids)["entries"])

    def _estimated_count(self) -> int:
        return len(self)

    def _ascend(self, key: bytes, limit: int) -> Scan:
        with self._cursor() as cursor:
            return self._parse(islice(_keys(cursor), limit) if cursor.set_range(key) else ())

    def _descend(self, key: bytes, limit: int) -> Scan:
        with self._cursor() as cursor:
            found = cursor.prev() if cursor.set_range(key) else cursor.last()
            return self._parse(islice(cursor.iterprev(values=False), limit) if found else ())

    def _range(self, low: bytes, high: bytes) -> Scan:
        with self._cursor() as cursor:
            return self._parse(takewhile(high.__gt__, _keys(cursor)) if cursor.set_range(low) else ())

    def _select(self, ids: Ids) -> Scan:
        with self._transaction() as transaction:
            found = [(item, transaction.get(_key(item), db=self._ids)) for item in ids.tolist()]
        known = [(item, bytes(code)) for item, code in found if code is not None]
        return self._scan([item for item, _ in known], [code for _, code in known])

    def _insert(self, items: Scan, *, replace: bool) -> None:
        with self._writing() as transaction:
            for item, row in zip(items.ids.tolist(), items.codes.packed, strict=True):
                key, code = _key(item), row.tobytes()
                if replace and (old := transaction.get(key, db=self._ids)) is not None:
                    transaction.delete(bytes(old) + key, db=self._codes)
                if not transaction.put(key, code, db=self._ids, overwrite=replace):
                    raise DuplicateIds
                transaction.put(code + key, b"", db=self._codes)

    def _delete(self, ids: Ids) -> None:
        with self._writing() as transaction:
            for key in map(_key, ids.tolist()):
                code = transaction.pop(key, db=self._ids)
                if code is None:
                    raise MissingIds
                transaction.delete(bytes(code) + key, db=self._codes)

    def _parse(self, keys: Iterable[bytes]) -> Scan:
        """Return the items of keys."""
        held, row = list(keys), self._code_bytes
        if {*map(len, held)} - {row + ID_BYTES}:
            raise self._foreign_items()
        found: Bytes = np.frombuffer(b"".join(held), dtype=np.uint8).reshape(-1, row + ID_BYTES)
        ids = np.ascontiguousarray(found[:, row:]).view(">i8")[:, 0].astype(np.int64)
        return self._packed_scan(ids, found[:, :row].tobytes())

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with _intact(self._environment), self._environment.begin() as transaction:
            self._snapshot.transaction = transaction
            try:
                yield
            finally:
                del self._snapshot.transaction

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        """Yield the transaction of `_reading`, or a new one."""
        known = getattr(self._snapshot, "transaction", None)
        if known is not None:
            yield known
            return
        with _intact(self._environment), self._environment.begin() as transaction:
            yield transaction

    @contextmanager
    def _cursor(self) -> Iterator[Any]:
        with self._transaction() as transaction, transaction.cursor(db=self._codes) as cursor:
            yield cursor

    @contextmanager
    def _writing(self) -> Iterator[Any]:
        """Yield a transaction that is committed at the end, or aborted by an error."""
        try:
            with _intact(self._environment), self._environment.begin(write=True) as transaction:
                yield transaction
        except lmdb.MapFullError:
            size = self._environment.info()["map_size"]
            raise InvalidInput(
                f"the database may have at most {size} bytes, which are used up: open it with a larger map_size"
            ) from None
        except lmdb.ReadonlyError as error:
            path = self._environment.path()
            raise PermissionError(f"{path} is not writable: change its permissions, or copy it") from error
        except lmdb.Error as error:
            if type(error) not in (lmdb.Error, lmdb.DiskError):
                raise
            raise OSError(
                f"{self._environment.path()} cannot be written ({error}): make room, or choose another place"
            ) from error


def _open(path: str | PathLike[str], map_size: int, *, create: bool) -> tuple[Any, ...]:
    """Return an environment and its tables of codes, ids and settings."""
    map_size = check_int(map_size, "map_size", least=LEAST_MAP_SIZE, most=MOST_MAP_SIZE)
    data, locks = Path(path, "data.mdb"), Path(path, "lock.mdb")
    if data.exists():
        check_complete(data)
    # Readers write their locks too, or a writer reuses the pages that they read. Only where there is no file of locks
    # and none can be made, as in a copy for reading, they go without.
    lockable = _writable(locks if locks.exists() else path)
    readonly = not (create or (lockable and _writable(data)))
    lock = create or lockable or locks.exists()
    try:
        environment = lmdb.open(fspath(path), map_size=map_size, max_dbs=3, create=create, readonly=readonly, lock=lock)
    except lmdb.ReadonlyError as error:
        raise PermissionError(
            f"{fspath(path)} must have a lock.mdb that is writable, which LMDB needs to read too ({error}): change its "
            "permissions, or copy the folder"
        ) from error
    except (lmdb.InvalidError, lmdb.VersionMismatchError, lmdb.CorruptedError) as error:
        raise DamagedFile(f"{fspath(path)} holds no LMDB environment ({error}): restore a copy") from error
    except lmdb.Error as error:
        if "already open" not in str(error):
            raise
        raise InvalidInput(
            f"the store in {fspath(path)} is open in this process: share it, as it serves all threads, or close it"
        ) from None
    with opened(environment, owned=True), _intact(environment):
        return environment, *(environment.open_db(name, create=create) for name in (b"codes", b"ids", b"settings"))


@contextmanager
def _intact(environment: Any) -> Iterator[None]:
    """Make errors of LMDB about impossible pages name the folder and the remedy."""
    try:
        yield
    except (lmdb.CorruptedError, lmdb.PageNotFoundError) as error:
        raise DamagedFile(f"{environment.path()} is damaged ({error}): restore a copy") from error


def _writable(path: str | PathLike[str]) -> bool:
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def _key(item: int) -> bytes:
    return item.to_bytes(ID_BYTES)


def _keys(cursor: Any) -> Iterator[bytes]:
    return cursor.iternext(values=False)  # type: ignore[no-any-return]
