"""Networks and settings with a name, among them the paper's, with every constant that it leaves unsaid.

Unsaid in the paper, and chosen here:

    penalty ratio 0.05         regularization gradient over reconstruction gradient of each unit (section 4.2)
    perturbation 0.01          ε̄, the variance of the invariance noise, on features of variance 1 (section 4.4)
    invariance 0.01            the weight of the invariance penalty
    Geometric(0.995)           p_B of the compression network; the paper names a rate for retrieval only
    beta 0.5                   of the compression network
    epochs                     the paper's 2 are of 79 million images; here 30,000 steps would be as many
"""

from dataclasses import asdict, dataclass, field

from torch import nn

from nestcode.errors import InvalidInput
from nestcode.lengths import Geometric, Lengths, LogUniform
from nestcode.nn.autoencoder import OrderedAutoencoder, Spread
from nestcode.nn.binarize import Binarize, Gradient
from nestcode.nn.nesting import Nesting
from nestcode.training.config import Training
from nestcode.training.regularization import AdaptivePenalty


@dataclass(frozen=True, kw_only=True)
class Network:
    """How an ordered autoencoder is made, beside its sizes.

    >>> Network(tied=True, gradient="none", signed=False).tied      # the paper's bits
    True

    Args:
        tied: the decoder's weights are the encoder's.
        gradient: how bits learn: "none" is the paper's (only through tied weights), "straight-through", "stochastic".
        signed: bits are -1 and 1 to the decoder, and dropped ones 0; else 0 and 1, as in the paper.
        corruption: the probability that an input element becomes 0.
        dropout: on every layer but the code.
        spread: what features are divided by, see `OrderedAutoencoder`.

    """

    tied: bool = False
    gradient: Gradient = "straight-through"
    signed: bool = True
    corruption: float = 0.0
    dropout: float = 0.0
    spread: Spread = "common"


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
    beta: float = 0.5
    network: Network = field(default_factory=Network)
    training: Training = field(default_factory=Training)

    def build(
        self, features: int, *, encoder: nn.Module | None = None, decoder: nn.Module | None = None
    ) -> OrderedAutoencoder:
        """An untrained network; one that grows begins with the width its growth begins with."""
        growth, how = self.training.growth, asdict(self.network)
        width = self.width if growth is None else growth.start
        binarize = Binarize(width, self.beta, how.pop("gradient"), signed=how.pop("signed"))
        return OrderedAutoencoder(
            features,
            width,
            self.layers,
            lengths=self.lengths,
            binarize=binarize,
            encoder=encoder,
            decoder=decoder,
            **how,
        )


PRESETS = {
    "default": Preset(),
    "paper-retrieval": Preset(
        width=512,
        layers=(2048, 1024),
        lengths=Geometric(0.97),
        beta=0.2,
        network=PAPER,
        training=Training(
            epochs=2,
            batch_size=10_000,
            optimizer="conjugate",
            penalty=AdaptivePenalty("l1", ratio=0.05),
            invariance=0.01,
            perturbation=0.01,
        ),
    ),
    "paper-compression": Preset(
        width=1024,
        lengths=Geometric(0.995),
        network=PAPER,
        training=Training(epochs=2, batch_size=10_000, optimizer="conjugate"),
    ),
}


def find_preset(name: str | None) -> Preset:
    """The preset of that name.

    >>> find_preset("paper-retrieval").lengths
    Geometric(decay=0.97)
    """
    preset = PRESETS.get(name or "default")
    if preset is None:
        raise InvalidInput(f"preset must be one of {', '.join(PRESETS)}, got {name!r}")
    return preset
