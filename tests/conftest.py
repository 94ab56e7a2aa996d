"""Settings of all tests, and which of them are slow."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

# Matrices here are so small that threads of one product wait for each other longer than they work. This must be set
# before anything imports NumPy or PyTorch; processes that tests start inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# How long an example takes depends on the load of the machine, not on whether a law holds.
settings.register_profile("nestcode", deadline=None)
settings.load_profile("nestcode")

HERE = Path(__file__).parent
SLOW = (  # they train networks, start processes or run whole programs: `make check` leaves them out
    "cli", "coders/test_adaptive.py", "coders/test_auto.py", "coders/test_autoencoder.py", "coders/test_contract.py",
    "coders/test_estimator.py", "coders/test_refined.py", "coders/test_supervised.py", "demo", "docs", "images",
    "index/test_compaction.py", "index/test_damage.py", "index/test_durability.py", "integrations", "nn", "reproduce",
    "simulate", "test_annbench.py", "test_compression_benchmark.py", "test_import.py", "test_scripts.py", "training",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests in these files and folders as slow."""
    slow = [HERE / name for name in SLOW]
    assert all(path.exists() for path in slow), [path for path in slow if not path.exists()]
    for item in items:
        if any(item.path.is_relative_to(path) for path in slow):
            item.add_marker(pytest.mark.slow)
