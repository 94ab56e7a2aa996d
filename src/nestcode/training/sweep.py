"""Unit sweeping: units that have converged are frozen, first to last (section 4.1 of the paper).

Early units are kept in every truncation and converge first; a decaying distribution of lengths starves late ones. Once
the first units are frozen, they get no gradient, and lengths are drawn conditionally on reaching past them: the first
unit that is still trained is kept in every draw.

Without hidden layers everything on which a swept prefix depends is frozen with it: the units' encoder weights, biases
and thresholds, their decoder weights, and the decoder's output bias, which all units share. Codes and reconstructions
of swept prefixes then stay the same, bit for bit.

Hidden layers serve all units and are trained to the end, or until they have converged: codes and reconstructions of
swept prefixes change through them and through the decoder's biases, until both are frozen together. As long as they are
trained, half of the lengths are drawn from the whole distribution, or short prefixes would be forgotten. A classifier's
head is trained to the end too: only the codes of its frozen units stay.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from nestcode.arrays import check_int, is_number, shown
from nestcode.errors import InvalidInput
from nestcode.lengths import Beyond, Lengths, Mixture
from nestcode.nn.network import OrderedNetwork


@dataclass(frozen=True)
class Sweep:
    """The schedule of freezing units: block by block as they converge, and early enough to train the last block.

    >>> sweep = Sweep(after=0.5, blocks=4)
    >>> [sweep.least(step, steps=1000, width=64) for step in (499, 500, 700, 900, 1000)]
    [0, 16, 32, 48, 48]

    A short plain phase makes short prefixes worse, because frozen units can no longer improve.

    Args:
        after: the share of the steps in which all units are trained, before the first block is frozen.
        blocks: of equal width, frozen one after the other; the last one is trained to the end. They share the steps
            that remain equally, unless some converge early.
        checks: for convergence, in the time of each block.
        tolerance: a block has converged when at most this share of the bits of each of its units changed since the
            last check. For rectified units, the share of their squared norm that changed.
        hidden: the hidden layers, and the decoder's biases with them, are frozen when at most this share of the frozen
            units' bits changed since the last check: 0 trains them to the end, 1 freezes them right after the first
            block.

    """

    after: float = 0.5
    blocks: int = 32
    checks: int = 4
    tolerance: float = 0.01
    hidden: float = 0.0

    def __post_init__(self) -> None:
        for name in ("blocks", "checks"):
            object.__setattr__(self, name, check_int(getattr(self, name), name, least=1))
        for name in ("after", "tolerance", "hidden"):
            share = getattr(self, name)
            if not is_number(share) or not 0 <= share <= 1:
                raise InvalidInput(f"{name} must be a share, from 0 to 1, got {shown(share)}: see its default")

    def due(self, step: int, steps: int, width: int) -> bool:
        """Return whether to check for convergence after a step."""
        step, steps, width = _counts(step, steps, width)
        begin = self.after * steps
        period = (steps - begin) / (max(min(self.blocks, width) - 1, 1) * self.checks)
        return step >= begin and step % max(int(period), 1) == 0

    def least(self, step: int, steps: int, width: int) -> int:
        """Return how many units must be frozen after a step, for each block to get its time."""
        step, steps, width = _counts(step, steps, width)
        begin, blocks = self.after * steps, min(self.blocks, width)
        if step < begin or blocks == 1:
            return 0
        done = int((step - begin) / max(steps - begin, 1) * (blocks - 1))
        return self.first(min(1 + done, blocks - 1), width)

    def first(self, blocks: int, width: int) -> int:
        """Return how many units the first blocks have."""
        blocks, width = check_int(blocks, "blocks", least=0), check_int(width, "width", least=1)
        return blocks * width // min(self.blocks, width)


def _counts(step: int, steps: int, width: int) -> tuple[int, int, int]:
    return (
        check_int(step, "step", least=0),
        check_int(steps, "steps", least=1),
        check_int(width, "width", least=1),
    )


class Sweeper:
    """Tracks a model's codes of sample rows, and freezes converged units.

    Args:
        model: whose units are frozen.
        sweep: when.
        sample: rows that the codes are of, (n, features).
        steps: of the run.

    """

    def __init__(self, model: OrderedNetwork, sweep: Sweep, sample: Tensor, steps: int) -> None:
        if not isinstance(model.nested.lengths, Lengths):
            raise InvalidInput("units are swept along a chain: give lengths from nestcode.lengths, without growth")
        self.model, self.sweep, self.sample, self.steps = model, sweep, sample, steps
        self.lengths = model.nested.lengths
        Beyond(self.lengths, sweep.first(min(sweep.blocks, model.width) - 1, model.width)).pmf(model.width)  # or raises
        self.before: Tensor | None = None  # the codes at the last check
        model.freeze(model.frozen)  # masks units from the first step on, so that a compiled step stays valid

    def check(self, step: int) -> bool:
        """Freeze units that have converged after a step, and return whether there were any."""
        if not self.sweep.due(step, self.steps, self.model.width):
            return False
        model, frozen = self.model, self.model.frozen
        with torch.no_grad():
            pre = model.preactivations(self.sample)
            now = pre > model.binarize.threshold if model.binarize is not None else pre.relu()
        units, hidden = self.sweep.least(step, self.steps, model.width), False
        if self.before is not None:
            change = self._change(self.before, now)
            units = max(units, self._converged(change))
            if frozen and self.sweep.hidden and not model.hidden_frozen:
                hidden = bool(change[:frozen].mean() <= self.sweep.hidden)
        self.before = now
        if units > frozen or hidden:
            self._freeze(max(units, frozen), pre, hidden=hidden)
        return units > frozen or hidden

    def _converged(self, change: Tensor) -> int:
        """Return the number of units of the converged blocks, of which at most one is not frozen yet.

        Later blocks change little because they are starved, until they become the first trained block.
        """
        frozen, blocks = self.model.frozen, min(self.sweep.blocks, self.model.width)
        ends = (self.sweep.first(block, self.model.width) for block in range(1, blocks))
        end = next((end for end in ends if end > frozen), frozen)
        return end if bool((change[frozen:end] <= self.sweep.tolerance).all()) else frozen

    def _freeze(self, units: int, pre: Tensor, *, hidden: bool) -> None:
        model = self.model
        if model.binarize is not None and (hidden or model.hidden_frozen):  # at exact thresholds
            model.binarize.initialize(pre, last=units)
        if hidden:
            model.freeze_hidden()
        model.freeze(units)
        model.set_lengths(self._beyond(units))
        model.zero_grad()  # frozen parameters would keep their last gradient

    def _beyond(self, units: int) -> Lengths:
        """Return the distribution of lengths once `units` are frozen."""
        beyond = Beyond(self.lengths, units)
        return beyond if self.model.hidden_frozen else Mixture([self.lengths, beyond])

    @staticmethod
    def _change(before: Tensor, now: Tensor) -> Tensor:
        """Return the share of each unit's codes that changed, (width,)."""
        if now.dtype == torch.bool:
            return (before != now).float().mean(dim=0)
        moved, size = (now - before).square().sum(dim=0), before.square().sum(dim=0)
        return torch.where(size > 0, moved / size, moved)

    def state_dict(self) -> dict[str, object]:
        """Return the state for a checkpoint."""
        return {"frozen": self.model.frozen, "hidden": self.model.hidden_frozen, "before": self.before}

    def load_state_dict(self, state: dict[str, object]) -> None:
        """Restore the state of a checkpoint."""
        frozen, before = state["frozen"], state["before"]
        assert isinstance(frozen, int)
        assert before is None or isinstance(before, Tensor)
        self.before = None if before is None else before.to(self.sample.device)
        if state["hidden"]:
            self.model.freeze_hidden()
        if frozen:
            self.model.freeze(frozen)
            self.model.set_lengths(self._beyond(frozen))
