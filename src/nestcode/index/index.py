"""An index: items by id, found by prefix, that can be changed, saved and trusted."""

import os
from typing import Any, Literal, Self

from nestcode.errors import InvalidInput
from nestcode.index.collection import Collection
from nestcode.index.state import State, Tail
from nestcode.index.store import Contents, Store


class Index(Collection):
    """Items by id, found by prefix; can be changed, saved, memory-mapped and shared between threads.

    >>> import numpy as np
    >>> from nestcode import Codes
    >>> rng = np.random.default_rng(0)
    >>> codes = Codes.from_bits(rng.random((1000, 64)) < 0.5)
    >>> index = Index(width=64)
    >>> index.add(codes)
    >>> index.neighborhood(codes[7], size=1).ids
    array([7])
    >>> index.remove([7])
    >>> len(index), 7 in index
    (999, False)

    With a coder it takes raw vectors:

    >>> from nestcode import LinearCoder
    >>> X = rng.standard_normal((500, 8))
    >>> index = Index(LinearCoder(width=32).fit(X))
    >>> index.add(X, ids=np.arange(1000, 1500))
    >>> index.neighborhood(X[3], size=1).ids
    array([1003])

    All methods may be called from any thread. A search sees the index as it was when the search began; changes wait
    for each other. Adding is cheap: new items wait in a small tail, become sorted segments, and segments are merged by
    a thread in the background, or by `compact()` at once.

    Args:
        coder: a fitted coder; without one the index takes `Codes` only.
        width: how many leading bits are kept; the coder's width if not given.

    """

    _store: Store | None = None  # where it was opened

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the index to a folder, in place of an index that is there; `Index.open` reads it.

        An index that is damaged is not replaced: delete its folder first.

        A crash at any moment leaves the index that was there before, or this one.
        """
        if self._store is not None and self._store.writable and os.path.realpath(path) == self._store.realpath:
            self.commit()
            return
        with Store(path, write=True) as store:
            if store.exists():
                store.read()
            store.commit(self._contents())

    @classmethod
    def open(cls, path: str | os.PathLike[str], mode: Literal["r", "a"] = "r") -> Self:
        """Open a saved index, memory-mapped: that takes no time, and what a search touches first is checked then.

        >>> import tempfile
        >>> from nestcode import Codes
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     index = Index(width=2)
        ...     index.add(Codes.from_bits([[0, 1], [1, 1]]))
        ...     index.save(folder)
        ...     with Index.open(folder, mode="a") as opened:
        ...         opened.add(Codes.from_bits([[0, 0]]))
        ...         opened.commit()
        ...     len(Index.open(folder))
        3

        Args:
            path: the folder.
            mode: "r" reads; any number may, and each keeps what it opened whatever others write. "a" changes too, one
                at a time; `commit()` makes changes durable, and `close()` or leaving a `with` block lets others write.

        """
        if mode not in ("r", "a"):
            raise InvalidInput(f'mode must be "r" to read or "a" to change, got {mode!r}')
        store = Store(path, write=False) if mode == "r" else Store.existing(path)
        try:
            index = object.__new__(cls)
            index._store, found = store, store.read()
            index._begin(State(found.width, found.parts, Tail.empty(found.width)), found.coder, found.largest)
            if mode == "a":
                store.sweep()
        except BaseException:
            store.close()
            raise
        return index

    def commit(self) -> None:
        """Make all changes so far durable: whatever happens from now on, they will be there."""
        if self._store is None:
            raise InvalidInput("this index is in memory: save(path) it, then Index.open(path, mode='a')")
        with self._store.writing:
            self._check_writable()
            self._store.commit(self._contents())

    def verify(self) -> None:
        """Read everything, and raise DamagedFile if it is not what was written."""
        for part in self._live.state.parts:
            part.segment.verify()

    def close(self) -> None:
        """Let another process write. Changes since the last `commit()` are not saved."""
        self._live.wait()
        if self._store is not None:
            self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise InvalidInput("an index is not copied or pickled: save(path) it, and Index.open(path) where it is wanted")

    def _check_writable(self) -> None:
        if self._store is not None and not self._store.writable:
            raise InvalidInput(f"{self._store.path} was opened to read, or closed: open it with mode='a' to change it")

    def _contents(self) -> Contents:
        """All of it as it is now."""
        found: list[Contents] = []

        def seal(state: State) -> State:
            state = state.sealed()
            found.append(Contents(self.width, self.coder, self._largest, state.parts))
            return state

        self._live.change(seal)
        return found[0]
