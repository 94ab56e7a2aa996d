"""A fixture that the tests of exhaustive search share."""

from functools import cache
from types import ModuleType
from typing import Any

import pytest

from nestcode.search.planner import DECODED_BYTES


@cache
def filled_of(module: ModuleType, expanded: int) -> Any:
    """Return the module's cached function `filled`, or another cache of it: indexes keep what they prepared."""
    return module.filled if expanded == DECODED_BYTES else cache(module.filled.__wrapped__)


@pytest.fixture(params=[0, DECODED_BYTES], ids=["as stored", "decoded"])
def expanded(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Codes are compared as they are, or as vectors."""
    monkeypatch.setattr(request.module, "filled", filled_of(request.module, request.param))
    monkeypatch.setattr("nestcode.search.planner.DECODED_BYTES", request.param)
