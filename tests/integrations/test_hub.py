"""Coders on the Hugging Face Hub: folders, model cards, repositories and errors."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import numpy as np
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError, RemoteEntryNotFoundError
from numpy.typing import NDArray

import nestcode as nc
from nestcode import Coder
from nestcode.errors import DamagedFile, InvalidInput, NotFitted
from nestcode.integrations import hub
from nestcode.training import Network, Training


def data() -> NDArray[np.float32]:
    return nc.data.digits()[0][:300]


CODERS: dict[str, Coder] = {
    "linear": nc.LinearCoder(width=20),
    "residual": nc.ResidualCoder(width=16, metric="cosine"),
    "adaptive": nc.AdaptiveCoder(width=16),
    "cells": nc.CellCoder(width=16),
    "refined": nc.RefinedCoder(nc.LinearCoder(16), training=Training(steps=5, batch_size=8)),
}


@pytest.fixture(scope="module", params=CODERS)
def coder(request: pytest.FixtureRequest) -> Coder:
    return CODERS[request.param].fit(data())


@pytest.fixture(scope="module")
def linear() -> Coder:
    return nc.LinearCoder(width=20).fit(data())


# Folders


def test_load_returns_the_saved_coder(coder: Coder, tmp_path: Path) -> None:
    hub.save(coder, tmp_path / "digits")
    again = hub.load(tmp_path / "digits")
    assert type(again) is type(coder)
    assert again.fingerprint == coder.fingerprint
    assert again.encode(data()) == coder.encode(data())
    assert sorted(path.name for path in (tmp_path / "digits").iterdir()) == ["README.md", "model.safetensors"]


def test_load_takes_the_modules_of_a_coder_built_from_ones_own(tmp_path: Path) -> None:
    from torch import nn

    def modules() -> dict[str, Any]:
        return {"encoder": nn.Linear(64, 8), "decoder": nn.Linear(8, 64)}

    coder = nc.AutoencoderCoder(8, network=Network(**modules()), training=Training(steps=5, batch_size=8))
    coder.fit(data(), progress=False)
    hub.save(coder, tmp_path)
    assert hub.load(tmp_path, **modules()).encode(data()) == coder.encode(data())
    with pytest.raises(InvalidInput, match="holds a coder with modules of its own"):
        hub.load(tmp_path)


def test_half_stores_float16(linear: Coder, tmp_path: Path) -> None:
    hub.save(linear, tmp_path / "whole")
    hub.save(linear, tmp_path / "half", dtype="float16")
    size = {name: (tmp_path / name / "model.safetensors").stat().st_size for name in ("whole", "half")}
    assert size["half"] < 0.8 * size["whole"]
    text = (tmp_path / "half" / "README.md").read_text()
    assert linear.fingerprint not in text  # float16 changes the fingerprint


def test_save_does_not_overwrite_another_readme(linear: Coder, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("# My project\n")
    with pytest.raises(InvalidInput, match=r"overwrites only model cards .*README.md is not one: choose another"):
        hub.save(linear, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]
    assert (tmp_path / "README.md").read_text() == "# My project\n"


def test_save_overwrites_a_model_card(linear: Coder, tmp_path: Path) -> None:
    hub.save(nc.LinearCoder(width=8).fit(data()), tmp_path)
    hub.save(linear, tmp_path)
    assert linear.fingerprint in (tmp_path / "README.md").read_text()


def test_missing_and_damaged_coders_are_named(linear: Coder, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no file .*model.safetensors"):
        hub.load(tmp_path)
    for wrong in ("./no/such/folder", "a b/c"):
        with pytest.raises(InvalidInput, match="source must be a folder or a repository such as"):
            hub.load(wrong)
    hub.save(linear, tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"cut short")
    with pytest.raises(DamagedFile, match="is damaged"):
        hub.load(tmp_path)
    with pytest.raises(NotFitted, match="call fit"):
        hub.save(nc.LinearCoder(width=8), tmp_path / "new")
    assert not (tmp_path / "new").exists()


# Model cards


def test_a_card_tabulates_the_error_by_length(coder: Coder, tmp_path: Path) -> None:
    hub.save(coder, tmp_path / "digits-small")
    text = (tmp_path / "digits-small" / "README.md").read_text()
    card: Any = huggingface_hub.ModelCard(text)
    assert card.data.library_name == "nestcode"
    rows = re.findall(r"^\| ([\d,]+) \| (\d+) \| (\S+) \| (\S+)% \|$", text, flags=re.MULTILINE)
    assert [int(row[0]) for row in rows] == [0, 8, *([16] if coder.width > 16 else []), coder.width]
    for length, size, error, ratio in rows:
        assert int(size) == -(-int(length) // 8)
        assert float(error) == pytest.approx(coder.expected_error(int(length)), rel=1e-3)
        assert float(ratio) == pytest.approx(
            100 * coder.expected_error(int(length)) / coder.expected_error(0), abs=0.01
        )
    assert ("torch" in text) == (type(coder).__name__ not in nc.coders.__all__)


def test_the_example_in_a_card_runs(linear: Coder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.save(linear, tmp_path / "digits-small")
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(r"```python\n(.*?)```", Path("digits-small/README.md").read_text(), flags=re.DOTALL)
    names: dict[str, Any] = {"X": data()}
    exec(example, names)
    assert names["hits"].ids.shape == (5, 10)
    assert names["X_hat"].shape == names["X"].shape


def test_a_card_of_constant_data(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="the data fills 0 of"):
        coder = nc.LinearCoder(width=2).fit(np.ones((5, 3)))
    hub.save(coder, tmp_path)
    assert "| 2 | 1 | 0 | – |" in (tmp_path / "README.md").read_text()


# Repositories


@pytest.fixture
def pushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Replace the Hub by a folder, and record the calls."""
    calls: dict[str, Any] = {"folder": tmp_path / "hub"}

    def create_repo(self: Any, repo_id: str, **settings: Any) -> Any:
        calls["token"], calls["create"] = self.token, settings
        return SimpleNamespace(repo_id=repo_id if "/" in repo_id else f"me/{repo_id}")

    def upload_folder(_: Any, *, repo_id: str, folder_path: str, commit_message: str) -> str:
        calls["message"] = commit_message
        shutil.copytree(folder_path, calls["folder"] / repo_id)
        return f"https://huggingface.co/{repo_id}/commit/1"

    monkeypatch.setattr(huggingface_hub.HfApi, "create_repo", create_repo)
    monkeypatch.setattr(huggingface_hub.HfApi, "upload_folder", upload_folder)
    return calls


