"""A small index on disk, and a server of it."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from nestcode import Index, LinearCoder
from nestcode.arrays import Floats
from nestcode.client import Client
from nestcode.serve import Service, create_app, in_thread

WIDTH, FEATURES = 48, 12
PATIENCE = 120  # seconds: what a test waits for comes, however busy the machine is
Start = Callable[..., str]


def wait_for(condition: Callable[[], object]) -> None:
    """Return once a condition holds."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.fixture(scope="package")
def rows() -> Floats:
    return np.random.default_rng(0).standard_normal((3000, FEATURES)).astype(np.float32)


@pytest.fixture(scope="package")
def index(rows: Floats, tmp_path_factory: pytest.TempPathFactory) -> Index:
    """Return an index of all but the last 100 rows, opened from its folder."""
    index = Index(LinearCoder(WIDTH).fit(rows), vectors="float16")
    index.add(rows[:-100])
    folder = tmp_path_factory.mktemp("index")
    index.save(folder)
    return Index.open(folder)


@pytest.fixture(scope="package")
def folder(index: Index) -> Path:
    assert index._store is not None
    return index._store.path


@pytest.fixture(scope="package")
def url(folder: Path) -> Iterator[str]:
    with in_thread(create_app(Service(folder))) as address:
        yield address


@pytest.fixture(scope="package")
def client(url: str) -> Iterator[Client]:
    with Client(url) as opened:
        yield opened


@pytest.fixture(scope="package")
def http(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, timeout=PATIENCE) as opened:
        yield opened


def error_of(answer: httpx.Response) -> str:
    """Return the message of a refusal."""
    found: dict[str, Any] = answer.json()
    assert list(found) == ["error"]
    return str(found["error"])
