"""Streams of images: every truncation decodes, costs all images alike, and rates, budgets and errors are kept."""

import json
import warnings
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from threading import Lock
from time import sleep
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nestcode import compress, decompress, metrics
from nestcode import stream_info as any_stream_info
from nestcode.errors import DamagedFile, InvalidInput, NotFitted
from nestcode.images import (
    ImageCodec,
    ImageStreamDecoder,
    ImageStreamReader,
    ImageStreamWriter,
    compress_images,
    decompress_images,
)
from nestcode.images.bitplanes import PASSES
from nestcode.images.format import MAX_NAME, check_name, lay_out
from nestcode.images.image import Image
from nestcode.images.info import image_stream_info
from nestcode.images.pool import map_in_order
from nestcode.images.stream import ImageStreamEncoder, Target
from nestcode.streams import ItemStreamInfo
from tests.images.samples import (
    SHAPES,
    codec,
    crop,
    crops,
    error,
    forged,
    header_of,
    same,
    stream,
    stream_info,
    table_of,
)
from tests.streams.collections import some_coder, some_items

few_shapes = st.lists(st.sampled_from(SHAPES), max_size=3)


def plain_decode(images: list[Image], got: int) -> list[Image]:
    """The twin: deal out the bytes of the payload one by one, pass by pass and image by image."""
    encoded = [codec().encode_passes(image) for image in images]
    arrived = [0] * len(images)
    for k in range(PASSES):
        for at, one in enumerate(encoded):
            for _ in range(one.sizes[k] - (one.sizes[k - 1] if k else 0)):
                arrived[at] += got > 0
                got -= 1
    return [
        codec().decode(one.data[:count], image.shape)
        for one, count, image in zip(encoded, arrived, images, strict=True)
    ]


@settings(max_examples=20)
@given(few_shapes, st.integers(0, 100), st.floats(0, 1))
def test_every_truncation_decodes_to_what_arrived(shapes: list[tuple[int, ...]], seed: int, share: float) -> None:
    images = [crop(shape, seed + k) for k, shape in enumerate(shapes)]
    data = compress_images(images, codec())
    known = stream_info(data)
    assert len(data) == known.total_bytes
    assert known.shapes == tuple(shapes)
    cut = known.header_bytes + int(share * (len(data) - known.header_bytes))
    blocks, left = divmod(cut - known.header_bytes, 4100)
    got = min(4096 * blocks + min(left, 4096), header_of(data).payload)
    decoded = decompress_images(data[:cut], codec())
    assert [(one.shape, one.dtype.str) for one in decoded] == [(shape, "|u1") for shape in shapes]
    assert same(decoded, plain_decode(images, got))
    seen = stream_info(data[:cut])
    assert seen.verified + seen.unverified == got
    assert (seen.damaged, seen.trailing, seen.header_bytes) == (None, 0, known.header_bytes)


def test_every_truncation_of_a_small_stream_decodes() -> None:
    data = stream(((1, 1, 4), (2, 9)))
    for cut in range(stream_info(data).header_bytes, len(data) + 1):
        assert [one.shape for one in decompress_images(data[:cut], codec())] == [(1, 1, 4), (2, 9)]
    assert all((one == 128).all() for one in decompress_images(stream(((2, 9),)), codec(), bpp=0))


def test_the_error_falls_with_the_rate() -> None:
    data, images = stream(), crops()
    start = stream_info(data).header_bytes
    cuts = [start, *range(start + 20, len(data), 150), len(data)]
    errors = [error(images, decompress_images(data[:cut], codec())) for cut in cuts]
    assert all(later <= earlier * 1.03 for earlier, later in pairwise(errors))
    assert errors[-1] < errors[0] / 500
    assert errors[-1] < 1e-4


