"""Errors of a method by the bits of an image."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from nestcode.arrays import Doubles
from nestcode.reproduce.codecs import Codec
from nestcode.reproduce.pixels import Pixels, pixel_error

Kind = Literal["ours", "network", "codec", "bound"]


@dataclass(frozen=True)
class Curve:
    """Errors of a method by size."""

    name: str
    kind: Kind
    bits: Doubles  # an image, rising
    errors: Doubles  # squares of a pixel between 0 and 1

    @classmethod
    def of(cls, name: str, kind: Kind, bits: Any, errors: Any) -> "Curve":
        """The front of these points: those that a smaller size beats are left out.

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


def codec_curves(codec: Codec, pictures: Pixels, qualities: Sequence[float] | None = None) -> tuple[Curve, Curve]:
    """A codec over its qualities, as files and without headers, on pictures (n, side, side, 3)."""
    files, bare, errors = [], [], []
    with ThreadPoolExecutor() as threads:
        for quality in codec.qualities if qualities is None else qualities:
            sizes = list(threads.map(lambda picture, quality=quality: _coded(codec, picture, quality), pictures))
            files.append(8 * np.mean([file for file, _, _ in sizes]))
            bare.append(8 * np.mean([payload for _, payload, _ in sizes]))
            errors.append(np.mean([error for _, _, error in sizes]))
    return (
        Curve.of(codec.name, "codec", files, errors),
        Curve.of(f"{codec.name}, no headers", "codec", bare, errors),
    )


def _coded(codec: Codec, picture: Pixels, quality: float) -> tuple[int, int, float]:
    """Bytes of a file, those that are not headers, and the error of what it decodes to."""
    blob, decoded = codec(picture, quality)
    return len(blob), codec.bare_bytes(picture, quality, blob), pixel_error(picture, decoded)
