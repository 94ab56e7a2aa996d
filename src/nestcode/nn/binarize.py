"""Bits of units: thresholds at quantiles, and how a gradient passes them (section 4.3 of the paper).

    pre-activations ──update, initialize, finalize──▶ thresholds
    pre-activations ──threshold_bits, draw_bits──▶ bits ──pass_gradient──▶ bits that learn

A bit is to be 1 with probability β. Its threshold is the (1 − β)-quantile of the unit's pre-activation: after
rectification many values are 0, and no threshold would have the right share above it.

In training, thresholds follow the quantiles without sorting: threshold += rate · spread · (share of ones − β). All that
is taken from a batch are sums over its examples, so those of several parts and processes add up.
"""

from collections.abc import Callable, Iterable
from statistics import NormalDist
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn
from torch import distributed as dist

from nestcode.arrays import check_int
from nestcode.errors import InvalidInput

Gradient = Literal["none", "straight-through", "stochastic"]
GRADIENTS = ("none", "straight-through", "stochastic")
MOST_ROWS = (
    1 << 16
)  # that exact quantiles are taken of: the share of ones is then within 0.002 of β, one standard error
STEEPNESS = 2.0  # of the sigmoid that stands in for a bit in the backward pass, in spreads
DRAWN_STEEPNESS = 6.0  # of the probability of a drawn bit
FARTHEST = 10.0  # spreads from the threshold; what is beyond counts as being there
LEAST_SPREAD = 1e-6  # of a unit that does not vary: gradients are divided by it


def threshold_bits(pre: Tensor, threshold: Tensor) -> Tensor:
    """1 where a pre-activation is above its threshold, 0 elsewhere: (n, width), (width,) -> (n, width).

    >>> threshold_bits(torch.tensor([[0.2, 0.2]]), torch.tensor([0.0, 0.5]))
    tensor([[1., 0.]])

    Bits have the type of `pre`, and no gradient. NaN stays NaN.
    """
    pre = pre.detach()
    return torch.where(pre.isnan(), pre, (pre > threshold).to(pre.dtype))