@pytest.mark.parametrize("depth", [8, 16])
def test_the_stated_error_is_within_7_percent_of_the_actual_one(depth: int) -> None:
    """At truncations after the first hundred bytes, also of images that are truncated to a quality each."""
    images: list[Image] = [crop((144, 160, 3), seed) for seed in range(2)]
    if depth == 16:
        images = [image.astype(np.uint16) * 257 for image in images[:1]]
    for target in ({}, {"psnr": 30}):
        data = compress_images(images, codec(), **target)  # type: ignore[arg-type]
        start = stream_info(data).header_bytes
        for share in (0, 0.05, 0.1, 0.17, 0.3, 0.45, 0.7, 1):
            cut = data[: start + int(share * (len(data) - start))]
            left = error(images, decompress_images(cut, codec()))
            assert stream_info(cut).expected_error == pytest.approx(left, rel=0.07), share


@settings(max_examples=20)
@given(st.lists(st.sampled_from(SHAPES), min_size=1, max_size=5), st.floats(0, 1))
def test_truncation_costs_all_images_alike(shapes: list[tuple[int, ...]], share: float) -> None:
    """What arrived of any two images differs by at most one pass."""
    header = header_of(compress_images([crop(shape, k) for k, shape in enumerate(shapes)], codec()))
    arrived = int(share * header.payload)
    got = [sum(some.stop - some.start for some in header.slices(k, arrived)) for k in range(len(shapes))]
    assert sum(got) == arrived
    cut = header.truncate(arrived)
    assert [entry.sizes[-1] for entry in cut.entries] == got
    full = [
        int(np.sum((mine == theirs) & np.cumprod(mine == theirs).astype(bool)))
        for mine, theirs in zip(cut.pass_sizes, header.pass_sizes, strict=True)
    ]  # complete passes, from the first one on
    begun = [int(np.flatnonzero(mine)[-1]) if mine.any() else -1 for mine in cut.pass_sizes]
    assert max(begun) <= min(full)


@settings(max_examples=15)
@given(few_shapes, st.floats(0, 1.1))
def test_a_truncated_header_is_that_of_a_stream(shapes: list[tuple[int, ...]], share: float) -> None:
    images = [crop(shape, k) for k, shape in enumerate(shapes)]
    kept = [codec().encode_passes(image).data for image in images]
    whole = header_of(compress_images(images, codec()))
    cut = whole.truncate(int(share * whole.payload))
    assert cut.payload == min(int(share * whole.payload), whole.payload)
    data = b"".join(lay_out(cut, b"", lambda image, part: kept[image][part]))
    again = header_of(data)
    assert (again.entries, again.quality, again.payload) == (cut.entries, cut.quality, cut.payload)
    assert len(data) == cut.total
    assert same(decompress_images(data, codec()), plain_decode(images, cut.payload))


@settings(max_examples=20)
@given(st.lists(st.sampled_from(SHAPES), min_size=1, max_size=3), st.integers(0, 9), st.floats(0, 1.05))
def test_a_budget_is_kept_and_used(shapes: list[tuple[int, ...]], seed: int, share: float) -> None:
    images = [crop(shape, seed + k) for k, shape in enumerate(shapes)]
    whole = compress_images(images, codec())
    least = compress_images(images, codec(), bpp=0)
    budget = len(least) + int(share * (len(whole) - len(least)))
    data = compress_images(images, codec(), budget=budget)
    assert len(data) <= budget
    assert len(data) >= budget - 20 or data in (least, whole)  # the table is compressed: some bytes more or less
    payload = header_of(data).payload
    assert same(decompress_images(data, codec()), plain_decode(images, payload))


def test_a_budget_just_below_the_whole_is_kept() -> None:
    whole = header_of(stream())
    for budget in range(whole.total - 40, whole.total):
        assert budget - 12 <= whole.truncate_to_total(budget).total <= budget


