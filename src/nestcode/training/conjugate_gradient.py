"""Nonlinear conjugate gradients (Polak–Ribière+), the paper's optimizer of deep models (section 4).

Not here: the line search (`strong_wolfe.py`); batches and noise, which the closure holds fixed.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from nestcode.arrays import check_int, is_number, shown
from nestcode.errors import InvalidInput
from nestcode.training.strong_wolfe import Trial, Wolfe, line_search

FIRST_MOVE = 0.01  # of the very first trial, relative to the norm of the parameters
# Powell (1977) restarts where successive gradients are farther from orthogonal than this. His 0.2 restarts the networks
# of benchmarks/conjugate_gradient.py so often that they train more slowly.
POWELL = 0.5
ROUNDING = 10  # the default rounding error of a loss, in units in the last place


@dataclass(frozen=True, kw_only=True)
class Step:
    """The outcome of a line search.

    Attributes:
        size: the accepted step in units of the direction; 0 where the parameters stayed.
        evaluations: calls of the closure, without the one that a step begins with.
        wolfe: whether both strong Wolfe conditions hold, up to rounding.
        restarted: whether the direction was that of steepest descent.
        slope: of the loss along the direction, at the start.
        before: the loss at the start.
        after: the loss at the end.

    """

    size: float
    evaluations: int
    wolfe: bool
    restarted: bool
    slope: float
    before: float
    after: float


class ConjugateGradient(Optimizer):
    """Polak–Ribière+ conjugate gradients with a strong Wolfe line search; there is no learning rate.

    >>> x = torch.tensor([3.0, -4.0], dtype=torch.float64, requires_grad=True)
    >>> optimizer = ConjugateGradient([x])
    >>> def closure():
    ...     optimizer.zero_grad()
    ...     loss = (x * x * torch.tensor([1.0, 5.0])).sum()
    ...     loss.backward()
    ...     return loss
    >>> losses = [float(optimizer.step(closure)) for _ in range(3)]
    >>> [round(loss, 6) for loss in losses]
    [89.0, 5.734196, 0.0]

    Each step calls the closure several times and compares the losses. **The closure must be a deterministic function
    throughout a step**: draw the batch, the noise and the kept lengths before, and hold them fixed within. With several
    processes it must return the same loss on all, the average. As with every optimizer of PyTorch, it clears the
    gradients, computes the loss, calls `backward` and returns the loss.

    A step never raises the loss, except by rounding, and leaves the gradients at its end point. An infinite or NaN loss
    means that a trial was too long. If a direction has no acceptable step, steepest descent is tried; if this has none
    either, nothing moves. If no step meets the curvature condition, for example at the kinks of ReLU, it makes a step
    with sufficient decrease, and `last_step.wolfe` is False. Near a minimum, where the decrease is below the loss's
    rounding error, only the slopes decide (the approximate Wolfe conditions of Hager & Zhang).

    It restarts from steepest descent where β ≤ 0, where the direction does not descend, and where successive gradients
    are far from orthogonal (Powell).

    Args:
        params: the parameters, of any shapes, floating dtypes and devices, in one group. Those that do not require
            gradients are left out of each step; a missing gradient counts as 0.
        c1: of the sufficient-decrease condition.
        c2: of the curvature condition.
        searches: line searches in each step. More than one saves the evaluation that each step begins with.
        limit: the most trials of a line search.
        rounding: the relative rounding error of the loss; by default 10 units in the last place of the coarsest dtype
            among loss and parameters. Raise it where the loss is computed in half precision, as under autocast.

    References:
        Nocedal & Wright, Numerical Optimization (2006), sections 3.5 and 5.2; Hager & Zhang, A new conjugate gradient
        method with guaranteed descent and an efficient line search (2005).

    """

    def __init__(
        self,
        params: Iterable[Tensor],
        *,
        c1: float = 1e-4,
        c2: float = 0.1,
        searches: int = 1,
        limit: int = 25,
        rounding: float | None = None,
    ) -> None:
        if not is_number(c1) or not is_number(c2) or not 0 < c1 < c2 < 0.5:
            got = f"c1={shown(c1)} and c2={shown(c2)}"
            raise InvalidInput(f"0 < c1 < c2 < 0.5 must hold, got {got}: 1e-4 and 0.1 are usual")
        if rounding is not None and not (is_number(rounding) and 0 <= rounding < 1):
            raise InvalidInput(f"rounding must be at least 0 and below 1, got {shown(rounding)}: 1e-6 suits float32")
        options = {
            "c1": float(c1),
            "c2": float(c2),
            "searches": check_int(searches, "searches", least=1),
            "limit": check_int(limit, "limit", least=1),
            "rounding": rounding,
        }
        super().__init__(params, options)
        # Beside the options, so that state_dict holds them: plain values, which torch.load(weights_only=True) reads.
        self.param_groups[0].update(searched=0, strong_wolfe=0, zero_steps=0, evaluations=0, last_step=None, beta=0.0)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add the only group of parameters: all of them share one line."""
        if self.param_groups:
            raise InvalidInput("all parameters must be in one group, got a second: make a new optimizer of them all")
        super().add_param_group(param_group)
        if kinds := {p.dtype for p in param_group["params"] if not p.is_floating_point()}:
            raise InvalidInput(f"parameters must have floating dtypes, got {kinds}: pass only such parameters")

    @property
    def evaluations(self) -> int:
        """Calls of the closure so far."""
        return int(self.param_groups[0]["evaluations"])

    @property
    def counts(self) -> dict[str, int]:
        """Counts so far: line searches, how many met the strong Wolfe conditions or moved nothing, evaluations."""
        group = self.param_groups[0]
        return {
            "searches": int(group["searched"]),
            "strong_wolfe": int(group["strong_wolfe"]),
            "zero_steps": int(group["zero_steps"]),
            "evaluations": self.evaluations,
        }

    @property
    def last_step(self) -> Step | None:
        """The outcome of the last line search; None before the first."""
        last = self.param_groups[0]["last_step"]
        return None if last is None else Step(**last)

    @torch.no_grad()
    def step(self, closure: Callable[[], Tensor] | None = None) -> Tensor:  # type: ignore[override]
        """Take one step (`searches` line searches) and return the loss before it."""
        if closure is None:
            raise InvalidInput("conjugate gradients need a closure, got none: step(closure) calls it at every trial")
        group = self.param_groups[0]

        def evaluate() -> Tensor:
            group["evaluations"] += 1
            with torch.enable_grad():
                return closure()

        loss = evaluate()
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            raise InvalidInput(f"the closure must return the loss, a scalar tensor, got {loss!r}")
        params = [p for p in group["params"] if p.requires_grad]
        rounding = group["rounding"]
        if rounding is None:
            rounding = ROUNDING * max(torch.finfo(tensor.dtype).eps for tensor in (loss, *params))
        value = loss.item()
        for _ in range(group["searches"]):
            line = _Line(params, evaluate, value)
            try:
                step = self._search(line, noise=rounding * abs(value))
            except BaseException:  # an interrupt must not leave the parameters at a trial either
                line.move(0.0)
                raise
            group["last_step"] = asdict(step)
            group["searched"] += 1
            group["strong_wolfe"] += step.wolfe
            group["zero_steps"] += step.size == 0
            if not step.size:
                break
            value = step.after
        return loss.detach()

    def _search(self, line: "_Line", noise: float) -> Step:
        """Move the parameters along the conjugate direction, or else along steepest descent, or not at all."""
        group = self.param_groups[0]
        wolfe = Wolfe(group["c1"], group["c2"], noise)
        for restarted, direction in self._directions(line):
            start = line.turn(direction)
            descends = start.finite and start.slope < 0
            found = (
                line_search(line, start, self._first(line, start, noise), wolfe, group["limit"]) if descends else None
            )
            if found or restarted:
                break
        end = found or start
        line.end_at(end.step)
        group["beta"] = _beta(line.gradient, _gradients(line.params)) if found else 0.0
        for p, along in zip(line.params, direction, strict=True):
            self.state[p]["direction"] = along
        return Step(
            size=end.step,
            evaluations=line.evaluations,
            wolfe=wolfe.hold(start, end),
            restarted=restarted,
            slope=start.slope,
            before=start.value,
            after=end.value,
        )

    def _directions(self, line: "_Line") -> Iterator[tuple[bool, list[Tensor]]]:
        """Yield −g + β·(the last direction) where it descends, then −g; each with whether it is the latter."""
        beta = self.param_groups[0]["beta"]
        if beta and self.state:
            last = (self.state[p].get("direction", torch.zeros_like(p)) for p in line.params)
            direction = [beta * along - grad for along, grad in zip(last, line.gradient, strict=True)]
            if _dot(line.gradient, direction) < 0:
                yield False, direction
        yield True, [-grad for grad in line.gradient]

    def _first(self, line: "_Line", start: Trial, noise: float) -> float:
        """Return the first trial step: assume the decrease of the last search, or to first order the same."""
        last = self.last_step
        if last is None or not last.size:
            return (FIRST_MOVE * _norm(line.origin) or 1.0) / _norm(line.direction)
        decrease = last.before - last.after
        return 2 * decrease / -start.slope if decrease > noise else last.size * last.slope / start.slope


