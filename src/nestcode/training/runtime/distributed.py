"""Data-parallel training: each process computes some micro-batches of every batch, and gradients are all-reduced.

All gradients are flattened into one tensor and reduced once a step, with the loss and the request to stop, so that all
processes stop at the same step.
"""

import hashlib
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import uuid4

import torch
from torch import Tensor
from torch import distributed as dist

from nestcode.errors import Unavailable

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

JOIN = 1800.0  # seconds that rank 0 waits for the other ranks, as PyTorch does


class ProcessGroup:
    """The processes that `torchrun` started, or this one alone.

    >>> ProcessGroup().size
    1
    """

    def __init__(self) -> None:
        self._joined = False
        if dist.is_available() and not dist.is_initialized() and int(os.environ.get("WORLD_SIZE", "1")) > 1:
            if torch.cuda.is_available():
                torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
            from torch._C._distributed_c10d import PrefixStore  # which some builds of PyTorch lack
            from torch.distributed.rendezvous import rendezvous

            with _reaching_all():
                store, rank, size = next(iter(rendezvous("env://")))
                fresh = PrefixStore(_attempt(store, rank, size), store)
                backend = "nccl" if torch.cuda.is_available() else "gloo"
                dist.init_process_group(backend, store=fresh, rank=rank, world_size=size)
            self._joined = True
        together = dist.is_available() and dist.is_initialized()
        self.size = dist.get_world_size() if together else 1
        self.rank = dist.get_rank() if together else 0

    def leave(self) -> None:
        """Leave the group, if it was joined here."""
        if self._joined:
            if dist.get_backend() == "gloo":  # which may hang in a process whose peers leave while it still works
                with suppress(RuntimeError):  # a process that failed does not come
                    dist.monitored_barrier(timeout=timedelta(seconds=10))
            dist.destroy_process_group()
            self._joined = False

    def all_reduce(self, tensors: Iterable[Tensor]) -> None:
        """Replace each tensor by its sum over all processes, in one reduction."""
        tensors = list(tensors)
        if self.size == 1 or not tensors:
            return
        flat = torch.cat([tensor.reshape(-1).float() for tensor in tensors])
        with _reaching_all():
            dist.all_reduce(flat)
        for tensor, summed in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(summed.view_as(tensor))

    def broadcast(self, parameters: Iterable[Tensor]) -> None:
        """Copy the values of rank 0 to all processes."""
        if self.size > 1:
            with _reaching_all():
                for tensor in parameters:
                    dist.broadcast(tensor.detach(), src=0)

    def agree(self, text: str) -> bool:
        """Return whether all processes have the same text."""
        if self.size == 1:
            return True
        digest = int.from_bytes(hashlib.sha256(text.encode()).digest()[:7])
        device = "cuda" if dist.get_backend() == "nccl" else "cpu"
        ends = torch.tensor([digest, -digest], device=device)
        with _reaching_all():
            dist.all_reduce(ends, op=dist.ReduceOp.MAX)
        return int(ends[0]) == -int(ends[1])

    def barrier(self) -> None:
        """Wait until all processes are here."""
        if self.size > 1:
            with _reaching_all():
                dist.barrier()


def _attempt(store: "Store", rank: int, size: int) -> str:
    """Return a name that the processes of this attempt share, and no earlier attempt had.

    The store of `torchrun` outlives the processes that it restarts, and keeps the addresses of those that died. Nothing
    in it or in the environment tells the attempts of several machines apart. So rank 0 answers whoever asks, the dead
    of earlier attempts too, until the living have confirmed its answer.
    """
    own = uuid4().hex
    if rank > 0:
        store.set(f"nestcode/asks/{rank}", own)
        name = store.get(f"nestcode/answer/{own}").decode()
        store.set(f"nestcode/{name}/{rank}", "")
        return name
    until = time.monotonic() + JOIN
    for other in range(1, size):
        while not store.check([f"nestcode/{own}/{other}"]):
            if time.monotonic() > until:
                raise RuntimeError(f"rank {other} of {size} did not join within {JOIN:.0f} s")
            if store.check([f"nestcode/asks/{other}"]):
                store.set(f"nestcode/answer/{store.get(f'nestcode/asks/{other}').decode()}", own)
            time.sleep(0.01)
    return own


@contextmanager
def _reaching_all() -> Iterator[None]:
    """Raise an error with a remedy if a collective operation fails."""
    try:
        yield
    except RuntimeError as error:
        raise Unavailable(
            "another process of the run ended, or does not answer: its own error says why, and the same run with "
            f"resume continues from the checkpoint ({error})"
        ) from error
