"""Settings of all tests, and which of them are slow."""

import gc
import os
import shutil
import signal
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import pytest
from _pytest.doctest import DoctestModule
from hypothesis import settings

# Matrices here are so small that threads of one product wait for each other longer than they work. This must be set
# before anything imports NumPy or PyTorch; processes that tests start inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HAYSTACK_TELEMETRY_ENABLED", "False")  # tests use no network

# Files of tests in memory, where there is room: a third of the CPU time of those that write many is the disk's.
MEMORY = Path("/dev/shm")
if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 2 << 30:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))

# A shell starts what it runs in the background with interrupts ignored, and processes inherit that: tests send them.
signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes depends on the load of the machine, not on whether a law holds. Each run tries the same
# examples, so that a test fails by a change, not by chance; --hypothesis-profile explore and the torture draw new ones.
settings.register_profile("nestcode", deadline=None, max_examples=40, derandomize=True)
settings.register_profile("explore", deadline=None, max_examples=200)
settings.load_profile("nestcode")

HERE = Path(__file__).parent
COUNTED: list[float] = []  # CPU seconds up to the last report
COLLECTED: list[float] = []  # CPU seconds of the start and the collection, until the first report has them
SLOW = [  # they train networks, start processes or run whole programs
    HERE / name
    for name in (
        "cli", "coders/test_adaptive.py", "coders/test_auto.py", "coders/test_autoencoder.py",
        "coders/test_estimator.py", "coders/test_refined.py", "coders/test_supervised.py",
        "demo", "docs", "images", "index/test_compaction.py", "index/test_damage.py", "index/test_durability.py",
        "integrations", "nn", "reproduce", "scale/test_ray.py", "serve", "simulate", "stores",
        "test_annbench.py", "test_compression_benchmark.py",
        "test_import.py", "test_package.py", "test_scripts.py", "test_vibe.py", "torture", "training",
    )
]  # fmt: skip


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --quick, which `make check` passes, and --cpu-times."""
    parser.addoption("--quick", action="store_true", help="leave out the slow tests without importing them")
    parser.addoption("--cpu-times", action="store_true", help="print the CPU seconds of each file of tests")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out slow files and folders where --quick is given."""
    return True if config.getoption("--quick") and collection_path in SLOW else None


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Look for examples only in files of tests that have some: pytest would import and search the others in vain."""
    collectors = yield
    if any(isinstance(one, DoctestModule) for one in collectors) and ">>> " not in file_path.read_text():
        return [one for one in collectors if not isinstance(one, DoctestModule)]
    return collectors


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and of the processes that it has waited for."""
    return sum(os.times()[:4])


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector from visiting what is imported: it stays to the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_finish() -> None:
    """Start to count CPU time."""
    COUNTED[:] = COLLECTED[:] = [cpu_seconds()]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the files of tests by the CPU seconds that they took, the longest first."""
    if not config.getoption("--cpu-times"):
        return
    seconds: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[report.nodeid.partition("::")[0]] += getattr(report, "cpu_seconds", 0)
                seconds["start and collection"] += getattr(report, "cpu_collected", 0)
    for name, spent in [*seconds.most_common(), ("all", sum(seconds.values()))]:
        terminalreporter.write_line(f"{spent:8.1f} s {name}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note the CPU seconds of a test; fail one that skips because a program is missing, where all of them must run."""
    report = yield
    COUNTED.append(cpu_seconds())
    report.cpu_seconds = COUNTED[1] - COUNTED.pop(0)  # type: ignore[attr-defined]
    report.cpu_collected = COLLECTED.pop() if COLLECTED else 0  # type: ignore[attr-defined]
    if report.skipped and "NESTCODE_CI" in os.environ and "apt-get install" in str(report.longrepr):
        report.outcome = "failed"
    return report


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run the longest files first: each goes to one process, and a long one that starts last is waited for."""
    if config.getoption("--quick"):  # the contract of a coder, but not of those that train a network
        trained = ("refined", "implicit", "autoencoder", "supervised")
        items[:] = [
            item
            for item in items
            if item.path != HERE / "coders/test_contract.py" or not any(name in item.name for name in trained)
        ]
    longest = (  # as --cpu-times prints them, after the one that waits for a cluster of Ray
        "scale/test_ray.py", "test_scripts.py", "coders/test_contract.py", "laws/test_recall.py",
        "training/test_distributed.py", "docs/test_pages.py", "training/test_loop.py", "torture/test_torture.py",
        "index/test_durability.py", "reproduce/test_pca.py", "cli/test_files.py", "nn/test_dropout.py",
        "cli/test_numbers.py", "docs/test_site.py", "index/test_graph.py", "coders/test_refined.py",
        "index/autotune/test_build.py", "training/test_sweep.py", "nn/test_semilinear.py", "demo/test_demo.py",
        "index/test_life.py", "serve/test_explorer.py", "reproduce/test_filters.py", "nn/test_distributed.py",
    )  # fmt: skip
    order = {HERE / name: place for place, name in enumerate(longest)}
    items.sort(key=lambda item: order.get(item.path, len(order)))
