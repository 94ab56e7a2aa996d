"""Training of a refiner is deterministic, and resumes bit for bit."""

import json
import signal
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nestcode.coders import LinearCoder
from nestcode.coders.refined.model import make_pairs
from nestcode.data import digits
from nestcode.errors import Diverged, InvalidInput
from nestcode.nn.refine import ImageRefiner, VectorRefiner
from nestcode.training import Run, Training
from nestcode.training.data import as_source
from nestcode.training.refinement import Pairs, RefinementObjective, refine
from nestcode.training.runtime.checkpoint import read_checkpoint
from nestcode.training.runtime.sampler import MicroBatch
from tests.training.runs import assert_same, interrupt

LOAD = RefinementObjective.load
Reports = list[dict[str, Any]]
Refiner = VectorRefiner | ImageRefiner
KINDS: dict[str, dict[str, Any]] = {
    "vectors": {},
    "images": {"shape": (8, 8), "channels": (8, 16)},
    "flipped": {"shape": (8, 8), "channels": (8,), "flip": True},
}


def settings(**changes: Any) -> Training:
    return Training(**{"steps": 20, "batch_size": 12, "learning_rate": 0.01, **changes})


@cache
def pairs(width: int = 16, items: int = 200) -> Pairs:
    X = digits()[0][:items].astype(np.float32)
    base = LinearCoder(width).fit(X)
    return make_pairs(as_source(X), np.arange(items), base, base.expected_error(0) ** 0.5, [1, width])


def network(kind: str = "vectors") -> Refiner:
    torch.manual_seed(0)
    return ImageRefiner(**KINDS[kind]) if KINDS[kind] else VectorRefiner(64, units=24)


def learn(training: Training, kind: str = "vectors", data: Pairs | None = None, **run: Any) -> tuple[Refiner, Reports]:
    model = network(kind)
    options = {"progress": False, "report_every": 10, **run}
    return model, refine(model, pairs() if data is None else data, training, Run(**options))


def state(model: Refiner) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def timeless(reports: Reports) -> Reports:
    return [{k: v for k, v in report.items() if k not in ("seconds", "examples_per_second")} for report in reports]


