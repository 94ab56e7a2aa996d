"""LangChain's own integration tests of vector stores, with vectors and with codes, and tests beyond them."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_tests.integration_tests import VectorStoreIntegrationTests

import nestcode as nc
from nestcode.errors import DamagedFile, InvalidInput
from nestcode.integrations.collection import FILE
from nestcode.integrations.langchain import NestcodeVectorStore

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


NUMBERS = [-1, 0, 3, 2**60, 2**60 + 1, 2**70, 0.5, 3.0, -0.0, 1e300]
TEXTS_OF_CELLS = ["", "a", "Ab", "a%b", "_", "\0", "é", "'\"", "\\"]
SCALARS = st.sampled_from([None, True, False, *NUMBERS, *TEXTS_OF_CELLS])
CELLS = SCALARS | st.lists(SCALARS, max_size=3) | st.dictionaries(st.sampled_from("xy"), SCALARS, max_size=2)
KEYS = st.sampled_from(["year", "AND", 'a"b', "i:year", "name", ""])
OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "$eq": lambda own, value: same(own, value),
    "$ne": lambda own, value: not same(own, value),
    "$in": lambda own, value: any(same(own, one) for one in value),
    "$nin": lambda own, value: not any(same(own, one) for one in value),
    "$gt": lambda own, value: alike(own, value) and own > value,
    "$gte": lambda own, value: alike(own, value) and own >= value,
    "$lt": lambda own, value: alike(own, value) and own < value,
    "$lte": lambda own, value: alike(own, value) and own <= value,
    "$exists": lambda own, value: (own is not None) == value,
    "$between": lambda own, value: alike(own, value[0]) and alike(own, value[1]) and value[0] <= own <= value[1],
    "$contains": lambda own, value: (
        (isinstance(own, list) and any(same(one, value) for one in own))
        or (isinstance(own, str) and isinstance(value, str) and value in own)
    ),
}
ORDERED = st.sampled_from([-1, 0, 3, 2**60, 0.5, 3.0, 1e300, "", "a", "\0", "é"])
CONDITIONS = st.one_of(
    CELLS,
    *(st.fixed_dictionaries({name: CELLS}) for name in ("$eq", "$ne")),
    *(st.fixed_dictionaries({name: st.lists(CELLS, max_size=3)}) for name in ("$in", "$nin")),
    *(st.fixed_dictionaries({name: ORDERED}) for name in ("$gt", "$gte", "$lt", "$lte")),
    st.fixed_dictionaries({"$exists": st.booleans()}),
    st.fixed_dictionaries({"$between": st.tuples(ORDERED, ORDERED)}),
    st.fixed_dictionaries({"$contains": SCALARS}),
)
FILTERS = st.recursive(
    st.dictionaries(KEYS, CONDITIONS, max_size=2),
    lambda inner: (
        st.fixed_dictionaries({"$and": st.lists(inner, max_size=3)})
        | st.fixed_dictionaries({"$or": st.lists(inner, max_size=3)})
        | st.fixed_dictionaries({"$not": inner})
    ),
    max_leaves=4,
)


def nested(inner: dict[str, Any]) -> dict[str, Any]:
    """Return a filter under thousands of $not."""
    for _ in range(5000):
        inner = {"$not": inner}
    return inner


def same(a: Any, b: Any) -> bool:
    """Return whether JSON values are equal: numbers by value, and booleans are none."""
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return alike(a, b) and bool(a == b) if type(a) is not type(b) else bool(a == b)


def alike(a: Any, b: Any) -> bool:
    """Return whether values are ordered."""
    kinds = [
        str
        if isinstance(one, str)
        else bool
        if isinstance(one, bool)
        else float
        if isinstance(one, int | float)
        else None
        for one in (a, b)
    ]
    return kinds[0] is kinds[1] and kinds[0] in (str, float)


def matches(metadata: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Return whether metadata matches a filter: its plain twin."""

    def one(key: str, value: Any) -> bool:
        if key == "$and":
            return all(matches(metadata, part) for part in value)
        if key == "$or":
            return any(matches(metadata, part) for part in value)
        if key == "$not":
            return not matches(metadata, value)
        own = metadata.get(key)
        if isinstance(value, dict) and any(name.startswith("$") for name in value):
            return all(OPERATORS[name](own, inner) for name, inner in value.items())
        return same(own, value)

    return all(one(key, value) for key, value in wanted.items())