class _Line:
    """The loss along a direction from the parameters; calling it moves them."""

    def __init__(self, params: Sequence[Tensor], evaluate: Callable[[], Tensor], value: float) -> None:
        self.params = params
        self.evaluate = evaluate
        self.value = value
        self.origin = [p.clone() for p in params]
        self.gradient = [grad.clone() for grad in _gradients(params)]
        self.direction: Sequence[Tensor] = self.gradient
        self.evaluations = 0
        self.place = 0.0  # the step at which the parameters and their gradients are

    def turn(self, direction: Sequence[Tensor]) -> Trial:
        """Take another direction from the origin."""
        self.direction = direction
        return Trial(0.0, self.value, _dot(self.gradient, direction))

    def __call__(self, step: float) -> Trial:
        """Evaluate a step."""
        self.move(step)
        self.evaluations += 1
        return Trial(step, self.evaluate().item(), _dot(_gradients(self.params), self.direction))

    def move(self, step: float) -> None:
        """Move the parameters to a step, to step 0 without rounding."""
        self.place = step
        for p, origin, direction in zip(self.params, self.origin, self.direction, strict=True):
            p.copy_(torch.add(origin, direction, alpha=step) if step else origin)

    def end_at(self, step: float) -> None:
        """End at a step with its gradients, also where another step was evaluated last."""
        if step != self.place:
            self(step)


def _beta(before: Sequence[Tensor], after: Sequence[Tensor]) -> float:
    """Return β of Polak–Ribière, g·(g − the last g) / |the last g|²; 0 for a restart (Powell).

    Computed at the end of a line search, where both gradients are of the same function, whatever the next batch is.
    """
    squared, shared, last = _dot(after, after), _dot(after, before), _dot(before, before)
    fresh = abs(shared) < POWELL * squared and last > 0
    return (squared - shared) / last if fresh else 0.0


def _gradients(params: Sequence[Tensor]) -> list[Tensor]:
    """Return the gradients; zeros where there is none."""
    return [torch.zeros_like(p) if p.grad is None else p.grad for p in params]


def _dot(a: Sequence[Tensor], b: Sequence[Tensor]) -> float:
    """Return the inner product of all parameters as one vector, in one transfer from the device."""
    parts = [torch.dot(x.flatten(), y.flatten()) for x, y in zip(a, b, strict=True)]
    return float(sum(torch.stack([part.to(parts[0].device) for part in parts]).tolist())) if parts else 0.0


def _norm(a: Sequence[Tensor]) -> float:
    return math.sqrt(_dot(a, a))
