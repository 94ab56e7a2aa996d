"""Damaged files: what an index does with them, beside FAISS's flat binary index and usearch's graph.

Each index of the same codes is saved, a copy of it is damaged, and a new process loads the copy and looks for every
code. A flip changes one bit, a cut drops what is after a random place, a gap is 4,096 bytes set to zero; places are
even over all bytes of all its files. The answer is right if it is the one of the undamaged files; a process that dies
or never ends is a crash. An index that answers wrongly without a word is what checksums are for.
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
SECONDS, MEMORY = 60, 16 << 30  # what a process may take
OUTCOMES = ["errors", "right answers", "wrong answers", "crashes"]


def main() -> None:
    """Damage, load, print and save."""
    options = arguments(__doc__)
    trials = 1 if options.quick else 50
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(2) as pool:
        rows = []
        for peer, (write, _) in PEERS.items():
            folder = Path(scratch) / peer
            folder.mkdir()
            write(folder)
            truth = outcome(peer, folder)
            for kind in DAMAGE:
                copies = [damaged(folder, kind, Random(seed)) for seed in range(trials)]
                counts = Counter(pool.map(partial(outcome, peer, truth=truth), copies))
                rows.append({"index": peer, "damage": kind, "files": trials, **{one: counts[one] for one in OUTCOMES}})
                for copy in copies:
                    shutil.rmtree(copy)
    note = f"{COUNT:,} codes of {WIDTH} bits; each damaged copy is loaded by a process of its own."
    show("What becomes of damaged files", rows, note)
    save(options.json, rows, ["nestcode", "faiss-cpu", "usearch"])


# Damage


def damaged(folder: Path, kind: str, random: Random) -> Path:
    """A copy with one file of it damaged, at a place even over all bytes."""
    copy = Path(tempfile.mkdtemp(dir=folder.parent))
    shutil.copytree(folder, copy, dirs_exist_ok=True)
    files = sorted(path for path in copy.iterdir() if path.stat().st_size)
    path = random.choices(files, [file.stat().st_size for file in files])[0]
    path.write_bytes(DAMAGE[kind](path.read_bytes(), random))
    return copy


def flip(data: bytes, random: Random) -> bytes:
    """Change one bit."""
    place = random.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1 << random.randrange(8)]) + data[place + 1 :]


def cut(data: bytes, random: Random) -> bytes:
    """Drop the end."""
    return data[: random.randrange(len(data))]


def gap(data: bytes, random: Random) -> bytes:
    """Set up to 4,096 bytes to zero."""
    start = random.randrange(len(data))
    end = min(start + 4096, len(data))
    return data[:start] + bytes(end - start) + data[end:]


DAMAGE: dict[str, Callable[[bytes, Random], bytes]] = {"flip": flip, "cut": cut, "gap": gap}


def outcome(peer: str, folder: Path, truth: str | None = None) -> str:
    """What a new process makes of a folder; without a truth to compare with, what it answers."""
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
    """Load, look for every code and print a checksum of all answers; an error ends the process with 1."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    digest = hashlib.sha256()
    for array in PEERS[peer][1](Path(folder)):
        digest.update(np.ascontiguousarray(array).tobytes())
    print(digest.hexdigest())


# Indexes


def codes() -> NDArray[np.uint8]:
    """The codes that each index holds."""
    return np.random.default_rng(0).integers(0, 256, (COUNT, WIDTH // 8), dtype=np.uint8)


def write_ours(folder: Path) -> None:
    """A folder of files."""
    index = Index(width=WIDTH)
    index.add(Codes(codes(), WIDTH))
    index.save(folder)


def ask_ours(folder: Path) -> list[NDArray[Any]]:
    """Neighborhoods of every code, and all codes: most of their bits a search need not read."""
    index = Index.open(folder)
    hoods = index.neighborhood(Codes(codes(), WIDTH), size=MEMBERS)
    return [hoods.length, hoods.count, *(hood.ids for hood in hoods), index.codes(index.ids).packed]


def write_faiss(folder: Path) -> None:
    """One file of codes."""
    import faiss

    index = faiss.IndexBinaryFlat(WIDTH)
    index.add(codes())
    faiss.write_index_binary(index, str(folder / "index"))


def ask_faiss(folder: Path) -> list[NDArray[Any]]:
    """Nearest codes of every code."""
    import faiss

    return list(faiss.read_index_binary(str(folder / "index")).search(codes(), MEMBERS))


def write_usearch(folder: Path) -> None:
    """One file of codes and a graph."""
    from usearch.index import Index as Graph

    graph = Graph(ndim=WIDTH, metric="hamming", dtype="b1")
    graph.add(np.arange(COUNT), codes(), threads=1)
    graph.save(str(folder / "index"))


def ask_usearch(folder: Path) -> list[NDArray[Any]]:
    """Nearest codes of every code."""
    from usearch.index import Index as Graph

    graph = Graph(ndim=WIDTH, metric="hamming", dtype="b1")
    graph.load(str(folder / "index"))
    matches = graph.search(codes(), MEMBERS, threads=1)
    return [matches.keys, matches.distances]


PEERS: dict[str, tuple[Callable[[Path], None], Callable[[Path], list[NDArray[Any]]]]] = {
    "nestcode": (write_ours, ask_ours),
    "FAISS flat": (write_faiss, ask_faiss),
    "usearch": (write_usearch, ask_usearch),
}

if __name__ == "__main__":
    main()
