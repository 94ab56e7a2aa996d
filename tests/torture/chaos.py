"""Hostile clients beside an honest one: it is answered, and rightly, and the service keeps within its memory.

Each trial starts a service, lets some attackers loose on it and searches meanwhile. A service hangs if it does not
answer in the time that it runs or sleeps: what it waits for a processor of a busy machine does not count.
`python -m tests.torture.chaos SEARCHES --page docs/reliability.md` writes how long the honest client waits, quiet and
under each attack.
"""

import argparse
import contextlib
import os
import re
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

import httpx
import numpy as np

import nestcode as nc
from nestcode.serve import Limits, Service, create_app
from nestcode.serve.server import address_of, listen, run
from nestcode.storage import allow_files
from nestcode.wire import FLOAT32, HITS, unpack_hits
from tests.torture.files import CODER, ITEMS
from tests.torture.run import HANG, Outcome, Trial, report_alive

ATTACKERS, SEARCHES = 4, 10  # threads of one attack, searches of the honest client beside it
PATIENCE = HANG / 4  # seconds for one answer, in which the service may run or sleep
NICE = 10  # of attackers: they stand for other machines, and must not take the processor of the service
PACE = 0.05  # seconds between two searches that are measured, which see all of an attack
PAUSE = 0.1  # seconds of an attacker between two rounds: what is tried is not who has the larger machine
CROWD = 10_000  # connections of one attack
ROOM = 600 << 20  # bytes that an attack may cost beyond what the service takes before: twice the budget of bodies
LARGE = 8 << 20  # bytes of a file that is served
LIMITS = Limits(seconds=HANG, connections=256)
K = 3
MARKS = re.compile(r"(?<=<!-- chaos -->\n).*(?=<!-- /chaos -->)", re.DOTALL)

Connect = Callable[[], socket.socket]
Attack = Callable[[Connect, Random], None]  # one round of one attacker


def trials(random: Random, folder: Path) -> Iterator[Trial]:
    """Attack after attack on the service of one index."""
    make_data(folder)
    while True:
        for name, attack in ATTACKS.items():
            yield name, partial(withstand, folder, attack, Random(random.random()))


def make_data(folder: Path) -> None:
    """Save an index with vectors, and a file that is larger than what the system takes for a client."""
    index = nc.Index(CODER, vectors="float32")
    index.add(ITEMS)
    index.save(folder / "index")
    (folder / "large.nest").write_bytes(bytes(LARGE))


# The attacks: each connects, does harm and leaves


def pipeline(connect: Connect, random: Random) -> None:
    """Thousands of requests at once."""
    with connect() as one:
        one.sendall(b"GET /v1/info HTTP/1.1\r\nHost: localhost\r\n\r\n" * random.choice([100, 6000]))
        one.recv(1)


