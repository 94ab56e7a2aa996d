"""Streams of pictures: every cut decodes, all pictures feel it alike, and what was asked for is kept."""

import json
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nestcode import compress, decompress, info
from nestcode.errors import DamagedFile, InvalidInput, NotFitted
from nestcode.images import ImageCodec, compress_images, decompress_images, stream_info
from nestcode.images.codec import PASSES
from nestcode.images.format import MAX_NAME, check_name, lay_out
from tests.images.albums import SHAPES, Picture, album, coder, error, header_of, photograph, same, stream
from tests.streams.collections import some_coder, some_items

few_shapes = st.lists(st.sampled_from(SHAPES), max_size=3)


def plain_decode(pictures: list[Picture], got: int) -> list[Picture]:
    """The twin: deal out the bytes of the payload one by one, pass by pass and picture by picture."""
    encoded = [coder()._encode(picture) for picture in pictures]
    arrived = [0] * len(pictures)
    for k in range(PASSES):
        for number, one in enumerate(encoded):
            for _ in range(one.sizes[k] - (one.sizes[k - 1] if k else 0)):
                arrived[number] += got > 0
                got -= 1
    return [
        coder().decode(one.data[:count], picture.shape)
        for one, count, picture in zip(encoded, arrived, pictures, strict=True)
    ]


@settings(max_examples=20)
@given(few_shapes, st.integers(0, 100), st.floats(0, 1))
def test_every_cut_decodes_to_what_arrived(shapes: list[tuple[int, ...]], seed: int, share: float) -> None:
    pictures = [photograph(shape, seed + k) for k, shape in enumerate(shapes)]
    data = compress_images(pictures, coder())
    known = stream_info(data)
    assert len(data) == known.total_bytes
    assert known.shapes == tuple(shapes)
    cut = known.header_bytes + int(share * (len(data) - known.header_bytes))
    blocks, left = divmod(cut - known.header_bytes, 4100)
    got = min(4096 * blocks + min(left, 4096), header_of(data).payload)
    decoded = decompress_images(data[:cut], coder())
    assert [(one.shape, one.dtype.str) for one in decoded] == [(shape, "|u1") for shape in shapes]
    assert same(decoded, plain_decode(pictures, got))
    seen = stream_info(data[:cut])
    assert seen.verified + seen.unverified == got
    assert (seen.damaged, seen.trailing, seen.header_bytes) == (None, 0, known.header_bytes)


def test_every_single_cut_of_a_small_stream_decodes() -> None:
    data = stream(((1, 1, 4), (2, 9)))
    for cut in range(stream_info(data).header_bytes, len(data) + 1):
        assert [one.shape for one in decompress_images(data[:cut], coder())] == [(1, 1, 4), (2, 9)]
    assert all((one == 128).all() for one in decompress_images(stream(((2, 9),)), coder(), length=0))


def test_the_error_falls_with_what_arrived() -> None:
    data, pictures = stream(), album()
    start = stream_info(data).header_bytes
    cuts = [start, *range(start + 20, len(data), 150), len(data)]
    errors = [error(pictures, decompress_images(data[:cut], coder())) for cut in cuts]
    assert all(later <= earlier * 1.03 for earlier, later in pairwise(errors))
    assert errors[-1] < errors[0] / 500
    assert errors[-1] < 1e-4


def test_what_is_expected_is_what_there_is() -> None:
    pictures = [photograph((96, 128, 3), seed) for seed in range(2)]
    data = compress_images(pictures, coder())
    for share in (0.02, 0.1, 0.4, 1):
        cut = data[: 500 + int(share * (len(data) - 500))]
        left = error(pictures, decompress_images(cut, coder()))
        assert stream_info(cut).expected_error == pytest.approx(left, rel=0.4)


@settings(max_examples=20)
@given(st.lists(st.sampled_from(SHAPES), min_size=1, max_size=5), st.floats(0, 1))
def test_a_cut_is_felt_by_all_alike(shapes: list[tuple[int, ...]], share: float) -> None:
    """At most one pass lies between what arrived of any two."""
    header = header_of(compress_images([photograph(shape, k) for k, shape in enumerate(shapes)], coder()))
    arrived = int(share * header.payload)
    got = [sum(some.stop - some.start for some in header.pieces(k, arrived)) for k in range(len(shapes))]
    assert sum(got) == arrived
    cut = header.cut_to(arrived)
    assert [entry.sizes[-1] for entry in cut.entries] == got
    full = [
        int(np.sum((mine == theirs) & np.cumprod(mine == theirs).astype(bool)))
        for mine, theirs in zip(cut.steps, header.steps, strict=True)
    ]  # passes that arrived whole, from the first one on
    begun = [int(np.flatnonzero(mine)[-1]) if mine.any() else -1 for mine in cut.steps]
    assert max(begun) <= min(full)


