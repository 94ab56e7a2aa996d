"""`nestcode reproduce`: names of experiments, errors, JSON."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from nestcode.cli.reproduce import Name
from nestcode.reproduce import NAMES, Lab, pca
from tests.cli.test_streams import fine, misused, refused


def test_every_experiment_has_a_name() -> None:
    assert tuple(Name) == ("all", "networks", *NAMES)


def test_mistakes_are_named(tmp_path: Path) -> None:
    assert "'pcb' is not one of 'all', 'networks', 'pca'" in misused("reproduce", "pcb")
    assert "exclude each other: give one of them" in misused("reproduce", "pca", "--toy", "--full")
    assert "networks is trained alone" in misused("reproduce", "networks", "pca", "--toy", "--allow-dirty")
    assert "are for networks" in misused("reproduce", "pca", "--toy", "--allow-dirty", "--deadline", 5)
    assert "nestcode data cifar10 --to" in refused("reproduce", "pca", "--data", tmp_path / "none")


def test_json_has_the_findings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(lab: Lab) -> None:
        lab.finding("it holds", paper="yes", ours=f"with {len(lab.seeds)} seeds", holds=True)

    monkeypatch.setattr(pca, "EXPERIMENT", replace(pca.EXPERIMENT, run=run))
    command = ("reproduce", "pca", "--toy", "--seeds", 2, "--out", tmp_path, "--threads", 1, "--allow-dirty")
    printed = json.loads(fine(*command, "--json"))
    assert printed["page"] == str(tmp_path / "index.html")
    assert printed["experiments"]["pca"]["path"] == str(tmp_path / "pca.json")
    (found,) = printed["experiments"]["pca"]["findings"]
    expected = {"claim": "it holds", "of": "paper", "where": pca.EXPERIMENT.where, "paper": "yes",
                "ours": "with 2 seeds", "verdict": "holds", "seeds": [0, 1]}  # fmt: skip
    assert found.items() >= expected.items()
    assert found.keys() - expected.keys() == {"seconds", "commit", "clean"}
    assert fine(*command) == f"{tmp_path / 'index.html'}\n"
