"""Optimal Brain Damage (LeCun, Denker and Solla 1990): order the units of a trained autoencoder (section 6).

The saliency of a unit is the rise of the reconstruction error if the unit is pruned, estimated by the first two terms
of a Taylor expansion: −g x + ½ h x², with gradient g and curvature h at the unit's value x, averaged over items.
The decoders here are linear in the code, so this is exact for a single unit; it neglects the interaction of units.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nestcode.arrays import Doubles, Floats
from nestcode.nn import OrderedAutoencoder
from nestcode.reproduce.lab.images import Pixels, as_rows


def saliencies(model: OrderedAutoencoder, units: Tensor, rows: Tensor) -> Tensor:
    """Return the estimated rise of an item's squared error without each unit: (n, width), (n, features) -> (width,)."""
    units = units.detach().requires_grad_()
    error = (model.decode(units) - rows).square().sum()
    (gradient,) = torch.autograd.grad(error, units)  # (n, width)
    with torch.no_grad():
        columns, _ = contributions(model)
        curvature = 2 * columns.square().sum(dim=1)  # the error is quadratic in the units
        return (0.5 * curvature * units.square() - gradient * units).mean(dim=0)


def saliencies_of(model: OrderedAutoencoder, rows: Floats) -> Doubles:
    """Return the saliency of each unit, (n, features) -> (width,)."""
    X = torch.from_numpy(rows).to(model.mean.device)
    return np.asarray(saliencies(model, encode_units(model, rows), X).cpu().numpy(), dtype=np.float64)


def contributions(model: OrderedAutoencoder) -> tuple[Tensor, Tensor]:
    """Return what each unit adds to the output, and the output without units: (width, features), (features,)."""
    both = model.decode(torch.eye(model.width + 1, model.width, device=model.mean.device))
    return both[:-1] - both[-1], both[-1]


def pruning_order(model: OrderedAutoencoder, rows: Floats, rounds: int = 1) -> NDArray[np.int64]:
    """Return the units from the most salient to the least, (width,).

    With several rounds, each prunes an equal share of the units and estimates the saliency of the others anew.
    """
    X, units = torch.from_numpy(rows).to(model.mean.device), encode_units(model, rows)
    left, pruned = torch.arange(model.width, device=X.device), []
    for share in np.array_split(np.arange(model.width), rounds):
        kept = torch.zeros(model.width, device=X.device)
        kept[left] = 1
        saliency = saliencies(model, units * kept, X)[left]
        left = left[saliency.argsort(stable=True)]
        pruned.append(left[: len(share)])
        left = left[len(share) :]
    return torch.cat(pruned).flip(0).cpu().numpy()


def encode_units(model: OrderedAutoencoder, rows: Floats) -> Tensor:
    """Return the units of items on the model's device, (n, features) -> (n, width)."""
    with torch.no_grad():
        return model.encode(torch.from_numpy(rows).to(model.mean.device))


def errors_in_order(model: OrderedAutoencoder, pixels: Pixels, order: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the MSE with the first 0, 1, … units of an order, the others 0: (n, features) -> (width + 1,).

    Decoded pixels are rounded to 8 bits. The decoder is linear, so each unit's contribution is added once.
    """
    device = model.mean.device
    units = encode_units(model, as_rows(pixels))
    original = torch.from_numpy(pixels.astype(np.float32)).to(device)
    with torch.no_grad():
        columns, offset = contributions(model)
        decoded, errors = offset.repeat(len(original), 1), []
        for unit in (None, *order.tolist()):
            if unit is not None:
                decoded.addcmul_(units[:, unit, None], columns[unit])
            errors.append(decoded.mul(255).clamp_(0, 255).round_().sub_(original).square_().mean(dtype=torch.float64))
    return (torch.stack(errors) / 255**2).cpu().numpy()
