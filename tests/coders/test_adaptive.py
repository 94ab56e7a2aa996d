"""The adaptive coder: its kernels beside plain twins, its prefixes, its search, its files, and what it refuses."""

import re
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import nestcode as nc
from nestcode import AdaptiveCoder, Codes, LinearCoder, _core
from nestcode.coders.adaptive.codebooks import HIGHEST, LOWEST, STEPS, AdaptiveCodebooks, Residuals
from nestcode.data import digits
from nestcode.errors import DamagedFile, InvalidInput, NotFitted
from nestcode.search import asymmetric_distances
from nestcode.storage import Record, write_record
from tests import twins

Rows = NDArray[np.float32]
Doubles = NDArray[np.float64]
seeds = st.integers(0, 2**32)


def shuffled() -> Rows:
    return np.random.default_rng(0).permutation(digits()[0].astype(np.float32))


@pytest.fixture(scope="module")
def data() -> Rows:
    return shuffled()[:1000]


@pytest.fixture(scope="module")
def unseen() -> Rows:
    return shuffled()[1000:]


@cache
def fitted(metric: Any) -> AdaptiveCoder:
    return AdaptiveCoder(width=68, metric=metric).fit(shuffled()[:1000])  # eight and a half bytes


@pytest.fixture
def coder() -> AdaptiveCoder:
    return fitted("l2")


def mse(a: NDArray[Any], b: NDArray[Any]) -> float:
    return float(np.mean((a.astype(np.float64) - b) ** 2))


def random_books(rng: np.random.Generator, directions: int, stages: int) -> AdaptiveCodebooks:
    """AdaptiveCodebooks whose levels collide, rise and fall, now and then to the ends of their range."""
    dims = int(rng.integers(1, directions + 1))
    return AdaptiveCodebooks(
        np.ones(1, dtype=np.float32),
        rng.choice([LOWEST, -40, 0, 0, 30], directions).astype(np.int16),
        rng.standard_normal((stages, dims, 256)).astype(np.float32),
        rng.choice([-4096, -300, -70, -30, 0, 30], (stages, 256, dims)).astype(np.int16),
        rng.integers(0, 9, (stages, 256)),
    )


