"""A document store of Haystack that is searched by nested codes, and its retriever.

Documents are ranked by the cosine of their embeddings. At first all embeddings are compared; once there are enough, a
coder is fitted, and codes select the embeddings to compare. Documents and metadata are columns of the same index.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Self

from nestcode.errors import InvalidInput, import_extra
from nestcode.integrations.collection import NAME, TEXT, Collection, Mode, Row
from nestcode.integrations.metadata import ORDERINGS, Metadata, Where, all_of, any_of, check_depth, plain
from nestcode.search.vectors import VectorType

import_extra("haystack", extra="haystack", purpose="nestcode.integrations.haystack")

from haystack import Document, component, default_from_dict, default_to_dict  # noqa: E402
from haystack.document_stores.errors import DuplicateDocumentError  # noqa: E402
from haystack.document_stores.types import DuplicatePolicy, FilterPolicy, apply_filter_policy  # noqa: E402
from haystack.errors import FilterError  # noqa: E402

KIND = "NestcodeDocumentStore"  # of the file
FIELDS = Metadata({"s:id": NAME, "s:content": TEXT})  # of documents, beside their metadata
Filters = dict[str, Any]


class NestcodeDocumentStore:
    """A document store that ranks documents by the cosine of their embeddings.

    >>> from haystack import Document
    >>> store = NestcodeDocumentStore()
    >>> store.write_documents([Document(id="a", content="east", embedding=[1.0, 0.0]), Document(id="b", content="?")])
    2
    >>> store.embedding_retrieval([0.9, 0.1], top_k=1)[0].content
    'east'
    >>> store.count_documents()
    2

    Documents without an embedding are stored and filtered, but not retrieved. Filters are Haystack's, on `meta`, `id`
    and `content`, and the index evaluates them for all documents at once. Comparisons order texts as dates (UTC without
    a time zone) and find only values of the filter's type. All methods are thread-safe.

    With `path=` the store keeps documents in a folder: every call that writes or deletes documents is one commit, which
    survives a crash. Without `path=` documents are in memory until `save_to_disk`.

    Args:
        width: bits of a code, to fit a `CellCoder` without trials; by default trials choose.
        rows_to_fit: the number of embeddings at which trial searches choose a coder, and the effort that finds 99 % of
            the ten nearest. Before, a search compares all embeddings.
        vectors: the type of stored embeddings once there are codes: "float16", "float32", "int8", or None to store only
            codes, which saves most of the memory and lowers the recall.
        return_embedding: whether documents keep their embeddings; if not, only the index has them, in much less memory.
        path: the folder of the documents. If it has a store already, the store opens with its own settings.
        mode: "a" to write to the folder (one process at a time), or "r" to read it.

    """

    def __init__(
        self,
        *,
        width: int | None = None,
        rows_to_fit: int = 10_000,
        vectors: VectorType | None = "float16",
        return_embedding: bool = True,
        path: str | os.PathLike[str] | None = None,
        mode: Mode = "a",
    ) -> None:
        settings: dict[str, Any] = {"width": width, "rows_to_fit": rows_to_fit, "vectors": vectors}
        self._return_embedding = return_embedding
        folder = None if path is None else Path(path)
        self._place = {} if folder is None else {"path": str(folder), "mode": mode}
        dump = partial(_dump, return_embedding=return_embedding)
        self._collection = Collection[Document](KIND, dump, _parse, settings, folder, mode)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings; `from_dict` makes an empty store of them, or opens the folder."""
        settings = {**self._collection.settings, "return_embedding": self._return_embedding, **self._place}
        serialized: dict[str, Any] = default_to_dict(self, **settings)
        return serialized

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Return a store with the settings of `to_dict`."""
        store: Self = default_from_dict(cls, data)
        return store

    def count_documents(self) -> int:
        """Return the number of documents."""
        return len(self._collection)

    def filter_documents(self, filters: Filters | None = None) -> list[Document]:
        """Return the documents that match the filters, or all."""
        with self._collection.lock:
            return self._collection.select(self._where(filters))

    def write_documents(self, documents: list[Document], policy: DuplicatePolicy = DuplicatePolicy.NONE) -> int:
        """Add documents and return how many; ids that exist fail by default, and nothing is written then."""
        if not isinstance(documents, list) or not all(isinstance(one, Document) for one in documents):
            raise InvalidInput(
                f"documents must be a list of haystack.Document, got {type(documents).__name__} with "
                "something else: convert its elements"
            )
        written: dict[str, Document] = {}
        with self._collection.lock:
            for one in documents:
                if policy != DuplicatePolicy.OVERWRITE and (one.id in self._collection or one.id in written):
                    if policy == DuplicatePolicy.SKIP:
                        continue
                    raise DuplicateDocumentError(
                        f"ids must be new, got {one.id!r} which exists: delete it, or pass policy=DuplicatePolicy.SKIP "
                        "or OVERWRITE"
                    )
                written[one.id] = one
            embeddings = [one.embedding for one in written.values()]
            self._collection.put(written, embeddings)
        return len(documents) if policy == DuplicatePolicy.OVERWRITE else len(written)

    def delete_documents(self, document_ids: list[str]) -> None:
        """Delete the documents with these ids; unknown ids are ignored."""
        self._collection.delete(document_ids)

    def delete_all_documents(self) -> None:
        """Delete all documents; the coder, once fitted, stays."""
        with self._collection.lock:
            self._collection.delete(self._collection.names())

    def delete_by_filter(self, filters: Filters) -> int:
        """Delete the documents that match the filters, and return how many there were."""
        with self._collection.lock:
            return self._collection.delete(self._collection.names(self._where(filters)))

    def update_by_filter(self, filters: Filters, meta: dict[str, Any]) -> int:
        """Update the metadata of the documents that match the filters, and return how many there were."""
        with self._collection.lock:
            found = self.filter_documents(filters)
            self._collection.update({one.id: replace(one, meta=one.meta | meta) for one in found})
        return len(found)

    def embedding_retrieval(
        self,
        query_embedding: list[float],
        filters: Filters | None = None,
        top_k: int = 10,
        *,
        return_embedding: bool = False,
    ) -> list[Document]:
        """Return the nearest documents to an embedding that match the filters; scores are cosines."""
        if top_k == 0:
            return []
        with self._collection.lock:
            found = self._collection.nearest(query_embedding, top_k, self._where(filters))
        if not return_embedding:
            found = [(replace(one, embedding=None), cosine) for one, cosine in found]
        return [replace(one, score=cosine) for one, cosine in found]

    def save_to_disk(self, path: str | os.PathLike[str]) -> None:
        """Write the documents to a folder, replacing its documents.

        >>> import tempfile
        >>> from pathlib import Path
        >>> from haystack import Document
        >>> store = NestcodeDocumentStore()
        >>> store.write_documents([Document(content="one", embedding=[0.0, 1.0])])
        1
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     store.save_to_disk(Path(folder) / "store")
        ...     NestcodeDocumentStore.load_from_disk(Path(folder) / "store").filter_documents()[0].content
        'one'
        """
        self._collection.save(Path(path))

    @classmethod
    def load_from_disk(cls, path: str | os.PathLike[str], *, return_embedding: bool = True, mode: Mode = "a") -> Self:
        """Open the folder of a store; it holds no code. Later changes are committed to it, unless mode is "r".

        It has the settings that it was made with, but for `return_embedding`.
        """
        Collection.read_settings(Path(path), KIND)  # raises unless there is one
        return cls(return_embedding=return_embedding, path=path, mode=mode)

    def close(self) -> None:
        """Let another process write the folder."""
        self._collection.close()

    def _where(self, filters: Filters | None) -> Where | None:
        return _condition(filters, self._collection.metadata) if filters else None


@component
class NestcodeEmbeddingRetriever:
    """A retriever of the documents in a `NestcodeDocumentStore` that are nearest to an embedding.

    >>> from haystack import Document
    >>> store = NestcodeDocumentStore()
    >>> store.write_documents([Document(content="east", embedding=[1.0, 0.0])])
    1
    >>> NestcodeEmbeddingRetriever(store).run([1.0, 0.1])["documents"][0].content
    'east'

    Args:
        document_store: the store.
        filters: Haystack's filters of every query.
        top_k: documents to retrieve.
        filter_policy: whether a query's own filters replace these or are merged with them.

    """

    def __init__(
        self,
        document_store: NestcodeDocumentStore,
        *,
        filters: Filters | None = None,
        top_k: int = 10,
        filter_policy: str | FilterPolicy = FilterPolicy.REPLACE,
    ) -> None:
        if not isinstance(document_store, NestcodeDocumentStore):
            raise InvalidInput(f"document_store must be a NestcodeDocumentStore, got {type(document_store).__name__}")
        self.document_store, self.filters, self.top_k = document_store, filters, top_k
        self.filter_policy = FilterPolicy.from_str(filter_policy) if isinstance(filter_policy, str) else filter_policy

    def to_dict(self) -> dict[str, Any]:
        """Return the settings of the retriever and of its store."""
        serialized: dict[str, Any] = default_to_dict(
            self,
            document_store=self.document_store.to_dict(),
            filters=self.filters,
            top_k=self.top_k,
            filter_policy=self.filter_policy.value,
        )
        return serialized

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Return a retriever with the settings of `to_dict`, and an empty store."""
        settings = dict(data["init_parameters"])
        if isinstance(settings["document_store"], dict):
            settings["document_store"] = NestcodeDocumentStore.from_dict(settings["document_store"])
        return cls(**settings)

    @component.output_types(documents=list[Document])  # type: ignore[untyped-decorator]
    def run(
        self, query_embedding: list[float], filters: Filters | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """Return the nearest documents to an embedding."""
        filters = apply_filter_policy(self.filter_policy, self.filters, filters)
        top_k = self.top_k if top_k is None else top_k
        return {"documents": self.document_store.embedding_retrieval(query_embedding, filters, top_k)}


def _dump(document: Document, *, return_embedding: bool) -> Row:
    rest = document.to_dict(flatten=False)
    for name in ("id", "content", "score", *(() if return_embedding else ("embedding",))):
        rest.pop(name, None)
    return Row(document.id, rest, _fields("", document.meta), document.content)


def _parse(name: str, content: str | None, values: Any) -> Document:
    return Document.from_dict({"id": name, "content": content, **values})


def _fields(prefix: str, meta: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Return the values of metadata by their paths, also in dictionaries; and dates, by which texts are ordered."""
    for key, value in meta.items():
        path = f"{prefix}{key}"
        yield path, value
        moment = _moment(value)
        if moment is not None:
            yield path, moment
        if isinstance(value, Mapping):
            yield from _fields(f"{path}.", value)


def _moment(value: Any) -> datetime | None:
    """Return the moment that a text is in ISO 8601, if it is one."""
    if isinstance(value, str) and len(value) >= len("2024-05-01"):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    if not isinstance(value, datetime):
        return None
    return value.replace(tzinfo=value.tzinfo or UTC)


def _condition(filters: Any, metadata: Metadata, depth: int = 0) -> Where:
    """Return filters as a condition on the columns of metadata."""
    check_depth(depth)
    if not isinstance(filters, Mapping) or "operator" not in filters:
        got = f"the keys {sorted(map(str, filters))}" if isinstance(filters, Mapping) else repr(filters)
        raise FilterError(f"filters must have an operator, got {got:.200}: add it")
    name = filters["operator"]
    if "field" in filters:
        if "value" not in filters:
            raise FilterError(f"a comparison must have a value, got the keys {sorted(map(str, filters))}: add it")
        return _comparison(str(filters["field"]), name, plain(filters["value"]), metadata)
    if name not in ("AND", "OR", "NOT") or not isinstance(filters.get("conditions"), list):
        raise FilterError(f"filters must join a list of conditions by AND, OR or NOT, got {name!r:.80}: correct it")
    parts = [_condition(one, metadata, depth + 1) for one in filters["conditions"]]
    return any_of(parts) if name == "OR" else ~all_of(parts) if name == "NOT" else all_of(parts)


def _comparison(field: str, name: Any, value: Any, metadata: Metadata) -> Where:
    key, moment = field.removeprefix("meta."), _moment(value)
    metadata = FIELDS if field in ("id", "content") else metadata
    if name in ("==", "!="):
        equal = _equal(key, value, metadata)
        return equal if name == "==" else ~equal
    if name in ("in", "not in"):
        if not isinstance(value, list):
            raise FilterError(f"{name!r} must have a list of values, got {value!r:.80} for {field!r:.80}: give one")
        found = any_of([metadata.one_of(key, value), *(_equal(key, one, metadata) for one in value if _moment(one))])
        return found if name == "in" else ~found
    if name not in ORDERINGS:
        raise FilterError(
            f"filters compare by ==, !=, <, <=, >, >=, in and not in, got {name!r:.80} for {field!r:.80}: correct it"
        )
    if isinstance(value, list | Mapping | bool) or (isinstance(value, str) and moment is None):
        raise FilterError(
            f"{name} must compare with a number or a date in ISO 8601, got {value!r:.80} for {field!r:.80}: give one"
        )
    return any_of([]) if value is None else metadata.compare(key, name, value if moment is None else moment)


def _equal(key: str, value: Any, metadata: Metadata) -> Where:
    """Return where a key has a value; dates are equal as moments."""
    moment = _moment(value)
    return any_of(
        [metadata.compare(key, "=", value), *([] if moment is None else [metadata.compare(key, "=", moment)])]
    )
