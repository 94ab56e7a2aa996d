"""Kept lengths as tensors: drawing them, schedules over training, and the tables of their distributions on a device."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nestcode.arrays import check_int
from nestcode.errors import InvalidInput
from nestcode.lengths import Lengths, Mixture

MAX_DRAWS = 2**31 - 1  # lengths of one call, 16 GiB
Device = torch.device | str | None
Table = Literal["cdf", "survival"]
Function = TypeVar("Function", bound=Callable[..., Any])


class LengthSchedule(nn.Module):
    """A distribution of lengths that changes over training: from `start` to `end`, linearly in `steps` steps.

    >>> from nestcode.lengths import Full, Uniform
    >>> schedule = LengthSchedule(Full(), Uniform(), steps=2)       # first the ordinary model, then nested dropout
    >>> for _ in range(3):
    ...     print(schedule.lengths.pmf(4))
    ...     schedule.step()
    [0. 0. 0. 1.]
    [0.125 0.125 0.125 0.625]
    [0.25 0.25 0.25 0.25]

    At each step it is a mixture of both. `NestedDropout`, `NestedLoss` and `expected_loss` accept it in place of a
    distribution. Call `step` after each step of the optimizer, as with a learning rate schedule. The model's state has
    the position, and a compiled model is not compiled again.

    Args:
        start: the distribution of the first steps.
        end: the distribution after the transition.
        steps: the number of steps of the transition.
        after: the number of steps before the transition.

    """

    taken: Tensor  # (), steps

    def __init__(self, start: Lengths, end: Lengths, steps: int, after: int = 0) -> None:
        super().__init__()
        for lengths in (start, end):
            if not isinstance(lengths, Lengths):
                raise InvalidInput(f"start and end must be distributions from nestcode.lengths, got {lengths!r}")
        self.start, self.end = start, end
        self.steps, self.after = check_int(steps, "steps", least=1), check_int(after, "after", least=0)
        self.register_buffer("taken", torch.zeros((), dtype=torch.int64))

    def step(self) -> None:
        """Count one step."""
        self.taken += 1

    @property
    def share(self) -> Tensor:
        """The present share of `end`, ()."""
        return ((self.taken - self.after) / self.steps).clamp(0, 1)

    @property
    def lengths(self) -> Lengths:
        """The present distribution."""
        share = float(self.share)
        return Mixture([self.start, self.end], [1 - share, share])

    def extra_repr(self) -> str:
        """Return what `print(model)` shows."""
        return f"{self.start} to {self.end}, steps={self.steps}, after={self.after}"


def sample_lengths(
    lengths: Lengths | LengthSchedule,
    n: int,
    width: int,
    *,
    device: Device = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Draw `n` lengths as a tensor of integers, (n,).

    >>> from nestcode.lengths import Uniform
    >>> sample_lengths(Uniform(), 5, width=100, generator=torch.Generator().manual_seed(0))
    tensor([98, 71, 46, 93, 65])
    """
    check_lengths(lengths)
    if not torch.compiler.is_compiling():  # where both may be symbolic
        n, width = check_int(n, "n", least=0, most=MAX_DRAWS), check_int(width, "width", least=1)
    device = torch.device(device or "cpu")
    precision = torch.float32 if device.type == "mps" else torch.float64  # Apple's GPUs have no float64
    return sample_from_cdf(length_table("cdf", lengths, width, device, precision), n, generator)


def sample_from_cdf(cdf: Tensor, n: int, generator: torch.Generator | None = None) -> Tensor:
    """Draw `n` lengths by inverse transform sampling, given P(length ≤ k) for k = 1, …, width.

    >>> sample_from_cdf(torch.tensor([0.0, 1.0]), 3)
    tensor([2, 2, 2])
    """
    if generator is None:  # torch.compile supports the default generator only, and only unnamed
        draws = torch.rand(n, device=cdf.device, dtype=cdf.dtype)
    else:
        draws = torch.rand(n, device=cdf.device, dtype=cdf.dtype, generator=generator)
    return 1 + torch.searchsorted(cdf, draws, right=True)


def length_table(
    table: Table, lengths: Lengths | LengthSchedule, width: int, device: torch.device, dtype: torch.dtype
) -> Tensor:
    """Return `lengths.cdf(width)` or `lengths.survival(width)` as a tensor, (width,)."""
    if isinstance(lengths, LengthSchedule):  # the functions of a mixture are the mixtures of the functions
        first, last = (length_table(table, part, width, device, dtype) for part in (lengths.start, lengths.end))
        return torch.lerp(first, last, lengths.share.to(device, dtype))
    if torch.compiler.is_compiling():  # a constant of the graph; len(range()) makes a symbolic width an int
        return torch.as_tensor(_values(table, lengths, len(range(width))), device=device, dtype=dtype)
    # NumPy values are cached, not the tensor: one made in inference mode or as a fake tensor is useless elsewhere.
    return torch.tensor(_cached_values(table, lengths, width), dtype=dtype).to(device, non_blocking=True)


def constant_in_graphs(function: Function) -> Function:
    """Mark a function whose result is a constant of a compiled graph.

    This is what `torch.compiler.assume_constant_result` does. That imports the compiler, which takes as long as all of
    PyTorch, whether or not anything is ever compiled.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


@constant_in_graphs
def _values(table: Table, lengths: Lengths, width: int) -> NDArray[np.float64]:
    return lengths.cdf(width) if table == "cdf" else lengths.survival(width)


_cached_values = lru_cache(maxsize=64)(_values)


def check_lengths(lengths: object) -> None:
    """Raise unless this is a distribution of lengths, or a schedule of distributions."""
    if not isinstance(lengths, Lengths | LengthSchedule):
        raise InvalidInput(
            f"lengths must be a distribution from nestcode.lengths, got {lengths!r}: for example LogUniform()"
        )
