"""Unit sweeping: units that have converged are fixed, first to last (section 4.1 of the paper).

Early units are seen in every truncation and settle first; late ones are starved by a decaying distribution of lengths.
Once the first units are fixed, no gradient is computed for them, and lengths are drawn given that they reach past them:
the first unit that still learns is kept in every draw. The hidden layers of the encoder feed all units, so they are
fixed with the first one; the decoder's hidden layers go on learning.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from nestcode.arrays import check_int
from nestcode.errors import InvalidInput
from nestcode.lengths import Beyond, Lengths
from nestcode.nn.autoencoder import OrderedAutoencoder


@dataclass(frozen=True)
class Sweep:
    """When units are fixed.

    >>> sweep = Sweep(after=200, every=50)
    >>> [step for step in range(100, 400) if sweep.due(step)]
    [200, 250, 300, 350]

    Args:
        after: steps before the first look.
        every: steps between looks.
        tolerance: a unit has converged when no larger share of its codes changed since the last look. Of numbers in
            place of bits, it is the share of their square that changed.
        patience: looks after which one more unit is fixed anyway.

    """

    after: int = 0
    every: int = 50
    tolerance: float = 0.01
    patience: int = 4

    def __post_init__(self) -> None:
        for name, least in (("after", 0), ("every", 1), ("patience", 1)):
            object.__setattr__(self, name, check_int(getattr(self, name), name, least))
        if not 0 <= self.tolerance < 1:
            raise InvalidInput(f"tolerance must be at least 0 and below 1, got {self.tolerance!r}")

    def due(self, step: int) -> bool:
        """Whether to look after this many steps."""
        return step >= self.after and step % self.every == 0


class Sweeper:
    """Follows a model's codes of a few items and fixes what has converged."""

    def __init__(self, model: OrderedAutoencoder, sweep: Sweep, probe: Tensor) -> None:
        if not isinstance(model.nested.lengths, Lengths):
            raise InvalidInput("units are swept along a chain: give lengths from nestcode.lengths, without growth")
        self.model, self.sweep, self.probe = model, sweep, probe
        self.lengths = model.nested.lengths
        self.waited = 0
        self.before: Tensor | None = None

    def look(self) -> int:
        """Fix what has converged; how many units that was."""
        fixed = self.model.fixed
        if fixed >= self.model.width - 1:  # the last unit learns to the end
            return 0
        with torch.no_grad():
            pre = self.model.preactivations(self.probe)
            now = pre > self.model.binarize.threshold if self.model.binarize is not None else pre.relu()
        more = 0
        if self.before is not None:
            settled = self._change(self.before, now)[fixed:-1] <= self.sweep.tolerance
            more = int(settled.long().cumprod(dim=0).sum())
            self.waited += 1
            if more or self.waited >= self.sweep.patience:
                self.waited, more = 0, max(more, 1)
        self.before = now
        if more:
            self._fix(fixed + more, pre)
        return more

    def _fix(self, units: int, pre: Tensor) -> None:
        if self.model.binarize is not None:  # fixed at a threshold that keeps their share of ones
            self.model.binarize.initialize(pre, last=units)
        self.model.fix(units)
        self.model.set_lengths(Beyond(self.lengths, units))

    @staticmethod
    def _change(before: Tensor, now: Tensor) -> Tensor:
        """The share of each unit's codes that changed, (width,)."""
        if now.dtype == torch.bool:
            return (before != now).float().mean(dim=0)
        moved, size = (now - before).square().sum(dim=0), before.square().sum(dim=0)
        return torch.where(size > 0, moved / size, moved)

    def state_dict(self) -> dict[str, object]:
        """What a checkpoint keeps."""
        return {"fixed": self.model.fixed, "waited": self.waited, "before": self.before}

    def load_state_dict(self, state: dict[str, object]) -> None:
        """Go on where a checkpoint left off."""
        fixed, waited, before = state["fixed"], state["waited"], state["before"]
        assert isinstance(fixed, int)
        assert isinstance(waited, int)
        assert before is None or isinstance(before, Tensor)
        self.waited, self.before = waited, None if before is None else before.to(self.probe.device)
        if fixed:
            self.model.fix(fixed)
            self.model.set_lengths(Beyond(self.lengths, fixed))
