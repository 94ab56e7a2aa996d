"""Two processes that share a batch give the model of one process with two micro-batches."""

import os
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
from nestcode.errors import Unavailable
from nestcode.training import Training
from nestcode.training.runtime.distributed import ProcessGroup
from tests.training.runs import FITTED, KINDS, STEPS, assert_same, learn, settings, state

pytestmark = pytest.mark.skipif(not dist.is_available(), reason="this PyTorch was built without torch.distributed")

STOPPED = 8  # one step after the signal, when all processes have heard of it

# Starting two processes takes longer than training in them, so they train one run after the other.
WORK = """
import contextlib, os, signal, torch
torch.set_num_threads(1)
from nestcode.errors import InvalidInput
from tests.training.runs import COMMAND, FITTED, KINDS, STEPS, Digits, interrupt, learn, settings, state
rank = int(os.environ["RANK"])


def train(kind, name, at=0, number=signal.SIGINT):
    source, saved = Digits(interrupt(number), at, rows=25), f"{name}.ckpt"
    return state(learn(settings(kind, steps=STEPS), source, checkpoint=saved, checkpoint_every=5, resume=True)[0])


# These runs join and leave the group of torchrun by themselves.
first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
torch.save(train("adam", "killed", 7 if rank and first else 0, signal.SIGKILL), f"killed.{rank}")
try:
    train("adam", "stopped", 0 if rank else 7)
except KeyboardInterrupt as error:
    open(f"interrupted.{rank}", "w").write(str(error))
torch.distributed.init_process_group("gloo", init_method=f"file://{os.getcwd()}/store", rank=rank, world_size=2)
for kind in KINDS:
    torch.save(train(kind, kind), f"{kind}.{rank}")
torch.save(train("adam", "stopped"), f"stopped.{rank}")
from nestcode.cli.app import app
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


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train everything in two processes, which torchrun restarts after one of them was killed."""
    folder = tmp_path_factory.mktemp("processes")
    X, y = digits()
    np.save(folder / "X.npy", X[:300])
    np.save(folder / "y.npy", y[:300])
    (folder / "work.py").write_text(WORK)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=1"]
    path = os.pathsep.join(filter(None, (str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*torchrun, "work.py"], cwd=folder, env=environment, stderr=subprocess.PIPE, text=True, timeout=1200
    )
    assert done.returncode == 0, done.stderr
    assert "exitcode: -9" in done.stderr  # of the one that was killed
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
    assert (
        messages
        == [f"stopped after step {STOPPED}: resume from stopped.ckpt with resume=True (nestcode fit: --resume)"] * 2
    )
    assert_same(torch.load(runs / "stopped.1"), alone("adam"))


def test_torchrun_restarts_a_run_from_its_checkpoint_after_a_process_was_killed(runs: Path) -> None:
    for rank in range(2):
        assert_same(torch.load(runs / f"killed.{rank}"), alone("adam"))


def test_an_error_tells_how_to_go_on_without_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("Connection closed by peer")

    group = ProcessGroup()
    group.size = 2
    monkeypatch.setattr(dist, "all_reduce", fail)
    with pytest.raises(Unavailable, match=r"another process of the run ended.*with resume continues.*closed by peer"):
        group.all_reduce([torch.zeros(3)])


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
