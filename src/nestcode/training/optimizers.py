"""One step of an optimizer: the learning-rate schedule, gradient clipping, and the penalty on the code's weights.

Not here: the update rules, which are `torch.optim.AdamW` and `conjugate_gradient.py`.
"""

import math
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from nestcode.errors import InvalidInput
from nestcode.training.config import Schedule, Training
from nestcode.training.conjugate_gradient import ConjugateGradient
from nestcode.training.objective import Objective
from nestcode.training.runtime.accelerator import Accelerator

WARM_UP = 0.05  # the share of the steps in which the learning rate rises
TENSORFLOAT32_ROUNDING = 1e-5  # of a mean loss, relative: errors of 2^-11 of products average out over examples
Backward = Callable[[], Tensor]  # computes gradients, and returns the loss


def learning_rate_factor(step: int, total: int, schedule: Schedule) -> float:
    """Return the learning rate of a step as a share of the largest: linear warm-up, then cosine decay or constant.

    >>> [round(learning_rate_factor(step, 100, "cosine"), 2) for step in (0, 4, 50, 99)]
    [0.2, 1.0, 0.53, 0.0]
    """
    done = (step + 1) / total
    if done <= WARM_UP or schedule == "constant":
        return min(1.0, done / WARM_UP)
    return 0.5 + 0.5 * math.cos(math.pi * (done - WARM_UP) / (1 - WARM_UP) * (1 - 1 / total))


class OptimizerStep(Protocol):
    """The optimizer as the loop sees it."""

    optimizer: torch.optim.Optimizer

    def take(self, step: int, backward: Backward) -> Tensor:
        """Take a step and return the loss before it."""

    def reset(self) -> None:
        """Discard directions that include units frozen since."""

    def report(self) -> dict[str, Any]:
        """Return the optimizer's part of a report."""
        return {}


class AdamStep(OptimizerStep):
    """AdamW with a learning-rate schedule and clipped gradients."""

    def __init__(self, objective: Objective, training: Training, accelerator: Accelerator, total: int) -> None:
        self.objective, self.training, self.total = objective, training, total
        self._accelerator, self._graphs = accelerator, accelerator.graphs
        self._rate = torch.tensor(training.learning_rate, device=accelerator.device)  # where a CUDA graph reads it
        self._norm = torch.zeros((), device=accelerator.device)  # of the last gradient
        self.optimizer: torch.optim.Optimizer = torch.optim.AdamW(
            _trainable(objective.model),
            training.learning_rate,
            weight_decay=training.weight_decay,
            fused=accelerator.gpu,
            capturable=self._graphs,
        )
        self._update = accelerator.graphed(self._apply)

    def take(self, step: int, backward: Backward) -> Tensor:
        """Take a step and return the loss before it; NaN or infinity where the gradient was not finite."""
        self._set_rate(self.training.learning_rate * learning_rate_factor(step, self.total, self.training.schedule))
        self.optimizer.zero_grad(set_to_none=not self._graphs)  # a CUDA graph writes to where gradients were
        loss = backward()
        self._update()
        return torch.where(self._norm.isfinite(), loss, self._norm)

    def reset(self) -> None:
        """Leave out parameters without gradients; frozen units are restored after each step."""
        self._update = self._accelerator.graphed(self._apply)

    def _apply(self) -> None:
        if self.training.penalty is not None:
            for weight in self.objective.regularized_weights():
                self.training.penalty.add_(weight)
        self._norm.copy_(nn.utils.clip_grad_norm_(self.objective.model.parameters(), self.training.clip))
        self.optimizer.step()

    def _set_rate(self, rate: float) -> None:
        self._rate.fill_(rate)
        for group in self.optimizer.param_groups:
            group["lr"] = self._rate if self._graphs else rate


class ConjugateGradientStep(OptimizerStep):
    """Conjugate gradients: line searches along which bits, noise, lengths and the penalty's coefficients are held."""

    def __init__(self, objective: Objective, training: Training, accelerator: Accelerator, total: int) -> None:  # noqa: ARG002
        self.objective, self.training = objective, training
        # Discrete units change between searches, and with them the function: each search is then a step of its own.
        self._rounds, searches = (training.searches, 1) if objective.discrete else (1, training.searches)
        rounding = TENSORFLOAT32_ROUNDING if training.precision == "tensorfloat32" else None
        self.optimizer = ConjugateGradient(_trainable(objective.model), searches=searches, rounding=rounding)

    def take(self, step: int, backward: Backward) -> Tensor:  # noqa: ARG002
        """Take a step and return the loss before it; NaN or infinity where the gradient was not finite."""
        losses = []
        for _ in range(self._rounds):
            self.objective.begin_search()
            losses.append(self.optimizer.step(self._closure(backward)))
            last = self.optimizer.last_step
            if last is not None and not math.isfinite(last.slope):
                return losses[0].new_tensor(last.slope)
            if last is not None and not last.size:
                break
        return losses[0]

    def _closure(self, backward: Backward) -> Backward:
        """Return the loss with the penalty, whose coefficients are those of the first evaluation."""
        held: list[Tensor] = []

        def closure() -> Tensor:
            self.optimizer.zero_grad()
            loss = backward()
            if self.training.penalty is None:
                return loss
            weights = self.objective.regularized_weights()
            if not held:
                held.extend(self.training.penalty.coefficients(weight, _gradient(weight)) for weight in weights)
            for weight, coefficients in zip(weights, held, strict=True):
                value = self.training.penalty.value(weight, coefficients)
                value.backward()
                loss = loss + value.detach()
            return loss

        return closure

    def reset(self) -> None:
        """Restart from steepest descent."""
        self.optimizer.state.clear()

    def report(self) -> dict[str, Any]:
        """Return counts of line searches since the stage began."""
        return {"line_search": self.optimizer.counts}


def _trainable(model: nn.Module) -> list[nn.Parameter]:
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not trainable:
        raise InvalidInput("a model must have parameters to train, got none that require gradients: unfreeze some")
    return trainable


def _gradient(weight: Tensor) -> Tensor:
    return torch.zeros_like(weight) if weight.grad is None else weight.grad
