"""The numbers of a length distribution as tensors, made once and kept."""

from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor

from nestcode.lengths import Lengths


def length_table(
    kind: Literal["cdf", "survival", "pmf"],
    lengths: Lengths,
    width: int,
    device: torch.device,
    dtype: torch.dtype,
) -> Tensor:
    """`lengths.<kind>(width)` as a tensor, (width,); a constant to `torch.compile`."""
    # len(range()) is a plain number also where torch.compile made the width a symbol.
    table: Tensor = _constant(kind, lengths, len(range(width)), device, dtype)
    return table


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _constant(kind: str, lengths: Lengths, width: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    return _cached(kind, lengths, width, device, dtype)


@lru_cache(maxsize=64)
def _cached(kind: str, lengths: Lengths, width: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    with torch.inference_mode(False):  # what is kept must serve training too
        return torch.from_numpy(getattr(lengths, kind)(width)).to(device, dtype)
