"""Two processes that share a batch give the model of one that works it off in two parts."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from tests.training.runs import KINDS, assert_same, learn, settings, state

pytestmark = pytest.mark.skipif(not dist.is_available(), reason="this PyTorch was built without torch.distributed")

WORK = """
import os, sys, torch
torch.set_num_threads(1)
from tests.training.runs import Digits, interrupt, learn, settings, state
kind, checkpoint, at = sys.argv[1:]
mine = int(at) if os.environ["RANK"] == "0" else 0
model, _ = learn(settings(kind), Digits(interrupt(), mine, rows=25), checkpoint=checkpoint, resume=True)
torch.save(state(model), f"{checkpoint}.{os.environ['RANK']}")
"""


def torchrun(folder: Path, kind: str, interrupted_at: int = 0) -> subprocess.CompletedProcess[str]:
    script = folder / "work.py"
    script.write_text(WORK)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)]
    return subprocess.run(
        [*command, kind, str(folder / "run.ckpt"), str(interrupted_at)], capture_output=True, text=True, check=False,
        timeout=300, env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def alone(kind: str) -> dict[str, torch.Tensor]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return state(learn(settings(kind).but(parts=2))[0])
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("kind", KINDS)
def test_two_processes_give_the_model_of_one_with_the_doubled_batch(kind: str, tmp_path: Path) -> None:
    run = torchrun(tmp_path, kind)
    assert run.returncode == 0, run.stderr
    first, second = (torch.load(tmp_path / f"run.ckpt.{rank}") for rank in range(2))
    assert_same(first, second)
    assert_same(first, alone(kind))
    assert (tmp_path / "run.ckpt").exists()


def test_one_of_two_is_interrupted_in_the_middle_of_a_step_and_both_stop(tmp_path: Path) -> None:
    assert torchrun(tmp_path, "adam", interrupted_at=7).returncode != 0
    assert (tmp_path / "run.ckpt").exists()
    assert not (tmp_path / "run.ckpt.1").exists()
    run = torchrun(tmp_path, "adam")
    assert run.returncode == 0, run.stderr
    assert_same(torch.load(tmp_path / "run.ckpt.1"), alone("adam"))
