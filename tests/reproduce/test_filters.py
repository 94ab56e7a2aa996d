"""Filters with and without unit sweeping, and the measures that compare them."""

from pathlib import Path

import numpy as np
import pytest
import torch

from nestcode.nn import Binarize, OrderedAutoencoder
from nestcode.reproduce.filters.experiment import filters, fineness, noise_fineness
from nestcode.reproduce.filters.figures import KINDS, WIDTH, mosaic
from tests.reproduce.toy import run


def test_the_claims_hold_at_toy_scale(tmp_path: Path) -> None:
    result = run("filters", tmp_path)
    holds = {finding["claim"]: finding["verdict"] == "holds" for finding in result["findings"]}
    for claim in ("P(b > 50)", "P(unit 100 is kept)", "late filters are trained", "late filters move farther"):
        matching = [held for name, held in holds.items() if name.startswith(claim)]
        assert matching
        assert all(matching)
    without, swept = (result["numbers"]["ours"][kind]["errors"][0] for kind in KINDS)
    assert len(swept) == WIDTH + 1
    assert swept[WIDTH] < 0.5 * swept[1]
    assert swept[WIDTH] < 0.5 * without[WIDTH]  # untrained units do harm
    files = {path.name for path in tmp_path.iterdir()}
    assert {"filters-paper.png", "filters-paper-curves.svg", "filters-ours.png", "filters-ours-curves.svg"} <= files


@pytest.mark.parametrize("tied", [False, True])
def test_a_filter_is_the_difference_its_bit_makes(tied: bool) -> None:
    torch.manual_seed(0)
    network = OrderedAutoencoder(12, width=4, tied=tied, binarize=Binarize(4)).eval()
    network.set_moments(torch.rand(12), torch.rand(12))
    weights = network.state_dict()["encoder.blocks.0.weight" if tied else "encoder.blocks.0.columns"]
    plain = (weights if tied else weights.T) * network.spread
    assert np.allclose(filters(network), plain, atol=1e-6)


def test_the_fineness_of_a_wave_is_its_frequency() -> None:
    x = np.arange(16)
    waves = [np.cos(2 * np.pi * cycles * x / 16) for cycles in (0, 1, 4, 8)]
    rows = np.array([np.broadcast_to(wave, (3, 16, 16)).ravel() for wave in waves])
    assert fineness(rows, 16) == pytest.approx([0, 1 / 16, 4 / 16, 8 / 16])
    assert fineness(3 * rows, 16) == pytest.approx(fineness(rows, 16))
    noise = np.random.default_rng(0).standard_normal((200, 3 * 16 * 16))
    assert fineness(noise, 16).mean() == pytest.approx(noise_fineness(16), rel=0.01)


def test_a_mosaic_shows_units_in_order_by_rows() -> None:
    images = np.random.default_rng(0).standard_normal((100, 4, 4, 3))
    sheet = mosaic(images)
    for unit in (0, 7, 10, 99):
        row, column = divmod(unit, 10)
        shown = sheet[5 * row : 5 * row + 4, 5 * column : 5 * column + 4]
        assert np.abs(shown - 0.5).max() == pytest.approx(0.5)
        assert np.allclose(shown, 0.5 + 0.5 * images[unit] / np.abs(images[unit]).max())
    assert np.all(sheet[4::5] == 1)
