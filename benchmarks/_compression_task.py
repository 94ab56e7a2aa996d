"""What the parts of the compression benchmark share: images, fitted coders, the error of decoded images."""

import argparse
from functools import cached_property
from pathlib import Path

import numpy as np

from _report import images
from nestcode import load_coder
from nestcode.arrays import Floats
from nestcode.coders import AdaptiveCoder, Coder, LinearCoder
from nestcode.coders.network import NetworkCoder
from nestcode.reproduce.lab.images import Pixels, as_pixels, as_rows, pixel_mse
from nestcode.training.runtime.accelerator import pick_device


class Task:
    """Training and test images, and the coders fitted on the former."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.name, train, test = images(argparse.Namespace(data=options.data, quick=False))
        self.train, self.test = train[: options.train], test[: options.test]
        self.side = round((train.shape[1] / 3) ** 0.5)
        self.width: int = options.width

    @cached_property
    def rows(self) -> Floats:
        """Training images in [0, 1], (n, features)."""
        return as_rows(self.train)

    @cached_property
    def images(self) -> Pixels:
        """Test images with channels last, as codecs take them: (n, side, side, 3)."""
        planes = self.test.reshape(-1, 3, self.side, self.side)
        return np.ascontiguousarray(planes.transpose(0, 2, 3, 1))

    @cached_property
    def coders(self) -> dict[str, Coder]:
        """Our coders by name."""
        made: dict[str, Coder] = {
            f"LinearCoder({self.width})": LinearCoder(self.width).fit(self.rows),
            f"AdaptiveCoder({self.width})": AdaptiveCoder(self.width, beams=self.options.beams).fit(self.rows),
        }
        if self.options.deep is not None:
            deep = load_coder(self.options.deep)
            made[f"{type(deep).__name__}({deep.width})"] = deep
        if self.side == 32 and not self.options.quick:
            made["cifar10-small"] = load_coder(Path(__file__).parents[1] / "models" / "cifar10-small.coder")
        for coder in made.values():
            if isinstance(coder, NetworkCoder):
                coder.network_.to(pick_device(self.options.device))
        return made

    def error(self, made: Floats) -> float:
        """Return the MSE of decoded test images, rounded to 8 bits per channel."""
        return pixel_mse(self.test, as_pixels(made))
