"""The training loop: steps, reports and checkpoints of a run that can be killed, resumed, distributed and trusted.

All that is random in a step is a function of the seed, the step and the part of the batch, and the order of the data of
the seed and the epoch. So a run that goes on from a checkpoint is the run that was never stopped, bit for bit; a line
search sees the same noise and lengths at every point it tries; and processes that share a batch need not agree on
anything but its number.
"""

import hashlib
import math
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nestcode.errors import Diverged, InvalidInput, OutOfMemory
from nestcode.lengths import Beyond, Lengths
from nestcode.nn.autoencoder import OrderedAutoencoder
from nestcode.training.checkpoint import check_same, read_checkpoint, write_checkpoint
from nestcode.training.checks import check_labels, check_model, checksum
from nestcode.training.config import Training
from nestcode.training.data import Indices, as_source
from nestcode.training.errors_by_length import errors_by_length, some_lengths
from nestcode.training.feed import Feed
from nestcode.training.hardware import Hardware
from nestcode.training.journal import Journal, Run
from nestcode.training.objective import Objective
from nestcode.training.processes import Processes
from nestcode.training.steps import AdamStep, ConjugateStep, Stepper
from nestcode.training.stopping import Stopping
from nestcode.training.sweep import Sweeper

ONE_AT_A_TIME = threading.RLock()  # PyTorch's randomness is one for all threads


def train(
    model: OrderedAutoencoder, X: Any, training: Training | None = None, run: Run | None = None, labels: Any = None
) -> list[dict[str, Any]]:
    """Train a model on data; what was reported on the way.

    >>> from nestcode.data import digits
    >>> _ = torch.manual_seed(0)
    >>> model = OrderedAutoencoder(64, width=16, corruption=0, dropout=0)
    >>> reports = train(model, digits()[0], Training(steps=200, learning_rate=0.01), Run(progress=False))
    >>> reports[-1]["errors"][16] < 0.5 * reports[0]["errors"][16]
    True

    Args:
        model: what to train; it is standardized to the data first.
        X: an array or memory map (n, features), images (n, …), a torch dataset, a folder of images.
        training: how.
        run: checkpoints and logs.
        labels: a class for each item, (n,), for an `OrderedClassifier`.

    """
    training = training or Training()
    processes = Processes()
    try:
        with ONE_AT_A_TIME:
            return Trainer(model, X, training, run or Run(), processes, labels).train()
    except torch.OutOfMemoryError as error:
        raise OutOfMemory(
            f"a batch of {training.batch_size} in {training.parts} parts does not fit into memory: raise parts, lower "
            f"batch_size or make the layers smaller ({error})"
        ) from error
    finally:
        processes.leave()


