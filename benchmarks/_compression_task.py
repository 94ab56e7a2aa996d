"""What the parts of the compression benchmark share: images, fitted coders, errors by size."""

import argparse
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from _report import images
from nestcode import load_coder
from nestcode.coders import AdaptiveCoder, Coder, LinearCoder
from nestcode.coders.deep import DeepCoder
from nestcode.training.hardware import pick_device

Pixels = NDArray[np.uint8]
Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Kind = Literal["ours", "network", "codec", "bound"]


@dataclass(frozen=True)
class Curve:
    """Errors of a method by size, of which those that a smaller size beats are left out."""

    name: str
    kind: Kind
    bits: Doubles  # an image, rising
    errors: Doubles  # squares of a pixel between 0 and 1, falling

    @classmethod
    def of(cls, name: str, kind: Kind, bits: Any, errors: Any) -> "Curve":
        """The front of these points.

        >>> Curve.of("some", "codec", [30, 10, 20], [0.2, 0.4, 0.5]).bits
        array([10., 30.])
        """
        bits, errors = np.asarray(bits, dtype=np.float64), np.asarray(errors, dtype=np.float64)
        order = np.lexsort((errors, bits))
        best = np.minimum.accumulate(np.append(np.inf, errors[order]))
        front = order[errors[order] < best[:-1]]
        return cls(name, kind, bits[front], errors[front])

    def at(self, bits: float) -> float | None:
        """The error at a size, on the straight line between its neighbours; None where it has none.

        >>> Curve.of("some", "codec", [10, 30], [0.4, 0.2]).at(20)
        0.3
        """
        if not self.bits[0] <= bits <= self.bits[-1]:
            return None
        return round(float(np.interp(bits, self.bits, self.errors)), 9)


class Task:
    """Images to learn from and to measure on, and the coders fitted on them."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.name, train, test = images(argparse.Namespace(data=options.data, quick=False))
        self.train, self.test = train[: options.train], test[: options.test]
        self.side = round((train.shape[1] / 3) ** 0.5)
        self.width: int = options.width

    @cached_property
    def rows(self) -> Floats:
        """Training images between 0 and 1, (n, features)."""
        return as_rows(self.train)

    @cached_property
    def pictures(self) -> Pixels:
        """Test images as codecs take them, (n, side, side, 3)."""
        planes = self.test.reshape(-1, 3, self.side, self.side)
        return np.ascontiguousarray(planes.transpose(0, 2, 3, 1))

    @cached_property
    def coders(self) -> dict[str, Coder]:
        """Ours."""
        made: dict[str, Coder] = {
            f"LinearCoder({self.width})": LinearCoder(self.width).fit(self.rows),
            f"AdaptiveCoder({self.width})": AdaptiveCoder(self.width, beams=self.options.beams).fit(self.rows),
        }
        if self.options.deep is not None:
            deep = load_coder(self.options.deep)
            made[f"DeepCoder({deep.width})"] = deep
        if self.side == 32 and not self.options.quick:
            made["cifar10-small"] = load_coder("cifar10-small")
        for coder in made.values():
            if isinstance(coder, DeepCoder):
                coder.network_.to(pick_device(self.options.device))
        return made

    def error(self, made: Floats) -> float:
        """The error of what decodes of the test images, as the image of whole numbers that a receiver sees."""
        return pixel_error(self.test, as_pixels(made))


def as_rows(pixels: Pixels) -> Floats:
    """Pixels between 0 and 1."""
    return np.divide(pixels, 255, dtype=np.float32)


def as_pixels(rows: Floats) -> Pixels:
    """The nearest whole numbers from 0 to 255."""
    whole: Pixels = np.rint(255 * rows.clip(0, 1)).astype(np.uint8)
    return whole


def pixel_error(true: Pixels, made: Pixels) -> float:
    """The mean square of the difference of pixels between 0 and 1.

    >>> pixel_error(np.array([255, 0], dtype=np.uint8), np.array([0, 0], dtype=np.uint8))
    0.5
    """
    difference = np.subtract(true, made, dtype=np.int32)
    return float(np.mean(np.square(difference))) / 255**2
