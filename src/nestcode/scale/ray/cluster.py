"""`SearchCluster`: a sharded index, searched by replicas of its parts on the nodes of a Ray cluster."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nestcode.arrays import Floats, Ids, check_ids, check_int
from nestcode.coders import Coder
from nestcode.codes import Codes
from nestcode.errors import InvalidInput, NestcodeError
from nestcode.index.folders import Given
from nestcode.scale.objects import PartCache, paths_of
from nestcode.scale.ray.reader import Neighborhoods, Nested, PartsReader, Wanted
from nestcode.scale.ray.replicas import Replicas
from nestcode.search.hits import Evaluation, Hits, RangeHits
from nestcode.search.request import Rank
from nestcode.search.scorer import SearchMetric
from nestcode.search.vectors import VectorType
from nestcode.stores.neighborhood import Neighborhood

TIMEOUT, START_TIMEOUT = 10.0, 120.0  # seconds


class SearchCluster:
    """A sharded index that the nodes of a Ray cluster search: the methods of `Index` that read, with its answers.

    >>> import ray
    >>> from nestcode import Index
    >>> ray.init("auto")  # doctest: +SKIP
    >>> with SearchCluster(["whole/part-0", "whole/part-1"], replicas=2) as cluster:  # doctest: +SKIP
    ...     cluster.search(queries, k=10).ids

    Each part is opened, mapped, by as many actors as it has replicas, on different nodes where there are enough. A
    search asks one replica of each part, a neighborhood the part or two whose codes surround the query. A dead actor or
    node costs no answer: its request goes to another replica, and Ray starts the actor again. A replica that takes
    longer than 95 % of the requests before gets a competitor. Where no replica of a part answers in time, or all of
    them find it damaged, an error names the part; `search(..., allow_partial=True)` returns the other parts' hits.

    An exhaustive search returns the hits of `Index.open(parts)`, bit for bit. Otherwise each part spends the budget on
    its own items, as each of several servers does, so more items are compared.

    The parts are only read. To change the index, build other parts, and `refresh(parts)`.

    Args:
        parts: the folders of the parts, or one folder that holds them, as `encode` and `merge_shards` write it. All
            nodes can open them under these paths. `refresh` looks into that folder again, which may be a link to
            another generation. Or their URLs in object storage, `"s3://bucket/generations/1"`, as fsspec takes them:
            each node copies its parts to a local disk once.
        replicas: actors for each part.
        timeout: seconds for a request.
        start_timeout: seconds for the actors to start.
        memory: as for `Index.open`.
        cache: the local copies of parts in object storage.
        **resources: of each actor, as options of Ray's actors: `num_cpus=1`, `memory=8 << 30`, `max_concurrency=4`,
            `max_pending_calls=100`.

    """

    def __init__(
        self,
        parts: Given,
        *,
        replicas: int = 2,
        timeout: float = TIMEOUT,
        start_timeout: float = START_TIMEOUT,
        memory: str | None = None,
        cache: PartCache | None = None,
        **resources: Any,
    ) -> None:
        for name, seconds in (("timeout", timeout), ("start_timeout", start_timeout)):
            if not isinstance(seconds, float | int) or not seconds > 0:
                raise InvalidInput(f"{name} must be a number of seconds above 0, got {seconds!r}")
        self._replicas, self._timeout = check_int(replicas, "replicas", least=1), float(timeout)
        self._start_timeout, self._memory, self._resources = float(start_timeout), memory, resources
        self._cache = PartCache() if cache is None else cache
        self._lock, self._given, self._parts = threading.Lock(), parts, paths_of(parts)
        self._now: _Generation | None = self._open()

    # search by distance

    def search(
        self,
        queries: Codes | ArrayLike,
        k: int = 10,
        *,
        candidates: int | None = None,
        rerank: int | None = None,
        rank: Rank | None = None,
        metric: SearchMetric | None = None,
        filter: Wanted | None = None,  # noqa: A002
        threads: int | None = 1,
        allow_partial: bool = False,
    ) -> Hits:
        """Return the k nearest items of each query, as `Index.search` does.

        `filter` is ids, or a condition, `"year > 2020"` or `("year > ?", [2020])`. With `allow_partial` the answer is
        `PartialHits`: `hits.missing` names the parts that are not in it, and why; without, a missing part is an error.
        """
        with self._reading() as reader:
            return reader.search(
                queries, k, candidates=candidates, rerank=rerank, rank=rank, metric=metric, filter=filter,
                threads=threads, allow_partial=allow_partial,
            )  # fmt: skip

    def range_search(
        self,
        queries: Codes | ArrayLike,
        radius: float,
        *,
        candidates: int | None = None,
        rank: Rank | None = None,
        metric: SearchMetric | None = None,
        filter: Wanted | None = None,  # noqa: A002
        threads: int | None = 1,
    ) -> Hits | RangeHits:
        """Return the candidates within a distance, as `Index.range_search` does."""
        with self._reading() as reader:
            return reader.range_search(
                queries, radius, candidates=candidates, rank=rank, metric=metric, filter=filter, threads=threads
            )

    def evaluate(
        self,
        queries: Codes | ArrayLike,
        k: int = 10,
        *,
        candidates: int | None = None,
        rerank: int | None = None,
        rank: Rank | None = None,
        metric: SearchMetric | None = None,
        filter: Wanted | None = None,  # noqa: A002
        threads: int | None = 1,
    ) -> Evaluation:
        """Measure the recall of a search and its work, as `Index.evaluate` does; `ns` is that of all parts together."""
        with self._reading() as reader:
            return reader.evaluate(
                queries, k, candidates=candidates, rerank=rerank, rank=rank, metric=metric, filter=filter,
                threads=threads,
            )  # fmt: skip

    # retrieval by prefix

    def neighborhood(
        self, queries: Codes | ArrayLike, *, size: int | None = None, fraction: float | None = None
    ) -> Neighborhood | Neighborhoods:
        """Return the smallest neighborhood of each query with at least `size` members, as `Index.neighborhood` does.

        The ids come with it, so ask for small ones: that of a query unlike all items is the root, all ids.
        """
        with self._reading() as reader:
            return reader.neighborhood(queries, size=size, fraction=fraction)

    def nested(self, query: Codes | ArrayLike) -> Nested:
        """Return every neighborhood of one query: `count` by length, and the ids of one, as `nested[length].ids`."""
        with self._reading() as reader:
            return reader.nested(query)

    # contents

    def __len__(self) -> int:
        with self._reading() as reader:
            return reader.count

    def __contains__(self, item: object) -> bool:
        if not isinstance(item, int | np.integer) or isinstance(item, bool) or not 0 <= item < 2**63:
            return False
        return bool(self.contains(np.array([item]))[0])

    def contains(self, ids: ArrayLike) -> NDArray[np.bool_]:
        """Return which ids are of items."""
        with self._reading() as reader:
            return reader.contains(check_ids(ids, distinct=False))

    @property
    def coder(self) -> Coder | None:
        """The coder of the index."""
        with self._reading() as reader:
            return reader.coder

    @property
    def width(self) -> int:
        """Bits of each code."""
        with self._reading() as reader:
            return reader.width

    @property
    def columns(self) -> dict[str, str]:
        """The columns of attributes by name, with their types."""
        with self._reading() as reader:
            return dict(reader.columns)

    @property
    def vector_type(self) -> VectorType | None:
        """How vectors are stored."""
        with self._reading() as reader:
            return reader.vector_type

    def matching(self, wanted: Wanted) -> Ids:
        """Return the ids of all items that a filter allows, ascending."""
        with self._reading() as reader:
            return reader.matching(wanted)

    @property
    def ids(self) -> Ids:
        """All ids, ascending."""
        with self._reading() as reader:
            return reader.matching(None)

    def codes(self, ids: ArrayLike) -> Codes:
        """Return the codes of items by id."""
        with self._reading() as reader:
            return reader.codes(ids)

    def reconstruct(self, ids: ArrayLike) -> Floats:
        """Return what the codes of items decode to."""
        with self._reading() as reader:
            if reader.coder is None:
                raise InvalidInput("an index without a coder has codes only: call codes(ids)")
            decoded = reader.coder.decode(reader.codes(ids))
            return decoded if np.ndim(ids) else decoded[0]

    def vectors(self, ids: ArrayLike) -> Floats:
        """Return stored vectors of items by id."""
        with self._reading() as reader:
            return reader.vectors(ids)

    def attributes(self, ids: ArrayLike, columns: Sequence[str] | str | None = None) -> Any:
        """Return attributes of items as a table of pyarrow, in the order of the ids, as `Index.attributes` does."""
        with self._reading() as reader:
            return reader.attributes(ids, columns)

    # generations

    def refresh(self, parts: Given | None = None) -> bool:
        """Show another generation of parts, or the last commits of these, without a request that fails.

        Actors of the new generation start beside the old ones. Once they answer, requests go to them; the old ones end
        with their last request. If the new ones do not start, an error says why and the old ones go on.

        Args:
            parts: the folders, or one that holds them; by default the folders given before.

        Returns:
            Whether anything changed.

        """
        given = self._given if parts is None else parts
        found = paths_of(given)
        with self._reading() as reader:
            if found == self._parts and reader.is_latest():
                return False
        new = self._open(found)
        with self._lock:
            old, self._now, self._parts, self._given = self._now, new, found, given
        if old is not None:
            self._retire(old)
        return True

    def metrics(self) -> list[dict[str, Any]]:
        """Return what became of requests, a dictionary for each part.

        `requests`, `retries`, `hedges`, `deaths` of actors and `failures` are counts since the last refresh; `p50` and
        `p95` are seconds of recent answers, Ray's share included.
        """
        with self._reading():
            assert self._now is not None
            return self._now.replicas.metrics()

    def actors(self) -> list[list[Any]]:
        """Return the handles of the actors of each part, to see where they are."""
        with self._reading():
            assert self._now is not None
            return self._now.replicas.actors()

    def close(self) -> None:
        """End the actors, once the requests that run are answered."""
        with self._lock:
            old, self._now = self._now, None
        if old is not None:
            self._retire(old)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"SearchCluster({len(self)} items of {self.width} bits in {len(self._parts)} parts)"

    # writes

    def add(self, *_: Any, **__: Any) -> NoReturn:
        """Raise: a cluster only reads."""
        raise _read_only("add")

    def remove(self, *_: Any, **__: Any) -> NoReturn:
        """Raise: a cluster only reads."""
        raise _read_only("remove")

    def update(self, *_: Any, **__: Any) -> NoReturn:
        """Raise: a cluster only reads."""
        raise _read_only("update")

    def _open(self, parts: list[str] | None = None) -> "_Generation":
        given = self._parts if parts is None else parts
        replicas = Replicas(given, self._replicas, self._memory, self._cache, self._timeout, self._resources)
        try:
            return _Generation(replicas, self._start_timeout)
        except BaseException:
            replicas.close()
            raise

    @contextmanager
    def _reading(self) -> Iterator[PartsReader]:
        """Yield the reader of the current generation, which does not end before."""
        with self._lock:
            generation = self._now
            if generation is None:
                raise InvalidInput("this cluster was closed: open another")
            generation.requests += 1
        try:
            yield generation.reader
        finally:
            with self._lock:
                generation.requests -= 1
                ended = generation.retired and not generation.requests
            if ended:
                generation.replicas.close()

    def _retire(self, old: "_Generation") -> None:
        with self._lock:
            old.retired, idle = True, not old.requests
        if idle:
            old.replicas.close()


class _Generation:
    """One set of parts: their replicas, what reads them, and how many requests use them."""

    def __init__(self, replicas: Replicas, timeout: float) -> None:
        self.replicas, self.requests, self.retired = replicas, 0, False
        parts = range(len(replicas.paths))
        facts, _ = replicas.ask("facts", dict.fromkeys(parts, ()), timeout=timeout)
        replicas.commits = [facts[part].commit for part in parts]
        coder, _ = replicas.ask("coder", {0: ()}, timeout=timeout)
        self.reader = PartsReader([facts[part] for part in parts], coder[0], replicas.ask)


def _read_only(name: str) -> NestcodeError:
    return InvalidInput(
        f"a cluster only reads its parts, and cannot {name}: build other parts with nestcode.scale.ray.encode or "
        "nestcode.scale, then call refresh(parts)"
    )
