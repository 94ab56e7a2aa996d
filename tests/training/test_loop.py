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
from nestcode.nn import Binarize, ImageEncoder, OrderedAutoencoder, RandomViews
from nestcode.nn.binarize import Gradient
from nestcode.training import AdaptivePenalty, ConstantPenalty, Invariance, Run, Sweep, Training, train
from nestcode.training.autoencoder import AutoencoderLoss, AutoencoderObjective
from nestcode.training.loop import TrainingLoop
from nestcode.training.runtime.distributed import ProcessGroup
from tests.training.runs import KINDS, Digits, assert_same, interrupt, learn, network, settings, state


@cache
def uninterrupted(kind: str) -> tuple[dict[str, torch.Tensor], list[dict[str, Any]]]:
    """Return the state and the reports of a run that nothing stops."""
    model, reports = learn(settings(kind))
    return state(model), reports


@pytest.mark.parametrize("kind", KINDS)
def test_training_lowers_the_error(kind: str) -> None:
    _, reports = learn(settings(kind, steps=15 if kind == "conjugate" else 60))
    width = max(reports[-1]["errors"])
    assert reports[-1]["errors"][width] < 0.9 * reports[0]["errors"][max(reports[0]["errors"])]


@pytest.mark.parametrize("threads", [1, 2])
def test_the_same_seed_gives_the_same_model(threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        one, same = (state(learn(settings())[0]) for _ in range(2))
    finally:
        torch.set_num_threads(before)
    assert_same(one, same)


def test_another_seed_gives_another_model() -> None:
    one, other = uninterrupted("adam")[0], state(learn(settings(seed=1))[0])
    assert any(not torch.equal(one[name], other[name]) for name in one)


def test_the_callers_random_state_is_restored() -> None:
    torch.manual_seed(7)
    before = torch.get_rng_state()
    learn(settings(), model=network())  # which seeds, so once more
    torch.manual_seed(7)
    model = OrderedAutoencoder(64, 8)
    before = torch.get_rng_state()
    learn(settings(), model=model)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("at", [4, 17])
def test_a_run_interrupted_by_ctrl_c_resumes_bit_for_bit(kind: str, at: int, tmp_path: Path) -> None:
    training, (whole, reports) = settings(kind), uninterrupted(kind)
    run: dict[str, Any] = {"checkpoint": tmp_path / "run.ckpt", "checkpoint_every": 1000}
    source = Digits(interrupt(), at, rows=training.batch_size)
    with pytest.raises(
        KeyboardInterrupt, match=r"stopped after step \d+: resume from .*run\.ckpt with resume=True .*--resume"
    ):
        learn(training, source, **run)
    resumed, again = learn(training, **run, resume=True)
    assert_same(whole, state(resumed))
    clock = {"seconds", "examples_per_second"}
    assert [{k: v for k, v in r.items() if k not in clock} for r in again] == [
        {k: v for k, v in r.items() if k not in clock} for r in reports
    ]


@pytest.mark.parametrize("kind", ["conjugate", "sweep", "growth"])
def test_an_interrupted_run_leaves_nothing_of_its_own_in_the_model(kind: str) -> None:
    """Training goes on as that of a fresh model with the same weights."""
    training, model = settings(kind), network()
    with pytest.raises(KeyboardInterrupt):
        learn(training, Digits(interrupt(), at=17, rows=training.batch_size), model=model)
    assert not model.training
    fresh = network()
    for units in model.blocks()[1:]:
        fresh.grow(units)
    fresh.unfreeze()
    fresh.load_state_dict(model.state_dict())
    assert str(fresh) == str(model)
    assert_same(state(learn(settings(), model=fresh)[0]), state(learn(settings(), model=model)[0]))


def test_an_interrupted_sweep_resumes_on_the_same_model(tmp_path: Path) -> None:
    run: dict[str, Any] = {"checkpoint": tmp_path / "run.ckpt", "model": network()}
    with pytest.raises(KeyboardInterrupt):
        learn(settings("sweep"), Digits(interrupt(), at=17), **run)
    assert_same(uninterrupted("sweep")[0], state(learn(settings("sweep"), **run, resume=True)[0]))


def test_resuming_a_finished_run_changes_nothing(tmp_path: Path) -> None:
    run: dict[str, Any] = {"checkpoint": tmp_path / "run.ckpt", "resume": True}
    first = state(learn(settings(steps=5), **run)[0])
    assert_same(first, state(learn(settings(steps=5), **run)[0]))


def test_ctrl_c_without_a_checkpoint_reports_that_nothing_was_saved() -> None:
    with pytest.raises(KeyboardInterrupt, match="nothing was saved, as there is no checkpoint"):
        learn(settings(), Digits(interrupt(), at=3))


def test_sigterm_saves_a_checkpoint_too(tmp_path: Path) -> None:
    path = tmp_path / "run.ckpt"
    with pytest.raises(SystemExit) as error:
        learn(settings(), Digits(interrupt(signal.SIGTERM), at=3), checkpoint=path)
    assert error.value.code == 128 + signal.SIGTERM
    assert_same(uninterrupted("adam")[0], state(learn(settings(), checkpoint=path, resume=True)[0]))


KILLED = """
import sys, time
from tests.training.runs import learn, settings, Digits
learn(settings(), Digits(lambda: time.sleep(300), at=12), checkpoint=sys.argv[1], checkpoint_every=1)
"""


def test_a_killed_run_resumes_bit_for_bit(tmp_path: Path) -> None:
    checkpoint = tmp_path / "run.ckpt"
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(checkpoint)])
    while not checkpoint.exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    process.wait()
    resumed = state(learn(settings(), checkpoint=checkpoint, resume=True)[0])
    assert_same(uninterrupted("adam")[0], resumed)


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.ckpt"
    learn(settings(), checkpoint=path)
    with pytest.raises(InvalidInput, match=r"from a run with learning_rate=0.01, not 0.5: resume with the same"):
        learn(settings(learning_rate=0.5), checkpoint=path, resume=True)
    other = digits()[0][:600].copy()
    other[599, 30] += 1
    with pytest.raises(InvalidInput, match="from a run with other data"):
        learn(settings(), other, checkpoint=path, resume=True)
    rate = Binarize(8, signed=True, rate=0.9)
    for change in ({"layers": (25,)}, {"dropout": 0.3}, {"tied": False}, {"lengths": None}, {"binarize": rate}):
        with pytest.raises(InvalidInput, match="from a run with other model"):
            learn(settings(), model=network(**change), checkpoint=path, resume=True)


