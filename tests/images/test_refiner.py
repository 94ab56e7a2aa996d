"""The learned decoder: any cut and any image, tiles as the whole, all bits as they are, and files that are checked."""

import itertools
import math
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from nestcode import _core
from nestcode._core import simd_names
from nestcode.errors import DamagedFile, InvalidInput
from nestcode.images import (
    ImageCodec,
    ImageStreamDecoder,
    ImageStreamReader,
    Refiner,
    compress_images,
    decompress_images,
)
from nestcode.images.codec import ImageDecoder
from nestcode.images.restoration import quantized
from nestcode.storage import Arrays, Record, write_record
from tests.images.samples import SHAPES, codec, crop, header_of, same, stream
from tests.images.test_restoration import random_network


@cache
def arrays() -> Arrays:
    torch.manual_seed(0)
    return quantized(random_network(), [(torch.rand(3, 48, 48), step) for step in (10.0, 40.0, 200.0)])


@cache
def refiner(tile: int = 1024) -> Refiner:
    return Refiner((1, 1, 1), arrays(), tile=tile)


def convolve(x: NDArray[np.uint8], weights: NDArray[np.int8], zeros: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Sums of products by a loop over taps, (rows, columns, inputs) and (outputs, taps, inputs)."""
    side = math.isqrt(weights.shape[1])
    if side == 3:
        rows, columns = x.shape[:2]
        framed = np.empty((rows + 2, columns + 2, x.shape[2]), dtype=np.uint8)
        framed[:] = zeros
        framed[1:-1, 1:-1] = x
        parts = [framed[top : top + rows, left : left + columns] for top in range(3) for left in range(3)]
    else:
        parts = [x[top::side, left::side] for top in range(side) for left in range(side)]
    products = [part.astype(np.int64) @ weights[:, tap].T.astype(np.int64) for tap, part in enumerate(parts)]
    total: NDArray[np.int64] = np.sum(products, axis=0)
    return total


def plain_correction(
    layers: list[tuple[NDArray[np.int8], NDArray[np.float32], NDArray[np.uint8]]],
    pixels: NDArray[np.uint8],
    scales: NDArray[np.float32],
    biases: NDArray[np.float32],
) -> NDArray[np.float32]:
    """The twin of the core's network with a block on each side, in NumPy."""
    place = 0

    def affine(at: int, x: NDArray[np.uint8]) -> NDArray[np.float32]:
        nonlocal place
        weights, _, zeros = layers[at]
        outputs, first = len(weights), sum(len(layer[0]) for layer in layers[:at])
        sums: NDArray[np.float32] = convolve(x, weights, zeros).astype(np.float32) * scales[first : first + outputs]
        count = 16 if at == 0 else 1
        bias = biases[place : place + count * outputs].reshape(-1, outputs)
        place += count * outputs
        rows, columns = (np.arange(size) % math.isqrt(count) for size in sums.shape[:2])
        sums += bias.reshape(math.isqrt(count), -1, outputs)[rows[:, None], columns]
        return sums

    def quantize(hidden: NDArray[np.float32], at: int | None = None) -> NDArray[np.uint8]:
        if at is not None:
            hidden = hidden * layers[at][1] + (layers[at][2].astype(np.float32) + np.float32(0.5))
        return np.floor(np.clip(hidden, 0, 255)).astype(np.uint8)

    def block(hidden: NDArray[np.float32], at: int) -> NDArray[np.float32]:
        between = quantize(affine(at, quantize(hidden, at)))
        return hidden + affine(at + 1, between)

    rows, columns = pixels.shape[0] // 4, pixels.shape[1] // 4
    positions = pixels.reshape(rows, 4, columns, 4, 3).transpose(0, 2, 1, 3, 4).reshape(rows, columns, 48)
    fine = block(affine(0, positions), 1)
    coarse = quantize(block(affine(3, quantize(fine, 3)), 4), 6)
    for corner in range(4):
        fine[corner // 2 :: 2, corner % 2 :: 2] += affine(6 + corner, coarse)
    out = affine(12, quantize(block(fine, 10), 12))
    return out.reshape(rows, columns, 4, 4, 3).transpose(0, 2, 1, 3, 4).reshape(pixels.shape)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("simd", simd_names())
def test_every_kernel_corrects_as_numpy_does(simd: str, threads: int) -> None:
    layers = [part for layer in refiner()._layers for part in layer.parts()]
    network, affine = _core.RestorationNetwork((1, 1, 1), layers, simd), refiner()._affine(40.0)
    for shape in ((8, 8, 3), (40, 104, 3)):
        pixels = crop(shape).astype(np.uint8)
        for transposed, turned in itertools.product((False, True), repeat=2):
            out = np.empty(shape, dtype=np.float32)
            network.correct(pixels, *affine, out, transposed, turned, threads)
            step, axes = (-1 if turned else 1), ((1, 0, 2) if transposed else (0, 1, 2))
            expected = plain_correction(layers, pixels[::step, ::step].transpose(axes), *affine)
            assert np.array_equal(out[::step, ::step].transpose(axes), expected)
            assert out.std() > 1


@given(st.integers(0, len(SHAPES) - 1), st.floats(0, 1))
@settings(max_examples=20, deadline=None)
def test_every_kind_of_image_is_refined_at_every_cut(kind: int, share: float) -> None:
    image = crop(SHAPES[kind], kind)
    data, decoder = codec().encode(image), ImageDecoder(codec(), image.shape)
    decoder.feed(data[: int(share * len(data))])
    plain, refined = (
        decoder.image(filtered=False),
        decoder.image(refiner()),
    )  # the network was trained without the filter
    assert (refined.shape, refined.dtype) == (plain.shape, plain.dtype)
    assert np.array_equal(refined, refiner().refine(plain, decoder.step))
    if len(image.shape) == 3 and image.shape[2] in (2, 4):
        assert np.array_equal(refined[..., -1], plain[..., -1])  # alpha


def test_with_all_bits_an_image_stays_as_it_is() -> None:
    images = [crop(shape, seed) for seed, shape in enumerate(SHAPES)]
    data = compress_images(images, codec())
    assert same(decompress_images(data, codec(), refiner=refiner()), decompress_images(data, codec()))
    assert not same(decompress_images(data, codec(), bpp=1, refiner=refiner()), decompress_images(data, codec(), bpp=1))


def test_an_image_stays_as_it_is_before_and_after_the_steps_of_training() -> None:
    image = crop((40, 56, 3))
    changed = {step: not same([refiner().refine(image, step)], [image]) for step in (4.0, 5.0, 1024.0, 1025.0, 2.0**17)}
    assert changed == {4.0: False, 5.0: True, 1024.0: True, 1025.0: False, 2.0**17: False}


@pytest.mark.parametrize("shape", [(150, 201, 3), (33, 170)])
def test_tiles_are_refined_as_the_whole(shape: tuple[int, ...]) -> None:
    image = crop(shape)
    whole, tiled = (refiner(tile).refine(image, 40.0) for tile in (1024, 32))
    assert np.abs(whole.astype(int) - image).max() > 5
    assert np.array_equal(tiled, whole)


def test_an_image_and_its_transpose_are_refined_alike() -> None:
    image = crop((40, 70, 3))
    assert np.array_equal(refiner().refine(image.swapaxes(0, 1), 40.0), refiner().refine(image, 40.0).swapaxes(0, 1))


def test_16_bits_are_refined_as_8() -> None:
    image = crop((40, 40, 3))
    fine = refiner().refine(image.astype(np.uint16) * 257, 40.0)
    assert np.abs(fine / 257 - refiner().refine(image, 40.0)).max() < 0.51


@pytest.mark.parametrize("share", [0, 0.02, 0.5])
def test_all_ways_to_read_a_stream_agree(share: float, tmp_path: Path) -> None:
    start = header_of(stream()).size
    data = stream()[: start + int(share * (len(stream()) - start))]
    expected = decompress_images(data, codec(), refiner=refiner())
    (tmp_path / "cut.nest").write_bytes(data)
    with ImageStreamReader(tmp_path / "cut.nest", codec(), refiner=refiner()) as reader:
        assert same(list(reader), expected)
    decoder = ImageStreamDecoder(codec(), refiner=refiner())
    for first in range(0, len(data), 777):
        decoder.feed(data[first : first + 777])
    assert same(decoder.images(), expected)
    assert share == 0 or not same(expected, decompress_images(data, codec()))


def test_a_saved_refiner_refines_the_same(tmp_path: Path) -> None:
    image = crop((40, 40, 3))
    refiner().save(tmp_path / "a.refiner")
    loaded = Refiner.load(tmp_path / "a.refiner")
    assert loaded.fingerprint == refiner().fingerprint
    assert np.array_equal(loaded.refine(image, 40.0), refiner().refine(image, 40.0))


def test_a_file_of_floats_is_refused(tmp_path: Path) -> None:
    record = refiner().to_record()
    write_record(tmp_path / "a.refiner", Record(record.kind, 2, record.settings, record.arrays))
    with pytest.raises(DamagedFile, match="version 2 has no 8-bit weights"):
        Refiner.load(tmp_path / "a.refiner")


def test_files_that_hold_no_refiner_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.refiner"
    refiner().save(path)
    data = bytearray(path.read_bytes())
    data[-100] ^= 1
    path.write_bytes(data)
    with pytest.raises(DamagedFile, match="its checksum does not match"):
        Refiner.load(path)
    path.write_bytes(data[:-50])
    with pytest.raises(DamagedFile, match="is damaged"):
        Refiner.load(path)
    ImageCodec.load().save(path)
    with pytest.raises(InvalidInput, match="must hold a Refiner, got a PictureCoder"):
        Refiner.load(path)


LIES: list[dict[str, object]] = [
    {"blocks": [1, 1]},
    {"blocks": [1, 900, 1]},
    {"blocks": [1 << 40, 1, 1]},
    {"blocks": "abc"},
]
FORGED: list[dict[str, NDArray[Any]]] = [
    {"end.weight": np.zeros((48, 15, 3, 3), dtype=np.int8)},
    {"end.weight": np.zeros((48, 16, 3, 3), dtype=np.float32)},
    {"coarser.weight": np.zeros((32, 16, 2, 3), dtype=np.int8)},
    {"down.0.step.bias": np.full(32, np.nan, dtype=np.float32)},
    {"down.0.step.bias": np.zeros(33, dtype=np.float32)},
    {"place": np.zeros((16, 4, 5), dtype=np.float32)},
]


@pytest.mark.parametrize("lie", LIES)
def test_settings_that_do_not_fit_the_weights_are_refused(lie: dict[str, object], tmp_path: Path) -> None:
    refuse(lie, {}, tmp_path)


@pytest.mark.parametrize("forged", FORGED)
def test_weights_that_do_not_fit_each_other_are_refused(forged: dict[str, NDArray[Any]], tmp_path: Path) -> None:
    refuse({}, forged, tmp_path)


def refuse(settings: dict[str, object], forged: dict[str, NDArray[Any]], folder: Path) -> None:
    honest = refiner().to_record()
    record = Record(honest.kind, honest.version, {**honest.settings, **settings}, {**honest.arrays, **forged})
    write_record(folder / "a.refiner", record)
    with pytest.raises(DamagedFile, match="not a Refiner as it should be"):
        Refiner.load(folder / "a.refiner")


@pytest.mark.parametrize("views", [1, 2, 4])
def test_views_are_averaged(views: int) -> None:
    """Of the core's corrections; without rounding the refined values are the image and their mean."""
    image, shown = crop((48, 64, 3)).astype(np.uint8), Refiner((1, 1, 1), arrays(), views=views)
    affine = shown._affine(40.0)
    each = []
    for turned, transposed in itertools.product((False, True), repeat=2):
        out = np.empty(image.shape, dtype=np.float32)
        shown._network.correct(image, *affine, out, transposed, turned, 1)
        each.append(out)
    expected = np.rint(np.clip(image + np.mean(each[:views], axis=0), 0, 255))
    assert np.abs(shown.refine(image, 40.0) - expected).max() <= 1  # of rounding
    assert np.mean(shown.refine(image, 40.0) != expected) < 0.01


def test_bad_arguments_are_refused(tmp_path: Path) -> None:
    for views in (0, 3, True, "4"):
        with pytest.raises(InvalidInput, match="views must be 1, 2 or 4, got"):
            Refiner.load(views=views)  # type: ignore[arg-type]
    for tile in (0, 24, 1.5, True):
        with pytest.raises(InvalidInput, match="tile must be"):
            Refiner((1, 1, 1), arrays(), tile=tile)  # type: ignore[arg-type]
    for step in (float("nan"), 0, -1.0, "4", True):
        with pytest.raises(InvalidInput, match="step must be a quantizer step above 0"):
            refiner().refine(crop((8, 8)), step)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="refiner must be a Refiner, got <class"):
        decompress_images(stream(), codec(), refiner=Refiner)  # type: ignore[arg-type]
    (tmp_path / "a.nest").write_bytes(stream())
    message = r"refiner must be a Refiner, got True: nestcode.images.Refiner.load\(\) returns one"
    with pytest.raises(InvalidInput, match=message):
        decompress_images(stream(), codec(), refiner=True)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=message):
        ImageStreamReader(tmp_path / "a.nest", codec(), refiner=True)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=message):
        ImageStreamDecoder(codec(), refiner=True)  # type: ignore[arg-type]


def test_refining_needs_no_torch() -> None:
    code = (
        "import sys; sys.modules['torch'] = None; import numpy as np; from nestcode.images import Refiner; "
        "print(Refiner.load().refine(np.eye(24, dtype=np.uint8), 40.0).shape)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "(24, 24)\n"
