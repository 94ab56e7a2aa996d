"""Adaptive regularization coefficients (section 4.2 of the paper) and the invariance penalty (section 4.4).

The gradients of late units are small, because few truncations reach them: with one coefficient for all, regularization
would outweigh the reconstruction there. So each unit has its own coefficient, adapted in every step.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from nestcode.arrays import is_number, shown
from nestcode.errors import InvalidInput

Norm = Literal["l1", "l2"]


@dataclass(frozen=True)
class Penalty(ABC):
    """Σ λ_k ‖Ω_k‖ over units, Ω_k being the weights of unit k; a subclass chooses the λ_k.

    Args:
        norm: "l1" is the sum of absolute weights, "l2" half the sum of their squares.

    """

    norm: Norm

    def __post_init__(self) -> None:
        if self.norm not in ("l1", "l2"):
            raise InvalidInput(f'norm must be "l1" or "l2", got {self.norm!r}')

    @abstractmethod
    def coefficients(self, weight: Tensor, gradient: Tensor) -> Tensor:
        """Return λ_k of each unit, (width,), given its weights and its reconstruction gradient, (width, fan_in)."""

    def add_(self, weight: nn.Parameter) -> Tensor:
        """Add the penalty's gradient to `weight.grad` in place, and return the coefficients, (width,)."""
        if weight.grad is None:
            return torch.zeros(len(weight), device=weight.device)
        coefficients = self.coefficients(weight, weight.grad)
        weight.grad += (coefficients[:, None] * self._gradient(weight.detach())).to(weight.grad.dtype)
        return coefficients

    def value(self, weight: Tensor, coefficients: Tensor) -> Tensor:
        """Return the penalty with given coefficients, for line searches: a scalar to add to the loss."""
        weight = _at_least_float32(weight)
        norms = weight.abs().sum(dim=1) if self.norm == "l1" else weight.square().sum(dim=1) / 2
        return (coefficients * norms).sum()

    def _gradient(self, weight: Tensor) -> Tensor:
        return weight.sign() if self.norm == "l1" else weight

    def _check(self, weight: Tensor, gradient: Tensor) -> None:
        if weight.ndim != 2 or gradient.shape != weight.shape:
            raise InvalidInput(
                "weight and gradient must both be (width, fan_in), "
                f"got {tuple(weight.shape)} and {tuple(gradient.shape)}"
            )


@dataclass(frozen=True)
class AdaptivePenalty(Penalty):
    """A penalty whose gradient has `ratio` times the norm of the reconstruction gradient, for each unit.

    >>> weight = nn.Parameter(torch.tensor([[3.0, -4.0], [1.0, 1.0]]))
    >>> weight.grad = torch.tensor([[0.5, 0.0], [0.0, 0.0]])      # the second unit has no gradient
    >>> AdaptivePenalty("l2", ratio=0.1).add_(weight)
    tensor([0.0100, 0.0000])
    >>> weight.grad                                               # 0.05 along (3, -4) / 5 was added
    tensor([[ 0.5300, -0.0400],
            [ 0.0000,  0.0000]])

    Args:
        norm: "l1" is the sum of absolute weights, "l2" half the sum of their squares.
        ratio: the norm of the regularization gradient divided by the norm of the reconstruction gradient.

    """

    ratio: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_number(self.ratio) or self.ratio < 0:
            raise InvalidInput(f"ratio must be a number of at least 0, got {shown(self.ratio)}: 0.05 is the preset's")

    def coefficients(self, weight: Tensor, gradient: Tensor) -> Tensor:
        """Return λ_k of each unit, (width,), given its weights and its reconstruction gradient, (width, fan_in).

        It is 0 for a unit whose gradient or weights are 0.
        """
        self._check(weight, gradient)
        own, reconstruction = _row_norms(self._gradient(weight.detach())), _row_norms(gradient.detach())
        return torch.where(own > 0, self.ratio * reconstruction / own, 0.0)


@dataclass(frozen=True)
class ConstantPenalty(Penalty):
    """A penalty with one λ for all units and steps, which the paper advises against: a baseline.

    >>> weight = nn.Parameter(torch.tensor([[3.0, -4.0], [1.0, 1.0]]))
    >>> weight.grad = torch.tensor([[0.5, 0.0], [0.0, 0.0]])
    >>> ConstantPenalty("l1", coefficient=0.01).add_(weight)
    tensor([0.0100, 0.0100])
    >>> weight.grad                                               # the second unit shrinks
    tensor([[ 0.5100, -0.0100],
            [ 0.0100,  0.0100]])

    Args:
        norm: "l1" is the sum of absolute weights, "l2" half the sum of their squares.
        coefficient: λ.

    """

    coefficient: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_number(self.coefficient) or self.coefficient < 0:
            raise InvalidInput(f"coefficient must be a number of at least 0, got {shown(self.coefficient)}")

    def coefficients(self, weight: Tensor, gradient: Tensor) -> Tensor:
        """Return λ for each unit, (width,)."""
        self._check(weight, gradient)
        return torch.full_like(_at_least_float32(weight.detach()[:, 0]), self.coefficient)


