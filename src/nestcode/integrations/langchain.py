"""A vector store of LangChain that is searched by nested codes.

Documents are ranked by the cosine of their embeddings. The first embeddings are all compared; once there are enough, a
coder is fitted to them, and codes choose those to compare, as in `nestcode.integrations.faiss.NestedIndex`.
"""

import json
import operator
import threading
import uuid
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from nestcode.coders import Coder
from nestcode.errors import DamagedFile, InvalidInput, import_extra
from nestcode.integrations.faiss import NestedIndex
from nestcode.search.vectors import VectorType
from nestcode.storage import Record, read_record, write_record

import_extra("langchain_core", extra="langchain", purpose="nestcode.integrations.langchain")

from langchain_core.documents import Document  # noqa: E402
from langchain_core.embeddings import Embeddings  # noqa: E402
from langchain_core.vectorstores import VectorStore  # noqa: E402
from langchain_core.vectorstores.utils import maximal_marginal_relevance  # noqa: E402

KIND, VERSION = "NestcodeVectorStore", 2  # of the file
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
        self._settings: dict[str, Any] = {
            "width": width, "coder": coder, "rows_to_fit": rows_to_fit, "vectors": vectors,
        }  # fmt: skip
        self._index: NestedIndex | None = None  # created with the first vectors, which have its dimension
        self._documents: dict[int, Document] = {}
        self._rows: dict[str, int] = {}  # a document's id -> its id in the index
        self._lock = threading.RLock()

    @property
    def embeddings(self) -> Embeddings:
        """The embedding model."""
        return self._embedding

    def __len__(self) -> int:
        return len(self._documents)

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
        with self._lock:
            if self._index is None:
                self._index = NestedIndex(vectors.shape[1], metric="cosine", **self._settings)
            rows = range(first := self._index.next_id, first + len(last))
            self._index.add(vectors[list(last.values())])
            self.delete(list(last))  # after add: if add refuses the new documents, the old ones stay
            for row, (name, place) in zip(rows, last.items(), strict=True):
                self._documents[row] = Document(id=name, page_content=texts[place], metadata=dict(metadatas[place]))
                self._rows[name] = row
        return names

    def delete(self, ids: list[str] | None = None, **_: Any) -> bool:
        """Delete the documents with these ids, or all; unknown ids are ignored."""
        with self._lock:
            known = [name for name in (self._rows if ids is None else dict.fromkeys(ids)) if name in self._rows]
            if known and self._index is not None:
                self._index.remove_ids([self._rows[name] for name in known])
            for name in known:
                del self._documents[self._rows.pop(name)]
        return True

    # Queries

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Return the documents with these ids; unknown ids are ignored."""
        with self._lock:
            return [_copy(self._documents[self._rows[name]]) for name in ids if name in self._rows]

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
        **_: Any,
    ) -> list[tuple[Document, float]]:
        """Return the k nearest documents to a vector with their cosines."""
        with self._lock:
            return [(_copy(self._documents[row]), cosine) for row, cosine in self._nearest(embedding, k, filter)]

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
        **_: Any,
    ) -> list[Document]:
        """Return k of the `fetch_k` nearest documents to a vector, chosen by maximal marginal relevance."""
        with self._lock:
            rows = [row for row, _ in self._nearest(embedding, fetch_k, filter)]
            if not rows or self._index is None:
                return []
            vectors = list(self._index.reconstruct_batch(rows))
            chosen = maximal_marginal_relevance(np.asarray(embedding, dtype=np.float32), vectors, lambda_mult, k)
            return [_copy(self._documents[rows[place]]) for place in chosen]

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
        with self._lock:
            if self._index is None:
                raise InvalidInput("a store to save must hold documents, got an empty one: add documents first")
            rows = [[n, d.id, d.page_content, d.metadata] for n, d in self._documents.items()]
            try:
                text = json.dumps(rows, ensure_ascii=False, allow_nan=False)
            except (TypeError, ValueError) as error:
                raise InvalidInput(
                    f"metadata must be JSON values to be saved, got another type or NaN ({error}): convert them first"
                ) from error
            index = self._index.to_record()
        arrays = {**index.arrays, "documents": np.frombuffer(text.encode(), dtype=np.uint8)}
        write_record(Path(folder_path) / FILE, Record(KIND, VERSION, index.settings, arrays))

    @classmethod
    def load_local(cls, folder_path: str | Path, embeddings: Embeddings) -> Self:
        """Load a store that `save_local` wrote, and verify its checksum; the file holds no code."""
        path = Path(folder_path) / FILE
        record = read_record(path)
        if record.kind != KIND or record.version > VERSION:
            raise DamagedFile(
                f"{path} holds a {record.kind} of version {record.version}, not a {KIND} of version {VERSION}: "
                "give a folder that save_local wrote, or upgrade nestcode"
            )
        arrays = dict(record.arrays)
        store = cls(embeddings)
        index = Record(NestedIndex.KIND, record.version, record.settings, arrays)
        try:
            for row, name, text, metadata in json.loads(arrays.pop("documents").tobytes()):
                store._documents[operator.index(row)] = Document(id=name, page_content=text, metadata=metadata)
                store._rows[name] = row
            if not np.array_equal(sorted(store._documents), np.sort(arrays["ids"])):
                raise ValueError("they have other ids than its vectors")
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise DamagedFile(f"the documents in {path} are damaged ({error}): restore a copy") from error
        store._index = NestedIndex.from_record(index, str(path))
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

    def _nearest(self, embedding: list[float], k: int, wanted: Filter | None) -> list[tuple[int, float]]:
        """Return the index ids and cosines of the nearest documents."""
        if self._index is None or not self._documents:
            return []
        allowed = None
        if wanted is not None:
            test = wanted if callable(wanted) else lambda document: wanted.items() <= document.metadata.items()
            allowed = [row for row, document in self._documents.items() if test(document)]
        cosines, ids = self._index.search(np.asarray([embedding], dtype=np.float32), k, filter=allowed)
        return [(int(row), float(cosine)) for row, cosine in zip(ids[0], cosines[0], strict=True) if row >= 0]

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        return lambda cosine: min(max(cosine, 0.0), 1.0)


def _copy(document: Document) -> Document:
    return Document(id=document.id, page_content=document.page_content, metadata=dict(document.metadata))
