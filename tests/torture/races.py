"""Threads that share what may be shared, for ThreadSanitizer: searches beside writes, and coders that many use.

python tools/sanitized.py thread [SECONDS] [SEED]    on a core that reports races
python -m tests.torture.races [SECONDS] [SEED]       on the usual one: answers must still be right
"""

import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Literal

import numpy as np

import nestcode as nc
from nestcode.index import PrefixTree, compaction

FEATURES, FIRST, EACH, QUERIES, K = 12, 600, 40, 9, 5
ROWS = np.random.default_rng(0).standard_normal((2000, FEATURES)).astype(np.float32)
CODERS: list[Any] = [
    nc.LinearCoder(64),
    nc.CellCoder(64, cells=16),
    nc.ResidualCoder(24, beams=2),
    nc.AdaptiveCoder(24, beams=1),
]
STORED: list[Literal["float32", "float16", "int8"] | None] = ["float32", "float16", "int8", None]
Work = Callable[[Random], None]


def main() -> None:
    """Run rounds for some seconds: each with another coder, vectors, graph and filter."""
    given = sys.argv[1:]
    seconds, seed = float(given[0]) if given else 30.0, int(given[1]) if len(given) > 1 else 0
    compaction.MIN_GRAPH = 200  # so that small segments have graphs
    coders, rounds, start = [coder.fit(ROWS) for coder in CODERS], 0, time.monotonic()
    while rounds == 0 or time.monotonic() - start < seconds:
        random = Random(seed + rounds)
        share_an_index(coders[rounds % len(coders)], random)
        share_a_coder(coders[rounds % len(coders)], random)
        rounds += 1
    print(f"{rounds} rounds, nothing was wrong")


def together(works: list[Work], random: Random) -> None:
    """Run all in threads of their own, and raise what one of them raised."""
    failures: list[BaseException] = []

    def work(one: Work, own: Random) -> None:
        try:
            one(own)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(one, Random(random.random()))) for one in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def share_an_index(coder: nc.Coder, random: Random) -> None:
    """Search, write, compact, commit and save in threads; an item that stays is found all the time."""
    stored, graph = random.choice(STORED), isinstance(coder, nc.LinearCoder) and random.random() < 0.5
    with tempfile.TemporaryDirectory() as folder:
        first = nc.Index(coder, vectors=stored, graph=graph and stored is not None)
        first.add(ROWS[:FIRST], attributes={"year": np.arange(FIRST) % 7})
        first.save(Path(folder) / "index")
        done = threading.Event()
        with nc.Index.open(Path(folder) / "index", mode="a") as index:

            def write(own: Random) -> None:
                try:
                    for ids in np.split(np.arange(FIRST, FIRST + 12 * EACH), 12):
                        index.add(ROWS[ids], ids, attributes={"year": np.full(EACH, own.randrange(7))})
                        index.remove(own.sample(ids.tolist(), EACH // 2))
                        if own.random() < 0.3:
                            index.compact()
                        if own.random() < 0.5:
                            index.commit()
                finally:
                    done.set()

            def read(own: Random) -> None:
                while not done.is_set():
                    search(index, coder, own)

            def look(own: Random) -> None:
                while not done.is_set():
                    own.choice((index.verify, index.wait))()
                    other = nc.Index.open(Path(folder) / "index")
                    assert len(other) >= FIRST
                    other.refresh()
                    other.close()

            together([write, read, read, look], random)


def search(index: nc.Index, coder: nc.Coder, random: Random) -> None:
    """Search in one of many ways for items that nobody removes."""
    items = random.sample(range(FIRST), QUERIES)
    queries, threads = ROWS[items], random.choice([1, 2, 3])
    allowed: Any = random.choice([None, "year < 3", np.arange(FIRST), [1, 2, 3]])
    hits = index.search(queries, K, filter=allowed, threads=threads, candidates=random.choice([None, 50]))
    assert hits.ids.shape == (QUERIES, K)
    assert index.codes(items) == coder.encode(queries)
    index.neighborhood(queries, size=random.choice([1, 30]), threads=threads)
    if random.random() < 0.1:
        index.range_search(queries, 1.0)


def share_a_coder(coder: nc.Coder, random: Random) -> None:
    """Encode, decode and compress in threads: what each gets is what one thread gets."""
    codes = coder.encode(ROWS)
    decoded, stream = coder.decode(codes.prefix(11)), nc.compress(ROWS[:200], coder)
    tree = PrefixTree(codes)
    expected = tree.neighborhoods(codes[:50], size=9)

    def work(own: Random) -> None:
        for _ in range(3):
            assert coder.encode(ROWS) == codes
            assert np.array_equal(coder.decode(codes.prefix(11)), decoded)
            assert nc.compress(ROWS[:200], coder) == stream
            assert nc.decompress(stream, coder).shape == (200, FEATURES)
            found = tree.neighborhoods(codes[:50], size=9, threads=own.choice([1, 2]))
            assert np.array_equal(found.length, expected.length)

    together([work] * 3, random)


if __name__ == "__main__":
    main()
