"""A missing library is reported with the pip command of its extra; other integrations work without it."""

from pathlib import Path

import pytest

from tests.test_import import FORBID, python

ADAPTER = """
import numpy as np
from nestcode.integrations.faiss import NestedIndex
index = NestedIndex(2)
index.add(np.eye(2))
assert index.search(np.eye(2), 1)[1].ravel().tolist() == [0, 1]
"""


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [
        ("arrow", "pyarrow", "arrow"),
        ("haystack", "haystack", "haystack"),
        ("langchain", "langchain_core", "langchain"),
        ("llama_index", "llama_index.core", "llama-index"),
        ("pillow", "PIL", "pillow"),
        ("sklearn", "sklearn", "sklearn"),
    ],
)
def test_a_missing_library_is_named_with_the_pip_command(module: str, package: str, extra: str) -> None:
    run = python(FORBID.format(names={package.partition(".")[0]}) + f"import nestcode.integrations.{module}")
    expected = (
        f"nestcode.integrations.{module} needs {package}, which is not installed: pip install 'nestcode[{extra}]'"
    )
    assert expected in run.stderr


def test_the_faiss_adapter_needs_numpy_only() -> None:
    run = python(FORBID.format(names={"faiss", "pyarrow", "langchain_core", "torch", "sklearn"}) + ADAPTER)
    assert run.returncode == 0, run.stderr
    run = python(FORBID.format(names={"faiss"}) + ADAPTER + "import nestcode.integrations.faiss as f\nf.to_faiss(0)")
    assert "pip install 'nestcode[faiss]'" in run.stderr


def test_the_named_extras_exist() -> None:
    import tomllib

    extras = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert {"arrow", "faiss", "haystack", "hub", "langchain", "llama-index", "pillow", "sklearn"} <= set(
        extras["optional-dependencies"]
    )
