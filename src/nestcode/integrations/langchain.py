"""A vector store of LangChain that is searched by nested codes.

Documents are ranked by the cosine of their embeddings. The first embeddings are all compared; once there are enough, a
coder is fitted to them, and codes choose those to compare, as in `nestcode.integrations.faiss.NestedIndex`.
"""

import uuid
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from nestcode.coders import Coder
from nestcode.errors import InvalidInput, import_extra
from nestcode.integrations.collection import Collection
from nestcode.search.vectors import VectorType

import_extra("langchain_core", extra="langchain", purpose="nestcode.integrations.langchain")

from langchain_core.documents import Document  # noqa: E402
from langchain_core.embeddings import Embeddings  # noqa: E402
from langchain_core.vectorstores import VectorStore  # noqa: E402
from langchain_core.vectorstores.utils import maximal_marginal_relevance  # noqa: E402

KIND = "NestcodeVectorStore"  # of the file
FILE = "documents.nestcode"
Filter = dict[str, Any] | Callable[[Document], bool]


class NestcodeVectorStore(VectorStore):
    """A vector store that ranks documents by the cosine of their embeddings.

    >>> from langchain_core.embeddings import DeterministicFakeEmbedding
    >>> texts = ["nested codes", "prefix trees", "embedded bitstreams"]
    >>> store = NestcodeVectorStore.from_texts(texts, DeterministicFakeEmbedding(size=64), ids=["a", "b", "c"])
    >>> store.similarity_search("prefix trees", k=1)
    [Document(id='b', metadata={}, page_content='prefix trees')]
    >>> store.delete(["b"])
    True
    >>> [document.id for document in store.get_by_ids(["a", "b"])]
    ['a']

    Scores are cosines, the largest first. All methods are thread-safe and have LangChain's asynchronous twins
    (`asimilarity_search` and so on).

    Args:
        embedding: the embedding model.
        width: bits of a code; by default 256, or the coder's width.
        coder: a fitted coder, preferably with metric="cosine", to use from the first document on.
        rows_to_fit: the number of documents at which a coder is fitted if none is given.
        vectors: how embeddings are stored once there are codes: "float16", "float32", "int8", or None to store codes
            only, which saves most of the memory and finds fewer of the nearest.

    """

    def __init__(
        self,
        embedding: Embeddings,
        *,
        width: int | None = None,
        coder: Coder | None = None,
        rows_to_fit: int = 10_000,
        vectors: VectorType | None = "float16",
    ) -> None:
        self._embedding = embedding
        settings = {"width": width, "coder": coder, "rows_to_fit": rows_to_fit, "vectors": vectors}
        self._collection = Collection[Document](settings)

    @property
    def embeddings(self) -> Embeddings:
        """The embedding model."""
        return self._embedding

    def __len__(self) -> int:
        return len(self._collection.documents)

    # Updates

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        **_: Any,
    ) -> list[str]:
        """Add documents, replacing those with the same ids, and return the ids."""
        texts = list(texts)
        metadatas = [{} for _ in texts] if metadatas is None else metadatas
        names = [name or str(uuid.uuid4()) for name in ([None] * len(texts) if ids is None else ids)]
        if not len(texts) == len(metadatas) == len(names):
            raise InvalidInput(
                f"there must be one metadata and one id for each text, got {len(metadatas)} and {len(names)} for "
                f"{len(texts)} texts: make the lists equally long"
            )
        if not texts:
            return []
        vectors = np.asarray(self._embedding.embed_documents(texts), dtype=np.float32)
        last = {name: place for place, name in enumerate(names)}  # the last document of an id wins
        documents = {
            name: Document(id=name, page_content=texts[place], metadata=dict(metadatas[place]))
            for name, place in last.items()
        }
        self._collection.put(documents, vectors[list(last.values())])
        return names

    def delete(self, ids: list[str] | None = None, **_: Any) -> bool:
        """Delete the documents with these ids, or all; unknown ids are ignored."""
        with self._collection.lock:
            self._collection.delete(list(self._collection.documents) if ids is None else ids)
        return True

    # Queries

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Return the documents with these ids; unknown ids are ignored."""
        with self._collection.lock:
            known = self._collection.documents
            return [_copy(known[name]) for name in ids if name in known]

    def similarity_search(self, query: str, k: int = 4, **options: Any) -> list[Document]:
        """Return the k nearest documents to a text; `filter` is a predicate, or metadata that documents must have."""
        return [document for document, _ in self.similarity_search_with_score(query, k, **options)]

    def similarity_search_with_score(self, query: str, k: int = 4, **options: Any) -> list[tuple[Document, float]]:
        """Return the k nearest documents to a text with their cosines."""
        return self.similarity_search_with_score_by_vector(self._embedding.embed_query(query), k, **options)

    def similarity_search_by_vector(self, embedding: list[float], k: int = 4, **options: Any) -> list[Document]:
        """Return the k nearest documents to a vector."""
        return [document for document, _ in self.similarity_search_with_score_by_vector(embedding, k, **options)]

    def similarity_search_with_score_by_vector(
        self,
        embedding: list[float],
        k: int = 4,
        *,
        filter: Filter | None = None,  # noqa: A002
        **others: Any,
    ) -> list[tuple[Document, float]]:
        """Return the k nearest documents to a vector with their cosines."""
        _refuse(others)
        with self._collection.lock:
            found = self._collection.nearest(embedding, k, _predicate(filter))
            return [(_copy(self._collection.documents[name]), cosine) for name, cosine in found]

    def max_marginal_relevance_search(
        self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **options: Any
    ) -> list[Document]:
        """Return k of the `fetch_k` nearest documents to a text, chosen by maximal marginal relevance."""
        vector = self._embedding.embed_query(query)
        return self.max_marginal_relevance_search_by_vector(vector, k, fetch_k, lambda_mult, **options)

    def max_marginal_relevance_search_by_vector(
        self,
        embedding: list[float],
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        *,
        filter: Filter | None = None,  # noqa: A002
        **others: Any,
    ) -> list[Document]:
        """Return k of the `fetch_k` nearest documents to a vector, chosen by maximal marginal relevance."""
        _refuse(others)
        with self._collection.lock:
            names = [name for name, _ in self._collection.nearest(embedding, fetch_k, _predicate(filter))]
            if not names:
                return []
            vectors = list(self._collection.embeddings(names))
            chosen = maximal_marginal_relevance(np.asarray(embedding, dtype=np.float32), vectors, lambda_mult, k)
            return [_copy(self._collection.documents[names[place]]) for place in chosen]

    # Files

    def save_local(self, folder_path: str | Path) -> None:
        """Write documents, codes and embeddings to one file in a folder, atomically; metadata must be JSON.

        >>> import tempfile
        >>> from langchain_core.embeddings import DeterministicFakeEmbedding
        >>> embedding = DeterministicFakeEmbedding(size=8)
        >>> store = NestcodeVectorStore.from_texts(["one", "two"], embedding)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     store.save_local(folder)
        ...     NestcodeVectorStore.load_local(folder, embedding).similarity_search("two", k=1)[0].page_content
        'two'
        """
        self._collection.save(Path(folder_path) / FILE, KIND, lambda one: [one.page_content, one.metadata])

    @classmethod
    def load_local(cls, folder_path: str | Path, embeddings: Embeddings) -> Self:
        """Load a store that `save_local` wrote, and verify its checksum; the file holds no code."""
        store = cls(embeddings)
        store._collection = Collection.load(
            Path(folder_path) / FILE,
            KIND,
            lambda name, text, metadata: Document(id=name, page_content=text, metadata=metadata),
        )
        return store

    @classmethod
    def from_texts(
        cls,
        texts: list[str],
        embedding: Embeddings,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        **settings: Any,
    ) -> Self:
        """Return a store with these texts; `settings` are the constructor's."""
        store = cls(embedding, **settings)
        store.add_texts(texts, metadatas, ids=ids)
        return store

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        return lambda cosine: min(max(cosine, 0.0), 1.0)


def _refuse(options: dict[str, Any]) -> None:
    """Raise if there are options that would have no effect, such as a filter by another name."""
    if options:
        raise InvalidInput(
            f"a search takes k and filter, got {', '.join(options)}: leave that out, or correct its name"
        )


def _copy(document: Document) -> Document:
    return Document(id=document.id, page_content=document.page_content, metadata=dict(document.metadata))


def _predicate(wanted: Filter | None) -> Callable[[Document], bool] | None:
    if wanted is None or callable(wanted):
        return wanted
    return lambda document: wanted.items() <= document.metadata.items()