def test_a_budget_for_less_than_the_header_is_refused() -> None:
    least = len(compress_images(crops(), codec(), bpp=0))
    assert len(compress_images(crops(), codec(), budget=least)) == least
    with pytest.raises(InvalidInput, match=f"at least the {least} bytes of the header, got {least - 1}"):
        compress_images(crops(), codec(), budget=least - 1)
    with pytest.raises(InvalidInput, match="leave out embed"):
        compress_images(crops(), codec(), budget=1000, embed=True)


@pytest.mark.parametrize("bpp", [0, 0.001, 0.05, 0.333, 2, 1000])
def test_a_rate_equals_truncation(bpp: float) -> None:
    data = stream()
    header = header_of(data)
    assert header.pixels == sum(shape[0] * shape[1] for shape in SHAPES)
    payload = min(int(bpp * header.pixels / 8), header.payload)
    kept = compress_images(crops(), codec(), bpp=bpp)
    assert header_of(kept).payload == payload
    assert header_of(kept).entries == header.truncate(payload).entries
    expected = plain_decode(crops(), payload)
    assert same(decompress_images(data, codec(), bpp=bpp), expected)
    assert same(decompress_images(kept, codec()), expected)
    assert stream_info(kept).full_bpp == stream_info(kept).bpp == pytest.approx(8 * payload / header.pixels)


@pytest.mark.parametrize("bpp", [0.02, 1, 3])
def test_a_rate_that_one_image_takes_most_of_equals_truncation(bpp: float) -> None:
    """Its share by pixels would not do."""
    noise = np.random.default_rng(0).integers(0, 256, (48, 64, 3)).astype(np.uint8)
    images = [np.zeros_like(noise), crop((48, 64, 3)), noise, np.zeros_like(noise)]
    whole, kept = header_of(compress_images(images, codec())), header_of(compress_images(images, codec(), bpp=bpp))
    assert kept.entries == whole.truncate(int(bpp * whole.pixels / 8)).entries


def luma_ssim(image: Image, decoded: Image) -> float:
    """Return the SSIM of the luma, gray images repeated three times."""
    colors = [some.reshape(*some.shape[:2], -1) for some in (image, decoded)]
    return metrics.ssim(*([some[..., :3] if some.shape[2] > 2 else some[..., [0, 0, 0]] for some in colors]))


