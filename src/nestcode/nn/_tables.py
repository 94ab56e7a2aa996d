"""The numbers of a length distribution as tensors, made once and kept."""

from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor

from nestcode.lengths import Lengths

Kind = Literal["cdf", "survival"]


def length_table(kind: Kind, lengths: Lengths, width: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """`lengths.<kind>(width)` as a tensor, (width,)."""
    if torch.compiler.is_compiling():  # becomes part of the graph; len(range()) makes a symbolic width a number
        return _make(kind, lengths, len(range(width)), device, dtype)
    return _cached(kind, lengths, width, device, dtype)


def _make(kind: Kind, lengths: Lengths, width: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    numbers = lengths.cdf(width) if kind == "cdf" else lengths.survival(width)
    return torch.as_tensor(numbers, device=device, dtype=dtype)


@lru_cache(maxsize=64)
def _cached(kind: Kind, lengths: Lengths, width: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    with torch.inference_mode(False):  # what is kept must serve training too
        return _make(kind, lengths, width, device, dtype)
