"""Replicas of parts in Ray actors: requests that outlive actors and nodes.

request ──▶ a replica of each part ──▶ answer
              ├── no answer after the observed p95: the same to another replica, and the first answer counts
              ├── the actor died: the same to another replica; this one is probed, or made anew, and used once it
              │   answers
              └── the part is damaged there: another replica, and an error that names the part if all say so
"""

import os
import pickle
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from nestcode.errors import DamagedFile, InvalidInput, NestcodeError, Unavailable, import_extra
from nestcode.scale.objects import PartCache, local_folder
from nestcode.scale.ray.part import Part

RECENT_ANSWERS, LEAST_ANSWERS = 256, 20  # whose times tell the p95, and how many there must be
HEDGE_QUANTILE, LEAST_HEDGE_SECONDS = 0.95, 0.01
INLINE_BYTES = 1 << 16  # of a request: larger ones lie in Ray's object store once
PROBE_SECONDS = 0.05  # between looks at replicas where a part has none that answers
LOOK_SECONDS = 0.25  # between looks at answers, where one of them may be an error
OF_THE_PART = (DamagedFile, OSError, MemoryError, Unavailable)  # errors that another replica may not have


class PartActor:
    """What runs in an actor: a part, opened at the first request, and again after damage.

    Args:
        path: the folder of the part, or its URL in object storage.
        memory: as for `Index.open`.
        cache: of copies of parts in object storage.

    """

    def __init__(self, path: str, memory: str | None, cache: PartCache) -> None:
        self._path, self._memory, self._cache, self._lock = path, memory, cache, threading.Lock()
        self._part: Part | None = None
        self._copy = ExitStack()  # of a part in object storage, while it is open

    def answer(self, commit: str | None, request: bytes) -> Any:
        """Return what a method of the part returns, if it has the commit that the cluster began with.

        Args:
            commit: of the part; None takes any.
            request: the name of the method and its arguments, pickled.

        """
        part = self._open()
        method, *arguments = pickle.loads(request)
        if commit not in (None, part.commit):
            raise Unavailable(f"{self._path} holds another commit than the cluster opened: call refresh() to show it")
        try:
            return getattr(part, method)(*arguments)
        except DamagedFile as error:
            self._close(error)
            raise

    def ready(self) -> int:
        """Open the part, if it can be, and return the id of the process."""
        with suppress(Exception):  # a request gets the error
            self._open()
        return os.getpid()

    def _open(self) -> Part:
        with self._lock:
            if self._part is None:
                folder = self._copy.enter_context(local_folder(self._path, self._cache))
                try:
                    self._part = Part(folder, self._memory, self._path)
                except NestcodeError as error:
                    self._close(error)
                    raise
            return self._part

    def _close(self, error: NestcodeError) -> None:
        """Forget the part: a damaged copy of object storage is made again, a folder may be restored."""
        self._part, copy, self._copy = None, self._copy, ExitStack()
        with suppress(NestcodeError):
            copy.__exit__(type(error), error, error.__traceback__)


@dataclass
class Counts:
    """What became of the requests to a part: `SearchCluster.metrics` returns it."""

    path: str
    ready: int = 0  # replicas that answer
    requests: int = 0
    retries: int = 0  # to another replica, after an error
    hedges: int = 0  # to another replica, as the first was slow
    deaths: int = 0  # of actors
    failures: int = 0  # requests that no replica answered
    p50: float = float("nan")  # seconds of recent answers
    p95: float = float("nan")


class Replica:
    """One actor of a part, which is used once it has answered a probe, at its start and after each failure."""

    def __init__(self, make: Any, node: str | None) -> None:
        self._make, self._node = make, node
        self.actor = make(node)
        self.probe = self.actor.ready.remote()

    def failed(self, *, died: bool) -> None:
        """Use the replica only once it answers a probe; one that Ray does not restart is made anew."""
        if died:
            self.actor = self._make(self._node)
        self.probe = self.actor.ready.remote()

    def close(self, ray: Any) -> None:
        """End the actor."""
        ray.kill(self.actor)


@dataclass
class Share:
    """What one part is asked in a request."""

    part: int
    arguments: tuple[Any, ...]
    flights: dict[Any, tuple[Replica, Any, float]] = field(default_factory=dict)  # replica, actor, start
    refused: dict[int, Exception] = field(default_factory=dict)  # by replica
    hedge_at: float = float("inf")  # when another replica is asked too


