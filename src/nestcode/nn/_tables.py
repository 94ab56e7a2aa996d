"""The numbers of a length distribution as tensors."""

from functools import lru_cache
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nestcode.lengths import Lengths

Kind = Literal["cdf", "survival"]


def length_table(kind: Kind, lengths: Lengths, width: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """`lengths.<kind>(width)` as a tensor, (width,)."""
    if torch.compiler.is_compiling():  # becomes part of the graph; len(range()) makes a symbolic width a number
        return torch.as_tensor(_numbers(kind, lengths, len(range(width))), device=device, dtype=dtype)
    # The numbers are kept, not the tensor: one made under inference or fake tensors would not serve elsewhere.
    return torch.tensor(_kept_numbers(kind, lengths, width), dtype=dtype).to(device, non_blocking=True)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _numbers(kind: Kind, lengths: Lengths, width: int) -> NDArray[np.float64]:
    return lengths.cdf(width) if kind == "cdf" else lengths.survival(width)


_kept_numbers = lru_cache(maxsize=64)(_numbers)
