"""Public names: they exist, are documented and have an example that runs (the doctests run with these tests)."""

import importlib
import inspect
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = ["", ".coders", ".coders.deep", ".data", ".errors", ".lengths", ".nn", ".report", ".streams", ".training"]


def public_objects() -> list[tuple[str, object]]:
    found = []
    for module_name in (f"nestcode{name}" for name in MODULES):
        module = importlib.import_module(module_name)
        names = getattr(module, "__all__", None) or [
            name for name, value in vars(module).items() if getattr(value, "__module__", "") == module_name
        ]
        found += [(f"{module_name}.{name}", getattr(module, name)) for name in names if not name.startswith("_")]
    return found


@pytest.mark.parametrize(("name", "value"), public_objects(), ids=[name for name, _ in public_objects()])
def test_public_names_are_documented_with_an_example(name: str, value: object) -> None:
    documentation = inspect.getdoc(value) or ""
    assert documentation
    if inspect.ismodule(value) or (inspect.isclass(value) and issubclass(value, Exception)):
        return  # a package's names are checked themselves; the tree of errors has one example for all
    assert ">>>" in documentation, f"{name} has no example"


def test_everything_public_is_exported() -> None:
    import nestcode

    assert {*nestcode.__all__, "nn", "training", "DeepCoder"} == {*nestcode._HOMES, "__version__"} == set(dir(nestcode))
    for name in dir(nestcode):
        assert getattr(nestcode, name) is not None


def test_the_readmes_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All Python blocks, in order, in one namespace: what a reader types while reading."""
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    assert blocks
    namespace: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), namespace)


def test_commands_the_readme_names_exist() -> None:
    readme = (ROOT / "README.md").read_text()
    makefile = (ROOT / "Makefile").read_text()
    for target in set(re.findall(r"make ([a-z-]+)", readme)):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target
    for script in set(re.findall(r"(?:benchmarks|examples)/\w+\.py", readme)):
        assert (ROOT / script).exists(), script


def test_the_repository_reads_well() -> None:
    """Modules stay short enough to read in one go."""
    long = [path.name for path in (ROOT / "src").rglob("*.py") if len(path.read_text().splitlines()) > 300]
    assert long == []
