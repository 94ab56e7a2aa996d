"""A vector store of LangChain that keeps nested codes in place of embeddings.

Documents are compared by the angle of their embeddings. Few embeddings are kept as they are; once there are enough, a
coder is fitted to them and codes take their place, as `nestcode.integrations.faiss.NestedIndex` does it.
"""

import json
import threading
import uuid
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from nestcode.coders import Coder
from nestcode.errors import DamagedFile, InvalidInput, import_extra
from nestcode.integrations.faiss import NestedIndex
from nestcode.storage import Record, read_record, write_record

import_extra("langchain_core", extra="langchain", purpose="nestcode.integrations.langchain")

from langchain_core.documents import Document  # noqa: E402
from langchain_core.embeddings import Embeddings  # noqa: E402
from langchain_core.vectorstores import VectorStore  # noqa: E402
from langchain_core.vectorstores.utils import maximal_marginal_relevance  # noqa: E402

KIND, VERSION = "NestcodeVectorStore", 1
FILE = "documents.nestcode"
Filter = dict[str, Any] | Callable[[Document], bool]


class NestcodeVectorStore(VectorStore):
    """Documents, found by the angle between embeddings.

    >>> from langchain_core.embeddings import DeterministicFakeEmbedding
    >>> texts = ["codes that nest", "trees of prefixes", "streams that can be cut"]
    >>> store = NestcodeVectorStore.from_texts(texts, DeterministicFakeEmbedding(size=64), ids=["a", "b", "c"])
    >>> store.similarity_search("trees of prefixes", k=1)
    [Document(id='b', metadata={}, page_content='trees of prefixes')]
    >>> store.delete(["b"])
    True
    >>> [document.id for document in store.get_by_ids(["a", "b"])]
    ['a']

    Scores are cosines, the largest first. Everything may be called from any thread, and awaited by the names that
    LangChain gives to it (`asimilarity_search` and so on).

    Args:
        embedding: what turns texts into vectors.
        width: bits kept of each document: 256, or all of the coder's, if not given.
        coder: a fitted coder, best one with metric="cosine", to use from the first document on.
        rows_to_fit: how many documents are enough to fit a coder to, where none is given.

    """

    def __init__(
        self, embedding: Embeddings, *, width: int | None = None, coder: Coder | None = None, rows_to_fit: int = 10_000
    ) -> None:
        self._embedding = embedding
        self._settings: dict[str, Any] = {"width": width, "coder": coder, "rows_to_fit": rows_to_fit}
        self._index: NestedIndex | None = None  # made when it is known how long vectors are
        self._documents: dict[int, Document] = {}
        self._numbers: dict[str, int] = {}  # of documents in the index, by their ids
        self._lock = threading.RLock()

    @property
    def embeddings(self) -> Embeddings:
        """What turns texts into vectors."""
        return self._embedding

    def __len__(self) -> int:
        return len(self._documents)

    # changes

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        **_: Any,
    ) -> list[str]:
        """Add documents, in place of those that have the same ids, and say their ids."""
        texts = list(texts)
        metadatas = [{} for _ in texts] if metadatas is None else metadatas
        names = [name or str(uuid.uuid4()) for name in ([None] * len(texts) if ids is None else ids)]
        if not len(texts) == len(metadatas) == len(names):
            raise InvalidInput(
                f"there must be a metadata and an id for each text, got {len(metadatas)} and {len(names)} for "
                f"{len(texts)} texts"
            )
        if not texts:
            return []
        vectors = np.asarray(self._embedding.embed_documents(texts), dtype=np.float32)
        last = {name: place for place, name in enumerate(names)}  # of documents with one id the last one stays
        with self._lock:
            if self._index is None:
                self._index = NestedIndex(vectors.shape[1], metric="cosine", **self._settings)
            numbers = range(first := self._index.next_id, first + len(last))
            self._index.add(vectors[list(last.values())])
            self.delete(list(last))  # only now: nothing is lost if the new ones are refused
            for number, (name, place) in zip(numbers, last.items(), strict=True):
                self._documents[number] = Document(id=name, page_content=texts[place], metadata=dict(metadatas[place]))
                self._numbers[name] = number
        return names

    def delete(self, ids: list[str] | None = None, **_: Any) -> bool:
        """Delete documents by their ids, or all of them; those that are not there are passed over."""
        with self._lock:
            known = [name for name in (self._numbers if ids is None else dict.fromkeys(ids)) if name in self._numbers]
            if known and self._index is not None:
                self._index.remove_ids([self._numbers[name] for name in known])
            for name in known:
                del self._documents[self._numbers.pop(name)]
        return True

    # questions

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """The documents with these ids, without those that are not there."""
        with self._lock:
            return [_copy(self._documents[self._numbers[name]]) for name in ids if name in self._numbers]

    def similarity_search(self, query: str, k: int = 4, **options: Any) -> list[Document]:
        """The k documents nearest to a text; `filter` is a function of a document, or a part of its metadata."""
        return [document for document, _ in self.similarity_search_with_score(query, k, **options)]

    def similarity_search_with_score(self, query: str, k: int = 4, **options: Any) -> list[tuple[Document, float]]:
        """The same, each with its cosine."""
        return self.similarity_search_with_score_by_vector(self._embedding.embed_query(query), k, **options)

    def similarity_search_by_vector(self, embedding: list[float], k: int = 4, **options: Any) -> list[Document]:
        """The k documents nearest to a vector."""
        return [document for document, _ in self.similarity_search_with_score_by_vector(embedding, k, **options)]

    def similarity_search_with_score_by_vector(
        self,
        embedding: list[float],
        k: int = 4,
        *,
        filter: Filter | None = None,  # noqa: A002
        **_: Any,
    ) -> list[tuple[Document, float]]:
        """The same, each with its cosine."""
        with self._lock:
            return [(_copy(self._documents[number]), cosine) for number, cosine in self._nearest(embedding, k, filter)]

    def max_marginal_relevance_search(
        self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **options: Any
    ) -> list[Document]:
        """Among the `fetch_k` documents nearest to a text, k that are also unlike each other."""
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
        """The same for a vector."""
        with self._lock:
            numbers = [number for number, _ in self._nearest(embedding, fetch_k, filter)]
            if not numbers or self._index is None:
                return []
            vectors = list(self._index.reconstruct_batch(numbers))
            chosen = maximal_marginal_relevance(np.asarray(embedding, dtype=np.float32), vectors, lambda_mult, k)
            return [_copy(self._documents[numbers[place]]) for place in chosen]

    # files

    def save_local(self, folder_path: str | Path) -> None:
        """Write documents and codes to a folder, as one file, whole or not at all; metadata must be JSON.

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
                raise InvalidInput("an empty store has nothing to save: add documents first")
            rows = [[n, d.id, d.page_content, d.metadata] for n, d in self._documents.items()]
            try:
                text = json.dumps(rows, ensure_ascii=False, allow_nan=False)
            except (TypeError, ValueError) as error:
                raise InvalidInput(f"metadata must be values of JSON to be saved: {error}") from error
            index = self._index.to_record()
        arrays = {**index.arrays, "documents": np.frombuffer(text.encode(), dtype=np.uint8)}
        write_record(Path(folder_path) / FILE, Record(KIND, VERSION, index.settings, arrays))

    @classmethod
    def load_local(cls, folder_path: str | Path, embeddings: Embeddings) -> Self:
        """Read what `save_local` wrote, and prove that it is what was written; nothing in it is executed."""
        path = Path(folder_path) / FILE
        record = read_record(path)
        if record.kind != KIND or record.version > VERSION:
            raise DamagedFile(
                f"{path} holds a {record.kind} of version {record.version}, not a {KIND} of version {VERSION}: "
                "give a folder that save_local wrote, or upgrade nestcode"
            )
        arrays = dict(record.arrays)
        rows = json.loads(arrays.pop("documents").tobytes())
        store = cls(embeddings)
        store._index = NestedIndex.from_record(Record("NestedIndex", 1, record.settings, arrays), str(path))
        for number, name, text, metadata in rows:
            store._documents[number] = Document(id=name, page_content=text, metadata=metadata)
            store._numbers[name] = number
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
        """A store with these texts; `settings` are those of the constructor."""
        store = cls(embedding, **settings)
        store.add_texts(texts, metadatas, ids=ids)
        return store

    # how

    def _nearest(self, embedding: list[float], k: int, wanted: Filter | None) -> list[tuple[int, float]]:
        """Numbers and cosines of the nearest documents."""
        if self._index is None or not self._documents:
            return []
        allowed = None
        if wanted is not None:
            test = wanted if callable(wanted) else lambda document: wanted.items() <= document.metadata.items()
            allowed = [number for number, document in self._documents.items() if test(document)]
        cosines, numbers = self._index.search(np.asarray([embedding], dtype=np.float32), k, filter=allowed)
        return [(int(n), float(c)) for n, c in zip(numbers[0], cosines[0], strict=True) if n >= 0]

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        return lambda cosine: min(max(cosine, 0.0), 1.0)


def _copy(document: Document) -> Document:
    return Document(id=document.id, page_content=document.page_content, metadata=dict(document.metadata))
