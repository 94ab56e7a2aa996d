"""Nested dropout: keep a random prefix of the representation (section 2 of the paper).

Not here: the loss of a truncated code (`losses.py`), distributions of the length (`nestcode.lengths`), other subsets of
the units than prefixes (`nesting.py`).
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from nestcode.errors import InvalidInput
from nestcode.lengths import Lengths
from nestcode.nn.nesting import Nesting
from nestcode.nn.sampling import check_lengths, sample_lengths

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
            integer serves all. Lengths beyond the width keep everything, negative ones in a tensor nothing.
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


def keep_units(x: Tensor, mask: Tensor, dim: int = -1) -> Tensor:
    """Zero the entries along `dim` where `mask` is false: (n, width), (n, width) -> (n, width).

    >>> keep_units(torch.ones(2, 3), torch.tensor([[True, False, True], [True, False, False]]))
    tensor([[1., 0., 1.],
            [1., 0., 0.]])

    Args:
        x: any tensor; dropped entries become 0 also where they were infinite or NaN.
        mask: true where an entry is kept: one row for each example, (n, width), or one for all, (width,).
        dim: the dimension to mask: units (-1), channels or tokens (1).

    """
    dim = check_dim(x, dim)
    n, width = x.shape[0], x.shape[dim]
    if mask.dtype != torch.bool or not (mask.shape == (width,) or (dim > 0 and mask.shape == (n, width))):
        raise InvalidInput(
            f"mask must be true where an entry of dimension {dim} is kept, (n, width) or (width,): "
            f"x has shape {tuple(x.shape)}, the mask {tuple(mask.shape)} of {mask.dtype}"
        )
    examples = [n, *[1] * (dim - 1)] if mask.ndim == 2 else []
    return x.masked_fill(~mask.reshape(*examples, width, *[1] * (x.ndim - 1 - dim)), 0)


class NestedDropout(nn.Module):
    """Keep a random prefix of each example in training, everything in evaluation.

    >>> from nestcode.lengths import Geometric
    >>> drop = NestedDropout(Geometric(0.9))
    >>> x = torch.ones(3, 5)
    >>> drop(x, kept=torch.tensor([1, 2, 5])).sum(dim=1)
    tensor([1., 2., 5.])
    >>> drop.eval()(x).sum(dim=1)
    tensor([5., 5., 5.])

    Nothing is rescaled: unlike in ordinary dropout, truncated codes are what the decoder gets at test time too.

    Args:
        lengths: the distribution of the kept length, drawn for each example; or a `Nesting`, which keeps other subsets
            than prefixes.
        dim: the dimension to truncate: units (-1), channels or tokens (1).

    """

    def __init__(self, lengths: Lengths | Nesting, dim: int = -1) -> None:
        super().__init__()
        if not isinstance(lengths, Nesting):
            check_lengths(lengths)
        self.lengths = lengths
        self.dim = dim

    def forward(self, x: Tensor, kept: Kept | None = None, generator: torch.Generator | None = None) -> Tensor:
        """Return `x`, (n, …), truncated to `kept`, or in training to a draw of `generator`.

        Whatever the nesting, `kept` may be lengths, which keep prefixes, or a boolean mask, (n, width) or (width,).
        """
        if kept is None:
            if not self.training:
                return x
            kept = self._draw(x, generator)
        if isinstance(kept, Tensor) and kept.dtype == torch.bool:
            return keep_units(x, kept, self.dim)
        return keep_prefix(x, kept, self.dim)

    def _draw(self, x: Tensor, generator: torch.Generator | None) -> Tensor:
        """Return lengths, (n,), or a mask, (n, width)."""
        dim = check_dim(x, self.dim)
        if dim == 0:
            raise InvalidInput(
                f"dim must not be the batch dimension 0, got dim={self.dim} and x of shape {tuple(x.shape)}: "
                "truncate another one, or make a batch of one by x[None]"
            )
        if isinstance(self.lengths, Nesting):
            return self.lengths.sample(x.shape[0], x.shape[dim], device=x.device, generator=generator)
        return sample_lengths(self.lengths, x.shape[0], x.shape[dim], device=x.device, generator=generator)

    def extra_repr(self) -> str:
        """Return what `print(model)` shows."""
        return f"{self.lengths}, dim={self.dim}"


def _as_lengths(kept: Kept, device: torch.device) -> Tensor:
    """Return lengths as a tensor of integers, from an int, a list or an array too."""
    if not isinstance(kept, Tensor):
        try:
            integers = np.asarray(kept)
        except ValueError:
            integers = np.asarray("a ragged list")
        if integers.dtype.kind not in "iu" or (integers < 0).any():
            raise InvalidInput(f"kept must be integers of at least 0, got {kept!r}")
        return torch.tensor(integers.tolist(), dtype=torch.long, device=device)
    if kept.is_floating_point() or kept.is_complex() or kept.dtype == torch.bool:
        raise InvalidInput(f"kept must hold integers, got {kept.dtype}: convert it with kept.long()")
    return kept.long()


def check_dim(x: Tensor, dim: int) -> int:
    """Return the dimension counted from the front."""
    if not isinstance(x, Tensor):
        raise InvalidInput(f"a code must be a tensor, got {type(x).__name__}: convert an array with torch.as_tensor")
    if not -x.ndim <= dim < x.ndim:
        raise InvalidInput(f"dim must be a dimension of x, which has {x.ndim}, got {dim}")
    return dim % x.ndim
