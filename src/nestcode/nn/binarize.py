"""Bits of units: thresholds at quantiles, and how a gradient passes them (section 4.3 of the paper).

A bit is to be 1 with probability β. Its threshold is the (1 − β)-quantile of the unit's pre-activation: after
rectification many values are 0, and no threshold would have the right share above it.

In training, thresholds follow the quantiles without sorting: threshold += rate · spread · (share of ones − β). All that
is taken from a batch are means over its examples, so those of several processes can be averaged.
"""

from collections.abc import Iterable
from typing import Literal

import torch
from torch import Tensor, nn
from torch import distributed as dist

from nestcode.errors import InvalidInput, whole_number

Gradient = Literal["none", "straight-through", "stochastic"]
GRADIENTS = ("none", "straight-through", "stochastic")
MOST_ROWS = 1 << 16  # that exact quantiles are taken of
STEEPNESS = 4.0  # of the probability of a stochastic bit, in deviations


def threshold_bits(pre: Tensor, threshold: Tensor, spread: Tensor, gradient: Gradient = "none") -> Tensor:
    """1 where a pre-activation is above its threshold, 0 elsewhere: (n, width), (width,) -> (n, width).

    >>> threshold_bits(torch.tensor([[0.2, 0.2]]), torch.tensor([0.0, 0.5]), torch.ones(2))
    tensor([[1., 0.]])

    The gradient is that of nothing, or of a ramp over two deviations around the threshold (straight-through). With
    "stochastic" the bit is drawn, with a probability that rises from 0 to 1 around the threshold.
    """
    above = pre > threshold
    if gradient == "none":
        return above.to(pre.dtype)
    margin = (pre - threshold) / spread
    if gradient == "stochastic":
        soft = torch.sigmoid(STEEPNESS * margin)
        hard = (torch.rand_like(soft) < soft).to(soft.dtype)
    else:
        soft = margin.clamp(-1, 1) / 2
        hard = above.to(soft.dtype)
    return (hard + (soft - soft.detach())).to(pre.dtype)


