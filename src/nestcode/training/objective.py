"""What training minimises: the reconstruction of truncated codes, and the invariance of codes to noise."""

from copy import deepcopy

import torch
from torch import Tensor, nn

from nestcode.nn.autoencoder import OrderedAutoencoder
from nestcode.training.config import Training
from nestcode.training.regularization import invariance_penalty


class Objective(nn.Module):
    """The loss of a batch, (n, features) -> a number; in units of standardized features.

    >>> _ = torch.manual_seed(0)
    >>> model = OrderedAutoencoder(64, width=16)
    >>> bool(Objective(model, Training(invariance=0.1))(torch.rand(10, 64)) > 0)
    True
    """

    def __init__(self, model: OrderedAutoencoder, training: Training) -> None:
        super().__init__()
        self.model, self.training_settings = model, training
        self.refresh()

    def refresh(self) -> None:
        """Follow the model after units were fixed or added."""
        # Two passes through random layers would differ by their noise: the penalty is of the network without it.
        self._still = (_still(self.model.encoder),)  # in a tuple, so that train() does not reach it

    def forward(self, X: Tensor) -> Tensor:
        """Reconstruct from codes cut at random, and compare."""
        model, settings = self.model, self.training_settings
        z = model.standardize(X)
        code = model.truncate(model.units(model.encoder(model.corrupt(z))))
        loss: Tensor = (model.decoder(code) - z).square().mean()
        if settings.invariance:
            some = z[: max(1, round(settings.invariance_share * len(z)))]
            loss = loss + settings.invariance * self._variability(some)
        return loss

    def _variability(self, z: Tensor) -> Tensor:
        """The invariance penalty, of units as the decoder gets them; of bits, of pre-activations in their deviations.

        A bit does not change when its pre-activation is scaled: without the deviations, small weights would satisfy
        the penalty and leave the bits what they were.
        """
        pre: Tensor = self._still[0](z)
        scale = pre.float().std(dim=0, correction=0).clamp(min=1e-6)

        def units(pre: Tensor) -> Tensor:
            return torch.relu(pre) if self.model.binarize is None else pre / scale

        def encode(y: Tensor) -> Tensor:
            return units(self._still[0](y))

        return invariance_penalty(encode, z, self.training_settings.perturbation, clean=units(pre))


def _still(module: nn.Module) -> nn.Module:
    """The same module, with the same parameters, in evaluation mode."""
    shared = {id(tensor): tensor for tensor in [*module.parameters(), *module.buffers()]}
    return deepcopy(module, shared).eval()
