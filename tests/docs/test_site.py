"""The site builds in strict mode, loads nothing from other hosts, and the repository draws its figures."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from matplotlib.figure import Figure

from nestcode.search import planner
from tests.test_public import public_objects

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def load(name: str) -> ModuleType:
    """Import a script of docs/."""
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def external_resources(html: str) -> list[str]:
    """Return the resources that a page would load from other hosts."""
    return re.findall(r"<(?:script|link|img|iframe)[^>]*(?:src|href)=\"?((?:https?:)?//[^\"\s>]+)", html)


def test_strict_build_loads_nothing_from_other_hosts(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    pages = {path.relative_to(tmp_path).as_posix(): path.read_text() for path in tmp_path.rglob("*.html")}
    assert {name: found for name, page in pages.items() if (found := external_resources(page))} == {}
    assert "nestcode compress" in pages["command-line.html"]
    assert "<code>pca</code>" in pages["reproduction.html"]
    assert "&gt;&gt;&gt;" in pages["api/coders.html"]
    assert "<blockquote>" not in pages["api/coders.html"]  # how Markdown renders an example without fences
    shown = {name for page in pages.values() for name in re.findall(r'id="nestcode\.[\w.]*?(\w+)"', page)}
    public = {name.rpartition(".")[2] for name, value in public_objects() if not isinstance(value, ModuleType)}
    assert public - shown == set()  # every public name has its place in the reference


def test_external_resources_are_noticed() -> None:
    assert external_resources('<script async src="https://a.org/b.js"></script><a href="https://c.org">') == [
        "https://a.org/b.js"
    ]


def test_docstring_examples_are_fenced() -> None:
    fenced = load("hooks").fence("Adds.\n\n>>> 1 + 1\n2\n\nMore:\n\n>>> 3\n3")
    assert fenced == "Adds.\n\n```pycon\n>>> 1 + 1\n2\n```\n\nMore:\n\n```pycon\n>>> 3\n3\n```"


def test_a_page_shows_the_costs_of_the_planner() -> None:
    assert load("hooks").COSTS in (DOCS / "architecture.md").read_text()
    shown = load("hooks").costs()
    constants = {name: value for name, value in vars(planner).items() if name.startswith("NS_")}
    assert len(constants) > 10
    for name, value in constants.items():
        [row] = [line for line in shown.splitlines() if name in re.findall(r"\w+", line.split("|")[1])]
        assert set(re.findall(r"[\d.]+", row.split("|")[2].replace("_", ""))) >= {
            str(number) for number in (value.values() if isinstance(value, dict) else [value])
        }


def test_figures_are_small_and_shown() -> None:
    figures = load("figures").FIGURES
    pages = "".join(page.read_text() for page in DOCS.rglob("*.md"))
    for name in figures:
        assert f"{Path(name).name})" in pages, name
    assert {f"concepts/{page.stem}.png" for page in (DOCS / "concepts").glob("*.md")} < set(figures)
    assert sum((DOCS / name).stat().st_size for name in figures) < 1_000_000


@pytest.mark.parametrize("name", ["lengths", "ordered_bits", "tree", "streams"])
def test_figures_that_take_seconds_are_drawn(name: str) -> None:
    figure = getattr(load("figures"), name)()
    assert isinstance(figure, Figure)
    assert len(figure.axes) == 2
