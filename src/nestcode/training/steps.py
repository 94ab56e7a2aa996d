"""One step of an optimizer, with a penalty on the weights of the code's units."""

import math
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor, nn

from nestcode.nn.autoencoder import OrderedAutoencoder
from nestcode.training.config import Training
from nestcode.training.conjugate_gradient import ConjugateGradient
from nestcode.training.hardware import Hardware

WARM_UP = 0.05  # the share of the steps in which the learning rate rises
Backward = Callable[[], Tensor]  # fills gradients, and gives the loss


class Stepper(Protocol):
    """What the loop asks of an optimizer."""

    optimizer: torch.optim.Optimizer

    def take(self, step: int, backward: Backward) -> Tensor:
        """Take a step; the loss before it."""

    def forget(self) -> None:
        """Units were fixed: what was learnt of their direction no longer counts."""


class AdamStep(Stepper):
    """AdamW with a learning rate that rises, then falls."""

    def __init__(self, model: OrderedAutoencoder, training: Training, hardware: Hardware, total: int) -> None:
        self.model, self.training, self.total = model, training, total
        self._graphs = hardware.graphs
        self._rate = torch.tensor(training.learning_rate, device=hardware.device)  # where a graph finds it
        self.optimizer: torch.optim.Optimizer = torch.optim.AdamW(
            _learning(model),
            training.learning_rate,
            weight_decay=training.weight_decay,
            fused=hardware.gpu,
            capturable=self._graphs,
        )
        self._update = hardware.graphed(self._apply)

    def take(self, step: int, backward: Backward) -> Tensor:
        """Take a step; the loss before it."""
        self._set_rate(self.training.learning_rate * self._share(step))
        self.optimizer.zero_grad(set_to_none=not self._graphs)  # graphs write to where gradients were
        loss = backward()
        self._update()
        return loss

    def forget(self) -> None:
        """Adam scales each number by itself, and fixed ones are pinned: nothing to forget."""

    def _apply(self) -> None:
        if self.training.penalty is not None:
            for weight in self.model.code_weights():
                self.training.penalty.add_(weight)
        nn.utils.clip_grad_norm_(self.model.parameters(), self.training.clip)
        self.optimizer.step()

    def _set_rate(self, rate: float) -> None:
        self._rate.fill_(rate)
        for group in self.optimizer.param_groups:
            group["lr"] = self._rate if self._graphs else rate

    def _share(self, step: int) -> float:
        """Of the learning rate."""
        done = (step + 1) / self.total
        if done <= WARM_UP or self.training.schedule == "constant":
            return min(1.0, done / WARM_UP)
        return 0.5 + 0.5 * math.cos(math.pi * (done - WARM_UP) / (1 - WARM_UP) * (1 - 1 / self.total))


class ConjugateStep(Stepper):
    """Conjugate gradients: one line search along which noise, lengths and penalty coefficients are held."""

    def __init__(self, model: OrderedAutoencoder, training: Training, hardware: Hardware, total: int) -> None:  # noqa: ARG002
        self.model, self.training = model, training
        self.optimizer = ConjugateGradient(_learning(model), searches=training.searches)

    def take(self, step: int, backward: Backward) -> Tensor:  # noqa: ARG002
        """Take a step; the loss before it."""
        held: list[Tensor] = []

        def closure() -> Tensor:
            self.optimizer.zero_grad()
            loss = backward()
            if self.training.penalty is None:
                return loss
            weights = self.model.code_weights()
            if not held:
                held.extend(self.training.penalty.coefficients(weight, _gradient(weight)) for weight in weights)
            for weight, coefficients in zip(weights, held, strict=True):
                value = self.training.penalty.value(weight, coefficients)
                value.backward()
                loss = loss + value.detach()
            return loss

        loss: Tensor = self.optimizer.step(closure)
        return loss

    def forget(self) -> None:
        """Start from the steepest direction again."""
        self.optimizer.state.clear()


def _learning(model: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def _gradient(weight: Tensor) -> Tensor:
    return torch.zeros_like(weight) if weight.grad is None else weight.grad