@dataclass(frozen=True)
class Invariance:
    """The invariance penalty in training.

    >>> Invariance(0.1, share=0.25)
    Invariance(weight=0.1, perturbation=0.01, share=0.25, units='standardized')

    Args:
        weight: of the penalty; 0 leaves it out.
        perturbation: the variance of its noise (ε̄ in the paper), for features of variance 1.
        share: the share of each batch that it is estimated on.
        units: what is compared. "standardized" are pre-activations in standard deviations, weighted by the probability
            that they are kept; "rectified" is the penalty as the paper prints it.

    """

    weight: float = 0.0
    perturbation: float = 0.01
    share: float = 1.0
    units: Literal["standardized", "rectified"] = "standardized"

    def __post_init__(self) -> None:
        for name in ("weight", "perturbation", "share"):
            number = check_number(getattr(self, name), f"{name} of the invariance penalty", above_0=name != "weight")
            object.__setattr__(self, name, number)
        if self.units not in ("standardized", "rectified"):
            raise InvalidInput(
                f'units of the invariance penalty must be "standardized" or "rectified", got {self.units!r}'
            )
        if self.share > 1:
            raise InvalidInput(f"share of the invariance penalty must be at most 1, got {self.share}")


def check_number(value: Any, name: str, *, above_0: bool) -> Any:
    """Return a finite number as Python's, above 0 or at least 0; raise if it is something else."""
    value = value.item() if isinstance(value, np.number) else value
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise InvalidInput(f"{name} must be a number, got {shown(value)}")
    if not is_number(value) or value < 0 or (above_0 and not value):
        raise InvalidInput(f"{name} must be a number {'above' if above_0 else 'of at least'} 0, got {shown(value)}")
    return value


def invariance_penalty(
    encode: Callable[[Tensor], Tensor],
    X: Tensor,
    variance: float,
    *,
    weights: Tensor | None = None,
    clean: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Return the mean of ‖f(y + ε) − f(y)‖² / ‖ε‖² with ε ~ N(0, variance · I): a stochastic contractive penalty.

    For a linear encoder Ω its expectation is ‖Ω‖² / features; for a smooth encoder and small noise it is ‖J‖² /
    features, with the Jacobian J. With weights it is Σ w_k |f_k(y + ε) − f_k(y)|² / ‖ε‖². Where w_k is the probability
    that unit k is kept, this is the mean penalty of truncated codes: the gradients of late units then decay as their
    reconstruction gradients do.

    >>> double = lambda y: 2 * y
    >>> round(float(invariance_penalty(double, torch.rand(5, 3), variance=0.01)), 3)
    4.0

    Args:
        encode: deterministic, from (n, features) to units, (n, width). Units in bfloat16 are rounded by a few
            thousandths of their size, which small noise hardly exceeds.
        X: items, (n, features).
        variance: of the noise (ε̄ in the paper).
        weights: of the units, (width,); 1 by default.
        clean: encode(X), if it is known.
        generator: of the noise.

    """
    if not 0 < variance < float("inf"):
        raise InvalidInput(f"variance must be a number above 0, got {variance!r}: 0.01 suits features of variance 1")
    if generator is None:  # torch.compile supports the default generator only, and only unnamed
        noise = torch.randn_like(X) * variance**0.5
    else:
        noise = torch.randn(X.shape, dtype=X.dtype, device=X.device, generator=generator) * variance**0.5
    change = encode(X + noise) - (encode(X) if clean is None else clean)
    moved, pushed = (_at_least_float32(part).square() for part in (change, noise))
    moved = moved if weights is None else moved * weights
    moved, pushed = moved.flatten(1).sum(dim=1), pushed.flatten(1).sum(dim=1)
    penalty: Tensor = (moved / pushed.clamp(min=torch.finfo(pushed.dtype).tiny)).mean()
    return penalty


def _row_norms(rows: Tensor) -> Tensor:
    """Return the norm of each row, (width, fan_in) -> (width,), also where squares would underflow."""
    rows = _at_least_float32(rows)
    largest = rows.abs().amax(dim=1, keepdim=True)
    scaled = torch.where(largest > 0, rows / largest, 0.0)
    norms: Tensor = largest[:, 0] * torch.linalg.vector_norm(scaled, dim=1)
    return norms


def _at_least_float32(values: Tensor) -> Tensor:
    return values.to(torch.promote_types(values.dtype, torch.float32))
