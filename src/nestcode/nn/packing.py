"""Prefixes of tokens, packed: dropped tokens are removed, so that nothing is computed for them.

    (n, tokens, …) ──pack_prefix──▶ values (total, …), offsets (n + 1,) ──layers of tokens──▶ ──unpack──▶ (n, tokens, …)

The layout is that of variable-length attention kernels (`cu_seqlens`) and of PyTorch's jagged tensors:
`torch.nested.nested_tensor_from_jagged(*packed)`.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from nestcode.errors import InvalidInput
from nestcode.nn.dropout import Kept, prefix_mask


class PackedPrefixes(NamedTuple):
    """The kept tokens of all examples, one after another.

    >>> packed = pack_prefix(torch.tensor([[[1.0], [2.0]], [[3.0], [4.0]]]), [1, 2])
    >>> packed.values.flatten(), packed.offsets
    (tensor([1., 3., 4.]), tensor([0, 1, 3]))
    """

    values: Tensor  # (total, …)
    offsets: Tensor  # (n + 1,): where each example begins, and the end

    @property
    def lengths(self) -> Tensor:
        """The number of tokens of each example, (n,)."""
        return self.offsets.diff()

    def unpack(self, width: int, fill: float | Tensor = 0) -> Tensor:
        """Return (n, width, …), with `fill` in place of dropped tokens: a number, or a mask token.

        >>> pack_prefix(torch.tensor([[[1.0], [2.0]], [[3.0], [4.0]]]), [1, 2]).unpack(2)[:, :, 0]
        tensor([[1., 0.],
                [3., 4.]])
        """
        mask = prefix_mask(self.lengths, width)
        if len(self.values) != int(mask.sum()):
            raise InvalidInput(
                f"width must be at least the longest of the packed prefixes, {int(self.lengths.max())}, got {width}"
            )
        shape = (*mask.shape, *self.values.shape[1:])
        empty = torch.as_tensor(fill, dtype=self.values.dtype, device=self.values.device).expand(shape)
        return empty.masked_scatter(mask.view(*mask.shape, *[1] * (len(shape) - 2)), self.values)


def pack_prefix(x: Tensor, kept: Kept) -> PackedPrefixes:
    """Return the first `kept` tokens of each example, packed: (n, tokens, …), (n,) -> (total, …).

    >>> x, kept = torch.rand(3, 5, 2), torch.tensor([1, 5, 2])
    >>> packed = pack_prefix(x, kept)
    >>> packed.values.shape
    torch.Size([8, 2])
    >>> from nestcode.nn import keep_prefix
    >>> torch.equal(packed.unpack(5), keep_prefix(x, kept, dim=1))
    True

    The shape of the result depends on the lengths, so `torch.compile` breaks its graph here by default. If the whole
    batch has one length, slice instead: `x[:, :kept]`.
    """
    if x.ndim < 2:
        raise InvalidInput(f"x must be (n, tokens, …), got shape {tuple(x.shape)}")
    lengths = torch.as_tensor(kept, device=x.device)
    mask = prefix_mask(lengths.expand(x.shape[0]) if lengths.ndim == 0 else lengths, x.shape[1])
    if len(mask) != len(x):
        raise InvalidInput(f"kept must have one length for each of the {len(x)} examples, got {len(mask)}")
    counts = mask.sum(dim=1)
    return PackedPrefixes(x[mask], torch.cat([counts.new_zeros(1), counts.cumsum(dim=0)]))
