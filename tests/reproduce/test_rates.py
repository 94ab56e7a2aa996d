"""Rate–distortion curves of codecs are means over images, and claims agree with the measured errors."""

from pathlib import Path

import numpy as np
import pytest
from PIL import features

from nestcode.data import sample_images
from nestcode.reproduce.lab.codecs import CODECS
from nestcode.reproduce.lab.compression import ITERATIVE_OBD, OBD, ORDERED, PLAIN, TRUNCATED
from nestcode.reproduce.lab.images import pixel_mse
from nestcode.reproduce.lab.rate_distortion import codec_curves
from nestcode.reproduce.rates.experiment import NEEDS, first_crossing
from tests.reproduce.toy import run


def test_claims_agree_with_the_measured_errors(tmp_path: Path) -> None:
    result = run("rates", tmp_path)
    claims = {finding["claim"]: finding["verdict"] == "holds" for finding in result["findings"]}
    below: dict[tuple[str, str], list[bool]] = {pair: [] for pair in ((ORDERED, OBD), (OBD, TRUNCATED))}
    for runs in result["numbers"]["networks"].values():
        (one,) = runs
        errors = {order: np.array(one[order]) for order in (ORDERED, PLAIN, OBD, ITERATIVE_OBD, TRUNCATED)}
        assert all(each.shape == (65,) for each in errors.values())
        for order in (OBD, ITERATIVE_OBD):  # orders of one network agree at both ends
            np.testing.assert_allclose(errors[order][[0, -1]], errors[TRUNCATED][[0, -1]], rtol=1e-4)
        for (lower, upper), verdicts in below.items():
            verdicts.append(bool(np.all(errors[lower][1:17] < errors[upper][1:17])))
        assert errors[ORDERED][1:17].mean() < errors[TRUNCATED][1:17].mean()
        assert errors[ORDERED][-1] < errors[PLAIN][-1]
        assert len(one["curve"][0]) == len(one["curve"][1]) > 10
    for (lower, upper), verdicts in below.items():
        assert claims[f"{lower} is below {upper} at short lengths"] == any(verdicts)
    available = {name for name, need in NEEDS.items() if features.check(need)}
    assert available <= set(result["numbers"]["curves"])
    assert {"rates-bits.png", "rates-bits.svg", "rates-training.png"} <= {path.name for path in tmp_path.iterdir()}


@pytest.mark.parametrize("name", [name for name, need in NEEDS.items() if features.check(need)])
def test_curves_of_codecs_are_means_over_images(name: str) -> None:
    photo = next(iter(sample_images().values()))
    images = np.stack([photo[:32, :32], photo[200:232, 300:332]])
    codec = CODECS[name]
    best = codec.qualities[-1]
    coded = [codec(image, best) for image in images]
    files, bare = codec_curves(codec, images, [best])
    assert files.bits == pytest.approx(8 * np.mean([len(blob) for blob, _ in coded]))
    assert bare.bits < files.bits
    assert files.errors == pytest.approx(pixel_mse(images, np.stack([decoded for _, decoded in coded])))


def test_the_first_crossing_equals_a_plain_loop() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        lower, upper = rng.random(6), 0.4 + rng.random(6)
        plain = next((length for length in range(1, 6) if lower[length] >= upper[length]), None)
        assert first_crossing(lower, upper) == plain
