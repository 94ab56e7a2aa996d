"""The networks of the paper and of this library, with their training settings.

Constants that the paper does not state, and the choices made here:

    penalty ratio 0.05         regularization gradient over reconstruction gradient of each unit (section 4.2)
    perturbation 0.01          ε̄, the variance of the invariance noise, on features of variance 1 (section 4.4)
    invariance 0.01            the weight of the invariance penalty
    Geometric(0.995)           p_B of the compression network; the paper names a rate for retrieval only
    beta 0.5                   of the compression network
    Sweep()                    when a unit has converged, and what becomes of the hidden layers (section 4.1)
    epochs                     the paper's 2 are of 79 million images; here 30,000 steps would be as many
"""

from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

from torch import nn

from nestcode.errors import InvalidInput
from nestcode.lengths import Geometric, Lengths, LogUniform
from nestcode.nn.autoencoder import OrderedAutoencoder
from nestcode.nn.binarize import Binarize, Gradient
from nestcode.nn.nesting import Nesting
from nestcode.nn.network import Spread
from nestcode.training.config import Training
from nestcode.training.regularization import AdaptivePenalty, Invariance
from nestcode.training.sweep import Sweep

PLAIN = ("tied", "gradient", "signed", "corruption", "dropout", "spread")  # settings of a network in a file


@dataclass(frozen=True, kw_only=True)
class Network:
    """The architecture of an ordered autoencoder or classifier, except its layer sizes.

    >>> Network(tied=True, gradient="none", signed=False).tied      # the paper's binarization
    True

    Args:
        tied: the decoder uses the encoder's weights, transposed.
        beta: the probability that a bit is 1 (β in the paper).
        gradient: how gradients pass the threshold: "none" is the paper's (the encoder learns through tied weights),
            "straight-through" an estimator, "stochastic" the same with sampled bits.
        signed: the decoder gets bits as -1 and 1, and dropped bits as 0; otherwise bits are 0 and 1, as in the paper.
        corruption: the probability that an input element is set to 0 (denoising).
        dropout: the probability of ordinary dropout on every layer except the code.
        spread: what features are divided by, see `OrderedAutoencoder`.
        encoder: a module of your own from (n, features) to pre-activations (n, width), in place of hidden layers.
        decoder: a module of your own from (n, width), with 0 for dropped bits, to (n, features).

    """

    tied: bool = False
    beta: float = 0.5
    gradient: Gradient = "straight-through"
    signed: bool = True
    corruption: float = 0.0
    dropout: float = 0.0
    spread: Spread = "common"
    encoder: nn.Module | None = None
    decoder: nn.Module | None = None

    def binarize(self, width: int) -> Binarize:
        """Return the untrained binarization of a code."""
        return Binarize(width, self.beta, self.gradient, signed=self.signed)

    def modules(self) -> dict[str, nn.Module | None]:
        """Return copies of the user's modules, so that training leaves the originals as they are."""
        return {"encoder": deepcopy(self.encoder), "decoder": deepcopy(self.decoder)}

    def to_json(self) -> dict[str, Any]:
        """Return the settings of a file; `beta` and modules are kept elsewhere."""
        return {name: getattr(self, name) for name in PLAIN}


PAPER = Network(tied=True, gradient="none", signed=False, corruption=0.1, dropout=0.2, spread="deviation")


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A network and how to train it.

    >>> find_preset("paper-compression").build(3072)
    OrderedAutoencoder(
      3072, width=1024, corruption=0.1, spread='deviation'
      ...
    """

    width: int = 128
    layers: tuple[int, ...] = ()
    lengths: Lengths | Nesting = field(default_factory=LogUniform)
    network: Network = field(default_factory=Network)
    training: Training = field(default_factory=Training)

    def build(self, features: int) -> OrderedAutoencoder:
        """Return the untrained network; one that grows starts at the first width of its growth."""
        growth, how = self.training.growth, self.network
        width = self.width if growth is None else growth.start
        return OrderedAutoencoder(
            features,
            width,
            self.layers,
            lengths=self.lengths,
            tied=how.tied,
            binarize=how.binarize(width),
            corruption=how.corruption,
            dropout=how.dropout,
            spread=how.spread,
            **how.modules(),
        )


PRESETS = {
    "default": Preset(),
    "paper-retrieval": Preset(
        width=512,
        layers=(2048, 1024),
        lengths=Geometric(0.97),
        network=replace(PAPER, beta=0.2),
        training=Training(
            epochs=2,
            batch_size=10_000,
            optimizer="conjugate",
            penalty=AdaptivePenalty("l1", ratio=0.05),
            invariance=Invariance(0.01, perturbation=0.01),
            sweep=Sweep(),
        ),
    ),
    "paper-compression": Preset(
        width=1024,
        lengths=Geometric(0.995),
        network=PAPER,
        training=Training(epochs=2, batch_size=10_000, optimizer="conjugate", sweep=Sweep()),
    ),
}


def find_preset(name: str | None) -> Preset:
    """Return the preset of that name, the default for None.

    >>> find_preset("paper-retrieval").lengths
    Geometric(decay=0.97)
    """
    preset = PRESETS.get(name or "default")
    if preset is None:
        raise InvalidInput(f"preset must be one of {', '.join(PRESETS)}, got {name!r}")
    return preset
