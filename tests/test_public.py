"""Public names: they exist, are documented and have an example that runs (the doctests run with these tests)."""

import importlib
import inspect

import pytest

MODULES = [
    "", ".coders", ".coders.autoencoder", ".coders.refined", ".coders.supervised", ".data", ".errors",
    ".integrations.arrow", ".integrations.faiss",
    ".integrations.langchain", ".lengths", ".nn", ".report", ".streams", ".training",
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
    if inspect.ismodule(value) or (inspect.isclass(value) and issubclass(value, Exception)):
        return  # a package's names are checked themselves; the tree of errors has one example for all
    assert ">>>" in documentation, f"{name} has no example"


def test_everything_public_is_exported() -> None:
    import nestcode

    extras = {"nn", "training", "AutoencoderCoder", "RefinedCoder", "SupervisedCoder"}
    assert {*nestcode.__all__} | extras == {*nestcode._HOMES, "__version__"} == set(dir(nestcode))
    for name in dir(nestcode):
        assert getattr(nestcode, name) is not None