@settings(max_examples=30)
@given(
    st.lists(st.dictionaries(KEYS, CELLS, max_size=3), min_size=1, max_size=8),
    st.lists(FILTERS, min_size=5, max_size=5),
)
def test_filters_find_what_their_twin_finds(metadatas: list[dict[str, Any]], filters: list[dict[str, Any]]) -> None:
    store = NestcodeVectorStore(DeterministicFakeEmbedding(size=2))
    names = [str(i) for i in range(len(metadatas))]
    store.add_texts(names[:2], metadatas[:2], ids=names[:2])
    store.add_texts(names[2:], metadatas[2:], ids=names[2:])
    for wanted in filters:
        found = store.similarity_search("query", k=10, filter=wanted)
        assert {one.id for one in found} == {
            name for name, one in zip(names, metadatas, strict=True) if matches(one, wanted)
        }


@pytest.mark.parametrize(
    ("wanted", "named"),
    [
        ({"year": {"$near": 2020}}, r"got '\$near' for 'year'"),
        ({"$xor": []}, r"got '\$xor'"),
        ({"year": {"$gt": 2020, "x": 1}}, "either operators or a value for 'year'"),
        ({"year": {"$in": 2020}}, "a list of values for 'year', got 2020"),
        ({"year": {"$gt": [1]}}, r"a number or a text, got \[1\]"),
        ({"year": {"$gt": None}}, "a number or a text, got None"),
        ({"year": {"$exists": 1}}, "true or false, got 1"),
        ({"year": {"$between": [1]}}, "two values"),
        ({"year": object()}, "JSON values, got object"),
        ({"$and": {"a": 1}}, "a list of values"),
        ({"$or": [5]}, "must be a dictionary"),
        ("year > 2020", "must be a dictionary"),
        ({5: 1}, "got 5"),
        ({"text": "\ud800"}, "Unicode"),
        (nested({"a": 1}), "at most 20 filters inside each other"),
        ({"a": nested({"$gt": 1})}, "at most 20 filters"),
        ({"$or": [{"a": i} for i in range(3000)]}, "at most 65536 characters"),
    ],
    ids=range(17),
)
def test_filters_that_are_none_are_refused_by_name(wanted: Any, named: str) -> None:
    store = NestcodeVectorStore.from_texts(["a"], EMBEDDING, [{"a": 1, "year": 2020, "text": "a"}])
    with pytest.raises(InvalidInput, match=named):
        store.similarity_search("a", filter=wanted)


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
    again.close()
    kept = NestcodeVectorStore.load_local(tmp_path / "store", EMBEDDING, mode="r")
    assert kept.similarity_search("new", k=1)[0].id == "n"
    with pytest.raises(InvalidInput, match="opened to read"):
        kept.add_texts(["more"])
    with pytest.raises(FileNotFoundError):
        NestcodeVectorStore.load_local(tmp_path / "nothing", EMBEDDING)
    nc.LinearCoder(width=8).fit(np.eye(9)).save(tmp_path / "store" / FILE)
    with pytest.raises(DamagedFile, match="LinearCoder"):
        NestcodeVectorStore.load_local(tmp_path / "store", EMBEDDING)


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
    with pytest.raises(InvalidInput, match=f"metadata must be JSON values, got .*{named}"):
        store.add_texts(["a", "b"], [{}, metadata], ids=["a", "b"])
    assert len(store) == 0
    store.add_texts(["a"], [{"fine": [1, None, {"x": 0.1}]}], ids=["a"])
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
