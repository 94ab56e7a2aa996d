"""Where a run computes, how precisely, and whether its step is compiled."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from nestcode.errors import InvalidInput
from nestcode.training.config import Training

WORTH_COMPILING = 500  # steps


class Hardware:
    """The device of a run.

    >>> Hardware(Training(device="cpu"), steps=10).device
    device(type='cpu')
    """

    def __init__(self, training: Training, steps: int) -> None:
        self.device = pick_device(training.device)
        self.gpu = self.device.type == "cuda"
        bfloat16 = training.precision == "bfloat16" or (
            training.precision == "auto" and self.gpu and torch.cuda.is_bf16_supported()
        )
        self._kind = torch.bfloat16 if bfloat16 else None
        # A model that changes on the way would be compiled again and again.
        worth = self.gpu and steps >= WORTH_COMPILING and training.sweep is None
        self._compile = worth if training.compile == "auto" else training.compile
        self.graphs = self.gpu and self._compile  # a step of the paper's networks takes less time than to launch it
        self.random_devices = [torch.cuda.current_device()] if self.gpu else []

    def precision(self) -> AbstractContextManager[Any]:
        """Products in bfloat16, if that was chosen."""
        return nullcontext() if self._kind is None else torch.autocast(self.device.type, self._kind)

    def compiled(self, module: nn.Module) -> Callable[[Tensor], Tensor]:
        """The module, fused if that was chosen."""
        return torch.compile(module) if self._compile else module

    def graphed(self, function: Callable[[], None]) -> Callable[[], None]:
        """A function that works on tensors in place, launched as a whole where steps are compiled."""
        return Graphed(function) if self.graphs else function


class Graphed:
    """A function as a CUDA graph. Its first calls run as they are, to settle what is allocated or chosen once."""

    FIRST = 3

    def __init__(self, function: Callable[[], None]) -> None:
        self._function, self._calls = function, 0
        self._stream = torch.cuda.Stream()
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> None:
        """Run it."""
        if self._graph is None and self._calls < self.FIRST:
            self._calls += 1
            self._stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._stream):
                self._function()
            torch.cuda.current_stream().wait_stream(self._stream)
            return
        if self._graph is None:
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph):
                self._function()
        self._graph.replay()


def pick_device(name: str) -> torch.device:
    """The device of that name, or the best there is for "auto"."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InvalidInput(f'device must be one that is here, got {name!r}: "auto" takes the best ({error})') from error
    return device
