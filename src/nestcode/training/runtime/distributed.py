"""Data-parallel training: each process computes some micro-batches of every batch, and gradients are all-reduced.

All gradients are flattened into one tensor and reduced once a step, with the loss and the request to stop, so that all
processes stop at the same step.
"""

import hashlib
import os
from collections.abc import Iterable
from contextlib import suppress
from datetime import timedelta

import torch
from torch import Tensor
from torch import distributed as dist


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
            dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
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
        dist.all_reduce(flat)
        for tensor, summed in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(summed.view_as(tensor))

    def broadcast(self, parameters: Iterable[Tensor]) -> None:
        """Copy the values of rank 0 to all processes."""
        if self.size > 1:
            for tensor in parameters:
                dist.broadcast(tensor.detach(), src=0)

    def agree(self, text: str) -> bool:
        """Return whether all processes have the same text."""
        if self.size == 1:
            return True
        digest = int.from_bytes(hashlib.sha256(text.encode()).digest()[:7])
        device = "cuda" if dist.get_backend() == "nccl" else "cpu"
        ends = torch.tensor([digest, -digest], device=device)
        dist.all_reduce(ends, op=dist.ReduceOp.MAX)
        return int(ends[0]) == -int(ends[1])

    def barrier(self) -> None:
        """Wait until all processes are here."""
        if self.size > 1:
            dist.barrier()
