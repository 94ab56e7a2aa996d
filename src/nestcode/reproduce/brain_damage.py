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
from nestcode.reproduce.pixels import Floats, Pixels, as_rows


def estimated_damage(model: OrderedAutoencoder, units: Tensor, rows: Tensor) -> Tensor:
    """How much the squared error of an item would rise without each unit: (n, width), (n, features) -> (width,)."""
    units = units.detach().requires_grad_()
    error = (model.decode(units) - rows).square().sum()
    (slope,) = torch.autograd.grad(error, units)  # (n, width)
    with torch.no_grad():
        columns, _ = contributions(model)
        curvature = 2 * columns.square().sum(dim=1)  # the error is a square of what is linear
        return (0.5 * curvature * units.square() - slope * units).mean(dim=0)


def contributions(model: OrderedAutoencoder) -> tuple[Tensor, Tensor]:
    """What each unit adds to the output, and the output without units: (width, features), (features,)."""
    both = model.decode(torch.eye(model.width + 1, model.width, device=model.mean.device))
    return both[:-1] - both[-1], both[-1]


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


def errors_in_order(model: OrderedAutoencoder, pixels: Pixels, order: NDArray[np.int64]) -> NDArray[np.float64]:
    """The error with the first 0, 1, … units in an order and 0 for the others, (n, features) -> (width + 1,).

    It is that of whole pixels, as a receiver sees them. What a unit adds to a linear decoder's output is added alone.
    """
    device = model.mean.device
    units = encode_units(model, as_rows(pixels))
    true = torch.from_numpy(pixels.astype(np.float32)).to(device)
    with torch.no_grad():
        columns, nothing = contributions(model)
        made, found = nothing.repeat(len(true), 1), []
        for unit in (None, *order.tolist()):
            if unit is not None:
                made.addcmul_(units[:, unit, None], columns[unit])
            found.append(made.mul(255).clamp_(0, 255).round_().sub_(true).square_().mean(dtype=torch.float64))
    return (torch.stack(found) / 255**2).cpu().numpy()
