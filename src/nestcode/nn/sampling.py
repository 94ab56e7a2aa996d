"""Kept lengths as tensors: drawing them, and the tables of their distributions on a device."""

from functools import lru_cache
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nestcode.errors import InvalidInput
from nestcode.lengths import Lengths

Device = torch.device | str | None
Table = Literal["cdf", "survival"]


def sample_lengths(
    lengths: Lengths,
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


def length_table(table: Table, lengths: Lengths, width: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Return `lengths.cdf(width)` or `lengths.survival(width)` as a tensor, (width,)."""
    if torch.compiler.is_compiling():  # a constant of the graph; len(range()) makes a symbolic width an int
        return torch.as_tensor(_values(table, lengths, len(range(width))), device=device, dtype=dtype)
    # NumPy values are cached, not the tensor: one made in inference mode or as a fake tensor is useless elsewhere.
    return torch.tensor(_cached_values(table, lengths, width), dtype=dtype).to(device, non_blocking=True)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _values(table: Table, lengths: Lengths, width: int) -> NDArray[np.float64]:
    return lengths.cdf(width) if table == "cdf" else lengths.survival(width)


_cached_values = lru_cache(maxsize=64)(_values)


def check_lengths(lengths: object) -> None:
    """Raise unless this is a distribution of lengths."""
    if not isinstance(lengths, Lengths):
        raise InvalidInput(
            f"lengths must be a distribution from nestcode.lengths, got {lengths!r}: for example LogUniform()"
        )