class Binarize(nn.Module):
    """Makes bits of pre-activations, each 1 with probability `beta`.

    >>> pre = torch.randn(1000, 4, generator=torch.Generator().manual_seed(0))
    >>> binarize = Binarize(4, beta=0.2)
    >>> binarize.finalize([pre])
    >>> binarize.eval()(pre).mean(dim=0)
    tensor([0.2000, 0.2000, 0.2000, 0.2000])

    In evaluation a bit is 1 above its threshold. In training the thresholds follow the data, as running means do in
    batch normalization, until `finalize` sets them.

    Args:
        width: units.
        beta: how often a bit is 1.
        gradient: "straight-through"; "stochastic", which draws bits in training; or "none", the paper's: a network
            then learns through the weights that its encoder shares with its decoder.
        signed: bits are -1 and 1, so that 0 can stand for a dropped one; else 0 and 1, as in the paper.
        rate: how fast thresholds follow the data.
        deferred: wait with following until `update` is called, for batches that are worked off in pieces.

    """

    threshold: Tensor  # (width,)
    spread: Tensor  # (width,)
    seen: Tensor  # batches
    _sums: Tensor  # (4, width): of ones, values, their squares and examples since the last update

    def __init__(
        self,
        width: int,
        beta: float = 0.5,
        gradient: Gradient = "straight-through",
        *,
        signed: bool = False,
        rate: float = 0.05,
        deferred: bool = False,
    ) -> None:
        super().__init__()
        if gradient not in GRADIENTS:
            raise InvalidInput(f"gradient must be one of {', '.join(GRADIENTS)}, got {gradient!r}")
        for name, value in (("beta", beta), ("rate", rate)):
            if not 0 < value < 1:
                raise InvalidInput(f"{name} must lie strictly between 0 and 1, got {value!r}")
        self.width, self.beta, self.rate = whole_number(width, "width", least=1), float(beta), float(rate)
        self.gradient, self.signed, self.deferred = gradient, signed, deferred
        self.fixed = 0  # leading units whose thresholds stay
        self.register_buffer("threshold", torch.zeros(self.width))
        self.register_buffer("spread", torch.ones(self.width))
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        self.register_buffer("_sums", torch.zeros(4, self.width), persistent=False)

    def forward(self, pre: Tensor) -> Tensor:
        """Bits of pre-activations, (n, width)."""
        if pre.ndim != 2 or pre.shape[1] != self.width:
            raise InvalidInput(f"pre-activations must be (n, {self.width}), got shape {tuple(pre.shape)}")
        if self.training:
            self._watch(pre.detach().float())
        bits = threshold_bits(pre, self.threshold, self.spread, self.gradient if self.training else "none")
        return 2 * bits - 1 if self.signed else bits

    def _watch(self, pre: Tensor) -> None:
        if not self.deferred and self.seen == 0:
            self._begin(pre)
        ones = (pre > self.threshold).float()
        count = torch.full_like(self.threshold, len(pre))
        self._sums += torch.stack([ones.sum(dim=0), pre.sum(dim=0), pre.square().sum(dim=0), count])
        if not self.deferred:
            self.update()

    def update(self) -> None:
        """Let thresholds follow what was seen since the last update, in all processes."""
        sums = self._sums.clone()
        self._sums.zero_()
        _add_up(sums)
        ones, values, squares, count = sums
        mean, count = values / count.clamp(min=1), count.clamp(min=1)
        deviation = (squares / count - mean.square()).clamp(min=0).sqrt()
        moved = self.threshold + self.rate * self.spread * (ones / count - self.beta)
        spread = self.spread.lerp(deviation, self.rate)
        learns = torch.arange(self.width, device=sums.device) >= self.fixed
        learns &= sums.isfinite().all(dim=0) & (sums[3] > 0)
        self.threshold.copy_(torch.where(learns, moved, self.threshold))
        self.spread.copy_(torch.where(learns & (spread > 0), spread, self.spread))
        self.seen += 1

    def forget(self) -> None:
        """Leave out what was seen since the last update: a line search looks at a batch several times."""
        self._sums.zero_()

    def _begin(self, pre: Tensor) -> None:
        """Thresholds of the first batch, as if it were normal."""
        sums = torch.stack([pre.sum(dim=0), pre.square().sum(dim=0), torch.ones_like(pre).sum(dim=0)])
        _add_up(sums)
        mean = sums[0] / sums[2]
        deviation = (sums[1] / sums[2] - mean.square()).clamp(min=0).sqrt()
        quantile = torch.special.ndtri(torch.tensor(1 - self.beta, device=pre.device))
        self._set(mean + deviation * quantile, deviation)

    def initialize(self, pre: Tensor, last: int | None = None) -> None:
        """Set thresholds to the quantiles of these pre-activations, (n, width), of units up to `last`."""
        pre = pre.detach().float()
        below = min(max(round((1 - self.beta) * len(pre)), 1), len(pre))
        # Halfway between two values: at one of them, rounding would decide over its bit.
        low, high = (
            torch.cat([part.kthvalue(place, dim=0).values for part in pre.split(256, dim=1)])
            for place in (below, min(below + 1, len(pre)))
        )
        self._set(low + (high - low) / 2, pre.std(dim=0, correction=0), last)

    def finalize(self, batches: Iterable[Tensor]) -> None:
        """Set thresholds to the quantiles of all these pre-activations: of every m-th row, if they are too many."""
        kept: list[Tensor] = []
        stride, rows = 1, 0
        for batch in batches:
            kept.append(batch.detach().float()[(-rows) % stride :: stride])
            rows += len(batch)
            while sum(map(len, kept)) > 2 * MOST_ROWS:
                kept, stride = [torch.cat(kept)[::2]], 2 * stride
        if rows == 0:
            raise InvalidInput("finalize needs pre-activations of at least one item, got none")
        self.initialize(torch.cat(kept))

    def grow(self, units: int) -> None:
        """Add units, with thresholds at 0."""
        self.width += units
        for name, fill in (("threshold", 0.0), ("spread", 1.0)):
            old = self.get_buffer(name)
            self.register_buffer(name, torch.cat([old, old.new_full((units,), fill)]))
        self.register_buffer("_sums", self._sums.new_zeros(4, self.width), persistent=False)

    def _set(self, threshold: Tensor, spread: Tensor, last: int | None = None) -> None:
        units = slice(self.fixed, last)
        good = threshold.isfinite() & spread.isfinite()
        self.threshold[units] = torch.where(good, threshold, self.threshold)[units]
        self.spread[units] = torch.where(good & (spread > 0), spread, self.spread)[units]
        self.seen += 1

    def extra_repr(self) -> str:
        """What `print(model)` shows."""
        return f"{self.width}, beta={self.beta}, gradient={self.gradient!r}, signed={self.signed}"


def _add_up(sums: Tensor) -> None:
    """Replace sums by those over all processes."""
    if dist.is_available() and dist.is_initialized():
        dist.all_reduce(sums)