def test_push_uploads_the_coder_and_its_card(coder: Coder, pushed: dict[str, Any]) -> None:
    url = hub.push(coder, "digits", private=True, commit_message="Better bits", token="hf_secret")
    assert url == "https://huggingface.co/me/digits/commit/1"
    assert pushed["create"] == {"private": True, "exist_ok": True}
    assert (pushed["message"], pushed["token"]) == ("Better bits", "hf_secret")
    folder = pushed["folder"] / "me/digits"
    assert hub.load(folder).fingerprint == coder.fingerprint
    assert 'hub.load("me/digits")' in (folder / "README.md").read_text()
    assert "hf_secret" not in (folder / "README.md").read_text()


def test_push_creates_no_repository_for_an_unfitted_coder(pushed: dict[str, Any]) -> None:
    with pytest.raises(NotFitted, match="call fit"):
        hub.push(nc.LinearCoder(width=8), "digits")
    assert set(pushed) == {"folder"}


def test_load_reads_the_local_cache_without_a_network(linear: Coder, tmp_path: Path) -> None:
    """The cache has huggingface-hub's own layout, and a fresh process reads it offline."""
    repository = tmp_path / "hub" / "models--me--digits"
    hub.save(linear, repository / "snapshots" / ("0" * 40))
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0" * 40)
    source = "from nestcode.integrations import hub; print(hub.load('me/digits').fingerprint)"
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    run = subprocess.run([sys.executable, "-c", source], env=environment, capture_output=True, text=True, check=False)
    assert run.stdout.strip() == linear.fingerprint, run.stderr


def test_load_passes_revision_and_token_on(linear: Coder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.save(linear, tmp_path)
    requested: dict[str, Any] = {}

    def download(repo_id: str, name: str, **settings: Any) -> str:
        requested.update(settings, repo_id=repo_id)
        return str(tmp_path / name)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    assert hub.load("me/digits", revision="v2", token="hf_x").fingerprint == linear.fingerprint
    assert requested == {"repo_id": "me/digits", "revision": "v2", "token": "hf_x", "library_name": "nestcode"}


def test_a_repository_without_a_coder_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> str:
        raise error

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fail)
    error: Exception = RemoteEntryNotFoundError.__new__(RemoteEntryNotFoundError)
    with pytest.raises(InvalidInput, match=r"me/digits holds no model.safetensors: give a repository that hub.push"):
        hub.load("me/digits")
    error = LocalEntryNotFoundError("no network")
    with pytest.raises(LocalEntryNotFoundError, match="no network"):
        hub.load("me/digits")


def test_only_repositories_need_the_extra(linear: Coder, tmp_path: Path) -> None:
    hub.save(linear, tmp_path)
    source = f"""
import sys
sys.modules["huggingface_hub"] = None
from nestcode.errors import MissingExtra
from nestcode.integrations import hub
coder = hub.load({str(tmp_path)!r})
for call in (lambda: hub.push(coder, "me/digits"), lambda: hub.load("me/digits")):
    try:
        call()
    except MissingExtra as error:
        print(error)
"""
    run = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=False)
    needs = "needs huggingface_hub, which is not installed: pip install 'nestcode[hub]'"
    assert run.stdout == f"hub.push {needs}\nhub.load of a repository {needs}\n", run.stderr


def test_folders_do_not_import_huggingface_hub(linear: Coder, tmp_path: Path) -> None:
    hub.save(linear, tmp_path)
    source = f"""
import sys
from nestcode.integrations import hub
hub.save(hub.load({str(tmp_path)!r}), {str(tmp_path / "again")!r})
print("huggingface_hub" in sys.modules)
"""
    run = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=False)
    assert run.stdout == "False\n", run.stderr


def test_load_takes_a_file_and_refuses_a_bare_name(linear: Coder, tmp_path: Path) -> None:
    linear.save(tmp_path / "my.coder")
    assert hub.load(tmp_path / "my.coder").fingerprint == linear.fingerprint
    with pytest.raises(InvalidInput, match="a repository such as 'user/name', got 'nowhere', which is neither"):
        hub.load("nowhere")
