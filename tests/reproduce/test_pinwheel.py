"""Neighborhoods of a pinwheel: nested, nearer the deeper, and what tells how boundaries lie is right."""

from pathlib import Path

import numpy as np

from nestcode import Codes
from nestcode.reproduce.pinwheel.experiment import crossings, mean_angle
from tests.reproduce.toy import run


def test_it_shows_what_the_paper_says(tmp_path: Path) -> None:
    found = run("pinwheel", tmp_path)
    holds = {finding["claim"]: finding["holds"] for finding in found["findings"]}
    assert holds["each neighborhood holds the next one"]
    assert holds["the deeper a neighborhood, the nearer its members are to the query"]
    angles, errors = found["numbers"]["angles"], found["numbers"]["errors"]
    assert angles["all"]["ours"][0] < 45
    assert np.all(np.diff(errors["ours"]) < 0)
    assert errors["ours"][-1] < 0.3 * errors["untrained"][-1]
    assert {"pinwheel-neighborhoods.png", "pinwheel-paper.svg", "pinwheel-angles.png"} <= {
        path.name for path in tmp_path.iterdir()
    }


def test_angles_are_those_of_the_boundaries() -> None:
    rng = np.random.default_rng(0)
    long, turn = rng.standard_normal((4000, 2)) * (3, 1), np.radians(25)
    points = (long @ [[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]]).astype(np.float32)
    for degrees in (0, 30, 60, 90):
        normal = np.radians(25 + degrees)
        codes = Codes.from_bits((points @ [np.cos(normal), np.sin(normal)] > 0)[:, None])
        found = crossings(points, codes)
        assert found.shape == (1, 3)
        assert abs(mean_angle(found) - degrees) < 6
    round_ones = rng.standard_normal((4000, 2)).astype(np.float32)
    assert len(crossings(round_ones, Codes.from_bits(round_ones[:, :1] > 0))) == 0
