"""A vector store of LlamaIndex that is searched by nested codes.

Nodes are ranked by the cosine of their embeddings. At first all embeddings are compared; once there are enough, a coder
is fitted, and codes select the embeddings to compare. Nodes and metadata are columns of the same index.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from nestcode.coders import Coder
from nestcode.errors import InvalidInput, import_extra
from nestcode.integrations.collection import SOURCE, Collection, Mode, Row
from nestcode.integrations.metadata import (
    EVERYWHERE,
    NOWHERE,
    ORDERINGS,
    Where,
    all_of,
    any_of,
    check_depth,
    checked_list,
    named,
)
from nestcode.search.vectors import VectorType

import_extra("llama_index.core", extra="llama-index", purpose="nestcode.integrations.llama_index")

from llama_index.core.bridge.pydantic import PrivateAttr  # noqa: E402
from llama_index.core.indices.query.embedding_utils import get_top_k_mmr_embeddings  # noqa: E402
from llama_index.core.schema import BaseNode  # noqa: E402
from llama_index.core.storage.docstore.utils import doc_to_json, json_to_doc  # noqa: E402
from llama_index.core.vector_stores.types import (  # noqa: E402
    BasePydanticVectorStore,
    FilterCondition,
    FilterOperator,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
    VectorStoreQueryResult,
)

KIND = "NestcodeLlamaIndexStore"  # of the file
PREFETCH = 4  # nodes that maximal marginal relevance chooses one of


class NestcodeVectorStore(BasePydanticVectorStore):  # type: ignore[misc]
    """A vector store that ranks nodes by the cosine of their embeddings.

    >>> from llama_index.core.schema import TextNode
    >>> from llama_index.core.vector_stores.types import VectorStoreQuery
    >>> store = NestcodeVectorStore()
    >>> store.add([TextNode(id_="a", text="east", embedding=[1.0, 0.0])])
    ['a']
    >>> store.query(VectorStoreQuery(query_embedding=[0.9, 0.1])).nodes[0].text
    'east'

    The store keeps the nodes, so an index needs no other storage: `VectorStoreIndex.from_vector_store(store)`. Queries
    have the modes DEFAULT and MMR. The index evaluates metadata filters for all nodes at once; they find only values of
    the filter's type. All methods are thread-safe.

    With `path=` the store keeps nodes in a folder: every call that adds or deletes nodes is one commit, which survives
    a crash. Without `path=` nodes are in memory until `persist`.

    Args:
        width: bits of a code, to fit a `CellCoder` without trials. By default trials choose, unless a coder is given.
        coder: a fitted coder, preferably with metric="cosine", to use from the first node on.
        rows_to_fit: the number of nodes at which trial searches choose a coder, and the effort that finds 99 % of the
            ten nearest, if no coder is given. Before, a search compares all embeddings.
        vectors: the type of stored embeddings once there are codes: "float16", "float32", "int8", or None to store only
            codes, which saves most of the memory and lowers the recall.
        path: the folder of the nodes. If it has a store already, the store opens with its own settings.
        mode: "a" to write to the folder (one process at a time), or "r" to read it.

    """

    stores_text: bool = True
    is_embedding_query: bool = True
    _collection: Collection[BaseNode] = PrivateAttr()

    def __init__(
        self,
        *,
        width: int | None = None,
        coder: Coder | None = None,
        rows_to_fit: int = 10_000,
        vectors: VectorType | None = "float16",
        path: str | os.PathLike[str] | None = None,
        mode: Mode = "a",
    ) -> None:
        super().__init__(stores_text=True)
        settings = {"width": width, "coder": coder, "rows_to_fit": rows_to_fit, "vectors": vectors}
        folder = None if path is None else Path(path)
        self._collection = Collection[BaseNode](KIND, _dump, _parse, settings, folder, mode)

    @classmethod
    def class_name(cls) -> str:
        """Return the name by which LlamaIndex knows the class."""
        return "NestcodeVectorStore"

    @property
    def client(self) -> Collection[BaseNode]:
        """The collection of nodes. The store itself has no length: LlamaIndex would take an empty one for none."""
        return self._collection

    def add(self, nodes: Sequence[BaseNode], **_: Any) -> list[str]:
        """Add nodes with embeddings, replacing those with the same ids, and return the ids."""
        last = {node.node_id: node for node in nodes}  # the last node of an id wins
        embeddings = [node.get_embedding() for node in last.values()]
        self._collection.put(last, embeddings)
        return [node.node_id for node in nodes]

    def delete(self, ref_doc_id: str, **_: Any) -> None:
        """Delete the nodes of a source document."""
        with self._collection.lock:
            self._collection.delete(self._collection.names(_of_sources([ref_doc_id])))

    def delete_nodes(self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **_: Any) -> None:
        """Delete the nodes that have one of the ids, if given, and match the filters, if given."""
        with self._collection.lock:
            self._collection.delete(self._collection.names(self._where(node_ids, filters)))

    def clear(self) -> None:
        """Delete all nodes; the coder, once fitted, stays."""
        self.delete_nodes()

    def get_nodes(self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None) -> list[BaseNode]:
        """Return the nodes that have one of the ids, if given, and match the filters, if given."""
        with self._collection.lock:
            return self._collection.select(self._where(node_ids, filters))

    def query(self, query: VectorStoreQuery, **options: Any) -> VectorStoreQueryResult:
        """Return the nearest nodes to an embedding; similarities are cosines, or MMR's scores.

        MMR selects by `mmr_threshold` among `mmr_prefetch_k` nodes, by default four times the number of results.
        """
        if query.mode not in (VectorStoreQueryMode.DEFAULT, VectorStoreQueryMode.MMR):
            raise InvalidInput(f"mode must be DEFAULT or MMR, got {query.mode}: other modes need another store")
        if query.query_embedding is None:
            raise InvalidInput("a query must have an embedding, got none: embed its text first")
        k = query.similarity_top_k
        with self._collection.lock:
            # LlamaIndex's retrievers pass empty lists of ids where they restrict nothing.
            where = self._where(query.node_ids or None, query.filters, query.doc_ids or None)
            if query.mode == VectorStoreQueryMode.DEFAULT:
                found = self._collection.nearest(query.query_embedding, k, where)
                nodes, scores = [node for node, _ in found], [cosine for _, cosine in found]
            else:
                prefetch = options.get("mmr_prefetch_k", PREFETCH * k)
                names = self._collection.nearest_names(query.query_embedding, prefetch, where)
                scores, names = get_top_k_mmr_embeddings(
                    query.query_embedding,
                    list(self._collection.embeddings(names)) if names else [],
                    similarity_top_k=k,
                    embedding_ids=names,
                    mmr_threshold=options.get("mmr_threshold", query.mmr_threshold),
                )
                nodes = self._collection.documents(names)
        return VectorStoreQueryResult(nodes=nodes, similarities=scores, ids=[node.node_id for node in nodes])

    def persist(self, persist_path: str, fs: Any = None) -> None:
        """Write the nodes to a folder, replacing its nodes.

        >>> import tempfile
        >>> from llama_index.core.schema import TextNode
        >>> store = NestcodeVectorStore()
        >>> store.add([TextNode(id_="a", text="one", embedding=[0.0, 1.0])])
        ['a']
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     store.persist(f"{folder}/store")
        ...     NestcodeVectorStore.from_persist_path(f"{folder}/store").get_nodes(["a"])[0].text
        'one'
        """
        if fs is not None:
            raise InvalidInput("fs must be None, as files are replaced atomically: persist to a disk and copy it")
        self._collection.save(Path(persist_path))

    @classmethod
    def from_persist_path(cls, persist_path: str, mode: Mode = "a") -> Self:
        """Open the folder of a store; it holds no code. Later additions are committed to it, unless mode is "r"."""
        Collection.read_settings(Path(persist_path), KIND)  # raises unless there is one
        return cls(path=persist_path, mode=mode)

    def close(self) -> None:
        """Let another process write the folder."""
        self._collection.close()

    def _where(
        self, node_ids: list[str] | None, filters: MetadataFilters | None, doc_ids: list[str] | None = None
    ) -> Where | None:
        """Return the condition of a query, or None if all nodes are wanted."""
        parts = [] if node_ids is None else [named(node_ids)]
        parts += [] if doc_ids is None else [_of_sources(doc_ids)]
        parts += [] if filters is None else [self._condition(filters)]
        return all_of(parts) if parts else None

    def _condition(self, filters: MetadataFilters, depth: int = 0) -> Where:
        """Return filters as a condition on the columns of metadata."""
        check_depth(depth)
        parts = [
            self._condition(one, depth + 1) if isinstance(one, MetadataFilters) else self._compared(one)
            for one in filters.filters
        ]
        if not parts:
            return EVERYWHERE
        if filters.condition == FilterCondition.NOT:
            return ~any_of(parts)
        return any_of(parts) if filters.condition == FilterCondition.OR else all_of(parts)

    def _compared(self, one: Any) -> Where:
        """Return what a filter asks of one key."""
        metadata, key, value, operator = self._collection.metadata, one.key, one.value, one.operator
        if operator == FilterOperator.IS_EMPTY:
            return any_of([metadata.missing(key), metadata.compare(key, "=", ""), metadata.compare(key, "=", [])])
        if operator in (FilterOperator.EQ, FilterOperator.NE):
            equal = NOWHERE if value is None else metadata.compare(key, "=", value)
            return equal if operator == FilterOperator.EQ else ~equal
        if operator.value in ORDERINGS:
            return metadata.compare(key, operator.value, value)
        if operator in (FilterOperator.IN, FilterOperator.NIN):
            found = metadata.one_of(key, value)
            return found if operator == FilterOperator.IN else ~found
        if operator == FilterOperator.CONTAINS:
            return metadata.contains(key, value)
        if operator in (FilterOperator.ALL, FilterOperator.ANY):
            parts = [metadata.contains(key, part) for part in checked_list(key, value)]
            return all_of([~metadata.missing(key), *parts]) if operator == FilterOperator.ALL else any_of(parts)
        if not isinstance(value, str):
            raise InvalidInput(f"a text match needs a text, got {value!r:.80} for {key!r:.80}: give one")
        if operator == FilterOperator.TEXT_MATCH:
            return metadata.contains_text(key, value)
        texts = self._collection.distinct_texts(key)  # TEXT_MATCH_INSENSITIVE
        return metadata.one_of(key, [text for text in texts if value.lower() in text.lower()])


def _of_sources(names: list[str]) -> Where:
    """Return where a node is a part of one of some documents."""
    return Where(f"{SOURCE} IS NOT NULL AND {SOURCE} IN ?", (list(names),))


def _dump(node: BaseNode) -> Row:
    rest = doc_to_json(node.model_copy(update={"embedding": None}))
    return Row(node.node_id, rest, node.metadata.items(), source=node.ref_doc_id)


def _parse(name: str, _: str | None, values: Any) -> BaseNode:
    node = json_to_doc(values)
    if node.node_id != name:
        raise ValueError(f"{name!r} is the name of node {node.node_id!r}")
    return node
