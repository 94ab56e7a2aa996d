"""Clients that search a cluster while its actors and nodes are killed: every answer is compared with one index's."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import ray
from ray.cluster_utils import Cluster

from nestcode import Index
from nestcode.scale.ray import SearchCluster
from tests.scale.test_shards import QUERIES

PATIENCE = 60.0  # seconds for a request: an answer later is lost
RECOVERY = 120.0  # seconds until all replicas answer
STARTS = 3  # of a cluster: Ray gives its processes half a minute, which they miss on a busy machine
# Without Ray's processes that collect logs and add nodes: each imports Ray, and nothing here asks for them.
NODE = {"num_cpus": 1, "object_store_memory": 100 << 20, "include_log_monitor": False, "no_monitor": True}


def started() -> Cluster:
    """Return a cluster of one node."""
    for left in reversed(range(STARTS)):
        try:
            return Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
        except Exception as error:
            if "timed out" not in str(error) or not left:
                raise
    raise AssertionError


class Client:
    """A thread that searches until it is stopped, and counts right, wrong and lost answers."""

    def __init__(self, cluster: SearchCluster, parts: Sequence[Path], seed: int) -> None:
        self._cluster, self._random, self._questions = cluster, Random(seed), questions(Index.open(parts))
        self.right, self.wrong, self.lost = 0, 0, []  # type: ignore[var-annotated]
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.is_set():
            ask, expected = self._random.choice(self._questions)
            try:
                found = ask(self._cluster)
            except Exception as error:
                self.lost.append(error)
                continue
            self.right, self.wrong = self.right + (found == expected), self.wrong + (found != expected)

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()
        self._thread.join()


def questions(index: Index) -> list[tuple[Callable[[Any], Any], Any]]:
    """Return questions to a cluster or an index, with the answers of the index."""

    def search(at: Any) -> Any:
        hits = at.search(QUERIES[:4], k=7)
        return hits.ids.tolist(), hits.distances.tolist()

    def neighborhood(at: Any) -> Any:
        return [(hood.length, hood.ids.tolist()) for hood in at.neighborhood(QUERIES[:4], size=9)]

    def within(at: Any) -> Any:
        return [hits.ids.tolist() for hits in at.range_search(QUERIES[:3], 9.0)]

    def codes(at: Any) -> Any:
        return at.codes(ids).packed.tolist()

    ids = index.ids[[3, -1, 70]]
    return [(ask, ask(index)) for ask in (search, neighborhood, within, codes)]


@contextmanager
def clients(cluster: SearchCluster, parts: Sequence[Path], count: int = 2) -> Iterator[list[Client]]:
    """Search from some threads meanwhile."""
    found = [Client(cluster, parts, seed) for seed in range(count)]
    try:
        yield found
    finally:
        for client in found:
            client.stop()


def process_of(cluster: SearchCluster, part: int, replica: int) -> int:
    """Return the id of an actor's process, once it is there."""
    start = time.monotonic()
    while True:
        try:
            return int(ray.get(cluster.actors()[part][replica].ready.remote()))
        except ray.exceptions.RayError:
            assert time.monotonic() - start < RECOVERY
            time.sleep(0.1)