@settings(max_examples=15)
@given(few_shapes, st.floats(0, 1.1))
def test_the_header_of_a_cut_is_that_of_a_stream(shapes: list[tuple[int, ...]], share: float) -> None:
    pictures = [photograph(shape, k) for k, shape in enumerate(shapes)]
    kept = [coder()._encode(picture).data for picture in pictures]
    whole = header_of(compress_images(pictures, coder()))
    cut = whole.cut_to(int(share * whole.payload))
    assert cut.payload == min(int(share * whole.payload), whole.payload)
    data = b"".join(lay_out(cut, b"", lambda number, some: kept[number][some]))
    again = header_of(data)
    assert (again.entries, again.quality, again.payload) == (cut.entries, cut.quality, cut.payload)
    assert len(data) == cut.total
    assert same(decompress_images(data, coder()), plain_decode(pictures, cut.payload))


@settings(max_examples=20)
@given(st.lists(st.sampled_from(SHAPES), min_size=1, max_size=3), st.integers(0, 9), st.floats(0, 1.05))
def test_a_budget_is_kept_and_used(shapes: list[tuple[int, ...]], seed: int, share: float) -> None:
    pictures = [photograph(shape, seed + k) for k, shape in enumerate(shapes)]
    whole = compress_images(pictures, coder())
    least = compress_images(pictures, coder(), length=0)
    budget = len(least) + int(share * (len(whole) - len(least)))
    data = compress_images(pictures, coder(), budget=budget)
    assert len(data) <= budget
    assert len(data) >= budget - 80 or data in (least, whole)  # the table takes some bytes more or less
    payload = header_of(data).payload
    assert same(decompress_images(data, coder()), plain_decode(pictures, payload))


def test_a_budget_just_below_all_is_kept() -> None:
    whole = header_of(stream())
    for budget in range(whole.total - 40, whole.total):
        assert budget - 12 <= whole.cut_within(budget).total <= budget


def test_a_budget_for_less_than_the_header_is_refused() -> None:
    least = len(compress_images(album(), coder(), length=0))
    assert len(compress_images(album(), coder(), budget=least)) == least
    with pytest.raises(InvalidInput, match=f"at least the {least} bytes of the header, got {least - 1}"):
        compress_images(album(), coder(), budget=least - 1)
    with pytest.raises(InvalidInput, match="leave out embed"):
        compress_images(album(), coder(), budget=1000, embed=True)


