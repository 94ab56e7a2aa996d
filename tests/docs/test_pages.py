"""The snippets of the README and of the pages run, their comments are true, and what pages name exists."""

import os
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.main import get_command

from nestcode.cli.app import app
from nestcode.cli.reproduce import Name as Experiment
from tests.cli.running import nestcode_command
from tests.docs import statements
from tests.docs.blocks import ON_RAY, blocks_of, first_lines_of

ROOT = Path(__file__).parents[2]
COMMANDS = get_command(app).commands  # type: ignore[attr-defined]
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def commands_of(text: str) -> Iterator[list[str]]:
    """Yield the words of each command line: lines of shell blocks, and inline code."""
    shells = re.findall(r"^```(?:bash|sh)\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    lines = [line.split("#")[0] for shell in shells for line in shell.splitlines()]
    for line in [*lines, *re.findall(r"`([^`]+)`", prose)]:
        if words := line.split():
            yield words


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize(
    "page", [page for page in PAGES if blocks_of(page.read_text()) and page.name not in ON_RAY], ids=name_of
)
def test_snippets_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All blocks of a page in order: Python in one namespace, commands in the same folder.

    What comments state must be true; `statements.py` has the rule by which a comment states a value.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    torch.manual_seed(0)  # snippets that train a network take the default generator
    namespace: dict[str, object] = {"__name__": "__main__"}
    text, false = page.read_text(), []
    for (language, block), line in zip(blocks_of(text), first_lines_of(text), strict=True):
        if language == "python":
            false += statements.run(block, namespace, name_of(page), line)
        else:
            for command in block.splitlines():
                run_command(command)
    assert false == []


def run_command(line: str) -> None:
    """Run a command line: Nestcode's and Python's in this process, which has imported what they would import."""
    words = shlex.split(line)
    if words[0] == "python":
        runpy.run_path(words[1], run_name="__main__")
        return
    if words[0] == "nestcode":
        run = nestcode_command(*words[1:])
    else:
        run = subprocess.run(["bash", "-euo", "pipefail", "-c", line], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("line", ["false", "false | true", "python no.py", "nestcode fit no.npy -o no.coder"])
def test_a_command_that_fails_is_noticed(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises((AssertionError, FileNotFoundError)):
        run_command(line)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_value_hides_in_the_words_of_a_comment(page: Path) -> None:
    snippets = [block for language, block in blocks_of(page.read_text()) if language == "python"]
    known = set().union(*map(statements.numbers_of, snippets))
    assert [comment for snippet in snippets for comment in statements.hidden_values(snippet, known)] == []


def test_the_install_line_of_the_readme_has_what_its_search_and_stream_need() -> None:
    page = (ROOT / "README.md").read_text()
    (line,) = re.findall(r"^pip install .*", page, flags=re.MULTILINE)
    snippets = "".join(page.partition("## Nested dropout")[0].split("## Search")[1:])
    assert ("nc.data." in snippets, "sample_images" in snippets) == ("sklearn" in line, "pillow" in line)


def test_blocks_are_found() -> None:
    text = "```python\n1 / 0\n```\n\n```bash\nnot run\n```\n\n<!-- run -->\n```bash\nfalse\n```\n"
    assert blocks_of(text) == [("python", "1 / 0\n"), ("bash", "false\n")]
    assert len([page for page in PAGES if blocks_of(page.read_text())]) > 10


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_names_on_a_page_exist(page: Path) -> None:
    """Files of the repository, commands, targets of make and options."""
    text = page.read_text()
    assert missing_files(text) == set()
    for words in commands_of(text):
        assert unknown_words(words) == set(), " ".join(words)


def missing_files(text: str) -> set[str]:
    """Return the source files that a page names and that do not exist."""
    rooms = "|".join(path.name for path in (ROOT / "src" / "nestcode").iterdir() if path.is_dir())
    named = set(
        re.findall(rf"(?<![\w/.])((?:benchmarks|examples|docs|tests|cpp|{rooms})/[\w/]+\.(?:py|hpp|cpp|md))", text)
    )
    return {name for name in named if not any((root / name).exists() for root in (ROOT, ROOT / "src" / "nestcode"))}


def unknown_words(words: list[str]) -> set[str]:
    """Return the commands, targets and options of a command line that its program does not have."""
    if words[0] == "make":
        return {word for word in words[1:] if re.fullmatch(r"[a-z][a-z-]*", word)} - TARGETS
    options = {word.split("=")[0] for word in words if word.startswith("--")}
    if words[0] == "python" and len(words) > 1 and words[1].startswith("benchmarks/"):
        stem = Path(words[1]).stem
        scripts = [ROOT / words[1], *(ROOT / "benchmarks").glob(f"_{stem}*.py"), ROOT / "benchmarks" / "_report.py"]
        imported = re.findall(r"^from (_\w+) import", scripts[0].read_text(), re.MULTILINE)
        scripts += [ROOT / "benchmarks" / f"{name}.py" for name in imported]
        known = {option for script in scripts for option in re.findall(r"\"(--[a-z-]+)\"", script.read_text())}
        return options - known
    if words[0] != "nestcode" or len(words) < 2 or not re.fullmatch(r"[a-z][a-z-]+", words[1]):
        return set()
    if words[1] not in COMMANDS:
        return {words[1]}
    command: Any = COMMANDS[words[1]]
    inner = getattr(command, "commands", {})
    if len(words) > 2 and words[2] in inner:
        command = inner[words[2]]
    return options - {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}


def test_unknown_words_are_noticed() -> None:
    assert list(commands_of("```bash\nnestcode fit x  # --no\n```\n`nestcode\nfit --odd`")) == [
        ["nestcode", "fit", "x"],
        ["nestcode", "fit", "--odd"],
    ]
    assert unknown_words(["nestcode", "fit", "x.npy", "--width", "64"]) == set()
    assert unknown_words(["nestcode", "fit", "--odd"]) == {"--odd"}
    assert unknown_words(["nestcode", "odd"]) == {"odd"}
    assert unknown_words(["make", "PYTHON=python3.12", "test", "odd"]) == {"odd"}
    assert unknown_words(["python", "benchmarks/bits.py", "--odd"]) == {"--odd"}
    assert missing_files("`search/adc.py` and `benchmarks/odd.py`") == {"benchmarks/odd.py"}


def figures_of(text: str) -> set[str]:
    """Return the thousands and the shares to three places of a page's prose and tables."""
    prose = re.sub(r"^```.*?^```|`[^`]*`|!\[.*?\]", "", text, flags=re.DOTALL | re.MULTILINE)
    return set(re.findall(r"(?<![\d,.])(?:\d{1,3}(?:,\d{3})+|\.\d{3}|\d+\.\d\d)(?![\d,]*\d)", prose))


def test_figures_of_the_readme_and_the_comparison_are_those_of_the_benchmarks() -> None:
    """Pages that quote figures may not drift from the page that has their commands."""
    known = figures_of((ROOT / "docs" / "benchmarks.md").read_text())
    for name in ("README.md", "docs/comparison.md"):
        assert figures_of((ROOT / name).read_text()) - known == set(), name
    assert figures_of("1,917 s, .387, 33.58 dB, `9,999`, 0.5, 12 and 2,048 bits") == {"1,917", ".387", "33.58", "2,048"}


def test_sentences_of_the_paper_lead_to_sections_of_the_report() -> None:
    page, report = ((ROOT / "docs" / name).read_text() for name in ("paper.md", "reproduction/report.html"))
    links = dict(re.findall(r"^\[(\w+)\]: reproduction/report\.html#(\S+)$", page, flags=re.MULTILINE))
    assert set(links) == {name.value for name in Experiment} - {"all", "networks"}
    for name, anchor in links.items():
        assert f"[`{name}`][{name}]" in page
        assert f'id="{anchor}"' in report


def test_the_page_on_the_reproduction_has_the_verdicts_of_its_results() -> None:
    page = ROOT / "docs" / "reproduction.md"
    written = runpy.run_path(str(page.with_suffix(".py")))["written"]
    assert written(page.read_text()) == page.read_text(), "run python docs/reproduction.py"
