"""What the README and the pages show runs, page by page, as a reader would type it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from nestcode.cli.app import app

ROOT = Path(__file__).parents[2]
COMMANDS = get_command(app).commands  # type: ignore[attr-defined]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# Python blocks, and commands that <!-- run --> stands before.
BLOCK = re.compile(r"^```(python)\n(.*?)^```|^<!-- run -->\n```(bash)\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)


def blocks_of(text: str) -> list[tuple[str, str]]:
    """The language and the text of each block that is to run."""
    return [(found[1] or found[3], found[2] or found[4]) for found in BLOCK.finditer(text)]


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", [page for page in PAGES if blocks_of(page.read_text())], ids=name_of)
def test_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All blocks of a page in order: Python in one namespace, commands in the same folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    namespace: dict[str, object] = {"__name__": "__main__"}
    for language, block in blocks_of(page.read_text()):
        if language == "python":
            exec(compile(block, name_of(page), "exec"), namespace)
        else:
            run = subprocess.run(["bash", "-euo", "pipefail", "-c", block], capture_output=True, text=True, check=False)
            assert run.returncode == 0, run.stderr


def test_blocks_are_found() -> None:
    text = "```python\n1 / 0\n```\n\n```bash\nnot run\n```\n\n<!-- run -->\n```bash\nfalse\n```\n"
    assert blocks_of(text) == [("python", "1 / 0\n"), ("bash", "false\n")]
    assert len([page for page in PAGES if blocks_of(page.read_text())]) > 10


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_what_a_page_names_exists(page: Path) -> None:
    """Targets of make, scripts and commands."""
    text = page.read_text()
    makefile = (ROOT / "Makefile").read_text()
    for target in set(re.findall(r"`make ([a-z-]+)|^make ([a-z-]+)", text, flags=re.MULTILINE)):
        assert re.search(rf"^{max(target)}:", makefile, flags=re.MULTILINE), target
    for script in set(re.findall(r"(?:benchmarks|examples|docs)/\w+\.py", text)):
        assert (ROOT / script).exists(), script
    for command in set(re.findall(r"(?:^|`)nestcode ([a-z][a-z-]+)", text, flags=re.MULTILINE)):
        assert command in COMMANDS, command
