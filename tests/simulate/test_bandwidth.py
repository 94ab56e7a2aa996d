"""Playing traces: laws of the stream that is cut and of the ladder, and plain twins of both."""

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from nestcode.errors import InvalidInput
from nestcode.simulate.bandwidth import MEMORY, Played, cut_to_fit, judge, ladder, ladder_rungs, send_whole
from nestcode.simulate.traces import GENERATED, bits_per_item, read_trace

Floats = NDArray[np.float64]
WIDTH = 32
BITS = st.lists(st.integers(0, 80), min_size=1, max_size=30)
BUFFERS = st.integers(1, 6)
RUNGS = [1, 4, 9, 20, 32]


@st.composite
def curves(draw: st.DrawFn) -> Floats:
    """Errors by length, never rising."""
    falls = draw(st.lists(st.floats(0, 1), min_size=WIDTH, max_size=WIDTH))
    return np.append(0.0, np.cumsum(falls))[::-1].copy()


def in_order(lengths: list[int]) -> Callable[[list[float]], int]:
    """A client that knows beforehand what it wants."""
    order = iter(lengths)
    return lambda _: next(order)


@given(BITS, BUFFERS)
def test_the_cut_stream_never_stalls_and_spends_only_what_has_arrived(bits: list[int], buffer: int) -> None:
    played = cut_to_fit(bits, WIDTH, buffer)
    assert not played.waits.any()
    assert len(played.lengths) == len(bits)
    assert (played.lengths >= 0).all()
    assert (played.lengths <= WIDTH).all()
    assert (np.cumsum(played.lengths) <= np.cumsum(bits)).all()


@given(BITS, curves())
def test_without_a_buffer_the_cut_stream_has_exactly_what_arrived(bits: list[int], errors: Floats) -> None:
    played = cut_to_fit(bits, WIDTH)
    assert played.lengths.tolist() == [min(arrived, WIDTH) for arrived in bits]
    assert judge(played, errors).error == pytest.approx(sum(errors[min(n, WIDTH)] for n in bits) / len(bits))


@given(BITS, BUFFERS)
def test_sharing_bits_is_as_giving_them_one_at_a_time(bits: list[int], buffer: int) -> None:
    held = [0] * len(bits)
    for period, arrived in enumerate(bits):
        recent = bits[max(0, period - MEMORY) : period]
        expected = min(WIDTH, sum(recent) // len(recent)) if recent else WIDTH
        window = range(period, min(period + buffer, len(bits)))
        for _ in range(arrived):
            wanting = [i for i in window if held[i] < expected] or sorted(window, key=lambda i: held[i])
            if held[wanting[0]] < WIDTH:
                held[wanting[0]] += 1
    assert cut_to_fit(bits, WIDTH, buffer).lengths.tolist() == held


@given(BITS, BUFFERS, curves())
def test_doubling_the_bandwidth_never_hurts_the_cut_stream(bits: list[int], buffer: int, errors: Floats) -> None:
    once, twice = (judge(cut_to_fit(np.array(bits) * n, WIDTH), errors) for n in (1, 2))
    assert twice.error <= once.error + 1e-12
    once, twice = (judge(cut_to_fit(np.array(bits) * n, WIDTH, buffer), errors) for n in (1, 2))
    assert twice.length >= once.length


@given(BITS.filter(any), st.lists(st.sampled_from(RUNGS), min_size=30, max_size=30), curves())
def test_no_choice_of_rungs_without_stalls_beats_the_cut_stream(
    bits: list[int], rungs: list[int], errors: Floats
) -> None:
    lucky = [max((rung for rung in RUNGS if rung <= arrived), default=RUNGS[0]) for arrived in bits]
    cut = judge(cut_to_fit(bits, WIDTH), errors)
    for chosen in (lucky, rungs):
        fixed = judge(send_whole(bits, in_order(chosen), buffer=1), errors)
        assert fixed.stalls > 0 or fixed.error >= cut.error - 1e-12
        if chosen is lucky and min(bits) >= RUNGS[0]:
            assert fixed.stalls == 0


@given(st.integers(1, 200), st.integers(2, 20), BUFFERS, st.sampled_from([0.5, 0.8, 1.0]))
def test_at_constant_bandwidth_the_ladder_is_its_rung(carried: int, items: int, buffer: int, safety: float) -> None:
    played = ladder([carried] * items, RUNGS, buffer, safety)
    rung = max((rung for rung in RUNGS if rung <= carried * safety), default=RUNGS[0])
    assert played.lengths.tolist() == [RUNGS[0]] + [rung] * (items - 1)
    assert not played.waits.any()
    errors = np.linspace(1, 0, WIDTH + 1)
    assert judge(played, errors).error == pytest.approx((errors[RUNGS[0]] + errors[rung] * (items - 1)) / items)


@given(
    st.lists(st.integers(0, 12), min_size=1, max_size=10).filter(any),
    BUFFERS,
    st.lists(st.integers(1, 40), min_size=10, max_size=10),
)
def test_whole_items_arrive_when_a_slow_count_says(bits: list[int], buffer: int, lengths: list[int]) -> None:
    played = send_whole(bits, in_order(lengths), buffer)
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
        assert played.waits[item] == pytest.approx(float(shown[-1] - due), abs=1e-6)
    assert played.offered >= played.lengths.sum() - 1e-6


@given(BITS.filter(any), BUFFERS, curves())
def test_outcomes_are_shares_and_add_up(bits: list[int], buffer: int, errors: Floats) -> None:
    found = judge(ladder(bits, RUNGS, buffer), errors)
    assert 0 <= found.stalled < 1
    assert 0 <= found.unused < 1
    assert found.error_in_time == pytest.approx((1 - found.stalled) * found.error + found.stalled * errors[0])
    assert (found.stalls > 0) == (found.stalled > 0)


def test_a_link_that_fails_stalls_the_ladder_and_dims_the_cut_stream() -> None:
    bits = [40] * 10 + [1] * 20 + [40] * 10
    errors = 2.0 ** -np.arange(41)
    fixed, cut = judge(ladder(bits, [1, 10, 30]), errors), judge(cut_to_fit(bits, 40, 4), errors)
    assert fixed.stalls > 0
    assert cut.stalls == 0
    assert cut.error < fixed.error_in_time


def test_seven_rungs_rise_by_the_same_factor_to_the_width() -> None:
    rungs = np.array(ladder_rungs(3200))
    assert len(rungs) == 7
    assert (rungs[0], rungs[-1]) == (100, 3200)
    assert np.allclose(rungs[1:] / rungs[:-1], 32 ** (1 / 6), rtol=0.01)
    assert ladder_rungs(1) == [1]
    assert ladder_rungs(9, count=1) == [9]


@pytest.mark.parametrize("kind", GENERATED)
def test_a_seed_says_all_of_a_generated_trace(kind: str) -> None:
    one, same, another = (GENERATED[kind](2000, 50.0, np.random.default_rng(seed)) for seed in (3, 3, 4))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, another)
    assert one.mean() == pytest.approx(50, rel=0.2)
    assert one.min() >= 0


