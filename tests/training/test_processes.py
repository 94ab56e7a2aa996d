"""Two processes that share a batch give the model of one that works it off in two parts."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from tests.training.runs import KINDS, assert_same, learn, settings, state

pytestmark = pytest.mark.skipif(not dist.is_available(), reason="this PyTorch was built without torch.distributed")

# Starting two processes takes longer than what they learn, so they learn one run after the other.
WORK = """
import os, sys, torch
torch.set_num_threads(1)
from tests.training.runs import Digits, interrupt, learn, settings, state
at, *names = sys.argv[1:]
mine = int(at) if os.environ["RANK"] == "0" else 0
if len(names) > 1:  # a group of processes that was left cannot be joined again, so all runs are in one
    torch.distributed.init_process_group("gloo")
for name in names:
    source, checkpoint = Digits(interrupt(), mine, rows=25), f"{name}.ckpt"
    model, _ = learn(settings(name.removesuffix("-stopped")), source, checkpoint=checkpoint, resume=True)
    torch.save(state(model), f"{checkpoint}.{os.environ['RANK']}")
if len(names) > 1:
    torch.distributed.destroy_process_group()
"""


def torchrun(folder: Path, *names: str, interrupted_at: int = 0) -> subprocess.CompletedProcess[str]:
    script = folder / "work.py"
    script.write_text(WORK)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)]
    return subprocess.run(
        [*command, str(interrupted_at), *names], capture_output=True, text=True, check=False, cwd=folder,
        timeout=300, env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


@dataclass(frozen=True)
class Runs:
    """One of two processes interrupted, then all kinds and the interrupted run once more."""

    folder: Path
    stopped: subprocess.CompletedProcess[str]
    left: set[str]  # the files after it
    finished: subprocess.CompletedProcess[str]

    def state(self, name: str, rank: int) -> dict[str, torch.Tensor]:
        found: dict[str, torch.Tensor] = torch.load(self.folder / f"{name}.ckpt.{rank}")
        return found


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    folder = tmp_path_factory.mktemp("processes")
    stopped = torchrun(folder, "adam-stopped", interrupted_at=7)
    left = {path.name for path in folder.glob("*.ckpt*")}
    return Runs(folder, stopped, left, torchrun(folder, *KINDS, "adam-stopped"))


def alone(kind: str) -> dict[str, torch.Tensor]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return state(learn(settings(kind).but(parts=2))[0])
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("kind", KINDS)
def test_two_processes_give_the_model_of_one_with_the_doubled_batch(kind: str, runs: Runs) -> None:
    assert runs.finished.returncode == 0, runs.finished.stderr
    first, second = (runs.state(kind, rank) for rank in range(2))
    assert_same(first, second)
    assert_same(first, alone(kind))
    assert (runs.folder / f"{kind}.ckpt").exists()


def test_one_of_two_is_interrupted_in_the_middle_of_a_step_and_both_stop(runs: Runs) -> None:
    assert runs.stopped.returncode != 0
    assert runs.left == {"adam-stopped.ckpt"}  # and the state of neither
    assert runs.finished.returncode == 0, runs.finished.stderr
    assert_same(runs.state("adam-stopped", 1), alone("adam"))
