"""The networks that refine what a coder decodes, as settings: an MLP for vectors, a U-Net for images.

The modules themselves are in `nestcode.nn.refine`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from nestcode.arrays import check_int
from nestcode.coders.network import check_sizes
from nestcode.codes import MAX_WIDTH
from nestcode.errors import InvalidInput
from nestcode.nn.refine import CHANNELS, LAYERS, UNITS, ImageRefiner, VectorRefiner
from nestcode.training.config import Training
from nestcode.training.data import Source


@dataclass(frozen=True)
class MLP:
    """A residual MLP for vectors.

    >>> MLP(units=1024, layers=4).build(features=64)
    VectorRefiner(
    ...

    Args:
        units: of every hidden layer.
        layers: residual blocks.

    """

    units: int = UNITS
    layers: int = LAYERS

    TRAINING: ClassVar[Training] = Training(steps=2000, batch_size=256)  # by default: minutes on a CPU

    def __post_init__(self) -> None:
        check_int(self.units, "units", least=1)
        check_int(self.layers, "layers", least=1)

    def build(self, features: int, shape: Sequence[int] | None = None) -> VectorRefiner:  # noqa: ARG002
        """Return the untrained module."""
        features = check_int(features, "features", least=1, most=MAX_WIDTH)
        return VectorRefiner(features, self.units, self.layers)


@dataclass(frozen=True)
class UNet:
    """A U-Net for images.

    >>> UNet(channels=(16, 32), shape=(3, 32, 32)).build(features=3072)
    ImageRefiner(
    ...

    Args:
        channels: the channels of the convolutions at full resolution, at half of it, and so on; on a GPU use more.
        shape: the shape of images that come as rows, such as (3, 32, 32); images that come as arrays have their own.
        flip: augment the training images by horizontal flips.

    """

    channels: Sequence[int] = CHANNELS
    shape: Sequence[int] | None = None
    flip: bool = False

    TRAINING: ClassVar[Training] = Training(steps=500, batch_size=32, learning_rate=3e-3)

    def __post_init__(self) -> None:
        check_sizes(self.channels, "channels")
        check_sizes(self.shape, "shape")

    def build(self, features: int, shape: Sequence[int] | None = None) -> ImageRefiner:
        """Return the untrained module, for images of `shape` where the settings name none."""
        shape = shape if self.shape is None else self.shape
        if shape is None:
            raise InvalidInput(
                "a U-Net needs images, (n, height, width) or (n, channels, height, width), got rows: reshape them, or "
                "name the shape as in UNet(shape=(3, 32, 32))"
            )
        shape = [check_int(side, "shape", least=1) for side in shape]
        if math.prod(shape) != features:
            raise InvalidInput(f"shape must be that of {features} features, got {tuple(shape)}")
        return ImageRefiner(shape, self.channels, flip=self.flip)


def network_for(source: Source) -> MLP | UNet:
    """Return the default network: a U-Net for images, an MLP for vectors."""
    return MLP() if image_shape(source) is None else UNet()


def image_shape(source: Source) -> tuple[int, ...] | None:
    """Return the shape of an item if items are images."""
    shape: tuple[int, ...] = getattr(source, "shape", ())
    return shape if len(shape) in (2, 3) else None


def network_to_json(module: VectorRefiner | ImageRefiner) -> dict[str, Any]:
    """Return the settings of a network as a file has them: an MLP as channels without a shape."""
    settings = module.settings()
    if isinstance(module, ImageRefiner):
        return {"shape": settings["shape"], "channels": settings["channels"], "mirrored": settings["flip"]}
    default = settings == {"units": UNITS, "layers": LAYERS}  # for which files have always had the U-Net's channels
    channels = list(CHANNELS) if default else [settings["units"]] * settings["layers"]
    return {"shape": None, "channels": channels, "mirrored": False}


def network_from_json(values: dict[str, Any]) -> MLP | UNet:
    """Return the settings of a network that `network_to_json` described."""
    channels = tuple(values["channels"])
    if values["shape"] is not None:
        return UNet(channels, tuple(values["shape"]), flip=values["mirrored"])
    if channels == CHANNELS:
        return MLP()
    if len(set(channels)) != 1:
        raise ValueError(f"its network has layers of {channels}")
    return MLP(channels[0], len(channels))
