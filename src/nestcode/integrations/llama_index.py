"""A vector store of LlamaIndex that is searched by nested codes.

Nodes are ranked by the cosine of their embeddings. The first embeddings are all compared; once there are enough, a
coder is fitted to them, and codes choose those to compare, as in `nestcode.integrations.faiss.NestedIndex`.
"""

from collections.abc import Callable, Sequence
from typing import Any, Self

from nestcode.coders import Coder
from nestcode.errors import InvalidInput, import_extra
from nestcode.integrations.collection import Collection
from nestcode.search.vectors import VectorType

import_extra("llama_index.core", extra="llama-index", purpose="nestcode.integrations.llama_index")

from llama_index.core.bridge.pydantic import PrivateAttr  # noqa: E402
from llama_index.core.indices.query.embedding_utils import get_top_k_mmr_embeddings  # noqa: E402
from llama_index.core.schema import BaseNode  # noqa: E402
from llama_index.core.storage.docstore.utils import doc_to_json, json_to_doc  # noqa: E402
from llama_index.core.vector_stores.types import (  # noqa: E402
    BasePydanticVectorStore,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
    VectorStoreQueryResult,
)
from llama_index.core.vector_stores.utils import build_metadata_filter_fn  # noqa: E402

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
    are of the modes DEFAULT and MMR, with metadata filters. All methods are thread-safe.

    Args:
        width: bits of a code; by default 256, or the coder's width.
        coder: a fitted coder, preferably with metric="cosine", to use from the first node on.
        rows_to_fit: the number of nodes at which a coder is fitted if none is given.
        vectors: how embeddings are stored once there are codes: "float16", "float32", "int8", or None to store codes
            only, which saves most of the memory and finds fewer of the nearest.

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
    ) -> None:
        super().__init__(stores_text=True)
        settings = {"width": width, "coder": coder, "rows_to_fit": rows_to_fit, "vectors": vectors}
        self._collection = Collection[BaseNode](settings)

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
        copies = {name: node.model_copy(deep=True, update={"embedding": None}) for name, node in last.items()}
        self._collection.put(copies, embeddings)
        return [node.node_id for node in nodes]

    def delete(self, ref_doc_id: str, **_: Any) -> None:
        """Delete the nodes of a source document."""
        with self._collection.lock:
            nodes = self._collection.documents.items()
            self._collection.delete([name for name, node in nodes if node.ref_doc_id == ref_doc_id])

    def delete_nodes(self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **_: Any) -> None:
        """Delete the nodes that have one of the ids, if given, and match the filters, if given."""
        with self._collection.lock:
            self._collection.delete([node.node_id for node in self._select(node_ids, filters)])

    def clear(self) -> None:
        """Delete all nodes; the coder, once fitted, stays."""
        self.delete_nodes()

    def get_nodes(self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None) -> list[BaseNode]:
        """Return the nodes that have one of the ids, if given, and match the filters, if given."""
        with self._collection.lock:
            return [_copy(node) for node in self._select(node_ids, filters)]

    def query(self, query: VectorStoreQuery, **options: Any) -> VectorStoreQueryResult:
        """Return the nearest nodes to an embedding; similarities are cosines, or MMR's scores.

        MMR chooses among `mmr_prefetch_k` nodes, by default four times as many as it returns, by `mmr_threshold`.
        """
        if query.mode not in (VectorStoreQueryMode.DEFAULT, VectorStoreQueryMode.MMR):
            raise InvalidInput(f"mode must be DEFAULT or MMR, got {query.mode}: other modes need another store")
        if query.query_embedding is None:
            raise InvalidInput("a query must have an embedding, got none: embed its text first")
        k = query.similarity_top_k
        with self._collection.lock:
            # LlamaIndex's retrievers pass empty lists of ids where they restrict nothing.
            wanted = _predicate(query.node_ids or None, query.filters, query.doc_ids or None)
            if query.mode == VectorStoreQueryMode.DEFAULT:
                found = self._collection.nearest(query.query_embedding, k, wanted)
                names, scores = [name for name, _ in found], [cosine for _, cosine in found]
            else:
                prefetch = options.get("mmr_prefetch_k", PREFETCH * k)
                names = [name for name, _ in self._collection.nearest(query.query_embedding, prefetch, wanted)]
                scores, names = get_top_k_mmr_embeddings(
                    query.query_embedding,
                    list(self._collection.embeddings(names)) if names else [],
                    similarity_top_k=k,
                    embedding_ids=names,
                    mmr_threshold=options.get("mmr_threshold", query.mmr_threshold),
                )
            nodes = [_copy(self._collection.documents[name]) for name in names]
        return VectorStoreQueryResult(nodes=nodes, similarities=scores, ids=names)

    def persist(self, persist_path: str, fs: Any = None) -> None:
        """Write nodes, codes and embeddings to one file, atomically; metadata must be JSON.

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
            raise InvalidInput("fs must be None, as the file is replaced atomically: persist to a disk and copy it")
        self._collection.save(persist_path, KIND, lambda node: [doc_to_json(node)])

    @classmethod
    def from_persist_path(cls, persist_path: str) -> Self:
        """Load a store that `persist` wrote, and verify its checksum; the file holds no code."""
        store = cls()
        store._collection = Collection.load(persist_path, KIND, _parse)
        return store

    def _select(self, node_ids: list[str] | None, filters: MetadataFilters | None) -> list[BaseNode]:
        wanted = _predicate(node_ids, filters)
        return [node for node in self._collection.documents.values() if wanted is None or wanted(node)]


def _predicate(
    node_ids: list[str] | None, filters: MetadataFilters | None, doc_ids: list[str] | None = None
) -> Callable[[BaseNode], bool] | None:
    """Return what decides whether a node is wanted, or None if all are."""
    if node_ids is None and filters is None and doc_ids is None:
        return None

    def wanted(node: BaseNode) -> bool:
        return (
            (node_ids is None or node.node_id in node_ids)
            and (doc_ids is None or node.ref_doc_id in doc_ids)
            and bool(build_metadata_filter_fn(lambda _: node.metadata, filters)(node.node_id))
        )

    return wanted


def _parse(name: str, values: dict[str, Any]) -> BaseNode:
    node = json_to_doc(values)
    if node.node_id != name:
        raise ValueError(f"{name!r} is the name of node {node.node_id!r}")
    return node


def _copy(node: BaseNode) -> BaseNode:
    return node.model_copy(deep=True)
