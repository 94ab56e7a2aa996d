"""Measures of search and of compression: recall@k, exact neighbors, distortion, PSNR, SSIM, BD-rate, by length.

>>> exact = exact_neighbors([[0.0]], [[1.0], [2.0], [3.0]], k=2)
>>> recall([[0, 2]], exact)
0.5

Every function checks its arguments, works on blocks of bounded size, and computes in float64.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nestcode.arrays import Doubles, Ids, as_float64, check_int, check_rows, is_number, shown
from nestcode.errors import InvalidInput, import_extra

ITEM_BLOCK = 8192  # rows converted to float64 at a time
QUERY_BLOCK = 1024  # rows compared with a block of items at a time
VALUE_BLOCK = 1 << 22  # values of an array converted to float64 at a time
LUMA = (0.299, 0.587, 0.114)  # weights of red, green and blue (ITU-R BT.601)
PEAKS = {np.dtype(np.uint8): 255.0, np.dtype(np.uint16): 65535.0}  # of integer images; the peak of floats is 1


def exact_neighbors(
    queries: ArrayLike, items: ArrayLike, k: int = 10, metric: Literal["l2", "cosine", "inner"] = "l2"
) -> Ids:
    """Return the k nearest items of each query by exhaustive search, nearest first, (queries, k).

    Items at equal distance may come in either order.

    >>> exact_neighbors([[0.9, 0.0]], [[0.0, 1.0], [1.0, 0.0], [3.0, 0.0]], k=2)
    array([[1, 0]])

    Args:
        queries: (n, features).
        items: (m, features); may be a memory map larger than memory.
        k: number of neighbors, at most the number of items.
        metric: "l2", "cosine" or "inner" (largest inner product first).

    """
    targets, rows = check_rows(queries), check_rows(items)
    if targets.shape[1] != rows.shape[1]:
        raise InvalidInput(f"queries must have the items' {rows.shape[1]} features, got {targets.shape[1]}")
    k = check_int(k, "k", least=1)
    if k > len(rows):
        raise InvalidInput(f"k must be at most the number of items {len(rows)}, got {k}: give a smaller k")
    if metric not in ("l2", "cosine", "inner"):
        raise InvalidInput(f'metric must be "l2", "cosine" or "inner", got {metric!r}')
    mean = rows.mean(axis=0, dtype=np.float64) if metric == "l2" else np.zeros(rows.shape[1])
    targets = as_float64(targets, normalize=metric == "cosine") - mean
    nearest = np.empty((len(targets), 0), dtype=np.int64)
    scores = np.empty((len(targets), 0))  # of the nearest so far; the smallest is best
    for first in range(0, len(rows), ITEM_BLOCK):
        block = as_float64(rows[first : first + ITEM_BLOCK], normalize=metric == "cosine") - mean
        found = [_k_smallest(part, block, k, metric) for part in _blocks(targets, QUERY_BLOCK)]
        nearest = np.concatenate([nearest, first + np.concatenate([ids for ids, _ in found])], axis=1)
        scores = np.concatenate([scores, np.concatenate([values for _, values in found])], axis=1)
        best = np.argsort(scores, axis=1, kind="stable")[:, :k]
        nearest, scores = np.take_along_axis(nearest, best, axis=1), np.take_along_axis(scores, best, axis=1)
    return nearest


def recall(found: ArrayLike | Sequence[ArrayLike], exact: ArrayLike) -> float:
    """Return the share of the exact neighbors that a search found: recall@k for k columns of `exact`.

    >>> recall([[4, 1, -1], [2, 3, 5]], [[1, 2], [3, 2]])
    0.75
    >>> recall([[4, 1], [2]], [[1, 2], [3, 2]])  # neighborhoods differ in size
    0.5

    Args:
        found: ids found for each query, (queries, any number), or one sequence of ids per query.
        exact: ids of the true neighbors, (queries, k). The id -1 marks a missing neighbor and is not counted.

    """
    if hasattr(found, "ids") or hasattr(exact, "ids"):
        raise InvalidInput("found and exact must be ids, got the hits of a search: give hits.ids")
    true = np.asarray(exact)
    try:
        hits = [np.asarray(ids) for ids in found]  # type: ignore[union-attr]
    except (TypeError, NotImplementedError):
        raise InvalidInput(f"found must hold ids for each query, got {type(found).__name__}: give a list") from None
    if true.ndim != 2 or len(hits) != len(true) or any(ids.ndim != 1 for ids in hits):
        raise InvalidInput(
            f"found and exact must hold ids (queries, k) of the same queries, got {len(hits)} queries and shape "
            f"{true.shape}"
        )
    expected = true != -1
    if not expected.any():
        raise InvalidInput(f"exact must name at least one neighbor, got shape {true.shape}: give queries and k >= 1")
    right = sum(int(np.isin(row[named], ids).sum()) for row, named, ids in zip(true, expected, hits, strict=True))
    return float(right / expected.sum())


def distortion(original: ArrayLike, decoded: ArrayLike) -> float:
    """Return the mean squared error (MSE) per value.

    >>> distortion([[0.0, 1.0]], [[0.0, 0.5]])
    0.125

    Args:
        original: vectors or images, any shape.
        decoded: the same shape.

    """
    a, b = _same_shape(original, decoded)
    blocks = zip(_blocks(a.ravel(), VALUE_BLOCK), _blocks(b.ravel(), VALUE_BLOCK), strict=True)
    total = sum(float(np.sum(np.square(np.subtract(x, y, dtype=np.float64)))) for x, y in blocks)
    return total / a.size


def psnr(original: ArrayLike, decoded: ArrayLike, peak: float | None = None) -> float:
    """Return the peak signal-to-noise ratio in dB; infinite for identical arrays.

    >>> round(psnr(np.zeros(4, dtype=np.uint8), np.full(4, 25, dtype=np.uint8)), 2)
    20.17

    Args:
        original: an image or images, any shape.
        decoded: the same shape.
        peak: the largest possible value; by default 255 for uint8, 65535 for uint16 and 1 for floats.

    """
    a, b = _same_shape(original, decoded)
    if peak is None:
        peak = 1.0 if a.dtype.kind == "f" else PEAKS.get(a.dtype)
    if peak is None or not is_number(peak) or not peak > 0:
        raise InvalidInput(
            f"peak must be above 0 and given for {a.dtype} images, got {shown(peak)}: pass peak=255 or so"
        )
    error = distortion(a, b)
    return float("inf") if error == 0 else float(20 * np.log10(float(peak)) - 10 * np.log10(error))


def ssim(original: ArrayLike, decoded: ArrayLike) -> float:
    """Return the structural similarity of gray images or of the luma of RGB images (Wang et al. 2004), their average.

    Local statistics have a Gaussian window with a standard deviation of 1.5 pixels, 11 x 11 pixels large.

    >>> flat = np.full((32, 32, 3), 90, dtype=np.uint8)
    >>> ssim(flat, flat)
    1.0

    Args:
        original: (height, width), (height, width, 3) or (n, height, width, 3), values from 0 to 255, or to 65535 if
            uint16.
        decoded: the same shape.

    """
    a, b = _same_shape(original, decoded)
    if a.ndim == 2:
        a, b = (np.repeat(gray[..., None], 3, axis=2) for gray in (a, b))
    if a.ndim not in (3, 4) or a.shape[-1] != 3:
        raise InvalidInput(
            f"images must have the shape (height, width), (height, width, 3) or (n, height, width, 3), got {a.shape}"
        )
    images, others = (array.reshape(-1, *array.shape[-3:]) for array in (a, b))
    at_once = max(1, VALUE_BLOCK // images[0].size)
    blocks = zip(_blocks(images, at_once), _blocks(others, at_once), strict=True)
    luma = np.array(LUMA) * 255 / PEAKS.get(a.dtype, 255)
    total = sum(float(np.sum(_ssim_map(x.astype(np.float64) @ luma, y.astype(np.float64) @ luma))) for x, y in blocks)
    return total / (images.size // 3)


def bd_rate(rates: ArrayLike, qualities: ArrayLike, anchor_rates: ArrayLike, anchor_qualities: ArrayLike) -> float:
    """Return the Bjøntegaard delta rate: the mean relative difference in rate at equal quality.

    It is -0.1 where the codec needs 10 % less than the anchor. The logarithm of the rate is interpolated over quality
    by monotone cubic polynomials (PCHIP) and averaged over the qualities that both curves reach.

    >>> round(bd_rate([0.2, 0.4, 0.8, 1.6], [28, 31, 34, 37], [0.25, 0.5, 1.0, 2.0], [28, 31, 34, 37]), 3)
    -0.2

    Args:
        rates: of the codec, in any unit; at least two.
        qualities: PSNR or another quality that rises with the rate.
        anchor_rates: of the codec to compare with, in the same unit.
        anchor_qualities: its qualities.

    """
    curves = [_rate_curve(rates, qualities), _rate_curve(anchor_rates, anchor_qualities)]
    low, high = max(quality[0] for quality, _ in curves), min(quality[-1] for quality, _ in curves)
    if low >= high:
        raise InvalidInput(
            f"the quality ranges of both codecs must overlap, but one ends at {high} and the other starts at {low}: "
            "measure more rates"
        )
    interpolate = import_extra("scipy.interpolate", extra="reproduce", purpose="bd_rate").PchipInterpolator
    areas = [float(interpolate(quality, logs).integrate(low, high)) for quality, logs in curves]
    return float(np.exp((areas[0] - areas[1]) / (high - low)) - 1)


def by_length(
    model: Callable[[Any, int], Any],
    data: Any,
    lengths: Iterable[int],
    metric: Callable[[Any, Any], float],
    targets: Any = None,
) -> dict[int, float]:
    """Return the metric of a truncated model at each length.

    >>> def keep(rows, length):
    ...     return np.where(np.arange(3) < length, rows, 0.0)
    >>> by_length(keep, np.array([[3.0, 2.0, 1.0]]), [1, 2, 3], lambda rows, kept: float(np.abs(rows - kept).max()))
    {1: 2.0, 2: 1.0, 3: 0.0}

    For a coder pass `lambda X, length: coder.decode(coder.encode(X).prefix(length))`. For a PyTorch model with nested
    dropout pass `lambda X, length: network(X, kept=length)`; it runs in evaluation mode under `torch.no_grad()`.

    Args:
        model: a function `model(data, length)` that returns the output for the metric.
        data: the input of the model.
        lengths: bits, units, channels or tokens to keep.
        metric: a function `metric(targets, output)` of arrays, such as `distortion` or `psnr`.
        targets: the targets of the metric; by default the data.

    """
    expected = _as_array(data if targets is None else targets)
    kept = [check_int(length, "a length", least=0) for length in lengths]
    if not kept:
        raise InvalidInput("lengths must name at least one length, got none")
    return {length: float(metric(expected, _as_array(model(data, length)))) for length in kept}


def plot_by_length(
    curves: Mapping[str, Mapping[int, float]],
    path: str | PathLike[str] | BinaryIO,
    metric: str = "",
    unit: str = "length",
) -> None:
    """Draw curves of `by_length`, one for each model, over a logarithmic axis of lengths, and write the figure.

    >>> from io import BytesIO
    >>> plot_by_length({"nested": {1: 0.5, 8: 0.9}, "ordinary": {1: 0.1, 8: 0.9}}, BytesIO(), "accuracy")

    Args:
        curves: the metric by length of each model, by its name.
        path: the figure's file, whose suffix is its format; or a file object, for PNG.
        metric: the label of the vertical axis.
        unit: the label of the horizontal axis.

    """
    if not curves:
        raise InvalidInput("curves must have at least one model, got none: give {name: by_length(…)}")
    figure = import_extra("matplotlib.figure", extra="reproduce", purpose="plot_by_length").Figure(
        figsize=(5, 3.5), layout="constrained"
    )
    axes = figure.subplots()
    axes.set_xscale("symlog", base=2, linthresh=1)  # a length may be 0
    for name, curve in curves.items():
        axes.plot(list(curve), list(curve.values()), ".-", label=name)
    ticks = sorted({length for curve in curves.values() for length in curve})
    ticks = ticks[:: -(-len(ticks) // 12)]
    axes.set_xticks(ticks, labels=[str(length) for length in ticks])
    axes.minorticks_off()
    axes.set(xlabel=unit, ylabel=metric)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=150)


def _as_array(values: Any) -> Any:
    """Return a tensor of PyTorch, on any device, as an array; anything else as it is."""
    return values.detach().cpu().numpy() if hasattr(values, "detach") else values


def _k_smallest(queries: Doubles, items: Doubles, k: int, metric: str) -> tuple[Ids, Doubles]:
    """Return the (at most) k nearest of a block of items, and their scores: squared distance less |query|²."""
    scores = -2 * (queries @ items.T)  # (queries, items)
    if metric == "l2":
        scores += np.einsum("nf,nf->n", items, items)
    count = min(k, len(items))
    nearest = np.argpartition(scores, count - 1, axis=1)[:, :count]
    return nearest, np.take_along_axis(scores, nearest, axis=1)


def _ssim_map(x: Doubles, y: Doubles) -> Doubles:
    """Return the local similarity of every pixel, (n, height, width)."""
    blur = import_extra("scipy.ndimage", extra="reproduce", purpose="ssim").gaussian_filter
    mean_x, mean_y, xx, yy, xy = (blur(part, (0, 1.5, 1.5), truncate=3.5) for part in (x, y, x * x, y * y, x * y))
    c1, c2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
    similar = (2 * mean_x * mean_y + c1) * (2 * (xy - mean_x * mean_y) + c2)
    largest = (mean_x**2 + mean_y**2 + c1) * (xx - mean_x**2 + yy - mean_y**2 + c2)
    return np.asarray(similar / largest)


def _rate_curve(rates: ArrayLike, qualities: ArrayLike) -> tuple[Doubles, Doubles]:
    """Return the qualities in ascending order and the logarithms of their rates."""
    rate, quality = np.asarray(rates, dtype=np.float64), np.asarray(qualities, dtype=np.float64)
    if rate.shape != quality.shape or rate.ndim != 1 or len(rate) < 2:
        raise InvalidInput(f"a curve must have at least 2 rates, each with a quality, got {rate.shape} and "
                           f"{quality.shape}")  # fmt: skip
    order = np.argsort(quality)
    if not (rate > 0).all() or not (np.diff(quality[order]) > 0).all():
        raise InvalidInput(
            f"rates must be above 0 and qualities distinct, got rates {rate.tolist()} and qualities "
            f"{quality.tolist()}: leave out points that coincide"
        )
    return quality[order], np.log(rate[order])


def _same_shape(original: ArrayLike, decoded: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return both as arrays, or raise an error if they cannot be compared value by value."""
    try:
        a, b = np.asarray(original), np.asarray(decoded)
    except ValueError as error:
        raise InvalidInput("original and decoded must be arrays, got rows of several lengths: fill some") from error
    for array in (a, b):
        if array.dtype.kind not in "fiub":
            raise InvalidInput(f"original and decoded must be numeric, got {array.dtype}: convert with X.astype(float)")
    if a.shape != b.shape or a.size == 0:
        raise InvalidInput(f"decoded must have the original's shape {a.shape} and hold values, got {b.shape}")
    return a, b


def _blocks(array: NDArray[Any], size: int) -> Iterator[NDArray[Any]]:
    """Cut an array along its first axis; an empty one is a single block."""
    return (array[first : first + size] for first in range(0, max(len(array), 1), size))
