"""Binarization: thresholds at quantiles, and gradient estimators for them (section 4.3 of the paper).

    pre-activations ──update, initialize, finalize──▶ thresholds
    pre-activations ──threshold_bits, sample_bits──▶ bits ──straight_through──▶ bits with a gradient
                                                      └──anchored_bits──▶ a smooth function, for line searches

A bit is to be 1 with probability β. Its threshold is the (1 − β)-quantile of the unit's pre-activation: after
rectification many values are 0, and no threshold would have a share of β above it.

In training, thresholds follow the quantiles without sorting: threshold += rate · spread · (share of ones − β). The
update needs only sums over the examples of a batch, so micro-batches and processes add up.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn
from torch import distributed as dist

from nestcode.arrays import check_int, is_number, shown
from nestcode.codes import MAX_WIDTH
from nestcode.errors import InvalidInput

Gradient = Literal["none", "straight-through", "stochastic"]
GRADIENTS = ("none", "straight-through", "stochastic")
MOST_ROWS = 1 << 16  # for exact quantiles: the standard error of the share of ones is then below 0.002
STEEPNESS = 2.0  # of the sigmoid that replaces a bit in the backward pass, per spread
SAMPLED_STEEPNESS = 6.0  # of the probability of a sampled bit
RATE = 0.2  # by default, how fast thresholds follow the data
OUTLIER = 10.0  # spreads from the threshold: distances beyond are clipped
LEAST_SPREAD = 1e-6  # of a constant unit: gradients are divided by it


def threshold_bits(pre: Tensor, threshold: Tensor) -> Tensor:
    """Return 1 where a pre-activation is above its threshold, 0 elsewhere: (n, width), (width,) -> (n, width).

    >>> threshold_bits(torch.tensor([[0.2, 0.2]]), torch.tensor([0.0, 0.5]))
    tensor([[1., 0.]])

    Bits have the type of `pre`, and no gradient. NaN stays NaN.
    """
    pre = pre.detach()
    return torch.where(pre.isnan(), pre, (pre > threshold).to(pre.dtype))


def sample_bits(pre: Tensor, threshold: Tensor, spread: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Sample bits, 1 with a probability that rises from 0 to 1 around the threshold: shapes as `threshold_bits`.

    >>> pre = torch.tensor([[-1.0, 0.0, 1.0]]).expand(1000, 3)
    >>> sample_bits(pre, torch.zeros(3), torch.ones(3), torch.Generator().manual_seed(0)).mean(dim=0)
    tensor([0.0050, 0.5040, 0.9950])
    """
    pre = pre.detach()
    probability = torch.sigmoid(SAMPLED_STEEPNESS * (pre - threshold) / spread)
    if generator is None:  # torch.compile supports the default generator only, and only unnamed
        draws = torch.rand_like(probability)
    else:
        draws = torch.rand(probability.shape, dtype=probability.dtype, device=probability.device, generator=generator)
    return torch.where(pre.isnan(), pre, (draws < probability).to(pre.dtype))


def straight_through(
    bits: Tensor, pre: Tensor, threshold: Tensor, spread: Tensor, steepness: float = STEEPNESS
) -> Tensor:
    """Return the bits, with the gradient of sigmoid(steepness · (pre − threshold) / spread) for `pre`.

    >>> pre = torch.tensor([[-1.0], [0.0], [2.0]], requires_grad=True)
    >>> bits = straight_through(threshold_bits(pre, torch.zeros(1)), pre, torch.zeros(1), torch.ones(1))
    >>> (bits * torch.tensor([[1.0], [0.0], [0.0]])).sum().backward()   # raise the first bit
    >>> pre.grad                                                        # at the cost of the others
    tensor([[ 0.1508],
            [-0.1409],
            [-0.0100]])

    This is a straight-through estimator for a threshold that is a quantile: the threshold moves with the examples near
    it, and if all of them move alike, no bit changes. So the common part of the gradient, a mean over the batch
    weighted by the nearness to the threshold, is subtracted. Without this, a unit that would profit from more ones than
    β allows would drift away from its threshold and learn nothing else. A single example gets no gradient: use batches
    of dozens.
    """
    out: Tensor = _StraightThrough.apply(bits, pre, threshold, spread, steepness)  # type: ignore[no-untyped-call]
    return out


def anchored_bits(
    bits: Tensor, origin: Tensor, pre: Tensor, threshold: Tensor, spread: Tensor, steepness: float = STEEPNESS
) -> Tensor:
    """Return the bits of `origin` plus what a sigmoid changes from there to `pre`: a smooth function for line searches.

    At `origin` it equals the bits and has the gradient of `straight_through`; elsewhere it has its own, true gradient.

    >>> origin, zero, one = torch.tensor([[-1.0], [0.5]]), torch.zeros(1), torch.ones(1)
    >>> bits = threshold_bits(origin, zero)
    >>> anchored_bits(bits, origin, origin, zero, one).flatten()
    tensor([0., 1.])
    >>> anchored_bits(bits, origin, origin + torch.tensor([[0.5], [0.0]]), zero, one).flatten()
    tensor([0.0870, 0.9264])
    """
    slope = steepness / spread
    soft = torch.sigmoid((origin - threshold) * slope)
    near = soft * (1 - soft)
    # The threshold is a quantile, and moves with the examples near it: to first order, by this much.
    shift = (near * (pre - origin)).sum(dim=0) / near.sum(dim=0).clamp(min=torch.finfo(near.dtype).tiny)
    return bits + (torch.sigmoid((pre - shift - threshold) * slope) - soft)