@pytest.fixture
def stop_at(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that makes something happen as a step begins."""

    def prepare(at: int, act: Any) -> None:
        def disturbed(objective: RefinementObjective, step: int, micro_batch: MicroBatch) -> None:
            if step == at:
                act()
            LOAD(objective, step, micro_batch)

        monkeypatch.setattr(RefinementObjective, "load", disturbed)

    return prepare


@pytest.mark.parametrize("kind", ["vectors", "images"])  # flipped digits are no digits
def test_training_lowers_the_loss(kind: str) -> None:
    _, reports = learn(settings(steps=40, batch_size=60), kind)
    assert [report["step"] for report in reports] == [10, 20, 30, 40]
    assert reports[-1]["loss"] < reports[0]["loss"] < 1


def test_an_untrained_network_has_a_loss_of_1() -> None:
    """Every length counts alike, relative to the error of the base."""
    _, reports = learn(settings(learning_rate=1e-30, batch_size=200, schedule="constant"), report_every=20)
    assert reports[-1]["loss"] == pytest.approx(1, rel=0.03)


def test_the_same_seed_gives_the_same_network_and_another_one_another() -> None:
    one, same, other = (state(learn(settings(seed=seed))[0]) for seed in (0, 0, 1))
    assert_same(one, same)
    assert any(not torch.equal(one[name], other[name]) for name in one)


def test_the_callers_random_state_is_restored() -> None:
    model = network()
    before = torch.get_rng_state()
    refine(model, pairs(), settings(), Run(progress=False))
    assert torch.equal(torch.get_rng_state(), before)


@cache
def uninterrupted(kind: str) -> tuple[dict[str, torch.Tensor], Reports]:
    model, reports = learn(settings(), kind)
    return state(model), reports


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("at", [3, 17])
def test_a_run_interrupted_by_ctrl_c_resumes_bit_for_bit(kind: str, at: int, tmp_path: Path, stop_at: Any) -> None:
    run: dict[str, Any] = {"checkpoint": tmp_path / "run.ckpt", "checkpoint_every": 1000}
    stop_at(at, interrupt())
    with pytest.raises(KeyboardInterrupt, match=rf"stopped after step {at + 1}: resume from .*run\.ckpt"):
        learn(settings(), kind, **run)
    stop_at(-1, interrupt())
    model, reports = learn(settings(), kind, **run, resume=True, log=tmp_path / "log.jsonl")
    assert_same(uninterrupted(kind)[0], state(model))
    assert timeless(reports) == timeless(uninterrupted(kind)[1])
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert timeless(lines) == timeless(reports)


def test_a_crashed_run_resumes_from_the_last_checkpoint(tmp_path: Path, stop_at: Any) -> None:
    def crash() -> None:
        raise OSError("the power went out")

    run: dict[str, Any] = {"checkpoint": tmp_path / "run.ckpt", "checkpoint_every": 7}
    stop_at(18, crash)
    with pytest.raises(OSError, match="power"):
        learn(settings(), **run)
    stop_at(-1, crash)
    model, reports = learn(settings(), **run, resume=True)
    assert_same(uninterrupted("vectors")[0], state(model))
    assert timeless(reports) == timeless(uninterrupted("vectors")[1])


def test_resuming_a_finished_run_changes_nothing(tmp_path: Path) -> None:
    run: dict[str, Any] = {"checkpoint": tmp_path / "run.ckpt", "resume": True}
    first, reports = learn(settings(), **run)
    again, same = learn(settings(), **run)
    assert_same(state(first), state(again))
    assert reports == same


def test_ctrl_c_without_a_checkpoint_reports_that_nothing_was_saved(stop_at: Any) -> None:
    stop_at(3, interrupt())
    with pytest.raises(KeyboardInterrupt, match="nothing was saved, as there is no checkpoint"):
        learn(settings())


def test_sigterm_saves_a_checkpoint_too(tmp_path: Path, stop_at: Any) -> None:
    stop_at(3, interrupt(signal.SIGTERM))
    with pytest.raises(SystemExit) as error:
        learn(settings(), checkpoint=tmp_path / "run.ckpt")
    assert error.value.code == 128 + signal.SIGTERM
    stop_at(-1, interrupt())
    model, _ = learn(settings(), checkpoint=tmp_path / "run.ckpt", resume=True)
    assert_same(uninterrupted("vectors")[0], state(model))


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    run: dict[str, Any] = {"checkpoint": tmp_path / "run.ckpt"}
    learn(settings(), "images", **run)
    with pytest.raises(InvalidInput, match=r"from a run with learning_rate=0.01, not 0.5: resume with the same"):
        learn(settings(learning_rate=0.5), "images", **run, resume=True)
    with pytest.raises(InvalidInput, match="from a run with other data"):
        learn(settings(), "images", pairs(items=190), **run, resume=True)
    with pytest.raises(InvalidInput, match=r'from a run with coder="LinearCoder\(width=16'):
        learn(settings(), "images", pairs(width=24), **run, resume=True)
    with pytest.raises(InvalidInput, match="from a run with other model"):
        learn(settings(), "vectors", **run, resume=True)
    for change in ({"shape": (4, 16)}, {"flip": True}):
        model = ImageRefiner(**{**KINDS["images"], **change})
        with pytest.raises(InvalidInput, match="from a run with other model"):
            refine(model, pairs(), settings(), Run(progress=False, resume=True, **run))


def test_a_diverging_run_leaves_the_last_finite_checkpoint(tmp_path: Path) -> None:
    path, spoilt = tmp_path / "run.ckpt", pairs()
    items = spoilt.items.copy()
    items[77] = np.inf  # met on the way, in the first epoch
    bad = Pairs(spoilt.lengths, spoilt.coefficients, spoilt.directions, items)
    with pytest.raises(Diverged, match=r"the loss became (inf|nan) at step \d+ of 20: lower learning_rate \(0.01\)"):
        learn(settings(), data=bad, checkpoint=path, checkpoint_every=1)
    kept = read_checkpoint(path)
    assert all(tensor.isfinite().all() for tensor in kept["model"].values())


def test_a_learning_rate_that_is_too_large_is_named(tmp_path: Path) -> None:
    path = tmp_path / "run.ckpt"
    with pytest.raises(Diverged, match=r"at step \d+ of 20: lower learning_rate \(1e\+30\)"):
        learn(settings(learning_rate=1e30), checkpoint=path, checkpoint_every=1)


@pytest.mark.parametrize("items", [2, 7])
def test_few_items_are_enough(items: int) -> None:
    model, reports = learn(settings(steps=5), data=pairs(1, items))
    assert reports[-1]["step"] == 5
    assert all(tensor.isfinite().all() for tensor in state(model).values())


def test_a_progress_bar_is_shown_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    learn(settings(), progress=True)
    assert "training" in capsys.readouterr().err
