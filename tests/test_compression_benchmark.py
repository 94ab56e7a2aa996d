"""Parts of the compression benchmark: sizes without headers, Optimal Brain Damage, the rate-distortion bound."""

import importlib
import io
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from nestcode import AdaptiveCoder, LinearCoder
from nestcode.data import sample_images
from nestcode.nn import Binarize, OrderedAutoencoder
from nestcode.reproduce.lab import codecs
from nestcode.reproduce.lab.images import as_pixels, as_rows, pixel_mse
from nestcode.reproduce.lab.optimal_brain_damage import encode_units, errors_in_order, pruning_order, saliencies
from nestcode.reproduce.lab.rate_distortion import Curve


def load(name: str) -> ModuleType:
    folder = str(Path(__file__).parents[1] / "benchmarks")
    sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(folder)


images = load("_compression_images")


def photo(side: int) -> NDArray[np.uint8]:
    return next(iter(sample_images().values()))[100 : 100 + side, 200 : 200 + side].copy()


# Sizes


@pytest.mark.parametrize("side", [8, 32, 100])
@pytest.mark.parametrize(
    "settings",
    [
        {"quality": 1},
        {"quality": 50, "optimize": True},
        {"quality": 95, "progressive": True},
        {"quality": 75, "restart_marker_blocks": 1, "comment": b"\xff\xda\x00"},
        {"quality": 75, "exif": b"Exif\x00\x00" + b"\xff\xd9" * 20},
    ],
    ids=str,
)
def test_headers_and_scans_add_up_to_the_jpeg_file(side: int, settings: dict[str, Any]) -> None:
    buffer = io.BytesIO()
    Image.fromarray(photo(side)).save(buffer, "JPEG", **settings)
    headers, scans = codecs.jpeg_parts(buffer.getvalue())
    assert headers + scans == len(buffer.getvalue())
    assert headers > 100
    assert scans > 0


def test_uncounted_jpeg_headers_do_not_depend_on_the_image() -> None:
    jpeg = codecs.CODECS["JPEG"]
    samples = photo(64), np.zeros((64, 64, 3), dtype=np.uint8)
    shared = [jpeg.encode(image, 90, **jpeg.bare) for image in samples]
    headers = codecs.jpeg_parts(shared[0])[0]
    assert shared[0][: headers - 2] == shared[1][: headers - 2]
    for image, blob in zip(samples, shared, strict=True):
        assert jpeg.bare_bytes(image, 90, jpeg.encode(image, 90)) == len(blob) - headers
        np.testing.assert_array_equal(codecs.decode(blob), jpeg(image, 90)[1])


@pytest.mark.parametrize("name", codecs.CODECS)
@pytest.mark.parametrize("gray", [False, True])
def test_the_error_of_codecs_decreases_with_quality(name: str, gray: bool) -> None:
    codec = codecs.CODECS[name]
    image = photo(64)[:, :, 1].copy() if gray else photo(64)
    worst, best = (codec(image, quality) for quality in (codec.qualities[0], codec.qualities[-1]))
    for blob, decoded in (worst, best):
        assert decoded.shape == image.shape
        assert 0 < codec.payload(blob) < len(blob)
    assert pixel_mse(image, best[1]) < pixel_mse(image, worst[1])
    assert codec.payload(best[0]) - codec.payload(worst[0]) > 0.9 * (len(best[0]) - len(worst[0])) - 100


# Optimal Brain Damage


