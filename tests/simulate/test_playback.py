"""Playback over bandwidth traces: laws of the truncated stream and of the bitrate ladder, and plain twins of both."""

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nestcode.arrays import Doubles
from nestcode.errors import InvalidInput
from nestcode.simulate import (
    Playback,
    bitrate_ladder,
    bits_per_item,
    evaluate,
    play_ladder,
    play_truncated,
    play_whole,
)
from nestcode.simulate.playback import HISTORY

WIDTH = 32
BITS = st.lists(st.integers(0, 80), min_size=1, max_size=30)
BUFFERS = st.integers(1, 6)
RUNGS = [1, 4, 9, 20, 32]


@st.composite
def curves(draw: st.DrawFn) -> Doubles:
    """Draw errors by length that never rise."""
    falls = draw(st.lists(st.floats(0, 1), min_size=WIDTH, max_size=WIDTH))
    return np.append(0.0, np.cumsum(falls))[::-1].copy()


def in_order(lengths: list[int]) -> Callable[[list[float]], int]:
    """Return a client with predetermined lengths."""
    order = iter(lengths)
    return lambda _: next(order)


@given(BITS, BUFFERS)
def test_the_truncated_stream_never_stalls_and_uses_only_bits_that_arrived(bits: list[int], buffer: int) -> None:
    playback = play_truncated(bits, WIDTH, buffer)
    assert not playback.stalls.any()
    assert len(playback.lengths) == len(bits)
    assert (playback.lengths >= 0).all()
    assert (playback.lengths <= WIDTH).all()
    assert (np.cumsum(playback.lengths) <= np.cumsum(bits)).all()


@given(BITS, curves())
def test_without_a_buffer_the_truncated_stream_has_exactly_what_arrived(bits: list[int], errors: Doubles) -> None:
    playback = play_truncated(bits, WIDTH)
    assert playback.lengths.tolist() == [min(arrived, WIDTH) for arrived in bits]
    assert evaluate(playback, errors).error == pytest.approx(sum(errors[min(n, WIDTH)] for n in bits) / len(bits))


