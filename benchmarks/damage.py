"""Damaged files: how an index handles them, compared with FAISS's flat binary index and usearch's graph.

Each index of the same codes is saved, a copy is damaged, and a new process loads the copy and searches for every code.
A flip changes one bit, a cut truncates a file at a random byte, a gap sets 4,096 bytes to zero; positions are uniform
over all bytes of all files. The result is right if it equals that of the undamaged files; a process that dies or times
out is a crash. Checksums are there to prevent wrong results without an error.
"""

import hashlib
import resource
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from _report import arguments, save, show
from nestcode import Codes, Index

COUNT, WIDTH, MEMBERS = 2000, 256, 10
SECONDS, MEMORY = 60, 16 << 30  # limits of a process
OUTCOMES = ["errors", "right answers", "wrong answers", "crashes"]


def main() -> None:
    """Damage, load, print and save."""
    options = arguments(__doc__)
    trials, kinds = (1, ["flip"]) if options.quick else (50, list(DAMAGE))
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(2) as pool:
        rows = []
        for peer, (write, _) in PEERS.items():
            folder = Path(scratch) / peer
            folder.mkdir()
            write(folder)
            truth = outcome(peer, folder)
            for kind in kinds:
                copies = [damaged(folder, kind, Random(seed)) for seed in range(trials)]
                counts = Counter(pool.map(partial(outcome, peer, truth=truth), copies))
                rows.append({"index": peer, "damage": kind, "files": trials, **{one: counts[one] for one in OUTCOMES}})
                for copy in copies:
                    shutil.rmtree(copy)
    note = f"{COUNT:,} codes of {WIDTH} bits; each damaged copy is loaded in its own process."
    show("Outcomes of loading damaged files", rows, note)
    save(options.json, rows, ["nestcode", "faiss-cpu", "usearch"])


# Damage


def damaged(folder: Path, kind: str, random: Random) -> Path:
    """Return a copy with one damaged file, at a position uniform over all bytes."""
    copy = Path(tempfile.mkdtemp(dir=folder.parent))
    shutil.copytree(folder, copy, dirs_exist_ok=True)
    files = sorted(path for path in copy.iterdir() if path.stat().st_size)
    path = random.choices(files, [file.stat().st_size for file in files])[0]
    path.write_bytes(DAMAGE[kind](path.read_bytes(), random))
    return copy


def flip(data: bytes, random: Random) -> bytes:
    """Flip one bit."""
    at = random.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1 :]


def cut(data: bytes, random: Random) -> bytes:
    """Truncate the data."""
    return data[: random.randrange(len(data))]


def gap(data: bytes, random: Random) -> bytes:
    """Set up to 4,096 bytes to zero."""
    start = random.randrange(len(data))
    end = min(start + 4096, len(data))
    return data[:start] + bytes(end - start) + data[end:]


DAMAGE: dict[str, Callable[[bytes, Random], bytes]] = {"flip": flip, "cut": cut, "gap": gap}


def outcome(peer: str, folder: Path, truth: str | None = None) -> str:
    """Return the outcome of loading a folder in a new process; without `truth`, return the checksum of its results."""
    command = [sys.executable, "-c", f"import damage; damage.answer({peer!r}, {str(folder)!r})"]
    try:
        run = subprocess.run(
            command, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return "crashes"
    if truth is None:
        run.check_returncode()
        return run.stdout
    if run.returncode == 0:
        return "right answers" if run.stdout == truth else "wrong answers"
    return "errors" if run.returncode == 1 else "crashes"


def answer(peer: str, folder: str) -> None:
    """Load, search for every code and print a checksum of all results; an error ends the process with status 1."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    digest = hashlib.sha256()
    for array in PEERS[peer][1](Path(folder)):
        digest.update(np.ascontiguousarray(array).tobytes())
    print(digest.hexdigest())


# Indexes


def codes() -> NDArray[np.uint8]:
    """Return the codes of each index."""
    return np.random.default_rng(0).integers(0, 256, (COUNT, WIDTH // 8), dtype=np.uint8)


def write_ours(folder: Path) -> None:
    """Save an index as a folder of files."""
    index = Index(width=WIDTH)
    index.add(Codes(codes(), WIDTH))
    index.save(folder)


def search_ours(folder: Path) -> list[NDArray[Any]]:
    """Return the neighborhoods of every code, and all codes: a search does not read most of their bits."""
    index = Index.open(folder)
    hoods = index.neighborhood(Codes(codes(), WIDTH), size=MEMBERS)
    return [hoods.length, hoods.count, *(hood.ids for hood in hoods), index.codes(index.ids).packed]


def write_faiss(folder: Path) -> None:
    """Save one file of codes."""
    import faiss

    index = faiss.IndexBinaryFlat(WIDTH)
    index.add(codes())
    faiss.write_index_binary(index, str(folder / "index"))


def search_faiss(folder: Path) -> list[NDArray[Any]]:
    """Return the nearest codes of every code."""
    import faiss

    return list(faiss.read_index_binary(str(folder / "index")).search(codes(), MEMBERS))


def write_usearch(folder: Path) -> None:
    """Save one file of codes and a graph."""
    from usearch.index import Index as Graph

    graph = Graph(ndim=WIDTH, metric="hamming", dtype="b1")
    graph.add(np.arange(COUNT), codes(), threads=1)
    graph.save(str(folder / "index"))


def search_usearch(folder: Path) -> list[NDArray[Any]]:
    """Return the nearest codes of every code."""
    from usearch.index import Index as Graph

    graph = Graph(ndim=WIDTH, metric="hamming", dtype="b1")
    graph.load(str(folder / "index"))
    matches = graph.search(codes(), MEMBERS, threads=1)
    return [matches.keys, matches.distances]


PEERS: dict[str, tuple[Callable[[Path], None], Callable[[Path], list[NDArray[Any]]]]] = {
    "nestcode": (write_ours, search_ours),
    "FAISS flat": (write_faiss, search_faiss),
    "usearch": (write_usearch, search_usearch),
}

if __name__ == "__main__":
    main()
