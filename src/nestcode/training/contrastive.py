"""The contrastive loss: two views of an item get similar codes, other items other codes, at every length.

The invariance penalty of section 4.4 only requires that codes change little with their items, which a constant code
satisfies. InfoNCE (as in SimCLR) also requires that a code identifies its item within the batch, here by the prefix
that nested dropout keeps. Views come from the encoder's noise: corruption, dropout, or `nestcode.nn.RandomViews` of
images.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from nestcode.errors import InvalidInput
from nestcode.training.regularization import check_number


@dataclass(frozen=True)
class Contrastive:
    """The contrastive loss in training.

    >>> Contrastive(1.0)
    Contrastive(weight=1.0, temperature=0.3)

    Args:
        weight: of the loss; 0 leaves it out.
        temperature: similarities are divided by it; the lower, the more the hardest negatives count.

    """

    weight: float = 0.0
    temperature: float = 0.3

    def __post_init__(self) -> None:
        for name in ("weight", "temperature"):
            number = check_number(getattr(self, name), f"{name} of the contrastive loss", above_0=name != "weight")
            object.__setattr__(self, name, number)


def nested_info_nce(units: Tensor, mask: Tensor, temperature: float) -> Tensor:
    """Return the InfoNCE loss of two views of each item, by prefixes: (2n, width), (2n, width) -> a scalar.

    >>> codes = torch.tensor([[1.0, 1.0], [1.0, -1.0], [1.0, 1.0], [1.0, -1.0]])     # two items, two views of each
    >>> both, first = torch.ones(4, 2), torch.tensor([[1.0, 0.0]]).expand(4, 2)
    >>> round(float(nested_info_nce(codes, both, 0.1)), 3)
    0.0
    >>> round(float(nested_info_nce(codes, first, 0.1)), 3)          # of three equal prefixes, one is right: ln 3
    1.099

    Each view is a query with its own prefix, and all keys are truncated to the query's length. Similarity is the
    cosine; for signed bits that is 1 - 2 · Hamming / length.

    Args:
        units: of the first views, then of the second views in the same order.
        mask: 1 where a unit is kept, 0 elsewhere, for each view.
        temperature: similarities are divided by it; the lower, the more the hardest negatives count.

    """
    if len(units) % 2 or units.shape != mask.shape:
        raise InvalidInput(
            "units and mask must have the same shape, with two views of each item, "
            f"got shapes {tuple(units.shape)} and {tuple(mask.shape)}"
        )
    queries = units * mask
    own, others = queries.float().square().sum(dim=1, keepdim=True), mask @ units.square().T
    cosine = (queries @ units.T) * torch.rsqrt((own * others).clamp(min=1e-6))
    itself = torch.eye(len(units), dtype=torch.bool, device=units.device)
    positive = torch.arange(len(units), device=units.device).roll(len(units) // 2)
    return functional.cross_entropy((cosine / temperature).masked_fill(itself, -torch.inf), positive)
