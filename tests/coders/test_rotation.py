"""What is particular to the rotation coder; the laws it shares are in `test_contract.py`."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from nestcode import Codes, Index, RotationCoder, load_coder
from nestcode.coders.rotation.hadamard import random_rotation
from nestcode.coders.rotation.model import gaussian_quantizer
from nestcode.errors import DamagedFile, InvalidInput
from tests.coders.cases import mse
from tests.golden.make_rotation import HERE, vectors

FEATURES, SEEDS = 96, 50


def hadamard(size: int) -> NDArray[np.float64]:
    """Sylvester's construction."""
    matrix = np.ones((1, 1))
    while len(matrix) < size:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return np.asarray(matrix / np.sqrt(size))


@pytest.mark.parametrize("features", [1, 2, 3, 12, 31, 32])
def test_a_rotation_equals_its_twin(features: int) -> None:
    """Permutation, signs, and Hadamard matrices of the first and the last coordinates, three times."""
    block = 1 << (features.bit_length() - 1)
    first, last = np.eye(features), np.eye(features)
    first[:block, :block] = last[features - block :, features - block :] = hadamard(block)
    raw = np.random.PCG64(7).random_raw((3, features))
    expected = np.eye(features)
    for row in raw[::-1]:
        permutation = np.eye(features)[np.argsort(row)].T
        mixed = first if block == features else last @ first
        expected = mixed @ np.diag(1.0 - 2.0 * (row & np.uint64(1))) @ permutation @ expected
    found = random_rotation(features, features, seed=7)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    np.testing.assert_allclose(found @ found.T, np.eye(features), atol=1e-6)
    assert np.array_equal(random_rotation(features, 1, seed=7), found[:1])


@pytest.mark.parametrize("features", [64, 96, 127])
def test_rotations_make_gaussians_of_unit_vectors(features: int) -> None:
    """The rows of a rotation are what single coordinates become."""
    values = np.concatenate([random_rotation(features, features, seed)[:, :4].ravel() for seed in range(40)])
    values *= np.sqrt(features)
    assert values.mean() == pytest.approx(0, abs=0.05)
    assert np.mean(values**4) == pytest.approx(3, abs=0.35)
    assert np.mean(np.abs(values) < 1.01) == pytest.approx(0.688, abs=0.05)


def test_the_quantizer_of_a_gaussian_is_that_of_lloyd_and_max() -> None:
    """Published levels, thresholds and errors of 1 and 2 bits; nesting costs later planes a few percent."""
    quantizer = gaussian_quantizer()
    np.testing.assert_allclose(quantizer.levels[2:4], [-0.7979, 0.7979], atol=1e-3)
    np.testing.assert_allclose(quantizer.levels[4:8], [-1.510, -0.4528, 0.4528, 1.510], atol=1e-3)
    np.testing.assert_allclose(quantizer.thresholds[1:4], [0, -0.9816, 0.9816], atol=1e-3)
    np.testing.assert_allclose(quantizer.errors[:3], [1, 0.3634, 0.1175], atol=1e-3)
    assert (quantizer.errors[3:5] < 1.05 * np.array([0.03454, 0.009497])).all()


@given(st.data())
@settings(max_examples=8, deadline=None, phases=[Phase.generate])  # an example is 50 fits
def test_estimates_are_unbiased_and_the_bound_holds(data: st.DataObject) -> None:
    """Over random rotations, for any two vectors and any length, up to the errors of so many trials."""
    vectors = st.sampled_from(["one coordinate", "all alike", "two coordinates", "uniform", "cauchy"])
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    query, item = (draw_vector(data.draw(vectors), rng) for _ in range(2))
    if data.draw(st.booleans()):
        query = item + 0.3 * query
    query, item = (x / np.linalg.norm(x) for x in (query, item))
    length, confidence = data.draw(st.integers(4, 4 * FEATURES)), data.draw(st.sampled_from([0.5, 0.9, 0.99]))
    both = np.stack([item, -item])  # their mean is 0
    errors = np.empty(SEEDS)
    for seed in range(SEEDS):
        coder = RotationCoder(length, "cosine", seed=seed).fit(both)
        errors[seed] = coder.inner_products(query[None], coder.encode(item[None]))[0, 0] - query @ item
    assert np.abs(errors.mean()) < 5 * errors.std() / np.sqrt(SEEDS) + 0.01  # coefficients are only nearly Gaussian
    allowed = 1 - confidence + 4 * np.sqrt(confidence * (1 - confidence) / SEEDS)
    assert np.mean(np.abs(errors) > coder.error_bound(length, confidence)) <= allowed


