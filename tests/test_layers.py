"""The layers of docs/architecture.md hold: nothing imports from above it."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def lint_imports(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-logo", "--no-cache", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_each_layer_imports_only_from_those_below_it() -> None:
    run = lint_imports()
    assert run.returncode == 0, run.stdout


def test_the_test_notices_a_broken_layer(tmp_path: Path) -> None:
    config = tmp_path / "upside_down.toml"
    config.write_text("""
        [tool.importlinter]
        root_package = "nestcode"
        [[tool.importlinter.contracts]]
        name = "upside down"
        type = "layers"
        layers = ["nestcode.errors", "nestcode.codes"]
    """)
    run = lint_imports("--config", str(config))
    assert run.returncode == 1, run.stdout
    assert "nestcode.codes is not allowed to import nestcode.errors" in run.stdout
