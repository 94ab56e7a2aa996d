"""A vector store of LangChain that is searched by nested codes.

Documents are ranked by the cosine of their embeddings. At first all embeddings are compared; once there are enough, a
coder is fitted, and codes select the embeddings to compare. Texts and metadata are columns of the same index.
"""

import os
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from nestcode.coders import Coder
from nestcode.errors import InvalidInput, import_extra
from nestcode.integrations.collection import Collection, Mode, Row
from nestcode.integrations.metadata import Metadata, Where, all_of, any_of, check_depth, checked_list, named
from nestcode.search.vectors import VectorType

import_extra("langchain_core", extra="langchain", purpose="nestcode.integrations.langchain")

from langchain_core.documents import Document  # noqa: E402
from langchain_core.embeddings import Embeddings  # noqa: E402
from langchain_core.vectorstores import VectorStore  # noqa: E402
from langchain_core.vectorstores.utils import maximal_marginal_relevance  # noqa: E402

KIND = "NestcodeVectorStore"  # of the file
ORDERINGS = {"$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<="}
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

    Filters are conditions on metadata, which the index evaluates for all documents at once:

    >>> filter = {"year": {"$gt": 2020}, "lang": {"$in": ["en", "de"]}}
    >>> store.similarity_search("prefix trees", filter=filter)
    []

    Operators are $eq, $ne, $gt, $gte, $lt, $lte, $in, $nin, $between, $contains (an element of a list, or a part of a
    text) and $exists, joined by $and, $or and $not. A missing key counts as a different value.

    With `path=` the store keeps documents in a folder: every call that adds or deletes documents is one commit, which
    survives a crash. Without `path=` documents are in memory until `save_local`.

    Scores are cosines, the largest first. All methods are thread-safe and have LangChain's asynchronous twins
    (`asimilarity_search` and so on).

    Args:
        embedding: the embedding model.
        width: bits of a code, to fit a `CellCoder` without trials. By default trials choose, unless a coder is given.
        coder: a fitted coder, preferably with metric="cosine", to use from the first document on.
        rows_to_fit: the number of documents at which trial searches choose a coder, and the effort that finds 99 % of
            the ten nearest, if no coder is given. Before, a search compares all embeddings.
        vectors: the type of stored embeddings once there are codes: "float16", "float32", "int8", or None to store only
            codes, which saves most of the memory and lowers the recall.
        path: the folder of the documents. If it has a store already, the store opens with its own settings.
        mode: "a" to write to the folder (one process at a time), or "r" to read it.

    """

    def __init__(
        self,
        embedding: Embeddings,
        *,
        width: int | None = None,
        coder: Coder | None = None,
        rows_to_fit: int = 10_000,
        vectors: VectorType | None = "float16",
        path: str | os.PathLike[str] | None = None,
        mode: Mode = "a",
    ) -> None:
        self._embedding = embedding
        settings = {"width": width, "coder": coder, "rows_to_fit": rows_to_fit, "vectors": vectors}
        folder = None if path is None else Path(path)
        self._collection = Collection[Document](KIND, _dump, _parse, settings, folder, mode)

    @property
    def embeddings(self) -> Embeddings:
        """The embedding model."""
        return self._embedding

    def __len__(self) -> int:
        return len(self._collection)

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
            self._collection.delete(self._collection.names() if ids is None else ids)
        return True

    # Queries

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Return the documents with these ids; unknown ids are ignored."""
        return self._collection.documents(ids)

    def similarity_search(self, query: str, k: int = 4, **options: Any) -> list[Document]:
        """Return the k nearest documents to a text; `filter` is a condition on metadata, or a predicate.

        A predicate is called with each document, so all are read: conditions are far faster.
        """
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
            return self._collection.nearest(embedding, k, self._where(filter))

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
            names = self._collection.nearest_names(embedding, fetch_k, self._where(filter))
            if not names:
                return []
            vectors = list(self._collection.embeddings(names))
            chosen = maximal_marginal_relevance(np.asarray(embedding, dtype=np.float32), vectors, lambda_mult, k)
            return self._collection.documents([names[place] for place in chosen])

    def _where(self, wanted: Filter | None) -> Where | None:
        """Return a filter as a condition; a predicate is tested on each document."""
        if wanted is None:
            return None
        if callable(wanted):
            return named([str(one.id) for one in self._collection.select() if wanted(one)])
        return _condition(wanted, self._collection.metadata)

    # Files

    def save_local(self, folder_path: str | Path) -> None:
        """Write the documents to a folder, replacing its documents.

        >>> import tempfile
        >>> from langchain_core.embeddings import DeterministicFakeEmbedding
        >>> embedding = DeterministicFakeEmbedding(size=8)
        >>> store = NestcodeVectorStore.from_texts(["one", "two"], embedding)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     store.save_local(folder)
        ...     NestcodeVectorStore.load_local(folder, embedding).similarity_search("two", k=1)[0].page_content
        'two'
        """
        self._collection.save(Path(folder_path))

    @classmethod
    def load_local(cls, folder_path: str | Path, embeddings: Embeddings, mode: Mode = "a") -> Self:
        """Open the folder of a store; it holds no code. Later additions are committed to it, unless mode is "r"."""
        Collection.read_settings(Path(folder_path), KIND)  # raises unless there is one
        return cls(embeddings, path=folder_path, mode=mode)

    def close(self) -> None:
        """Let another process write the folder."""
        self._collection.close()

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


