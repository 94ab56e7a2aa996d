"""The experiments on the compression network: rates and reconstructions. Claims agree with the measured errors."""

from pathlib import Path

import numpy as np
import pytest
from PIL import features

from nestcode.coders import LinearCoder
from nestcode.data import sample_images
from nestcode.reproduce.lab import Images
from nestcode.reproduce.lab.codecs import CODECS
from nestcode.reproduce.lab.compression import ITERATIVE_OBD, OBD, ORDERED, READINGS, REFITTED, TRUNCATED
from nestcode.reproduce.lab.images import as_rows, pixel_mse
from nestcode.reproduce.lab.rate_distortion import codec_curves
from nestcode.reproduce.rates.experiment import NEEDS, first_crossing
from nestcode.reproduce.reconstructions.experiment import CODER, coder_decoder, decode_lengths
from tests.reproduce.toy import run


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the network that both experiments train."""
    return tmp_path_factory.mktemp("states")


def test_claims_of_rates_agree_with_the_measured_errors(tmp_path: Path, states: Path) -> None:
    result = run("rates", tmp_path, states=states)
    claims = {finding["claim"]: finding["verdict"] == "holds" for finding in result["findings"]}
    below: dict[tuple[str, str], list[bool]] = {pair: [] for pair in ((REFITTED, OBD), (OBD, TRUNCATED))}
    for runs in result["numbers"]["networks"].values():
        (one,) = runs
        errors = {order: np.array(one[order]) for order in (REFITTED, ORDERED, OBD, ITERATIVE_OBD, TRUNCATED)}
        assert all(each.shape == (65,) for each in errors.values())
        for order in (OBD, ITERATIVE_OBD):  # orders of one network agree at both ends
            np.testing.assert_allclose(errors[order][[0, -1]], errors[TRUNCATED][[0, -1]], rtol=1e-4)
        for (lower, upper), verdicts in below.items():
            verdicts.append(bool(np.all(errors[lower][1:17] < errors[upper][1:17])))
        assert errors[REFITTED][1:17].mean() < errors[TRUNCATED][1:17].mean()
        assert errors[REFITTED][-1] < errors[ORDERED][-1]
        assert len(one["curve"][0]) == len(one["curve"][1]) > 10
    for (lower, upper), verdicts in below.items():
        assert claims[f"{lower} is below {upper} at short lengths"] == verdicts[0]  # of bits
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


def test_claims_of_reconstructions_agree_with_the_measured_errors(tmp_path: Path, states: Path) -> None:
    result = run("reconstructions", tmp_path, states=states)
    monotone = []
    for name in (*READINGS.values(), CODER):
        (errors,), bits = np.array(result["numbers"][name]["errors"]), result["numbers"][name]["bits"]
        assert len(errors) == len(bits)
        assert errors[bits.index(64)] < errors[bits.index(16)] < errors[0]
        assert set(result["numbers"][name]["ssim"]) == {"16", "64"}
        monotone.append(bool(np.all(np.diff(errors) < 0)))
    claims = {finding["claim"]: finding["verdict"] == "holds" for finding in result["findings"]}
    assert claims["the error falls with every unit, decoder refitted"] == monotone[0]  # of bits
    assert claims[f"the error falls with every 8 bits, {CODER}"] == monotone[2]
    assert {"reconstructions-rows.png", "reconstructions-errors.svg"} <= {path.name for path in tmp_path.iterdir()}


def test_images_shown_decode_from_prefixes() -> None:
    photo = next(iter(sample_images().values()))
    tiles = photo[:160, :160].reshape(20, 8, 20, 8, 3).transpose(0, 2, 4, 1, 3).reshape(400, -1)
    images = Images("tiles", 8, tiles[:300], tiles[300:], None, None)
    coder = LinearCoder(64).fit(as_rows(images.train))
    decoded = decode_lengths(images, np.arange(65), np.zeros((1, 65)), coder_decoder(coder, images.test))
    assert list(decoded.shown) == [16, 64]
    codes = coder.encode(as_rows(images.test[:8]))
    for length, rows in decoded.shown.items():
        expected = 255 * coder.decode(codes.prefix(length)).clip(0, 1)
        assert np.abs(rows - expected).max() <= 0.501
    assert decoded.ssim[16] < decoded.ssim[64] < 1