def draw_bits(pre: Tensor, threshold: Tensor, spread: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Like `threshold_bits`, but drawn, with a probability that rises from 0 to 1 around the threshold.

    >>> pre = torch.tensor([[-1.0, 0.0, 1.0]]).expand(1000, 3)
    >>> draw_bits(pre, torch.zeros(3), torch.ones(3), torch.Generator().manual_seed(0)).mean(dim=0)
    tensor([0.0050, 0.5040, 0.9950])
    """
    pre = pre.detach()
    chance = torch.sigmoid(DRAWN_STEEPNESS * (pre - threshold) / spread)
    if generator is None:  # torch.compile takes the default generator only, and only unnamed
        draws = torch.rand_like(chance)
    else:
        draws = torch.rand(chance.shape, dtype=chance.dtype, device=chance.device, generator=generator)
    return torch.where(pre.isnan(), pre, (draws < chance).to(pre.dtype))


def pass_gradient(bits: Tensor, pre: Tensor, threshold: Tensor, spread: Tensor, steepness: float = STEEPNESS) -> Tensor:
    """The bits as they are, with the gradient of sigmoid(steepness · (pre − threshold) / spread) to `pre`.

    >>> pre = torch.tensor([[-1.0], [0.0], [2.0]], requires_grad=True)
    >>> bits = pass_gradient(threshold_bits(pre, torch.zeros(1)), pre, torch.zeros(1), torch.ones(1))
    >>> (bits * torch.tensor([[1.0], [0.0], [0.0]])).sum().backward()   # if only the first were more of a one …
    >>> pre.grad                                                        # … the others would have to be less
    tensor([[ 0.1508],
            [-0.1409],
            [-0.0100]])

    The threshold is a quantile: it moves with the examples near it, and where all move, no bit changes. So the part of
    the gradient that would move all is taken off, a mean over the examples of this pass, weighted by their nearness to
    the threshold. Else units that would gain by more ones than β allows would run from their threshold, and learn
    nothing but that. It leaves no gradient to an example that is alone: give it dozens.
    """
    out: Tensor = _PassGradient.apply(bits, pre, threshold, spread, steepness)  # type: ignore[no-untyped-call]
    return out


class _PassGradient(torch.autograd.Function):
    @staticmethod
    def forward(bits: Tensor, *_: Any) -> Tensor:
        return bits.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG004
        _, pre, threshold, spread, ctx.steepness = inputs
        ctx.save_for_backward(pre, threshold, spread)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        pre, threshold, spread = ctx.saved_tensors
        slope = ctx.steepness / spread
        soft = torch.sigmoid((pre - threshold) * slope)
        near = soft * (1 - soft)
        common = (near * grads[0]).sum(dim=0) / near.sum(dim=0).clamp(min=torch.finfo(near.dtype).tiny)
        return None, ((grads[0] - common) * near * slope).to(pre.dtype), None, None, None


class Binarize(nn.Module):
    """Makes bits of pre-activations, each 1 with probability `beta`.

    >>> pre = torch.randn(1000, 4, generator=torch.Generator().manual_seed(0))
    >>> binarize = Binarize(4, beta=0.2)
    >>> binarize.finalize([pre])
    >>> binarize.eval()(pre).mean(dim=0)
    tensor([0.2000, 0.2000, 0.2000, 0.2000])

    In evaluation a bit is 1 above its threshold, and has no gradient. In training the thresholds follow the data, as
    running means do in batch normalization, until `finalize` sets them. They stay in float32 whatever the model's type.

    Args:
        width: units.
        beta: how often a bit is 1.
        gradient: "straight-through", see `pass_gradient`; "stochastic", which draws bits in training; or "none", the
            paper's: a network then learns through the weights that its encoder shares with its decoder.
        signed: bits are -1 and 1, so that 0 can stand for a dropped one; else 0 and 1, as in the paper.
        rate: how fast thresholds follow the data. Those that drift by d spreads a batch have d / rate too many ones.
        deferred: wait with following until `update` is called, for batches that are worked off in pieces. Under
            DistributedDataParallel it needs broadcast_buffers=False, to keep what each process has seen.

    """

    threshold: Tensor  # (width,)
    spread: Tensor  # (width,), the deviation of a unit; it sets the size of steps and the slope of gradients
    seen: Tensor  # batches
    _sums: Tensor  # (4, width): of examples, ones, distances from the threshold and their squares since the last update

    def __init__(
        self,
        width: int,
        beta: float = 0.5,
        gradient: Gradient = "straight-through",
        *,
        signed: bool = False,
        rate: float = 0.2,
        deferred: bool = False,
    ) -> None:
        super().__init__()
        if gradient not in GRADIENTS:
            raise InvalidInput(f"gradient must be one of {', '.join(GRADIENTS)}, got {gradient!r}")
        for name, value in (("beta", beta), ("rate", rate)):
            if not 0 < value < 1:
                raise InvalidInput(f"{name} must lie strictly between 0 and 1, got {value!r}")
        self.width, self.beta, self.rate = check_int(width, "width", least=1), float(beta), float(rate)
        self.gradient, self.signed, self.deferred = gradient, signed, deferred
        self.fixed = 0  # leading units whose thresholds stay
        self._normal = NormalDist().inv_cdf(1 - self.beta)  # the quantile of a normal unit, in deviations
        self.register_buffer("threshold", torch.zeros(self.width, dtype=torch.float32))
        self.register_buffer("spread", torch.ones(self.width, dtype=torch.float32))
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        self.register_buffer("_sums", torch.zeros(4, self.width, dtype=torch.float32), persistent=False)

    def forward(self, pre: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Bits of pre-activations, (n, width); `generator` draws them where they are stochastic."""
        self._check(pre)
        bits = self._learning_bits(pre, generator) if self.training else threshold_bits(pre, self.threshold)
        return 2 * bits - 1 if self.signed else bits

    def _learning_bits(self, pre: Tensor, generator: torch.Generator | None) -> Tensor:
        self._watch(pre.detach().float())
        new = self.seen == 0
        threshold, spread = self.threshold.clone(), self.spread.clone()  # the backward pass may come after an update
        if not self.deferred:
            self.update()
            threshold, spread = torch.where(new, self.threshold, threshold), torch.where(new, self.spread, spread)
        if self.gradient == "none":
            return threshold_bits(pre, threshold)
        if self.gradient == "straight-through":
            return pass_gradient(threshold_bits(pre, threshold), pre, threshold, spread)
        return pass_gradient(draw_bits(pre, threshold, spread, generator), pre, threshold, spread, DRAWN_STEEPNESS)

    def _watch(self, pre: Tensor) -> None:
        # One example far out would make the steps of a hundred batches too large.
        limit = torch.where(self.seen == 0, torch.inf, FARTHEST * self.spread)
        distance = (pre - self.threshold).clamp(-limit, limit)
        ones = (distance > 0).float()
        self._sums += torch.stack(
            [torch.ones_like(ones).sum(dim=0), ones.sum(dim=0), distance.sum(dim=0), distance.square().sum(dim=0)]
        )

    @torch.no_grad()
    def update(self) -> None:
        """Let thresholds follow what was seen since the last update, in all processes."""
        sums = self._sums.clone()
        self._sums.zero_()
        if dist.is_available() and dist.is_initialized():
            dist.all_reduce(sums)
        ones, shift, square = sums[1:] / sums[0]
        new = self.seen == 0
        variance = square - shift.square()
        first = self.threshold + shift + variance.clamp(min=0).sqrt() * self._normal  # as if it were normal
        moved = self.threshold + self.rate * self.spread * (ones - self.beta)
        # Of distances from the threshold, not from the mean: it tells, too, how far there is still to go.
        variance = torch.where(new, variance, torch.lerp(self.spread.square(), self._variance(square), self.rate))
        self._set(torch.where(new, first, moved), variance)

    def discard(self) -> None:
        """Leave out what was seen since the last update: a line search looks at a batch several times."""
        self._sums.zero_()

    def initialize(self, pre: Tensor, last: int | None = None) -> None:
        """Set thresholds to the quantiles of these pre-activations, (n, width), of units up to `last`."""
        self._check(pre)
        pre = pre.detach().float()
        if len(pre) == 0:
            raise InvalidInput("quantiles need pre-activations of at least one item, got none")
        below = min(max(round((1 - self.beta) * len(pre)), 1), len(pre))
        # Halfway between two values: at one of them, rounding would decide over its bit.
        low, high = (
            torch.cat([part.kthvalue(place, dim=0).values for part in pre.split(256, dim=1)])
            for place in (below, min(below + 1, len(pre)))
        )
        threshold = low + (high - low) / 2
        self.discard()  # distances from the thresholds before
        self._set(threshold, self._variance((pre - threshold).square().mean(dim=0)), last)

    def finalize(self, batches: Iterable[Tensor]) -> None:
        """Set thresholds to the quantiles of all these pre-activations: of every m-th row, if they are too many.

        Rows at equal distances stand for all, unless the data repeat with just that period.
        """
        kept = [self.threshold.new_empty(0, self.width)]
        stride, rows = 1, 0
        for batch in batches:
            self._check(batch)
            kept.append(batch.detach()[(-rows) % stride :: stride].to(self.threshold, copy=True))  # not a view of all
            rows += len(batch)
            while sum(map(len, kept)) > 2 * MOST_ROWS:
                kept, stride = [torch.cat(kept)[::2].clone()], 2 * stride
        self.initialize(torch.cat(kept))

    def grow(self, units: int) -> None:
        """Add units, with thresholds at 0."""
        self.width += units
        for name, fill in (("threshold", 0.0), ("spread", 1.0)):
            old = self.get_buffer(name)
            self.register_buffer(name, torch.cat([old, old.new_full((units,), fill)]))
        self.register_buffer("_sums", self._sums.new_zeros(4, self.width), persistent=False)

    def _variance(self, square: Tensor) -> Tensor:
        """The variance of a normal unit, given its mean squared distance from the quantile."""
        return square / (1 + self._normal**2)

    def _set(self, threshold: Tensor, variance: Tensor, last: int | None = None) -> None:
        """New numbers, of units that are not fixed; a unit whose numbers are not finite keeps those it has."""
        good = threshold.isfinite() & variance.isfinite()
        spread = variance.clamp(min=LEAST_SPREAD**2).sqrt()
        units = slice(self.fixed, last)
        self.threshold[units] = torch.where(good, threshold, self.threshold)[units]
        self.spread[units] = torch.where(good, spread, self.spread)[units]
        self.seen += good.any()

    def _check(self, pre: Tensor) -> None:
        if pre.ndim != 2 or pre.shape[1] != self.width or not pre.is_floating_point():
            raise InvalidInput(
                f"pre-activations must be floats (n, {self.width}), got {pre.dtype} of shape {tuple(pre.shape)}"
            )

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move with the model, but stay in float32: a threshold of 8 bits would be somewhere else."""

        def move(buffer: Tensor) -> Tensor:
            moved = fn(buffer)
            return moved if moved.dtype == buffer.dtype else buffer.to(moved.device)

        super()._apply(move, recurse)  # type: ignore[no-untyped-call]
        return self

    def extra_repr(self) -> str:
        """What `print(model)` shows."""
        return f"{self.width}, beta={self.beta}, gradient={self.gradient!r}, signed={self.signed}"