def deaf(connect: Connect, random: Random) -> None:
    """Hundreds of connections that send requests for small and large answers, and read nothing."""
    with contextlib.ExitStack() as stack:
        for _ in range(LIMITS.connections // 2):  # together twice as many as may wait
            one = stack.enter_context(connect())
            path = random.choice([b"/healthz", b"/v1/streams/large.nest"])
            one.sendall(b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % path * random.choice([1, 2, 3]))
        time.sleep(50 * PAUSE)


def stay(connect: Connect, random: Random) -> None:
    """Hundreds of connections that are answered, and stay."""
    with contextlib.ExitStack() as stack:
        for _ in range(LIMITS.connections):
            one = stack.enter_context(connect())
            one.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            one.recv(1 if random.random() < 0.5 else 4096)
        time.sleep(10 * PAUSE)


def half_open(connect: Connect, random: Random) -> None:
    """Hundreds of connections that send half of a head and stay."""
    with contextlib.ExitStack() as stack:
        for _ in range(400):
            one = stack.enter_context(connect())
            one.sendall(b"GET / HTTP/1.1\r\nHost: loc"[: random.randrange(26)])
        time.sleep(10 * PAUSE)


def crowd(connect: Connect, random: Random) -> None:
    """Ten thousand connections, together: most are silent, some send a request, and all stay."""
    allow_files(CROWD)
    with contextlib.ExitStack() as stack:
        for number in range(CROWD // ATTACKERS):
            if number % 50 == 0:
                time.sleep(PAUSE)
            with contextlib.suppress(TimeoutError):  # the system holds some thousands until they are accepted
                one = stack.enter_context(connect())
                if random.random() < 0.2:
                    one.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        time.sleep(10 * PAUSE)


def slow(connect: Connect, random: Random) -> None:
    """Bodies that do not arrive whole."""
    with contextlib.ExitStack() as stack:
        for _ in range(5):
            one = stack.enter_context(connect())
            one.sendall(head(FLOAT32, LIMITS.body) + bytes(random.choice([10, 1 << 20])))
        time.sleep(10 * PAUSE)


def oversized(connect: Connect, random: Random) -> None:
    """JSON of millions of values, and bodies beyond the limits."""
    size = random.choice([LIMITS.json - 100, LIMITS.json + 100, 12 << 20])
    one = random.choice([b"0,", b"[],", b'"a":0,', b'"",'])
    start = random.choice([b'{"vectors":[', b'{"vectors":[[', b'{"filter":[', b'{"ids":[', b"{"])
    body = (start + one * (size // len(one)))[:size]
    post(connect, "application/json", body, len(body))


def lying(connect: Connect, random: Random) -> None:
    """Bodies of another length or kind than their heads say."""
    body = random.randbytes(random.randrange(5000))
    kind = random.choice([FLOAT32, "application/json", HITS, "text/plain"])
    post(connect, kind, body, random.choice([0, len(body) // 2, len(body) * 2, 10**15]))


def post(connect: Connect, kind: str, body: bytes, length: int) -> None:
    with connect() as one:
        one.sendall(head(kind, length) + body)
        one.recv(1)


def head(kind: str, length: int) -> bytes:
    lines = "POST /v1/search HTTP/1.1", "Host: localhost", f"Content-Type: {kind}", f"Content-Length: {length}"
    return "\r\n".join((*lines, "\r\n")).encode()


ATTACKS: dict[str, Attack] = {
    "pipelining": pipeline,
    "pipelining without reading": deaf,
    "connections that stay": stay,
    "half-open connections": half_open,
    "bodies that stall": slow,
    "oversized JSON": oversized,
    "lengths and types that lie": lying,
    "ten thousand connections": crowd,
}


# The service, the honest client and the judgment


def withstand(folder: Path, attack: Attack, random: Random) -> Outcome:
    """Attack a service while an honest client searches."""
    with serving(folder) as (child, url), attacked(url, attack, random):
        before = memory(child)
        search(child, url, SEARCHES)
        assert os.waitpid(child, os.WNOHANG) == (0, 0), "the service ended"
        spent = memory(child) - before
        assert spent < ROOM, f"the attack cost {spent >> 20} MiB"
    return "intact"


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[tuple[int, str]]:
    """Serve an index in a forked child, and yield its process id and its address."""
    with listen("127.0.0.1", 0) as listening:
        url, child = address_of(listening), os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # it warns of every invalid request
                app = create_app(Service(folder / "index", streams=folder, threads=1, limits=LIMITS))
                run(app, LIMITS, listening)
            os._exit(1)
    try:
        search(child, url, 1)
        yield child, url
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@contextlib.contextmanager
def attacked(url: str, attack: Attack, random: Random) -> Iterator[None]:
    """Let attackers loose on a service, in a process of their own."""
    parts = urlsplit(url)
    address = parts.hostname or "", parts.port or 0

    def repeat(own: Random) -> None:
        while True:
            source = f"127.0.{own.randrange(1, 255)}.1", 0  # another machine than the honest client
            with contextlib.suppress(OSError):  # they are cut off
                attack(partial(socket.create_connection, address, 5, source), own)
            time.sleep(PAUSE)

    child = os.fork()
    if child == 0:
        os.nice(NICE)
        for _ in range(ATTACKERS):
            threading.Thread(target=repeat, args=(Random(random.random()),)).start()
        while True:
            signal.pause()
    try:
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def search(child: int, url: str, count: int, pause: float = 0.0) -> list[float]:
    """Search for items with new connections, and return the seconds of each answer."""
    seconds = []
    for row in islice(cycle(ITEMS), count):
        time.sleep(pause)
        start = time.perf_counter()
        sent = answer(child, f"{url}v1/search?k={K}", row.tobytes())
        seconds.append(time.perf_counter() - start)
        assert sent.status_code == 200, sent.text
        assert unpack_hits(sent.content, 1, K).distances[0, 0] == 0
        report_alive()
    return seconds


def answer(child: int, url: str, content: bytes) -> httpx.Response:
    """Return the answer to a request; what is refused, reset or starved of a processor is asked again."""
    watch, headers = Stopwatch(child), {"Content-Type": FLOAT32, "Accept": HITS}
    while True:
        late = watch.seconds() > PATIENCE
        try:
            # No address here is of TLS, whose certificates would be read for each request.
            sent = httpx.post(url, content=content, headers=headers, timeout=PATIENCE, verify=False)
        except httpx.TransportError:  # a reset too, of one that is late among twice as many as may wait
            if watch.seconds() > PATIENCE:
                raise
        else:
            if sent.status_code != 503 or late:
                return sent
        report_alive()
        time.sleep(PAUSE)


class Stopwatch:
    """Measures seconds in which a process ran or slept, but not those in which its threads waited for a processor.

    A twentieth of all seconds counts at least, so that one that is never idle is not waited for without end.
    """

    def __init__(self, child: int) -> None:
        self._threads = Path(f"/proc/{child}/task")
        self._start, self._before = time.perf_counter(), self._starved()

    def seconds(self) -> float:
        elapsed = time.perf_counter() - self._start
        return max(elapsed - (self._starved() - self._before), elapsed / 20)

    def _starved(self) -> float:
        """Return the seconds that threads were ready to run and no processor was free for them."""
        return sum(int(path.read_text().split()[1]) for path in self._threads.glob("*/schedstat")) / 1e9


def memory(child: int) -> int:
    """Return the most bytes that a process has taken so far."""
    status = Path(f"/proc/{child}/status").read_text()
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


def main() -> None:
    """Print the median and the 99th percentile of the honest client's waits, quiet and under each attack."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("searches", type=int, nargs="?", default=200)
    parser.add_argument("--page", type=Path, help="a page to write the table into, between its marks")
    given = parser.parse_args()
    attacks: dict[str, Attack] = {"quiet": lambda *_: time.sleep(0.1), **ATTACKS}
    lines, quiet = ["| | median, ms | p99, ms | p99 to quiet | memory, MiB |", "|---|--:|--:|--:|--:|"], 0.0
    with tempfile.TemporaryDirectory() as folder:
        make_data(Path(folder))
        for name, attack in attacks.items():
            with serving(Path(folder)) as (child, url), attacked(url, attack, Random(0)):
                waits = 1e3 * np.array(search(child, url, given.searches, PACE))
                worst = float(np.quantile(waits, 0.99))
                quiet = quiet or worst
                spent = memory(child) >> 20
            lines.append(f"| {name} | {np.median(waits):.1f} | {worst:.1f} | {worst / quiet:.1f} | {spent} |")
    text = "\n".join([*lines, f"\n{given.searches} searches each, on {os.cpu_count()} cores.\n"])
    print(text)
    if given.page is not None:
        given.page.write_text(MARKS.sub(lambda _: text, given.page.read_text()))


if __name__ == "__main__":
    main()
