"""The training loop: steps, reports and checkpoints of any objective, on one process or several.

All randomness of a step is a function of the seed, the step and the micro-batch; the order of the data is one of the
seed and the epoch. So a resumed run equals the uninterrupted run, bit for bit; a line search sees the same noise and
lengths at every point it tries; and processes that share a batch need to agree on its number only.
"""

import json
import math
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nestcode.errors import Diverged, InvalidInput, OutOfMemory
from nestcode.training.config import Run, Training
from nestcode.training.objective import Objective
from nestcode.training.optimizers import AdamStep, ConjugateGradientStep, OptimizerStep
from nestcode.training.runtime.accelerator import Accelerator
from nestcode.training.runtime.checkpoint import check_identity, read_checkpoint, write_checkpoint
from nestcode.training.runtime.distributed import ProcessGroup
from nestcode.training.runtime.logger import RunLogger
from nestcode.training.runtime.randomness import RNG_LOCK, seeded
from nestcode.training.runtime.sampler import BatchSampler, MicroBatch
from nestcode.training.runtime.signals import GracefulInterrupt

Reports = list[dict[str, Any]]


def minimize(objective: Objective, training: Training, run: Run) -> Reports:
    """Minimize an objective and return the reports of the run."""
    group = ProcessGroup()
    try:
        with RNG_LOCK:
            return TrainingLoop(objective, training, run, group).run()
    except torch.OutOfMemoryError as error:
        raise OutOfMemory(
            f"a batch of {training.batch_size} in {training.micro_batches} micro-batches does not fit into memory: "
            f"raise micro_batches, lower batch_size or make the layers smaller ({error})"
        ) from error
    finally:
        group.leave()