@pytest.mark.parametrize("damage", ["cut", "flip", "foreign", "empty"])
def test_a_damaged_checkpoint_is_named(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "run.ckpt"
    learn(settings(), checkpoint=path)
    data = path.read_bytes()
    flipped = data[:1000] + bytes([data[1000] ^ 1]) + data[1001:]
    path.write_bytes({"cut": data[:-100], "flip": flipped, "foreign": b"PK" * 500, "empty": b""}[damage])
    with pytest.raises(InvalidInput if damage == "foreign" else DamagedFile, match=r"run\.ckpt (is|exists and is not)"):
        learn(settings(), checkpoint=path, resume=True)


def test_a_diverging_run_stops_with_the_last_finite_model(tmp_path: Path) -> None:
    path = tmp_path / "run.ckpt"
    X = digits()[0][:600].copy()

    class Spoilt(Digits):
        def rows(self, indices: Any) -> Any:
            found = super().rows(indices)
            return np.full_like(found, 1e38) if self.reads >= 20 and len(indices) == 50 else found

    model = network()
    with pytest.raises(
        Diverged, match=r"step 20 of 30: lower learning_rate .* step 15 is saved in .*, and the model is restored"
    ):
        learn(settings(), Spoilt(lambda: None, at=0), model=model, checkpoint=path, checkpoint_every=5)
    assert all(tensor.isfinite().all() for tensor in state(model).values())
    good = network()
    with pytest.raises(KeyboardInterrupt):
        learn(settings(), Digits(interrupt(), at=15), model=good)
    for (name, tensor), kept in zip(state(good).items(), state(model).values(), strict=True):
        assert torch.equal(tensor, kept), name
    with pytest.raises(Diverged, match="Nothing was saved"):
        learn(settings(), Spoilt(lambda: None, at=0))
    assert np.isfinite(X).all()


def test_running_out_of_memory_names_the_settings_to_change(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_large(*_: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(AutoencoderLoss, "forward", too_large)
    with pytest.raises(OutOfMemory, match=r"a batch of 50 in 1 micro-batches .* raise micro_batches, lower batch_size"):
        learn(settings())


def test_a_run_that_diverges_in_a_later_stage_leaves_the_checkpoint_of_the_stage_before(tmp_path: Path) -> None:
    class Spoilt(Digits):
        def rows(self, indices: Any) -> Any:
            found = super().rows(indices)
            return np.full_like(found, 1e38) if self.reads >= 35 and len(indices) == 50 else found

    with pytest.raises(Diverged, match=r"The last finite step 30 is saved in .*run\.ckpt$"):
        learn(settings("growth"), Spoilt(lambda: None, at=0), checkpoint=tmp_path / "run.ckpt")


def test_ctrl_c_after_the_last_step_is_not_lost(tmp_path: Path) -> None:
    class Late(Digits):
        def rows(self, indices: Any) -> Any:
            if self.reads == 30 and len(indices) > 500:
                interrupt()()
            return super().rows(indices)

    with pytest.raises(KeyboardInterrupt):
        learn(settings(), Late(lambda: None, at=0), checkpoint=tmp_path / "run.ckpt")


@pytest.mark.parametrize("path", ["", "folder", "notes.txt", "notes.txt/run.ckpt", 5])
def test_an_unwritable_checkpoint_is_refused_before_training(path: Any, tmp_path: Path) -> None:
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
        ({"report_every": 2.5}, "report_every must be an integer"),
        ({"resume": True}, "resume must be True or False, and True needs a checkpoint"),
        ({"resume": "run.ckpt"}, "resume must be True or False"),
        ({"progress": "no"}, "progress must be True, False or None, got 'no'"),
    ],
)
def test_wrong_settings_of_a_run_are_named(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        learn(settings(), **wrong)


def test_runs_in_threads_take_turns() -> None:
    alone = uninterrupted("adam")[0]
    models = [network(), network()]
    threads = [threading.Thread(target=learn, args=(settings(),), kwargs={"model": model}) for model in models]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for model in models:
        assert_same(alone, state(model))


def test_the_log_has_one_json_object_per_line(tmp_path: Path) -> None:
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


def test_a_progress_bar_is_shown_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    learn(settings(), progress=True)
    shown = capsys.readouterr().err
    assert "training" in shown
    assert "error at" in shown


def test_tensorboard_gets_the_same_values(tmp_path: Path) -> None:
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


def test_augmented_rows_are_what_is_reconstructed() -> None:
    class Half(torch.nn.Module):
        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            assert rows.is_floating_point()
            return rows / 2

    model, X = network(corruption=0.0, dropout=0.0, binarize=None), torch.from_numpy(digits()[0][:50]).float()
    losses = []
    for augment, rows in ((Half(), X), (None, X / 2)):
        torch.manual_seed(0)
        losses.append(float(AutoencoderLoss(model, Training(), augment)(rows).detach()))
    assert losses[0] == losses[1]


def test_random_items_are_functions_of_the_seed_too(tmp_path: Path) -> None:
    X = torch.from_numpy(digits()[0][:200])

    class Noisy:
        def __len__(self) -> int:
            return len(X)

        def __getitem__(self, index: int) -> torch.Tensor:
            return X[index] + 0.1 * torch.randn(64)

    states = []
    for seed, resume in ((0, False), (1, False), (2, True)):
        model = network()
        torch.manual_seed(seed)
        learn(settings(steps=3), Noisy(), model=model, checkpoint=tmp_path / "run.ckpt", resume=resume)
        states.append(state(model))
    assert_same(states[0], states[1])
    assert_same(states[0], states[2])


def test_wrong_data_is_refused_before_the_model_changes() -> None:
    model = OrderedAutoencoder(192, 4)
    for columns in (1, 32):
        with pytest.raises(InvalidInput, match=f"data must have the 192 features of the model, got {columns}: make a"):
            train(model, np.ones((9, columns)))
    assert not model.mean.any()
    images, views = np.random.default_rng(0).random((9, 8, 8, 3)), RandomViews((3, 8, 8), crop=0)
    encoder = torch.nn.Sequential(ImageEncoder((3, 8, 8), 4, channels=8))
    reader = OrderedAutoencoder(192, 4, encoder=encoder, decoder=torch.nn.Linear(4, 192))
    for given, augment in ((model, views), (reader, None)):
        with pytest.raises(InvalidInput, match=r"height, width\) = \(3, 8, 8\), got \(8, 8, 3\): where the channels"):
            train(given, images, augment=augment)
        train(given, images[:].transpose(0, 3, 1, 2), Training(steps=1), Run(progress=False), augment=augment)
    gray = OrderedAutoencoder(64, 4)  # one channel may be anywhere
    train(gray, images[..., :1], Training(steps=1), Run(progress=False), augment=RandomViews((1, 8, 8)))


@pytest.mark.parametrize("optimizer", ["adam", "conjugate"])
def test_a_gradient_that_is_not_finite_stops_a_run_of_finite_losses(optimizer: Any) -> None:
    class Kink(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = super().forward(x)
            return y + (0 * y).square().sqrt()  # whose derivative at 0 is NaN

    model = OrderedAutoencoder(64, 4, encoder=Kink(64, 4), decoder=torch.nn.Linear(4, 64))
    with pytest.raises(Diverged, match="became nan at step 1"):
        train(model, digits()[0][:50], Training(steps=2, optimizer=optimizer), Run(progress=False))


def test_micro_batches_accumulate_the_gradient_of_the_batch() -> None:
    quiet: dict[str, Any] = {"corruption": 0.0, "dropout": 0.0, "lengths": None, "binarize": None}
    plain = settings(steps=1, clip=1e9, optimizer="adam", penalty=None, invariance=Invariance())
    one, two = network(**quiet), network(**quiet)
    one.nested.eval()
    two.nested.eval()
    one.nested.train = two.nested.train = lambda *_: None  # type: ignore[assignment, method-assign]
    learn(plain, model=one)
    learn(plain.but(micro_batches=2), model=two)
    for (name, a), b in zip(state(one).items(), state(two).values(), strict=True):
        assert torch.allclose(a, b, atol=1e-4), name


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"steps": 0}, "steps must be an integer of at least 1, got 0"),
        ({"batch_size": 50, "micro_batches": 3}, "batch_size must divide by micro_batches, got 50 and 3"),
        ({"optimizer": "sgd"}, "optimizer must be one of 'adam', 'conjugate', got 'sgd'"),
        ({"learning_rate": -1}, "learning_rate must be a number above 0, got -1"),
        ({"holdout": 0.9}, "holdout must be at most 0.5"),
        ({"epochs": 0}, "epochs must be a number above 0"),
        ({"device": "cuda:99"}, "device must be available here"),
        ({"penalty": "l1"}, r"penalty must be None or AdaptivePenalty\(…\) or ConstantPenalty\(…\), got 'l1'"),
        (
            {"penalty": ConstantPenalty("l1", 0.1), "sweep": Sweep()},
            "a constant penalty moves units that a sweep froze",
        ),
        (
            {"optimizer": "conjugate", "precision": "bfloat16"},
            "line searches compare losses in float32, got precision='bfloat16'",
        ),
        ({"sweep": True}, r"sweep must be None or Sweep\(…\), got True"),
        ({"learning_rate": "1"}, "learning_rate must be a number, got '1'"),
        ({"seed": 2**70}, "seed must be at most 9,223,372,036,854,775,807"),
    ],
)
def test_wrong_settings_are_named(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        learn(settings(**wrong))


@pytest.mark.parametrize(
    ("kind", "dtype", "message"),
    [
        ("adam", torch.float16, r"got float16: call model.float\(\), and set precision"),
        ("conjugate", torch.float16, "got float16"),
        ("conjugate", torch.bfloat16, r"got parameters of bfloat16: call model.float\(\)"),
    ],
)
def test_parameters_too_coarse_for_the_optimizer_are_refused(kind: str, dtype: torch.dtype, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        learn(settings(kind), model=network().to(dtype))


@pytest.mark.parametrize(("kind", "steps"), [("adam", 60), ("conjugate", 10)])
def test_only_a_constant_penalty_shrinks_late_units(kind: str, steps: int) -> None:
    """The last of 8 units is kept once in 300 draws."""
    last = {}
    for penalty in (None, AdaptivePenalty("l2", 0.05), ConstantPenalty("l2", 0.05)):
        model = network(lengths=Geometric(0.45), binarize=None)
        learn(settings(kind, steps=steps, penalty=penalty), model=model)
        last[penalty] = float(model.code_weights()[0][-1].detach().norm())
    none, adaptive, constant = last.values()
    assert constant < 0.5 * none
    assert adaptive > 0.8 * none


@pytest.mark.parametrize("gradient", ["none", "straight-through", "stochastic"])
def test_line_searches_on_bits_satisfy_the_strong_wolfe_conditions(gradient: Gradient) -> None:
    model = network(binarize=Binarize(8, 0.3, gradient))
    _, reports = learn(settings("conjugate", steps=12, invariance=Invariance(0.01)), model=model)
    counts = reports[-1]["line_search"]
    assert counts["searches"] >= 20
    assert counts["strong_wolfe"] >= 0.95 * counts["searches"]
    assert counts["zero_steps"] == 0
    assert counts["evaluations"] < 8 * counts["searches"]


@pytest.mark.parametrize("gradient", ["none", "straight-through"])
def test_within_a_search_the_gradient_is_that_of_the_function(gradient: Gradient) -> None:
    """Along any direction the slope is the difference quotient, also where bits would have flipped."""
    training = settings("conjugate")
    model = network(binarize=Binarize(8, 0.3, gradient))
    loop = TrainingLoop(AutoencoderObjective(model, digits()[0][:600], training), training, Run(), ProcessGroup())
    loop._prepare()
    model.double()
    loop.loss = loop.loss.double()
    batch = next(loop.sampler.batches(0, 0))
    parameters = list(model.parameters())
    loop.objective.begin_search()
    loop._backward(batch)  # makes the bits
    origin = [p.detach().clone() for p in parameters]
    way = [torch.randn(p.shape, generator=torch.Generator().manual_seed(1)).double() for p in parameters]

    def line(step: float) -> tuple[float, float]:
        with torch.no_grad():
            for p, start, along in zip(parameters, origin, way, strict=True):
                p.copy_(start + step * along)
        model.zero_grad()
        loss = float(loop._backward(batch))
        slopes = [(p.grad * along).sum() for p, along in zip(parameters, way, strict=True) if p.grad is not None]
        return loss, float(sum(slopes))

    for step in (0.05, 0.1):  # at 0 the decoder's biases are 0, where ReLU has a kink
        above, below = line(step + 1e-6)[0], line(step - 1e-6)[0]
        assert (above - below) / 2e-6 == pytest.approx(line(step)[1], rel=5e-3)


def test_settings_survive_json() -> None:
    constant = settings(penalty=ConstantPenalty("l2", 0.1))
    single = settings(learning_rate=np.float32(1e-3))
    for training in [*map(settings, KINDS), constant, single]:
        assert Training.from_json(json.loads(json.dumps(training.to_json()))) == training
    with pytest.raises(InvalidInput, match="unknown settings of training: speed"):
        Training.from_json({"speed": 3})
