"""The image codec: every prefix decodes, no blocking artifacts, and a saved codec codes the same."""

import itertools
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nestcode as nc
from nestcode import metrics
from nestcode.data import sample_images
from nestcode.errors import DamagedFile, InvalidInput, NotFitted
from nestcode.images import ImageCodec
from nestcode.images.bitplanes import PASSES
from nestcode.images.codec import ImageDecoder
from nestcode.images.image import Image
from nestcode.images.lapped_dct import BLOCK
from tests.images.samples import codec, crop


@cache
def flower() -> Image:
    return np.ascontiguousarray(sample_images()["flower"][100:260, 200:392])


@cache
def pretrained() -> ImageCodec:
    return ImageCodec.load()


def error(image: Image, other: Image) -> float:
    return float(np.mean((image.astype(np.float64) - other) ** 2))


def some_image(seed: int, shape: tuple[int, ...]) -> Image:
    """Smooth in some places, noisy in others."""
    rng = np.random.default_rng(seed)
    waves = 128 + 100 * np.sin(np.indices(shape).sum(axis=0) / rng.uniform(2, 40))
    noise = rng.normal(0, rng.choice([0, 5, 60]), shape)
    return np.asarray(np.clip(waves + noise, 0, 255), dtype=np.uint8)


shapes = st.one_of(
    st.tuples(st.integers(1, 70), st.integers(1, 70)),
    st.tuples(st.integers(1, 70), st.integers(1, 70), st.integers(1, 4)),
)


@given(st.integers(0, 2**32), shapes, st.floats(0, 1))
@settings(max_examples=25, deadline=None)
def test_every_prefix_decodes(seed: int, shape: tuple[int, ...], share: float) -> None:
    image, codec = some_image(seed, shape), pretrained()
    data = codec.encode(image)
    cut = codec.decode(data[: int(share * len(data))], shape)
    whole = codec.decode(data, shape)
    assert cut.shape == whole.shape == shape
    assert cut.dtype == whole.dtype == np.uint8
    assert np.abs(whole.astype(int) - image).max() < 16
    assert error(image, whole) < 5
    assert error(image, whole) <= error(image, cut) + 1


def test_the_error_falls_with_the_rate() -> None:
    image, codec = flower(), pretrained()
    encoded = codec.encode_passes(image)
    decoder, errors = ImageDecoder(codec, image.shape), []
    for begin, end in itertools.pairwise([0, 0, *range(50, len(encoded.data), 200), len(encoded.data)]):
        decoder.feed(encoded.data[begin:end])
        errors.append(error(image, decoder.image()))
    assert all(later <= before * 1.002 for before, later in itertools.pairwise(errors))
    assert errors[-1] < 3
    stated = [(size, left) for size, left in zip(encoded.sizes, encoded.errors, strict=True) if size >= 100]
    assert len(encoded.sizes) == PASSES
    assert encoded.sizes[-1] == len(encoded.data)
    for size, left in stated[::4]:  # the last bits of a pass arrive with the first bytes of the next
        sooner, later = (error(image, codec.decode(encoded.data[:end], image.shape)) for end in (size, size + 4))
        assert 0.95 * later <= left <= 1.05 * sooner
    assert stated[-1][1] == pytest.approx(error(image, codec.decode(encoded.data, image.shape)), rel=1e-9)


@given(st.lists(st.integers(1, 400), max_size=30))
@settings(max_examples=20, deadline=None)
def test_progressive_decoding_equals_decoding_at_once(sizes: list[int]) -> None:
    image, codec = flower()[:64, :64], pretrained()
    data = codec.encode(image)
    decoder, at = ImageDecoder(codec, image.shape), 0
    for size in sizes:
        decoder.feed(data[at : at + size])
        at += size
    assert (decoder.image() == codec.decode(data[:at], image.shape)).all()


def test_a_limit_gives_a_prefix() -> None:
    image, codec = flower(), pretrained()
    data = codec.encode(image)
    for limit in (0, 1, 3, 100, 1000, 10**9):
        assert codec.encode(image, limit=limit) == data[:limit]


@pytest.mark.parametrize("share", [0, 0.003, 0.3, 0.999, 1])
def test_passes_up_to_a_limit_are_those_of_the_whole(share: float) -> None:
    image, codec = flower(), pretrained()
    whole = codec.encode_passes(image)
    limit = int(share * len(whole.data))
    some = codec.encode_passes(image, limit)
    assert (some.data, some.sizes) == (whole.data[:limit], tuple(min(size, limit) for size in whole.sizes))
    assert some.complete == sum(size <= limit for size in whole.sizes) or limit == 0 or share == 0.999
    left = error(image, codec.decode(some.data, image.shape))
    assert some.errors[-1] == pytest.approx(left, rel=0.05 if limit >= 100 or limit == 0 else 0.5)