class TrainingLoop:
    """One run: a single stage, or one for each width of a code that grows."""

    def __init__(self, objective: Objective, training: Training, run: Run, group: ProcessGroup) -> None:
        self.objective, self.training, self.options, self.group = objective, training, run, group
        self.sampler = BatchSampler(objective.examples, training, group)
        self.accelerator = Accelerator(training, self.sampler.total, compilable=objective.compilable)
        self.stage = self.step = 0
        self.saved: int | None = None  # the step of the last checkpoint
        self.reports: Reports = []
        self.losses: list[Tensor] = []  # since the last report
        shared = training.but(device="auto", micro_batches=self.sampler.micro_batches)
        with seeded(training.seed):
            self.identity = {**shared.to_json(), **objective.identity()}
        if not group.agree(json.dumps(self.identity, sort_keys=True)):
            raise InvalidInput(
                f"all {group.size} processes must have the same data, settings and model: give each of them the whole "
                "data (it reads its share) and a fitted base coder"
            )

    def run(self) -> Reports:
        """Train to the end, or until a signal."""
        logger = RunLogger(self.options, self.sampler.total, writes=self.group.rank == 0)
        # The caller's random state is restored at the end.
        restored = torch.random.fork_rng(self.accelerator.rng_devices), self.accelerator.products()
        with restored[0], restored[1], GracefulInterrupt() as interrupt, logger.open():
            try:
                self._run(logger, interrupt)
            finally:
                self.objective.release()
            if interrupt.signal:
                interrupt.stop(self.options.checkpoint, self.step)
        return self.reports

    def _run(self, logger: RunLogger, interrupt: GracefulInterrupt) -> None:
        self._prepare()
        if self.options.resume and self.options.checkpoint is not None:
            self._resume()
            logger.replay(self.reports)
        self._run_stage(logger, interrupt)
        while self.objective.grows():
            self._next_stage()
            self._run_stage(logger, interrupt)
        self._seed(self.sampler.total, 2)
        self.objective.finish()

    def _seed(self, step: int, index: int) -> None:
        self.accelerator.seed(_mix(self.training.seed, self.stage, step, index))

    def _prepare(self) -> None:
        self._seed(self.sampler.total, 1)
        self.objective.prepare(self.accelerator, self.sampler.micro_batch_size)
        self.group.broadcast(self.objective.model.parameters())
        self.loss = torch.zeros((), device=self.accelerator.device)  # of the batch
        self.stop = torch.zeros((), device=self.accelerator.device)  # a signal in any process
        self._begin_stage()

    def _begin_stage(self) -> None:
        self.objective.begin_stage()
        self._accumulate_gradients = self.accelerator.graphed(self._accumulate)
        make = AdamStep if self.training.optimizer == "adam" else ConjugateGradientStep
        self.optimizer: OptimizerStep = make(self.objective, self.training, self.accelerator, self.sampler.total)

    def _next_stage(self) -> None:
        self._seed(self.sampler.total, 0)
        self.objective.grow()
        self.stage, self.step = self.stage + 1, 0
        self._begin_stage()

    def _run_stage(self, logger: RunLogger, interrupt: GracefulInterrupt) -> None:
        if self.step == 0:
            self._report(logger)
        for micro_batches in self.sampler.batches(self.stage, self.step):
            self.stop.fill_(interrupt.signal)
            loss = self.optimizer.take(self.step, partial(self._backward, micro_batches))
            self.losses.append(loss)
            self.step += 1
            self._after_step(logger)
            # All processes stop at the same step: a signal in the middle of one counts at the next all-reduce.
            if self.stop > 0 if self.group.size > 1 else interrupt.signal:
                self._save()
                interrupt.stop(self.options.checkpoint, self.step)

    def _backward(self, micro_batches: list[MicroBatch]) -> Tensor:
        """Compute the gradients of a batch, summed over micro-batches and processes, and return its loss."""
        self.loss.zero_()
        self.objective.begin_batch()
        for micro_batch in micro_batches:
            self._seed(self.step, micro_batch.index)  # before items are read, which may be random too
            self.objective.load(self.step, micro_batch)
            self._accumulate_gradients()
        gradients = [p.grad for p in self.objective.model.parameters() if p.grad is not None]
        self.group.all_reduce([*gradients, self.loss, self.stop])
        return self.loss.clone()

    def _accumulate(self) -> None:
        """Add the gradients and the loss of the loaded micro-batch."""
        with self.accelerator.autocast():
            share = self.objective.loss() / self.sampler.micro_batches
        share.backward()
        self.loss += share.detach()

    def _after_step(self, logger: RunLogger) -> None:
        if self.objective.after_step(self.step):
            self._accumulate_gradients = self.accelerator.graphed(self._accumulate)  # of what is still trained
            self.optimizer.reset()
        logger.advance(self.step, self.sampler.batch_size)
        last = self.step == self.sampler.total
        report = last or self.step % self.options.report_every == 0
        if report or not self.accelerator.gpu:  # reading the loss makes a GPU wait
            self._check_finite()
        if report:
            self._report(logger)
        if last or self.step % self.options.checkpoint_every == 0:
            self._save()

    def _report(self, logger: RunLogger) -> None:
        loss, errors = float(torch.stack(self.losses).mean()) if self.losses else None, self.objective.errors()
        if loss is None and not errors:
            return  # before the first step of an objective that measures no errors
        self.losses = []
        values: dict[str, Any] = {"stage": self.stage, "step": self.step, "loss": loss}
        values |= {"frozen": self.objective.frozen_units(), "errors": errors, **self.optimizer.report()}
        self.reports.append(logger.report(values))

    def _check_finite(self) -> None:
        loss = float(self.losses[-1])
        if math.isfinite(loss):
            return
        kept = "Nothing was saved: give a checkpoint"
        if self.saved is not None and self.options.checkpoint is not None:
            kept = f"The last finite step {self.saved} is saved in {self.options.checkpoint}"
            state = read_checkpoint(self.options.checkpoint)
            if state.get("stage", 0) == self.stage:
                self.objective.model.load_state_dict(state["model"])
                kept += ", and the model is restored to it"
        raise Diverged(
            f"the loss became {loss} at step {self.step} of {self.sampler.total}: lower learning_rate "
            f"({self.training.learning_rate:g}) or clip ({self.training.clip:g}), or look for huge values in the data. "
            + kept
        )

    # Checkpoints

    def _save(self) -> None:
        model = self.objective.model
        finite = all(bool(tensor.isfinite().all()) for tensor in model.state_dict().values())
        if self.options.checkpoint is None or not finite:
            return
        if self.group.rank == 0:
            state = {
                "step": self.step, "stage": self.stage, "model": model.state_dict(),
                "sweep": self.objective.state_dict(), "optimizer": self.optimizer.optimizer.state_dict(),
                "reports": self.reports, "losses": self.losses,
            }  # fmt: skip
            write_checkpoint(self.options.checkpoint, {"identity": self.identity, **state})
        self.group.barrier()
        self.saved = self.step

    def _resume(self) -> None:
        """Continue from the checkpoint, if there is one."""
        assert self.options.checkpoint is not None
        try:
            state = read_checkpoint(self.options.checkpoint)
        except FileNotFoundError:
            return
        check_identity(self.options.checkpoint, state["identity"], self.identity)
        for _ in range(state.get("stage", 0)):
            self._next_stage()
        self.objective.model.load_state_dict(state["model"])
        self.optimizer.optimizer.load_state_dict(state["optimizer"])
        self.objective.load_state_dict(state.get("sweep"))
        self.step = self.saved = state["step"]
        self.reports, self.losses = state["reports"], [loss.to(self.accelerator.device) for loss in state["losses"]]


def _mix(*values: int) -> int:
    """Return a seed of its own for each combination."""
    return int(np.random.SeedSequence(values).generate_state(1, np.uint64)[0])
