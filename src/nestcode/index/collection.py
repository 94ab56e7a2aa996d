"""Items by id, found by prefix: what can be asked of an index and how it changes. Files are index.py's."""

from collections.abc import Callable
from copy import copy
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nestcode.arrays import check_int
from nestcode.coders import Coder
from nestcode.codes import Codes
from nestcode.errors import InvalidInput
from nestcode.index.live import Live
from nestcode.index.segment import WIDEST, check_ids, ids_after
from nestcode.index.state import State
from nestcode.index.tree import Neighborhoods
from nestcode.search.search import Searchable


class Collection(Searchable):
    """What an `Index` is without its files."""

    def __init__(self, coder: Coder | None = None, *, width: int | None = None) -> None:
        if coder is not None and not isinstance(coder, Coder):
            raise InvalidInput(f"expected a coder, got {type(coder).__name__}: Index(coder) or Index(width=...)")
        if coder is None and width is None:
            raise InvalidInput("give a coder or a width: Index(coder) takes vectors, Index(width=...) takes codes")
        if coder is not None:
            _ = coder.n_features_in_  # says so if it is not fitted
            coder = copy(coder)  # as it is now: a coder may be fitted again
        width = coder.width_ if width is None and coder is not None else check_int(width, "width", least=1)
        most = WIDEST if coder is None else min(coder.width_, WIDEST)
        if width > most:
            raise InvalidInput(f"width must be at most {most}, got {width}: fit a wider coder, or keep fewer bits")
        self._begin(State.empty(width), coder, -1)

    def _begin(self, state: State, coder: Coder | None, largest: int) -> None:
        self.width, self.coder = state.width, coder
        self._largest = largest  # id used so far
        self._live = Live(state)
        self._views = {}

    # what it holds

    def __len__(self) -> int:
        return len(self._live.state)

    @property
    def ids(self) -> NDArray[np.int64]:
        """All ids, ascending."""
        return self._live.state.ids()

    def __contains__(self, item: object) -> bool:
        if not isinstance(item, int | np.integer) or isinstance(item, bool) or not 0 <= item < 2**63:
            return False
        return bool(self._live.state.find(np.array([item], dtype=np.int64))[0][0] >= 0)

    def codes(self, ids: ArrayLike) -> Codes:
        """The codes of some items, by id.

        >>> from nestcode import Index
        >>> index = Index(width=2)
        >>> index.add(Codes.from_bits([[0, 1], [1, 1]]), ids=[5, 3])
        >>> index.codes([3, 5])
        Codes(2 items of 2 bits: 11, 01)
        """
        state = self._live.state
        return state.codes(*state.find_all(check_ids(ids, distinct=False)))

    def reconstruct(self, ids: ArrayLike) -> NDArray[np.float32]:
        """What the kept bits say items were: one vector for one id, (n, features) for n.

        >>> from nestcode import Index, LinearCoder
        >>> X = np.arange(12.0).reshape(6, 2)
        >>> index = Index(LinearCoder(width=3).fit(X))
        >>> index.add(X)
        >>> index.reconstruct(5).shape, index.reconstruct([5, 4]).shape
        ((2,), (2, 2))
        """
        if self.coder is None:
            raise InvalidInput(
                "an index without a coder has codes only: ask for codes(ids), or make it with Index(coder)"
            )
        decoded = self.coder.decode(self.codes(ids))
        return decoded if np.ndim(ids) else decoded[0]

    @property
    def nbytes(self) -> int:
        """Bytes of all that the index holds, in memory or mapped, and of what searches made ready."""
        return self._live.state.nbytes + sum(prepared.nbytes for prepared, _ in list(self._views.values()))

    def __repr__(self) -> str:
        coder = "" if self.coder is None else f", {self.coder!r}"
        return f"{type(self).__name__}({len(self)} items of {self.width} bits{coder})"

    # retrieval

    def neighborhood(
        self,
        queries: Codes | ArrayLike,
        *,
        size: int | None = None,
        fraction: float | None = None,
        threads: int | None = 1,
    ) -> Any:
        """The deepest neighborhood with at least `size` members: the items that share the query's first `length` bits.

        >>> from nestcode import Index
        >>> index = Index(width=3)
        >>> index.add(Codes.from_bits([[0, 0, 1], [0, 0, 0], [0, 1, 0], [1, 1, 1]]))
        >>> index.neighborhood(Codes.from_bits([[0, 0, 1]]), size=2)
        Neighborhood(length=2, count=2)

        This is the paper's retrieval (section 5.1). It costs the logarithm of how many items there are for each one
        asked for, whatever the width, and finds items by their prefix alone.

        Args:
            queries: one vector or (n, features) with a coder, or `Codes`. One vector, or codes of one item, give a
                `Neighborhood` with `length`, `count` and `ids` (ascending, made when asked for); more give
                `Neighborhoods` with arrays, of which `hoods[i]` is one.
            size: the fewest members accepted (R in the paper). The root, length 0, is accepted always.
            fraction: instead of a size, the smallest share of all items accepted; the cost no longer depends on how
                many items there are.
            threads: how many threads share a batch; None takes every core.

        """
        forest = self._live.state.forest
        if isinstance(queries, Codes):
            if queries.width != self.width:
                queries = self._fitting(queries)
            return forest.neighborhood(queries, size=size, fraction=fraction, threads=threads)
        hoods = forest.neighborhoods(self._encode(queries), size, fraction, threads)
        return hoods[0] if np.ndim(queries) == 1 else hoods

    def nested(self, query: Codes | ArrayLike) -> Neighborhoods:
        """Every neighborhood of one query, from the root to the longest prefix that any item shares.

        >>> from nestcode import Index
        >>> index = Index(width=3)
        >>> index.add(Codes.from_bits([[0, 0, 1], [0, 1, 0], [1, 1, 1]]))
        >>> index.nested(Codes.from_bits([[0, 1, 1]])).count
        array([3, 2, 1])
        """
        return self._live.state.forest.nested(self._encode(query))

    # changes

    def add(
        self,
        items: Codes | ArrayLike,
        ids: ArrayLike | None = None,
        *,
        on_duplicate: Literal["error", "replace"] = "error",
    ) -> None:
        """Add items: vectors for the coder, or codes.

        >>> from nestcode import Index
        >>> index = Index(width=2)
        >>> index.add(Codes.from_bits([[0, 1], [1, 1]]))
        >>> index.add(Codes.from_bits([[0, 0]]), ids=[0], on_duplicate="replace")
        >>> index.codes([0, 1])
        Codes(2 items of 2 bits: 00, 11)

        Args:
            items: (n, features), one vector, or `Codes`.
            ids: a distinct number of at least 0 for each; by default they go on from the largest used so far.
            on_duplicate: what to do where an id is in use: "error" changes nothing, "replace" takes the new item.

        """
        _check_on_duplicate(on_duplicate)
        codes = self._encode(items)
        given = None if ids is None else check_ids(ids, len(codes))
        if not len(codes):
            return

        def edit(state: State) -> State:
            known = ids_after(self._largest, len(codes)) if given is None else given
            if known.min() <= self._largest:
                state = state.freed(known, on_duplicate)
            state = state.with_items(codes, known)
            self._largest = max(self._largest, int(known.max()))
            return state

        self._change(edit)

    def remove(self, ids: ArrayLike) -> None:
        """Remove items. If an id is not there, nothing is removed.

        >>> from nestcode import Index
        >>> index = Index(width=2)
        >>> index.add(Codes.from_bits([[0, 1], [1, 1]]))
        >>> index.remove(0)
        >>> index.ids
        array([1])
        """
        unwanted = check_ids(ids)
        self._change(lambda state: state.without(*state.find_all(unwanted)))

    def update(self, items: Codes | ArrayLike, ids: ArrayLike) -> None:
        """Give items that are there new codes. If an id is not there, nothing is changed.

        >>> from nestcode import Index
        >>> index = Index(width=2)
        >>> index.add(Codes.from_bits([[0, 1], [1, 1]]))
        >>> index.update(Codes.from_bits([[0, 0]]), ids=[1])
        >>> index.codes([0, 1])
        Codes(2 items of 2 bits: 01, 00)
        """
        codes = self._encode(items)
        known = check_ids(ids, len(codes))
        self._change(lambda state: state.without(*state.find_all(known)).with_items(codes, known))

    def merge(self, other: "Collection", *, on_duplicate: Literal["error", "replace"] = "error") -> None:
        """Add all items of another index of the same width and coder, under their ids.

        >>> from nestcode import Index
        >>> a, b = Index(width=2), Index(width=2)
        >>> a.add(Codes.from_bits([[0, 1], [1, 1]]))
        >>> b.add(Codes.from_bits([[0, 0]]), ids=[7])
        >>> a.merge(b)
        >>> a.ids
        array([0, 1, 7])
        """
        if not isinstance(other, Collection):
            raise InvalidInput(f"expected an Index, got {type(other).__name__}: add(items) takes items")
        if other.width != self.width:
            raise InvalidInput(f"indexes must have the same width to merge, got {self.width} and {other.width}")
        if not _same_coder(self.coder, other.coder):
            raise InvalidInput("indexes must have the same coder to merge: encode the items of one with the other's")
        _check_on_duplicate(on_duplicate)
        theirs, largest = other._live.state.sealed(), other._largest
        ids = theirs.ids()

        def edit(state: State) -> State:
            state = state.freed(ids, on_duplicate)
            self._largest = max(self._largest, largest)
            return state.with_parts(theirs.parts)

        self._change(edit)

    def compact(self) -> None:
        """Merge everything into one segment, without what was removed. Searches go on meanwhile."""
        self._check_writable()
        self._live.compact()

    # how

    def _change(self, edit: Callable[[State], State]) -> None:
        self._check_writable()
        self._live.change(edit)

    def _check_writable(self) -> None:
        """Raise if it may not be changed."""

    def _encode(self, items: Codes | ArrayLike) -> Codes:
        """Vectors or codes as codes of the index's width."""
        if isinstance(items, Codes):
            return self._fitting(items)
        if self.coder is None:
            raise InvalidInput(
                f"an index without a coder takes Codes, got {type(items).__name__}: encode them first, "
                "or make the index with Index(coder)"
            )
        rows = np.asarray(items)
        return self.coder.encode(rows[None] if rows.ndim == 1 else rows).prefix(self.width)

    def _fitting(self, codes: Codes) -> Codes:
        if codes.width == self.width:
            return codes
        if self.coder is not None and codes.width == self.coder.width_:
            return codes.prefix(self.width)
        raise InvalidInput(
            f"codes must have the index's width {self.width}, got {codes.width}: take prefix({self.width}), "
            "or make an index of that width"
        )


def _check_on_duplicate(choice: str) -> None:
    if choice not in ("error", "replace"):
        raise InvalidInput(f'on_duplicate must be "error" or "replace", got {choice!r}')


def _same_coder(a: Coder | None, b: Coder | None) -> bool:
    return a is b or (a is not None and b is not None and a.fingerprint == b.fingerprint)
