"""Autoencoders of one layer, as in section 6 of the paper, and Optimal Brain Damage, which orders units afterwards.

Optimal Brain Damage ranks units by how much the error would rise without them, in the first two terms of its Taylor
series: −g x + ½ h x², of the gradient g and the curvature h at a unit's value x, averaged over items. It is exact for
one unit, as these decoders are linear in the code; of many units it leaves out what they do together.
"""

import argparse

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nestcode.coders.deep.autoencoder import Modules, build
from nestcode.lengths import Empirical, Geometric, LogUniform
from nestcode.nn import OrderedAutoencoder
from nestcode.training import Network, Run, Training, train
from nestcode.training.presets import PAPER, Preset

Floats = NDArray[np.float32]
NETWORKS = {
    "paper": (PAPER, Geometric(0.995)),  # as in the preset "paper-compression"
    "signed": (Network(), LogUniform()),  # bits that learn by straight-through gradients, and are 0 where dropped
}


def train_autoencoder(
    kind: str, nested: bool, rows: Floats, width: int, options: argparse.Namespace
) -> OrderedAutoencoder:
    """A network from pixels to bits and back, trained with nested dropout or without."""
    network, lengths = NETWORKS[kind]
    preset = Preset(width=width, network=network, lengths=lengths if nested else Empirical([1], lengths=[width]))
    training = Training(epochs=options.epochs, batch_size=min(256, len(rows)), device=options.device)
    torch.manual_seed(training.seed)
    model = build(preset, rows.shape[1], width, Modules(None, None))
    train(model, rows, training, Run(progress=False, report_every=10**9))
    return model.eval()


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
