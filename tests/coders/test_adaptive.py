"""What is particular to the adaptive coder: its kernels and its search; shared laws are in `test_contract.py`."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import nestcode as nc
from nestcode import AdaptiveCoder, Codes, LinearCoder, _core
from nestcode.coders.adaptive.codebooks import LOWEST, AdaptiveCodebooks, Residuals
from tests import twins
from tests.coders.cases import fitted, fresh_rows, mse, training_rows
from tests.coders.reference import AdaptiveTwin

Rows = NDArray[np.float32]
Doubles = NDArray[np.float64]
seeds = st.integers(0, 2**32)


@pytest.fixture(scope="module")
def data() -> Rows:
    return training_rows("adaptive")


@pytest.fixture(scope="module")
def unseen() -> Rows:
    return fresh_rows("adaptive")


@pytest.fixture
def coder() -> AdaptiveCoder:
    coder: AdaptiveCoder = fitted("adaptive")
    return coder


def random_codebooks(rng: np.random.Generator, directions: int, stages: int) -> AdaptiveCodebooks:
    """Codebooks whose log-scales collide, rise and fall, now and then to the ends of their range."""
    dims = int(rng.integers(1, directions + 1))
    return AdaptiveCodebooks(
        np.ones(1, dtype=np.float32),
        rng.choice([LOWEST, -40, 0, 0, 30], directions).astype(np.int16),
        rng.standard_normal((stages, dims, 256)).astype(np.float32),
        rng.choice([-4096, -300, -70, -30, 0, 30], (stages, 256, dims)).astype(np.int16),
        rng.integers(0, 9, (stages, 256)),
    )


# Kernels beside their twins


@given(seeds, st.integers(0, 70), st.integers(1, 40), st.sampled_from([1, 2]))
def test_the_widest_are_those_of_a_stable_sort(seed: int, count: int, directions: int, threads: int) -> None:
    rng = np.random.default_rng(seed)
    log_scales = rng.choice([-32768, -5, -4, 0, 3, 32767], (count, directions)).astype(np.int16)
    out = np.empty((count, rng.integers(1, directions + 1)), dtype=np.int32)
    _core.find_largest_scales(log_scales, out, threads=threads)
    expected = np.argsort(-log_scales.astype(int), axis=1, kind="stable")[:, : out.shape[1]]
    assert np.array_equal(out, expected)


@settings(max_examples=50)
@given(seeds, st.integers(1, 40), st.integers(1, 5), st.sampled_from([1, 2]))
def test_decoding_equals_its_twin_at_every_length(seed: int, directions: int, stages: int, threads: int) -> None:
    rng = np.random.default_rng(seed)
    codebooks, length = random_codebooks(rng, directions, stages), int(rng.integers(0, 8 * stages + 1))
    codes = Codes(rng.integers(0, 256, (20, stages), dtype=np.uint8), 8 * stages).prefix(length)
    decoded = codebooks.decode(codes.packed, length, threads)
    expected = np.array([AdaptiveTwin(codebooks, length).decode(code) for code in codes.packed])
    assert np.array_equal(decoded != 0, expected.astype(np.float32) != 0)  # the same coordinates
    np.testing.assert_allclose(decoded, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max(initial=0))


@settings(max_examples=25)
@given(seeds, st.integers(1, 12), st.integers(1, 3), st.integers(1, 4))
def test_encoding_equals_the_beam_search_of_its_twin(seed: int, directions: int, stages: int, beams: int) -> None:
    """Up to ties and rounding: the error of each code is the one that its twin ends with."""
    rng = np.random.default_rng(seed)
    codebooks = random_codebooks(rng, directions, stages)
    rows = rng.standard_normal((4, directions)).astype(np.float32)
    packed = codebooks.encode(rows, beams)
    found = ((rows - codebooks.decode(packed, 8 * stages).astype(np.float64)) ** 2).sum(axis=1)
    expected = [AdaptiveTwin(codebooks, 8 * stages).encode(row, beams)[0] for row in rows]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("beams", [1, 3])
def test_trained_codebooks_encode_like_their_twin(coder: AdaptiveCoder, unseen: Rows, beams: int) -> None:
    codebooks, rows = coder._fitted().codebooks, coder._project(unseen[:4])
    found = ((rows - codebooks.decode(codebooks.encode(rows, beams), 72)) ** 2).sum(axis=1)
    np.testing.assert_allclose(found, [AdaptiveTwin(codebooks, 72).encode(row, beams)[0] for row in rows], rtol=1e-3)


def test_training_and_decoding_follow_the_same_scales(coder: AdaptiveCoder, unseen: Rows) -> None:
    codebooks, rows = coder._fitted().codebooks, coder._project(unseen)
    packed, state = codebooks.encode(rows, 1), Residuals(rows / coder._fitted().codebooks.unit, codebooks.log_scales)
    for stage in range(9):
        chosen = packed[:, stage]
        state.subtract(
            state.select(codebooks.entries.shape[1]),
            codebooks.entries[stage].T[chosen],
            codebooks.changes[stage][chosen],
        )
    assert np.allclose(rows - codebooks.decode(packed, 72), state.residuals * codebooks.unit, atol=1e-5)


def test_threads_change_nothing(coder: AdaptiveCoder, data: Rows) -> None:
    codebooks, rows = coder._fitted().codebooks, coder._project(data[:300])
    packed = codebooks.encode(rows, 2, threads=1)
    assert np.array_equal(codebooks.encode(rows, 2, threads=3), packed)
    assert np.array_equal(codebooks.decode(packed, 70, threads=3), codebooks.decode(packed, 70, threads=1))


def test_the_core_refuses_arrays_that_do_not_fit() -> None:
    log_scales, codebooks, changes = (
        np.zeros(3, np.int16),
        np.zeros((2, 2, 256), np.float32),
        np.zeros((2, 256, 2), np.int16),
    )
    rows, codes = np.zeros((4, 3), np.float32), np.zeros((4, 2), np.uint8)
    with pytest.raises(ValueError, match="1 to all of the coordinates"):
        _core.find_largest_scales(log_scales[None], np.zeros((1, 4), np.int32))
    with pytest.raises(ValueError, match="256 entries for 1 to all"):
        _core.decode_adaptive(codes, log_scales[:1], codebooks, changes, rows)
    with pytest.raises(ValueError, match="a change of log-scale for each value"):
        _core.decode_adaptive(codes, log_scales, codebooks, changes[:1], rows)
    with pytest.raises(ValueError, match="a byte for each codebook"):
        _core.decode_adaptive(codes[:, :1], log_scales, codebooks, changes, rows)
    with pytest.raises(ValueError, match="out a byte for each codebook"):
        _core.encode_adaptive(rows, log_scales, codebooks, changes, 1, codes[:3])
    for beams in (0, 1025):
        with pytest.raises(ValueError, match="1 to 1024 beams"):
            _core.encode_adaptive(rows, log_scales, codebooks, changes, beams, codes)


# Prefixes


def test_measured_errors_are_those_of_decoding(coder: AdaptiveCoder, data: Rows) -> None:
    codebooks, rows = coder._fitted().codebooks, coder._project(data[:200])
    packed = codebooks.encode(rows, 2)
    codes = Codes(packed, 72).prefix(68)
    plain = [((rows - codebooks.decode(codes.prefix(k).packed, k)) ** 2).sum(axis=1).mean() for k in range(69)]
    assert np.allclose(codebooks.measure_errors(rows, 2, 68), plain, rtol=1e-4)


def test_codebooks_beat_single_directions(coder: AdaptiveCoder, data: Rows, unseen: Rows) -> None:
    linear = LinearCoder(width=64).fit(data)
    own, other = coder.encode(unseen), linear.encode(unseen)
    for length in (8, 16, 32, 64):
        assert mse(coder.decode(own.prefix(length)), unseen) < mse(linear.decode(other.prefix(length)), unseen)


def test_more_beams_make_better_codes(coder: AdaptiveCoder, unseen: Rows) -> None:
    codebooks, rows = coder._fitted().codebooks, coder._project(unseen)
    errors = [mse(codebooks.decode(codebooks.encode(rows, beams), 72), rows) for beams in (1, 2, 8, 16)]
    assert all(more < fewer for fewer, more in pairwise(errors))


# Search


@pytest.mark.parametrize("own", ["l2", "cosine"])
@pytest.mark.parametrize("width", [68, 20, 9])
def test_exhaustive_search_ranks_by_distances_to_decoded_items(own: Any, width: int, data: Rows, unseen: Rows) -> None:
    index = nc.Index(fitted("adaptive", own), width=width)
    index.add(data)
    for metric in ("cosine",) if own == "cosine" else ("l2", "cosine", "inner"):
        truth = twins.distances(unseen[:9], index.reconstruct(index.ids), metric)
        hits = index.search(unseen[:9], k=12, candidates=len(data), metric=metric)  # type: ignore[arg-type]
        twins.check_all(hits, truth, index.ids, 1e-4)


def test_few_candidates_find_most_neighbors(coder: AdaptiveCoder, data: Rows, unseen: Rows) -> None:
    index = nc.Index(coder)
    index.add(data)
    every = index.search(unseen[:100], k=10, candidates=len(data)).ids
    few = index.search(unseen[:100], k=10, candidates=len(data) // 4, rerank=100)
    assert (few.compared < len(data) / 2).all()
    assert np.mean([len(np.intersect1d(a, b)) for a, b in zip(few.ids, every, strict=True)]) > 8


# Data


@pytest.mark.parametrize(
    "rows",
    [np.full((50, 3), 1 / 3), np.full((600, 2), 1e7), np.arange(6.0).reshape(3, 2), np.eye(2), np.zeros((1, 4)),
     np.arange(200.0)[:, None]],
    ids=["all alike", "many alike", "three", "two", "one", "one feature"],
)  # fmt: skip
@pytest.mark.parametrize("width", [16, 200])
def test_little_data_is_reproduced(rows: Doubles, width: int) -> None:
    coder = AdaptiveCoder(width=width).fit(rows)
    assert np.allclose(coder.decode(coder.encode(rows)), rows, atol=1e-3)
    assert coder.expected_error(width) < 1e-6
    assert len(coder.encode(rows[:0])) == 0
    assert coder.decode(coder.encode(rows[:0])).shape == (0, rows.shape[1])


@pytest.mark.parametrize("scale", [1e-20, 1e15])
def test_the_scale_of_the_data_does_not_matter(scale: float, data: Rows) -> None:
    """A power of two does not even change the codes; other factors round otherwise."""
    rows = data[:300].astype(np.float64)
    plain, same = AdaptiveCoder(24).fit(rows), AdaptiveCoder(24).fit(rows * 2.0 ** round(np.log2(scale)))
    assert same.encode(rows * 2.0 ** round(np.log2(scale))) == plain.encode(rows)
    coder = AdaptiveCoder(24).fit(rows * scale)
    for length in (8, 24):
        error = mse(coder.decode(coder.encode(rows * scale).prefix(length)) / scale, rows)
        assert error < 1.1 * mse(plain.decode(plain.encode(rows).prefix(length)), rows)
        assert np.isclose(coder.expected_error(length) / scale**2, plain.expected_error(length), rtol=0.2)