class Replicas:
    """The replicas of all parts of one generation.

    Args:
        paths: the folders of the parts.
        replicas: of each part.
        memory: as for `Index.open`.
        cache: of parts in object storage, on each node.
        timeout: seconds for a request.
        resources: of each actor, as options of `ray.remote`.

    """

    def __init__(
        self,
        paths: Sequence[str],
        replicas: int,
        memory: str | None,
        cache: PartCache,
        timeout: float,
        resources: Mapping[str, Any],
    ) -> None:
        self._ray = ray = import_extra("ray", extra="ray", purpose="nestcode.scale.ray")
        affinity = import_extra("ray.util.scheduling_strategies", extra="ray", purpose="nestcode.scale.ray")
        self._timeout, self._lock, self._turn = timeout, threading.Lock(), 0
        nodes = sorted(node["NodeID"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU"))
        remote = ray.remote(PartActor)

        def make(path: str, node: str | None) -> Any:
            near = {} if node is None else {"scheduling_strategy": affinity.NodeAffinitySchedulingStrategy(node, True)}
            options: dict[str, Any] = {"max_restarts": -1, "max_task_retries": 0, **near, **resources}
            return remote.options(**options).remote(path, memory, cache)

        self.paths = [*paths]
        self.commits: list[str | None] = [None] * len(paths)
        self._sets = [
            [
                Replica(
                    lambda node, path=path: make(path, node), nodes[(part + number) % len(nodes)] if nodes else None
                )
                for number in range(replicas)
            ]
            for part, path in enumerate(paths)
        ]
        self._counts = [Counts(path) for path in paths]
        self._seconds: list[dict[Any, deque[float]]] = [{} for _ in paths]

    def actors(self) -> list[list[Any]]:
        """Return the actors of each part."""
        return [[replica.actor for replica in own] for own in self._sets]

    def metrics(self) -> list[dict[str, Any]]:
        """Return what became of the requests to each part."""
        found = []
        for own, counts, seconds in zip(self._sets, self._counts, self._seconds, strict=True):
            with self._lock:
                counts.ready = sum(map(self._answers, own))
                recent = [second for times in seconds.values() for second in times]
            p50, p95 = np.quantile(recent, (0.5, 0.95)).tolist() if recent else (float("nan"), float("nan"))
            found.append({**asdict(counts), "p50": p50, "p95": p95})
        return found

    def ask(
        self,
        method: str,
        arguments: Mapping[int, tuple[Any, ...]],
        allow_missing: bool = False,
        timeout: float | None = None,
    ) -> tuple[dict[int, Any], dict[int, str]]:
        """Ask parts, and return their answers and the reasons of missing answers.

        Args:
            method: of `Part`.
            arguments: by part.
            allow_missing: if a part has no answer, return the answers of the other parts instead of raising.
            timeout: seconds, instead of the usual ones.

        """
        ray, start, seconds = self._ray, time.monotonic(), timeout or self._timeout
        kind = method, _size(next(iter(arguments.values()), ())).bit_length()  # requests of about equal work
        waiting = {part: Share(part, own) for part, own in arguments.items()}
        answers: dict[int, Any] = {}
        failures: dict[int, Exception] = {}
        sent: dict[int, Any] = {}  # requests by their arguments, which most parts share
        while waiting:
            now = time.monotonic()
            for share in waiting.values():
                self._send(share, method, kind, now, sent)
            flights = {ref: share for share in waiting.values() for ref in share.flights}
            until = min([start + seconds, now + LOOK_SECONDS, *(share.hedge_at for share in waiting.values())])
            if any(not share.flights for share in waiting.values()):
                until = min(until, now + PROBE_SECONDS)
            if flights:
                alone = all(len(share.flights) == 1 for share in waiting.values())
                ready, _ = ray.wait([*flights], num_returns=len(flights) if alone else 1, timeout=max(until - now, 0.0))
            else:
                time.sleep(max(until - now, 0.0))
                ready = []
            for ref in ready:
                share = flights[ref]
                if share.part in waiting and ref in share.flights:
                    self._take(ref, share, kind, waiting, answers, failures)
            if waiting and time.monotonic() - start >= seconds:
                for share in waiting.values():
                    failures[share.part] = _unanswered(self.paths[share.part], seconds, share)
                break
        for part in failures:
            self._counts[part].failures += 1
        if failures and not allow_missing:
            raise next(iter(failures.values()))
        return answers, {part: str(error) for part, error in failures.items()}

    def close(self) -> None:
        """End all actors."""
        for own in self._sets:
            for replica in own:
                replica.close(self._ray)

    def _send(self, share: Share, method: str, kind: Any, now: float, sent: dict[int, Any]) -> None:
        """Send a share to a replica where it is with none, or to a second one where the first takes long."""
        if share.flights and now < share.hedge_at:
            return
        share.hedge_at = now + PROBE_SECONDS  # to look again, where no replica takes the request now
        busy = {id(replica) for replica, *_ in share.flights.values()} | share.refused.keys()
        replica = self._choose(share.part, busy)
        if replica is None:
            return
        if id(share.arguments) not in sent:  # Ray would serialize them for each part
            request = pickle.dumps((method, *share.arguments), pickle.HIGHEST_PROTOCOL)
            sent[id(share.arguments)] = self._ray.put(request) if len(request) > INLINE_BYTES else request
        actor = replica.actor
        try:
            ref = actor.answer.remote(self.commits[share.part], sent[id(share.arguments)])
        except self._ray.exceptions.PendingCallsLimitExceeded:  # another has room, or this one later
            return
        counts = self._counts[share.part]
        counts.requests += 1
        counts.hedges += bool(share.flights)
        share.hedge_at = float("inf") if share.flights else now + self._usual(share.part, kind)
        share.flights[ref] = replica, actor, now

    def _choose(self, part: int, excluded: set[int]) -> Replica | None:
        """Return a replica in turn, one that answers."""
        own = self._sets[part]
        with self._lock:
            self._turn += 1
            for number in range(len(own)):
                replica = own[(self._turn + number) % len(own)]
                if id(replica) not in excluded and self._answers(replica):
                    return replica
        return None

    def _answers(self, replica: Replica) -> bool:
        """Return whether a replica has not failed, or has answered a probe since."""
        if replica.probe is None:
            return True
        ready, _ = self._ray.wait([replica.probe], timeout=0)
        if ready:
            try:
                self._ray.get(replica.probe)
                replica.probe = None
            except self._ray.exceptions.RayError as error:
                replica.failed(died=isinstance(error, self._ray.exceptions.ActorDiedError))
        return replica.probe is None

    def _take(
        self,
        ref: Any,
        share: Share,
        kind: Any,
        waiting: dict[int, Share],
        answers: dict[int, Any],
        failures: dict[int, Exception],
    ) -> None:
        """Take up an answer, or an error."""
        replica, actor, began = share.flights.pop(ref)
        share.hedge_at = time.monotonic()  # where this is an error, another replica is asked beside one that is slow
        exceptions = self._ray.exceptions
        try:
            answers[share.part] = self._ray.get(ref)
        except exceptions.RayTaskError as error:
            cause = getattr(error, "cause", None)
            if not isinstance(cause, OF_THE_PART):
                raise (cause if isinstance(cause, NestcodeError) else error) from None
            share.refused[id(replica)] = cause
            self._counts[share.part].retries += 1
            if len(share.refused) == len(self._sets[share.part]):
                failures[share.part] = _named(self.paths[share.part], cause)
                del waiting[share.part]
            return
        except exceptions.RayError as error:
            counts = self._counts[share.part]
            counts.retries, counts.deaths = counts.retries + 1, counts.deaths + 1
            with self._lock:
                if replica.actor is actor and replica.probe is None:
                    replica.failed(died=isinstance(error, exceptions.ActorDiedError))
            return
        with self._lock:
            times = self._seconds[share.part].setdefault(kind, deque(maxlen=RECENT_ANSWERS))
            times.append(time.monotonic() - began)
            for slow, _, earlier in share.flights.values():
                if slow.probe is None and earlier < began:  # other requests do not wait for this replica either
                    slow.failed(died=False)
        del waiting[share.part]

    def _usual(self, part: int, kind: Any) -> float:
        """Return the seconds that most requests take, by recent ones."""
        with self._lock:
            ordered = sorted(self._seconds[part].get(kind, ()))
        if len(self._sets[part]) < 2:
            return float("inf")
        longest = self._timeout / 2  # a replica that hangs before others have answered costs no request either
        if len(ordered) < LEAST_ANSWERS:
            return longest
        return min(max(ordered[int(HEDGE_QUANTILE * (len(ordered) - 1))], LEAST_HEDGE_SECONDS), longest)


def _size(arguments: tuple[Any, ...]) -> int:
    """Return how many queries or ids a request has."""
    return max((len(one) for one in arguments if hasattr(one, "__len__")), default=0)


def _unanswered(path: str, seconds: float, share: Share) -> Unavailable:
    """Return the error of a part that did not answer in time."""
    causes = "; ".join(str(error) for error in share.refused.values())
    return Unavailable(
        f"no replica of {path} answered within {seconds:g} seconds{': ' * bool(causes)}{causes}: try again, check "
        "`ray status`, give more replicas or a longer timeout, or take search(..., allow_partial=True)"
    )


def _named(path: str, cause: Exception) -> Exception:
    """Return an error of all replicas of a part, which names the part."""
    if isinstance(cause, DamagedFile):
        return DamagedFile(f"the part {path} is damaged in all of its replicas ({cause}): restore a copy")
    if isinstance(cause, FileNotFoundError):
        return InvalidInput(f"the part {path} must be a folder that all nodes of the cluster can open: {cause}")
    return Unavailable(f"no replica of {path} can answer: {cause}")
