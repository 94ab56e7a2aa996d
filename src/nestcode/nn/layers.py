"""The layers of an ordered autoencoder: rectified hidden layers, the code in blocks, and their mirror image.

A code that grew has a block for each time it did. Blocks are multiplied one by one, so that what an old block gives
does not depend on the blocks after it, to the last bit. Within a block the first units may be fixed: they are
constants to the gradient, and `pin` undoes what an optimizer's momentum does to them.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from nestcode.arrays import check_int


class Block(nn.Module):
    """Some units of the code: how they are made from the layer below, and what they give back to it.

    >>> block = Block(below=16, units=4, tied=True)
    >>> block.encode(torch.rand(3, 16)).shape, block.decode(torch.rand(3, 4)).shape
    (torch.Size([3, 4]), torch.Size([3, 16]))
    """

    def __init__(self, below: int, units: int, tied: bool) -> None:
        super().__init__()
        made, back = nn.Linear(below, units), nn.Linear(units, below, bias=False)
        self.weight = nn.Parameter(made.weight.detach())  # (units, below)
        self.bias = nn.Parameter(made.bias.detach())  # (units,)
        self.columns = None if tied else nn.Parameter(back.weight.detach())  # (below, units)
        self.fixed = 0
        self._kept: list[Tensor] = []

    def encode(self, h: Tensor) -> Tensor:
        """Pre-activations, (n, below) -> (n, units)."""
        k = self.fixed
        if k == 0:
            return functional.linear(h, self.weight, self.bias)
        known = functional.linear(h.detach(), self.weight[:k].detach(), self.bias[:k].detach())
        if k == len(self.weight):
            return known
        return torch.cat([known, functional.linear(h, self.weight[k:], self.bias[k:])], dim=1)

    def decode(self, code: Tensor) -> Tensor:
        """What the units add to the layer below, (n, units) -> (n, below)."""
        columns = self.weight.T if self.columns is None else self.columns
        k = self.fixed
        if k == 0:
            return functional.linear(code, columns)
        known = functional.linear(code[:, :k], columns[:, :k].detach())
        return known if k == len(self.weight) else known + functional.linear(code[:, k:], columns[:, k:])

    def fix(self, units: int) -> None:
        """Make the first `units` constants, as they are now."""
        self.fixed = units
        self.requires_grad_(units < len(self.weight))
        self._kept = [part.detach().clone() for part in self._leading() if units]

    def pin(self) -> None:
        """Put fixed numbers back to what they were when they were fixed."""
        with torch.no_grad():
            for part, kept in zip(self._leading() if self.fixed else [], self._kept, strict=True):
                part.copy_(kept)

    def _leading(self) -> list[Tensor]:
        """What belongs to the units that are fixed."""
        parts = [self.weight[: self.fixed], self.bias[: self.fixed]]
        return parts if self.columns is None else [*parts, self.columns[:, : self.fixed]]


class Encoder(nn.Module):
    """Rectified hidden layers, then the pre-activations of the code: (n, features) -> (n, width).

    >>> Encoder(64, layers=(32,), width=8)(torch.rand(5, 64)).shape
    torch.Size([5, 8])
    """

    def __init__(
        self, features: int, layers: Sequence[int], width: int, *, tied: bool = False, dropout: float = 0.2
    ) -> None:
        super().__init__()
        self.sizes = [features, *(check_int(size, "a layer's width", least=1) for size in layers)]
        self.tied, self.dropout = tied, dropout
        self.hidden = nn.ModuleList(nn.Linear(before, after) for before, after in pairwise(self.sizes))
        self.blocks = nn.ModuleList()
        self.grow(width)

    def forward(self, z: Tensor) -> Tensor:
        """Pre-activations of z."""
        for layer in self.hidden:
            z = functional.dropout(functional.relu(layer(z)), self.dropout, self.training)
        parts = [block.encode(z) for block in self.code_blocks()]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    def extra_repr(self) -> str:
        """What `print(model)` shows."""
        return f"{'-'.join(map(str, self.sizes))}, tied={self.tied}, dropout={self.dropout}"

    def code_blocks(self) -> list[Block]:
        """The blocks of the code, first to last."""
        return [block for block in self.blocks if isinstance(block, Block)]

    def grow(self, units: int) -> None:
        """Add a block to the code."""
        like = next(self.parameters(), torch.empty(0))
        self.blocks.append(Block(self.sizes[-1], units, self.tied).to(like))

    @property
    def fixed(self) -> int:
        """How many leading units are constants."""
        return sum(block.fixed for block in self.code_blocks())

    def fix(self, units: int) -> None:
        """Make the first `units` of the code constants, and with them what feeds them: the hidden layers."""
        self.hidden.requires_grad_(units == 0)
        for block in self.code_blocks():
            here = min(units, len(block.weight))
            block.fix(here)
            units -= here


class MirrorDecoder(nn.Module):
    """An encoder upside down, with the same blocks: (n, width) -> (n, features).

    >>> MirrorDecoder(Encoder(64, (32,), 8, tied=True))(torch.rand(5, 8)).shape
    torch.Size([5, 64])
    """

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self._encoder = (encoder,)  # in a tuple, so that its parameters are counted once
        back = encoder.sizes[::-1]
        layers = [] if encoder.tied else [nn.Linear(before, after, bias=False) for before, after in pairwise(back)]
        self.hidden = nn.ModuleList(layers)
        self.biases = nn.ParameterList([nn.Parameter(torch.zeros(size)) for size in back])

    def forward(self, code: Tensor) -> Tensor:
        """Decode, with zeros for units that were dropped."""
        encoder = self._encoder[0]
        blocks = encoder.code_blocks()
        parts = code.split([len(block.weight) for block in blocks], dim=1)
        h: Tensor = sum((block.decode(part) for block, part in zip(blocks, parts, strict=True)), self.biases[0])
        tied = [weight.T for weight in reversed(_weights(encoder.hidden))]
        weights = tied if encoder.tied else _weights(self.hidden)
        for weight, bias in zip(weights, list(self.biases)[1:], strict=True):
            h = functional.linear(functional.dropout(functional.relu(h), encoder.dropout, self.training), weight, bias)
        return h


def _weights(layers: nn.ModuleList) -> list[Tensor]:
    return [layer.weight for layer in layers if isinstance(layer, nn.Linear)]
