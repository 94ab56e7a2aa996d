"""The device of a run: its precision (autocast), torch.compile and CUDA graphs."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from nestcode.errors import InvalidInput
from nestcode.training.config import Training

WORTH_COMPILING = 500  # steps


class Accelerator:
    """The device of a run, and how it computes there.

    >>> Accelerator(Training(device="cpu"), steps=10).device
    device(type='cpu')

    Args:
        training: the settings `device`, `precision` and `compile`.
        steps: of the run; short ones are not worth compiling.
        compilable: whether the objective can be compiled.

    """

    def __init__(self, training: Training, steps: int, *, compilable: bool = True) -> None:
        self.device = pick_device(training.device)
        self.gpu = self.device.type == "cuda"
        searches = training.optimizer == "conjugate"  # a line search compares losses, in float32
        bfloat16 = training.precision == "bfloat16" or (
            training.precision == "auto" and self.gpu and not searches and torch.cuda.is_bf16_supported()
        )
        self._dtype = torch.bfloat16 if bfloat16 else None
        self._tensorfloat32 = self.gpu and training.precision == "tensorfloat32"
        worth = self.gpu and steps >= WORTH_COMPILING and not searches  # which hold bits fixed from time to time
        self._compile = compilable and (worth if training.compile == "auto" else training.compile)
        self.graphs = (
            self.gpu and self._compile and not searches
        )  # a step of the paper's networks takes less time than its launches
        self.rng_devices = [torch.cuda.current_device()] if self.gpu else []

    def seed(self, seed: int) -> None:
        """Seed the generators that training draws from."""
        if self.device.type == "cpu":  # torch.manual_seed formats a stack trace for each kind of device not in use
            torch.default_generator.manual_seed(seed)
        else:
            torch.manual_seed(seed)

    def autocast(self) -> AbstractContextManager[Any]:
        """Compute in bfloat16 if it was chosen."""
        return nullcontext() if self._dtype is None else torch.autocast(self.device.type, self._dtype)

    @contextmanager
    def products(self) -> Iterator[None]:
        """Compute float32 products in TensorFloat32 if it was chosen, backward passes included."""
        before = torch.get_float32_matmul_precision()
        if self._tensorfloat32:
            torch.set_float32_matmul_precision("high")
        try:
            yield
        finally:
            if self._tensorfloat32:
                torch.set_float32_matmul_precision(before)

    def compiled(self, module: nn.Module) -> Callable[..., Tensor]:
        """Return the module, compiled if that was chosen."""
        return torch.compile(module) if self._compile else module

    def graphed(self, function: Callable[[], None]) -> Callable[[], None]:
        """Return a function that works on tensors in place, as a CUDA graph where steps are compiled."""
        return CudaGraph(function) if self.graphs else function


class CudaGraph:
    """A function captured as a CUDA graph after a few warm-up calls, which settle allocations and kernel choices."""

    WARM_UP = 3

    def __init__(self, function: Callable[[], None]) -> None:
        self._function, self._calls = function, 0
        self._stream = torch.cuda.Stream()
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> None:
        """Run the function: eagerly at first, then by replay."""
        if self._graph is None and self._calls < self.WARM_UP:
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
    """Return the device of that name; "auto" is a GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InvalidInput(f'device must be available here, got {name!r}: "auto" picks one ({error})') from error
    return device
