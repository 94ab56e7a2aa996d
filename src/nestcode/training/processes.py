"""Several processes that train one model: each works off pieces of every batch, and gradients are averaged.

One product of all gradients is reduced once a step, with the loss and the wish to stop, so that all processes stop at
the same step.
"""

import os
from collections.abc import Iterable

import torch
from torch import Tensor
from torch import distributed as dist


class Processes:
    """The processes that `torchrun` started, or this one alone.

    >>> Processes().count
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
        self.count = dist.get_world_size() if together else 1
        self.rank = dist.get_rank() if together else 0

    def leave(self) -> None:
        """Leave the group, if it was joined here."""
        if self._joined:
            dist.destroy_process_group()
            self._joined = False

    def add_up(self, tensors: Iterable[Tensor]) -> None:
        """Replace each tensor by its sum over all processes."""
        tensors = list(tensors)
        if self.count == 1 or not tensors:
            return
        flat = torch.cat([tensor.reshape(-1).float() for tensor in tensors])
        dist.all_reduce(flat)
        for tensor, summed in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(summed.view_as(tensor))

    def same_everywhere(self, parameters: Iterable[Tensor]) -> None:
        """Take over the numbers of the first process."""
        if self.count > 1:
            for tensor in parameters:
                dist.broadcast(tensor.detach(), src=0)

    def wait(self) -> None:
        """Go on when all are here."""
        if self.count > 1:
            dist.barrier()
