"""Errors by bits: who is below whom, as measured."""

from pathlib import Path

import numpy as np
import pytest
from PIL import features

from nestcode.data import sample_images
from nestcode.reproduce.lab.codecs import CODECS
from nestcode.reproduce.lab.images import pixel_mse
from nestcode.reproduce.lab.rate_distortion import codec_curves
from nestcode.reproduce.rates.experiment import DAMAGE, NAMES, NEEDS, ORDERED, REPEATED, TRUNCATED, first_crossing
from tests.reproduce.toy import run


def test_it_shows_what_the_paper_says(tmp_path: Path) -> None:
    found = run("rates", tmp_path)
    claims = {finding["claim"]: finding["holds"] for finding in found["findings"]}
    for name in NAMES.values():
        errors = {order: np.array(each) for order, each in found["numbers"]["networks"][name].items()}
        assert all(each.shape == (1, 65) for each in errors.values())
        for order in (DAMAGE, REPEATED):  # orders of one network begin and end alike
            np.testing.assert_allclose(errors[order][:, [0, -1]], errors[TRUNCATED][:, [0, -1]], rtol=1e-4)
        means = {order: each.mean(axis=0)[1:17] for order, each in errors.items()}
        for lower, upper in ((ORDERED, DAMAGE), (DAMAGE, TRUNCATED)):
            claim = f"{lower} is below {upper} at short lengths, {name}"
            assert claims[claim] == bool(np.all(means[lower] < means[upper]))
        assert means[ORDERED].mean() < means[TRUNCATED].mean()
    assert claims["JPEG is not suited for images of 16 x 16 pixels: its files are larger"]
    there = {name for name, need in NEEDS.items() if features.check(need)}
    assert there <= set(found["numbers"]["curves"])
    assert {"rates-bits.png", "rates-bits.svg"} <= {path.name for path in tmp_path.iterdir()}


@pytest.mark.parametrize("name", [name for name, need in NEEDS.items() if features.check(need)])
def test_curves_of_codecs_are_means_over_pictures(name: str) -> None:
    photo = next(iter(sample_images().values()))
    pictures = np.stack([photo[:32, :32], photo[200:232, 300:332]])
    codec = CODECS[name]
    best = codec.qualities[-1]
    coded = [codec(picture, best) for picture in pictures]
    files, bare = codec_curves(codec, pictures, [best])
    assert files.bits == pytest.approx(8 * np.mean([len(blob) for blob, _ in coded]))
    assert bare.bits < files.bits
    assert files.errors == pytest.approx(pixel_mse(pictures, np.stack([decoded for _, decoded in coded])))


def test_crossings_are_where_an_error_is_first_not_below() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        lower, upper = rng.random(6), 0.4 + rng.random(6)
        slow = next((length for length in range(1, 6) if lower[length] >= upper[length]), None)
        assert first_crossing(lower, upper) == slow
