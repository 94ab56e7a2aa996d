"""Agreement: two views of an item should have the same code, and other items other codes, at every length.

The invariance of section 4.4 asks that codes change little with their items; a code that is always the same would
satisfy it. Here an item is to be told from the others of its batch by the code of another view of it (InfoNCE, as in
SimCLR), from as many leading units as nested dropout keeps. What a view is, is the encoder's noise: corrupted inputs,
dropout, or `nestcode.nn.RandomViews` of images.
"""

import torch
from torch import Tensor
from torch.nn import functional

from nestcode.errors import InvalidInput


def nested_info_nce(units: Tensor, mask: Tensor, temperature: float) -> Tensor:
    """How badly units of two views find each other among all: (2n, width), (2n, width) -> a number.

    >>> codes = torch.tensor([[1.0, 1.0], [1.0, -1.0], [1.0, 1.0], [1.0, -1.0]])     # two items, two views of each
    >>> both, first = torch.ones(4, 2), torch.tensor([[1.0, 0.0]]).expand(4, 2)
    >>> round(float(nested_info_nce(codes, both, 0.1)), 3)
    0.0
    >>> round(float(nested_info_nce(codes, first, 0.1)), 3)          # of three that look alike, one is right: ln 3
    1.099

    Each view asks with its own prefix, and all others answer with the same number of units: dropped units of the
    question do not count on either side. Similarity is the cosine; of signed bits, 1 - 2 · Hamming / length.

    Args:
        units: of the first views, then of the second ones in the same order.
        mask: 1 where a unit is kept, 0 elsewhere, for each view.
        temperature: what similarities are divided by; the lower, the more the hardest others count.

    """
    if len(units) % 2 or units.shape != mask.shape:
        raise InvalidInput(
            "units and mask must be alike, with two views of each item, "
            f"got shapes {tuple(units.shape)} and {tuple(mask.shape)}"
        )
    asked = units * mask
    own, others = asked.float().square().sum(dim=1, keepdim=True), mask @ units.square().T
    cosine = (asked @ units.T) * torch.rsqrt((own * others).clamp(min=1e-6))
    itself = torch.eye(len(units), dtype=torch.bool, device=units.device)
    other_view = torch.arange(len(units), device=units.device).roll(len(units) // 2)
    return functional.cross_entropy((cosine / temperature).masked_fill(itself, -torch.inf), other_view)
