"""Two processes that share a batch give the model of one process with two micro-batches."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

from nestcode import AdaptiveCoder, AutoencoderCoder, RefinedCoder, ResidualCoder, SupervisedCoder, load_coder
from nestcode.coders.network import NetworkCoder
from nestcode.coders.refined import MLP
from nestcode.data import digits
from nestcode.training import Training
from tests.training.runs import FITTED, KINDS, STEPS, assert_same, learn, settings, state

pytestmark = pytest.mark.skipif(not dist.is_available(), reason="this PyTorch was built without torch.distributed")

STOPPED = 8  # one step after the signal, when all processes have heard of it

# Starting two processes takes longer than training in them, so they train one run after the other.
WORK = """
import contextlib, os, signal, sys, torch
torch.set_num_threads(1)
from nestcode.cli.app import app
from nestcode.errors import InvalidInput
from tests.training.runs import COMMAND, FITTED, KINDS, STEPS, Digits, interrupt, learn, settings, state
rank = int(os.environ["RANK"])


def train(kind, name, at=0, number=signal.SIGINT):
    source, saved = Digits(interrupt(number), at, rows=25), f"{name}.ckpt"
    return state(learn(settings(kind, steps=STEPS), source, checkpoint=saved, checkpoint_every=5, resume=True)[0])


if sys.argv[1:] == ["die"]:
    train("adam", "killed", 7 if rank else 0, signal.SIGKILL)
try:  # the run joins and leaves the group by itself
    train("adam", "stopped", 0 if rank else 7)
except KeyboardInterrupt as error:
    open(f"interrupted.{rank}", "w").write(str(error))
torch.distributed.init_process_group("gloo", init_method=f"file://{os.getcwd()}/store", rank=rank, world_size=2)
for kind in KINDS:
    torch.save(train(kind, kind), f"{kind}.{rank}")
for name in ("stopped", "killed"):
    torch.save(train("adam", name), f"{name}.{rank}")
for kind, options in FITTED.items():
    with open(f"{kind}.{rank}.txt", "w") as file, contextlib.redirect_stdout(file):
        app([*COMMAND, "--kind", kind, *options, "-o", f"{kind}.coder"], standalone_mode=False)
try:
    learn(settings("adam"), Digits(None, 0).whole()[100 * rank :][:300])
except InvalidInput as error:
    open(f"refused.{rank}", "w").write(str(error))
torch.distributed.barrier()
torch.distributed.destroy_process_group()
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(folder: Path, *arguments: str) -> list[tuple[int, str]]:
    """Run two processes with the environment that torchrun gives them; return their exit statuses and errors."""
    shared = {
        **os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1", "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()),
    }  # fmt: skip
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", WORK, *arguments], cwd=folder, stderr=subprocess.PIPE, text=True,
            env={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        errors = [process.communicate(timeout=1200)[1] for process in processes]
        return [(process.returncode, error) for process, error in zip(processes, errors, strict=True)]
    finally:
        for process in processes:
            process.kill()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train everything in two processes, after one of two that trained before was killed."""
    folder = tmp_path_factory.mktemp("processes")
    X, y = digits()
    np.save(folder / "X.npy", X[:300])
    np.save(folder / "y.npy", y[:300])
    (failed, _), (killed, _) = start(folder, "die")
    assert killed == -signal.SIGKILL
    assert failed > 0  # and does not wait for the other
    for status, errors in start(folder):
        assert status == 0, errors
    return folder


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread, as the processes do: sums of more have another order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@cache
def alone(kind: str) -> dict[str, torch.Tensor]:
    with one_thread():
        return state(learn(settings(kind, steps=STEPS, micro_batches=2))[0])


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


def test_a_run_goes_on_from_its_checkpoint_after_a_process_was_killed(runs: Path) -> None:
    assert_same(torch.load(runs / "killed.0"), alone("adam"))


def whole(kind: str) -> NetworkCoder[Any]:
    """Return the coder that the command line fits, in one process with two micro-batches."""
    changes, (X, y) = {"seed": 0, "steps": STEPS, "micro_batches": 2}, digits()
    if kind == "refined":
        bases = AdaptiveCoder(8), ResidualCoder(8)
        coder: NetworkCoder[Any] = RefinedCoder(bases, MLP(), training=MLP.TRAINING.but(**changes))
    else:
        coder = (AutoencoderCoder if kind == "autoencoder" else SupervisedCoder)(8, training=Training().but(**changes))
    return coder.fit(X[:300], y[:300], progress=False)  # type: ignore[call-arg]


@pytest.mark.parametrize("kind", FITTED)
def test_the_command_line_fits_in_two_processes_what_it_fits_in_one(kind: str, runs: Path) -> None:
    coder: Any = load_coder(runs / f"{kind}.coder")
    with one_thread():
        assert_same(coder.network_.state_dict(), whole(kind).network_.state_dict())
    assert [(runs / f"{kind}.{rank}.txt").read_text() for rank in range(2)] == [f"{kind}.coder\n", ""]
    assert not (runs / f"{kind}.coder.ckpt").exists()


def test_processes_with_different_data_are_refused(runs: Path) -> None:
    for rank in range(2):
        assert "all 2 processes must have the same data" in (runs / f"refused.{rank}").read_text()
