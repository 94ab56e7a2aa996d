"""Haystack's own tests of document stores, and tests beyond them."""

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from haystack import Document, Pipeline
from haystack.document_stores.errors import DuplicateDocumentError
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack.document_stores.types import DuplicatePolicy
from haystack.errors import FilterError
from haystack.testing.document_store import DocumentStoreBaseExtendedTests
from haystack.utils.filters import document_matches_filter

from nestcode.errors import InvalidInput
from nestcode.integrations.haystack import NestcodeDocumentStore, NestcodeEmbeddingRetriever

X = np.random.default_rng(0).standard_normal((300, 24))
EVEN = {"field": "meta.even", "operator": "==", "value": True}


class TestOfHaystack(DocumentStoreBaseExtendedTests):  # type: ignore[misc]
    @pytest.fixture
    def document_store(self) -> NestcodeDocumentStore:
        return NestcodeDocumentStore()

    def test_write_documents(self, document_store: NestcodeDocumentStore) -> None:
        """Write without a policy, which each store defines: ids that exist fail."""
        document = Document(content="text")
        assert document_store.write_documents([document]) == 1
        assert document_store.filter_documents() == [document]
        with pytest.raises(DuplicateDocumentError):
            document_store.write_documents([document])


def documents() -> list[Document]:
    return [
        Document(id=str(i), content=f"text {i}", meta={"even": i % 2 == 0}, embedding=row.tolist())
        for i, row in enumerate(X)
    ]


def store(rows_to_fit: int = 1000, *, return_embedding: bool = True) -> NestcodeDocumentStore:
    made = NestcodeDocumentStore(width=160, rows_to_fit=rows_to_fit, return_embedding=return_embedding)
    made.write_documents([*documents(), Document(id="bare", content="no embedding", meta={"even": True})])
    return made


def settings_of(made: NestcodeDocumentStore) -> dict[str, object]:
    own = made.to_dict()["init_parameters"]
    return {name: value for name, value in own.items() if name not in ("path", "mode")}


@pytest.mark.parametrize("filters", [None, EVEN], ids=["all", "filtered"])
def test_a_store_of_vectors_equals_haystacks_in_memory_store(filters: dict[str, object] | None) -> None:
    own = InMemoryDocumentStore(embedding_similarity_function="cosine")
    own.write_documents(documents())
    query = (X[7] + 0.5).tolist()
    true = own.embedding_retrieval(query, filters, top_k=20)
    found = store().embedding_retrieval(query, filters, top_k=20)
    assert [replace(one, score=None) for one in found] == [replace(one, score=None) for one in true]
    np.testing.assert_allclose([one.score for one in found], [one.score for one in true], atol=1e-5)


def test_a_store_of_codes_finds_documents_that_match_the_filters() -> None:
    codes = store(rows_to_fit=300)
    for i in range(0, 300, 30):
        assert codes.embedding_retrieval(X[i].tolist(), EVEN, top_k=1)[0].id == str(i)
    assert len(codes.embedding_retrieval(X[1].tolist(), EVEN, top_k=300)) == 150
    assert codes.embedding_retrieval(X[1].tolist(), top_k=0) == []


def test_embeddings_are_returned_on_request_and_kept_by_choice() -> None:
    query = X[3].tolist()
    assert store().embedding_retrieval(query, top_k=1)[0].embedding is None
    assert store().embedding_retrieval(query, top_k=1, return_embedding=True)[0].embedding == query
    lean = store(return_embedding=False)
    assert lean.embedding_retrieval(query, top_k=1, return_embedding=True) == lean.embedding_retrieval(query, top_k=1)
    assert all(one.embedding is None for one in lean.filter_documents())


def test_refused_documents_leave_the_store_unchanged() -> None:
    made = store()
    before = made.filter_documents()
    narrow = Document(id="narrow", embedding=[1.0])
    with pytest.raises(InvalidInput, match="features"):
        made.write_documents([Document(id="new"), replace(before[0], embedding=[1.0])], DuplicatePolicy.OVERWRITE)
    with pytest.raises(DuplicateDocumentError, match="'0'"):
        made.write_documents([Document(id="new"), before[0]])
    with pytest.raises(DuplicateDocumentError, match="'narrow'"):
        made.write_documents([narrow, narrow])
    with pytest.raises(ValueError, match=r"list of haystack\.Document"):
        made.write_documents(["text"])
    assert made.filter_documents() == before


