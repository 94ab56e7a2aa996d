"""Codes that grow: where growth stops, and that old prefixes stay valid."""

from pathlib import Path

import numpy as np
import pytest

from nestcode.lengths import Geometric
from nestcode.reproduce.infinite.experiment import RARE, Grown, geometric_moments, moments, units_kept
from tests.reproduce.toy import run


def test_the_claims_hold_at_toy_scale(tmp_path: Path) -> None:
    result = run("infinite", tmp_path)
    holds = {finding["claim"]: finding["verdict"] == "holds" for finding in result["findings"]}
    assert holds["p_B of infinite support can have finite mean and variance"]
    assert holds["growth stops at a finite width by itself"]
    assert holds["growth leaves old prefixes unchanged, bit for bit"]
    grown, once = result["numbers"]["grown"], result["numbers"]["at once"]
    for decay, runs in grown.items():
        assert [len(errors) for errors in runs] == [len(errors) for errors in once[decay]]
        assert len(runs[0]) > 5  # it grew
        assert runs[0][-1] < 0.5
    assert {"infinite-width.png", "infinite-lengths.svg"} <= {path.name for path in tmp_path.iterdir()}

    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").iterdir()}
    (tmp_path / "infinite.json").unlink()
    assert run("infinite", tmp_path)["numbers"] == result["numbers"]  # all from the cache
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").iterdir()} == files


@pytest.mark.parametrize("decay", [0.5, 0.9, 0.99])
def test_moments_equal_sums_and_the_closed_form(decay: float) -> None:
    lengths = Geometric(decay)
    assert moments(lengths, 100_000) == pytest.approx(geometric_moments(decay))
    k, pmf = np.arange(1, 21), lengths.pmf(20)
    assert moments(lengths, 20) == pytest.approx((k @ pmf, k**2 @ pmf - (k @ pmf) ** 2))
    survival = lengths.survival(units_kept(decay) + 1)
    assert survival[-2] >= RARE > survival[-1]


def test_the_missed_gain_is_that_of_a_unit_of_one_more_stage() -> None:
    one = Grown(np.array([1, 0.5, 0.4]), extended=np.array([1, 0.5, 0.4, 0.39, 0.36]), unchanged=True)
    assert one.width == 2
    assert one.missed_gain == pytest.approx(0.02)
