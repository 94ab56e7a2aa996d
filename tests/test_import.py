"""`import nestcode` loads no heavy package, and these tests would notice if it did."""

import subprocess
import sys
from pathlib import Path

import pytest

import nestcode

# What must work without the extras.
TORCH_FREE = """
import nestcode as nc, numpy as np
from nestcode import lengths, errors, metrics, search, simulate
from nestcode.cli.app import app
from nestcode.integrations import faiss, hub
codes = nc.Codes.from_bits(np.eye(9, dtype=bool))
assert codes.hamming(codes).max() == 2
assert lengths.Uniform().mean(4) == 2.5
"""
FORBID = """
import sys
class Forbidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Forbidden())
"""


def python(source: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=False)


def heavy_modules(source: str) -> set[str]:
    """Return the heavy packages that are loaded after `source` ran in a new process."""
    heavy = {"torch", "sklearn", "matplotlib", "numpy"}
    run = python(f"{source}\nimport sys; print(*{heavy} & {{name.partition('.')[0] for name in sys.modules}})")
    assert run.returncode == 0, run.stderr
    return set(run.stdout.split())


def test_import_loads_no_heavy_package() -> None:
    assert heavy_modules("import nestcode") == set()


def test_the_core_runs_without_torch() -> None:
    assert heavy_modules(TORCH_FREE) == {"numpy"}
    run = python(FORBID.format(names={"torch", "sklearn", "matplotlib", "PIL"}) + TORCH_FREE)
    assert run.returncode == 0, run.stderr


def test_a_big_endian_machine_is_refused_by_name() -> None:
    run = python("import sys; sys.byteorder = 'big'; import nestcode")
    assert "ImportError: Nestcode needs a little-endian machine" in run.stderr


def test_the_test_notices_torch() -> None:
    assert heavy_modules("import nestcode; nestcode.nn") == {"numpy", "torch"}
    assert python(FORBID.format(names={"torch"}) + "import torch").returncode != 0


def test_a_missing_extra_is_named_with_the_pip_command() -> None:
    run = python(FORBID.format(names={"torch"}) + "import nestcode.nn")
    assert "MissingExtra" in run.stderr
    assert "nestcode.nn needs torch, which is not installed: pip install 'nestcode[torch]'" in run.stderr
    run = python(
        FORBID.format(names={"torch"}) + "import nestcode; print(hasattr(nestcode, 'nn')); from nestcode import *"
    )
    assert (run.stdout, run.returncode) == ("False\n", 0), run.stderr
    run = python(FORBID.format(names={"sklearn"}) + "import nestcode; nestcode.data.digits()")
    assert "pip install 'nestcode[sklearn]'" in run.stderr


def test_a_broken_dependency_raises_its_own_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_package.py").write_text("import a_module_that_is_not_there")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="a_module_that_is_not_there"):
        nestcode.errors.import_extra("broken_package", extra="torch", purpose="this test")


def test_unknown_names_raise_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'nestcode' has no attribute 'Coeds'"):
        nestcode.Coeds  # type: ignore[attr-defined]  # noqa: B018
