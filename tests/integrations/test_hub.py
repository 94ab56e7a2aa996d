"""Coders on the Hugging Face Hub: folders, repositories, cards, and what is refused."""

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
from nestcode.training import Training


def data() -> NDArray[np.float32]:
    return nc.data.digits()[0][:300]


CODERS: dict[str, Coder] = {
    "linear": nc.LinearCoder(width=20),
    "residual": nc.ResidualCoder(width=16, metric="cosine"),
    "adaptive": nc.AdaptiveCoder(width=16),
    "cells": nc.CellCoder(width=16),
    "deep": nc.DeepCoder(width=16, training=Training(steps=5, batch_size=8)),
}


@pytest.fixture(scope="module", params=CODERS)
def coder(request: pytest.FixtureRequest) -> Coder:
    return CODERS[request.param].fit(data())


@pytest.fixture(scope="module")
def linear() -> Coder:
    return nc.LinearCoder(width=20).fit(data())


# Folders


def test_a_folder_gives_back_the_coder(coder: Coder, tmp_path: Path) -> None:
    coder.save_pretrained(tmp_path / "digits")
    for kind in (Coder, type(coder)):
        again = kind.from_pretrained(tmp_path / "digits")
        assert type(again) is type(coder)
        assert again.fingerprint == coder.fingerprint
        assert again.encode(data()) == coder.encode(data())
    assert sorted(path.name for path in (tmp_path / "digits").iterdir()) == ["README.md", "model.safetensors"]


def test_another_class_is_refused(linear: Coder, tmp_path: Path) -> None:
    linear.save_pretrained(tmp_path)
    with pytest.raises(InvalidInput, match=r"holds a LinearCoder, expected a CellCoder: LinearCoder.from_pretrained"):
        nc.CellCoder.from_pretrained(tmp_path)


def test_modules_of_ones_own_are_given_again(tmp_path: Path) -> None:
    from torch import nn

    def modules() -> dict[str, Any]:
        return {"encoder": nn.Linear(64, 8), "decoder": nn.Linear(8, 64)}

    coder = nc.DeepCoder(width=8, **modules(), training=Training(steps=5, batch_size=8)).fit(data(), progress=False)
    coder.save_pretrained(tmp_path)
    assert Coder.from_pretrained(tmp_path, **modules()).encode(data()) == coder.encode(data())
    with pytest.raises(InvalidInput, match="holds a coder with modules of its own"):
        Coder.from_pretrained(tmp_path)


def test_half_the_digits_are_half_the_bytes(linear: Coder, tmp_path: Path) -> None:
    linear.save_pretrained(tmp_path / "whole")
    linear.save_pretrained(tmp_path / "half", dtype="float16")
    size = {name: (tmp_path / name / "model.safetensors").stat().st_size for name in ("whole", "half")}
    assert size["half"] < 0.8 * size["whole"]
    text = (tmp_path / "half" / "README.md").read_text()
    assert linear.fingerprint not in text  # it is another coder


