"""Metrics equal their definitions, written out in plain loops, and refuse what they cannot compare."""

import re
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nestcode import metrics
from nestcode.arrays import Doubles
from nestcode.data import sample_images
from nestcode.errors import InvalidInput
from nestcode.metrics import bd_rate, by_length, distortion, exact_neighbors, plot_by_length, psnr, recall, ssim
from nestcode.search.hits import Hits

Metric = Literal["l2", "cosine", "inner"]


def plain_scores(queries: Doubles, items: Doubles, metric: Metric) -> Doubles:
    """Return what exhaustive search sorts by, (queries, items), smallest first."""
    if metric == "l2":
        return np.array([[np.sum((query - item) ** 2) for item in items] for query in queries])
    if metric == "cosine":
        queries, items = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (queries, items))
    return -queries @ items.T


@pytest.mark.parametrize("metric", ["l2", "cosine", "inner"])
@pytest.mark.parametrize("k", [1, 7, 40])
@pytest.mark.parametrize(("queries_at_once", "items_at_once"), [(1024, 8192), (3, 5), (4, 40)])
def test_exact_neighbors_equal_a_sort_of_all_distances(
    metric: Metric, k: int, queries_at_once: int, items_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "QUERY_BLOCK", queries_at_once)
    monkeypatch.setattr(metrics, "ITEM_BLOCK", items_at_once)
    rng = np.random.default_rng(0)
    items, queries = rng.standard_normal((40, 6)) + 5, rng.standard_normal((11, 6)) + 5
    expected = np.argsort(plain_scores(queries, items, metric), axis=1)[:, :k]
    np.testing.assert_array_equal(exact_neighbors(queries, items, k, metric), expected)


def test_exact_neighbors_of_clustered_float32_data_are_exact() -> None:
    rng = np.random.default_rng(0)
    items = (1000 + 1e-2 * rng.standard_normal((300, 8))).astype(np.float32)  # float32 squares would round it away
    queries = (1000 + 1e-2 * rng.standard_normal((20, 8))).astype(np.float32)
    expected = np.argsort(plain_scores(queries.astype(np.float64), items.astype(np.float64), "l2"), axis=1)[:, :10]
    np.testing.assert_array_equal(exact_neighbors(queries, items), expected)


def test_exact_neighbors_takes_bytes_lists_and_no_queries() -> None:
    items = np.array([[0, 0], [255, 0], [250, 250]], dtype=np.uint8)
    assert exact_neighbors([[251, 240]], items, k=3).tolist() == [[2, 1, 0]]
    assert exact_neighbors(items[:0], items, k=2).shape == (0, 2)
    assert exact_neighbors([[1.0, 0.0]], [[0.0, 0.0], [2.0, 0.0]], k=1, metric="cosine").tolist() == [[1]]


