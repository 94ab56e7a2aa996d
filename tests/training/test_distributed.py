"""Two processes that share a batch give the model of one process with two micro-batches."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from tests.training.runs import KINDS, assert_same, learn, settings, state

pytestmark = pytest.mark.skipif(not dist.is_available(), reason="this PyTorch was built without torch.distributed")

STOPPED = 8  # one step after the signal, when all processes have heard of it

# Starting two processes takes longer than training in them, so they train one run after the other.
WORK = """
import os, sys, torch
torch.set_num_threads(1)
from tests.training.runs import Digits, interrupt, learn, settings, state
rank, kinds = int(os.environ["RANK"]), sys.argv[1:]


def train(kind, name, interrupted_at=0):
    source = Digits(interrupt(), interrupted_at, rows=25)
    return state(learn(settings(kind), source, checkpoint=f"{name}.ckpt", resume=True)[0])


try:  # the run joins and leaves the group by itself
    train("adam", "stopped", interrupted_at=7 if rank == 0 else 0)
except KeyboardInterrupt as error:
    open(f"interrupted.{rank}", "w").write(str(error))
torch.distributed.init_process_group("gloo", init_method=f"file://{os.getcwd()}/store", rank=rank, world_size=2)
for kind in kinds:
    torch.save(train(kind, kind), f"{kind}.{rank}")
torch.save(train("adam", "stopped"), f"stopped.{rank}")
torch.distributed.barrier()
torch.distributed.destroy_process_group()
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train all kinds in two processes, with the environment that torchrun gives them."""
    folder = tmp_path_factory.mktemp("processes")
    script = folder / "work.py"
    script.write_text(WORK)
    shared = {
        **os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1", "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()),
    }  # fmt: skip
    processes = [
        subprocess.Popen(
            [sys.executable, str(script), *KINDS], cwd=folder, stderr=subprocess.PIPE, text=True,
            env={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        for process in processes:
            _, errors = process.communicate(timeout=300)
            assert process.returncode == 0, errors
    finally:
        for process in processes:
            process.kill()
    return folder


def alone(kind: str) -> dict[str, torch.Tensor]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return state(learn(settings(kind).but(micro_batches=2))[0])
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("kind", KINDS)
def test_two_processes_give_the_model_of_one_with_two_micro_batches(kind: str, runs: Path) -> None:
    first, second = (torch.load(runs / f"{kind}.{rank}") for rank in range(2))
    assert_same(first, second)
    assert_same(first, alone(kind))
    assert (runs / f"{kind}.ckpt").exists()


def test_both_processes_stop_when_one_is_interrupted_and_resume_bit_for_bit(runs: Path) -> None:
    messages = [(runs / f"interrupted.{rank}").read_text() for rank in range(2)]
    assert messages == [f"stopped after step {STOPPED}: resume from stopped.ckpt"] * 2
    assert_same(torch.load(runs / "stopped.1"), alone("adam"))
