"""Bandwidth traces: logs are read or refused by line, and generated traces follow from their seed."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nestcode.errors import InvalidInput
from nestcode.simulate import bits_per_item, read_trace
from nestcode.simulate.traces import GENERATORS


@pytest.mark.parametrize("kind", GENERATORS)
def test_a_seed_determines_a_generated_trace(kind: str) -> None:
    one, same, another = (GENERATORS[kind](2000, 50.0, np.random.default_rng(seed)) for seed in (3, 3, 4))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, another)
    assert one.mean() == pytest.approx(50, rel=0.2)
    assert one.min() >= 0


def test_logs_of_one_and_of_two_columns(tmp_path: Path) -> None:
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
def test_resampling_conserves_bits(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int]], period: int
) -> None:
    log = tmp_path_factory.mktemp("log") / "link.txt"
    times = np.cumsum([step * 4 for step, _ in steps])
    log.write_text("0 0\n" + "".join(f"{time} {bits}\n" for time, (_, bits) in zip(times, steps, strict=True)))
    carried = read_trace(log, period)
    assert len(carried) == times[-1] // period
    assert carried.sum() == pytest.approx(sum(bits for _, bits in steps))


@pytest.mark.parametrize(
    ("text", "message"),
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
def test_invalid_logs_are_refused_with_the_line(tmp_path: Path, text: str, message: str) -> None:
    log = tmp_path / "link.csv"
    log.write_text(text)
    with pytest.raises(InvalidInput, match=message):
        read_trace(log)


def test_values_out_of_range_are_refused() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(InvalidInput, match="mean"):
        GENERATORS["markov"](5, 0.0, rng)
    with pytest.raises(InvalidInput, match="periods"):
        GENERATORS["uniform"](10**9, 1.0, rng)
    with pytest.raises(InvalidInput, match="period"):
        read_trace("nowhere", period=0)