@pytest.mark.parametrize("length", [0, 1, 50, 333, 2000, 10**6])
def test_length_is_what_a_cut_gives(length: int) -> None:
    data = stream()
    header = header_of(data)
    payload = min(length * header.tiles // 8, header.payload)
    kept = compress_images(album(), coder(), length=length)
    assert header_of(kept).payload == payload
    expected = plain_decode(album(), payload)
    assert same(decompress_images(data, coder(), length=length), expected)
    assert same(decompress_images(kept, coder()), expected)
    assert stream_info(kept).width == pytest.approx(8 * payload / header.tiles)


@pytest.mark.parametrize("most", [0.03, 0.003, 0.0003])
def test_max_error_is_kept_by_every_picture_and_not_overdone(most: float) -> None:
    pictures = album()
    data = compress_images(pictures, coder(), max_error=most)
    for picture, decoded, entry in zip(
        pictures, decompress_images(data, coder()), header_of(data).entries, strict=True
    ):
        assert error([picture], [decoded]) <= most
        fewer = coder().encode(picture)[: max(entry.sizes[-1] - 2 - entry.sizes[-1] // 100, 0)]
        assert error([picture], [coder().decode(fewer, picture.shape)]) > 0.9 * most or entry.sizes[-1] < 3
    assert len(data) < len(stream())
    both = compress_images(pictures, coder(), max_error=most, budget=len(data) - 10)
    assert len(both) <= len(data) - 10


def test_max_error_must_be_in_reach() -> None:
    with pytest.raises(InvalidInput, match=r"max_error 1e-09 is less than .* smaller step than 4"):
        compress_images(album(), coder(), max_error=1e-9)
    for most in (0, -1, 2, float("nan"), "0.1"):
        with pytest.raises(InvalidInput, match="max_error must be between 0 and 1"):
            compress_images([], coder(), max_error=most)  # type: ignore[arg-type]


def test_an_embedded_coder_serves() -> None:
    data = compress_images(album(), coder(), embed=True)
    assert stream_info(data).embedded
    assert same(decompress_images(data), decompress_images(stream(), coder()))
    start = stream_info(data).header_bytes
    assert [one.shape for one in decompress_images(data[:start])] == list(SHAPES)
    with pytest.raises(InvalidInput, match="can be cut after its header"):
        decompress_images(data[: start - 1])


def test_the_coder_must_be_the_one() -> None:
    other = ImageCodec(step=8).fit(album())
    with pytest.raises(InvalidInput, match=f"{coder().fingerprint}.*{other.fingerprint}"):
        decompress_images(stream(), other)
    with pytest.raises(InvalidInput, match=f"{coder().fingerprint}, which neither comes with Nestcode nor is embedded"):
        decompress_images(stream())
    for wrong in (some_coder(), "photos"):
        with pytest.raises(InvalidInput, match="must be an ImageCodec"):
            decompress_images(stream(), wrong)  # type: ignore[arg-type]
        with pytest.raises(InvalidInput, match="must be an ImageCodec"):
            compress_images(album(), wrong)  # type: ignore[arg-type]
    with pytest.raises(NotFitted):
        compress_images(album(), ImageCodec())


def test_no_pictures_are_a_stream_too() -> None:
    data = compress_images([], coder(), budget=1000)
    assert decompress_images(data, coder()) == []
    known = stream_info(data)
    assert (known.count, known.names, known.length, known.total_bytes) == (0, (), 0, len(data))
    assert "0 pictures\n" in str(known)


def test_info_for_people_and_for_scripts() -> None:
    data = compress_images(album(), coder(), names=[f"{k}.png" for k in range(len(SHAPES))])
    known = stream_info(data[:-5])
    assert "7 pictures: 0.png 40 x 50 x 3, 1.png 33 x 20, 2.png 1 x 1, …" in str(known)
    assert f"coder ImageCodec {coder().fingerprint[:16]}" in str(known)
    told = json.loads(known.to_json())
    assert told["names"][3] == "3.png"
    assert told["shapes"][3] == [3, 70, 4]
    assert told["length"] == pytest.approx(known.length)


BAD_NAMES = ["", ".", "..", "../x", "a/../b", "/abs", "a\\b", "a\nb", "\x1b[2J", "\x7f", "\x9b", "\ud800", "\0"]


@pytest.mark.parametrize("name", [*BAD_NAMES, "x" * (MAX_NAME + 1), None, 7, b"x"], ids=lambda name: repr(name)[:12])
def test_names_that_lead_elsewhere_are_refused(name: Any) -> None:
    with pytest.raises(InvalidInput, match="must be a relative path of at most 1000 characters that can be printed"):
        compress_images(album()[:1], coder(), names=[name])


@given(st.text(max_size=30) | st.lists(st.sampled_from(["..", ".", "", "a", "é b", "\\", "x" * 600])).map("/".join))
def test_a_name_that_is_taken_stays_inside_and_as_it_is(name: str) -> None:
    try:
        kept = check_name(name)
    except InvalidInput:
        return
    assert check_name(kept) == kept
    assert not kept.startswith("/")
    assert ".." not in kept.split("/")
    assert kept.isprintable() or any(ord(letter) > 127 for letter in kept)
    kept.encode()


def test_names_differ_and_are_one_for_each() -> None:
    pictures = album()[:2]
    data = compress_images(pictures, coder(), names=["a/b é.png", "x" * MAX_NAME])
    assert stream_info(data).names == ("a/b é.png", "x" * MAX_NAME)
    for twice in (["a", "a"], ["a/b", "a//b"], ["a", "./a"]):
        with pytest.raises(InvalidInput, match=r"must differ, got 'a.*' twice"):
            compress_images(pictures, coder(), names=twice)
    for names in ([], ["a"], ["a", "b", "c"]):
        with pytest.raises(InvalidInput, match=f"one for each of 2 pictures, got {len(names)}"):
            compress_images(pictures, coder(), names=names)


def test_each_kind_of_stream_says_that_it_is_not_the_other() -> None:
    items = compress(some_items(3), some_coder())
    for look in (decompress_images, stream_info):
        with pytest.raises(InvalidInput, match=r"stream of items and not of pictures: give it to decompress"):
            look(items)
    for other in (decompress, info):
        with pytest.raises(InvalidInput, match="this is a stream of pictures: give it to decompress_images"):
            other(stream())
    with pytest.raises(DamagedFile, match="not a stream of pictures"):
        stream_info(b"\x89PNG\r\n\x1a\n")


def test_wrong_arguments_are_named() -> None:
    for length in (-1, 1.5, True, "9"):
        with pytest.raises(InvalidInput, match="length must be"):
            decompress_images(stream(), coder(), length=length)  # type: ignore[arg-type]
        with pytest.raises(InvalidInput, match="length must be"):
            compress_images(album()[:1], coder(), length=length)  # type: ignore[arg-type]
        with pytest.raises(InvalidInput, match="budget must be"):
            compress_images(album()[:1], coder(), budget=length)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="on_damage must be"):
        decompress_images(stream(), coder(), on_damage="ignore")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="must come as bytes, got str"):
        decompress_images("a.nest", coder())  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="a picture must be"):
        compress_images([np.zeros((4, 4))], coder())  # type: ignore[list-item]
