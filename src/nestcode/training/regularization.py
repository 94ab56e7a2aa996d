"""Regularization that keeps its share at every unit (section 4.2 of the paper), and invariance of codes (section 4.4).

Gradients of late units are small, because few truncations reach them: one coefficient for all would let regularization
outweigh what they learn. So each unit has a coefficient of its own, chosen anew in every step.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from nestcode.errors import InvalidInput


@dataclass(frozen=True)
class AdaptivePenalty:
    """Σ λ_k ‖Ω_k‖ over units, with λ_k such that its gradient is `ratio` times the reconstruction's, unit by unit.

    >>> weight = nn.Parameter(torch.tensor([[3.0, -4.0], [1.0, 1.0]]))
    >>> weight.grad = torch.tensor([[0.5, 0.0], [0.0, 0.0]])      # nothing was learnt about the second unit
    >>> AdaptivePenalty("l2", ratio=0.1).add_(weight)
    tensor([0.0100, 0.0000])
    >>> weight.grad                                               # 0.05 along (3, -4) / 5 was added
    tensor([[ 0.5300, -0.0400],
            [ 0.0000,  0.0000]])

    Args:
        norm: "l1" is the sum of absolute weights, "l2" half the sum of their squares.
        ratio: the length of the regularization gradient over that of the reconstruction gradient.

    """

    norm: Literal["l1", "l2"]
    ratio: float

    def __post_init__(self) -> None:
        if self.norm not in ("l1", "l2"):
            raise InvalidInput(f'norm must be "l1" or "l2", got {self.norm!r}')
        if not 0 <= self.ratio < float("inf"):
            raise InvalidInput(f"ratio must be a number of at least 0, got {self.ratio!r}: 0.05 keeps it gentle")

    def coefficients(self, weight: Tensor, gradient: Tensor) -> Tensor:
        """λ_k of each unit, (width,), given its weights and its reconstruction gradient, (width, fan_in).

        A unit without a gradient, or without weights, gets none.
        """
        own = torch.linalg.vector_norm(self._gradient(weight.detach()).float(), dim=1)
        learnt = torch.linalg.vector_norm(gradient.detach().float(), dim=1)
        return torch.where(own > 0, self.ratio * learnt / own.clamp(min=torch.finfo(own.dtype).tiny), 0.0)

    def add_(self, weight: nn.Parameter) -> Tensor:
        """Add the penalty's gradient to `weight.grad`, in place; the coefficients, (width,)."""
        if weight.grad is None:
            return torch.zeros(len(weight), device=weight.device)
        coefficients = self.coefficients(weight, weight.grad)
        weight.grad += (coefficients[:, None] * self._gradient(weight.detach())).to(weight.grad.dtype)
        return coefficients

    def value(self, weight: Tensor, coefficients: Tensor) -> Tensor:
        """The penalty with coefficients held, for line searches: a number to add to the loss."""
        norms = weight.abs().sum(dim=1) if self.norm == "l1" else weight.square().sum(dim=1) / 2
        return (coefficients * norms).sum()

    def _gradient(self, weight: Tensor) -> Tensor:
        return weight.sign() if self.norm == "l1" else weight


def invariance_penalty(
    encode: Callable[[Tensor], Tensor],
    X: Tensor,
    variance: float,
    *,
    clean: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """The mean of ‖f(y + ε) − f(y)‖² / ‖ε‖² with ε ~ N(0, variance · I): how much codes change with their items.

    For a linear encoder Ω its expectation is ‖Ω‖² / features; for any smooth one and small noise, that of its Jacobian.

    >>> double = lambda y: 2 * y
    >>> invariance_penalty(double, torch.rand(5, 3), variance=0.01)
    tensor(4.0000)

    Args:
        encode: from (n, features) to units, (n, width); with no randomness of its own.
        X: items, (n, features).
        variance: of the noise (ε̄ in the paper).
        clean: encode(X), if it is known.
        generator: of the noise.

    """
    if not 0 < variance < float("inf"):
        raise InvalidInput(f"variance must be a number above 0, got {variance!r}: 0.01 suits features of variance 1")
    if generator is None:  # torch.compile takes the default generator only, and only unnamed
        noise = torch.randn_like(X) * variance**0.5
    else:
        noise = torch.randn(X.shape, dtype=X.dtype, device=X.device, generator=generator) * variance**0.5
    change = encode(X + noise) - (encode(X) if clean is None else clean)
    penalty: Tensor = (change.float().square().sum(dim=1) / noise.float().square().sum(dim=1)).mean()
    return penalty
