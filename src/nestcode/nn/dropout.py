"""Nested dropout: keep a random prefix of the representation (section 2 of the paper).

A prefix is of units, channels, tokens or spatial blocks: whatever lies along `dim`.

Not here: the loss of a truncated code (`losses.py`), distributions of the length (`nestcode.lengths`), other subsets of
the units than prefixes (`nesting.py`), tokens that are removed instead of masked (`packing.py`).
"""

import math
from collections.abc import Sequence
from math import prod
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nestcode.arrays import INT64_MAX, check_int, is_number, shown
from nestcode.errors import InvalidInput
from nestcode.lengths import Lengths
from nestcode.nn.nesting import Nesting
from nestcode.nn.sampling import LengthSchedule, check_lengths, sample_lengths

Kept = Tensor | int | Sequence[int]
Dims = int | tuple[int, ...]


def keep_prefix(x: Tensor, kept: Kept, dim: Dims = -1, *, block: Dims = 1, fill: float | Tensor = 0) -> Tensor:
    """Mask all but the first `kept` entries along `dim` (x↓b in the paper): (n, width), (n,) -> (n, width).

    >>> keep_prefix(torch.ones(3, 4), torch.tensor([0, 1, 3]))
    tensor([[0., 0., 0., 0.],
            [1., 0., 0., 0.],
            [1., 1., 1., 0.]])
    >>> keep_prefix(torch.ones(1, 1, 4, 4), 3, dim=(2, 3), block=2)[0, 0]    # 3 of 4 blocks of 2 x 2 pixels
    tensor([[1., 1., 1., 1.],
            [1., 1., 1., 1.],
            [1., 1., 0., 0.],
            [1., 1., 0., 0.]])

    Args:
        x: any tensor; infinite and NaN entries are dropped too.
        kept: one integer for each example, in the shape of the leading dimensions of `x`, or a single integer for all
            examples, which must not exceed the width. Lengths in an array or a tensor may exceed the width, as draws do
            in the paper: they keep everything. Negative lengths in a tensor keep nothing.
        dim: the dimension to truncate, for example units (-1), channels (1) or tokens (1); or several, such as
            (2, 3) of images, whose entries count in raster order. It comes after the dimensions that `kept` has.
        block: the number of consecutive entries that are kept or dropped together: one number, or one for each
            dimension.
        fill: the value of dropped entries: a number, or a tensor that broadcasts to `x`, such as a mask token.

    """
    dims, numbers, width = _numbering(x, dim, block)
    if isinstance(kept, int) and kept > width:
        raise InvalidInput(f"kept must be at most the {width} entries along dim {dim}, got {kept}: keep fewer of them")
    lengths = _as_lengths(kept, x.device)
    if lengths.shape != x.shape[: lengths.ndim] or lengths.ndim > dims[0]:
        raise InvalidInput(
            f"kept must have one length for each example, the leading dimensions of x before dimension {dims[0]}: "
            f"x has shape {tuple(x.shape)}, kept {tuple(lengths.shape)}"
        )
    return _replace(x, numbers >= lengths.view(*lengths.shape, *[1] * (x.ndim - lengths.ndim)), fill)


def keep_units(x: Tensor, mask: Tensor, dim: Dims = -1, *, block: Dims = 1, fill: float | Tensor = 0) -> Tensor:
    """Mask the entries along `dim` where `mask` is false: (n, width), (n, width) -> (n, width).

    >>> keep_units(torch.ones(2, 3), torch.tensor([[True, False, True], [True, False, False]]))
    tensor([[1., 0., 1.],
            [1., 0., 0.]])

    Args:
        x: any tensor; infinite and NaN entries are dropped too.
        mask: true where an entry is kept: one row for each example, (n, width), or one for all, (width,).
        dim: the dimension to mask: units (-1), channels or tokens (1); or several, as in `keep_prefix`.
        block: how many consecutive entries count as one.
        fill: what replaces dropped entries: a number, or a tensor that broadcasts to `x`.

    """
    dims, numbers, width = _numbering(x, dim, block)
    first, n = dims[0], x.shape[0]
    if mask.dtype != torch.bool or not (mask.shape == (width,) or (first > 0 and mask.shape == (n, width))):
        raise InvalidInput(
            f"mask must be true where an entry of dimension {first} is kept, (n, width) or (width,): "
            f"x has shape {tuple(x.shape)}, the mask {tuple(mask.shape)} of {mask.dtype}"
        )
    examples = [n, *[1] * (first - 1)] if mask.ndim == 2 else []
    return _replace(x, ~mask[..., numbers].reshape(*examples, *numbers.shape), fill)