@pytest.mark.parametrize("target", [{"psnr": 15}, {"psnr": 35.5}, {"ssim": 0.5}, {"ssim": 0.95}], ids=str)
def test_a_quality_is_reached_by_every_image_and_not_overdone(target: dict[str, float]) -> None:
    images = [*crops(), crop((30, 40, 3), 9).astype(np.uint16) * 257]
    [(name, wanted)] = target.items()
    measure = metrics.psnr if name == "psnr" else luma_ssim
    data = compress_images(images, codec(), **target)  # type: ignore[arg-type]
    for image, decoded, entry in zip(images, decompress_images(data, codec()), header_of(data).entries, strict=True):
        assert measure(image, decoded) >= wanted
        fewer = codec().encode(image)[: max(entry.sizes[-1] - 2 - entry.sizes[-1] // 100, 0)]
        less = measure(image, codec().decode(fewer, image.shape, image.dtype))
        assert less < wanted + 0.02 * (1 - wanted if name == "ssim" else wanted) or entry.sizes[-1] < 3


@pytest.mark.parametrize(("metric", "all_wanted"), [("psnr", (24, 28, 32, 36)), ("ssim", (0.6, 0.75, 0.9, 0.97))])
def test_a_quality_takes_fewer_decodes_than_a_bisection(
    monkeypatch: pytest.MonkeyPatch, metric: str, all_wanted: tuple[float, ...]
) -> None:
    image, decode, decodes = crop((160, 240, 3), 1), ImageCodec.decode, 0

    def counted(*given: Any) -> Image:
        nonlocal decodes
        decodes += 1
        return decode(*given)

    monkeypatch.setattr(ImageCodec, "decode", counted)
    for wanted in all_wanted:
        compress_images([image], **{metric: wanted})  # type: ignore[arg-type]
    assert decodes <= 4 * 9  # a bisection takes 12


def test_a_quality_must_be_reachable() -> None:
    with pytest.raises(InvalidInput, match=r"psnr must be at most .* dB.* or fit a finer codec") as refused:
        compress_images(crops(), codec(), psnr=90)
    reachable = float(str(refused.value).split("at most ")[1].split(" dB")[0])
    assert compress_images(crops()[:1], codec(), psnr=reachable)
    with pytest.raises(InvalidInput, match=r"psnr must be at most [0-9.]+ dB.* lower it$"):
        compress_images(crops()[:1], ImageCodec(step=1).fit(crops()[:1]), psnr=90)
    with pytest.raises(InvalidInput, match=r"ssim must be at most 0\.9.* bits of image '0' give, got 0.99999"):
        compress_images(crops(), codec(), ssim=0.99999)
    for wrong in (0, -1, 200, float("nan"), "0.1", True):
        with pytest.raises(InvalidInput, match="psnr must be above 0 and below 100 dB"):
            compress_images([], codec(), psnr=wrong)  # type: ignore[arg-type]
        with pytest.raises(InvalidInput, match="ssim must be above 0 and below 1, got"):
            compress_images([], codec(), ssim=wrong if wrong != "0.1" else 1)  # type: ignore[arg-type]


def test_a_stream_has_one_target() -> None:
    with pytest.raises(InvalidInput, match=r"at most one of .* may be given, got bpp and ssim"):
        compress_images([], codec(), bpp=1, ssim=0.9)


@pytest.mark.parametrize("shape", [(40, 50, 3), (33, 20), (20, 33, 4), (9, 12, 2)])
def test_16_bits_are_coded_as_8_bits_and_more(shape: tuple[int, ...]) -> None:
    """A 16-bit image in steps of 257 is the 8-bit image; one with finer steps comes closer than 8 bits can."""
    image = crop(shape)
    fine = ImageCodec(step=1).fit([image])
    assert fine.encode(image) == fine.encode(image.astype(np.uint16) * 257)
    smooth = np.linspace(20_000, 23_000, image.size).reshape(shape).astype(np.uint16)
    for profile in (b"", b"profile"):
        data = compress_images([smooth], fine, profiles=[profile])
        (decoded,) = decompress_images(data, fine)
        assert decoded.dtype == np.uint16
        assert np.abs(decoded.astype(int) - smooth).mean() < 257 / 4 if len(shape) == 2 else 257
        assert header_of(data).entries[0].profile == profile
        known = stream_info(data)
        assert (known.depths, known.profiles) == ((16,), (len(profile),))
        decoder = ImageStreamDecoder(fine)
        decoder.feed(data)
        assert same(decoder.images(), [decoded])
    (gray,) = decompress_images(data[: known.header_bytes], fine)
    assert gray.dtype == np.uint16
    assert set(np.unique(gray)) == ({128 * 257, 65535} if shape[-1] in (2, 4) else {128 * 257})


def test_few_bits_in_16_raise_a_warning_that_names_the_image() -> None:
    for largest, few in ((0, False), (1023, True), (4095, True), (4096, False)):
        image = np.full((9, 9), largest, dtype=np.uint16)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            compress_images([image], codec(), names=["scan"])
        assert [str(one.message).split(":")[0] for one in caught] == few * [
            f"image 'scan' has 16 bits per channel, of which values up to {largest} use {largest.bit_length()}"
        ]


def test_profiles_are_kept_and_stored_once() -> None:
    images, long = [crop((9, 9, 3), k) for k in range(4)], np.random.default_rng(0).bytes(3000)
    data = compress_images(images, codec(), profiles=[long, b"", long, b"other"])
    assert [entry.profile for entry in header_of(data).entries] == [long, b"", long, b"other"]
    assert len(data) < len(compress_images(images, codec())) + 3300
    assert same(decompress_images(data, codec()), decompress_images(compress_images(images, codec()), codec()))
    cut = compress_images(images, codec(), profiles=[long, b"", long, b"other"], budget=3600)
    assert len(cut) <= 3600
    assert header_of(cut).entries[0].profile == long
    with pytest.raises(InvalidInput, match="raise it or leave out the profiles"):
        compress_images(images, codec(), profiles=[long] * 4, budget=500)
    for wrong in ("text", bytes(1 << 22)):
        with pytest.raises(InvalidInput, match="an ICC profile must be at most 2097152 bytes, got "):
            compress_images(images[:1], codec(), profiles=[wrong])  # type: ignore[list-item]
    with pytest.raises(InvalidInput, match="profiles must be one for each of 4 images, got 1"):
        compress_images(images, codec(), profiles=[b""])


@pytest.mark.parametrize(
    ("depth", "profile", "profiles", "why"),
    [
        (12, None, [], "neither 8 nor 16"),
        (True, None, [], "neither 8 nor 16"),
        ("8", None, [], "neither 8 nor 16"),
        (8, 0, [], "not in the list"),
        (8, -1, ["eA=="], "not in the list"),
        (8, True, ["eA==", "eA=="], "not in the list"),
        (8, "0", ["eA=="], "not in the list"),
        (8, 0, ["eA="], "padding"),
        (8, 0, ["e A=="], "Non-base64|Only base64"),
        (8, 0, ["é"], "ASCII"),
        (8, 0, [""], "is not 1 to"),
        (8, 0, [[]], "is not 1 to"),
        (8, None, {}, "a list of profiles"),
    ],
)
def test_malformed_depths_and_profiles_are_refused(depth: Any, profile: Any, profiles: Any, why: str) -> None:
    data = compress_images([crop((9, 9, 3))], codec(), profiles=[b"x"])
    [[name, shape, sizes, *_]], quality, _ = table_of(data)
    assert forged(data, table_of(data)) == data
    with pytest.raises(DamagedFile, match=rf"the stream's table is invalid \(.*({why})"):
        stream_info(forged(data, [[[name, shape, sizes, depth, profile]], quality, profiles]))


def test_tuned_for_ssim_luma_gains_and_chroma_loses() -> None:
    image = crop((144, 160, 3))
    colored, luma = ((decompress_images(compress_images([image], bpp=1, tune=tune))[0]) for tune in ("psnr", "ssim"))
    assert metrics.ssim(image, luma) > metrics.ssim(image, colored)
    assert metrics.psnr(image, luma) < metrics.psnr(image, colored)
    assert codec().encode(crop((40, 50)), tune="ssim") == codec().encode(crop((40, 50)))  # gray has no chroma
    with pytest.raises(InvalidInput, match="tune must be 'psnr' or 'ssim', got 'eyes'"):
        compress_images([image], tune="eyes")  # type: ignore[arg-type]


def test_an_embedded_codec_decodes() -> None:
    data = compress_images(crops(), codec(), embed=True)
    assert stream_info(data).embedded
    assert same(decompress_images(data), decompress_images(stream(), codec()))
    start = stream_info(data).header_bytes
    assert [one.shape for one in decompress_images(data[:start])] == list(SHAPES)
    with pytest.raises(InvalidInput, match="must have its whole header"):
        decompress_images(data[: start - 1])


def test_the_codec_must_be_the_one_that_made_the_stream() -> None:
    other = ImageCodec(step=8).fit(crops())
    with pytest.raises(InvalidInput, match=f"{codec().fingerprint}.*{other.fingerprint}"):
        decompress_images(stream(), other)
    with pytest.raises(
        InvalidInput, match=f"{codec().fingerprint}, which is neither embedded nor shipped with Nestcode"
    ):
        decompress_images(stream())
    for wrong in (some_coder(), "photos"):
        with pytest.raises(InvalidInput, match="must be an ImageCodec"):
            decompress_images(stream(), wrong)  # type: ignore[arg-type]
        with pytest.raises(InvalidInput, match="must be an ImageCodec"):
            compress_images(crops(), wrong)  # type: ignore[arg-type]
    with pytest.raises(NotFitted):
        compress_images(crops(), ImageCodec())


def test_a_stream_may_have_no_images() -> None:
    data = compress_images([], codec(), budget=1000)
    assert decompress_images(data, codec()) == []
    known = stream_info(data)
    assert (known.count, known.names, known.bpp, known.total_bytes) == (0, (), 0, len(data))
    assert "0 images\n" in str(known)


def test_info_as_text_and_as_json() -> None:
    data = compress_images(crops(), codec(), names=[f"{k}.png" for k in range(len(SHAPES))])
    known = stream_info(data[:-5])
    assert "7 images: 0.png 50 x 40 x 3, 1.png 20 x 33, 2.png 1 x 1, …" in str(known)  # width first
    assert "1 image: 0 50 x 40 x 3\n" in str(stream_info(compress_images(crops()[:1], codec())))
    assert f"coder ImageCodec {codec().fingerprint[:16]}" in str(known)
    fields = json.loads(known.to_json())
    assert fields["names"][3] == "3.png"
    assert fields["shapes"][3] == [3, 70, 4]
    assert fields["bpp"] == pytest.approx(known.bpp)


BAD_NAMES = ["", ".", "..", "../x", "a/../b", "/abs", "a\\b", "a\nb", "\x1b[2J", "\x7f", "\x9b", "\ud800", "\0"]
BAD_NAMES += ["gpj.\u202e.exe", "a\u2066b\u2069"]  # read backwards


@pytest.mark.parametrize("name", [*BAD_NAMES, "x" * (MAX_NAME + 1), None, 7, b"x"], ids=lambda name: repr(name)[:12])
def test_names_that_leave_their_folder_are_refused(name: Any) -> None:
    with pytest.raises(InvalidInput, match="must be a relative path of at most 1000 printable characters"):
        compress_images(crops()[:1], codec(), names=[name])


@given(st.text(max_size=30) | st.lists(st.sampled_from(["..", ".", "", "a", "é b", "\\", "x" * 600])).map("/".join))
def test_an_accepted_name_stays_inside_its_folder_and_as_it_is(name: str) -> None:
    try:
        kept = check_name(name)
    except InvalidInput:
        return
    assert check_name(kept) == kept
    assert not kept.startswith("/")
    assert ".." not in kept.split("/")
    assert kept.isprintable() or any(ord(letter) > 127 for letter in kept)
    kept.encode()


def test_names_must_differ_and_be_one_for_each_image() -> None:
    images = crops()[:2]
    data = compress_images(images, codec(), names=["a/b é.png", "x" * MAX_NAME])
    assert stream_info(data).names == ("a/b é.png", "x" * MAX_NAME)
    for twice in (["a", "a"], ["a/b", "a//b"], ["a", "./a"]):
        with pytest.raises(InvalidInput, match=r"must differ, got 'a.*' twice"):
            compress_images(images, codec(), names=twice)
    for names in ([], ["a"], ["a", "b", "c"]):
        with pytest.raises(InvalidInput, match=f"one for each of 2 images, got {len(names)}"):
            compress_images(images, codec(), names=names)


def test_each_kind_of_stream_is_refused_by_the_functions_of_the_other() -> None:
    items = compress(some_items(3), some_coder())
    for look in (decompress_images, image_stream_info):
        with pytest.raises(InvalidInput, match=r"stream of items and not of images: give it to decompress"):
            look(items)
    with pytest.raises(InvalidInput, match="this is a stream of images: give it to decompress_images"):
        decompress(stream())
    with pytest.raises(DamagedFile, match="not a stream of images"):
        image_stream_info(b"\x89PNG\r\n\x1a\n")


def test_stream_info_takes_both_kinds_of_streams() -> None:
    items = compress(some_items(3), some_coder())
    assert isinstance(any_stream_info(items, some_coder()), ItemStreamInfo)
    assert any_stream_info(stream(), codec()) == image_stream_info(stream())
    for data, wrong in ((items, codec()), (stream(), some_coder())):
        with pytest.raises(InvalidInput, match=r"code[rc] must be"):
            any_stream_info(data, wrong)
    for cut in range(1, 30):
        for data in (items, stream()):
            with pytest.raises(InvalidInput, match="must have its whole header"):
                any_stream_info(data[:cut])


def test_wrong_arguments_are_named() -> None:
    for bpp in (-1, float("nan"), float("inf"), True, "9"):
        with pytest.raises(InvalidInput, match="bpp must be"):
            decompress_images(stream(), codec(), bpp=bpp)  # type: ignore[arg-type]
        with pytest.raises(InvalidInput, match="bpp must be"):
            compress_images(crops()[:1], codec(), bpp=bpp)  # type: ignore[arg-type]
    for budget in (-1, 1.5, True, "9"):
        with pytest.raises(InvalidInput, match="budget must be"):
            compress_images(crops()[:1], codec(), budget=budget)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="on_damage must be"):
        decompress_images(stream(), codec(), on_damage="ignore")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="must come as bytes, got str"):
        decompress_images("a.nest", codec())  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="an image must be"):
        compress_images([np.zeros((4, 4))], codec())  # type: ignore[list-item]


