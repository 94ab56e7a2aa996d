"""A fixture that the tests of exhaustive search share."""

import pytest

from nestcode.search.prepared import EXPANDED


@pytest.fixture(params=[0, EXPANDED], ids=["as stored", "expanded"])
def expanded(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few items are compared by their codes or integers, or as vectors."""
    request.module.filled.cache_clear()  # indexes keep what they prepared
    monkeypatch.setattr("nestcode.search.prepared.EXPANDED", request.param)
