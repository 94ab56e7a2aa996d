"""Modules for benchmark harnesses, loaded as the harness loads them."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


class BaseANN:
    """A stand-in for the harness's base class."""


def load_algorithm(monkeypatch: pytest.MonkeyPatch, harness: str, folder: Path) -> ModuleType:
    """Return the module of a folder, as `HARNESS.algorithms.nestcode.module` beside a stand-in of the harness."""
    algorithms = f"{harness}.algorithms"
    for name in (harness, algorithms, f"{algorithms}.base", f"{algorithms}.nestcode"):
        package = ModuleType(name)
        package.__path__ = []
        monkeypatch.setitem(sys.modules, name, package)
    base: Any = ModuleType(f"{algorithms}.base.module")
    base.BaseANN = BaseANN
    monkeypatch.setitem(sys.modules, f"{algorithms}.base.module", base)
    spec = importlib.util.spec_from_file_location(f"{algorithms}.nestcode.module", folder / "module.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
