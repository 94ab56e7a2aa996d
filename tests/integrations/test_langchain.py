"""LangChain's own integration tests of vector stores, with vectors and with codes, and tests beyond them."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_tests.integration_tests import VectorStoreIntegrationTests

import nestcode as nc
from nestcode.errors import DamagedFile, InvalidInput
from nestcode.integrations.langchain import FILE, NestcodeVectorStore
from nestcode.storage import read_record, write_record

SIZE = 24
TEXTS = [f"text {i}" for i in range(300)]
EMBEDDING = DeterministicFakeEmbedding(size=SIZE)


class TestWithVectors(VectorStoreIntegrationTests):
    @pytest.fixture
    def vectorstore(self) -> NestcodeVectorStore:
        return NestcodeVectorStore(self.get_embeddings())


class TestWithCodes(VectorStoreIntegrationTests):
    @pytest.fixture
    def vectorstore(self) -> NestcodeVectorStore:
        rows = np.random.default_rng(0).standard_normal((500, 6))
        return NestcodeVectorStore(self.get_embeddings(), coder=nc.LinearCoder(width=36, metric="cosine").fit(rows))


def stores() -> dict[str, NestcodeVectorStore]:
    """Return one store of vectors, one of codes, and one of codes beside vectors."""
    metadatas = [{"even": i % 2 == 0, "tags": [i]} for i in range(len(TEXTS))]
    return {
        name: NestcodeVectorStore.from_texts(
            TEXTS,
            EMBEDDING,
            metadatas,
            ids=[str(i) for i in range(len(TEXTS))],
            width=160,
            rows_to_fit=enough,
            vectors=None if name == "codes" else "float16",
        )
        for name, enough in (("vectors", 1000), ("codes", 300), ("both", 300))
    }


def test_a_store_of_vectors_equals_langchains_in_memory_store() -> None:
    own = InMemoryVectorStore.from_texts(TEXTS, EMBEDDING, ids=[str(i) for i in range(len(TEXTS))])
    store = stores()["vectors"]
    for query in ("text 7", "another", "a third"):
        true, found = (one.similarity_search_with_score(query, k=20) for one in (own, store))
        assert [document.id for document, _ in found] == [document.id for document, _ in true]
        np.testing.assert_allclose([score for _, score in found], [score for _, score in true], atol=1e-5)
        by_vector = store.similarity_search_by_vector(EMBEDDING.embed_query(query), k=20)
        assert by_vector == [document for document, _ in found]


def test_a_store_of_codes_approximates_a_store_of_vectors() -> None:
    both = stores()
    shared = []
    for query in map(str, range(30)):
        true, found = (both[kind].similarity_search_with_score(query, k=10) for kind in ("vectors", "codes"))
        shared.append(len({d.id for d, _ in true} & {d.id for d, _ in found}))
        np.testing.assert_allclose([score for _, score in found], [score for _, score in true], atol=0.1)
        assert [score for _, score in found] == sorted((score for _, score in found), reverse=True)
    assert np.mean(shared) > 8


@pytest.mark.parametrize("kind", ["vectors", "codes"])
def test_a_filter_is_a_predicate_or_metadata(kind: str) -> None:
    store = stores()[kind]
    even = store.similarity_search("text 3", k=300, filter={"even": True})
    assert {int(document.id or -1) for document in even} == set(range(0, 300, 2))
    assert [d.id for d in store.similarity_search("text 3", k=5, filter={"even": True, "tags": [4]})] == ["4"]
    few = store.similarity_search("text 3", k=5, filter=lambda document: document.page_content.endswith("99"))
    assert {document.id for document in few} == {"99", "199", "299"}
    assert store.similarity_search("text 3", filter={"odd": True}) == []


@pytest.mark.parametrize("kind", ["vectors", "codes"])
def test_marginal_relevance_trades_similarity_for_diversity(kind: str) -> None:
    store = stores()[kind]
    near = store.max_marginal_relevance_search("text 5", k=8, lambda_mult=1)
    assert {d.id for d in near} == {d.id for d in store.similarity_search("text 5", k=8)}
    varied = store.max_marginal_relevance_search("text 5", k=8, fetch_k=100, lambda_mult=0)
    assert varied[0].id == "5"

    def similarity(documents: list[Document]) -> float:
        rows = np.array(EMBEDDING.embed_documents([document.page_content for document in documents]))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        return float(np.triu(rows @ rows.T, k=1).sum())

    assert similarity(varied) < similarity(near)
    assert NestcodeVectorStore(EMBEDDING).max_marginal_relevance_search("text") == []


@pytest.mark.parametrize("kind", ["vectors", "codes", "both"])
def test_save_then_load_is_identity(kind: str, tmp_path: Path) -> None:
    store = stores()[kind]
    store.delete(["0", "1"])
    store.save_local(tmp_path / "store")
    again = NestcodeVectorStore.load_local(tmp_path / "store", EMBEDDING)
    assert len(again) == 298
    assert again.similarity_search_with_score("q", k=20) == store.similarity_search_with_score("q", k=20)
    again.add_texts(["new", "text two"], ids=["n", "2"])
    assert again.similarity_search("new", k=1)[0].id == "n"
    assert again.get_by_ids(["2"])[0].page_content == "text two"
    path = tmp_path / "store" / FILE
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(DamagedFile):
        NestcodeVectorStore.load_local(tmp_path / "store", EMBEDDING)
    nc.LinearCoder(width=8).fit(np.eye(9)).save(path)
    with pytest.raises(DamagedFile, match="LinearCoder"):
        NestcodeVectorStore.load_local(tmp_path / "store", EMBEDDING)


@pytest.mark.parametrize(
    "text",
    ["5", "[5]", "[[0]]", '[["0", "a", "b", {}]]', '[[0, "a", 7, {}]]', "[" * 10**5, "{", "[]", '[[0, [], "b", {}]]'],
    ids=range(9),
)
def test_forged_documents_are_refused(text: str, tmp_path: Path) -> None:
    """With a matching checksum, which anybody can compute."""
    stores()["vectors"].save_local(tmp_path)
    record = read_record(tmp_path / FILE)
    arrays = {**record.arrays, "documents": np.frombuffer(text.encode(), dtype=np.uint8)}
    write_record(tmp_path / FILE, replace(record, arrays=arrays))
    with pytest.raises(DamagedFile, match=r"the documents in .* are damaged"):
        NestcodeVectorStore.load_local(tmp_path, EMBEDDING)


@pytest.mark.parametrize(
    ("metadata", "named"),
    [
        ({"when": object()}, "not JSON serializable"),
        ({"mean": float("nan")}, "Out of range"),
        ({"text": "\ud800"}, "surrogates"),
        ({1: "one", "1": "uno"}, "the key 1"),
        ({"a": {"b": {None: 3}}}, "a: b: the key None"),
        ({"box": (1, 2)}, r"box: \(1, 2\)"),
        ({"boxes": [[1], (1, 2)]}, r"boxes: \[\[1\], \(1, 2\)\]"),
    ],
)
def test_metadata_that_json_changes_is_refused(metadata: dict[Any, Any], named: str, tmp_path: Path) -> None:
    store = NestcodeVectorStore(EMBEDDING)
    store.add_texts(["a", "b"], [{"fine": [1, None, {"x": 0.1}]}, metadata], ids=["a", "b"])
    with pytest.raises(InvalidInput, match=f"metadata must be JSON values to be saved, got .*{named}"):
        store.save_local(tmp_path)
    assert list(tmp_path.iterdir()) == []
    store.delete(["b"])
    store.save_local(tmp_path)
    again = NestcodeVectorStore.load_local(tmp_path, EMBEDDING)
    assert again.get_by_ids(["a"])[0].metadata == {"fine": [1, None, {"x": 0.1}]}


def test_an_empty_store_keeps_its_settings(tmp_path: Path) -> None:
    coder = nc.LinearCoder(24, "cosine").fit(np.random.default_rng(0).standard_normal((100, SIZE)))
    for number, store in enumerate(
        [NestcodeVectorStore(EMBEDDING, width=40, rows_to_fit=200), NestcodeVectorStore(EMBEDDING, coder=coder)]
    ):
        store.save_local(tmp_path / str(number))
        again = NestcodeVectorStore.load_local(tmp_path / str(number), EMBEDDING)
        assert len(again) == 0
        for one in (store, again):
            one.add_texts([str(i) for i in range(200)], ids=[str(i) for i in range(200)])
        assert again.similarity_search_with_score("7", k=3) == store.similarity_search_with_score("7", k=3)
        assert repr(again._collection._index) == repr(store._collection._index)


def test_refused_texts_leave_the_store_unchanged() -> None:
    store = NestcodeVectorStore.from_texts(["a", "b"], EMBEDDING, ids=["1", "2"])
    with pytest.raises(InvalidInput, match="for each text"):
        store.add_texts(["c"], ids=["1", "2"])
    store._embedding = DeterministicFakeEmbedding(size=SIZE + 1)
    with pytest.raises(InvalidInput, match=f"must have the {SIZE} features of the index, got {SIZE + 1}: embed all"):
        store.add_texts(["c"], ids=["1"])
    assert [document.page_content for document in store.get_by_ids(["1", "2"])] == ["a", "b"]
    assert store.add_texts([]) == []


def test_ids_are_lists_of_strings_and_options_have_an_effect() -> None:
    store = NestcodeVectorStore.from_texts(["a", "b", "c"], EMBEDDING, ids=["1", "2", "12"])
    with pytest.raises(InvalidInput, match="ids must be a list of strings, got '12'"):
        store.delete("12")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="ids must be a list of strings"):
        store.add_texts(["d"], ids=[2])  # type: ignore[list-item]
    for search in (store.similarity_search, store.max_marginal_relevance_search):
        with pytest.raises(InvalidInput, match="takes k and filter, got filters"):
            search("a", filters={})
    assert len(store) == 3


def test_the_last_text_of_an_id_wins() -> None:
    store = NestcodeVectorStore(EMBEDDING)
    assert store.add_texts(["a", "b", "c"], ids=["1", "2", "1"]) == ["1", "2", "1"]
    assert len(store) == 2
    assert store.get_by_ids(["1"])[0].page_content == "c"
    assert store.delete()
    assert len(store) == 0
    assert store.similarity_search("a") == []


def test_documents_are_copied() -> None:
    metadata = {"n": 1}
    store = NestcodeVectorStore.from_texts(["a"], EMBEDDING, [metadata], ids=["1"])
    metadata["n"] = 2
    store.get_by_ids(["1"])[0].metadata["n"] = 3
    store.similarity_search("a")[0].metadata["n"] = 4
    assert store.get_by_ids(["1"])[0].metadata == {"n": 1}


def test_retrievers_and_relevance_scores() -> None:
    store = stores()["codes"]
    assert store.as_retriever(search_kwargs={"k": 1}).invoke("text 9")[0].id == "9"
    assert store.as_retriever(search_type="mmr", search_kwargs={"k": 2}).invoke("text 9")[0].id == "9"
    relevant = store.similarity_search_with_relevance_scores("text 9", k=300)
    assert relevant[0][1] > 0.95
    assert min(score for _, score in relevant) == 0
    few = store.as_retriever(search_type="similarity_score_threshold", search_kwargs={"score_threshold": 0.9})
    assert [document.id for document in few.invoke("text 9")] == ["9"]


def test_concurrent_adds() -> None:
    async def add_all() -> NestcodeVectorStore:
        store = NestcodeVectorStore(EMBEDDING, width=64, rows_to_fit=150)
        await asyncio.gather(*(store.aadd_texts(TEXTS[i : i + 10]) for i in range(0, 300, 10)))
        return store

    store = asyncio.run(add_all())
    assert len(store) == 300
    assert all(store.similarity_search(text, k=1)[0].page_content == text for text in TEXTS[::17])