def test_a_readme_of_another_kind_is_not_replaced(linear: Coder, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("# My project\n")
    with pytest.raises(InvalidInput, match=r"README.md is not a coder's card, and would be replaced: give another"):
        linear.save_pretrained(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]
    assert (tmp_path / "README.md").read_text() == "# My project\n"


def test_a_card_is_replaced(linear: Coder, tmp_path: Path) -> None:
    nc.LinearCoder(width=8).fit(data()).save_pretrained(tmp_path)
    linear.save_pretrained(tmp_path)
    assert linear.fingerprint in (tmp_path / "README.md").read_text()


def test_what_is_not_there_or_damaged_is_named(linear: Coder, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no file .*model.safetensors"):
        Coder.from_pretrained(tmp_path)
    for wrong in ("./no/such/folder", "a b/c"):
        with pytest.raises(InvalidInput, match="expected a folder that save_pretrained wrote or a repository such as"):
            Coder.from_pretrained(wrong)
    linear.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"cut short")
    with pytest.raises(DamagedFile, match="is damaged"):
        Coder.from_pretrained(tmp_path)
    with pytest.raises(NotFitted, match="call fit"):
        nc.LinearCoder(width=8).save_pretrained(tmp_path / "new")
    assert not (tmp_path / "new").exists()


# Cards


def test_a_card_tells_the_error_by_length(coder: Coder, tmp_path: Path) -> None:
    coder.save_pretrained(tmp_path / "digits-small")
    text = (tmp_path / "digits-small" / "README.md").read_text()
    card: Any = huggingface_hub.ModelCard(text)
    assert card.data.library_name == "nestcode"
    rows = re.findall(r"^\| ([\d,]+) \| (\d+) \| (\S+) \| (\S+)% \|$", text, flags=re.MULTILINE)
    assert [int(row[0]) for row in rows] == [0, 8, *([16] if coder.width > 16 else []), coder.width]
    for length, size, error, part in rows:
        assert int(size) == -(-int(length) // 8)
        assert float(error) == pytest.approx(coder.expected_error(int(length)), rel=1e-3)
        assert float(part) == pytest.approx(100 * coder.expected_error(int(length)) / coder.expected_error(0), abs=0.01)
    assert ("torch" in text) == (type(coder).__name__ == "DeepCoder")


def test_a_cards_example_runs(linear: Coder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    linear.save_pretrained(tmp_path / "digits-small")
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(r"```python\n(.*?)```", Path("digits-small/README.md").read_text(), flags=re.DOTALL)
    names: dict[str, Any] = {"X": data()}
    exec(example, names)
    assert names["hits"].ids.shape == (5, 10)
    assert names["X_hat"].shape == names["X"].shape


def test_a_card_of_data_without_variance(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="the data carries 0 useful bits"):
        coder = nc.LinearCoder(width=2).fit(np.ones((5, 3)))
    coder.save_pretrained(tmp_path)
    assert "| 2 | 1 | 0 | – |" in (tmp_path / "README.md").read_text()


# Repositories


@pytest.fixture
def pushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What a hub that is a folder was told."""
    told: dict[str, Any] = {"folder": tmp_path / "hub"}

    def create_repo(self: Any, repo_id: str, **settings: Any) -> Any:
        told["token"], told["create"] = self.token, settings
        return SimpleNamespace(repo_id=repo_id if "/" in repo_id else f"me/{repo_id}")

    def upload_folder(_: Any, *, repo_id: str, folder_path: str, commit_message: str) -> str:
        told["message"] = commit_message
        shutil.copytree(folder_path, told["folder"] / repo_id)
        return f"https://huggingface.co/{repo_id}/commit/1"

    monkeypatch.setattr(huggingface_hub.HfApi, "create_repo", create_repo)
    monkeypatch.setattr(huggingface_hub.HfApi, "upload_folder", upload_folder)
    return told


def test_what_is_pushed_is_the_coder(coder: Coder, pushed: dict[str, Any]) -> None:
    address = coder.push_to_hub("digits", private=True, commit_message="Better bits", token="hf_secret")
    assert address == "https://huggingface.co/me/digits/commit/1"
    assert pushed["create"] == {"private": True, "exist_ok": True}
    assert (pushed["message"], pushed["token"]) == ("Better bits", "hf_secret")
    folder = pushed["folder"] / "me/digits"
    assert Coder.from_pretrained(folder).fingerprint == coder.fingerprint
    assert 'Coder.from_pretrained("me/digits")' in (folder / "README.md").read_text()
    assert "hf_secret" not in (folder / "README.md").read_text()


def test_no_repository_is_made_for_what_is_not_fitted(pushed: dict[str, Any]) -> None:
    with pytest.raises(NotFitted, match="call fit"):
        nc.LinearCoder(width=8).push_to_hub("digits")
    assert set(pushed) == {"folder"}


def test_a_repository_is_read_through_the_cache_without_a_network(linear: Coder, tmp_path: Path) -> None:
    """huggingface-hub's own layout of its cache, read by itself in a process of its own."""
    repository = tmp_path / "hub" / "models--me--digits"
    linear.save_pretrained(repository / "snapshots" / ("0" * 40))
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0" * 40)
    source = "from nestcode import Coder; print(Coder.from_pretrained('me/digits').fingerprint)"
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    run = subprocess.run([sys.executable, "-c", source], env=environment, capture_output=True, text=True, check=False)
    assert run.stdout.strip() == linear.fingerprint, run.stderr


def test_revision_and_token_are_passed_on(linear: Coder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    linear.save_pretrained(tmp_path)
    asked: dict[str, Any] = {}

    def download(repo_id: str, name: str, **settings: Any) -> str:
        asked.update(settings, repo_id=repo_id)
        return str(tmp_path / name)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    assert Coder.from_pretrained("me/digits", revision="v2", token="hf_x").fingerprint == linear.fingerprint
    assert asked == {"repo_id": "me/digits", "revision": "v2", "token": "hf_x", "library_name": "nestcode"}


def test_repositories_without_a_coder_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> str:
        raise error

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fail)
    error: Exception = RemoteEntryNotFoundError.__new__(RemoteEntryNotFoundError)
    with pytest.raises(InvalidInput, match=r"me/digits holds no model.safetensors: give a repository that push_to_hub"):
        Coder.from_pretrained("me/digits")
    error = LocalEntryNotFoundError("no network")
    with pytest.raises(LocalEntryNotFoundError, match="no network"):
        Coder.from_pretrained("me/digits")


def test_the_extra_is_named_and_folders_do_not_need_it(linear: Coder, tmp_path: Path) -> None:
    linear.save_pretrained(tmp_path)
    source = f"""
import sys
sys.modules["huggingface_hub"] = None
from nestcode import Coder
from nestcode.errors import MissingExtra
coder = Coder.from_pretrained({str(tmp_path)!r})
for use in (coder.push_to_hub, Coder.from_pretrained):
    try:
        use("me/digits")
    except MissingExtra as error:
        print(error)
"""
    run = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=False)
    needs = "needs huggingface_hub, which is not installed: pip install 'nestcode[hub]'"
    assert run.stdout == f"push_to_hub {needs}\nfrom_pretrained with a repository {needs}\n", run.stderr


def test_the_hub_is_not_imported_before_it_is_asked_for(linear: Coder, tmp_path: Path) -> None:
    linear.save_pretrained(tmp_path)
    source = f"""
import sys
from nestcode import Coder
Coder.from_pretrained({str(tmp_path)!r}).save_pretrained({str(tmp_path / "again")!r})
print("huggingface_hub" in sys.modules)
"""
    run = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=False)
    assert run.stdout == "False\n", run.stderr


def test_a_file_is_loaded_and_a_bare_name_is_no_repository(linear: Coder, tmp_path: Path) -> None:
    linear.save(tmp_path / "my.coder")
    assert Coder.from_pretrained(tmp_path / "my.coder").fingerprint == linear.fingerprint
    with pytest.raises(InvalidInput, match="there is no folder nowhere, and a repository is named as in 'user/name'"):
        Coder.from_pretrained("nowhere")
