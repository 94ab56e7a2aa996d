"""Networks that several experiments train: the paper's recipe, and the same network with its repairs."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from nestcode.lengths import Empirical, LogUniform
from nestcode.nn import OrderedAutoencoder
from nestcode.reproduce.lab import Lab
from nestcode.training import Preset, Run, find_preset, train

Floats = NDArray[np.float32]

# The paper's bits are 0 or 1 and learn through tied weights alone; ours learn by straight-through gradients, are −1 or
# 1, and 0 where they are dropped, and their lengths do not starve the tail.
RECIPES = {"paper": find_preset("paper-compression"), "ours": Preset(width=1024, lengths=LogUniform())}


def unordered(width: int) -> Empirical:
    """The lengths of a standard autoencoder: all units, always."""
    return Empirical([1], lengths=[width])


def learn(lab: Lab, name: str, preset: Preset, rows: Floats) -> OrderedAutoencoder:
    """A trained network, on the CPU; the one that was kept, where there is one.

    Args:
        lab: keeps its weights.
        name: of the file they are kept in.
        preset: the network and its training, which has the seed.
        rows: items to learn from, (n, features).

    """
    torch.manual_seed(preset.training.seed)
    network = preset.build(rows.shape[1])

    def make() -> dict[str, NDArray[Any]]:
        train(network, rows, preset.training, Run(progress=False, report_every=10**9))
        return {key: value.cpu().numpy() for key, value in network.state_dict().items()}

    kept = lab.kept(name, make, preset=preset, items=len(rows), features=rows.shape[1])
    network.cpu().load_state_dict({key: torch.from_numpy(value) for key, value in kept.items()})
    return network.eval()
