"""A code for lengths without end: where it stops growing, and what it leaves as it was."""

from pathlib import Path

import numpy as np
import pytest

from nestcode.lengths import Geometric
from nestcode.reproduce.infinite.experiment import SELDOM, Grown, closed, enough, moments
from tests.reproduce.toy import run


def test_it_shows_what_the_paper_says(tmp_path: Path) -> None:
    found = run("infinite", tmp_path)
    holds = {finding["claim"]: finding["holds"] for finding in found["findings"]}
    assert holds["p_B of infinite support can have finite mean and variance"]
    assert holds["training ends at a finite width by itself"]
    assert holds["growing leaves old prefixes as they were, bit for bit"]
    grown, once = found["numbers"]["grown"], found["numbers"]["at once"]
    for decay, runs in grown.items():
        assert [len(errors) for errors in runs] == [len(errors) for errors in once[decay]]
        assert len(runs[0]) > 5  # it grew
        assert runs[0][-1] < 0.5
    assert {"infinite-width.png", "infinite-lengths.svg"} <= {path.name for path in tmp_path.iterdir()}

    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").iterdir()}
    (tmp_path / "infinite.json").unlink()
    assert run("infinite", tmp_path)["numbers"] == found["numbers"]  # nothing is trained again
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").iterdir()} == files


@pytest.mark.parametrize("decay", [0.5, 0.9, 0.99])
def test_moments_are_those_of_draws_and_of_the_closed_form(decay: float) -> None:
    lengths = Geometric(decay)
    assert moments(lengths, 100_000) == pytest.approx(closed(decay))
    k, pmf = np.arange(1, 21), lengths.pmf(20)
    assert moments(lengths, 20) == pytest.approx((k @ pmf, k**2 @ pmf - (k @ pmf) ** 2))
    survival = lengths.survival(enough(decay) + 1)
    assert survival[-2] >= SELDOM > survival[-1]


def test_what_a_unit_of_one_more_stage_gains() -> None:
    one = Grown(errors=np.array([1, 0.5, 0.4]), more=np.array([1, 0.5, 0.4, 0.39, 0.36]), same=True)
    assert one.width == 2
    assert one.missed == pytest.approx(0.02)
