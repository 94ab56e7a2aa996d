"""Nested dropout: keep a random prefix of the representation (section 2 of the paper).

Not here: what a truncation costs (`losses.py`), how lengths are distributed (`nestcode.lengths`).
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from nestcode.errors import InvalidInput
from nestcode.lengths import Lengths
from nestcode.nn._tables import length_table

Kept = Tensor | int | Sequence[int]


def keep_prefix(x: Tensor, kept: Kept, dim: int = -1) -> Tensor:
    """Zero all but the first `kept` entries along `dim` (x↓b in the paper): (n, width), (n,) -> (n, width).

    >>> keep_prefix(torch.ones(3, 4), torch.tensor([0, 1, 3]))
    tensor([[0., 0., 0., 0.],
            [1., 0., 0., 0.],
            [1., 1., 1., 0.]])

    Args:
        x: any tensor; dropped entries become 0 also where they were infinite or NaN.
        kept: integers, one for each example: their shape is that of the leading dimensions of `x`. A single
            number serves all. Numbers beyond the width keep everything, negative ones in a tensor nothing.
        dim: the dimension to truncate, for example units (-1), channels (1) or tokens (1). It comes after
            the dimensions that `kept` has.

    """
    dim = check_dim(x, dim)
    lengths = _as_lengths(kept, x.device)
    if lengths.shape != x.shape[: lengths.ndim] or lengths.ndim > dim:
        raise InvalidInput(
            f"kept must have one length for each example, the leading dimensions of x before dimension {dim}: "
            f"x has shape {tuple(x.shape)}, kept {tuple(lengths.shape)}"
        )
    places = torch.arange(x.shape[dim], device=x.device).view(-1, *[1] * (x.ndim - 1 - dim))
    dropped = places >= lengths.view(*lengths.shape, *[1] * (x.ndim - lengths.ndim))
    return x.masked_fill(dropped, 0)


def sample_lengths(
    lengths: Lengths,
    n: int,
    width: int,
    *,
    device: torch.device | str | None = None,
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
    cdf = length_table("cdf", lengths, width, device, precision)
    if generator is None:  # torch.compile takes the default generator only, and only unnamed
        draws = torch.rand(n, device=device, dtype=precision)
    else:
        draws = torch.rand(n, device=device, dtype=precision, generator=generator)
    return 1 + torch.searchsorted(cdf, draws, right=True)


class NestedDropout(nn.Module):
    """Keep a random prefix of each example in training, everything in evaluation.

    >>> from nestcode.lengths import Geometric
    >>> drop = NestedDropout(Geometric(0.9))
    >>> x = torch.ones(3, 5)
    >>> drop(x, kept=torch.tensor([1, 2, 5])).sum(dim=1)
    tensor([1., 2., 5.])
    >>> drop.eval()(x).sum(dim=1)
    tensor([5., 5., 5.])

    Nothing is rescaled: unlike ordinary dropout, a truncated code is what the decoder is meant to see.

    Args:
        lengths: how many leading entries are kept, drawn anew for each example.
        dim: the dimension to truncate: units (-1), channels or tokens (1).

    """

    def __init__(self, lengths: Lengths, dim: int = -1) -> None:
        super().__init__()
        check_lengths(lengths)
        self.lengths = lengths
        self.dim = dim

    def forward(self, x: Tensor, kept: Kept | None = None, generator: torch.Generator | None = None) -> Tensor:
        """Truncate `x`, (n, …), to `kept`, or to lengths drawn with `generator` when training."""
        if kept is None:
            if not self.training:
                return x
            dim = check_dim(x, self.dim)
            if dim == 0:
                raise InvalidInput(
                    f"dimension 0 holds the examples, got dim={self.dim} and x of shape {tuple(x.shape)}: "
                    "truncate another one, or put one example into x[None]"
                )
            width = x.shape[dim]
            kept = sample_lengths(self.lengths, x.shape[0], width, device=x.device, generator=generator)
        return keep_prefix(x, kept, self.dim)

    def extra_repr(self) -> str:
        """What `print(model)` shows."""
        return f"{self.lengths}, dim={self.dim}"


def _as_lengths(kept: Kept, device: torch.device) -> Tensor:
    """Lengths as a tensor of integers, also from a number, a list or a NumPy array."""
    if not isinstance(kept, Tensor):
        try:
            numbers = np.asarray(kept)
        except ValueError:
            numbers = np.asarray("a ragged list")
        if numbers.dtype.kind not in "iu" or (numbers < 0).any():
            raise InvalidInput(f"kept must be integers of at least 0, got {kept!r}")
        return torch.tensor(numbers.tolist(), dtype=torch.long, device=device)
    if kept.is_floating_point() or kept.is_complex() or kept.dtype == torch.bool:
        raise InvalidInput(f"kept must hold integers, got {kept.dtype}: convert it with kept.long()")
    return kept.long()


def check_lengths(lengths: object) -> None:
    """Refuse what is not a distribution before training starts."""
    if not isinstance(lengths, Lengths):
        raise InvalidInput(
            f"lengths must be a distribution from nestcode.lengths, got {lengths!r}: for example LogUniform()"
        )


def check_dim(x: Tensor, dim: int) -> int:
    """The dimension counted from the front."""
    if not -x.ndim <= dim < x.ndim:
        raise InvalidInput(f"dim must be a dimension of x, which has {x.ndim}, got {dim}")
    return dim % x.ndim