def prefix_mask(kept: Tensor | Sequence[int], width: int) -> Tensor:
    """Return a mask of the first `kept` of `width` entries, true where one is kept: (n,) -> (n, width).

    >>> prefix_mask([1, 3], width=4)
    tensor([[ True, False, False, False],
            [ True,  True,  True, False]])

    Of tokens it is an attention mask: `mask[:, None, None, :]` for `scaled_dot_product_attention`, `mask` for models of
    Transformers, `~mask` as `key_padding_mask` of `nn.MultiheadAttention`. Negative lengths in a tensor keep nothing.
    """
    lengths = _as_lengths(kept, kept.device if isinstance(kept, Tensor) else None)
    return torch.arange(check_int(width, "width", least=0), device=lengths.device) < lengths[..., None]


class NestedDropout(nn.Module):
    """Keep a random prefix of each example in training, everything in evaluation.

    >>> from nestcode.lengths import Geometric
    >>> drop = NestedDropout(Geometric(0.9))
    >>> x = torch.ones(3, 5)
    >>> drop(x, kept=torch.tensor([1, 2, 5])).sum(dim=1)
    tensor([1., 2., 5.])
    >>> drop.eval()(x).sum(dim=1)
    tensor([5., 5., 5.])

    Unlike ordinary dropout it rescales nothing, because the decoder gets truncated codes at test time too.

    Args:
        lengths: the distribution of the kept length, drawn for each example; a `LengthSchedule`, which changes it over
            training; or a `Nesting`, which keeps other subsets than prefixes.
        dim: the dimension to truncate: units (-1), channels or tokens (1); or several dimensions, such as (2, 3) of
            images.
        block: the number of consecutive entries that are kept or dropped together, in each dimension.
        fill: the value of dropped entries: a number, or a tensor that broadcasts to the input. An `nn.Parameter` is
            trained with the model; one of shape (features,) is a mask token for tokens (n, tokens, features).
        together: draw one length for the whole batch instead of one for each example. To draw the same length in
            several processes, pass generators with the same seed.

    """

    def __init__(
        self,
        lengths: Lengths | LengthSchedule | Nesting,
        dim: Dims = -1,
        *,
        block: Dims = 1,
        fill: float | Tensor = 0,
        together: bool = False,
    ) -> None:
        super().__init__()
        if not isinstance(lengths, Nesting):
            check_lengths(lengths)
        if not isinstance(fill, Real):
            check_tensor(fill, "a fill that is not a number")
        self.lengths = lengths
        self.dim, self.block, self.together = dim, block, together
        if isinstance(fill, Tensor) and not isinstance(fill, nn.Parameter):
            self.register_buffer("fill", fill)
        else:
            self.fill = fill

    def forward(self, x: Tensor, kept: Kept | None = None, generator: torch.Generator | None = None) -> Tensor:
        """Return `x`, (n, …), truncated to `kept`, or in training to a draw of `generator`.

        Whatever the nesting, `kept` may be lengths, which keep prefixes, or a boolean mask, (n, width) or (width,).
        """
        if kept is None:
            if not self.training:
                return x
            kept = self.sample(x, generator)
        if isinstance(kept, Tensor) and kept.dtype == torch.bool:
            return keep_units(x, kept, self.dim, block=self.block, fill=self.fill)
        return keep_prefix(x, kept, self.dim, block=self.block, fill=self.fill)

    def sample(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Draw the argument `kept` for `x`, (n, …): lengths, (n,), or a mask, (n, width), of a `Nesting`.

        >>> from nestcode.lengths import Uniform
        >>> drop, tokens = NestedDropout(Uniform(), dim=1), torch.ones(2, 4, 3)
        >>> kept = drop.sample(tokens)                       # shared by several layers, or for an attention mask
        >>> bool((drop(tokens, kept)[:, :, 0].bool() == prefix_mask(kept, 4)).all())
        True

        Evaluation mode keeps everything. With `together` it draws one length, (), or one mask, (width,).
        """
        dims, _, width = _numbering(x, self.dim, self.block)
        if dims[0] == 0:
            raise InvalidInput(
                f"dim must not be the batch dimension 0, got dim={self.dim} and x of shape {tuple(x.shape)}: "
                "truncate another one, or make a batch of one by x[None]"
            )
        n = 1 if self.together else x.shape[0]
        if not self.training:
            kept = torch.full((n,), width, device=x.device)
        elif isinstance(self.lengths, Nesting):
            kept = self.lengths.sample(n, width, device=x.device, generator=generator)
        else:
            kept = sample_lengths(self.lengths, n, width, device=x.device, generator=generator)
        return kept[0] if self.together else kept

    def extra_repr(self) -> str:
        """Return what `print(model)` shows."""
        fill = tuple(self.fill.shape) if isinstance(self.fill, Tensor) else self.fill
        extras = {"block": (self.block, 1), "fill": (fill, 0), "together": (self.together, False)}
        parts = [] if isinstance(self.lengths, nn.Module) else [str(self.lengths)]  # a schedule is shown as a child
        parts += [f"dim={self.dim}", *(f"{name}={now}" for name, (now, default) in extras.items() if now != default)]
        return ", ".join(parts)


def _numbering(x: Tensor, dim: Dims, block: Dims) -> tuple[tuple[int, ...], Tensor, int]:
    """Return the dimensions, the number of each entry's block, which broadcasts to `x`, and how many blocks there are.

    Blocks are numbered from 0 in raster order; the numbers begin with the first of the dimensions.
    """
    dims = tuple(check_dim(x, one) for one in (dim if isinstance(dim, tuple) else (dim,)))
    blocks = block if isinstance(block, tuple) else (block,) * len(dims)
    if not dims or list(dims) != sorted(set(dims)) or len(blocks) != len(dims):
        raise InvalidInput(
            f"dim must be ascending dimensions of x, and block a number for each, got dim={dim} and block={block}"
        )
    sides = [-(-x.shape[d] // check_int(size, "block", least=1)) for d, size in zip(dims, blocks, strict=True)]
    numbers = torch.zeros((), dtype=torch.long, device=x.device)
    for d, size, side in zip(dims, blocks, sides, strict=True):
        places = torch.arange(x.shape[d], device=x.device)
        places = places if size == 1 else places // size
        numbers = numbers * side + places.view(-1, *[1] * (x.ndim - 1 - d))
    return dims, numbers, prod(sides)


def _replace(x: Tensor, dropped: Tensor, fill: float | Tensor) -> Tensor:
    """Return `x` with `fill` where `dropped`."""
    if not isinstance(fill, Tensor):
        return x.masked_fill(dropped, fill)
    sides = zip(reversed(fill.shape), reversed(x.shape), strict=False)
    if fill.ndim > x.ndim or not all(own in (1, side) for own, side in sides):
        raise InvalidInput(f"fill must broadcast to x of shape {tuple(x.shape)}, got shape {tuple(fill.shape)}")
    return torch.where(dropped, fill.to(x.dtype), x)


def _as_lengths(kept: Kept, device: torch.device | None) -> Tensor:
    """Return lengths as a tensor of integers, from an int, a list or an array too."""
    if not isinstance(kept, Tensor):
        try:
            integers = np.asarray(kept)
        except ValueError:
            integers = np.asarray("a ragged list")
        if integers.dtype.kind not in "iu" or (integers < 0).any():
            raise InvalidInput(f"kept must be integers of at least 0, got {shown(kept)}")
        if (integers > INT64_MAX).any():
            raise InvalidInput(f"kept must be at most {INT64_MAX:,}, got {shown(kept)}: give a smaller one")
        return torch.tensor(integers.tolist(), dtype=torch.long, device=device)
    if kept.is_floating_point() or kept.is_complex() or kept.dtype == torch.bool:
        raise InvalidInput(f"kept must hold integers, got {kept.dtype}: convert it with kept.long()")
    return kept.long()


def check_tensor(x: object, name: str) -> None:
    """Raise unless `x` is a tensor; the error calls it `name`."""
    if not isinstance(x, Tensor):
        raise InvalidInput(f"{name} must be a tensor, got {type(x).__name__}: convert an array with torch.as_tensor")


def check_factor(value: Any, name: str, *, above: float = -math.inf) -> Tensor | float:
    """Return a factor: a tensor, or a finite number as a float, which must be greater than `above`."""
    factor: Tensor | float = value
    if isinstance(value, Tensor) or torch.compiler.is_compiling():  # where a number may be symbolic
        return factor
    if not (is_number(value) and value > above):
        least = "" if above == -math.inf else f" greater than {above:g}"
        raise InvalidInput(f"{name} must be a finite number{least}, got {shown(value)}")
    return float(value)


def check_dim(x: Tensor, dim: int) -> int:
    """Return the dimension counted from the front."""
    check_tensor(x, "a code")
    if not -x.ndim <= dim < x.ndim:
        raise InvalidInput(f"dim must be a dimension of x, which has {x.ndim}, got {dim}")
    return dim % x.ndim
