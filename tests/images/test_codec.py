"""The picture coder: every prefix decodes, nothing has seams, and what was saved codes the same."""

import itertools
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import nestcode as nc
from nestcode.data import sample_images
from nestcode.errors import DamagedFile, InvalidInput, NotFitted
from nestcode.images import ImageCodec
from nestcode.images.codec import FIRST, LATER, PASSES, ImageDecoder, _numbers
from nestcode.images.color import USUAL, colors_of, find_turn
from nestcode.images.lapped_dct import REACH, TILE, from_tiles, means_of, to_tiles

Picture = NDArray[np.uint8]


@cache
def flower() -> Picture:
    return np.ascontiguousarray(sample_images()["flower"][100:260, 200:392])


@cache
def shipped() -> ImageCodec:
    return ImageCodec.load()


def error(picture: Picture, other: Picture) -> float:
    return float(np.mean((picture.astype(np.float64) - other) ** 2))


def some_picture(seed: int, shape: tuple[int, ...]) -> Picture:
    """Smooth here, busy there."""
    rng = np.random.default_rng(seed)
    waves = 128 + 100 * np.sin(np.indices(shape).sum(axis=0) / rng.uniform(2, 40))
    noise = rng.normal(0, rng.choice([0, 5, 60]), shape)
    return np.asarray(np.clip(waves + noise, 0, 255), dtype=np.uint8)


shapes = st.one_of(
    st.tuples(st.integers(1, 70), st.integers(1, 70)),
    st.tuples(st.integers(1, 70), st.integers(1, 70), st.integers(1, 4)),
)


@given(st.integers(0, 2**32), st.integers(1, 3), st.integers(1, 3), st.integers(1, 4))
@settings(max_examples=20, deadline=None)
def test_tiles_give_back_what_they_were_made_of(seed: int, rows: int, columns: int, channels: int) -> None:
    picture = np.random.default_rng(seed).uniform(-128, 128, (channels, rows * TILE, columns * TILE))
    assert np.abs(from_tiles(to_tiles(picture.astype(np.float32))) - picture).max() < 1e-3


def test_means_of_spans_come_back() -> None:
    picture = np.random.default_rng(0).uniform(-128, 128, (2, 5 * TILE, 7 * TILE)).astype(np.float32)
    tiles = to_tiles(picture)
    assert np.abs(means_of(tiles).mean(axis=(1, 2)) / TILE - picture.mean(axis=(1, 2))).max() < 5  # but for the laps
    constant = to_tiles(np.full((1, 4 * TILE, 4 * TILE), 10, dtype=np.float32))
    assert constant[0, 0, 0, 0, 0] == pytest.approx(10 * 4 * TILE, rel=1e-3)
    assert np.abs(constant).sum() == pytest.approx(10 * 4 * TILE, rel=0.05)


