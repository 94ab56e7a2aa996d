"""The service without HTTP: an index that is refreshed or written, its coder, its items and streams."""

import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np

from nestcode.arrays import CORES, Floats, Ids, check_int
from nestcode.coders import Coder
from nestcode.errors import DamagedFile, InvalidInput, MissingExtra, import_extra
from nestcode.index import Index
from nestcode.scale.ray import SearchCluster
from nestcode.search.hits import Hits
from nestcode.serve.batching import Options, Queries
from nestcode.serve.items import Items
from nestcode.serve.limits import Limits
from nestcode.serve.writer import Writer

ROWS = 64  # items whose attributes are read at once
Embed = Callable[[list[str]], Floats]  # texts -> (n, features)


class Absent(LookupError):
    """The server was started without a part that a request needs, or has no such item."""


class Service:
    """An index that is refreshed or written, its coder, its items and streams.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Index(width=8).save(folder)
    ...     service = Service(folder)
    ...     service.describe()["width"], service.writer
    ...     service.close()
    (8, None)

    Args:
        index: the folder of an index, several folders that are read as one, or a `SearchCluster`; without it the
            service has only `streams`.
        coder: encodes vectors for an index that has no coder itself.
        items: names and images of the items.
        embed: a model of text, so that texts can be queries.
        streams: a folder of .nest files.
        writable: whether items may be added and removed.
        memory: as for `Index.open`.
        threads: the number of searches that run at the same time; by default one for each core.
        limits: the limits on requests.

    """

    def __init__(
        self,
        index: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | SearchCluster | None = None,
        *,
        coder: Coder | None = None,
        items: Items | None = None,
        embed: Embed | None = None,
        streams: str | os.PathLike[str] | None = None,
        writable: bool = False,
        memory: str | None = None,
        threads: int | None = None,
        limits: Limits | None = None,
    ) -> None:
        if index is None and streams is None:
            raise InvalidInput("a server needs an index or a folder of streams, got neither: give one of them")
        if streams is not None and not Path(streams).is_dir():
            raise InvalidInput(f"streams must be a folder, got {streams}: there is no such folder")
        if isinstance(index, SearchCluster) and writable:
            raise InvalidInput("a cluster only reads its parts, got writable=True: build other parts, and refresh")
        self._path = None if isinstance(index, SearchCluster) else index
        self._memory, self.items, self.embed = memory, items, embed
        self._streams = None if streams is None else Path(streams)
        self.limits = limits or Limits()
        self.threads = CORES if threads is None else check_int(threads, "threads", least=1)
        self._index: Index | SearchCluster | None
        if self._path is None:
            self._index = index if isinstance(index, SearchCluster) else None
        else:
            self._index = Index.open(self._path, "a" if writable else "r", memory=memory)
        own = None if self._index is None else self._index.coder
        if own is not None and coder is not None:
            raise InvalidInput("the index has its own coder: leave coder out")
        self._given, self._damaged = coder, False
        self._tagged: tuple[Index | SearchCluster | None, str] = None, ""
        if self._index is not None and coder is not None and coder.width_ < self._index.width:
            raise InvalidInput(
                f"the coder must have at least the index's {self._index.width} bits, got {coder.width_}: give the "
                "coder that encoded the items"
            )
        self.pool = ThreadPoolExecutor(self.threads, thread_name_prefix="nestcode-search")
        self._writer = Writer(self._index) if isinstance(self._index, Index) and writable else None

    @property
    def index(self) -> Index | SearchCluster:
        """The current index."""
        if self._index is None:
            raise Absent("this server has no index: start it with nestcode serve INDEX")
        return self._index

    @property
    def coder(self) -> Coder:
        """The coder of the index, or the coder that was passed."""
        coder = self._any_coder()
        if coder is None:
            raise Absent("this server has no coder: start it with --coder, or send codes")
        return coder

    @property
    def tag(self) -> str:
        """The entity tag of the index's width and coder, by which requests for another width or coder are refused."""
        index, coder = self._index, self._any_coder()
        if self._tagged[0] is not index or not self._tagged[1]:
            fingerprint = "" if coder is None else coder.fingerprint
            self._tagged = index, f'"{0 if index is None else index.width}-{fingerprint}"'
        return self._tagged[1]

    @property
    def writer(self) -> Writer | None:
        """Writes to the index; None where it is only read."""
        return self._writer

    @property
    def how_to_write(self) -> str:
        """The way to change the items of a read-only index, for errors."""
        if isinstance(self._index, SearchCluster):
            return "build another generation of parts, and let the folder of --parts lead to it"
        return "start it with --writable"

    def parts(self) -> list[dict[str, Any]]:
        """Return what became of requests to each part of a cluster, as `SearchCluster.metrics` does."""
        return self._index.metrics() if isinstance(self._index, SearchCluster) else []

    def refresh(self) -> bool:
        """Load the last commit of another process, and return whether there was one; running searches continue."""
        if self._index is None:
            return False
        if isinstance(self._index, SearchCluster):
            changed = self._index.refresh()
            self._tagged = (None, "") if changed else self._tagged
            return changed
        if not self._damaged:
            try:
                return self._index.refresh() if self._writer is None else self._writer.refresh()
            except InvalidInput:  # another index is in the folder now
                pass
        assert self._path is not None
        opened = Index.open(self._path, memory=self._memory)  # a copy may be restored
        _warm(opened)
        if self._writer is not None:  # which holds the lock until it is closed
            opened = self._writer.replace(self._reopened)
        self._index, self._damaged = opened, False
        return True

    def _reopened(self, before: Index) -> Index:
        """Return the index in the folder, opened to write after the one before is closed."""
        assert self._path is not None
        before.close(save_graphs=False)  # they are of what was damaged, and a copy may be restored by now
        return Index.open(self._path, "a", memory=self._memory)

    def warm(self) -> None:
        """Prepare the index, so that the first request does not wait for that."""
        if isinstance(self.index, Index):  # the replicas of a cluster have prepared themselves
            _warm(self.index)

    def note(self, error: Exception) -> None:
        """Let the next refresh open the index anew if it is damaged."""
        self._damaged |= isinstance(error, DamagedFile)

    def close(self) -> None:
        """Finish writes, let other processes write, and release the index."""
        if self._writer is not None:
            self._writer.close()
        self.pool.shutdown()
        if isinstance(self._index, SearchCluster):
            self._index.close()
        elif self._index is not None:
            self._index.close(save_graphs=not self._damaged)
        self._index = self._writer = self._given = self.items = self.embed = None
        self._tagged = None, ""

    # what runs in threads

    def search(self, queries: Queries, options: Options) -> Hits:
        """Search a batch; arrays have two dimensions."""
        index, arguments = self.index, options.arguments()
        if isinstance(index, SearchCluster):
            del arguments["text"]
            return index.search(queries, allow_partial=options.allow_partial, **arguments)
        if len(queries) > 1:
            return index.search(queries, **arguments)
        hits = index.search(queries[0], **arguments)
        return Hits(hits.ids[None], hits.distances[None], np.array([hits.compared]))

    def check_condition(self, condition: str, parameters: bytes) -> None:
        """Raise unless a condition is one on the attributes of the index, and not too long to evaluate."""
        columns = self.index.columns
        if not columns:  # the search says so
            return
        from nestcode.search.conditions import condition_filter

        rule = condition_filter((condition, json.loads(parameters)), columns).rule
        count = getattr(rule, "comparisons", 0)
        if count > self.limits.comparisons:
            raise InvalidInput(
                f"a condition must have at most {self.limits.comparisons} comparisons here, got {count}: give lists "
                "with IN ?"
            )

    def check_text(self, text: str | dict[str, str]) -> None:
        """Raise unless a text can be searched beside vectors, and has few words."""
        if isinstance(self.index, SearchCluster):
            raise InvalidInput("a cluster has no hybrid search: leave text out, or search one index")
        columns = self.index.columns
        if not columns:  # the search says so
            return
        from nestcode.search.hybrid import check_text
        from nestcode.search.words import split

        _, (one,) = check_text(text, columns, count=1)
        if len(one) > self.limits.condition or len({*split(one)}) > self.limits.comparisons:
            raise InvalidInput(
                f"text must have at most {self.limits.condition:,} characters and {self.limits.comparisons} different "
                f"words here, got {len(one):,} and {len({*split(one)}):,}: give the most important words"
            )

    def attributes_to_add(self, rows: list[dict[str, Any]] | None) -> list[dict[str, Any]] | None:
        """Return attributes as the index takes them: in JSON, dates and times are texts in ISO 8601."""
        if rows is None:
            return None
        columns = self.index.columns
        if not columns:
            raise InvalidInput("this index has no attributes: leave them out, or build it with some")
        moments = [name for name, kind in columns.items() if kind == "date" or kind.startswith("timestamp")]
        return [{**row, **{name: _moment(name, row[name]) for name in moments if name in row}} for row in rows]

    def attributes(self, ids: Ids, columns: list[str] | None) -> tuple[Ids, Any]:
        """Return the items that the index has of some, and their attributes as a table of pyarrow."""
        index, parts, size = self.index, [], 0
        try:
            index.attributes([], columns)  # raises where it has none, or not these columns
            known = np.unique(ids[ids >= 0])
            known = known[index.contains(known)]
            for start in range(0, max(len(known), 1), ROWS):  # how large texts are is known once they are read
                parts.append(index.attributes(known[start : start + ROWS], columns))
                size += parts[-1].nbytes
                if size > self.limits.columns:
                    raise InvalidInput(
                        f"attributes of an answer must have at most {self.limits.columns:,} bytes, got more: request "
                        "fewer columns, or fewer items at a time"
                    )
        except MissingExtra as error:
            raise Absent(f"this server cannot read attributes: {error}") from error
        return known, import_extra("pyarrow", extra="arrow", purpose="attributes of items").concat_tables(parts)

    def as_queries(self, vectors: Floats) -> Queries:
        """Return vectors as the index takes them: codes where it has no coder."""
        if self.index.coder is not None:
            return vectors
        return self.coder.encode(vectors).prefix(self.index.width)

    def items_as_queries(self, ids: list[int]) -> Queries:
        """Return items of the index as queries: their vectors, what their codes decode to, or their codes."""
        index = self.index
        if index.vector_type is not None:
            return index.vectors(ids)
        return index.codes(ids) if index.coder is None else index.reconstruct(ids)

    # streams

    def streams(self) -> dict[str, Path]:
        """Return the streams by name: names in requests are looked up here and never become paths.

        Links out of the folder are left out.
        """
        if self._streams is None:
            return {}
        with os.scandir(self._streams) as entries:
            found = [one for one in entries if one.name.endswith(".nest") and one.is_file()]
        inside = self._streams.resolve()
        return {
            one.name: Path(one.path)
            for one in found
            if not one.is_symlink() or Path(one.path).resolve().is_relative_to(inside)
        }

    def describe(self) -> dict[str, Any]:
        """Return a description of the index, the coder, the items and the streams."""
        about: dict[str, Any] = {
            "streams": {name: path.stat().st_size for name, path in sorted(self.streams().items())},
            "writable": self._writer is not None,
            "items": None if self.items is None else self.items.kind,
            "texts": self.embed is not None,
            "limits": vars(self.limits),
            "tag": self.tag,
        }
        if self._index is not None:
            about |= {"count": len(self._index), "width": self._index.width, "vectors": self._index.vector_type}
            about["columns"] = self._index.columns
        coder = self._any_coder()
        if coder is not None:
            about["coder"] = {
                "kind": type(coder).__name__,
                "width": coder.width_,
                "features": coder.n_features_in_,
                "metric": coder.metric_,
                "fingerprint": about["tag"].strip('"').partition("-")[2],
            }
            about["image"] = None if self.items is None else self.items.image_of(coder.n_features_in_)
        return about

    def _any_coder(self) -> Coder | None:
        return self._given if self._index is None or self._index.coder is None else self._index.coder


def _moment(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return date.fromisoformat(value) if len(value) == len("2024-05-01") else datetime.fromisoformat(value)
    except ValueError:
        raise InvalidInput(f"column {name!r} takes dates and times in ISO 8601, got {value!r:.80}") from None


def _warm(index: Index) -> None:
    if len(index):
        index.search(index.codes(index.ids[:1]) if index.coder is None else index.reconstruct(index.ids[:1]), k=1)
