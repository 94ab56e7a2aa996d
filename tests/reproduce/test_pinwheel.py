"""Neighborhoods of a pinwheel are nested, and the angles of their boundaries are measured correctly."""

from pathlib import Path

import numpy as np
import torch

from nestcode.data import pinwheel
from nestcode.nn import Binarize, OrderedAutoencoder
from nestcode.reproduce.pinwheel.experiment import ARMS, NEAR, boundary_angles, split, tangents
from tests.reproduce.toy import run


def test_the_claims_hold_at_toy_scale(tmp_path: Path) -> None:
    result = run("pinwheel", tmp_path)
    verdicts = {finding["claim"]: finding["verdict"] for finding in result["findings"]}
    assert verdicts["each neighborhood contains the next"] == "holds"
    distances = result["numbers"]["distances by depth"]
    assert distances[-1] < 0.5 * distances[0]
    assert all(0 <= angle <= 90 for angle in result["numbers"]["angles"]["untrained"])
    assert np.all(np.diff(result["numbers"]["errors"]["best"][:4]) < 0)
    assert {"pinwheel-neighborhoods.png", "pinwheel-angles.svg"} <= {path.name for path in tmp_path.iterdir()}


def test_tangents_are_the_directions_of_local_variation() -> None:
    points, arm = pinwheel(40_000, ARMS, np.random.default_rng(0))
    along = tangents(points, arm)
    np.testing.assert_allclose(np.linalg.norm(along, axis=1), 1)
    radius = np.linalg.norm(points, axis=1)
    near = (arm == 2) & (np.abs(radius - 1) < 0.15)
    own = points[near] - points[near].mean(axis=0)
    direction = np.linalg.eigh(own.T @ own)[1][:, 1]
    assert abs(direction @ along[near].mean(axis=0)) > 0.98


def test_angles_are_those_of_known_boundaries() -> None:
    points, arm = pinwheel(2000, ARMS, np.random.default_rng(0))
    network = OrderedAutoencoder(2, 2, binarize=Binarize(2), corruption=0, dropout=0).eval()
    (weight,) = network.code_weights()
    with torch.no_grad():
        weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 3.0]]))  # boundaries at x = 0 and y = 0
        network.get_parameter("encoder.blocks.0.bias").zero_()
    angles, along = boundary_angles(network, points, arm), tangents(points, arm)
    for bit in (0, 1):
        near = np.abs(points[:, bit]) < NEAR
        expected = np.degrees(np.arccos(np.abs(along[near, bit])))
        np.testing.assert_allclose(angles[angles[:, 0] == bit, 1], expected, atol=1e-3)


def test_a_long_cell_is_split_across() -> None:
    rows = np.random.default_rng(0).normal(size=(500, 2)) * [1.0, 10.0]
    upper, normal, middle = split(rows)
    assert abs(normal[1]) > 0.999
    assert np.array_equal(upper, (rows - middle) @ normal > 0)
