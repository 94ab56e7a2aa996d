"""The layers of an ordered autoencoder: a ReLU encoder, the code in blocks, and a decoder that mirrors both.

A code that grew has one block per stage. Blocks are multiplied separately, so that the output of an old block does not
depend on later blocks, to the last bit. The first units of a block can be frozen: their weights get no gradient, while
the layers below still get theirs through them, and `restore_frozen` undoes what an optimizer's momentum does to them.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from nestcode.arrays import check_int
from nestcode.codes import MAX_WIDTH
from nestcode.errors import InvalidInput


class Block(nn.Module):
    """A block of the code's units: their encoder weights, and their decoder weights.

    >>> block = Block(below=16, units=4, tied=True)
    >>> block.encode(torch.rand(3, 16)).shape, block.decode(torch.rand(3, 4)).shape
    (torch.Size([3, 4]), torch.Size([3, 16]))
    """

    _trainable: Tensor  # (units,)

    def __init__(self, below: int, units: int, tied: bool) -> None:
        super().__init__()
        encoder, decoder = nn.Linear(below, units), nn.Linear(units, below, bias=False)
        self.weight = nn.Parameter(encoder.weight.detach())  # (units, below)
        self.bias = nn.Parameter(encoder.bias.detach())  # (units,)
        self.columns = None if tied else nn.Parameter(decoder.weight.detach())  # (below, units)
        self.frozen = 0
        self._frozen_values: list[Tensor] = []
        # Frozen units are masked, not sliced off: shapes stay, so that a compiled step outlives a sweep.
        self._masked = False
        self.register_buffer("_trainable", torch.ones(units, dtype=torch.bool), persistent=False)

    def encode(self, h: Tensor) -> Tensor:
        """Return pre-activations, (n, below) -> (n, units)."""
        return functional.linear(h, self._held(self.weight, self._trainable[:, None]), self._held(self.bias))

    def decode(self, code: Tensor) -> Tensor:
        """Return the units' contribution to the layer below, (n, units) -> (n, below)."""
        if self.columns is None:
            return functional.linear(code, self._held(self.weight, self._trainable[:, None]).T)
        return functional.linear(code, self._held(self.columns))

    def freeze(self, units: int) -> None:
        """Freeze the first `units` at their present values."""
        self.frozen, self._masked = units, True
        self._trainable[:units] = False
        if units == len(self.weight):
            self.requires_grad_(False)
        self._hold()

    def unfreeze(self, units: int) -> None:
        """Train all but the first `units` again."""
        if units < self.frozen:
            self.frozen, self._masked = units, units > 0
            self._trainable[units:] = True
            self.requires_grad_()
            self._hold()

    def restore_frozen(self) -> None:
        """Restore the values of frozen units."""
        with torch.no_grad():
            for part, kept in zip(self._leading(), self._frozen_values, strict=False):
                part.copy_(kept)

    def untie(self, columns: Tensor) -> None:
        """Take decoder weights of its own, (below, units)."""
        self.columns = nn.Parameter(columns.to(self.weight).clone())
        self._hold()

    def _held(self, parameter: Tensor, trainable: Tensor | None = None) -> Tensor:
        """Return a parameter without gradients for frozen units, whose mask broadcasts to it."""
        if not self._masked:
            return parameter
        return torch.where(self._trainable if trainable is None else trainable, parameter, parameter.detach())

    def _hold(self) -> None:
        """Keep the present values of frozen units, which `restore_frozen` restores."""
        self._frozen_values = [part.detach().clone() for part in self._leading()]

    def _load_from_state_dict(self, *state: Any) -> None:
        super()._load_from_state_dict(*state)
        self._hold()

    def _leading(self) -> list[Tensor]:
        """Return the parameters of the frozen units."""
        parts = [self.weight[: self.frozen], self.bias[: self.frozen]]
        return parts if self.columns is None else [*parts, self.columns[:, : self.frozen]]


class Encoder(nn.Module):
    """ReLU hidden layers, then the pre-activations of the code: (n, features) -> (n, width).

    >>> Encoder(64, layers=(32,), width=8)(torch.rand(5, 64)).shape
    torch.Size([5, 8])
    """

    def __init__(
        self, features: int, layers: Sequence[int], width: int, *, tied: bool = False, dropout: float = 0.2
    ) -> None:
        super().__init__()
        if not isinstance(layers, Iterable):
            raise InvalidInput(f"layers must be the widths of hidden layers, such as (128,), got {layers!r}")
        self.sizes = [features, *(check_int(size, "a layer's width", least=1, most=MAX_WIDTH) for size in layers)]
        self.tied, self.dropout = tied, dropout
        self.hidden = nn.ModuleList(nn.Linear(before, after) for before, after in pairwise(self.sizes))
        self.blocks = nn.ModuleList()
        self.grow(width)

    def forward(self, z: Tensor) -> Tensor:
        """Return the pre-activations of z."""
        for layer in self.hidden:
            z = functional.dropout(functional.relu(layer(z)), self.dropout, self.training)
        parts = [block.encode(z) for block in self.code_blocks()]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    def extra_repr(self) -> str:
        """Return what `print(model)` shows."""
        return f"{'-'.join(map(str, self.sizes))}, tied={self.tied}, dropout={self.dropout}"

    def code_blocks(self) -> list[Block]:
        """Return the blocks of the code, first to last."""
        return [block for block in self.blocks if isinstance(block, Block)]

    def grow(self, units: int) -> None:
        """Add a block to the code."""
        like = next(self.parameters(), torch.empty(0))
        self.blocks.append(Block(self.sizes[-1], units, self.tied).to(like))

    @property
    def frozen(self) -> int:
        """How many leading units are frozen."""
        return sum(block.frozen for block in self.code_blocks())

    def freeze(self, units: int) -> None:
        """Freeze the first `units` of the code."""
        for block in self.code_blocks():
            here = min(units, len(block.weight))
            block.freeze(here)
            units -= here

    def unfreeze(self, units: int) -> None:
        """Train all but the first `units` of the code again, and the hidden layers."""
        self.hidden.requires_grad_()
        for block in self.code_blocks():
            block.unfreeze(min(units, len(block.weight)))
            units -= min(units, len(block.weight))


class MirrorDecoder(nn.Module):
    """The mirror image of an encoder, with the same blocks: (n, width) -> (n, features).

    >>> MirrorDecoder(Encoder(64, (32,), 8, tied=True))(torch.rand(5, 8)).shape
    torch.Size([5, 64])
    """

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self._encoder = (encoder,)  # a tuple, so that its parameters are registered once
        back = encoder.sizes[::-1]
        layers = [] if encoder.tied else [nn.Linear(before, after, bias=False) for before, after in pairwise(back)]
        self.hidden = nn.ModuleList(layers)
        self.biases = nn.ParameterList([nn.Parameter(torch.zeros(size)) for size in back])

    def forward(self, code: Tensor) -> Tensor:
        """Decode, given zeros for dropped units."""
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
