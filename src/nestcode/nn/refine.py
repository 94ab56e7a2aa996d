"""Refiners: networks that better what a code's first bits decode to, knowing how many there are.

    bits ──any coder──▶ x̂ ──refiner(x̂, length)──▶ x̂ + what items like this one have beside

One network serves every length, as nested dropout trains one decoder for all of them. Untrained, it adds nothing.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from nestcode.errors import InvalidInput

WAVES = 8  # sines and cosines that a length is told by
GROUPS = 8  # of channels that are normalized together
CHANNELS = (16, 32)  # of images
LAYERS = (512, 512)  # of vectors; in files CHANNELS stand for them, as before others could be chosen


class LengthEmbedding(nn.Module):
    """A length as numbers for a network: neighbouring lengths give similar ones, on a scale of octaves.

    >>> LengthEmbedding(16)(torch.tensor([0, 8, 1024])).shape
    torch.Size([3, 16])
    """

    waves: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("waves", torch.arange(1, WAVES + 1) * math.pi / 16, persistent=False)
        self.layers = nn.Sequential(nn.Linear(2 * WAVES, channels), nn.SiLU(), nn.Linear(channels, channels), nn.SiLU())

    def forward(self, lengths: Tensor) -> Tensor:
        """(n,) -> (n, channels)."""
        angles = torch.log2(1 + lengths.float())[:, None] * self.waves
        told: Tensor = self.layers(torch.cat([angles.sin(), angles.cos()], dim=1))
        return told


class VectorRefiner(nn.Module):
    """For vectors: residual layers on all numbers at once.

    >>> x = torch.rand(5, 64)
    >>> bool((VectorRefiner(64)(x, torch.full((5,), 16)) == x).all())
    True

    Args:
        features: numbers of an item.
        hidden: width of the hidden layers.
        layers: how many.

    """

    def __init__(self, features: int, hidden: int = LAYERS[0], layers: int = len(LAYERS)) -> None:
        super().__init__()
        self._channels = (int(hidden),) * layers
        self.begin = nn.Linear(features, hidden)
        self.length = LengthEmbedding(hidden)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(hidden), nn.Linear(hidden, hidden), nn.SiLU(), nn.Linear(hidden, hidden))
            for _ in range(layers)
        )
        self.end = nn.Linear(hidden, features)
        _add_nothing(self.end)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """(n, features), (n,) -> (n, features)."""
        hidden = functional.silu(self.begin(x)) + self.length(lengths)
        for block in self.blocks:
            hidden = hidden + block(hidden)
        out: Tensor = x + self.end(hidden)
        return out

    def settings(self) -> dict[str, Any]:
        """Return the settings to rebuild the network from, for a file."""
        written = CHANNELS if self._channels == LAYERS else self._channels
        return {"shape": None, "channels": list(written), "mirrored": False}


class ImageRefiner(nn.Module):
    """For images: convolutions at several resolutions, the coarse ones first and last (a U-Net).

    >>> x = torch.rand(5, 3 * 16 * 16)
    >>> bool((ImageRefiner((3, 16, 16))(x, torch.full((5,), 16)) == x).all())
    True

    Args:
        shape: of an image: (height, width), (channels, height, width) or (height, width, channels).
        channels: of the network at each resolution, from full to coarse, each half of the one before.
        mirrored: it may learn from mirrored images too, as of photographs, but not of letters.

    """

    def __init__(self, shape: Sequence[int], channels: Sequence[int] = CHANNELS, mirrored: bool = False) -> None:
        super().__init__()
        if not len(channels) or any(number < 1 or number % GROUPS for number in channels):
            raise InvalidInput(f"channels must be multiples of {GROUPS}, as in {CHANNELS}, got {tuple(channels)}")
        self.shape, self._first = _planes(shape)
        self.given, self._channels, self.mirrored = tuple(map(int, shape)), tuple(channels), mirrored
        told = 2 * channels[0]
        self.length = LengthEmbedding(told)
        self.begin = nn.Conv2d(self.shape[0], channels[0], 3, padding=1)
        steps = list(pairwise(channels))
        self.down = nn.ModuleList(_Block(above, told) for above, _ in steps)
        self.coarser = nn.ModuleList(nn.Conv2d(above, below, 2, stride=2) for above, below in steps)
        self.middle = nn.ModuleList([_Block(channels[-1], told), _Block(channels[-1], told)])
        self.finer = nn.ModuleList(nn.ConvTranspose2d(below, above, 2, stride=2) for above, below in reversed(steps))
        self.up = nn.ModuleList(_Block(above, told) for above, _ in reversed(steps))
        self.end = nn.Conv2d(channels[0], self.shape[0], 3, padding=1)
        self._multiple = 2 ** (len(channels) - 1)
        _add_nothing(self.end)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """(n, features), (n,) -> (n, features)."""
        _, height, width = self.shape
        image = self._image(x)
        padded = functional.pad(image, (0, -width % self._multiple, 0, -height % self._multiple), mode="replicate")
        told = self.length(lengths)
        hidden, passed = self.begin(padded.contiguous(memory_format=torch.channels_last)), []
        for block, coarser in zip(self.down, self.coarser, strict=True):
            hidden = block(hidden, told)
            passed.append(hidden)
            hidden = coarser(hidden)
        for block in self.middle:
            hidden = block(hidden, told)
        for finer, block in zip(self.finer, self.up, strict=True):
            hidden = block(finer(hidden) + passed.pop(), told)
        added = self.end(functional.silu(hidden))[:, :, :height, :width]
        return x + self._row(added)

    def mirror(self, x: Tensor) -> Tensor:
        """Rows of images, (n, features), with left and right exchanged."""
        return self._row(self._image(x).flip(3))

    def _image(self, x: Tensor) -> Tensor:
        planes, height, width = self.shape
        if self._first:
            return x.reshape(-1, planes, height, width)
        return x.reshape(-1, height, width, planes).movedim(-1, 1)

    def _row(self, image: Tensor) -> Tensor:
        return (image if self._first else image.movedim(1, -1)).reshape(len(image), -1)

    def settings(self) -> dict[str, Any]:
        """Return the settings to rebuild the network from, for a file."""
        return {
            "shape": [int(size) for size in self.given],
            "channels": [int(size) for size in self._channels],
            "mirrored": self.mirrored,
        }


class _Block(nn.Module):
    """Two convolutions around which a picture passes; the length scales and shifts what lies between them."""

    def __init__(self, channels: int, told: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(GROUPS, channels)
        self.first, self.second = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))
        self.length = nn.Linear(told, 2 * channels)

    def forward(self, x: Tensor, told: Tensor) -> Tensor:
        scale, shift = self.length(told)[:, :, None, None].chunk(2, dim=1)
        out: Tensor = x + self.second(functional.silu(self.first(functional.silu(self.norm(x))) * (1 + scale) + shift))
        return out


def _planes(shape: Sequence[int]) -> tuple[tuple[int, int, int], bool]:
    """The shape with its channels first, and whether they come first in a row."""
    sizes = tuple(int(size) for size in shape)
    if len(sizes) not in (2, 3) or min(sizes) < 1:
        raise InvalidInput(
            f"shape must be (height, width), (channels, height, width) or (height, width, channels), got {shape}"
        )
    if len(sizes) == 2:
        return (1, sizes[0], sizes[1]), True
    a, b, c = sizes
    return ((a, b, c), True) if a <= c else ((c, a, b), False)


def _add_nothing(layer: nn.Linear | nn.Conv2d) -> None:
    nn.init.zeros_(layer.weight)
    assert layer.bias is not None
    nn.init.zeros_(layer.bias)
