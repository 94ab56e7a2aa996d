"""What training minimises: what truncated codes get wrong, how codes change with noise, how views disagree."""

from copy import deepcopy

import torch
from torch import Tensor, nn

from nestcode.nn.autoencoder import OrderedAutoencoder
from nestcode.nn.classifier import OrderedClassifier
from nestcode.training.agreement import disagreement
from nestcode.training.config import Training
from nestcode.training.regularization import invariance_penalty


class Objective(nn.Module):
    """The loss of a batch, (n, features) -> a number; squares of standardized features, or the entropy of labels.

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

    def forward(self, X: Tensor, labels: Tensor | None = None) -> Tensor:
        """Decode codes cut at random, and compare with the items or their labels."""
        model, settings = self.model, self.training_settings
        z = model.standardize(X)
        views = z.repeat(2, 1) if settings.agreement else z
        units = model.units(model.encoder(model.corrupt(views)))
        code, share = model.truncate(units[: len(z)]), settings.reconstruction
        decoded = model.decoder(code if share == 1 else share * code + (1 - share) * code.detach())
        if isinstance(model, OrderedClassifier):
            assert labels is not None
            loss = model.loss(decoded, labels)
        else:
            loss = (decoded - z).square().mean()
        if settings.agreement:
            kept = model.truncate(torch.ones_like(units))
            loss = loss + settings.agreement * disagreement(units, kept, settings.temperature)
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
