"""The vector store of LlamaIndex answers as LlamaIndex's own simple store does; LlamaIndex publishes no test-suite."""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from llama_index.core import MockEmbedding, StorageContext, VectorStoreIndex
from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores import SimpleVectorStore
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
)
from llama_index.core.vector_stores.utils import build_metadata_filter_fn

import nestcode as nc
from nestcode.errors import InvalidInput
from nestcode.integrations.llama_index import NestcodeVectorStore

X = np.random.default_rng(0).standard_normal((300, 24))
SMALL = MetadataFilter(key="n", value=50, operator=FilterOperator.LT)
ODD = MetadataFilter(key="even", value="no")
FILTERS = MetadataFilters(filters=[SMALL, ODD], condition=FilterCondition.AND)


def nodes(rows: Sequence[int] = range(len(X))) -> list[TextNode]:
    return [
        TextNode(
            id_=str(i),
            text=f"text {i}",
            metadata={"n": i, "even": "no" if i % 2 else "yes"},
            embedding=X[i].tolist(),
            relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=f"document {i // 10}")},
        )
        for i in rows
    ]


def store(**settings: Any) -> NestcodeVectorStore:
    made = NestcodeVectorStore(**settings)
    assert made.add(nodes()) == [str(i) for i in range(300)]
    return made


def query(row: int, **settings: Any) -> VectorStoreQuery:
    return VectorStoreQuery(query_embedding=(X[row] + 0.3).tolist(), **settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"similarity_top_k": 20},
        {"similarity_top_k": 20, "filters": FILTERS},
        {"similarity_top_k": 300, "filters": MetadataFilters(filters=[SMALL, ODD], condition=FilterCondition.OR)},
        {"similarity_top_k": 5, "node_ids": ["1", "2", "7"]},
        {"similarity_top_k": 10, "mode": VectorStoreQueryMode.MMR},
    ],
    ids=["all", "and", "or", "ids", "mmr"],
)
def test_a_store_of_vectors_equals_llamaindexs_simple_store(settings: dict[str, Any]) -> None:
    own, made = SimpleVectorStore(), store()
    own.add(nodes())
    true = own.query(query(7, **settings))
    found = made.query(query(7, **settings), mmr_prefetch_k=300)
    assert found.ids == true.ids
    np.testing.assert_allclose(found.similarities, true.similarities, atol=1e-5)
    assert [node.text for node in found.nodes] == [f"text {name}" for name in found.ids]


@pytest.mark.parametrize(
    "settings", [{"rows_to_fit": 300, "width": 160}, {"coder": nc.LinearCoder(96, metric="cosine").fit(X)}]
)
def test_a_store_of_codes_finds_nodes_that_match_the_filters(settings: dict[str, Any]) -> None:
    codes = store(**settings)
    for i in range(1, 50, 12):
        near = VectorStoreQuery(query_embedding=X[i].tolist(), filters=FILTERS)
        assert codes.query(near).ids == [str(i)]
    assert len(codes.query(query(0, filters=FILTERS, similarity_top_k=300)).ids) == 25
    assert len(codes.query(query(0, doc_ids=["document 3"], similarity_top_k=300)).ids) == 10


def test_mmr_trades_similarity_for_diversity() -> None:
    made = store()
    near = made.query(query(5, similarity_top_k=8)).ids
    assert set(made.query(query(5, similarity_top_k=8, mode=VectorStoreQueryMode.MMR), mmr_threshold=1).ids) == set(
        near
    )
    varied = made.query(query(5, similarity_top_k=8, mode=VectorStoreQueryMode.MMR, mmr_threshold=0.1)).ids
    assert set(varied) != set(near)
    assert NestcodeVectorStore().query(query(5, mode=VectorStoreQueryMode.MMR)).ids == []


def test_nodes_are_selected_and_deleted() -> None:
    made = store()
    assert [node.node_id for node in made.get_nodes(["3", "4"])] == ["3", "4"]
    assert [node.node_id for node in made.get_nodes(["3", "4"], FILTERS)] == ["3"]
    made.delete("document 0")
    assert (len(made.client), made.get_nodes(["3"])) == (290, [])
    made.delete_nodes(filters=FILTERS)
    assert len(made.client) == 270
    assert made.query(query(11, similarity_top_k=300, filters=FILTERS)).ids == []
    made.clear()
    assert (len(made.client), made.query(query(1)).ids) == (0, [])


def test_the_last_node_of_an_id_wins_and_nodes_are_copied() -> None:
    made = NestcodeVectorStore()
    first, last = nodes([0, 1])
    last.id_ = first.id_
    assert made.add([first, last]) == ["0", "0"]
    last.metadata["n"] = 7
    made.get_nodes()[0].metadata["n"] = 8
    made.query(query(1)).nodes[0].metadata["n"] = 9
    assert (len(made.client), made.get_nodes()[0].metadata["n"]) == (1, 1)
    assert made.add([]) == []


