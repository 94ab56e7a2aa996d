"""FAISS, usearch and rabitqlib beside our index under the same damage: bytes flipped, a file resized or overwritten.

Their formats have no checksums, so what comes of it is no bug of theirs: it is what files without checksums do.
"""

import os
import signal
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from tests.damage import Files, flipped, overwritten, resized
from tests.torture.files import ITEMS, make_index, put, read_index
from tests.torture.run import Outcome, Trial

Search = Callable[[Path], Any]  # in what a folder holds
FAISS = {"FAISS IndexFlat": "Flat", "FAISS IndexIVFPQ": "IVF4,PQ4x3", "FAISS IndexHNSW": "HNSW8"}
SECONDS = 20


def trials(random: Random, folder: Path) -> Iterator[Trial]:
    """The same damage to a file of each."""
    searches = {name: make_faiss(folder / name, kind) for name, kind in FAISS.items()}
    searches["usearch"] = make_usearch(folder / "usearch")
    if find_spec("rabitqlib") is not None:  # of the extra `peers`
        searches["rabitqlib SymphonyQG"] = make_symphony(folder / "rabitqlib SymphonyQG")
    make_index(folder / "Nestcode Index", seed=0)
    searches["Nestcode Index"] = read_index
    originals = {name: {path.name: path.read_bytes() for path in (folder / name).iterdir()} for name in searches}
    answers = {name: search(folder / name) for name, search in searches.items()}
    while True:
        for name, search in searches.items():
            changed = random.choice([flipped, resized, overwritten])(originals[name], random)
            yield name, partial(judge, search, folder / name, originals[name], changed, answers[name])


def judge(search: Search, folder: Path, files: Files, changed: Files, answer: Any) -> Outcome:
    """Search in a damaged file, in a child of this process, since it may not survive that."""
    put(changed, folder)
    child = os.fork()
    if child == 0:
        code = 2  # refused, in whatever way
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(SECONDS)
            code = 0 if search(folder) == answer else 3
        finally:
            os._exit(code)
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    put({name: files[name] for name in changed}, folder)
    outcomes: dict[int, Outcome] = {0: "intact", 2: "refused", 3: "wrong", -signal.SIGALRM: "hangs"}
    return outcomes.get(ended, "crashes")


def make_faiss(folder: Path, kind: str) -> Search:
    """Write an index of FAISS."""
    import faiss

    folder.mkdir()
    index = faiss.index_factory(ITEMS.shape[1], kind)
    index.train(ITEMS)
    index.add(ITEMS)
    faiss.write_index(index, str(folder / "file"))

    def search(folder: Path) -> Any:
        distances, ids = faiss.read_index(str(folder / "file")).search(ITEMS[:20], 5)
        return ids.tolist(), distances.tolist()

    return search


def make_usearch(folder: Path) -> Search:
    """Write an index of usearch."""
    from usearch.index import Index as Usearch

    folder.mkdir()
    index = Usearch(ndim=ITEMS.shape[1], metric="l2sq")
    index.add(np.arange(len(ITEMS)), ITEMS)
    index.save(folder / "file")

    def search(folder: Path) -> Any:
        restored = Usearch.restore(folder / "file")
        assert restored is not None
        found = restored.search(ITEMS[:20], 5)
        return found.keys.tolist(), found.distances.tolist()

    return search


def make_symphony(folder: Path) -> Search:
    """Write an index of rabitqlib."""
    import rabitqlib

    folder.mkdir()
    wide = np.tile(ITEMS, 8)  # it takes no fewer than 64 features
    index = rabitqlib.SymqgIndex(wide.shape[1], 32, "l2")
    index.build(wide, 100, 1)
    index.save(str(folder / "file"))

    def search(folder: Path) -> Any:
        ids, distances = rabitqlib.SymqgIndex.load(str(folder / "file")).search(wide[:20], 5, 50)
        return ids.tolist(), distances.tolist()

    return search
