"""A document store of Haystack that is searched by nested codes, and its retriever.

Documents are ranked by the cosine of their embeddings. The first embeddings are all compared; once there are enough, a
coder is fitted to them, and codes choose those to compare, as in `nestcode.integrations.faiss.NestedIndex`.
"""

import os
from dataclasses import replace
from typing import Any, Self

from nestcode.errors import InvalidInput, import_extra
from nestcode.integrations.collection import Collection
from nestcode.search.vectors import VectorType

import_extra("haystack", extra="haystack", purpose="nestcode.integrations.haystack")

from haystack import Document, component, default_from_dict, default_to_dict  # noqa: E402
from haystack.document_stores.errors import DuplicateDocumentError  # noqa: E402
from haystack.document_stores.types import DuplicatePolicy, FilterPolicy, apply_filter_policy  # noqa: E402
from haystack.errors import FilterError  # noqa: E402
from haystack.utils.filters import document_matches_filter  # noqa: E402

KIND = "NestcodeDocumentStore"  # of the file
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

    Documents without an embedding are stored and filtered, but not retrieved. Filters are Haystack's. All methods are
    thread-safe.

    Args:
        width: bits of a code.
        rows_to_fit: the number of embeddings at which a coder is fitted.
        vectors: how embeddings are stored once there are codes: "float16", "float32", "int8", or None to store codes
            only, which saves most of the memory and finds fewer of the nearest.
        return_embedding: whether documents keep their embeddings; without, only the index does, in much less memory.

    """

    def __init__(
        self,
        *,
        width: int = 256,
        rows_to_fit: int = 10_000,
        vectors: VectorType | None = "float16",
        return_embedding: bool = True,
    ) -> None:
        self._settings: dict[str, Any] = {"width": width, "rows_to_fit": rows_to_fit, "vectors": vectors}
        self._return_embedding = return_embedding
        self._collection = Collection[Document](self._settings)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings, of which `from_dict` makes an empty store; `save_to_disk` writes the documents."""
        serialized: dict[str, Any] = default_to_dict(self, **self._settings, return_embedding=self._return_embedding)
        return serialized

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Return an empty store with the settings of `to_dict`."""
        store: Self = default_from_dict(cls, data)
        return store

    def count_documents(self) -> int:
        """Return the number of documents."""
        return len(self._collection.documents)

    def filter_documents(self, filters: Filters | None = None) -> list[Document]:
        """Return the documents that match the filters, or all."""
        with self._collection.lock:
            return [_copy(one) for one in self._collection.documents.values() if _matches(filters, one)]

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
                if policy != DuplicatePolicy.OVERWRITE and (one.id in self._collection.documents or one.id in written):
                    if policy == DuplicatePolicy.SKIP:
                        continue
                    raise DuplicateDocumentError(
                        f"ids must be new, got {one.id!r} which exists: delete it, or pass policy=DuplicatePolicy.SKIP "
                        "or OVERWRITE"
                    )
                written[one.id] = one
            embeddings = [one.embedding for one in written.values()]
            self._collection.put({name: self._kept(one) for name, one in written.items()}, embeddings)
        return len(documents) if policy == DuplicatePolicy.OVERWRITE else len(written)

    def delete_documents(self, document_ids: list[str]) -> None:
        """Delete the documents with these ids; unknown ids are ignored."""
        self._collection.delete(document_ids)

    def delete_all_documents(self) -> None:
        """Delete all documents; the coder, once fitted, stays."""
        with self._collection.lock:
            self._collection.delete(list(self._collection.documents))

    def delete_by_filter(self, filters: Filters) -> int:
        """Delete the documents that match the filters, and return how many there were."""
        with self._collection.lock:
            return self._collection.delete([one.id for one in self.filter_documents(filters)])

    def update_by_filter(self, filters: Filters, meta: dict[str, Any]) -> int:
        """Update the metadata of the documents that match the filters, and return how many there were."""
        with self._collection.lock:
            found = self.filter_documents(filters)
            self._collection.documents.update({one.id: replace(one, meta=one.meta | meta) for one in found})
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
            wanted = (lambda one: _matches(filters, one)) if filters else None
            found = self._collection.nearest(query_embedding, top_k, wanted)
            documents = [(self._collection.documents[name], cosine) for name, cosine in found]
        if not return_embedding:
            documents = [(replace(one, embedding=None), cosine) for one, cosine in documents]
        return [replace(one, meta=dict(one.meta), score=cosine) for one, cosine in documents]

    def save_to_disk(self, path: str | os.PathLike[str]) -> None:
        """Write documents, codes and embeddings to one file, atomically; metadata must be JSON.

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
        self._collection.save(path, KIND, lambda one: [one.to_dict(flatten=False)])

    @classmethod
    def load_from_disk(cls, path: str | os.PathLike[str], *, return_embedding: bool = True) -> Self:
        """Load a store that `save_to_disk` wrote, and verify its checksum; the file holds no code.

        It has the settings that it was saved with, but for `return_embedding`.
        """
        collection = Collection.load(path, KIND, _parse)
        store = cls(**collection.settings, return_embedding=return_embedding)
        store._collection = collection
        return store

    def _kept(self, document: Document) -> Document:
        return (
            _copy(document) if self._return_embedding else replace(document, meta=dict(document.meta), embedding=None)
        )


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


def _matches(filters: Filters | None, document: Document) -> bool:
    if not filters:
        return True
    if "operator" not in filters:
        raise FilterError(f"filters must have an operator, got the keys {sorted(filters)}: add it")
    return bool(document_matches_filter(filters, document))


def _parse(name: str, values: dict[str, Any]) -> Document:
    document = Document.from_dict(values)
    if document.id != name:
        raise ValueError(f"{name!r} is the name of document {document.id!r}")
    return document


def _copy(document: Document) -> Document:
    return replace(document, meta=dict(document.meta))