def tiny(signed: bool, spread: str) -> tuple[OrderedAutoencoder, NDArray[np.float32]]:
    torch.manual_seed(0)
    model = OrderedAutoencoder(12, width=7, binarize=Binarize(7, signed=signed), spread=spread, tied=not signed)  # type: ignore[arg-type]
    X = np.random.default_rng(0).random((40, 12), dtype=np.float32) ** 2
    model.set_moments(torch.from_numpy(X.mean(axis=0)), torch.from_numpy(X.var(axis=0)))
    return model.eval(), X


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("spread", ["common", "deviation"])
def test_estimated_saliency_equals_the_effect_of_removing_a_unit(signed: bool, spread: str) -> None:
    model, X = tiny(signed, spread)
    rows = torch.from_numpy(X)
    with torch.no_grad():
        units = model.encode(rows)

        def error(without: int | None) -> float:
            kept = torch.arange(7) != (-1 if without is None else without)
            return float((model.decode(units * kept) - rows).square().sum(dim=1).mean())

        exact = [error(unit) - error(None) for unit in range(7)]
    estimated = saliencies(model, units, rows).numpy()
    np.testing.assert_allclose(estimated, exact, rtol=1e-3, atol=1e-5)
    np.testing.assert_array_equal(pruning_order(model, X), np.argsort(exact)[::-1])


def test_repeated_pruning_is_greedy_removal() -> None:
    model, X = tiny(True, "common")
    left, removed = list(range(7)), []
    while left:
        tried = {unit: removal_error(model, X, [other for other in left if other != unit]) for unit in left}
        removed.append(min(left, key=lambda unit: tried[unit]))
        left.remove(removed[-1])
    np.testing.assert_array_equal(pruning_order(model, X, rounds=7), removed[::-1])


def removal_error(model: OrderedAutoencoder, X: NDArray[np.float32], kept: list[int]) -> float:
    made = decoded(model, encode_units(model, X), kept)
    return float(np.mean(np.square(made - X, dtype=np.float64)))


def decoded(model: OrderedAutoencoder, units: torch.Tensor, kept: list[int]) -> NDArray[np.float32]:
    there = torch.from_numpy(np.isin(np.arange(model.width), kept))
    made: NDArray[np.float32] = model.decode(units * there).detach().numpy()
    return made


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("spread", ["common", "deviation"])
def test_errors_in_an_order_are_those_of_the_remaining_units(signed: bool, spread: str) -> None:
    model, X = tiny(signed, spread)
    pixels = as_pixels(X)
    units, order = encode_units(model, as_rows(pixels)), [3, 0, 6, 1, 5, 2, 4]
    slow = [pixel_mse(pixels, as_pixels(decoded(model, units, order[:length]))) for length in range(8)]
    np.testing.assert_allclose(errors_in_order(model, pixels, np.array(order)), slow, rtol=1e-4)
    own = pixel_mse(pixels, as_pixels(model.decode(units[:, :3]).detach().numpy()))
    np.testing.assert_allclose(errors_in_order(model, pixels, np.arange(7))[3], own, rtol=1e-4)


# The bound, and who is below whom


def test_no_coder_of_gaussian_data_beats_the_bound() -> None:
    rng = np.random.default_rng(0)
    rows = 128 + rng.standard_normal((6000, 12)) * np.geomspace(30, 3, 12)
    pixels = np.rint(rows.clip(0, 255)).astype(np.uint8)
    train, test = pixels[:5000], pixels[5000:]
    lengths = [8, 16, 24, 32]
    bound = load("distortion").gaussian_bound(train, lengths)
    for coder in (LinearCoder(32), AdaptiveCoder(32)):
        codes = coder.fit(as_rows(train)).encode(as_rows(test))
        for length, least in zip(lengths, bound, strict=True):
            assert pixel_mse(test, as_pixels(coder.decode(codes.prefix(length)))) > least


def test_verdicts_count_the_rates_where_ours_is_better() -> None:
    ours = Curve.of("ours", "ours", [0, 100], [0.2, 0.1])
    worse = Curve.of("worse", "codec", [10, 50, 500], [0.25, 0.16, 0.01])
    mixed = Curve.of("mixed", "codec", [10, 50], [0.25, 0.12])
    large = Curve.of("large", "codec", [200], [0.01])
    rows = [images.verdict(ours, rival) for rival in (worse, mixed, large)]
    assert [row["rates"] for row in rows] == [2, 2, 0]
    assert [row["lower MSE at"] for row in rows] == ["all", 1, "-"]
    assert rows[1]["smallest MSE ratio"] == pytest.approx(0.8)
    assert images.sentence(rows) == "Ours is not lower everywhere: mixed. Too large to compare: large."
