"""Rate–distortion curves: MSE of a method by the bits of an image."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from nestcode.arrays import Doubles
from nestcode.pca import Moments
from nestcode.reproduce.lab.codecs import Codec
from nestcode.reproduce.lab.images import Images, Pixels, as_pixels, as_rows, pixel_mse

Kind = Literal["ours", "network", "codec", "bound"]


@dataclass(frozen=True)
class Curve:
    """MSE of a method by rate."""

    name: str
    kind: Kind
    bits: Doubles  # per image, ascending
    errors: Doubles  # MSE of pixels on the scale from 0 to 1

    @classmethod
    def of(cls, name: str, kind: Kind, bits: Any, errors: Any) -> "Curve":
        """Return the Pareto front of these points.

        >>> Curve.of("some", "codec", [30, 10, 20], [0.2, 0.4, 0.5]).bits
        array([10., 30.])
        """
        bits, errors = np.asarray(bits, dtype=np.float64), np.asarray(errors, dtype=np.float64)
        order = np.lexsort((errors, bits))
        best = np.minimum.accumulate(np.append(np.inf, errors[order]))
        front = order[errors[order] < best[:-1]]
        return cls(name, kind, bits[front], errors[front])

    def at(self, bits: float) -> float | None:
        """Return the error at a rate by linear interpolation, None outside the curve.

        >>> Curve.of("some", "codec", [10, 30], [0.4, 0.2]).at(20)
        0.3
        """
        if not self.bits[0] <= bits <= self.bits[-1]:
            return None
        return round(float(np.interp(bits, self.bits, self.errors)), 9)


def sign_errors(images: Images, widths: Sequence[int]) -> Doubles:
    """Return the MSE of test images by the sign of each of so many principal components, decoded by least squares."""
    rows, test = as_rows(images.train), as_rows(images.test)
    moments = Moments()
    moments.add(rows)
    directions = np.linalg.eigh(moments.covariance())[1][:, ::-1][:, : max(widths)].astype(np.float32)
    mean = moments.mean().astype(np.float32)
    signs, test_signs = (  # and a column for the offset
        np.insert(np.sign((part - mean) @ directions), 0, 1, axis=1) for part in (rows, test)
    )
    products, targets = signs.T @ signs, signs.T @ rows
    decoders = [np.linalg.lstsq(products[: 1 + w, : 1 + w], targets[: 1 + w], rcond=None)[0] for w in widths]
    return np.array([
        pixel_mse(images.test, as_pixels(test_signs[:, : 1 + w] @ decoder))
        for w, decoder in zip(widths, decoders, strict=True)
    ])  # fmt: skip


def codec_curves(codec: Codec, images: Pixels, qualities: Sequence[float] | None = None) -> tuple[Curve, Curve]:
    """Return the curves of a codec over its qualities, with and without headers, for images (n, height, width, 3)."""
    files, bare, errors = [], [], []
    with ThreadPoolExecutor() as threads:
        for quality in codec.qualities if qualities is None else qualities:
            coded = list(threads.map(lambda image, quality=quality: _encode(codec, image, quality), images))
            files.append(8 * np.mean([size for size, _, _ in coded]))
            bare.append(8 * np.mean([payload for _, payload, _ in coded]))
            errors.append(np.mean([error for _, _, error in coded]))
    return (
        Curve.of(codec.name, "codec", files, errors),
        Curve.of(f"{codec.name}, no headers", "codec", bare, errors),
    )


def _encode(codec: Codec, image: Pixels, quality: float) -> tuple[int, int, float]:
    """Return the bytes of a file, its bytes without headers, and the MSE of the decoded image."""
    blob, decoded = codec(image, quality)
    return len(blob), codec.bare_bytes(image, quality, blob), pixel_mse(image, decoded)