@given(st.integers(1, 8), st.integers(1, 6), st.integers(0, 10), st.integers(0, 2**32 - 1))
def test_recall_equals_counting(queries: int, k: int, found: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    exact = np.array([rng.permutation(12)[:k] for _ in range(queries)])
    hits = rng.integers(-1, 12, (queries, found))
    right = sum(id_ in hits[query].tolist() for query in range(queries) for id_ in exact[query].tolist())
    assert recall(hits, exact) == right / (queries * k)
    assert recall([row[row >= 0] for row in hits], exact) == right / (queries * k)
    assert recall(exact[:, ::-1], exact) == 1


def test_recall_does_not_count_missing_neighbors() -> None:
    assert recall([[1, -1], [5, -1]], [[1, -1], [4, 5]]) == pytest.approx(2 / 3)


def test_recall_of_exact_neighbors_is_1() -> None:
    X = np.random.default_rng(0).standard_normal((50, 3))
    assert recall(exact_neighbors(X, X, k=5), exact_neighbors(X, X, k=5)) == 1


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
@pytest.mark.parametrize("shape", [(7,), (5, 4), (2, 3, 4, 3)])
def test_distortion_and_psnr_equal_their_definitions(
    dtype: type, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "VALUE_BLOCK", 6)
    rng, scale = np.random.default_rng(0), 255 if dtype == np.uint8 else 1
    values: Any = (scale * rng.random((2, *shape))).astype(dtype)
    a, b = values
    plain = float(np.mean([(float(x) - float(y)) ** 2 for x, y in zip(a.ravel(), b.ravel(), strict=True)]))
    assert distortion(a, b) == pytest.approx(plain)
    assert psnr(a, b) == pytest.approx(20 * np.log10(scale) - 10 * np.log10(plain))
    assert psnr(a, b, peak=2 * scale) == pytest.approx(psnr(a, b) + 20 * np.log10(2))


def test_known_values_of_psnr() -> None:
    black, white = (np.full((8, 8, 3), value, dtype=np.uint8) for value in (0, 255))
    assert psnr(black, black) == float("inf")
    assert psnr(black, white) == 0
    assert psnr(black, np.ones_like(black)) == pytest.approx(48.1308036)  # 20 log10(255)
    assert psnr(np.zeros(4), np.full(4, 0.1)) == pytest.approx(20)
    assert psnr(black.astype(np.uint16), np.ones((8, 8, 3), dtype=np.uint16)) == pytest.approx(96.3294661)


def plain_ssim(x: Doubles, y: Doubles) -> float:
    """Return the mean of the SSIM map of two luma planes, window by window."""
    reach = np.arange(-5, 6)
    window = np.exp(-(reach[:, None] ** 2 + reach**2) / (2 * 1.5**2))
    window /= window.sum()
    padded_x, padded_y = (np.pad(plane, 5, mode="symmetric") for plane in (x, y))
    total = 0.0
    for row, column in product(range(x.shape[0]), range(x.shape[1])):
        a, b = (plane[row : row + 11, column : column + 11] for plane in (padded_x, padded_y))
        mean_a, mean_b = np.sum(window * a), np.sum(window * b)
        variance_a, variance_b = (np.sum(window * (plane - mean) ** 2) for plane, mean in ((a, mean_a), (b, mean_b)))
        covariance = np.sum(window * (a - mean_a) * (b - mean_b))
        luminance = (2 * mean_a * mean_b + 2.55**2) / (mean_a**2 + mean_b**2 + 2.55**2)
        structure = (2 * covariance + 7.65**2) / (variance_a + variance_b + 7.65**2)
        total += luminance * structure
    return total / x.size


def noisy(image: Any, noise: int, seed: int = 0) -> Any:
    """Return the image with +-noise at every value."""
    return (image + noise * np.random.default_rng(seed).choice([-1, 1], image.shape)).clip(0, 255).astype(np.uint8)


def test_ssim_equals_plain_windows() -> None:
    image = sample_images()["china"][100:120, 200:228]
    other = noisy(image, 12)
    luma = np.array([0.299, 0.587, 0.114])
    expected = plain_ssim(image @ luma, other @ luma)
    assert ssim(image, other) == pytest.approx(expected, abs=1e-9)
    gray, near = image[..., 0], other[..., 0]
    expected = plain_ssim(gray.astype(np.float64), near.astype(np.float64))
    assert ssim(gray, near) == pytest.approx(expected, abs=1e-9)


def test_ssim_of_several_images_is_their_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    images = np.stack([sample_images()["china"][top : top + 32, 50:82] for top in (0, 100, 200)])
    others = noisy(images, 20)
    mean = np.mean([ssim(*pair) for pair in zip(images, others, strict=True)])
    for at_once in (1, 32 * 32 * 3 * 2, 1 << 22):
        monkeypatch.setattr(metrics, "VALUE_BLOCK", at_once)
        assert ssim(images, others) == pytest.approx(mean)


@pytest.mark.parametrize("noise", [1, 8, 64])
def test_quality_is_best_for_the_image_itself_and_falls_with_noise(noise: int) -> None:
    image = sample_images()["flower"][:64, :64]
    near, far = noisy(image, noise), noisy(image, 2 * noise)
    assert ssim(image, image) == 1
    assert ssim(image, far) < ssim(image, near) < 1
    assert psnr(image, far) < psnr(image, near)


@given(st.floats(0.1, 10), st.integers(0, 1000))
def test_bd_rate_of_a_scaled_curve_is_the_scale(scale: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rates, qualities = np.cumsum(rng.uniform(0.1, 1, 5)), np.cumsum(rng.uniform(0.5, 3, 5))
    assert bd_rate(scale * rates, qualities, rates, qualities) == pytest.approx(scale - 1)


def test_bd_rate_compares_the_common_range_and_inverts() -> None:
    ours = [0.1, 0.2, 0.5, 1.1], [25.0, 28.0, 32.5, 36.0]
    theirs = [0.15, 0.3, 0.6, 1.5], [26.0, 29.5, 32.0, 37.0]
    forth, back = bd_rate(*ours, *theirs), bd_rate(*theirs, *ours)
    assert forth < 0 < back
    assert (1 + forth) * (1 + back) == pytest.approx(1)
    backwards = [[values[i] for i in (3, 1, 0, 2)] for values in ours]
    assert bd_rate(backwards[0], backwards[1], *theirs) == pytest.approx(forth)
    straight = bd_rate([1, 4], [0, 2], [1, 2, 8], [0, 1, 3])  # 2^q and 2^q: the same line
    assert straight == pytest.approx(0, abs=1e-12)


MISTAKES: dict[str, tuple[Callable[[], object], str]] = {
    "hits for ids": (
        lambda: recall(Hits(np.zeros((1, 1)), np.zeros((1, 1)), 1), [[0]]),  # type: ignore[arg-type]
        "must be ids, got the hits of a search: give hits.ids",
    ),
    "features": (lambda: exact_neighbors([[1.0]], [[1.0, 2.0]], 1), "queries must have the items' 2 features, got 1"),
    "k": (lambda: exact_neighbors([[1.0]], [[1.0]], 2), "k must be at most the number of items 1, got 2"),
    "k 0": (lambda: exact_neighbors([[1.0]], [[1.0]], 0), "k must be an integer of at least 1, got 0"),
    "metric": (lambda: exact_neighbors([[1.0]], [[1.0]], 1, "dot"), 'metric must be "l2", "cosine" or "inner"'),  # type: ignore[arg-type]
    "NaN": (lambda: exact_neighbors([[1.0]], [[np.nan]], 1), "must be finite"),
    "one vector": (lambda: exact_neighbors([1.0], [[1.0]], 1), "must have 2 dimensions"),
    "other queries": (lambda: recall([[1]], [[1], [2]]), "of the same queries, got 1 queries and shape"),
    "ids of one query": (lambda: recall([1, 2], [[1], [2]]), "must hold ids"),
    "one id": (lambda: recall(3, [[1]]), "found must hold ids for each query, got int: give a list"),
    "words": (lambda: distortion(["a"], ["b"]), "must be numeric, got <U1: convert with"),
    "ragged": (lambda: distortion([[1.0], [1.0, 2.0]], [[1.0]]), "got rows of several lengths: fill some"),
    "no neighbors": (lambda: recall([], np.empty((0, 10))), "at least one neighbor"),
    "shapes": (lambda: distortion([[1.0]], [1.0]), r"original's shape \(1, 1\) and hold values, got \(1,\)"),
    "nothing": (lambda: distortion([], []), "hold values"),
    "peak": (lambda: psnr([1, 2], [1, 2]), "peak must be above 0 and given for int64 images, got None"),
    "peak 0": (lambda: psnr([1.0], [1.0], peak=0), "peak must be above 0"),
    "one row": (lambda: ssim(np.zeros(8), np.zeros(8)), r"\(height, width, 3\)"),
    "one rate": (lambda: bd_rate([1], [1], [1, 2], [1, 2]), "at least 2 rates"),
    "rate 0": (lambda: bd_rate([0, 1], [1, 2], [1, 2], [1, 2]), "rates must be above 0"),
    "same quality": (lambda: bd_rate([1, 2], [3, 3], [1, 2], [1, 2]), "qualities distinct"),
    "apart": (lambda: bd_rate([1, 2], [1, 2], [1, 2], [3, 4]), "must overlap, but one ends at 2.0"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_named(mistake: str) -> None:
    call, message = MISTAKES[mistake]
    with pytest.raises(InvalidInput, match=message):
        call()


def test_by_length_calls_the_model_at_each_length() -> None:
    rows = np.arange(6.0).reshape(2, 3)
    curve = by_length(lambda X, length: X * (np.arange(3) < length), rows, [0, 1, 3], distortion)
    assert curve == {0: 55 / 6, 1: (55 - 9) / 6, 3: 0.0}
    labels = np.array([0, 1])
    accuracy = by_length(lambda X, length: X[:, length] > 3, rows, [0, 2], lambda y, out: (y == out).mean(), labels)
    assert accuracy == {0: 0.5, 2: 1.0}


def test_by_length_takes_tensors() -> None:
    torch = pytest.importorskip("torch")
    X = torch.ones(2, 4, requires_grad=True)
    assert by_length(lambda X, length: X * (torch.arange(4) < length), X, [1, 4], distortion) == {1: 0.75, 4: 0.0}


def test_curves_are_drawn(tmp_path: Path) -> None:
    plot_by_length({"a": {0: 1.0, 4: 0.5}, "b": {1: 0.9, 64: 0.1}}, tmp_path / "curves.svg", "MSE", "tokens")
    drawn = (tmp_path / "curves.svg").read_text()
    assert all(f"<!-- {text} -->" in drawn for text in ("a", "b", "64", "MSE", "tokens"))
    for call, message in (
        (lambda: plot_by_length({}, tmp_path / "x.png"), "curves must have at least one model, got none"),
        (lambda: by_length(lambda X, _: X, [1], [], distortion), "lengths must name at least one length, got none"),
        (lambda: by_length(lambda X, _: X, [1], [-1], distortion), "a length must be an integer of at least 0, got -1"),
    ):
        with pytest.raises(InvalidInput, match=re.escape(message)):
            call()
