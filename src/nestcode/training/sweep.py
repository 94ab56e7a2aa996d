"""Unit sweeping: units that have converged are frozen, first to last (section 4.1 of the paper).

Early units are kept in every truncation and converge first; a decaying distribution of lengths starves late ones. Once
the first units are frozen, no gradient is computed for them, and lengths are drawn conditionally on reaching past them:
the first unit that is still trained is kept in every draw. The hidden layers of the encoder feed all units, so they are
frozen with the first one; the decoder's hidden layers stay trainable.
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
    """When units are frozen.

    >>> sweep = Sweep(after=200, every=50)
    >>> [step for step in range(100, 400) if sweep.due(step)]
    [200, 250, 300, 350]

    Args:
        after: steps before the first convergence check.
        every: steps between checks.
        tolerance: a unit has converged when at most this share of its bits changed since the last check. For rectified
            units, the share of their squared norm that changed.
        patience: checks after which one more unit is frozen in any case.

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
        """Return whether to check convergence after this many steps."""
        return step >= self.after and step % self.every == 0


class Sweeper:
    """Tracks a model's codes of sample rows, and freezes the units that have converged."""

    def __init__(self, model: OrderedAutoencoder, sweep: Sweep, sample: Tensor) -> None:
        if not isinstance(model.nested.lengths, Lengths):
            raise InvalidInput("units are swept along a chain: give lengths from nestcode.lengths, without growth")
        self.model, self.sweep, self.sample = model, sweep, sample
        self.lengths = model.nested.lengths
        self.waited = 0  # checks since a unit was frozen
        self.before: Tensor | None = None  # the codes at the last check

    def check(self) -> int:
        """Freeze the units that have converged, and return how many."""
        frozen = self.model.frozen
        if frozen >= self.model.width - 1:  # the last unit is trained to the end
            return 0
        with torch.no_grad():
            pre = self.model.preactivations(self.sample)
            now = pre > self.model.binarize.threshold if self.model.binarize is not None else pre.relu()
        more = 0
        if self.before is not None:
            converged = self._change(self.before, now)[frozen:-1] <= self.sweep.tolerance
            more = int(converged.long().cumprod(dim=0).sum())
            self.waited += 1
            if more or self.waited >= self.sweep.patience:
                self.waited, more = 0, max(more, 1)
        self.before = now
        if more:
            self._freeze(frozen + more, pre)
        return more

    def _freeze(self, units: int, pre: Tensor) -> None:
        if self.model.binarize is not None:  # at exact thresholds
            self.model.binarize.initialize(pre, last=units)
        self.model.freeze(units)
        self.model.set_lengths(Beyond(self.lengths, units))

    @staticmethod
    def _change(before: Tensor, now: Tensor) -> Tensor:
        """Return the share of each unit's codes that changed, (width,)."""
        if now.dtype == torch.bool:
            return (before != now).float().mean(dim=0)
        moved, size = (now - before).square().sum(dim=0), before.square().sum(dim=0)
        return torch.where(size > 0, moved / size, moved)

    def state_dict(self) -> dict[str, object]:
        """Return the state for a checkpoint."""
        return {"fixed": self.model.frozen, "waited": self.waited, "before": self.before}

    def load_state_dict(self, state: dict[str, object]) -> None:
        """Restore the state of a checkpoint."""
        frozen, waited, before = state["fixed"], state["waited"], state["before"]
        assert isinstance(frozen, int)
        assert isinstance(waited, int)
        assert before is None or isinstance(before, Tensor)
        self.waited, self.before = waited, None if before is None else before.to(self.sample.device)
        if frozen:
            self.model.freeze(frozen)
            self.model.set_lengths(Beyond(self.lengths, frozen))
