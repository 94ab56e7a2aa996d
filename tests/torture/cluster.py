"""A cluster whose actors, nodes, processes and files fail while clients search: no answer is wrong, and none is lost.

Two clients compare every answer with that of one index over all parts. A trial breaks something, and ends when both had
more answers. It waits for states and never for seconds: a request is lost when it gets an error, and the worker hangs
when no client has an answer for as long as a worker may be silent.
"""

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import ray

from nestcode.scale import merge_shards
from nestcode.scale.ray import SearchCluster
from tests.scale.faults import NODE, Client, clients, started
from tests.scale.test_shards import encoded
from tests.torture.run import HANG, Outcome, Trial, report_alive

REPLICAS, PARTS = 2, 2
ANSWERS = 5  # of each client after a fault
KNOWN = 150  # answers of each client until a slow replica gets a competitor: 20 of each kind of request
LOOK = 0.02  # seconds between two looks at a state
KILLS = 6  # of actors for one of each other fault


@dataclass
class Place:
    """What is broken, and who notices."""

    nodes: Any
    worker: Any  # the node that is lost; the other one has the driver
    cluster: SearchCluster
    generations: tuple[Path, Path]  # copies of the same parts
    found: Sequence[Client]

    @property
    def right(self) -> list[int]:
        """Right answers of each client so far."""
        return [client.right for client in self.found]


def trials(random: Random, folder: Path) -> Iterator[Trial]:
    """Fault after fault on one cluster."""
    with opened(folder) as place:
        while True:
            for _ in range(KILLS):
                yield "actors killed", partial(suffer, place, kill, random)
            for name, fault in FAULTS.items():
                yield name, partial(suffer, place, fault, random)


@contextmanager
def opened(folder: Path) -> Iterator[Place]:
    """Start nodes, and clients that search parts on them."""
    generations = folder / "a", folder / "b"
    shards = encoded(folder / "shards", [np.arange(2000)])
    for generation in generations:
        merge_shards(shards, generation, parts=PARTS)
    parts = sorted(generations[0].glob("part-*"))
    nodes = started()
    try:
        worker = nodes.add_node(wait=False, **NODE)
        ray.init(address=nodes.address, logging_level="error", log_to_driver=False)
        while sum(node["Alive"] for node in ray.nodes()) < 2:
            time.sleep(LOOK)
        late = 2 * HANG  # a request that hangs is counted as such
        with (
            SearchCluster(generations[0], replicas=REPLICAS, timeout=late, start_timeout=late, num_cpus=0) as cluster,
            clients(cluster, parts) as found,
        ):
            yield Place(nodes, worker, cluster, generations, found)
    finally:
        ray.shutdown()
        nodes.shutdown()


def suffer(place: Place, fault: Callable[[Place, Random], None], random: Random) -> Outcome:
    """Break something, wait for answers, and judge them."""
    fault(place, random)
    wait_for_answers(place, ANSWERS)
    errors = [error for client in place.found for error in client.lost]
    wrong = sum(client.wrong for client in place.found)
    for client in place.found:
        client.lost.clear()
        client.wrong = 0
    for error in errors:
        print(f"{fault.__name__}: {type(error).__name__}: {error}", file=sys.stderr)
    return "wrong" if wrong else "lost" if errors else "intact"


# The faults


def kill(place: Place, random: Random) -> None:
    """Kill the process of an actor, or the actor and all that Ray knows of it."""
    time.sleep(random.random() / 50)
    actor = random.choice([one for own in place.cluster.actors() for one in own])
    if random.random() < 0.3:
        ray.kill(actor)
    else:
        end(process_of(place, random), signal.SIGKILL)


def lose_node(place: Place, random: Random) -> None:
    """Spread the replicas of the other generation over all nodes, and end one node with all that runs there."""
    now = Path(place.cluster.metrics()[0]["path"]).parent
    place.cluster.refresh(next(folder for folder in place.generations if folder != now))
    wait_for_answers(place, random.randrange(ANSWERS))
    place.nodes.remove_node(place.worker, allow_graceful=False)
    wait_for_answers(place, ANSWERS)
    place.worker = place.nodes.add_node(wait=False, **NODE)  # which would raise after some seconds


def stop_process(place: Place, random: Random) -> None:
    """Stop the process of a replica, so that it answers nobody, and let it go on."""
    wait_for_answers(place, KNOWN)
    process = process_of(place, random)
    end(process, signal.SIGSTOP)
    wait_for_answers(place, KNOWN)
    end(process, signal.SIGCONT)


def damage(place: Place, random: Random) -> None:
    """Damage a file that replicas have open, kill one of them, and restore the file."""
    wait_for_replicas(place)
    part, replica = random.randrange(PARTS), random.randrange(REPLICAS)
    folder = Path(place.cluster.metrics()[part]["path"])
    file = random.choice(sorted(folder.glob("*.npy")))
    copy, content = file.with_suffix(".copy"), bytearray(file.read_bytes())
    shutil.copy(file, copy)
    content[random.randrange(len(content))] ^= 1 << random.randrange(8)
    broken = file.with_suffix(".broken")
    broken.write_bytes(content)
    broken.replace(file)
    ray.kill(place.cluster.actors()[part][replica])
    wait_for_answers(place, ANSWERS)
    wait_for_replicas(place)
    wait_for_answers(place, ANSWERS)
    copy.replace(file)
    ray.kill(place.cluster.actors()[part][replica])  # which may not have read the damage yet


FAULTS = {"a node lost": lose_node, "a replica stopped": stop_process, "a part damaged": damage}


# States


def process_of(place: Place, random: Random) -> int:
    """Return the process of a replica that answers."""
    while True:
        actor = random.choice([one for own in place.cluster.actors() for one in own])
        try:
            return int(ray.get(actor.ready.remote(), timeout=1))
        except ray.exceptions.RayError:
            wait_for_answers(place, 1)


def end(process: int, with_signal: signal.Signals) -> None:
    """Send a signal to a process, which may have ended."""
    try:
        os.kill(process, with_signal)
    except ProcessLookupError:
        return


def wait_for_replicas(place: Place) -> None:
    """Wait until all replicas answer."""
    wait(lambda: all(part["ready"] == REPLICAS for part in place.cluster.metrics()), place)


def wait_for_answers(place: Place, count: int) -> None:
    """Wait until each client has had some more answers, or an error."""
    before = place.right
    wait(lambda: all(c.right >= had + count or c.lost for c, had in zip(place.found, before, strict=True)), place)


def wait(holds: Callable[[], bool], place: Place) -> None:
    """Wait for a state as long as clients have answers."""
    before = place.right
    while not holds():
        time.sleep(LOOK)
        if place.right != before:
            before = place.right
            report_alive()
