"""What is released: the sdist builds from its own contents, and the version is stated once."""

import re
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest
from scikit_build_core.build import build_sdist

import nestcode as nc

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the contents of the sdist, in a folder of their own."""
    folder = tmp_path_factory.mktemp("sdist")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        name = build_sdist(str(folder))
    with tarfile.open(folder / name) as archive:
        archive.extractall(folder, filter="data")
    return folder / f"nestcode-{nc.__version__}"


def test_the_sdist_holds_everything_that_its_build_reads(unpacked: Path) -> None:
    """CMake checks the sources; headers are included by files that are there."""
    programs = Path(sys.executable).parent
    command = [f"{programs}/cmake", "-S", f"{unpacked}", "-B", f"{unpacked}/build", "-G", "Ninja"]
    command += [f"-DPython_EXECUTABLE={sys.executable}", f"-DCMAKE_MAKE_PROGRAM={programs}/ninja"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    for source in (unpacked / "cpp").rglob("*.?pp"):
        for header in re.findall(r'#include "(.*)"', source.read_text()):
            assert any((folder / header).exists() for folder in (source.parent, unpacked / "cpp", unpacked)), header
    for module in (ROOT / "src/nestcode").rglob("*.py"):
        assert (unpacked / module.relative_to(ROOT)).exists()


def test_the_sdist_holds_nothing_that_was_built(unpacked: Path) -> None:
    suffixes = {path.suffix for path in unpacked.rglob("*") if "build" not in path.relative_to(unpacked).parts}
    assert not suffixes & {".so", ".pyc", ".o"}


def test_the_version_is_stated_once(unpacked: Path) -> None:
    assert f"\nVersion: {nc.__version__}\n" in (unpacked / "PKG-INFO").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["dynamic"] == ["version"]
    assert not re.search(r"^version:", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    changes = (ROOT / "CHANGELOG.md").read_text()
    newest = re.findall(r"^## (\S+)", changes, re.MULTILINE)[0]
    assert newest in ("Unreleased", nc.__version__)
