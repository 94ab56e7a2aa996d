"""Public names exist, are documented and have an example; `pytest src` runs the examples."""

import importlib
import inspect
import re
import runpy
from pathlib import Path

import pytest

import nestcode
from nestcode import coders

STUB = Path(f"{nestcode.__file__}i").read_text()
MODULES = [
    "", ".client", ".coders", ".coders.autoencoder", ".coders.refined", ".coders.supervised", ".data", ".errors",
    ".images", ".index", ".integrations.arrow", ".integrations.faiss", ".integrations.haystack", ".integrations.hub",
    ".integrations.langchain", ".integrations.llama_index", ".integrations.sklearn", ".lengths", ".metrics", ".nn",
    ".scale", ".search", ".serve", ".simulate", ".stores", ".stores.lmdb", ".stores.postgres", ".streams",
    ".training",
]  # fmt: skip


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
    if getattr(value, "__module__", "") == "nestcode._core":
        return  # a class of C++, shown by the examples of what returns it
    if inspect.ismodule(value) or (inspect.isclass(value) and issubclass(value, Exception)):
        return  # the names of a module are tested themselves; one example serves all errors
    assert ">>>" in documentation, f"{name} has no example"


def test_every_public_name_has_a_user(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["surface.py"])
    runpy.run_path(str(Path(__file__).parents[1] / "tools" / "surface.py"), run_name="__main__")
    *idle, total = capsys.readouterr().out.splitlines()
    assert total.endswith("public names")
    assert idle == [], "remove these names, or show on a page who needs them"


def test_everything_public_is_exported() -> None:
    """The stub is the list; `from nestcode import *` works without PyTorch."""
    extras = {"nn", "training", "AutoencoderCoder", "ImplicitCoder", "RefinedCoder", "SupervisedCoder"}
    names = re.findall(r"import (\w+) as \1", STUB)
    assert dir(nestcode) == sorted([*names, "__version__"])
    assert set(names) - extras == {*nestcode.__all__} - {"__version__"}
    for name in names:
        assert getattr(nestcode, name) is not None


def test_the_coders_of_the_stub_are_those_that_load_coder_knows() -> None:
    """The stub is static and `load_coder` has classes: a coder that is added to one alone would be half public."""
    marked = re.findall(r"from nestcode\.coders import (\w*Coder) as \w+(  # PyTorch)?", STUB)
    assert {name for name, torch in marked if torch} == coders._TORCH
    assert {name for name, torch in marked if not torch} == {*coders._NUMPY, "Coder"}


def test_signatures_are_readable_in_help() -> None:
    """Annotations stay names: NumPy's ArrayLike would be spelled out over many lines."""
    for name in nestcode.__all__:
        value = getattr(nestcode, name)
        members = dict(inspect.getmembers(value, inspect.isfunction)) if inspect.isclass(value) else {"": value}
        for member, function in members.items():
            if callable(function) and (member == "__init__" or not member.startswith("_")):
                assert "numpy._typing" not in str(inspect.signature(function)), f"{name}.{member}"