def test_there_are_no_blocking_artifacts() -> None:
    image, codec = flower(), pretrained()
    decoded = codec.decode(codec.encode(image, limit=240), image.shape).astype(np.float64)  # 0.06 bpp
    difference = decoded - image
    steps = np.abs(np.diff(difference, axis=1)).mean(axis=(0, 2))
    borders = np.arange(BLOCK - 1, len(steps), BLOCK)
    assert steps[borders].mean() < 1.3 * np.delete(steps, borders).mean()


def test_flat_regions_take_few_bits() -> None:
    busy = np.random.default_rng(0).integers(0, 256, (128, 256)).astype(np.uint8)
    mostly_flat = busy.copy()
    mostly_flat[:, :192] = 128
    whole, part = (len(pretrained().encode(image)) for image in (busy, mostly_flat))
    assert part < 0.4 * whole
    assert len(pretrained().encode(np.full((512, 512, 3), 200, dtype=np.uint8))) < 2000


def test_an_opaque_alpha_channel_costs_nothing() -> None:
    image = flower()
    opaque = np.concatenate([image, np.full((*image.shape[:2], 1), 255, dtype=np.uint8)], axis=2)
    plain, with_alpha = (len(pretrained().encode(some)) for some in (image, opaque))
    assert with_alpha < plain + 40


def test_a_trained_context_model_helps_small_images() -> None:
    trained = ImageCodec().fit([flower()])
    image = np.ascontiguousarray(sample_images()["flower"][40:104, 300:364])
    blank = ImageCodec().fit([np.zeros((1, 1), dtype=np.uint8)])
    errors = {
        name: error(image, codec.decode(codec.encode(image, limit=100), image.shape))
        for name, codec in {"trained": trained, "blank": blank, "pretrained": pretrained()}.items()
    }
    assert errors["trained"] < errors["blank"]
    assert errors["pretrained"] < errors["blank"]


def test_saved_and_loaded_it_codes_the_same(tmp_path: Path) -> None:
    codec = ImageCodec(step=2).fit([flower(), flower()[..., 0]])
    codec.save(tmp_path / "own.coder")
    again = ImageCodec.load(tmp_path / "own.coder")
    assert again.fingerprint == codec.fingerprint
    assert again.step == 2
    image = sample_images()["china"][:100, :100]
    assert again.encode(image) == codec.encode(image)


def test_encoding_does_not_change_the_codec() -> None:
    before = pretrained().fingerprint
    first = pretrained().encode(flower())
    assert pretrained().encode(flower()) == first
    assert pretrained().fingerprint == before


def test_a_smaller_step_ends_at_a_smaller_error() -> None:
    errors = []
    for step in (16, 4, 1):
        codec = ImageCodec(step=step).fit([flower()[:32, :32]])
        errors.append(error(flower(), codec.decode(codec.encode(flower()), flower().shape)))
    assert errors[0] > 4 * errors[1] > 16 * errors[2]


@pytest.mark.parametrize("bad", [np.zeros((4, 4)), np.zeros((0, 4), np.uint8), np.zeros((4, 4, 5), np.uint8), [[1, 2]]])
def test_arrays_that_are_no_images_are_refused(bad: object) -> None:
    with pytest.raises(InvalidInput, match="an image must be"):
        pretrained().encode(bad)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="an image must be"):
        ImageCodec().fit([bad])  # type: ignore[list-item]


