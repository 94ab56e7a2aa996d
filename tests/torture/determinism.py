"""Determinism: same data and seed, same bits, whatever the threads, batches, processes and instruction sets."""

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

import nestcode as nc
from nestcode import _core
from tests.torture.run import ROOT, Outcome, Trial

MAKERS: dict[str, Any] = {
    "LinearCoder": nc.LinearCoder,
    "ResidualCoder": nc.ResidualCoder,
    "CellCoder": nc.CellCoder,
    "AdaptiveCoder": nc.AdaptiveCoder,
}


def trials(random: Random, folder: Path) -> Iterator[Trial]:  # noqa: ARG001
    """Every coder on other data each time."""
    while True:
        for name in MAKERS:
            seed = random.randrange(2**32)
            yield "processes", partial(other_process, name, seed)
            coder, rows = fitted(name, seed)
            yield "single items and batches: encode", partial(one_by_one, coder, rows)
            index = nc.Index(coder, vectors=random.choice([None, "float32", "int8"]))
            index.add(rows)
            yield "threads: search", partial(with_threads, index, rows)
            yield "single items and batches: search", partial(search_one_by_one, index, rows)
        yield "instruction sets: Hamming distances", partial(instruction_sets, random)


def fitted(name: str, seed: int) -> tuple[Any, NDArray[np.float32]]:
    """Return a coder and the rows that it was fitted on."""
    rows = (np.random.default_rng(seed).standard_normal((400, 24)) * 0.9 ** np.arange(24)).astype(np.float32)
    return MAKERS[name](48).fit(rows), rows


def digest(name: str, seed: int) -> str:
    """Return a checksum of a coder, its codes, a stream of them and a search in them."""
    coder, rows = fitted(name, seed)
    index = nc.Index(coder)
    index.add(rows)
    hits = index.search(rows[:20], k=5, threads=2)
    parts = (coder.fingerprint.encode(), coder.encode(rows).packed, nc.compress(rows, coder), hits.ids, hits.distances)
    return hashlib.sha256(b"".join(bytes(part) for part in parts)).hexdigest()


def other_process(name: str, seed: int) -> Outcome:
    program = f"from tests.torture.determinism import digest; print(digest({name!r}, {seed}))"
    environment = {**os.environ, "PYTHONHASHSEED": str(seed), "OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"}
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    return "intact" if run.stdout.strip() == digest(name, seed) else "wrong"


def one_by_one(coder: Any, rows: NDArray[np.float32]) -> Outcome:
    whole = coder.encode(rows)
    parts = [coder.encode(rows[first : first + size]) for first, size in ((0, 1), (1, 2), (3, 60), (63, 337))]
    return "intact" if parts[0].concat(parts[1]).concat(parts[2]).concat(parts[3]) == whole else "wrong"


def with_threads(index: nc.Index, rows: NDArray[np.float32]) -> Outcome:
    found = [index.search(rows[:70], k=9, candidates=120, threads=threads) for threads in (1, 2, 4, 7)]
    first = found[0]
    same = all(np.array_equal(first.ids, one.ids) and np.array_equal(first.distances, one.distances) for one in found)
    return "intact" if same else "wrong"


def search_one_by_one(index: nc.Index, rows: NDArray[np.float32]) -> Outcome:
    whole = index.search(rows[:20], k=9, candidates=120)
    single = [index.search(row, k=9, candidates=120) for row in rows[:20]]
    return "intact" if np.array_equal(whole.ids, [one.ids for one in single]) else "wrong"


def instruction_sets(random: Random) -> Outcome:
    rng = np.random.default_rng(random.randrange(2**32))
    a, b = rng.integers(0, 256, (2, 9, random.randint(1, 300)), dtype=np.uint8)
    found = [np.empty((9, 9), dtype=np.int32) for _ in _core.simd_names()]
    for simd, out in zip(_core.simd_names(), found, strict=True):
        _core.hamming(a, b, out, 1, simd)
    return "intact" if all(np.array_equal(found[0], one) for one in found) else "wrong"