@given(BITS, BUFFERS)
def test_sharing_bits_equals_assigning_them_one_by_one(bits: list[int], buffer: int) -> None:
    held = [0] * len(bits)
    for period, arrived in enumerate(bits):
        recent = bits[max(0, period - HISTORY) : period]
        expected = min(WIDTH, sum(recent) // len(recent)) if recent else WIDTH
        window = range(period, min(period + buffer, len(bits)))
        for _ in range(arrived):
            candidates = [i for i in window if held[i] < expected] or sorted(window, key=lambda i: held[i])
            if held[candidates[0]] < WIDTH:
                held[candidates[0]] += 1
    assert play_truncated(bits, WIDTH, buffer).lengths.tolist() == held


@given(BITS, BUFFERS, curves())
def test_doubling_the_bandwidth_never_hurts_the_truncated_stream(bits: list[int], buffer: int, errors: Doubles) -> None:
    once, twice = (evaluate(play_truncated(np.array(bits) * n, WIDTH), errors) for n in (1, 2))
    assert twice.error <= once.error + 1e-12
    once, twice = (evaluate(play_truncated(np.array(bits) * n, WIDTH, buffer), errors) for n in (1, 2))
    assert twice.length >= once.length


@given(BITS.filter(any), st.lists(st.sampled_from(RUNGS), min_size=30, max_size=30), curves())
def test_no_choice_of_rungs_without_stalls_beats_the_truncated_stream(
    bits: list[int], rungs: list[int], errors: Doubles
) -> None:
    oracle = [max((rung for rung in RUNGS if rung <= arrived), default=RUNGS[0]) for arrived in bits]
    cut = evaluate(play_truncated(bits, WIDTH), errors)
    for chosen in (oracle, rungs):
        fixed = evaluate(play_whole(bits, in_order(chosen), buffer=1), errors)
        assert fixed.stalls > 0 or fixed.error >= cut.error - 1e-12
        if chosen is oracle and min(bits) >= RUNGS[0]:
            assert fixed.stalls == 0


@given(st.integers(1, 200), st.integers(2, 20), BUFFERS, st.sampled_from([0.5, 0.8, 1.0]))
def test_at_constant_bandwidth_the_ladder_stays_on_its_rung(
    carried: int, items: int, buffer: int, safety: float
) -> None:
    playback = play_ladder([carried] * items, RUNGS, buffer, safety)
    rung = max((rung for rung in RUNGS if rung <= carried * safety), default=RUNGS[0])
    assert playback.lengths.tolist() == [RUNGS[0]] + [rung] * (items - 1)
    assert not playback.stalls.any()
    errors = np.linspace(1, 0, WIDTH + 1)
    assert evaluate(playback, errors).error == pytest.approx((errors[RUNGS[0]] + errors[rung] * (items - 1)) / items)


@given(
    st.lists(st.integers(0, 12), min_size=1, max_size=10).filter(any),
    BUFFERS,
    st.lists(st.integers(1, 40), min_size=10, max_size=10),
)
def test_arrival_times_equal_those_in_exact_fractions(bits: list[int], buffer: int, lengths: list[int]) -> None:
    playback = play_whole(bits, in_order(lengths), buffer)
    shown: list[Fraction] = []
    done = Fraction(0)
    for item in range(len(bits)):
        done = max(done, shown[item - buffer]) if item >= buffer else done
        left = Fraction(lengths[item])
        while left > 0:  # to the end of the period, or of the item
            rate, room = bits[int(done) % len(bits)], 1 - done % 1
            used = min(room, left / rate) if rate else room
            done, left = done + used, left - used * rate
        due = shown[-1] + 1 if shown else Fraction(1)
        shown.append(max(due, done))
        assert playback.stalls[item] == pytest.approx(float(shown[-1] - due), abs=1e-6)
    assert playback.capacity >= playback.lengths.sum() - 1e-6


@given(BITS.filter(any), BUFFERS, curves())
def test_stalls_are_weighted_by_time(bits: list[int], buffer: int, errors: Doubles) -> None:
    quality = evaluate(play_ladder(bits, RUNGS, buffer), errors)
    assert 0 <= quality.stall_ratio < 1
    assert 0 <= quality.unused < 1
    assert quality.error_with_stalls == pytest.approx(
        (1 - quality.stall_ratio) * quality.error + quality.stall_ratio * errors[0]
    )
    assert (quality.stalls > 0) == (quality.stall_ratio > 0)


def test_an_outage_stalls_the_ladder_but_not_the_truncated_stream() -> None:
    bits = [40] * 10 + [1] * 20 + [40] * 10
    errors = 2.0 ** -np.arange(41)
    fixed, cut = evaluate(play_ladder(bits, [1, 10, 30]), errors), evaluate(play_truncated(bits, 40, 4), errors)
    assert fixed.stalls > 0
    assert cut.stalls == 0
    assert cut.error < fixed.error_with_stalls


def test_seven_rungs_are_a_geometric_progression() -> None:
    rungs = np.array(bitrate_ladder(3200))
    assert len(rungs) == 7
    assert (rungs[0], rungs[-1]) == (100, 3200)
    assert np.allclose(rungs[1:] / rungs[:-1], 32 ** (1 / 6), rtol=0.01)
    assert bitrate_ladder(1) == [1]
    assert bitrate_ladder(9, count=1) == [9]


def test_large_bandwidths_do_not_overflow() -> None:
    bits = bits_per_item(np.full(1000, 1e30))
    assert play_truncated(bits, WIDTH, 4).lengths.tolist() == [WIDTH] * 1000
    assert not play_ladder(bits, RUNGS).stalls.any()
    assert 0 <= evaluate(play_ladder(bits, RUNGS), np.ones(WIDTH + 1)).unused <= 1


def test_values_out_of_range_are_refused() -> None:
    with pytest.raises(InvalidInput, match="bits must be"):
        play_truncated([1.5], 8)
    with pytest.raises(InvalidInput, match="bits must be"):
        play_truncated([], 8)
    with pytest.raises(InvalidInput, match="bits must be"):
        play_truncated([-1], 8)
    with pytest.raises(InvalidInput, match="buffer"):
        play_truncated([1], 8, buffer=0)
    with pytest.raises(InvalidInput, match="carry bits"):
        play_ladder([0, 0], [1])
    with pytest.raises(InvalidInput, match="rungs"):
        play_ladder([1], [4, 2])
    with pytest.raises(InvalidInput, match="safety"):
        play_ladder([1], [4], safety=0)
    with pytest.raises(InvalidInput, match="errors"):
        evaluate(Playback(np.array([9]), np.zeros(1), 9.0), np.ones(9))