def test_refused_nodes_and_queries_leave_the_store_unchanged() -> None:
    made = store()
    with pytest.raises(InvalidInput, match="features"):
        made.add([TextNode(id_="0", embedding=[1.0])])
    with pytest.raises(ValueError, match="embedding not set"):
        made.add([TextNode(id_="0")])
    with pytest.raises(InvalidInput, match="DEFAULT or MMR"):
        made.query(query(0, mode=VectorStoreQueryMode.SVM))
    with pytest.raises(InvalidInput, match="embed its text"):
        made.query(VectorStoreQuery())
    assert made.query(VectorStoreQuery(query_embedding=X[0].tolist())).nodes[0].text == "text 0"


@pytest.mark.parametrize("rows_to_fit", [1000, 300], ids=["vectors", "codes"])
def test_save_then_load_is_identity(rows_to_fit: int, tmp_path: Path) -> None:
    made, path = store(rows_to_fit=rows_to_fit, width=160), str(tmp_path / "store")
    made.delete("document 0")
    made.persist(path)
    again = NestcodeVectorStore.from_persist_path(path)
    assert again.get_nodes() == made.get_nodes()
    asked = query(50, similarity_top_k=20, filters=FILTERS)
    assert again.query(asked) == made.query(asked)
    again.add(nodes([0]))
    assert again.query(VectorStoreQuery(query_embedding=X[0].tolist())).ids == ["0"]
    with pytest.raises(InvalidInput, match="copy it"):
        made.persist(path, fs=object())


VALUES: list[Any] = [None, 3, 2.5, "a", "Ab", "", [], ["a", "b"], ["ab"], [3, 4]]
EQUALS = (FilterOperator.EQ, FilterOperator.NE)
WANTED: list[tuple[FilterOperator, Any]] = [
    *((operator, value) for operator in EQUALS for value in (3, 3.0, 2.5, "a", "", ["a", "b"])),
    *((operator, value) for operator in (FilterOperator.IN, FilterOperator.NIN) for value in ([3, 2], ["a", ""], [])),
    *((FilterOperator.CONTAINS, value) for value in ("a", "b", 3)),
    *((operator, value) for operator in (FilterOperator.ANY, FilterOperator.ALL) for value in (["a", "b"], ["a"], [])),
    (FilterOperator.IS_EMPTY, None),
    (FilterOperator.GT, 2), (FilterOperator.LTE, "a"), (FilterOperator.LT, 3.0), (FilterOperator.GTE, 3),
    (FilterOperator.TEXT_MATCH, "b"), (FilterOperator.TEXT_MATCH, "%"), (FilterOperator.TEXT_MATCH_INSENSITIVE, "aB"),
]  # fmt: skip


@pytest.mark.parametrize(("operator", "value"), WANTED, ids=[f"{one.name}-{value}" for one, value in WANTED])
def test_filters_are_those_of_llamaindex(operator: FilterOperator, value: Any) -> None:
    """Where its comparison raises, as for a text and a number, none is found."""
    made = NestcodeVectorStore()
    metadatas = [{} if one is None else {"x": one} for one in VALUES]
    made.add([TextNode(id_=str(i), metadata=one, embedding=[1.0, i]) for i, one in enumerate(metadatas)])
    filters = MetadataFilters(filters=[MetadataFilter(key="x", value=value, operator=operator)])
    expected = []
    for i, one in enumerate(metadatas):
        with contextlib.suppress(TypeError):
            if build_metadata_filter_fn(lambda _, one=one: one, filters)(str(i)):
                expected.append(str(i))
    assert [node.node_id for node in made.get_nodes(filters=filters)] == expected
    other = MetadataFilters(filters=[filters], condition=FilterCondition.NOT)
    assert [node.node_id for node in made.get_nodes(filters=other)] == [
        str(i) for i in range(len(VALUES)) if str(i) not in expected
    ]


def test_filters_that_cannot_be_answered_are_refused() -> None:
    made, filters = store(), FILTERS
    for _ in range(30):
        filters = MetadataFilters(filters=[filters])
    with pytest.raises(InvalidInput, match="at most 20 filters inside each other"):
        made.get_nodes(filters=filters)
    for operator, value, named in (
        (FilterOperator.IN, "abc", "a list of values for 'n'"),
        (FilterOperator.TEXT_MATCH, 5, "a text match needs a text"),
    ):
        with pytest.raises(InvalidInput, match=named):
            made.get_nodes(filters=MetadataFilters(filters=[MetadataFilter(key="n", value=value, operator=operator)]))


def test_an_index_of_llamaindex_needs_no_other_storage() -> None:
    made = NestcodeVectorStore()
    context = StorageContext.from_defaults(vector_store=made)
    VectorStoreIndex(nodes(range(5)), storage_context=context, embed_model=MockEmbedding(24))
    assert len(made.client) == 5
    index = VectorStoreIndex.from_vector_store(made, embed_model=MockEmbedding(24))
    found = index.as_retriever(similarity_top_k=3).retrieve("text")
    assert len(found) == 3
    assert all(one.text.startswith("text ") for one in found)