@pytest.mark.parametrize("threads", [2, None])
def test_threads_do_not_change_streams_or_images(threads: int | None, tmp_path: Path) -> None:
    data, images = stream(), crops()
    assert compress_images(images, codec(), threads=threads) == data
    assert same(decompress_images(data, codec(), threads=threads), decompress_images(data, codec()))
    with ImageStreamWriter(tmp_path / "all.nest", codec()) as writer:
        writer.add_all(((str(k), image, b"") for k, image in enumerate(images)), threads)
    assert (tmp_path / "all.nest").read_bytes() == data
    with ImageStreamReader(tmp_path / "all.nest", codec()) as reader:
        assert same(list(reader.decode_all(threads)), list(reader))


def test_images_at_once_keep_the_memory_limit_and_their_order() -> None:
    """Items are drawn when there is room for them, and one is at work even if it takes more than all of it."""
    sizes, working, peak, lock = [3, 1, 4, 1, 5, 9, 2, 6], 0, 0, Lock()

    def work(size: int) -> int:
        nonlocal working, peak
        with lock:
            working += size
            peak = max(peak, working if working > size else 0)  # of several at once
        sleep(0.002)
        with lock:
            working -= size
        return -size

    assert list(map_in_order(work, iter(sizes), 3, lambda size: size, limit=6)) == [-size for size in sizes]
    assert peak <= 6


@pytest.mark.parametrize(
    ("dtype", "remedy"), [("bool", r"255 \* x.astype\(np.uint8\)"), (">u2", r"x.astype\(np.uint16\)")]
)
def test_pixels_of_other_types_have_their_own_remedy(dtype: str, remedy: str) -> None:
    with pytest.raises(InvalidInput, match=f"convert it, as with {remedy}"):
        codec().encode(np.zeros((9, 9), dtype))


def test_an_error_in_a_thread_is_raised_and_ends_the_work() -> None:
    drawn = []

    def images() -> Iterator[tuple[str, Any, bytes]]:
        for k in range(100):
            drawn.append(k)
            yield str(k), crop((16, 16)) if k != 3 else np.zeros((4, 4)), b""

    with pytest.raises(InvalidInput, match="an image must be a uint8 or uint16 array"):
        list(ImageStreamEncoder(codec(), Target(), tune="psnr", embed=False).add_all(images(), 2))
    assert len(drawn) <= 6
    with pytest.raises(InvalidInput, match="threads must be an integer of at least 1"):
        compress_images([crop((16, 16))], codec(), threads=0)