def draw_vector(kind: str, rng: np.random.Generator) -> NDArray[np.float64]:
    some = rng.permutation(FEATURES)
    rows: dict[str, Any] = {
        "one coordinate": np.eye(FEATURES)[some[0]],
        "all alike": np.ones(FEATURES),
        "two coordinates": np.eye(FEATURES)[some[0]] - np.eye(FEATURES)[some[1]],
        "uniform": rng.uniform(-1, 1, FEATURES),
        "cauchy": rng.standard_cauchy(FEATURES),
    }
    return np.asarray(rows[kind], dtype=np.float64)


def test_bounds_shrink_with_bits_and_grow_with_confidence() -> None:
    coder = RotationCoder(4 * FEATURES, "cosine").fit(np.random.default_rng(0).standard_normal((50, FEATURES)))
    bounds = [coder.error_bound(length) for length in range(1, 4 * FEATURES + 1)]
    assert (np.diff(bounds) < 0).all()
    assert coder.error_bound(FEATURES, 0.999) > coder.error_bound(FEATURES, 0.99)


def test_a_file_holds_little_but_the_mean(tmp_path: Any) -> None:
    X = np.random.default_rng(0).standard_normal((100, 500)).astype(np.float32)
    coder = RotationCoder(2000, seed=5).fit(X)
    coder.save(tmp_path / "a.coder")
    assert (tmp_path / "a.coder").stat().st_size < 500 * 8 + 1000
    assert load_coder(tmp_path / "a.coder").encode(X) == coder.encode(X)


def test_a_golden_file_encodes_and_decodes_the_same() -> None:
    """Its rotation is a seed, which must mean the same in every version of NumPy and of Nestcode."""
    held = json.loads((HERE / "rotation-v1.json").read_text())
    coder = load_coder(HERE / "rotation-v1.coder")
    codes = Codes(np.frombuffer(bytes.fromhex(held["codes"]), dtype=np.uint8).reshape(40, -1), 30)
    assert np.mean(coder.encode(vectors()).bits() == codes.bits()) > 0.99  # some lie at a threshold
    np.testing.assert_allclose(coder.decode(codes), held["decoded"], atol=1e-3)


def test_a_few_rows_fit_as_well_as_all() -> None:
    X = np.random.default_rng(0).standard_normal((3000, 40)) + 2
    few, every = (RotationCoder(80).fit(X[:count]) for count in (200, 3000))
    assert mse(few.decode(few.encode(X)), X) < 1.05 * mse(every.decode(every.encode(X)), X)


def test_a_search_scans_everything_and_reranks() -> None:
    """Leading bits name no inverted lists: hits do not depend on the candidate budget."""
    rng = np.random.default_rng(0)
    X, Q = rng.standard_normal((700, 300)).astype(np.float32), rng.standard_normal((20, 300)).astype(np.float32)
    coder = RotationCoder(600, "cosine").fit(X)
    index = Index(coder)
    index.add(X)
    few = index.search(Q, k=5, candidates=10, rerank=200)
    assert (few.compared == len(X)).all()
    every = index.search(Q, k=5, candidates=len(X))
    assert np.mean(few.ids == every.ids) > 0.99


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda coder, _: coder.error_bound(4, 1.0), "confidence must be between 0 and 1, got 1.0: give 0.99"),
        (lambda coder, _: coder.error_bound(0), "codes of 0 bits estimate nothing, got length 0: give longer"),
        (lambda coder, codes: coder.inner_products(np.ones((1, 4)), codes.prefix(0)), "got length 0: give longer"),
        (lambda coder, codes: coder.inner_products(np.ones((1, 3)), codes), "features the coder was fitted on, got 3"),
        (lambda coder, _: coder.error_bound(99), "length must be between 0 and the coder's width 8, got 99"),
    ],
)
def test_mistakes_are_named(call: Any, message: str) -> None:
    X = np.random.default_rng(0).standard_normal((10, 4))
    coder = RotationCoder(8).fit(X)
    with pytest.raises(InvalidInput, match=message):
        call(coder, coder.encode(X))


def test_a_small_file_does_not_stand_for_a_huge_rotation() -> None:
    X = np.ones((2, 60_000), dtype=np.float32)
    with pytest.raises(InvalidInput, match=r"at most 67,108,864 values, .* got 60000 and 60000: reduce the dimension"):
        RotationCoder(width=60_000).fit(X)
    record = RotationCoder(width=8).fit(vectors()).to_record()
    forged = {"mean": np.zeros(60_000), "errors": np.array([1.0, 0.5])}
    with pytest.raises(DamagedFile, match="at most 67,108,864 values"):
        RotationCoder.from_record(
            replace(record, settings={**record.settings, "width": 60_000}, arrays=forged), "a forged file"
        )
