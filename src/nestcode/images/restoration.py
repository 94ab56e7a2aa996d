"""Restoration of decoded images: a network that removes the artifacts of a transform codec.

    pixels ──pixel unshuffle──▶ U-Net(step) ──pixel shuffle──▶ correction ──▶ pixels + correction

It works on blocks of 4 x 4 pixels and of 8 x 8, since convolutions at full resolution are too slow for a CPU. One
network serves every rate: the quantizer step that the decoder reached modulates each residual block (FiLM) and scales
the correction, which is 0 at the finest step. A bias for each place in a block of the codec tells the network where
block borders lie. The last layer is initialized to 0, so an untrained network is the identity.
"""

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional

from nestcode.errors import InvalidInput
from nestcode.images.refiner import COARSEST, ERROR, FINEST, OCTAVES, PERIOD, UNSHUFFLE, Sizes, layer_names
from nestcode.storage import Arrays

CHANNELS = (80, 128)
BLOCKS = (3, 3, 4)
MULTIPLE = 2 * UNSHUFFLE  # of heights and widths
EMBEDDED = 64  # features of a step
CLIPPED = 0.05  # of images have features beyond the range of bytes


class RestorationUNet(nn.Module):
    """A U-Net of two resolutions that corrects decoded images, conditioned on the quantizer step.

    >>> network = RestorationUNet((8, 16))
    >>> x = torch.rand(2, 3, 16, 24)
    >>> bool((network(x, torch.tensor([4.0, 64.0])) == x).all())
    True

    Args:
        channels: of the convolutions at a quarter and at an eighth of the resolution.
        blocks: residual blocks on the way down, at the bottom and on the way up.

    """

    def __init__(self, channels: tuple[int, int] = CHANNELS, blocks: Sizes = BLOCKS) -> None:
        super().__init__()
        if min(*channels, *blocks) < 1:
            raise InvalidInput(f"channels and blocks must be at least 1, got {channels} and {blocks}")
        self.channels, self.blocks = channels, blocks
        fine, coarse = channels
        pixels = 3 * UNSHUFFLE**2
        self.step = StepEmbedding()
        self.begin = nn.Conv2d(pixels, fine, 3, padding=1)
        self.place = nn.Parameter(torch.zeros(fine, PERIOD // UNSHUFFLE, PERIOD // UNSHUFFLE))
        self.down = nn.ModuleList(_Block(fine) for _ in range(blocks[0]))
        self.coarser = nn.Conv2d(fine, coarse, 2, stride=2)
        self.middle = nn.ModuleList(_Block(coarse) for _ in range(blocks[1]))
        self.finer = nn.Conv2d(coarse, 4 * fine, 1)
        self.up = nn.ModuleList(_Block(fine) for _ in range(blocks[2]))
        self.end = nn.Conv2d(fine, pixels, 3, padding=1)
        for layer in (self.end.weight, self.end.bias):
            assert layer is not None
            nn.init.zeros_(layer)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x: Tensor, steps: Tensor) -> Tensor:
        """Return corrected images in [0, 1], (n, 3, height, width), (n,) -> (n, 3, height, width).

        Height and width are multiples of 8, and a block of the codec begins in the upper left corner; `steps` are
        quantizer steps in pixel values from 0 to 255.
        """
        embedding = self.step(steps)
        unshuffled = functional.pixel_unshuffle(x, UNSHUFFLE).contiguous(memory_format=torch.channels_last)
        hidden = self._placed(self.begin(unshuffled))
        for block in self.down:
            hidden = block(hidden, embedding)
        skipped, hidden = hidden, self.coarser(hidden)
        for block in self.middle:
            hidden = block(hidden, embedding)
        hidden = skipped + functional.pixel_shuffle(self.finer(hidden), 2)
        for block in self.up:
            hidden = block(hidden, embedding)
        scale = ERROR * steps.clamp(max=COARSEST) / 255 * torch.log2(steps / FINEST).clamp(0, 1)
        return x + scale[:, None, None, None] * functional.pixel_shuffle(self.end(hidden), UNSHUFFLE)

    def _placed(self, hidden: Tensor) -> Tensor:
        """Add the biases of all places."""
        (rows, columns), period = hidden.shape[2:], self.place.shape[1]
        tiled = self.place.repeat(1, -(-rows // period), -(-columns // period))[:, :rows, :columns]
        return hidden + tiled.to(hidden.dtype)


class StepEmbedding(nn.Module):
    """A sinusoidal embedding of the logarithm of a quantizer step, then an MLP.

    >>> StepEmbedding()(torch.tensor([4.0, 64.0])).shape
    torch.Size([2, 64])
    """

    waves: Tensor  # angular frequencies

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("waves", 2 * math.pi * torch.tensor(OCTAVES), persistent=False)
        self.layers = nn.Sequential(
            nn.Linear(2 * len(OCTAVES), EMBEDDED), nn.SiLU(), nn.Linear(EMBEDDED, EMBEDDED), nn.SiLU()
        )

    def forward(self, steps: Tensor) -> Tensor:
        """Return embeddings, (n,) -> (n, 64)."""
        angles = torch.log2(steps)[:, None] * self.waves
        embedding: Tensor = self.layers(torch.cat([angles.sin(), angles.cos()], dim=1))
        return embedding


class _Block(nn.Module):
    """A residual block of two convolutions, with a scale and shift by the step between them (FiLM)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))
        self.step = nn.Linear(EMBEDDED, 2 * channels)

    def forward(self, x: Tensor, embedding: Tensor) -> Tensor:
        scale, shift = self.step(embedding)[:, :, None, None].chunk(2, dim=1)
        out: Tensor = x + self.second(functional.relu(self.first(x) * (1 + scale) + shift))
        return out


@torch.inference_mode()
def quantized(network: RestorationUNet, images: Iterable[tuple[Tensor, float]]) -> Arrays:
    """Return a trained network in 8 bits, the arrays of a `Refiner`.

    What a convolution reads is quantized by a scale and a zero point for each channel, from the range of its values in
    most of the images. Its weights, times these scales, are quantized by a scale for each output.

    Args:
        network: the network.
        images: pixels in [0, 1] that were decoded, (3, height, width), and the quantizer steps of their decoders.

    """
    extremes: dict[str, list[Tensor]] = {name: [] for name in layer_names(network.blocks)}
    hooks = [network.get_submodule(name).register_forward_pre_hook(_observer(each)) for name, each in extremes.items()]
    for pixels, step in images:
        network(pixels[None], torch.tensor([step], device=pixels.device))
    for hook in hooks:
        hook.remove()
    arrays = {name: tensor.cpu().numpy() for name, tensor in network.state_dict().items()}
    for name, each in extremes.items():
        lows, highs = torch.stack(each).unbind(1)  # (images, inputs)
        low = torch.quantile(lows, CLIPPED, dim=0).clamp(max=0)
        high = torch.quantile(highs, 1 - CLIPPED, dim=0).clamp(min=1e-3)
        inverse = torch.full_like(high, 255) if name == "begin" else 255 / (high - low)  # of pixels, or features
        weights = network.get_parameter(f"{name}.weight") / inverse[:, None, None]
        scale = weights.abs().amax((1, 2, 3)).clamp(min=1e-20) / 127
        rounded = (weights / scale[:, None, None, None]).round().to(torch.int8)
        zero = (-low * inverse).round().to(torch.uint8)
        parts = {"weight": rounded, "scale": scale, "inverse": inverse, "zero": zero}
        arrays |= {f"{name}.{kind}": part.cpu().numpy() for kind, part in parts.items()}
    return arrays


def _observer(extremes: list[Tensor]) -> Callable[[nn.Module, tuple[Tensor]], None]:
    """Return a hook that appends the least and the largest input of a module by channel, (2, channels)."""

    def observe(_: nn.Module, inputs: tuple[Tensor]) -> None:
        x = inputs[0][0]
        extremes.append(torch.stack([x.amin((1, 2)), x.amax((1, 2))]))

    return observe
