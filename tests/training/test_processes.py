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
from tests.training.runs import learn, settings, state
model, _ = learn(settings(sys.argv[1]), checkpoint=sys.argv[2])
torch.save(state(model), f"{sys.argv[2]}.{os.environ['RANK']}")
"""


@pytest.mark.parametrize("kind", KINDS)
def test_two_processes_give_the_model_of_one_with_the_doubled_batch(kind: str, tmp_path: Path) -> None:
    script, checkpoint = tmp_path / "work.py", tmp_path / "run.ckpt"
    script.write_text(WORK)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    run = subprocess.run(
        [*torchrun, str(script), kind, str(checkpoint)], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        alone, _ = learn(settings(kind).but(parts=2))
    finally:
        torch.set_num_threads(threads)
    first, second = (torch.load(f"{checkpoint}.{rank}") for rank in range(2))
    assert_same(first, second)
    assert_same(first, state(alone))
    assert checkpoint.exists()
