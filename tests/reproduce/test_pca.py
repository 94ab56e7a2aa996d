"""The theorems hold, and what does not satisfy them is told apart."""

from pathlib import Path

import pytest

from nestcode.nn import semilinear
from nestcode.reproduce.pca import experiment
from tests.reproduce.toy import run


def test_it_shows_what_the_paper_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment, "WIDTH", 4)  # few units are learnt soon
    monkeypatch.setitem(semilinear._STEPS, "exact", 200)
    monkeypatch.setitem(semilinear._STEPS, "sampled", 200)
    found = run("pca", tmp_path, cifar=True)
    assert all(finding["holds"] for finding in found["findings"])
    assert found["numbers"]["permutations that commute"] == 0
    by_name = {row["model"]: row for row in found["numbers"]["theorems"]}
    assert by_name["nested, exact loss"]["1 - smallest |cos|"] < 1e-4
    assert by_name["ordinary"]["1 - smallest |cos|"] > 0.1
    assert max(row["1 - |cos| of these"] for row in found["numbers"]["reach"]) < 1e-6
    assert {"pca-t.png", "pca-t.svg", "pca-sweeping.png", "pca-reach.png"} <= {path.name for path in tmp_path.iterdir()}
