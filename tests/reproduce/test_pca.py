"""The theorems hold for nested dropout, and not for a standard autoencoder."""

from pathlib import Path

from tests.reproduce.toy import run


def test_the_claims_hold_at_toy_scale(tmp_path: Path) -> None:
    result = run("pca", tmp_path, cifar=True)
    assert all(finding["verdict"] == "holds" for finding in result["findings"])
    assert result["numbers"]["permutations that commute"] == 0
    by_name = {row["model"]: row for row in result["numbers"]["theorems"]}
    assert by_name["nested, exact loss"]["1 - smallest |cos|"] < 1e-4
    assert by_name["standard"]["1 - smallest |cos|"] > 0.1
    assert max(row["1 - |cos| of these"] for row in result["numbers"]["reach"]) < 1e-6
    assert {"pca-t.png", "pca-t.svg", "pca-sweeping.png", "pca-solver.png"} <= {
        path.name for path in tmp_path.iterdir()
    }