@dataclass
class Anchor:
    """The bits that a batch had where a line search begins; made by the first evaluation, held in later ones."""

    bits: Tensor | None = None  # (n, width)
    origin: Tensor | None = None  # (n, width): their pre-activations


class _StraightThrough(torch.autograd.Function):
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
    """Binarization of pre-activations, each bit 1 with probability `beta`.

    >>> pre = torch.randn(1000, 4, generator=torch.Generator().manual_seed(0))
    >>> binarize = Binarize(4, beta=0.2)
    >>> binarize.finalize([pre])
    >>> binarize.eval()(pre).mean(dim=0)
    tensor([0.2000, 0.2000, 0.2000, 0.2000])

    In evaluation mode a bit is 1 above its threshold, and has no gradient. In training the thresholds follow the data,
    like running means in batch normalization, until `finalize` sets them. Thresholds are float32 for every dtype of the
    model.

    Args:
        width: units.
        beta: the probability that a bit is 1.
        gradient: "straight-through", see `straight_through`; "stochastic", which samples bits in training; or "none",
            as in the paper: the encoder then learns only through the weights that it shares with the decoder.
        signed: bits are -1 and 1, and 0 stands for a dropped bit; otherwise bits are 0 and 1, as in the paper.
        rate: how fast thresholds follow the data. A drift of d spreads per batch biases the share of ones by d / rate.
        deferred: update thresholds only when `update` is called, for gradient accumulation, and for activation
            checkpointing, whose recomputation would move them a second time. Under DistributedDataParallel it needs
            broadcast_buffers=False, to keep the statistics of each process.

    """

    threshold: Tensor  # (width,)
    spread: Tensor  # (width,), the standard deviation of a unit: the unit of threshold steps and gradient slopes
    seen: Tensor  # batches
    _sums: Tensor  # (4, width): examples, ones, distances from the threshold, their squares since the last update

    def __init__(
        self,
        width: int,
        beta: float = 0.5,
        gradient: Gradient = "straight-through",
        *,
        signed: bool = False,
        rate: float = RATE,
        deferred: bool = False,
    ) -> None:
        super().__init__()
        if gradient not in GRADIENTS:
            raise InvalidInput(f"gradient must be one of {', '.join(GRADIENTS)}, got {gradient!r}")
        for name, value in (("beta", beta), ("rate", rate)):
            if not is_number(value) or not 0 < 1 - value < 1:
                raise InvalidInput(f"{name} must lie strictly between 0 and 1, got {shown(value)}")
        self.width = check_int(width, "width", least=1, most=MAX_WIDTH)
        self.beta, self.rate = float(beta), float(rate)
        self.gradient, self.signed, self.deferred = gradient, signed, deferred
        self.frozen = 0  # leading units whose thresholds stay
        self.anchor: Anchor | None = None  # within a line search
        self._normal = NormalDist().inv_cdf(1 - self.beta)  # the quantile of a standard normal unit
        self.register_buffer("threshold", torch.zeros(self.width, dtype=torch.float32))
        self.register_buffer("spread", torch.ones(self.width, dtype=torch.float32))
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        self.register_buffer("_sums", torch.zeros(4, self.width, dtype=torch.float32), persistent=False)

    def forward(self, pre: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Return the bits of pre-activations, (n, width); `generator` samples stochastic ones."""
        self._check(pre)
        bits = self._training_bits(pre, generator) if self.training else threshold_bits(pre, self.threshold)
        return 2 * bits - 1 if self.signed else bits

    def _training_bits(self, pre: Tensor, generator: torch.Generator | None) -> Tensor:
        self._accumulate(pre.detach().float())
        new = self.seen == 0
        threshold, spread = self.threshold.clone(), self.spread.clone()  # the backward pass may come after an update
        if not self.deferred:
            self.update()
            threshold, spread = torch.where(new, self.threshold, threshold), torch.where(new, self.spread, spread)
        sampled = self.gradient == "stochastic"
        bits = sample_bits(pre, threshold, spread, generator) if sampled else threshold_bits(pre, threshold)
        if self.anchor is not None:
            if self.anchor.bits is None:
                self.anchor.bits, self.anchor.origin = bits, pre.detach()
            bits = self.anchor.bits
        if self.gradient == "none":
            return bits
        steepness = SAMPLED_STEEPNESS if sampled else STEEPNESS
        if self.anchor is None or self.anchor.origin is None:
            return straight_through(bits, pre, threshold, spread, steepness)
        return anchored_bits(bits, self.anchor.origin, pre, threshold, spread, steepness)

    def _accumulate(self, pre: Tensor) -> None:
        # One outlier would make the steps of a hundred batches too large.
        limit = torch.where(self.seen == 0, torch.inf, OUTLIER * self.spread)
        distance = (pre - self.threshold).clamp(-limit, limit)
        ones = (distance > 0).float()
        self._sums += torch.stack(
            [torch.ones_like(ones).sum(dim=0), ones.sum(dim=0), distance.sum(dim=0), distance.square().sum(dim=0)]
        )

    @torch.no_grad()
    def update(self) -> None:
        """Update thresholds by the statistics of all processes since the last update."""
        sums = self._sums.clone()
        self._sums.zero_()
        if dist.is_available() and dist.is_initialized():
            dist.all_reduce(sums)
        ones, shift, square = sums[1:] / sums[0]
        new = self.seen == 0
        variance = square - shift.square()
        first = self.threshold + shift + variance.clamp(min=0).sqrt() * self._normal  # as of a normal unit
        moved = self.threshold + self.rate * self.spread * (ones - self.beta)
        # Distances are from the threshold, not from the mean, so they include how far it still has to move.
        variance = torch.where(new, variance, torch.lerp(self.spread.square(), self._variance(square), self.rate))
        self._set(torch.where(new, first, moved), variance)

    def discard(self) -> None:
        """Discard the statistics since the last update: a line search evaluates a batch several times."""
        self._sums.zero_()

    def initialize(self, pre: Tensor, last: int | None = None) -> None:
        """Set the thresholds of units up to `last` to the quantiles of pre-activations, (n, width)."""
        self._check(pre)
        last = None if last is None else check_int(last, "last", least=0)
        pre = pre.detach().float()
        if len(pre) == 0:
            raise InvalidInput("quantiles need pre-activations of at least one item, got none")
        below = min(max(round((1 - self.beta) * len(pre)), 1), len(pre))
        # Halfway between two values: at one of them, rounding would decide its bit.
        low, high = (
            torch.cat([part.kthvalue(place, dim=0).values for part in pre.split(256, dim=1)])
            for place in (below, min(below + 1, len(pre)))
        )
        threshold = low + (high - low) / 2
        self.discard()  # statistics are relative to the previous thresholds
        self._set(threshold, self._variance((pre - threshold).square().mean(dim=0)), last)

    def finalize(self, batches: Iterable[Tensor]) -> None:
        """Set thresholds to the quantiles of all these pre-activations, or of every m-th row if there are too many.

        A regular subsample is representative unless the data repeat with its period.
        """
        kept = [self.threshold.new_empty(0, self.width)]
        stride, rows = 1, 0
        for batch in batches:
            self._check(batch)
            # A copy, as a view would keep the batch alive.
            kept.append(batch.detach()[(-rows) % stride :: stride].to(self.threshold, copy=True))
            rows += len(batch)
            while sum(map(len, kept)) > 2 * MOST_ROWS:
                kept, stride = [torch.cat(kept)[::2].clone()], 2 * stride
        self.initialize(torch.cat(kept))

    def grow(self, units: int) -> None:
        """Add units, with thresholds at 0."""
        units = check_int(units, "units", least=1, most=MAX_WIDTH)
        self.width += units
        for name, fill in (("threshold", 0.0), ("spread", 1.0)):
            old = self.get_buffer(name)
            self.register_buffer(name, torch.cat([old, old.new_full((units,), fill)]))
        self.register_buffer("_sums", self._sums.new_zeros(4, self.width), persistent=False)

    def _variance(self, square: Tensor) -> Tensor:
        """Return the variance of a normal unit, given its mean squared distance from the quantile."""
        return square / (1 + self._normal**2)

    def _set(self, threshold: Tensor, variance: Tensor, last: int | None = None) -> None:
        """Set the statistics of units that are not frozen; where they are not finite, the previous ones stay."""
        good = threshold.isfinite() & variance.isfinite()
        spread = variance.clamp(min=LEAST_SPREAD**2).sqrt()
        units = slice(self.frozen, last)
        self.threshold[units] = torch.where(good, threshold, self.threshold)[units]
        self.spread[units] = torch.where(good, spread, self.spread)[units]
        self.seen += good.any()

    def _check(self, pre: Tensor) -> None:
        if pre.ndim != 2 or pre.shape[1] != self.width or not pre.is_floating_point():
            raise InvalidInput(
                f"pre-activations must be floats (n, {self.width}), got {pre.dtype} of shape {tuple(pre.shape)}"
            )

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move with the model, but stay in float32: rounding would move a threshold."""

        def move(buffer: Tensor) -> Tensor:
            moved = fn(buffer)
            return moved if moved.dtype == buffer.dtype else buffer.to(moved.device)

        super()._apply(move, recurse)  # type: ignore[no-untyped-call]
        return self

    def extra_repr(self) -> str:
        """Return what `print(model)` shows."""
        rate = "" if self.rate == RATE else f", rate={self.rate}"
        return f"{self.width}, beta={self.beta}, gradient={self.gradient!r}, signed={self.signed}{rate}"
