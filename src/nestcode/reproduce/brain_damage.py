"""Optimal Brain Damage, which orders the units of an autoencoder after it was trained (section 6 of the paper).

Optimal Brain Damage ranks units by how much the error would rise without them, in the first two terms of its Taylor
series: −g x + ½ h x², of the gradient g and the curvature h at a unit's value x, averaged over items. It is exact for
one unit, as these decoders are linear in the code; of many units it leaves out what they do together.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nestcode.nn import OrderedAutoencoder

Floats = NDArray[np.float32]


def estimated_damage(model: OrderedAutoencoder, units: Tensor, rows: Tensor) -> Tensor:
    """How much the squared error of an item would rise without each unit: (n, width), (n, features) -> (width,)."""
    units = units.detach().requires_grad_()
    error = (model.decode(units) - rows).square().sum()
    (slope,) = torch.autograd.grad(error, units)  # (n, width)
    with torch.no_grad():
        both = model.decode(torch.eye(model.width + 1, model.width, device=units.device))
        columns = both[:-1] - both[-1]  # (width, features): what each unit adds
        curvature = 2 * columns.square().sum(dim=1)  # the error is a square of what is linear
        return (0.5 * curvature * units.square() - slope * units).mean(dim=0)


def damage_order(model: OrderedAutoencoder, rows: Floats, rounds: int = 1) -> NDArray[np.int64]:
    """Units from the one whose loss would hurt most to the least, (width,).

    With several rounds an equal share is removed in each, and damage is estimated anew for those that are left.
    """
    X, units = torch.from_numpy(rows).to(model.mean.device), encode_units(model, rows)
    left, removed = torch.arange(model.width, device=X.device), []
    for share in np.array_split(np.arange(model.width), rounds):
        kept = torch.zeros(model.width, device=X.device)
        kept[left] = 1
        damage = estimated_damage(model, units * kept, X)[left]
        left = left[damage.argsort(stable=True)]
        removed.append(left[: len(share)])
        left = left[len(share) :]
    return torch.cat(removed).flip(0).cpu().numpy()


def encode_units(model: OrderedAutoencoder, rows: Floats) -> Tensor:
    """The units of items, (n, features) -> (n, width), where the model is."""
    with torch.no_grad():
        return model.encode(torch.from_numpy(rows).to(model.mean.device))


def decode_in_order(model: OrderedAutoencoder, units: Tensor, order: NDArray[np.int64], length: int) -> Floats:
    """What the first `length` units in an order decode to, with 0 for the others: (n, width) -> (n, features)."""
    kept = np.isin(np.arange(model.width), order[:length])
    with torch.no_grad():
        made: Floats = model.decode(units * torch.from_numpy(kept).to(units.device)).cpu().numpy()
    return made