def test_documents_are_replaced_with_their_embeddings() -> None:
    made = store()
    assert made.write_documents([Document(id="0", content="bare now")], DuplicatePolicy.OVERWRITE) == 1
    assert made.embedding_retrieval(X[0].tolist(), top_k=1)[0].id != "0"
    assert made.count_documents() == 301
    twice = [Document(id="1", embedding=(-X[0]).tolist()), Document(id="1", embedding=X[0].tolist())]
    assert made.write_documents(twice, DuplicatePolicy.OVERWRITE) == 2
    assert made.embedding_retrieval(X[0].tolist(), top_k=1)[0].id == "1"
    made.delete_all_documents()
    assert made.embedding_retrieval(X[0].tolist()) == []


def test_documents_are_copied() -> None:
    document = Document(id="a", meta={"n": 1}, embedding=[1.0, 0.0])
    made = NestcodeDocumentStore()
    made.write_documents([document])
    document.meta["n"] = 2
    made.filter_documents()[0].meta["n"] = 3
    made.embedding_retrieval([1.0, 0.0])[0].meta["n"] = 4
    assert made.filter_documents()[0].meta == {"n": 1}


@pytest.mark.parametrize("rows_to_fit", [1000, 300], ids=["vectors", "codes"])
def test_save_then_load_is_identity(rows_to_fit: int, tmp_path: Path) -> None:
    made = store(rows_to_fit)
    made.delete_documents(["0", "1"])
    made.save_to_disk(tmp_path / "store")
    again = NestcodeDocumentStore.load_from_disk(tmp_path / "store")
    assert again.filter_documents() == made.filter_documents()
    assert settings_of(again) == settings_of(made)
    query = X[5].tolist()
    assert again.embedding_retrieval(query, EVEN, 20) == made.embedding_retrieval(query, EVEN, 20)
    again.write_documents([Document(id="new", embedding=X[0].tolist())])
    assert again.embedding_retrieval(X[0].tolist(), top_k=1)[0].id == "new"


METAS: list[dict[str, Any]] = [
    {}, {"x": None}, {"x": 3}, {"x": 2.5}, {"x": "a"}, {"x": "2024-05-01"}, {"x": "2024-05-01T00:00:00+00:00"},
    {"x": "2025-01-01T10:00:00Z"}, {"x": {"y": 3}}, {"x": {"y": {"z": "deep"}}}, {"x": [1, "a"]}, {"x": "it's"},
]  # fmt: skip
WANTED: list[tuple[str, str, Any]] = [
    *(("meta.x", operator, value) for operator in ("==", "!=") for value in (None, 3, 3.0, "2024-05-01", [1, "a"])),
    *(("meta.x", operator, value) for operator in ("in", "not in") for value in ([3, "a"], [None], [], ["2024-05-01"])),
    *(("meta.x", operator, 2.6) for operator in (">", ">=", "<", "<=")),
    *(("meta.x", operator, "2024-05-01T00:00:00Z") for operator in (">", ">=", "<", "<=")),
    ("meta.x", ">", None), ("meta.x.y", "==", 3), ("meta.x.y.z", "==", "deep"), ("x", "==", 3),
    ("meta.nothing", "!=", 3), ("id", "in", ["3", "4"]), ("content", "==", "text 5"), ("meta.x", "==", "it's"),
]  # fmt: skip


@pytest.mark.parametrize("wanted", WANTED, ids=str)
def test_filters_are_those_of_haystack(wanted: tuple[str, str, Any]) -> None:
    """Where its comparison raises, as of a text and a number, none is found."""
    made = NestcodeDocumentStore()
    made.write_documents([Document(id=str(i), content=f"text {i}", meta=meta) for i, meta in enumerate(METAS)])
    filters = dict(zip(("field", "operator", "value"), wanted, strict=True))
    expected = []
    for one in made.filter_documents():
        with contextlib.suppress(FilterError, TypeError):
            if document_matches_filter(filters, one):
                expected.append(one)
    assert made.filter_documents(filters) == expected
    other = {"operator": "NOT", "conditions": [filters, {"operator": "OR", "conditions": [filters, filters]}]}
    assert made.filter_documents(other) == [one for one in made.filter_documents() if one not in expected]


