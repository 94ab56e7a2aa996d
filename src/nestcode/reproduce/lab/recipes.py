"""Recipes of the retrieval network, and the rule by which one of them is chosen.

The paper leaves most of the training of its network 3072-2048-1024-512 open, and its own recipe makes codes here of
which the first bit explains nothing: no gradient passes the threshold, so that hidden layers learn only what the
decoder wants of the weights it shares. Recipes vary one factor around `CENTER`, then add the changes that help one by
one. Each is trained on the first nine tenths of the training images for a tenth of the paper's budget, and measured on
the last tenth. An earlier report (commit e8740cc) searched 26 recipes in three rounds: kept are those that show what
matters, and those near the best; one that sweeps still earlier is new.

The rule, fixed before any recipe was trained: the recipe with the least *shortfall* is chosen, the sum of

    log(MSE at full width / GOAL_ERROR)         where that is above 0
    log(GOAL_RECALL / recall at R = 32)         where that is above 0
    1                                           for each doubling of the length at which the MSE does not fall

and of equal ones that with the higher recall. Architecture, tied weights, p_B and β are the paper's in every recipe
that can be chosen; the recipe without tied weights only shows what tying costs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import log
from typing import Any

import numpy as np

from nestcode.arrays import Doubles
from nestcode.nn.binarize import Gradient
from nestcode.training import AdaptivePenalty, Sweep
from nestcode.training.config import Schedule
from nestcode.training.presets import Preset

GOAL_ERROR = 0.012  # MSE of pixels from 0 to 1 at full width
GOAL_RECALL = 0.25  # of the ten nearest images in a neighborhood of 32
SIZES = (2, 32, 512)  # terminal sizes R whose recall is measured
PRIMARY = SIZES.index(32)
FULL_RATE = 0.3  # the learning rate of the full budget, relative to that of a tenth: about the root of its steps


@dataclass(frozen=True)
class Recipe:
    """What the search varies of the retrieval network's training.

    >>> str(CENTER), str(Recipe(dropout=0.2, corruption=0.0))
    ('center', 'dropout=0.2, corruption=0.0')

    Args:
        gradient: how gradients pass the threshold.
        signed: the decoder gets bits as -1 and 1, and dropped bits as 0.
        tied: the decoder uses the encoder's weights.
        dropout: of hidden layers.
        corruption: of inputs.
        rate: the learning rate.
        penalty: the ratio of the adaptive L1 penalty.
        invariance: the weight of the invariance penalty.
        sweep_after: the share of the steps before sweeping begins; 1 leaves it out.
        schedule: of the learning rate.

    """

    gradient: Gradient = "straight-through"
    signed: bool = True
    tied: bool = True
    dropout: float = 0.0
    corruption: float = 0.1
    rate: float = 1e-3
    penalty: float = 0.05
    invariance: float = 0.01
    sweep_after: float = 0.5
    schedule: Schedule = "cosine"

    def __str__(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.changes().items()) or "center"

    def changes(self) -> dict[str, Any]:
        """Return what differs from the center."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return {one.name: values[one.name] for one in fields(self) if values[one.name] != one.default}

    def applied_to(self, preset: Preset) -> Preset:
        """Return a preset with this recipe."""
        network = replace(
            preset.network,
            gradient=self.gradient,
            signed=self.signed,
            tied=self.tied,
            dropout=self.dropout,
            corruption=self.corruption,
        )
        training = preset.training.but(
            learning_rate=self.rate,
            penalty=AdaptivePenalty("l1", self.penalty) if self.penalty else None,
            invariance=replace(preset.training.invariance, weight=self.invariance),
            sweep=Sweep(after=self.sweep_after) if self.sweep_after < 1 else None,
            schedule=self.schedule,
        )
        return replace(preset, network=network, training=training)


CENTER = Recipe()
PAPER = Recipe(gradient="none", signed=False, dropout=0.2)
EARLY = Recipe(penalty=0.0, sweep_after=0.25)
CONSTANT = replace(EARLY, schedule="constant")  # late units are swept where a cosine schedule ends
EARLIER = replace(CONSTANT, sweep_after=0.1)
RECIPES = (
    CENTER,
    PAPER,
    Recipe(gradient="none"),
    Recipe(signed=False),
    Recipe(tied=False),
    Recipe(penalty=0.0),
    EARLY,
    CONSTANT,
    EARLIER,
    replace(EARLIER, corruption=0.0),
    replace(EARLIER, corruption=0.0, sweep_after=0.05),
)


@dataclass(frozen=True)
class Outcome:
    """What a recipe reaches on held-out images."""

    errors: Doubles  # MSE by length, powers of two
    recall: Doubles  # by SIZES
    loss: float  # of the last steps

    @property
    def shortfall(self) -> float:
        """Return how far the recipe is from the goals: 0 if it meets all of them.

        >>> Outcome(np.array([0.05, 0.024]), np.array([0.1, 0.25, 0.5]), 0.4).shortfall
        0.6931471805599453
        """
        error, found = float(self.errors[-1]), max(float(self.recall[PRIMARY]), 1e-6)
        rises = int((np.diff(self.errors) >= 0).sum())
        return max(log(error / GOAL_ERROR), 0.0) + max(log(GOAL_RECALL / found), 0.0) + rises


def rank(outcomes: Mapping[Recipe, Outcome]) -> list[Recipe]:
    """Return recipes from the least shortfall to the largest."""
    return sorted(outcomes, key=lambda one: (outcomes[one].shortfall, -outcomes[one].recall[PRIMARY]))


def choose(outcomes: Mapping[Recipe, Outcome]) -> Recipe:
    """Return the recipe of the least shortfall among those with tied weights."""
    return next(one for one in rank(outcomes) if one.tied)


def table_rows(outcomes: Mapping[Recipe, Outcome], lengths: Sequence[int]) -> list[list[object]]:
    """Return a row for each recipe, the best first: shortfall, loss, MSE at some lengths and recall."""
    return [
        [str(one), f"{outcome.shortfall:.3f}", f"{outcome.loss:.4f}",
         *(f"{outcome.errors[length.bit_length() - 1]:.4f}" for length in lengths),
         *(f"{found:.3f}" for found in outcome.recall)]
        for one in rank(outcomes)
        for outcome in (outcomes[one],)
    ]  # fmt: skip
