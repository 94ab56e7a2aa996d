"""Measures of search and of compression: recall@k, exact neighbours, distortion, PSNR, SSIM, BD-rate.

>>> X = np.eye(4, dtype=np.float32)
>>> recall(np.array([[0, 3]]), exact_neighbors(X[:1], X, k=2))
0.5
"""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nestcode.arrays import Doubles, Ids, check_int, check_rows
from nestcode.errors import InvalidInput, import_extra

QUERIES = 256  # compared with all items at once
LUMA = (0.299, 0.587, 0.114)  # weights of red, green and blue (ITU-R BT.601)


def exact_neighbors(
    queries: ArrayLike, items: ArrayLike, k: int = 10, metric: Literal["l2", "cosine", "inner"] = "l2"
) -> Ids:
    """Return the k nearest items of each query by exhaustive search, nearest first, (queries, k).

    >>> exact_neighbors([[0.9, 0.0]], [[0.0, 1.0], [1.0, 0.0], [3.0, 0.0]], k=2)
    array([[1, 0]])

    Args:
        queries: (n, features).
        items: (m, features).
        k: how many neighbours; at most as many as there are items.
        metric: "l2", "cosine" or "inner" (largest inner product first).

    """
    asked, rows = check_rows(queries).astype(np.float64), check_rows(items).astype(np.float64)
    if asked.shape[1] != rows.shape[1]:
        raise InvalidInput(f"queries must have the items' {rows.shape[1]} features, got {asked.shape[1]}")
    if check_int(k, "k", least=1) > len(rows):
        raise InvalidInput(f"k must be at most the number of items {len(rows)}, got {k}: give a smaller k")
    if metric not in ("l2", "cosine", "inner"):
        raise InvalidInput(f'metric must be "l2", "cosine" or "inner", got {metric!r}')
    if metric == "cosine":
        asked, rows = _unit(asked), _unit(rows)
    if metric == "l2":  # squares are small around the mean
        asked, rows = asked - rows.mean(axis=0), rows - rows.mean(axis=0)
    norms = np.einsum("nf,nf->n", rows, rows) if metric == "l2" else np.zeros(len(rows))
    found = np.empty((len(asked), k), dtype=np.int64)
    for first in range(0, len(asked), QUERIES):
        distances = norms - 2 * (asked[first : first + QUERIES] @ rows.T)
        near = np.argpartition(distances, k - 1, axis=1)[:, :k]
        order = np.argsort(np.take_along_axis(distances, near, axis=1), axis=1, kind="stable")
        found[first : first + QUERIES] = np.take_along_axis(near, order, axis=1)
    return found


def recall(found: ArrayLike, exact: ArrayLike) -> float:
    """Return the share of the exact neighbours that a search found: recall@k for k columns of `exact`.

    >>> recall([[4, 1, -1], [2, 3, 5]], [[1, 2], [3, 2]])
    0.75

    Args:
        found: ids, (queries, any number); -1 stands for a missing hit.
        exact: ids of the true neighbours, (queries, k).

    """
    hits, true = np.asarray(found), np.asarray(exact)
    if hits.ndim != 2 or true.ndim != 2 or len(hits) != len(true):
        raise InvalidInput(f"ids must be (queries, k) for the same queries, got shapes {hits.shape} and {true.shape}")
    if true.size == 0:
        return 1.0
    return float(np.mean([np.isin(row, own).mean() for row, own in zip(true, hits, strict=True)]))


def distortion(original: ArrayLike, decoded: ArrayLike) -> float:
    """Return the mean squared error of a value.

    >>> distortion([[0.0, 1.0]], [[0.0, 0.5]])
    0.125
    """
    a, b = _pair(original, decoded)
    return float(np.mean(np.square(a - b)))


