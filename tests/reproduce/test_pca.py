"""The theorems hold for nested dropout, and not for a standard autoencoder."""

from pathlib import Path

import numpy as np
import pytest

from nestcode.lengths import Uniform
from nestcode.reproduce.pca.descent import exact_descent, polar, sampled_descent, tangent
from nestcode.reproduce.pca.experiment import cosines, lemma_blocks
from tests.reproduce.toy import run


def test_the_claims_hold_at_toy_scale(tmp_path: Path) -> None:
    result = run("pca", tmp_path, cifar=True)
    differ = [finding["claim"] for finding in result["findings"] if finding["verdict"] != "holds"]
    assert differ == ["a sigmoidal encoder with one bias for all lengths recovers PCA"]
    assert result["numbers"]["permutations that commute"] == 0
    by_name = {row["model"]: row for row in result["numbers"]["theorems"]}
    assert by_name["nested, exact loss"]["1 - smallest |cos|"] < 1e-4
    assert by_name["standard"]["1 - smallest |cos|"] > 0.1
    assert max(row["1 - |cos| of these"] for row in result["numbers"]["reach"]) < 1e-6
    assert {"pca-t.png", "pca-t.svg", "pca-sweeping.png", "pca-solver.png"} <= {
        path.name for path in tmp_path.iterdir()
    }


def test_descent_on_the_exact_loss_ends_at_the_eigenvectors_in_order() -> None:
    rng = np.random.default_rng(0)
    vectors = np.linalg.qr(rng.standard_normal((12, 12)))[0]
    covariance = vectors * np.linspace(1, 0, 12, endpoint=False) @ vectors.T
    start = polar(rng.standard_normal((12, 4)))
    found = exact_descent(covariance, start, Uniform().survival(4), steps=500)
    np.testing.assert_allclose(found.T @ found, np.eye(4), atol=1e-12)
    assert cosines(found, vectors).min() > 1 - 1e-9
    standard = exact_descent(covariance, start, np.ones(4), steps=500)
    assert cosines(standard, vectors).min() < 0.9
    np.testing.assert_allclose(standard @ standard.T, found @ found.T, atol=1e-6)  # the same span, without order


def test_descent_on_sampled_truncations_comes_near() -> None:
    vectors = np.eye(6)
    found = sampled_descent(
        np.diag([1, 0.8, 0.6, 0.4, 0.2, 0.1]), 2, Uniform(), 300, np.random.default_rng(0), rate=1.0
    )
    assert cosines(found, vectors).min() > 0.98


def test_tangents_keep_columns_orthonormal_to_first_order() -> None:
    rng = np.random.default_rng(0)
    decoder, direction = polar(rng.standard_normal((7, 3))), rng.standard_normal((7, 3))
    moved = decoder + 1e-6 * tangent(decoder, direction)
    np.testing.assert_allclose(moved.T @ moved, np.eye(3), atol=1e-10)


def test_the_blocks_of_the_lemma_are_relative_to_the_diagonal() -> None:
    upper = np.array([[1.0, 2.0, 0.0], [0.0, 4.0, 0.0], [0.0, 0.0, 9.0]])
    assert lemma_blocks(upper) == {"smaller": 0.0, "larger": 1.0}
    full = upper + upper.T
    assert list(lemma_blocks(full).values()) == pytest.approx([0.5, 0.5])
