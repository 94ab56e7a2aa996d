"""Neighborhoods of a pinwheel are nested, and the angles of their boundaries are measured correctly."""

from pathlib import Path

import numpy as np

from nestcode import Codes
from nestcode.reproduce.pinwheel.experiment import boundary_angles
from nestcode.reproduce.pinwheel.figures import mean_angle
from tests.reproduce.toy import run


def test_the_claims_hold_at_toy_scale(tmp_path: Path) -> None:
    result = run("pinwheel", tmp_path)
    holds = {finding["claim"]: finding["verdict"] == "holds" for finding in result["findings"]}
    assert holds["each neighborhood contains the next"]
    assert holds["members of deeper neighborhoods are nearer to the query"]
    angles, errors = result["numbers"]["angles"], result["numbers"]["errors"]
    assert angles["all"]["ours"][0] < 45
    assert np.all(np.diff(errors["ours"]) < 0)
    assert errors["ours"][-1] < 0.3 * errors["untrained"][-1]
    assert {"pinwheel-neighborhoods.png", "pinwheel-paper.svg", "pinwheel-angles.png"} <= {
        path.name for path in tmp_path.iterdir()
    }


def test_angles_equal_those_of_known_boundaries() -> None:
    rng = np.random.default_rng(0)
    long, turn = rng.standard_normal((4000, 2)) * (3, 1), np.radians(25)
    points = (long @ [[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]]).astype(np.float32)
    for degrees in (0, 30, 60, 90):
        normal = np.radians(25 + degrees)
        codes = Codes.from_bits((points @ [np.cos(normal), np.sin(normal)] > 0)[:, None])
        angles = boundary_angles(points, codes)
        assert angles.shape == (1, 3)
        assert abs(mean_angle(angles) - degrees) < 6
    isotropic = rng.standard_normal((4000, 2)).astype(np.float32)
    assert len(boundary_angles(isotropic, Codes.from_bits(isotropic[:, :1] > 0))) == 0