def test_logs_of_one_column_and_of_two(tmp_path: Path) -> None:
    log = tmp_path / "link.csv"
    log.write_text("kbit\n# a comment\n100\n\n250.5 # why\n0\n")
    assert read_trace(log, period=2).tolist() == [200, 501, 0]
    log.write_text("\ufefftime;bits\r\n10;999\r\n11;100\r\n13;400\r\n")
    assert read_trace(log).tolist() == [100, 200, 200]
    assert read_trace(log, period=1.5).tolist() == [200, 300]
    assert bits_per_item(read_trace(log, period=1.5), items=7).tolist() == [28, 42]


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 1000)), min_size=1, max_size=20), st.sampled_from([1, 2, 4])
)
def test_two_columns_lose_no_bits(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int]], period: int
) -> None:
    log = tmp_path_factory.mktemp("log") / "link.txt"
    times = np.cumsum([step * 4 for step, _ in steps])
    log.write_text("0 0\n" + "".join(f"{time} {bits}\n" for time, (_, bits) in zip(times, steps, strict=True)))
    carried = read_trace(log, period)
    assert len(carried) == times[-1] // period
    assert carried.sum() == pytest.approx(sum(bits for _, bits in steps))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has none"),
        ("bandwidth\n", "has none"),
        ("5\nfast\n", "line 2"),
        ("5\n-1\n", "line 2"),
        ("5\nnan\n", "line 2"),
        ("5\n\ninf\n", "line 3"),
        ("1,2,3\n", "line 1"),
        ("5\n1,2\n", "line 2"),
        ("1,5\n2,5\n2,5\n", "line 3"),
        ("1,5\n", "one period"),
        ("1,5\n1.5,5\n", "one period"),
        ("1,5\n1e14,5\n", "one period"),
        ("5\n\x00\x01\n", "line 2"),
    ],
)
def test_bad_logs_are_refused_by_line(tmp_path: Path, text: str, said: str) -> None:
    log = tmp_path / "link.csv"
    log.write_text(text)
    with pytest.raises(InvalidInput, match=said):
        read_trace(log)


def test_links_faster_than_any_code_do_not_overflow() -> None:
    bits = bits_per_item(np.full(1000, 1e30))
    assert cut_to_fit(bits, WIDTH, 4).lengths.tolist() == [WIDTH] * 1000
    assert not ladder(bits, RUNGS).waits.any()
    assert 0 <= judge(ladder(bits, RUNGS), np.ones(WIDTH + 1)).unused <= 1


def test_values_out_of_range_are_refused() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(InvalidInput, match="bits must be"):
        cut_to_fit([1.5], 8)
    with pytest.raises(InvalidInput, match="bits must be"):
        cut_to_fit([], 8)
    with pytest.raises(InvalidInput, match="bits must be"):
        cut_to_fit([-1], 8)
    with pytest.raises(InvalidInput, match="buffer"):
        cut_to_fit([1], 8, buffer=0)
    with pytest.raises(InvalidInput, match="carry bits"):
        ladder([0, 0], [1])
    with pytest.raises(InvalidInput, match="rungs"):
        ladder([1], [4, 2])
    with pytest.raises(InvalidInput, match="safety"):
        ladder([1], [4], safety=0)
    with pytest.raises(InvalidInput, match="errors"):
        judge(Played(np.array([9]), np.zeros(1), 9.0), np.ones(9))
    with pytest.raises(InvalidInput, match="mean"):
        GENERATED["markov"](5, 0.0, rng)
    with pytest.raises(InvalidInput, match="periods"):
        GENERATED["uniform"](10**9, 1.0, rng)
    with pytest.raises(InvalidInput, match="period"):
        read_trace("nowhere", period=0)
