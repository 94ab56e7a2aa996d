"""Images decode from prefixes, and claims agree with the measured errors."""

from pathlib import Path

import numpy as np

from nestcode.coders import LinearCoder
from nestcode.data import sample_images
from nestcode.reproduce.lab import Images
from nestcode.reproduce.lab.compression import READINGS
from nestcode.reproduce.lab.images import as_rows
from nestcode.reproduce.reconstructions.experiment import CODER, coder_decoder, decode_lengths
from tests.reproduce.toy import run


def test_claims_agree_with_the_measured_errors(tmp_path: Path) -> None:
    result = run("reconstructions", tmp_path)
    monotone = []
    for name in (*READINGS.values(), CODER):
        (errors,), bits = np.array(result["numbers"][name]["errors"]), result["numbers"][name]["bits"]
        assert len(errors) == len(bits)
        assert errors[bits.index(64)] < errors[bits.index(16)] < errors[0]
        assert set(result["numbers"][name]["ssim"]) == {"16", "64"}
        monotone.append(bool(np.all(np.diff(errors) < 0)))
    claims = {finding["claim"]: finding["verdict"] == "holds" for finding in result["findings"]}
    assert claims["the error falls with every unit, decoder refitted"] == any(monotone[:2])
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