class Trainer:
    """One run. It has one stage, or one for each width of a code that grows."""

    def __init__(
        self, model: OrderedAutoencoder, X: Any, training: Training, run: Run, processes: Processes, labels: Any = None
    ) -> None:
        self.model, self.training, self.run, self.processes = model, training, run, processes
        source = as_source(X)
        labels = check_labels(model, labels, len(source))
        self.hardware = Hardware(training, steps=training.total_steps(len(source)))
        self.feed = Feed(source, training, processes, self.hardware.device, labels)
        self.lengths = model.nested.lengths
        self.stage = self.step = 0
        self.saved: int | None = None
        self.reports: list[dict[str, Any]] = []
        self.losses: list[Tensor] = []
        self.identity = {
            **training.but(device="auto", parts=self.feed.parts).to_json(),
            "data": checksum(source, labels),
            "model": hashlib.sha256(str(model).encode()).hexdigest()[:16],
        }

    def train(self) -> list[dict[str, Any]]:
        """Train to the end, or to where somebody stops it."""
        journal = Journal(self.run, self.feed.total, speaks=self.processes.rank == 0)
        # The caller's randomness is left as it was.
        with torch.random.fork_rng(self.hardware.random_devices), Stopping() as stopping, journal.open():
            self._prepare()
            if self.run.resume and self.run.checkpoint is not None:
                self._resume()
                journal.replay(self.reports)
            while True:
                self._run_stage(journal, stopping)
                if not self._pays():
                    break
                self._widen()
            self._finish()
            if stopping.asked:
                stopping.stop(self.run.checkpoint, self.step)
        return self.reports

    def _prepare(self) -> None:
        self.model.to(self.hardware.device).train()
        self.model.set_moments(*self.feed.moments())
        check_model(self.model, self.training, self.feed.rows(self.feed.learnt[:2]))
        self.processes.same_everywhere(self.model.parameters())
        self.probe, self.sample, self.probe_labels = self.feed.probe(), self.feed.sample(), self.feed.probe_labels()
        piece = self.feed.batch_size // self.feed.parts
        self.rows = self.sample.new_empty(piece, self.model.features)
        self.labels = None if self.probe_labels is None else self.probe_labels.new_empty(piece)
        self.loss: Tensor = torch.zeros((), device=self.hardware.device)
        self.stop: Tensor = torch.zeros((), device=self.hardware.device)
        self._build()

    def _build(self) -> None:
        """All that is made for a model of this width."""
        self.model.zero_grad()  # what is fixed now would keep its last gradient
        if self.model.binarize is not None:
            self.model.binarize.deferred = True
            with torch.no_grad():
                self.model.binarize.initialize(self.model.preactivations(self.sample))
        self.objective = Objective(self.model, self.training)
        self.loss_of: Callable[..., Tensor] = self.hardware.compiled(self.objective)
        self.learn = self.hardware.graphed(self._learn)
        make = AdamStep if self.training.optimizer == "adam" else ConjugateStep
        self.stepper: Stepper = make(self.model, self.training, self.hardware, self.feed.total)
        sweep = self.training.sweep
        self.sweeper = None if sweep is None else Sweeper(self.model, sweep, self.sample)

    def _run_stage(self, journal: Journal, stopping: Stopping) -> None:
        if self.step == 0:
            self._report(journal)
        for parts in self.feed.batches(self.stage, self.step):
            self.stop.fill_(stopping.asked)
            loss = self.stepper.take(self.step, partial(self._backward, parts))
            self.losses.append(loss)
            self.step += 1
            self._after_step(journal)
            # All processes stop at the same step: who was asked in the middle of one goes on to the next.
            if self.stop > 0 if self.processes.count > 1 else stopping.asked:
                self._save()
                stopping.stop(self.run.checkpoint, self.step)

    def _backward(self, parts: list[tuple[int, Indices]]) -> Tensor:
        """Gradients of a batch, summed over its parts in all processes, and its loss."""
        self.loss.zero_()
        if self.model.binarize is not None:
            self.model.binarize.forget()
        for part, indices in parts:
            self.rows.copy_(self.feed.rows(indices), non_blocking=True)
            if self.labels is not None:
                self.labels.copy_(self.feed.labels(indices), non_blocking=True)
            torch.manual_seed(_mix(self.training.seed, self.stage, self.step, part))
            self.learn()
        gradients = [parameter.grad for parameter in self.model.parameters() if parameter.grad is not None]
        self.processes.add_up([*gradients, self.loss, self.stop])
        return self.loss.clone()

    def _learn(self) -> None:
        """Add the gradients and the loss of `rows`."""
        with self.hardware.precision():
            share = self.loss_of(self.rows, self.labels) / self.feed.parts
        share.backward()
        self.loss += share.detach()

    def _after_step(self, journal: Journal) -> None:
        if self.model.fixed:
            self.model.pin()
        if self.model.binarize is not None:
            self.model.binarize.update()
        if self.sweeper is not None and self.sweeper.sweep.due(self.step) and self.sweeper.look():
            self.objective.refresh()
            self.stepper.forget()
        journal.advance(self.step, self.feed.batch_size)
        last = self.step == self.feed.total
        report = last or self.step % self.run.report_every == 0
        if report or not self.hardware.gpu:  # looking makes a GPU wait
            self._check_finite()
        if report:
            self._report(journal)
        if last or self.step % self.run.checkpoint_every == 0:
            self._save()

    def _report(self, journal: Journal) -> None:
        lengths = some_lengths(self.model.width)
        known = None if self.probe_labels is None else self.probe_labels[:1024]
        errors = errors_by_length(self.model, self.probe[:1024], lengths, known)
        loss = float(torch.stack(self.losses).mean()) if self.losses else None
        self.losses = []
        by_length = dict(zip(lengths, map(float, errors), strict=True))
        values = {"stage": self.stage, "step": self.step, "loss": loss, "fixed": self.model.fixed, "errors": by_length}
        self.reports.append(journal.report(values))

    def _check_finite(self) -> None:
        loss = float(self.losses[-1])
        if math.isfinite(loss):
            return
        kept = "Nothing was kept: give a checkpoint"
        if self.saved is not None and self.run.checkpoint is not None:
            kept = f"The last good step {self.saved} is kept in {self.run.checkpoint}"
            state = read_checkpoint(self.run.checkpoint)
            if state["stage"] == self.stage:
                self.model.load_state_dict(state["model"])
                kept += ", and the model is that of this step"
        raise Diverged(
            f"the loss became {loss} at step {self.step} of {self.feed.total}: lower learning_rate "
            f"({self.training.learning_rate:g}) or clip ({self.training.clip:g}), or look for huge values in the data. "
            + kept
        )

    # Growing

    def _pays(self) -> bool:
        """Whether a wider code is worth a stage more."""
        growth, width = self.training.growth, self.model.width
        if growth is None or width + growth.step > growth.most:
            return False
        before = max(0, width - growth.step)
        whole, without, now = errors_by_length(self.model, self.probe, [0, before, width])
        return growth.pays(whole, without, now, units=width - before)

    def _widen(self) -> None:
        """Begin a stage with a wider code."""
        assert self.training.growth is not None
        if not isinstance(self.lengths, Lengths):
            raise InvalidInput(f"a code grows along a chain, got {self.lengths}: give lengths from nestcode.lengths")
        width = self.model.width
        self._settle()
        torch.manual_seed(_mix(self.training.seed, self.stage, self.feed.total, 0))
        self.model.grow(self.training.growth.step)
        self.model.set_lengths(Beyond(self.lengths, width))
        self.stage, self.step = self.stage + 1, 0
        self._build()

    def _settle(self) -> None:
        """Exact thresholds, on all data or a large part of it."""
        if self.model.binarize is not None:
            with torch.no_grad():
                self.model.binarize.finalize(map(self.model.preactivations, self.feed.pieces()))

    def _finish(self) -> None:
        self._settle()
        self.model.set_lengths(self.lengths)
        if self.model.binarize is not None:
            self.model.binarize.deferred = False
        self.model.eval()

    # Checkpoints

    def _save(self) -> None:
        finite = all(bool(tensor.isfinite().all()) for tensor in self.model.state_dict().values())
        if self.run.checkpoint is None or not finite:
            return
        if self.processes.rank == 0:
            sweep = None if self.sweeper is None else self.sweeper.state_dict()
            state = {
                "step": self.step, "stage": self.stage, "model": self.model.state_dict(), "sweep": sweep,
                "optimizer": self.stepper.optimizer.state_dict(), "reports": self.reports, "losses": self.losses,
            }  # fmt: skip
            write_checkpoint(self.run.checkpoint, {"identity": self.identity, **state})
        self.processes.wait()
        self.saved = self.step

    def _resume(self) -> None:
        """Go on from the checkpoint, if it is there."""
        assert self.run.checkpoint is not None
        try:
            state = read_checkpoint(self.run.checkpoint)
        except FileNotFoundError:
            return
        check_same(self.run.checkpoint, state["identity"], self.identity)
        for _ in range(state["stage"]):
            self._widen()
        self.model.load_state_dict(state["model"])
        self.model.refix()
        self.stepper.optimizer.load_state_dict(state["optimizer"])
        if self.sweeper is not None:
            self.sweeper.load_state_dict(state["sweep"])
            self.objective.refresh()
        self.step = self.saved = state["step"]
        self.reports, self.losses = state["reports"], [loss.to(self.hardware.device) for loss in state["losses"]]


def _mix(*numbers: int) -> int:
    """A seed of its own for each combination."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0])