def test_wrong_settings_and_files_are_named(tmp_path: Path) -> None:
    for step in (0, -1, 1001, float("nan"), "4", True):
        with pytest.raises(InvalidInput, match="step must be between 1 and 1000"):
            ImageCodec(step=step)  # type: ignore[arg-type]
    with pytest.raises(NotFitted, match="call fit"):
        ImageCodec().encode(flower())
    with pytest.raises(NotFitted, match="call fit"):
        ImageCodec().save(tmp_path / "no.coder")
    with pytest.raises(InvalidInput, match="at least one image"):
        ImageCodec().fit([])
    pretrained().save(tmp_path / "images.coder")
    with pytest.raises(InvalidInput, match=r"ImageCodec\.load reads it"):
        nc.load_coder(tmp_path / "images.coder")
    nc.LinearCoder(width=4).fit(np.random.default_rng(0).normal(size=(50, 4))).save(tmp_path / "linear.coder")
    with pytest.raises(InvalidInput, match="must hold an image codec, got a LinearCoder"):
        ImageCodec.load(tmp_path / "linear.coder")
    with pytest.raises(FileNotFoundError):
        ImageCodec.load(tmp_path / "nothing")
    with pytest.raises(DamagedFile, match="at most 15 bit planes"):
        pretrained().decode(b"\x7f1234", (8, 8))
    with pytest.raises(InvalidInput, match="an image must be"):
        pretrained().decode(b"", (8, 8, 9))
    with pytest.raises(InvalidInput, match="dtype must be uint8 or uint16, got float32: convert"):
        pretrained().decode(b"", (8, 8), np.float32)
    for limit in (-1, "a", 1.5):
        with pytest.raises(InvalidInput, match="limit must be an integer of at least 0, got"):
            pretrained().encode(flower(), limit)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="tune must be 'psnr' or 'ssim'"):
        pretrained().encode(flower(), tune=np.array(["psnr", "ssim"]))  # type: ignore[arg-type]


@given(st.binary(max_size=600), shapes)
@settings(max_examples=30, deadline=None)
def test_noise_decodes_to_some_image_or_is_refused(noise: bytes, shape: tuple[int, ...]) -> None:
    try:
        decoded = pretrained().decode(noise, shape)
    except DamagedFile:
        return
    assert decoded.shape == shape


def test_the_step_falls_to_the_codecs_as_bytes_arrive() -> None:
    image, codec = flower()[:40, :33], pretrained()
    data, decoder = codec.encode(image), ImageDecoder(codec, image.shape)
    steps = [decoder.step]
    for byte in range(len(data)):
        decoder.feed(data[byte : byte + 1])
        steps.append(decoder.step)
    assert steps == sorted(steps, reverse=True)
    assert steps[0] == 2**15 * codec.step
    assert steps[-1] == codec.step
    assert len(set(steps)) > 100  # also within passes
    middle = len(data) // 2
    whole = ImageDecoder(codec, image.shape)
    whole.feed(data[:middle])
    assert whole.step == steps[middle]


def test_the_step_of_images_for_ssim_is_that_of_luma() -> None:
    image, codec = flower()[:40, :33], pretrained()
    decoder = ImageDecoder(codec, image.shape)
    decoder.feed(codec.encode(image, tune="ssim"))
    assert decoder.step == codec.step / 2


def test_a_codec_too_fine_for_ssim_is_refused() -> None:
    codec = ImageCodec(step=1).fit([flower()[:64, :64]])
    with pytest.raises(InvalidInput, match="tune='ssim' takes a codec of step 2 or more, got 1"):
        codec.encode(flower()[:32, :32], tune="ssim")
    bars = np.zeros((128, 128, 3), dtype=np.uint8)
    bars[:, np.arange(128) // 16 % 2 == 1] = 255
    finest = ImageCodec(step=2).fit([bars])
    off = finest.decode(finest.encode(bars, tune="ssim"), bars.shape).astype(int) - bars
    assert np.abs(off).max() <= 2


def test_scales_are_checked_and_an_empty_bitstream_is_gray_at_each() -> None:
    for scale, shape in ((1, (30, 17, 2)), (1 / 2, (15, 9, 2)), (1 / 4, (8, 5, 2)), (1 / 8, (4, 3, 2))):
        gray = codec().decode(b"", (30, 17, 2), np.uint16, scale=scale)
        assert gray.shape == shape
        assert np.array_equal(gray, np.broadcast_to(np.array([128 * 257, 65535], dtype=np.uint16), shape))
    for wrong in (0, 2, 1 / 3, True, "1/2", None, float("nan")):
        with pytest.raises(InvalidInput, match="scale must be 1, 1/2, 1/4 or 1/8"):
            codec().decode(b"", (8, 8), scale=wrong)  # type: ignore[arg-type]


def test_a_scaled_image_is_near_the_means_of_all_frequencies() -> None:
    image = crop((96, 96, 3))
    whole = codec().decode(codec().encode(image), image.shape).astype(float)
    for reduction in (2, 4, 8):
        squares = whole.reshape(96 // reduction, reduction, 96 // reduction, reduction, 3).mean((1, 3))
        scaled = codec().decode(codec().encode(image), image.shape, scale=1 / reduction)
        assert metrics.psnr(np.rint(squares).astype(np.uint8), scaled) > 35
