"""A service that is killed while clients write: what it acknowledged is there, and nothing else but writes under way.

Each client has ids of its own and waits for the answer to a write before it sends the next, so what the index must hold
is known up to one write of each client.
"""

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random

from nestcode import Index
from nestcode.client import Client
from nestcode.errors import Unavailable
from nestcode.serve import Limits, Service, create_app
from nestcode.serve.server import address_of, listen, run
from tests.index.test_durability import strays
from tests.index.writer import WIDTH, codes_of
from tests.torture.run import HANG, Outcome, Trial

CLIENTS, IDS = 3, 8  # ids of each client
WRITES = 40  # acknowledged before a kill, at most
PATIENCE = 2 * HANG  # seconds for one answer: a service that hangs is counted as such
LOST = "does not answer"  # what a client says of a connection that was closed
Seeds = dict[int, int]  # of the code of each item


def trials(random: Random, folder: Path) -> Iterator[Trial]:
    """Kill after kill of the service of one index."""
    Index(width=WIDTH).save(folder / "index")
    held: Seeds = {}
    for number in range(10**9):
        yield "killed under writes", partial(kill, Random(random.random()), folder / "index", held, number)


def kill(random: Random, folder: Path, held: Seeds, number: int) -> Outcome:
    """Kill a service after some writes, and judge the index; `held` is what it holds, before and after."""
    with listen("127.0.0.1", 0) as listening:
        url, child = address_of(listening), serve(folder, listening)
    acknowledged = threading.Semaphore(0)
    writers = [Writer(url, Random(random.random()), held, own, number, acknowledged) for own in range(CLIENTS)]
    left = random.randrange(WRITES)
    while left and any(writer.thread.is_alive() for writer in writers):
        left -= acknowledged.acquire(timeout=0.1)
    time.sleep(random.random() / 200)
    os.kill(child, signal.SIGKILL)
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert ended == -signal.SIGKILL, f"the service ended with {ended} by itself"
    for writer in writers:
        writer.thread.join()
        if writer.failure is not None:
            raise writer.failure
    return judge(folder, held, writers)


def serve(folder: Path, listening: socket.socket) -> int:
    """Serve an index in a forked child, and return its process id."""
    child = os.fork()
    if child == 0:
        try:
            limits = Limits(seconds=PATIENCE)
            app = create_app(Service(folder, writable=True, threads=1, limits=limits))
            run(app, limits, listening)
        finally:
            os._exit(1)
    return child


class Writer:
    """A client that adds, replaces and removes items of its own until the service is gone."""

    def __init__(
        self, url: str, random: Random, held: Seeds, own: int, number: int, acknowledged: threading.Semaphore
    ) -> None:
        self._url, self._random, self._acknowledged = url, random, acknowledged
        self._seed = number * 10**6 + own * 10**5  # no two writes have the same code
        self.held = {item: seed for item, seed in held.items() if item % CLIENTS == own}
        self._ids = range(own, IDS * CLIENTS, CLIENTS)
        self.under_way: tuple[int, int | None] | None = None  # an item, and the seed of its code unless it is removed
        self.failure: BaseException | None = None
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        try:
            with Client(self._url, timeout=PATIENCE) as client:
                while True:
                    self._write(client)
                    self._acknowledged.release()
        except Unavailable as error:
            self.failure = None if LOST in str(error) else error
        except BaseException as error:
            self.failure = error

    def _write(self, client: Client) -> None:
        item = self._random.choice(self._ids)
        if item in self.held and self._random.random() < 0.3:
            self.under_way = item, None
            client.remove([item])
            del self.held[item]
        else:
            self._seed += 1
            self.under_way = item, self._seed
            client.add(codes_of([self._seed]), ids=[item], on_duplicate="replace")
            self.held[item] = self._seed
        self.under_way = None


def judge(folder: Path, held: Seeds, writers: list[Writer]) -> Outcome:
    """Compare the index with what was acknowledged; each write under way is there, or not."""
    Index.open(folder, mode="a").close()  # sweeps what the kill left
    held.clear()
    for writer in writers:
        held.update(writer.held)
    with Index.open(folder) as index:
        index.verify()
        assert strays(folder) == set()
        found = {item: index.codes([item]) for item in index.ids.tolist()}
    for item, seed in (writer.under_way for writer in writers if writer.under_way is not None):
        if found.get(item) == (None if seed is None else codes_of([seed])):
            if seed is None:
                del held[item]
            else:
                held[item] = seed
    return "refused" if found == {item: codes_of([seed]) for item, seed in held.items()} else "lost"