@pytest.mark.parametrize(
    ("filters", "named"),
    [
        ({"field": "meta.x", "operator": "=~", "value": 1}, "got '=~' for 'meta.x'"),
        ({"field": "meta.x", "operator": "=="}, "must have a value"),
        ({"operator": "XOR", "conditions": []}, "got 'XOR'"),
        ({"operator": "AND", "conditions": 5}, "a list of conditions"),
        ({"operator": "AND", "conditions": [5]}, "must have an operator, got 5"),
        ({"field": "meta.x", "operator": ">", "value": "a"}, "a date in ISO 8601, got 'a'"),
        ({"field": "meta.x", "operator": "in", "value": "abc"}, "a list of values, got 'abc'"),
    ],
)
def test_filters_that_are_none_are_refused(filters: dict[str, Any], named: str) -> None:
    with pytest.raises(FilterError, match=named):
        store().filter_documents(filters)


def test_metadata_is_updated_in_place(tmp_path: Path) -> None:
    made = NestcodeDocumentStore(path=tmp_path / "store")
    made.write_documents([*documents()[:5], Document(id="bare", content="no embedding", meta={"even": True})])
    assert made.update_by_filter(EVEN, {"new": "value", "even": "yes"}) == 4
    assert made.filter_documents(EVEN) == []
    changed = made.filter_documents({"field": "meta.new", "operator": "==", "value": "value"})
    assert [one.id for one in changed] == ["0", "2", "4", "bare"]
    assert made.embedding_retrieval(X[2].tolist(), top_k=1)[0].meta == {"new": "value", "even": "yes"}
    del made
    assert NestcodeDocumentStore(path=tmp_path / "store").filter_documents()[0].meta == {"new": "value", "even": "yes"}


def test_a_pipeline_opens_the_folder_of_its_store(tmp_path: Path) -> None:
    made = NestcodeDocumentStore(path=tmp_path / "store")
    made.write_documents(documents()[:20])
    made.close()
    pipeline = Pipeline()
    reader = NestcodeDocumentStore(path=tmp_path / "store", mode="r")
    pipeline.add_component("retriever", NestcodeEmbeddingRetriever(reader, top_k=3))
    again = Pipeline.loads(pipeline.dumps(), allowed_modules=["nestcode.integrations.haystack"])
    assert again.run({"retriever": {"query_embedding": X[4].tolist()}})["retriever"]["documents"][0].id == "4"


def test_documents_are_saved_before_they_are_embedded(tmp_path: Path) -> None:
    made = NestcodeDocumentStore(width=40)
    made.write_documents([Document(id="a", content="one"), Document(id="b", content="two")])
    made.save_to_disk(tmp_path / "store")
    again = NestcodeDocumentStore.load_from_disk(tmp_path / "store")
    assert again.filter_documents() == made.filter_documents()
    assert settings_of(again) == settings_of(made)
    assert again.embedding_retrieval([1.0, 0.0]) == []
    again.write_documents([Document(id="a", content="one", embedding=[1.0, 0.0])], DuplicatePolicy.OVERWRITE)
    assert again.embedding_retrieval([1.0, 0.0])[0].id == "a"


def test_unsavable_stores_are_refused(tmp_path: Path) -> None:
    made = NestcodeDocumentStore(path=tmp_path / "store")
    with pytest.raises(InvalidInput, match="JSON"):
        made.write_documents([Document(embedding=[1.0], meta={"when": object()})])
    assert made.count_documents() == 0
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with pytest.raises(InvalidInput, match=r"a store has a folder of its own, but .* holds other files"):
        made.save_to_disk(tmp_path / "other")


def test_a_pipeline_retrieves_and_is_serialized() -> None:
    pipeline = Pipeline()
    pipeline.add_component("retriever", NestcodeEmbeddingRetriever(store(), filters=EVEN, top_k=3))
    found = pipeline.run({"retriever": {"query_embedding": X[4].tolist()}})["retriever"]["documents"]
    assert found[0].id == "4"
    assert [one.meta["even"] for one in found] == [True] * 3
    again = Pipeline.loads(pipeline.dumps(), allowed_modules=["nestcode.integrations.haystack"])
    retriever = again.get_component("retriever")
    assert retriever.to_dict() == pipeline.get_component("retriever").to_dict()
    assert retriever.document_store.count_documents() == 0  # a pipeline names its store's settings, not its documents
    with pytest.raises(InvalidInput, match="InMemoryDocumentStore"):
        NestcodeEmbeddingRetriever(InMemoryDocumentStore())
