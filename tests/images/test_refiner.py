"""The learned decoder: any cut and any image, tiles as the whole, all bits as they are, and files that are checked."""

import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

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
from nestcode.storage import Record, write_record
from tests.images.samples import SHAPES, codec, crop, header_of, same, stream
from tests.nn.test_restoration import random_network


@cache
def refiner(tile: int = 1024) -> Refiner:
    return Refiner(random_network(), tile)


@given(st.integers(0, len(SHAPES) - 1), st.floats(0, 1))
@settings(max_examples=20, deadline=None)
def test_every_kind_of_image_is_refined_at_every_cut(kind: int, share: float) -> None:
    image = crop(SHAPES[kind], kind)
    data, decoder = codec().encode(image), ImageDecoder(codec(), image.shape)
    decoder.feed(data[: int(share * len(data))])
    plain, refined = decoder.image(), decoder.image(refiner())
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
    whole, tiled = (refiner(tile).refine(image, 40.0).astype(int) for tile in (1024, 32))
    assert np.abs(whole - image).max() > 5
    assert np.abs(tiled - whole).max() <= 1
    assert np.mean(tiled != whole) < 0.01  # values that are rounded the other way


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


def test_a_file_of_version_1_has_no_biases_of_places(tmp_path: Path) -> None:
    image, record = crop((40, 40, 3)), refiner().to_record()
    arrays = {name: array for name, array in record.arrays.items() if name != "place"}
    write_record(tmp_path / "a.refiner", Record(record.kind, 1, record.settings, arrays))
    network = random_network()
    torch.nn.init.zeros_(network.place)
    expected = Refiner(network).refine(image, 40.0)
    assert np.array_equal(Refiner.load(tmp_path / "a.refiner").refine(image, 40.0), expected)
    assert not np.array_equal(refiner().refine(image, 40.0), expected)


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
    {"channels": [8, 16]}, {"channels": [8]}, {"blocks": [1, 900]}, {"blocks": [1, 1 << 40]}, {"blocks": "ab"}, {},
]  # fmt: skip


@pytest.mark.parametrize("lie", LIES)
def test_settings_that_do_not_fit_the_weights_are_refused(lie: dict[str, object], tmp_path: Path) -> None:
    honest = refiner().to_record()
    settings = {**honest.settings, **lie} if lie else {}
    write_record(tmp_path / "a.refiner", Record(honest.kind, honest.version, settings, honest.arrays))
    with pytest.raises(DamagedFile, match="not a Refiner as it should be"):
        Refiner.load(tmp_path / "a.refiner")


def test_bad_arguments_are_refused(tmp_path: Path) -> None:
    for tile in (0, 24, 1.5, True):
        with pytest.raises(InvalidInput, match="tile must be"):
            Refiner(random_network(), tile)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=r"network must be a RestorationUNet, got None: Refiner.load\(\)"):
        Refiner(None)  # type: ignore[arg-type]
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


def test_without_torch_the_error_names_the_extra() -> None:
    forbid = (
        "import sys; sys.modules['torch'] = None; from nestcode import images; images.compress_images; images.Refiner"
    )
    run = subprocess.run([sys.executable, "-c", forbid], capture_output=True, text=True, check=False)
    assert "Refiner needs torch, which is not installed: pip install 'nestcode[torch]'" in run.stderr
