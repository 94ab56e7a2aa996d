"""The filter of decoded images does what its plain form does, and nothing to an image of all bits."""

import importlib
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from nestcode import _core
from nestcode.arrays import Floats
from nestcode.data import sample_images
from nestcode.images import ImageCodec
from nestcode.images.codec import ImageDecoder
from nestcode.images.image import Tune
from nestcode.metrics import psnr
from tests.images.samples import SHAPES, codec, crop
from tests.images.twins import pixel_values


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The benchmark that trains the filter."""
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    return importlib.import_module("image_filter")


@pytest.mark.parametrize("tune", ["psnr", "ssim"])
@pytest.mark.parametrize("last", [29, 33, 38])  # the last pass that arrived
def test_images_are_those_of_the_plain_filter(plain: ModuleType, last: int, tune: Tune) -> None:
    weights = tuple(np.array(each) for each in _core.image_filter_weights())
    values = other = changed = 0
    for seed, shape in enumerate(SHAPES):
        encoded, decoder = codec().encode_passes(crop(shape, seed), tune=tune), ImageDecoder(codec(), shape)
        data = encoded.data[: encoded.sizes[last]]
        decoder.feed(data)
        if not data:
            continue
        step = codec().step * 2 ** (15 - decoder._decoder.passes / 3)

        def filtered(channels: Floats, scales: Floats, step: float = step) -> Floats:
            count = 3 if len(channels) > 2 else 1
            colors = plain.filtered(channels[:count], [step * float(scale) for scale in scales[:count]], step, weights)
            return np.concatenate([colors, channels[count:]])

        image = decoder.image()
        planes = range(14 - last // 3, 16 - last // 3)
        twins = [pixel_values(decoder, data, codec().step, plane, filtered=filtered) for plane in planes]
        values += image.size
        other += int(min(np.sum(np.abs(image - twin) > 0.52) for twin in twins))
        changed += int((image != decoder.image(filtered=False)).sum())
    assert other < 0.01 * values  # rounding may decide the class of a cell without structure
    assert changed > 0.1 * values


def test_an_image_of_all_bits_is_not_filtered() -> None:
    image = sample_images()["flower"][:100, :90]
    decoder, pretrained = ImageDecoder(ImageCodec.load(), image.shape), ImageCodec.load()
    data = pretrained.encode(image)
    decoder.feed(data)
    assert np.array_equal(decoder.image(), decoder.image(filtered=False))


@pytest.mark.parametrize(("bpp", "gain"), [(0.5, 0.1), (3, 0)])
def test_filtered_images_are_nearer_the_original(bpp: float, gain: float) -> None:
    """Also at 3 bpp, where china is full of texture."""
    for image in sample_images().values():
        image = image[:320, :480]
        decoder = ImageDecoder(ImageCodec.load(), image.shape)
        decoder.feed(ImageCodec.load().encode(image, int(bpp * image.size / 24)))
        assert psnr(image, decoder.image()) > psnr(image, decoder.image(filtered=False)) + gain