class Twin:
    """One item's way: whole levels, of which the highest come first, and of equal ones the first."""

    def __init__(self, books: AdaptiveCodebooks, length: int) -> None:
        self.books, self.length, self.dims = books, length, books.entries.shape[1]

    def widest(self, levels: NDArray[np.int64]) -> NDArray[np.intp]:
        return np.argsort(-levels, kind="stable")[: self.dims]

    def step(self, stage: int, levels: NDArray[np.int64], entry: int) -> tuple[Doubles, NDArray[np.int64]]:
        """What a byte adds, and the levels after it."""
        at, book = self.widest(levels), self.books.entries[stage]
        bits = min(8, self.length - 8 * stage)
        if bits < 8:
            book = self.books.truncated(stage, bits)
        added, after = np.zeros(len(levels)), levels.copy()
        added[at] = book[:, entry] * np.exp2(levels[at] / STEPS)
        after[at] = np.clip(levels[at] + self.books.changes[stage, entry], LOWEST, HIGHEST)
        return added, after

    def decode(self, code: NDArray[np.uint8]) -> Doubles:
        levels, out = self.books.levels.astype(np.int64), np.zeros(len(self.books.levels))
        for stage in range(-(-self.length // 8)):
            added, levels = self.step(stage, levels, int(code[stage]))
            out += added
        return out * float(self.books.unit[0])

    def encode(self, row: Rows, beams: int) -> float:
        """The error that a beam search ends with."""
        beam = [(row.astype(np.float64) / self.books.unit[0], self.books.levels.astype(np.int64))]
        for stage in range(len(self.books.entries)):
            longer: list[tuple[Any, ...]] = []
            for rest, levels in beam:
                at = self.widest(levels)
                steps = self.books.entries[stage] * np.exp2(levels[at] / STEPS)[:, None]
                errors = (rest**2).sum() - (rest[at] ** 2).sum() + ((rest[at, None] - steps) ** 2).sum(axis=0)
                longer += [(error, len(longer) + entry, rest, levels, entry) for entry, error in enumerate(errors)]
            beam = []
            for _, _, rest, levels, entry in sorted(longer, key=lambda one: one[:2])[:beams]:
                added, after = self.step(stage, levels, entry)
                beam.append((rest - added, after))
        return float((beam[0][0] ** 2).sum() * self.books.unit[0] ** 2)


# Kernels beside their twins


@given(seeds, st.integers(0, 70), st.integers(1, 40), st.sampled_from([1, 2]))
def test_the_widest_are_those_of_a_stable_sort(seed: int, count: int, directions: int, threads: int) -> None:
    rng = np.random.default_rng(seed)
    levels = rng.choice([-32768, -5, -4, 0, 3, 32767], (count, directions)).astype(np.int16)
    out = np.empty((count, rng.integers(1, directions + 1)), dtype=np.int32)
    _core.find_highest_levels(levels, out, threads=threads)
    expected = np.argsort(-levels.astype(int), axis=1, kind="stable")[:, : out.shape[1]]
    assert np.array_equal(out, expected)


@settings(max_examples=50)
@given(seeds, st.integers(1, 40), st.integers(1, 5), st.sampled_from([1, 2]))
def test_decoding_is_what_its_twin_does_at_every_length(seed: int, directions: int, stages: int, threads: int) -> None:
    rng = np.random.default_rng(seed)
    books, length = random_books(rng, directions, stages), int(rng.integers(0, 8 * stages + 1))
    codes = Codes(rng.integers(0, 256, (20, stages), dtype=np.uint8), 8 * stages).prefix(length)
    decoded = books.decode(codes.packed, length, threads)
    expected = np.array([Twin(books, length).decode(code) for code in codes.packed])
    assert np.array_equal(decoded != 0, expected.astype(np.float32) != 0)  # the same coordinates
    np.testing.assert_allclose(decoded, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max(initial=0))


@settings(max_examples=25)
@given(seeds, st.integers(1, 12), st.integers(1, 3), st.integers(1, 4))
def test_encoding_is_the_beam_search_of_its_twin(seed: int, directions: int, stages: int, beams: int) -> None:
    """Up to ties and rounding: the error of each code is the one that its twin ends with."""
    rng = np.random.default_rng(seed)
    books = random_books(rng, directions, stages)
    rows = rng.standard_normal((4, directions)).astype(np.float32)
    packed = books.encode(rows, beams)
    found = ((rows - books.decode(packed, 8 * stages).astype(np.float64)) ** 2).sum(axis=1)
    expected = [Twin(books, 8 * stages).encode(row, beams) for row in rows]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("beams", [1, 3])
def test_what_was_learnt_is_encoded_as_its_twin_does(coder: AdaptiveCoder, unseen: Rows, beams: int) -> None:
    books, rows = coder._fitted().codebooks, coder._project(unseen[:4])
    found = ((rows - books.decode(books.encode(rows, beams), 72)) ** 2).sum(axis=1)
    np.testing.assert_allclose(found, [Twin(books, 72).encode(row, beams) for row in rows], rtol=1e-3)


def test_learning_follows_the_same_levels_as_decoding(coder: AdaptiveCoder, unseen: Rows) -> None:
    books, rows = coder._fitted().codebooks, coder._project(unseen)
    packed, state = books.encode(rows, 1), Residuals(rows / coder._fitted().codebooks.unit, books.levels)
    for stage in range(9):
        chosen = packed[:, stage]
        state.subtract(
            state.select(books.entries.shape[1]), books.entries[stage].T[chosen], books.changes[stage][chosen]
        )
    assert np.allclose(rows - books.decode(packed, 72), state.residuals * books.unit, atol=1e-5)


def test_threads_change_nothing(coder: AdaptiveCoder, data: Rows) -> None:
    books, rows = coder._fitted().codebooks, coder._project(data[:300])
    packed = books.encode(rows, 2, threads=1)
    assert np.array_equal(books.encode(rows, 2, threads=3), packed)
    assert np.array_equal(books.decode(packed, 70, threads=3), books.decode(packed, 70, threads=1))


def test_the_core_refuses_arrays_that_do_not_fit() -> None:
    levels, books, changes = np.zeros(3, np.int16), np.zeros((2, 2, 256), np.float32), np.zeros((2, 256, 2), np.int16)
    rows, codes = np.zeros((4, 3), np.float32), np.zeros((4, 2), np.uint8)
    with pytest.raises(ValueError, match="1 to all of the coordinates"):
        _core.find_highest_levels(levels[None], np.zeros((1, 4), np.int32))
    with pytest.raises(ValueError, match="256 entries for 1 to all"):
        _core.decode_adaptive(codes, levels[:1], books, changes, rows)
    with pytest.raises(ValueError, match="a change of level for each value"):
        _core.decode_adaptive(codes, levels, books, changes[:1], rows)
    with pytest.raises(ValueError, match="a byte for each codebook"):
        _core.decode_adaptive(codes[:, :1], levels, books, changes, rows)
    with pytest.raises(ValueError, match="out a byte for each codebook"):
        _core.encode_adaptive(rows, levels, books, changes, 1, codes[:3])
    for beams in (0, 1025):
        with pytest.raises(ValueError, match="1 to 1024 beams"):
            _core.encode_adaptive(rows, levels, books, changes, beams, codes)


# Prefixes


def test_errors_of_unseen_rows_fall_with_every_byte(coder: AdaptiveCoder, data: Rows, unseen: Rows) -> None:
    codes = coder.encode(unseen)
    errors = [mse(coder.decode(codes.prefix(length)), unseen) for length in range(69)]
    assert all(longer < shorter for shorter, longer in pairwise([*errors[::8], errors[68]]))
    assert np.allclose(errors, [coder.expected_error(length) for length in range(69)], rtol=0.2)
    assert np.allclose(coder.decode(codes.prefix(0)), data.mean(axis=0), atol=1e-6)


def test_expected_errors_are_those_of_decoding(coder: AdaptiveCoder, data: Rows) -> None:
    books, rows = coder._fitted().codebooks, coder._project(data[:200])
    packed = books.encode(rows, 2)
    codes = Codes(packed, 72).prefix(68)
    plain = [((rows - books.decode(codes.prefix(k).packed, k)) ** 2).sum(axis=1).mean() for k in range(69)]
    assert np.allclose(books.measure_errors(rows, 2, 68), plain, rtol=1e-4)


def test_it_beats_single_directions(coder: AdaptiveCoder, data: Rows, unseen: Rows) -> None:
    linear = LinearCoder(width=64).fit(data)
    own, other = coder.encode(unseen), linear.encode(unseen)
    for length in (8, 16, 32, 64):
        assert mse(coder.decode(own.prefix(length)), unseen) < mse(linear.decode(other.prefix(length)), unseen)


def test_more_beams_make_better_codes(coder: AdaptiveCoder, unseen: Rows) -> None:
    books, rows = coder._fitted().codebooks, coder._project(unseen)
    errors = [mse(books.decode(books.encode(rows, beams), 72), rows) for beams in (1, 2, 8, 16)]
    assert all(more < fewer for fewer, more in pairwise(errors))


@pytest.mark.parametrize("width", [1, 7, 8, 9, 18])
def test_any_width_works(width: int, data: Rows) -> None:
    coder = AdaptiveCoder(width=width, beams=1).fit(data)
    codes = coder.encode(data)
    assert codes == Codes(codes.packed, width)  # the padding is clean
    assert not (codes.packed[:, -1] & (0xFF >> ((width - 1) % 8 + 1))).any()
    assert mse(coder.decode(codes), data) < mse(coder.decode(codes.prefix(width - 1)), data)
    assert np.array_equal(coder.inverse_transform(coder.transform(data)), coder.decode(codes))


# Distances and search


@pytest.mark.parametrize("metric", ["l2", "cosine"])
def test_distances_are_those_to_what_decodes(metric: Any, data: Rows) -> None:
    coder = AdaptiveCoder(width=24, metric=metric).fit(data)
    codes = coder.encode(data[:90])
    assert (coder.encode(4 * data[:90]) == codes) is (metric == "cosine")
    for length in (0, 5, 8, 21, 24):
        slow = twins.distances(data[:7], coder.decode(codes.prefix(length)), metric)
        assert np.allclose(asymmetric_distances(coder, data[:7], codes.prefix(length)), slow, atol=1e-4)


@pytest.mark.parametrize("own", ["l2", "cosine"])
@pytest.mark.parametrize("width", [68, 20, 9])
def test_a_search_among_all_ranks_by_what_decodes(own: Any, width: int, data: Rows, unseen: Rows) -> None:
    index = nc.Index(fitted(own), width=width)
    index.add(data)
    for metric in ("cosine",) if own == "cosine" else ("l2", "cosine", "inner"):
        truth = twins.distances(unseen[:9], index.reconstruct(index.ids), metric)
        hits = index.search(unseen[:9], k=12, candidates=len(data), metric=metric)  # type: ignore[arg-type]
        twins.check_all(hits, truth, index.ids, 1e-4)


def test_few_candidates_are_good_ones(coder: AdaptiveCoder, data: Rows, unseen: Rows) -> None:
    index = nc.Index(coder)
    index.add(data)
    every = index.search(unseen[:100], k=10, candidates=len(data)).ids
    few = index.search(unseen[:100], k=10, candidates=len(data) // 4, rerank=100)
    assert (few.compared < len(data) / 2).all()
    assert np.mean([len(np.intersect1d(a, b)) for a, b in zip(few.ids, every, strict=True)]) > 8


# Life


def test_the_same_seed_gives_the_same_coder(data: Rows) -> None:
    whole = AdaptiveCoder(width=16).fit(data)
    assert whole.fingerprint == AdaptiveCoder(width=16).fit(data).fingerprint
    assert whole.fingerprint != AdaptiveCoder(width=16, seed=1).fit(data).fingerprint
    pieces = AdaptiveCoder(width=16).fit([data[:500], data[500:]])  # whose sums are rounded otherwise
    assert mse(pieces.decode(pieces.encode(data)), data) < 1.1 * mse(whole.decode(whole.encode(data)), data)


def test_saving_and_loading_is_the_identity(coder: AdaptiveCoder, data: Rows, tmp_path: Path) -> None:
    coder.save(tmp_path / "a.coder")
    loaded = nc.load_coder(tmp_path / "a.coder")
    assert isinstance(loaded, AdaptiveCoder)
    assert loaded.fingerprint == coder.fingerprint
    assert loaded.get_params() == coder.get_params()
    codes = coder.encode(data)
    assert loaded.encode(data) == codes
    assert np.array_equal(loaded.decode(codes.prefix(29)), coder.decode(codes.prefix(29)))
    index = nc.Index(loaded)
    index.add(data)
    index.save(tmp_path / "index")
    assert 5 in nc.Index.open(tmp_path / "index").neighborhood(data[5], size=1).ids


def test_settings_changed_after_fitting_wait_for_the_next_fit(data: Rows, tmp_path: Path) -> None:
    coder = AdaptiveCoder(width=12).fit(data)
    codes = coder.encode(data)
    coder.set_params(width=16, metric="cosine")
    assert coder.encode(data) == codes
    coder.save(tmp_path / "kept.coder")
    assert nc.load_coder(tmp_path / "kept.coder").encode(data) == codes


def damaged(array: NDArray[Any], value: Any) -> NDArray[Any]:
    copy = array.copy()
    copy.reshape(-1)[-1] = value
    return copy


DAMAGE: dict[str, tuple[str, Callable[[NDArray[Any]], NDArray[Any]]]] = {
    "fewer books": ("entries", lambda array: array[:3]),
    "flat books": ("entries", lambda array: array.reshape(-1)),
    "other books": ("changes", lambda array: array[:, :, :5]),
    "nan": ("entries", lambda array: damaged(array, np.nan)),
    "infinite": ("directions", lambda array: damaged(array, np.inf)),
    "other mean": ("mean", lambda array: array.astype(np.float32)),
    "no mean": ("mean", lambda array: array[0]),
    "errors": ("errors", lambda array: array[:-1]),
    "counts": ("counts", lambda array: damaged(array, -1)),
    "levels": ("levels", lambda array: array[1:]),
    "high level": ("levels", lambda array: damaged(array, 32767)),
    "large change": ("changes", lambda array: damaged(array, 5000)),
    "largest change": ("changes", lambda array: damaged(array, -32768)),
    "no unit": ("unit", lambda array: 0 * array),
    "nan unit": ("unit", lambda array: damaged(array, np.nan)),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_records_that_do_not_fit_together_are_refused(damage: str, coder: AdaptiveCoder, tmp_path: Path) -> None:
    name, change = DAMAGE[damage]
    record = coder.to_record()
    arrays = {**record.arrays, name: change(record.arrays[name])}
    write_record(tmp_path / "bad", Record(record.kind, 1, record.settings, arrays))
    with pytest.raises(DamagedFile, match="bad is not a AdaptiveCoder as it should be"):
        nc.load_coder(tmp_path / "bad")
    del arrays[name]
    write_record(tmp_path / "less", Record(record.kind, 1, record.settings, arrays))
    with pytest.raises(DamagedFile, match="less is not a AdaptiveCoder as it should be"):
        nc.load_coder(tmp_path / "less")


@pytest.mark.parametrize(
    "rows",
    [np.full((50, 3), 1 / 3), np.full((600, 2), 1e7), np.arange(6.0).reshape(3, 2), np.eye(2), np.zeros((1, 4)),
     np.arange(200.0)[:, None]],
    ids=["all alike", "many alike", "three", "two", "one", "one feature"],
)  # fmt: skip
@pytest.mark.parametrize("width", [16, 200])
def test_little_data_is_learnt_by_heart(rows: Doubles, width: int) -> None:
    coder = AdaptiveCoder(width=width).fit(rows)
    assert np.allclose(coder.decode(coder.encode(rows)), rows, atol=1e-3)
    assert coder.expected_error(width) < 1e-6
    assert len(coder.encode(rows[:0])) == 0
    assert coder.decode(coder.encode(rows[:0])).shape == (0, rows.shape[1])


@pytest.mark.parametrize("scale", [1e-20, 1e15])
def test_the_scale_of_data_does_not_matter(scale: float, data: Rows) -> None:
    """Of a power of two not even the codes change, others are rounded otherwise."""
    rows = data[:300].astype(np.float64)
    plain, same = AdaptiveCoder(24).fit(rows), AdaptiveCoder(24).fit(rows * 2.0 ** round(np.log2(scale)))
    assert same.encode(rows * 2.0 ** round(np.log2(scale))) == plain.encode(rows)
    coder = AdaptiveCoder(24).fit(rows * scale)
    for length in (8, 24):
        error = mse(coder.decode(coder.encode(rows * scale).prefix(length)) / scale, rows)
        assert error < 1.1 * mse(plain.decode(plain.encode(rows).prefix(length)), rows)
        assert np.isclose(coder.expected_error(length) / scale**2, plain.expected_error(length), rtol=0.2)


def test_data_may_be_of_any_type(data: Rows) -> None:
    whole = np.round(16 * data[:250])
    expected = AdaptiveCoder(16).fit(whole)
    for kind in (np.uint8, np.int64, np.float64):
        coder = AdaptiveCoder(16).fit(whole.astype(kind))
        error = mse(coder.decode(coder.encode(whole.astype(kind))), whole)
        assert error < 1.05 * mse(expected.decode(expected.encode(whole)), whole)


def test_rows_far_from_all_that_was_learnt_still_have_codes(coder: AdaptiveCoder, data: Rows) -> None:
    for scale in (1e6, 1e20, 1e30):
        codes = coder.encode(scale * data[:5])
        assert np.isfinite(coder.decode(codes)).all()


def test_it_is_an_estimator(coder: AdaptiveCoder) -> None:
    from sklearn.base import clone

    assert clone(coder).get_params() == coder.get_params()
    assert repr(coder) == "AdaptiveCoder(width=68, metric='l2', beams=8, seed=0)"


MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "width": (lambda: AdaptiveCoder(width=0), "width must be an integer of at least 1, got 0"),
    "beams": (lambda: AdaptiveCoder(8, beams=0), "beams must be an integer of at least 1, got 0"),
    "many beams": (lambda: AdaptiveCoder(8, beams=9999), "beams must be at most 1024, got 9999"),
    "metric": (lambda: AdaptiveCoder(8, "l1"), '"l2" or "cosine", got \'l1\''),  # type: ignore[arg-type]
    "seed": (lambda: AdaptiveCoder(8, seed=-1), "seed must be an integer of at least 0, got -1"),
    "no items": (lambda: AdaptiveCoder(8).fit(np.zeros((0, 3))), "at least 1 item"),
    "not a number": (lambda: AdaptiveCoder(8).fit([[np.nan, 1]]), "finite"),
    "encoding no number": (lambda: AdaptiveCoder(8).fit(np.eye(3)).encode([[np.nan, 1, 1]]), "finite"),
    "one vector": (lambda: AdaptiveCoder(8).fit([1.0, 2.0]), "2 dimensions"),
    "features": (lambda: AdaptiveCoder(8).fit(np.eye(3)).encode(np.eye(4)), "the 3 features"),
    "longer codes": (
        lambda: AdaptiveCoder(8).fit(np.eye(3)).decode(Codes.from_bits(np.zeros((1, 9), bool))),
        "at most the coder's width 8, got 9",
    ),
    "length": (lambda: AdaptiveCoder(8).fit(np.eye(3)).expected_error(9), "between 0 and the coder's width 8, got 9"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_named(mistake: str) -> None:
    call, message = MISTAKES[mistake]
    with pytest.raises(InvalidInput, match=re.escape(message)):
        call()


def test_a_coder_must_be_fitted() -> None:
    with pytest.raises(NotFitted, match="this AdaptiveCoder is not fitted"):
        AdaptiveCoder(width=8).encode(np.eye(3))
