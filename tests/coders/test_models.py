"""The coders in `models/`, which earlier versions shipped: their files and the streams that name them stay readable."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest

import nestcode as nc
from nestcode.errors import InvalidInput
from nestcode.storage import Record, read_record

pytest.importorskip("torch")
from nestcode.coders.refined import RefinedCoder

MODELS = Path(__file__).parents[2] / "models"
FINGERPRINTS = {
    "cifar10-small": "69a5dc3b4ed34daf3a412c73259459a7683a5c8522d0ce88b7f0856caa330a30",
    "photos-small": "57c9851d9e1facf228c1b5f7ab86bed9387c791759a48cc73b17dfde11f7fe8d",
}


@cache
def load(name: str) -> nc.Coder:
    return nc.load_coder(MODELS / f"{name}.coder")


@cache
def errors_on_photos(name: str) -> dict[int, float]:
    coder = load(name)
    cut = nc.data.patches(list(nc.data.sample_images().values()), size=32, n=40, rng=np.random.default_rng(0))
    rows = cut.transpose(0, 3, 1, 2).reshape(len(cut), -1).astype(np.float32) / 255
    codes = coder.encode(rows)
    return {length: float(np.mean((coder.decode(codes.prefix(length)) - rows) ** 2)) for length in (0, 16, 64, 256)}


@pytest.mark.parametrize("name", FINGERPRINTS)
def test_models_decode_photos(name: str) -> None:
    errors = errors_on_photos(name)
    assert errors[256] < 0.7 * errors[64] < 0.7 * errors[16] < 0.3 * errors[0]


def test_the_model_trained_on_photos_decodes_them_better() -> None:
    photos, small_images = (errors_on_photos(name) for name in ("photos-small", "cifar10-small"))
    assert all(photos[length] < small_images[length] for length in (16, 64))


@pytest.mark.parametrize("name", FINGERPRINTS)
def test_files_of_earlier_versions_keep_their_fingerprint(name: str) -> None:
    """Streams and indexes know their coder by it."""
    record = read_record(MODELS / f"{name}.coder")
    assert record.kind == "DeepCoder"
    coder = load(name)
    assert isinstance(coder, RefinedCoder)
    assert coder.to_record().kind == "DeepCoder"
    whole = {key: array.astype(np.float32) if array.dtype == np.float16 else array
             for key, array in record.arrays.items()}  # fmt: skip
    assert coder.fingerprint == Record("DeepCoder", record.version, record.settings, whole).fingerprint
    assert coder.fingerprint == FINGERPRINTS[name]


def test_a_stream_that_names_a_model_decodes_with_its_file() -> None:
    coder = load("cifar10-small")
    images = np.random.default_rng(0).integers(90, 110, (4, 3, 32, 32), dtype=np.uint8)
    data = nc.compress(images, coder, scale=255)
    with pytest.raises(InvalidInput, match="which is not embedded: give the coder"):
        nc.decompress(data)
    decoded = nc.decompress(data, coder)
    assert (decoded.dtype, decoded.shape) == (images.dtype, images.shape)
    assert np.abs(decoded.astype(int) - images).mean() < 10
