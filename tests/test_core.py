"""Contracts of the C++ core as Python sees them: failures of worker threads, unknown names, damaged blocks."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from nestcode import _core
from nestcode.errors import DamagedFile
from nestcode.storage import Mapped, write_array

BLOCK = 65_536  # bytes that share a checksum

# Each limit on the address space lets the search get a little further before an allocation fails, at last in the
# buffers of its worker threads. A thread that ends by an exception would abort the process.
OUT_OF_MEMORY = """
import resource
import numpy as np
from nestcode import Codes, Index

rng, count, k = np.random.default_rng(0), 120_000, 100_000
index = Index(width=32)
index.add(Codes(rng.integers(0, 256, (count, 4), dtype=np.uint8), 32))
queries = Codes(rng.integers(0, 256, (4, 4), dtype=np.uint8), 32)
expected = index.search(queries, k=k, candidates=count - 1, threads=4).ids

failed = 0
for room in range(0, 8 << 20, 1 << 20):
    pages = int(open("/proc/self/statm").read().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + room, resource.RLIM_INFINITY))
    for threads in (1, 4):
        try:
            found = index.search(queries, k=k, candidates=count - 1, threads=threads).ids
        except MemoryError:
            failed += 1
        else:
            assert (found == expected).all()
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert (index.search(queries, k=k, candidates=count - 1, threads=4).ids == expected).all()
print("failed", failed)
"""


def test_workers_without_memory_raise_memory_error() -> None:
    run = subprocess.run([sys.executable, "-c", OUT_OF_MEMORY], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert int(run.stdout.split()[1]) > 0  # otherwise the limits were too generous to show anything


def test_the_environment_names_the_last_instruction_set() -> None:
    def names(last: str) -> subprocess.CompletedProcess[str]:
        show = "from nestcode import _core; print(*_core.simd_names())"
        environment = {**os.environ, "NESTCODE_SIMD": last}
        return subprocess.run(
            [sys.executable, "-c", show], env=environment, capture_output=True, text=True, check=False
        )

    assert names("portable").stdout.split() == ["portable"]
    assert names("").stdout.split()[: len(_core.simd_names())] == _core.simd_names()
    assert "InvalidInput: NESTCODE_SIMD must be one of portable, " in names("mmx").stderr


def test_only_the_dispatch_reads_the_processor() -> None:
    headers = Path(__file__).parents[1] / "cpp" / "nestcode"
    asking = [path.name for path in headers.glob("*.hpp") if re.search(r"\)\.avx(2|512)\b", path.read_text())]
    assert asking == ["simd.hpp"]  # other kernels would ignore the environment


def test_unknown_metrics_are_refused() -> None:
    vectors, out = np.zeros((3, 2), dtype=np.float32), np.zeros((1, 2), dtype=np.float32)
    with pytest.raises(ValueError, match="metric must be one of l2, cosine and inner, got 'manhattan'"):
        _core.VectorRuns(vectors).rerank(vectors[:1], np.array([[0, 2]]), "manhattan", out, 1)


def test_the_first_damaged_block_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "values.npy"
    values = np.arange(5 * BLOCK // 8)
    sums = write_array(path, values)
    data = bytearray(path.read_bytes())
    for block in (2, 4):
        data[128 + block * BLOCK + 7] ^= 1
    path.write_bytes(data)
    with pytest.raises(DamagedFile, match="block 2 of 65,536 bytes does not match its checksum"):
        Mapped(path, values.dtype, values.shape, sums).verify()
    mapped = Mapped(path, values.dtype, values.shape, sums)
    with pytest.raises(DamagedFile, match="block 4 of"):  # the only one read so far
        mapped.touch(4 * BLOCK, 5 * BLOCK)
    with pytest.raises(DamagedFile, match="block 2 of"):
        mapped.touch(0, 3 * BLOCK)
