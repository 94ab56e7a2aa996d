"""The packages of docs/architecture.md: none imports from one above it, nor uses the private names of another."""

import ast
import os
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.conftest import SLOW

ROOT = Path(__file__).parents[1]


def lint_imports(*arguments: str, path: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-logo", "--no-cache", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(path)}
    return subprocess.run(command, cwd=path, env=environment, capture_output=True, text=True, check=False)


def test_each_package_imports_only_from_packages_below_it() -> None:
    run = lint_imports()
    assert run.returncode == 0, run.stdout


@pytest.mark.parametrize(
    "source",
    [
        "from house import roof",
        "def lazy():\n    from house.roof import tile",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from house.roof import tile",
    ],
    ids=["plain", "lazy", "type checking"],
)
def test_the_linter_notices_every_kind_of_import(source: str, tmp_path: Path) -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    assert set(settings) == {"root_package", "include_external_packages", "contracts"}  # nothing is excluded
    package = tmp_path / "house"
    package.mkdir()
    for name, text in {"__init__": "", "roof": "tile = 1", "cellar": source}.items():
        (package / f"{name}.py").write_text(f"{text}\n")
    (tmp_path / "house.toml").write_text("""
        [tool.importlinter]
        root_package = "house"
        [[tool.importlinter.contracts]]
        name = "from top to bottom"
        type = "layers"
        layers = ["house.roof", "house.cellar"]
    """)
    run = lint_imports("--config", "house.toml", path=tmp_path)
    assert run.returncode == 1, run.stdout
    assert "house.cellar is not allowed to import house.roof" in run.stdout


def package(module: str) -> str:
    """Return the package of a module: nestcode.coders for nestcode.coders.linear.model.

    >>> package("nestcode.coders.linear.model"), package("benchmarks.search")
    ('nestcode.coders', 'benchmarks')
    """
    parts = module.split(".")
    return ".".join(parts[: 2 if parts[0] == "nestcode" else 1])


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def defined(tree: ast.Module) -> set[str]:
    """Return the names that a module defines: functions, classes, variables, attributes, parameters."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
    return names


def foreign_names(modules: dict[str, str]) -> Iterator[str]:
    """Yield every use of another package's private name, given the sources of modules.

    Imports count wherever they stand: at the top, in functions, under TYPE_CHECKING. So does `other._name`, if no
    module of the package defines `_name`; `self._name` may be inherited.
    """
    trees = {module: ast.parse(source) for module, source in modules.items()}
    own: dict[str, set[str]] = defaultdict(set)
    for module, tree in trees.items():
        own[package(module)] |= defined(tree)
    for module, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                used = [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Import):
                used = [alias.name for alias in node.names]
            elif isinstance(node, ast.Attribute) and is_private(node.attr) and node.attr not in own[package(module)]:
                inherited = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
                used = [] if inherited else [f"nestcode.?.{node.attr}"]
            else:
                continue
            for name in used:
                private = any(map(is_private, name.split("."))) and not name.startswith("nestcode._core")
                if private and name.startswith("nestcode.") and package(name) != package(module):
                    yield f"{module}:{node.lineno} uses {name}"


def sources(*folders: str) -> dict[str, str]:
    """Return the sources of all modules in folders by module name."""
    found = {}
    for folder in folders:
        for path in (ROOT / folder).rglob("*.py"):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            found[name.removeprefix("src.").removesuffix(".__init__")] = path.read_text()
    return found


STANDARD = {"_asdict", "_exit", "_replace"}  # private in name only: namedtuple and os


def test_no_package_uses_private_names_of_another() -> None:
    used = foreign_names(sources("src", "benchmarks", "examples", "docs"))
    assert [use for use in used if use.rpartition(".")[2] not in STANDARD] == []


@pytest.mark.parametrize(
    "source",
    [
        "from nestcode.codes import _wrap",
        "from nestcode.codes._packing import wrap",
        "import nestcode.codes._packing",
        "def lazy():\n    from nestcode.codes import _wrap",
        "if TYPE_CHECKING:\n    from nestcode.codes import _Wrapped",
        "def use(codes):\n    return codes._wrap()",
        "import nestcode\nnestcode._HOMES",
    ],
)
def test_the_test_notices_private_names(source: str) -> None:
    assert len(list(foreign_names({"nestcode.index.tree": source, "nestcode.codes": "def _wrap(): ..."}))) == 1


def test_private_names_are_free_within_a_package() -> None:
    modules = {
        "nestcode.index.tree": "from nestcode.index.segment import _part\nfrom nestcode import _core\nself._inherited",
        "nestcode.index.segment": "def _part(x):\n    x._seen = 1",
        "nestcode.index.store": "def use(x):\n    return x._seen",
    }
    assert list(foreign_names(modules)) == []


def test_only_the_top_packages_import_nestcode_itself() -> None:
    """Its lazy names would hide from the linter which package they come from."""
    import nestcode

    top = {"nestcode.cli", "nestcode.demo", "nestcode.reproduce", "nestcode.serve"}
    found = [
        f"{module}:{node.lineno}"
        for module, source in sources("src").items()
        for node in ast.walk(ast.parse(source))
        if package(module) not in {*top, "nestcode"}
        and (
            (isinstance(node, ast.Import) and any(alias.name == "nestcode" for alias in node.names))
            or (
                isinstance(node, ast.ImportFrom)
                and node.module == "nestcode"
                and any(not isinstance(getattr(nestcode, alias.name, None), ModuleType) and alias.name != "_core"
                        for alias in node.names)
            )
        )
    ]  # fmt: skip
    assert found == []


def test_files_that_the_quick_tests_leave_out_exist() -> None:
    assert [path for path in SLOW if not path.exists()] == []
