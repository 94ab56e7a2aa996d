"""A kill between two adds: each framework's store has every document whose add returned, and takes the next one."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from haystack import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import VectorStoreQuery

from nestcode.integrations.haystack import NestcodeDocumentStore
from nestcode.integrations.langchain import NestcodeVectorStore as LangChainStore
from nestcode.integrations.llama_index import NestcodeVectorStore as LlamaIndexStore

Add = Callable[[int], object]
Find = Callable[[int], list[str]]
EMBEDDING = DeterministicFakeEmbedding(size=4)
ADDS = 3


def text(i: int) -> str:
    return f"text {i}"


def langchain(path: Path) -> tuple[Add, Find]:
    store = LangChainStore(EMBEDDING, path=path)
    return (
        lambda i: store.add_texts([text(i)], [{"n": i}], ids=[str(i)]),
        lambda i: [one.page_content for one in store.similarity_search(text(i), k=1, filter={"n": {"$gte": i}})],
    )


def llama_index(path: Path) -> tuple[Add, Find]:
    store = LlamaIndexStore(path=path)

    def find(i: int) -> list[str]:
        found = store.query(VectorStoreQuery(query_embedding=EMBEDDING.embed_query(text(i)), similarity_top_k=1))
        return [str(node.get_content()) for node in found.nodes or ()]

    def add(i: int) -> Any:
        return store.add([TextNode(id_=str(i), text=text(i), embedding=EMBEDDING.embed_query(text(i)))])

    return add, find


def haystack(path: Path) -> tuple[Add, Find]:
    store = NestcodeDocumentStore(path=path)
    return (
        lambda i: store.write_documents([Document(str(i), text(i), embedding=EMBEDDING.embed_query(text(i)))]),
        lambda i: [str(one.content) for one in store.embedding_retrieval(EMBEDDING.embed_query(text(i)), top_k=1)],
    )


@pytest.mark.parametrize("opened", [langchain, llama_index, haystack], ids=lambda opened: opened.__name__)
def test_acknowledged_documents_survive_a_kill(opened: Callable[[Path], tuple[Add, Find]], tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        try:
            add, _ = opened(tmp_path / "store")
            for i in range(ADDS):
                add(i)
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    add, find = opened(tmp_path / "store")
    assert [find(i) for i in range(ADDS)] == [[text(i)] for i in range(ADDS)]
    add(ADDS)
    assert find(ADDS) == [text(ADDS)]