def psnr(original: ArrayLike, decoded: ArrayLike, peak: float | None = None) -> float:
    """Return the peak signal-to-noise ratio in dB; infinite where nothing differs.

    >>> round(psnr(np.zeros(4, dtype=np.uint8), np.full(4, 25, dtype=np.uint8)), 2)
    20.17

    Args:
        original: an image or images, any shape.
        decoded: the same shape.
        peak: the largest possible value; that of the type for integers, 1 for floats.

    """
    kind = np.asarray(original).dtype
    if peak is None:
        peak = float(np.iinfo(kind).max) if kind.kind in "iu" else 1.0
    error = distortion(original, decoded)
    return float("inf") if error == 0 else float(10 * np.log10(peak**2 / error))


def ssim(original: ArrayLike, decoded: ArrayLike) -> float:
    """Return the structural similarity of luma (Wang et al. 2004), averaged over 8-bit images (…, height, width, 3).

    >>> flat = np.full((32, 32, 3), 90, dtype=np.uint8)
    >>> ssim(flat, flat)
    1.0
    """
    blur = import_extra("scipy.ndimage", extra="reproduce", purpose="ssim").gaussian_filter
    a, b = _pair(original, decoded)
    x, y = a @ LUMA, b @ LUMA
    sigma = (0,) * (x.ndim - 2) + (1.5, 1.5)
    mean_x, mean_y, xx, yy, xy = (blur(part, sigma, truncate=3.5) for part in (x, y, x * x, y * y, x * y))
    c1, c2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
    above = (2 * mean_x * mean_y + c1) * (2 * (xy - mean_x * mean_y) + c2)
    below = (mean_x**2 + mean_y**2 + c1) * (xx - mean_x**2 + yy - mean_y**2 + c2)
    return float(np.mean(above / below))


def bd_rate(
    rates: Sequence[float], qualities: Sequence[float], anchor_rates: Sequence[float], anchor_qualities: Sequence[float]
) -> float:
    """Return the Bjøntegaard delta rate: the mean difference in rate at equal quality, -0.1 where 10 % are saved.

    The logarithm of the rate is interpolated over quality by monotone cubic polynomials (PCHIP).

    >>> round(bd_rate([0.2, 0.4, 0.8, 1.6], [28, 31, 34, 37], [0.25, 0.5, 1.0, 2.0], [28, 31, 34, 37]), 3)
    -0.2

    Args:
        rates: of the codec, in any unit; at least two.
        qualities: its PSNR or another quality that rises with the rate.
        anchor_rates: of the codec to compare with.
        anchor_qualities: its qualities.

    """
    curves = [_curve(rates, qualities), _curve(anchor_rates, anchor_qualities)]
    low, high = max(quality[0] for quality, _ in curves), min(quality[-1] for quality, _ in curves)
    if low >= high:
        raise InvalidInput(f"the qualities of the two codecs must overlap, got none between {low} and {high}")
    interpolate = import_extra("scipy.interpolate", extra="reproduce", purpose="bd_rate").PchipInterpolator
    areas = [float(interpolate(quality, logs).integrate(low, high)) for quality, logs in curves]
    return float(np.exp((areas[0] - areas[1]) / (high - low)) - 1)


def _curve(rates: Sequence[float], qualities: Sequence[float]) -> tuple[Doubles, Doubles]:
    """Qualities, ascending, and the logarithms of the rates."""
    rate, quality = np.asarray(rates, dtype=np.float64), np.asarray(qualities, dtype=np.float64)
    if rate.shape != quality.shape or rate.ndim != 1 or len(rate) < 2:
        raise InvalidInput(f"a curve is at least 2 rates with a quality each, got {rate.shape} and {quality.shape}")
    order = np.argsort(quality)
    if (rate <= 0).any() or (np.diff(quality[order]) <= 0).any():
        raise InvalidInput("rates must be above 0 and qualities distinct: leave out points that coincide")
    return quality[order], np.log(rate[order])


def _pair(original: ArrayLike, decoded: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
    a, b = np.asarray(original, dtype=np.float64), np.asarray(decoded, dtype=np.float64)
    if a.shape != b.shape:
        raise InvalidInput(f"what was decoded must have the original's shape {a.shape}, got {b.shape}")
    return a, b


def _unit(rows: Doubles) -> Doubles:
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.divide(rows, norms, out=rows.copy(), where=norms > 0)
