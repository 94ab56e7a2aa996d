"""Training can be stopped, killed and resumed: it gives the model that an undisturbed run gives, bit for bit."""

import json
import signal
import subprocess
import sys
import threading
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nestcode.data import digits
from nestcode.errors import DamagedFile, Diverged, InvalidInput, OutOfMemory
from nestcode.lengths import Geometric
from nestcode.nn import OrderedAutoencoder
from nestcode.training import AdaptivePenalty, ConstantPenalty, Sweep, Training
from nestcode.training.objective import Objective
from tests.training.runs import KINDS, Digits, assert_same, interrupt, learn, network, settings, state


@pytest.mark.parametrize("kind", KINDS)
def test_training_lowers_the_error(kind: str) -> None:
    _, reports = learn(settings(kind, steps=60))
    width = max(reports[-1]["errors"])
    assert reports[-1]["errors"][width] < 0.9 * reports[0]["errors"][max(reports[0]["errors"])]


@pytest.mark.parametrize("threads", [1, 2])
def test_the_same_seed_gives_the_same_model_and_another_one_another(threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        one, same, other = (state(learn(settings(seed=seed))[0]) for seed in (0, 0, 1))
    finally:
        torch.set_num_threads(before)
    assert_same(one, same)
    assert any(not torch.equal(one[name], other[name]) for name in one)


def test_the_callers_randomness_is_left_alone() -> None:
    torch.manual_seed(7)
    before = torch.get_rng_state()
    learn(settings(), model=network())  # which seeds, so once more
    torch.manual_seed(7)
    model = OrderedAutoencoder(64, 8)
    before = torch.get_rng_state()
    learn(settings(), model=model)
    assert torch.equal(torch.get_rng_state(), before)


@cache
def undisturbed(kind: str) -> tuple[dict[str, torch.Tensor], list[dict[str, Any]]]:
    """What a run that nothing stops gives: its state and its reports."""
    model, reports = learn(settings(kind))
    return state(model), reports


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("at", [4, 17])
def test_ctrl_c_saves_and_resuming_gives_the_run_that_was_never_stopped(kind: str, at: int, tmp_path: Path) -> None:
    training, (whole, reports) = settings(kind), undisturbed(kind)
    run: dict[str, Any] = {"checkpoint": tmp_path / "run.ckpt", "checkpoint_every": 1000}
    source = Digits(interrupt(), at, rows=training.batch_size)
    with pytest.raises(KeyboardInterrupt, match=r"stopped after step \d+: resume from .*run\.ckpt"):
        learn(training, source, **run)
    resumed, again = learn(training, **run, resume=True)
    assert_same(whole, state(resumed))
    clock = {"seconds", "examples_per_second"}
    assert [{k: v for k, v in r.items() if k not in clock} for r in again] == [
        {k: v for k, v in r.items() if k not in clock} for r in reports
    ]


def test_resuming_a_finished_run_changes_nothing(tmp_path: Path) -> None:
    run: dict[str, Any] = {"checkpoint": tmp_path / "run.ckpt", "resume": True}
    first = state(learn(settings(), **run)[0])
    assert_same(first, state(learn(settings(), **run)[0]))


def test_without_a_checkpoint_ctrl_c_says_that_nothing_was_kept() -> None:
    with pytest.raises(KeyboardInterrupt, match="nothing was kept, as there is no checkpoint"):
        learn(settings(), Digits(interrupt(), at=3))


def test_a_request_to_terminate_saves_too(tmp_path: Path) -> None:
    path = tmp_path / "run.ckpt"
    with pytest.raises(SystemExit) as error:
        learn(settings(), Digits(interrupt(signal.SIGTERM), at=3), checkpoint=path)
    assert error.value.code == 128 + signal.SIGTERM
    assert_same(state(learn(settings())[0]), state(learn(settings(), checkpoint=path, resume=True)[0]))


KILLED = """
import sys
from tests.training.runs import learn, settings, state
import torch
model, _ = learn(settings(steps=120), checkpoint=sys.argv[1], checkpoint_every=1, resume=True)
torch.save(state(model), sys.argv[2])
"""


def test_a_killed_run_goes_on(tmp_path: Path) -> None:
    checkpoint, out = tmp_path / "run.ckpt", tmp_path / "state.pt"
    command = [sys.executable, "-c", KILLED, str(checkpoint), str(out)]
    process = subprocess.Popen(command)
    while not checkpoint.exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    process.wait()
    assert not out.exists()
    subprocess.run(command, check=True)
    assert_same(state(learn(settings(steps=120))[0]), torch.load(out))


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.ckpt"
    learn(settings(), checkpoint=path)
    with pytest.raises(InvalidInput, match=r"from a run with learning_rate=0.01, not 0.5: resume with the same"):
        learn(settings(learning_rate=0.5), checkpoint=path, resume=True)
    other = digits()[0][:600].copy()
    other[599, 30] += 1
    with pytest.raises(InvalidInput, match="from a run with other data"):
        learn(settings(), other, checkpoint=path, resume=True)
    for change in ({"layers": (25,)}, {"dropout": 0.3}, {"tied": False}, {"lengths": None}):
        with pytest.raises(InvalidInput, match="from a run with other model"):
            learn(settings(), model=network(**change), checkpoint=path, resume=True)


@pytest.mark.parametrize("damage", ["cut", "flip", "foreign", "empty"])
def test_a_damaged_checkpoint_is_named(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "run.ckpt"
    learn(settings(), checkpoint=path)
    data = path.read_bytes()
    flipped = data[:1000] + bytes([data[1000] ^ 1]) + data[1001:]
    path.write_bytes({"cut": data[:-100], "flip": flipped, "foreign": b"PK" * 500, "empty": b""}[damage])
    with pytest.raises(InvalidInput if damage == "foreign" else DamagedFile, match=r"run\.ckpt is"):
        learn(settings(), checkpoint=path, resume=True)


def test_a_loss_that_is_no_number_stops_with_the_last_good_model(tmp_path: Path) -> None:
    path = tmp_path / "run.ckpt"
    X = digits()[0][:600].copy()

    class Spoilt(Digits):
        def rows(self, indices: Any) -> Any:
            found = super().rows(indices)
            return np.full_like(found, 1e38) if self.reads >= 20 and len(indices) == 50 else found

    model = network()
    with pytest.raises(
        Diverged, match=r"step 20 of 30: lower learning_rate .* step 15 is kept in .*, and the model is that"
    ):
        learn(settings(), Spoilt(lambda: None, at=0), model=model, checkpoint=path, checkpoint_every=5)
    assert all(tensor.isfinite().all() for tensor in state(model).values())
    good = network()
    with pytest.raises(KeyboardInterrupt):
        learn(settings(), Digits(interrupt(), at=15), model=good)
    for (name, tensor), kept in zip(state(good).items(), state(model).values(), strict=True):
        assert torch.equal(tensor, kept), name
    with pytest.raises(Diverged, match="Nothing was kept"):
        learn(settings(), Spoilt(lambda: None, at=0))
    assert np.isfinite(X).all()


def test_a_batch_that_does_not_fit_says_what_to_lower(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_large(*_: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(Objective, "forward", too_large)
    with pytest.raises(OutOfMemory, match=r"a batch of 50 in 1 parts .* raise parts, lower batch_size"):
        learn(settings())


def test_a_loss_that_is_no_number_in_a_later_stage_leaves_the_checkpoint_of_the_one_before(tmp_path: Path) -> None:
    class Spoilt(Digits):
        def rows(self, indices: Any) -> Any:
            found = super().rows(indices)
            return np.full_like(found, 1e38) if self.reads >= 35 and len(indices) == 50 else found

    with pytest.raises(Diverged, match=r"The last good step 30 is kept in .*run\.ckpt$"):
        learn(settings("growth"), Spoilt(lambda: None, at=0), checkpoint=tmp_path / "run.ckpt")


def test_ctrl_c_in_the_last_moment_is_not_lost(tmp_path: Path) -> None:
    class Late(Digits):
        def rows(self, indices: Any) -> Any:
            if self.reads == 30 and len(indices) > 500:
                interrupt()()
            return super().rows(indices)

    with pytest.raises(KeyboardInterrupt):
        learn(settings(), Late(lambda: None, at=0), checkpoint=tmp_path / "run.ckpt")


@pytest.mark.parametrize("path", ["", "folder", "notes.txt", "notes.txt/run.ckpt", 5])
def test_a_checkpoint_that_cannot_be_written_is_noticed_before_training(path: Any, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "notes.txt").write_text("mine")
    given = tmp_path / path if isinstance(path, str) and path else path
    with pytest.raises(InvalidInput, match="checkpoint"):
        learn(settings(), checkpoint=given)
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"checkpoint_every": 0}, "checkpoint_every must be an integer of at least 1, got 0"),
        ({"report_every": 2.5}, "report_every must be a whole number"),
        ({"resume": True}, "resume is True or False, and goes on from a checkpoint"),
        ({"resume": "run.ckpt"}, "resume is True or False"),
        ({"progress": "no"}, "progress must be True, False or None, got 'no'"),
    ],
)
def test_wrong_settings_of_a_run_are_named(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        learn(settings(), **wrong)


def test_runs_in_threads_take_turns() -> None:
    alone = state(learn(settings())[0])
    models = [network(), network()]
    threads = [threading.Thread(target=learn, args=(settings(),), kwargs={"model": model}) for model in models]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for model in models:
        assert_same(alone, state(model))


def test_what_it_reports_is_one_json_object_a_line(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "run.jsonl"
    _, reports = learn(settings(), log=path)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["step"] for line in lines] == [0, 10, 20, 30]
    assert lines[-1]["loss"] == reports[-1]["loss"]
    assert set(lines[0]["errors"]) == {"1", "4", "8"}


def test_the_log_of_a_resumed_run_is_that_of_the_whole_run(tmp_path: Path) -> None:
    run: dict[str, Any] = {"log": tmp_path / "run.jsonl", "checkpoint": tmp_path / "run.ckpt"}
    with pytest.raises(KeyboardInterrupt):
        learn(settings(), Digits(interrupt(), at=14), **run)
    with (tmp_path / "run.jsonl").open("a") as log:  # as if it had been killed later than its last checkpoint
        log.write(json.dumps({"step": 20}) + "\n")
    learn(settings(), **run, resume=True)
    lines = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [0, 10, 20, 30]


def test_a_bar_is_shown_when_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    learn(settings(), progress=True)
    shown = capsys.readouterr().err
    assert "training" in shown
    assert "error at" in shown


def test_tensorboard_gets_the_same_numbers(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    _, reports = learn(settings(), tensorboard=tmp_path)
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    assert set(events.Tags()["scalars"]) == {"loss", "error/1", "error/4", "error/8"}
    assert [event.step for event in events.Scalars("loss")] == [10, 20, 30]
    assert events.Scalars("error/8")[-1].value == pytest.approx(reports[-1]["errors"][8])


def test_data_may_come_from_anywhere(tmp_path: Path) -> None:
    X = digits()[0][:600].astype(np.float32)
    np.save(tmp_path / "digits.npy", X)
    mapped = np.load(tmp_path / "digits.npy", mmap_mode="r")
    expected = state(learn(settings(), X)[0])
    dataset = torch.utils.data.TensorDataset(torch.from_numpy(X), torch.zeros(600))
    for source in (mapped, torch.from_numpy(X), dataset, X.reshape(600, 8, 8), X.astype(np.float64)):
        assert_same(expected, state(learn(settings(), source)[0]))


def test_parts_work_off_a_batch_piece_by_piece() -> None:
    quiet: dict[str, Any] = {"corruption": 0.0, "dropout": 0.0, "lengths": None, "binarize": None}
    plain = settings(steps=1, clip=1e9, optimizer="adam", penalty=None, invariance=0.0)
    one, two = network(**quiet), network(**quiet)
    one.nested.eval()
    two.nested.eval()
    one.nested.train = two.nested.train = lambda *_: None  # type: ignore[assignment, method-assign]
    learn(plain, model=one)
    learn(plain.but(parts=2), model=two)
    for (name, a), b in zip(state(one).items(), state(two).values(), strict=True):
        assert torch.allclose(a, b, atol=1e-4), name


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"steps": 0}, "steps must be an integer of at least 1, got 0"),
        ({"batch_size": 50, "parts": 3}, "batch_size must divide by parts, got 50 and 3"),
        ({"optimizer": "sgd"}, "optimizer must be one of 'adam', 'conjugate', got 'sgd'"),
        ({"learning_rate": -1}, "learning_rate must be a number above 0, got -1"),
        ({"holdout": 0.9}, "holdout is at most 0.5"),
        ({"epochs": 0}, "epochs must be a number above 0"),
        ({"device": "cuda:99"}, "device must be one that is here"),
        ({"penalty": "l1"}, r"penalty must be None or AdaptivePenalty\(…\) or ConstantPenalty\(…\), got 'l1'"),
        (
            {"penalty": ConstantPenalty("l1", 0.1), "sweep": Sweep()},
            "a constant penalty moves units that a sweep fixed",
        ),
        ({"sweep": True}, r"sweep must be None or Sweep\(…\), got True"),
        ({"learning_rate": "1"}, "learning_rate must be a number, got '1'"),
        ({"seed": 2**70}, "seed must be below 2\\^63"),
    ],
)
def test_wrong_settings_are_named(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        learn(settings(**wrong))


@pytest.mark.parametrize(("kind", "steps"), [("adam", 60), ("conjugate", 10)])
def test_late_units_fade_by_a_constant_penalty_only(kind: str, steps: int) -> None:
    """The last of 8 units is kept once in 300 draws."""
    last = {}
    for penalty in (None, AdaptivePenalty("l2", 0.05), ConstantPenalty("l2", 0.05)):
        model = network(lengths=Geometric(0.45), binarize=None)
        learn(settings(kind, steps=steps, penalty=penalty), model=model)
        last[penalty] = float(model.code_weights()[0][-1].detach().norm())
    none, adaptive, constant = last.values()
    assert constant < 0.5 * none
    assert adaptive > 0.8 * none


def test_settings_survive_json() -> None:
    constant = settings(penalty=ConstantPenalty("l2", 0.1))
    for training in [*map(settings, KINDS), constant]:
        assert Training.from_json(json.loads(json.dumps(training.to_json()))) == training
    with pytest.raises(InvalidInput, match="unknown settings of training: speed"):
        Training.from_json({"speed": 3})