def test_a_tile_reaches_over_its_borders() -> None:
    cosines = np.zeros((1, 3, 3, TILE, TILE), dtype=np.float32)
    cosines[0, 1, 1, 0, 1] = 1
    spread = np.abs(from_tiles(cosines)[0])
    assert spread[TILE - REACH : TILE].max() > 0.01 * spread.max()
    assert spread[: TILE - REACH].max() < 1e-6
    steps = np.abs(np.diff(spread[TILE + TILE // 2]))
    assert steps[TILE - 1] < 2 * np.sort(steps)[-4]  # no jump at the border that is not elsewhere too


@given(st.binary(min_size=3, max_size=3))
def test_colors_are_directions_at_right_angles(turn: bytes) -> None:
    colors = colors_of(turn).astype(np.float64)
    assert np.abs(colors @ colors.T - np.eye(3)).max() < 1e-5


@given(st.integers(0, 2**32))
@settings(max_examples=20, deadline=None)
def test_colors_turn_towards_those_of_the_picture(seed: int) -> None:
    rng = np.random.default_rng(seed)
    mix = rng.normal(size=(3, 3)) * [4, 2, 1]
    pixels = np.clip(128 + 8 * rng.normal(size=(130, 130, 3)) @ mix.T, 0, 255).astype(np.uint8)
    turn = find_turn(pixels)
    steps = np.diff(pixels.astype(np.float64), axis=1).reshape(-1, 3)

    def first_share(colors: NDArray[np.float64]) -> float:
        squares: NDArray[np.float64] = np.sum((steps @ colors.T) ** 2, axis=0)
        return float(squares[0] / squares.sum())

    assert first_share(colors_of(turn).astype(np.float64)) >= first_share(USUAL) - 0.01
    assert find_turn(pixels[:20]) == b""
    assert find_turn(pixels[..., 0]) == b""


@given(st.integers(0, 2**32), shapes, st.floats(0, 1))
@settings(max_examples=25, deadline=None)
def test_every_prefix_decodes(seed: int, shape: tuple[int, ...], share: float) -> None:
    picture, coder = some_picture(seed, shape), shipped()
    data = coder.encode(picture)
    cut = coder.decode(data[: int(share * len(data))], shape)
    whole = coder.decode(data, shape)
    assert cut.shape == whole.shape == shape
    assert cut.dtype == whole.dtype == np.uint8
    assert np.abs(whole.astype(int) - picture).max() < 16
    assert error(picture, whole) < 5
    assert error(picture, whole) <= error(picture, cut) + 1


def test_the_error_falls_with_every_part() -> None:
    picture, coder = flower(), shipped()
    encoded = coder._encode(picture)
    cuts = [0, *range(50, len(encoded.data), 200), len(encoded.data)]
    errors = [error(picture, coder.decode(encoded.data[:cut], picture.shape)) for cut in cuts]
    assert all(later <= before * 1.002 for before, later in itertools.pairwise(errors))
    assert errors[-1] < 3
    estimates = [(size, left) for size, left in zip(encoded.sizes, encoded.errors, strict=True) if size]
    assert len(encoded.sizes) == PASSES
    assert encoded.sizes[-1] == len(encoded.data)
    for size, left in estimates[::5]:
        assert left == pytest.approx(error(picture, coder.decode(encoded.data[:size], picture.shape)), rel=0.4)


@given(st.lists(st.integers(1, 400), max_size=30))
@settings(max_examples=20, deadline=None)
def test_arriving_in_pieces_makes_no_difference(sizes: list[int]) -> None:
    picture, coder = flower()[:64, :64], shipped()
    data = coder.encode(picture)
    decoder, at = ImageDecoder(coder, picture.shape), 0
    for size in sizes:
        decoder.feed(data[at : at + size])
        at += size
    assert (decoder.picture() == coder.decode(data[:at], picture.shape)).all()


def test_known_numbers_lie_in_their_range() -> None:
    for magnitude in range(1, 200):
        for plane in range(magnitude.bit_length()):
            low = magnitude >> plane
            known = np.array([[(2 * low + 1) << plane, -((2 * low + 1) << plane), 0]], dtype=np.int32)
            place = FIRST if low == 1 else LATER
            assert _numbers(known)[0].tolist() == pytest.approx(
                [(low + place) * 2**plane, -(low + place) * 2**plane, 0]
            )


def test_a_limit_is_a_prefix() -> None:
    picture, coder = flower(), shipped()
    data = coder.encode(picture)
    for limit in (0, 1, 3, 100, 1000, 10**9):
        assert coder.encode(picture, limit=limit) == data[:limit]


def test_seams_are_not_seen() -> None:
    picture, coder = flower(), shipped()
    decoded = coder.decode(coder.encode(picture, limit=240), picture.shape).astype(np.float64)  # 64 bits a tile
    missing = decoded - picture
    steps = np.abs(np.diff(missing, axis=1)).mean(axis=(0, 2))
    borders = np.arange(TILE - 1, len(steps), TILE)
    assert steps[borders].mean() < 1.3 * np.delete(steps, borders).mean()


def test_flat_parts_take_few_bits() -> None:
    busy = np.random.default_rng(0).integers(0, 256, (128, 256)).astype(np.uint8)
    mostly_flat = busy.copy()
    mostly_flat[:, :192] = 128
    whole, part = (len(shipped().encode(picture)) for picture in (busy, mostly_flat))
    assert part < 0.4 * whole
    assert len(shipped().encode(np.full((512, 512, 3), 200, dtype=np.uint8))) < 2000


def test_opacity_costs_nothing_where_there_is_none_to_tell() -> None:
    picture = flower()
    opaque = np.concatenate([picture, np.full((*picture.shape[:2], 1), 255, dtype=np.uint8)], axis=2)
    plain, more = (len(shipped().encode(some)) for some in (picture, opaque))
    assert more < plain + 40


def test_what_was_learnt_helps_small_pictures() -> None:
    learnt = ImageCodec().fit([flower()])
    picture = np.ascontiguousarray(sample_images()["flower"][40:104, 300:364])
    blank = ImageCodec().fit([np.zeros((1, 1), dtype=np.uint8)])
    left = {
        name: error(picture, coder.decode(coder.encode(picture, limit=100), picture.shape))
        for name, coder in {"learnt": learnt, "blank": blank, "shipped": shipped()}.items()
    }
    assert left["learnt"] < left["blank"]
    assert left["shipped"] < left["blank"]


def test_saved_and_loaded_it_codes_the_same(tmp_path: Path) -> None:
    coder = ImageCodec(step=2).fit([flower(), flower()[..., 0]])
    coder.save(tmp_path / "own.coder")
    again = ImageCodec.load(tmp_path / "own.coder")
    assert again.fingerprint == coder.fingerprint
    assert again.step == 2
    picture = sample_images()["china"][:100, :100]
    assert again.encode(picture) == coder.encode(picture)


def test_encoding_does_not_change_the_coder() -> None:
    before = shipped().fingerprint
    first = shipped().encode(flower())
    assert shipped().encode(flower()) == first
    assert shipped().fingerprint == before


def test_a_smaller_step_ends_nearer() -> None:
    errors = []
    for step in (16, 4, 1):
        coder = ImageCodec(step=step).fit([flower()[:32, :32]])
        errors.append(error(flower(), coder.decode(coder.encode(flower()), flower().shape)))
    assert errors[0] > 4 * errors[1] > 16 * errors[2]


@pytest.mark.parametrize("bad", [np.zeros((4, 4)), np.zeros((0, 4), np.uint8), np.zeros((4, 4, 5), np.uint8), [[1, 2]]])
def test_what_is_no_picture_is_refused(bad: object) -> None:
    with pytest.raises(InvalidInput, match="a picture must be"):
        shipped().encode(bad)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="a picture must be"):
        ImageCodec().fit([bad])  # type: ignore[list-item]


def test_bad_settings_and_files_are_named(tmp_path: Path) -> None:
    for step in (0, -1, 1001, float("nan"), "4", True):
        with pytest.raises(InvalidInput, match="step must be between 1 and 1000"):
            ImageCodec(step=step)  # type: ignore[arg-type]
    with pytest.raises(NotFitted, match="call fit"):
        ImageCodec().encode(flower())
    with pytest.raises(NotFitted, match="call fit"):
        ImageCodec().save(tmp_path / "no.coder")
    with pytest.raises(InvalidInput, match="at least one picture"):
        ImageCodec().fit([])
    shipped().save(tmp_path / "pictures.coder")
    with pytest.raises(InvalidInput, match=r"give a coder of items \(ImageCodec\.load reads it"):
        nc.load_coder(tmp_path / "pictures.coder")
    nc.LinearCoder(width=4).fit(np.random.default_rng(0).normal(size=(50, 4))).save(tmp_path / "linear.coder")
    with pytest.raises(InvalidInput, match="give a coder of pictures"):
        ImageCodec.load(tmp_path / "linear.coder")
    with pytest.raises(FileNotFoundError):
        ImageCodec.load(tmp_path / "nothing")
    with pytest.raises(DamagedFile, match="at most 15 planes"):
        shipped().decode(b"\x7f1234", (8, 8))
    with pytest.raises(InvalidInput, match="a picture must be"):
        shipped().decode(b"", (8, 8, 9))


@given(st.binary(max_size=600), shapes)
@settings(max_examples=30, deadline=None)
def test_noise_decodes_to_some_picture_or_is_refused(noise: bytes, shape: tuple[int, ...]) -> None:
    try:
        decoded = shipped().decode(noise, shape)
    except DamagedFile:
        return
    assert decoded.shape == shape
