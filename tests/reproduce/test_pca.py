"""`python -m nestcode.reproduce.pca` runs on small data and writes what it says."""

import json
import subprocess
import sys
from pathlib import Path

from tests.data.test_cifar10 import write_small_cifar10


def test_it_prints_tables_and_writes_a_page(tmp_path: Path) -> None:
    write_small_cifar10(tmp_path / "data")
    source = (
        "import sys; from nestcode.data import cifar10 as module; from tests.data.test_cifar10 import small_sums\n"
        "module_ = sys.modules['nestcode.data.cifar10']; module_.SHA256.update(small_sums())\n"
        "from nestcode.reproduce import pca; from nestcode.nn import semilinear\n"
        "pca.WIDTH = 4; semilinear._STEPS.update(exact=200, sampled=200)  # few units are learnt soon\n"
        f"sys.argv = ['pca', '--quick', '--data', {str(tmp_path / 'data')!r}, '--out', {str(tmp_path / 'out')!r}]\n"
        "pca.main()"
    )
    run = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2]
    )
    assert run.returncode == 0, run.stderr
    assert "Reach on CIFAR-10" in run.stdout
    written = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert written == ["index.html", "pca.json", "reach.png", "sweeping.png", "t.png"]
    numbers = json.loads((tmp_path / "out" / "pca.json").read_text())
    assert numbers["permutations that commute"] == 0
    by_name = {row["model"]: row for row in numbers["theorems"]}
    assert by_name["nested, exact loss"]["1 - smallest |cos|"] < 1e-4
    assert by_name["ordinary"]["1 - smallest |cos|"] > 0.1
    assert max(row["1 - |cos| of these"] for row in numbers["reach"]) < 1e-6
