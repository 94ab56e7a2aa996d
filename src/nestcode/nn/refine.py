"""Refiners: networks that improve decoded prefixes, conditioned on their length.

    bits ──base coder──▶ x̂ ──refiner(x̂, length)──▶ x̂ + correction

One network serves every length, as nested dropout trains one decoder for all of them. The last layer is initialized to
0, so an untrained refiner is the identity.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from nestcode.errors import InvalidInput

FREQUENCIES = 8  # sines and cosines of a length embedding
GROUPS = 8  # of group normalization
CHANNELS = (16, 32)  # of the default U-Net
UNITS, LAYERS = 512, 2  # of the default MLP


class LengthEmbedding(nn.Module):
    """A sinusoidal embedding of a length on a logarithmic scale, then an MLP.

    >>> LengthEmbedding(16)(torch.tensor([0, 8, 1024])).shape
    torch.Size([3, 16])
    """

    waves: Tensor  # angular frequencies

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("waves", torch.arange(1, FREQUENCIES + 1) * math.pi / 16, persistent=False)
        self.layers = nn.Sequential(
            nn.Linear(2 * FREQUENCIES, channels), nn.SiLU(), nn.Linear(channels, channels), nn.SiLU()
        )

    def forward(self, lengths: Tensor) -> Tensor:
        """Return embeddings, (n,) -> (n, channels)."""
        angles = torch.log2(1 + lengths.float())[:, None] * self.waves
        embedding: Tensor = self.layers(torch.cat([angles.sin(), angles.cos()], dim=1))
        return embedding


class VectorRefiner(nn.Module):
    """A residual MLP for vectors.

    >>> x = torch.rand(5, 64)
    >>> bool((VectorRefiner(64)(x, torch.full((5,), 16)) == x).all())
    True

    Args:
        features: of an item.
        units: of the hidden layers.
        layers: residual blocks.

    """

    def __init__(self, features: int, units: int = UNITS, layers: int = LAYERS) -> None:
        super().__init__()
        self._settings = {"units": int(units), "layers": int(layers)}
        self.begin = nn.Linear(features, units)
        self.length = LengthEmbedding(units)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(units), nn.Linear(units, units), nn.SiLU(), nn.Linear(units, units))
            for _ in range(layers)
        )
        self.end = nn.Linear(units, features)
        _zero_init(self.end)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """Return refined vectors, (n, features), (n,) -> (n, features)."""
        hidden = functional.silu(self.begin(x)) + self.length(lengths)
        for block in self.blocks:
            hidden = hidden + block(hidden)
        out: Tensor = x + self.end(hidden)
        return out

    def settings(self) -> dict[str, Any]:
        """Return the arguments, beside `features`, that rebuild the network."""
        return dict(self._settings)


class ImageRefiner(nn.Module):
    """A U-Net for images, conditioned on the length in every block.

    >>> x = torch.rand(5, 3 * 16 * 16)
    >>> bool((ImageRefiner((3, 16, 16))(x, torch.full((5,), 16)) == x).all())
    True

    Args:
        shape: of an image: (height, width), (channels, height, width) or (height, width, channels).
        channels: of the network at each resolution, from full to coarse, each half of the one before.
        flip: augment training by horizontal flips: suits natural images, not letters.

    """

    def __init__(self, shape: Sequence[int], channels: Sequence[int] = CHANNELS, flip: bool = False) -> None:
        super().__init__()
        if not len(channels) or any(number < 1 or number % GROUPS for number in channels):
            raise InvalidInput(f"channels must be multiples of {GROUPS}, as in {CHANNELS}, got {tuple(channels)}")
        self.shape, self._channels_first = _channels_first(shape)
        self.item_shape, self._channels, self.flip = tuple(map(int, shape)), tuple(map(int, channels)), flip
        embedded = 2 * channels[0]
        self.length = LengthEmbedding(embedded)
        self.begin = nn.Conv2d(self.shape[0], channels[0], 3, padding=1)
        steps = list(pairwise(channels))
        self.down = nn.ModuleList(_Block(fine, embedded) for fine, _ in steps)
        self.coarser = nn.ModuleList(nn.Conv2d(fine, coarse, 2, stride=2) for fine, coarse in steps)
        self.middle = nn.ModuleList([_Block(channels[-1], embedded), _Block(channels[-1], embedded)])
        self.finer = nn.ModuleList(nn.ConvTranspose2d(coarse, fine, 2, stride=2) for fine, coarse in reversed(steps))
        self.up = nn.ModuleList(_Block(fine, embedded) for fine, _ in reversed(steps))
        self.end = nn.Conv2d(channels[0], self.shape[0], 3, padding=1)
        self._multiple = 2 ** (len(channels) - 1)
        _zero_init(self.end)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """Return refined images as rows, (n, features), (n,) -> (n, features)."""
        _, height, width = self.shape
        image = self._image(x)
        padded = functional.pad(image, (0, -width % self._multiple, 0, -height % self._multiple), mode="replicate")
        embedding = self.length(lengths)
        hidden, skips = self.begin(padded.contiguous(memory_format=torch.channels_last)), []
        for block, coarser in zip(self.down, self.coarser, strict=True):
            hidden = block(hidden, embedding)
            skips.append(hidden)
            hidden = coarser(hidden)
        for block in self.middle:
            hidden = block(hidden, embedding)
        for finer, block in zip(self.finer, self.up, strict=True):
            hidden = block(finer(hidden) + skips.pop(), embedding)
        correction = self.end(functional.silu(hidden))[:, :, :height, :width]
        return x + self._row(correction)

    def flipped(self, x: Tensor) -> Tensor:
        """Return images as rows, (n, features), flipped horizontally."""
        return self._row(self._image(x).flip(3))

    def _image(self, x: Tensor) -> Tensor:
        channels, height, width = self.shape
        if self._channels_first:
            return x.reshape(-1, channels, height, width)
        return x.reshape(-1, height, width, channels).movedim(-1, 1)

    def _row(self, image: Tensor) -> Tensor:
        return (image if self._channels_first else image.movedim(1, -1)).reshape(len(image), -1)

    def settings(self) -> dict[str, Any]:
        """Return the arguments that rebuild the network."""
        return {"shape": list(self.item_shape), "channels": list(self._channels), "flip": self.flip}


class _Block(nn.Module):
    """A residual block of two convolutions, with a scale and shift by the length between them (FiLM)."""

    def __init__(self, channels: int, embedded: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(GROUPS, channels)
        self.first, self.second = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))
        self.length = nn.Linear(embedded, 2 * channels)

    def forward(self, x: Tensor, embedding: Tensor) -> Tensor:
        scale, shift = self.length(embedding)[:, :, None, None].chunk(2, dim=1)
        out: Tensor = x + self.second(functional.silu(self.first(functional.silu(self.norm(x))) * (1 + scale) + shift))
        return out


def _channels_first(shape: Sequence[int]) -> tuple[tuple[int, int, int], bool]:
    """Return the shape as (channels, height, width), and whether channels come first in a row."""
    sizes = tuple(int(size) for size in shape)
    if len(sizes) not in (2, 3) or min(sizes) < 1:
        raise InvalidInput(
            f"shape must be (height, width), (channels, height, width) or (height, width, channels), got {shape}"
        )
    if len(sizes) == 2:
        return (1, sizes[0], sizes[1]), True
    a, b, c = sizes
    return ((a, b, c), True) if a <= c else ((c, a, b), False)


def _zero_init(layer: nn.Linear | nn.Conv2d) -> None:
    nn.init.zeros_(layer.weight)
    assert layer.bias is not None
    nn.init.zeros_(layer.bias)