def _dump(document: Document) -> Row:
    return Row(str(document.id), document.metadata, document.metadata.items(), document.page_content)


def _parse(name: str, text: str | None, metadata: Any) -> Document:
    return Document(id=name, page_content=text or "", metadata=metadata)


def _condition(wanted: Any, metadata: Metadata, depth: int = 0) -> Where:
    """Return a filter as a condition on the columns of metadata."""
    check_depth(depth)
    if not isinstance(wanted, Mapping):
        raise InvalidInput(f'a filter must be a dictionary, as in {{"year": {{"$gt": 2020}}}}, got {wanted!r:.80}')
    parts = []
    for key, value in wanted.items():
        if key in ("$and", "$or"):
            inner = [_condition(one, metadata, depth + 1) for one in checked_list(key, value)]
            parts.append(all_of(inner) if key == "$and" else any_of(inner))
        elif key == "$not":
            parts.append(~_condition(value, metadata, depth + 1))
        elif not isinstance(key, str) or key.startswith("$"):
            raise InvalidInput(f"a filter joins conditions by $and, $or and $not, got {key!r:.80}: correct its name")
        else:
            parts.append(_of_key(key, value, metadata, depth + 1))
    return all_of(parts)


def _of_key(key: str, value: Any, metadata: Metadata, depth: int) -> Where:
    """Return the condition of a filter on one key: a value, or operators."""
    check_depth(depth)
    names = (
        [name for name in value if isinstance(name, str) and name.startswith("$")] if isinstance(value, dict) else []
    )
    if not names:
        return metadata.compare(key, "=", value)
    if len(names) < len(value):
        raise InvalidInput(f"a filter must have either operators or a value for {key!r:.80}, got {value!r:.80}")
    return all_of([_of_operator(key, name, value[name], metadata, depth) for name in names])


def _of_operator(key: str, name: str, value: Any, metadata: Metadata, depth: int) -> Where:
    if name in ORDERINGS:
        return metadata.compare(key, ORDERINGS[name], value)
    if name in ("$eq", "$ne"):
        return metadata.compare(key, "=", value) if name == "$eq" else ~metadata.compare(key, "=", value)
    if name in ("$in", "$nin"):
        return metadata.one_of(key, value) if name == "$in" else ~metadata.one_of(key, value)
    if name == "$contains":
        return metadata.contains(key, value)
    if name == "$exists" and isinstance(value, bool):
        return ~metadata.missing(key) if value else metadata.missing(key)
    if name == "$between" and isinstance(value, list | tuple) and len(value) == 2:
        return all_of([metadata.compare(key, ">=", value[0]), metadata.compare(key, "<=", value[1])])
    if name == "$not":
        return ~_of_key(key, value, metadata, depth + 1)
    if name in ("$exists", "$between"):
        raise InvalidInput(f"{name} takes {'true or false' if name == '$exists' else 'two values'}, got {value!r:.80}")
    raise InvalidInput(
        f"a filter has the operators $eq, $ne, $gt, $gte, $lt, $lte, $in, $nin, $between, $contains, $exists and $not, "
        f"got {name!r:.80} for {key!r:.80}: correct its name, or give a function of a document"
    )
