"""The ordered autoencoder: a deep network whose code is ordered by nested dropout (section 4 of the paper).

    X ──standardize──▶ z ──corrupt──▶ encoder ──▶ pre-activations ──▶ units or bits ──truncate──▶ decoder ──▶ ẑ ──▶ X̂

This is the network alone; `nestcode.training` trains it, and `nestcode.AutoencoderCoder` combines both.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from nestcode.arrays import check_int
from nestcode.codes import MAX_WIDTH
from nestcode.errors import InvalidInput
from nestcode.lengths import Lengths
from nestcode.nn.binarize import Binarize
from nestcode.nn.layers import Encoder, MirrorDecoder
from nestcode.nn.nesting import Nesting
from nestcode.nn.network import OrderedNetwork, Spread, check_probability


class OrderedAutoencoder(OrderedNetwork):
    """An autoencoder of any depth with nested dropout on its code.

    >>> _ = torch.manual_seed(0)
    >>> model = OrderedAutoencoder(3072, width=512, layers=(2048, 1024), tied=True)  # the paper's retrieval network
    >>> X = torch.rand(4, 3072)
    >>> model(X).shape, model.encode(X).shape, model.decode(model.encode(X)[:, :64]).shape
    (torch.Size([4, 3072]), torch.Size([4, 512]), torch.Size([4, 3072]))

    Training mode corrupts inputs, drops hidden units and truncates codes at random; evaluation mode does not.

    Args:
        features: of an item.
        width: units of the code.
        layers: widths of the hidden layers, from the input to the code; the decoder mirrors them.
        lengths: the distribution of the kept length in training, or another `Nesting`. LogUniform() by default.
        tied: the decoder uses the encoder's weights, transposed.
        binarize: a module that turns units into bits; without it units are rectified.
        corruption: the probability that an input element is set to 0 (the mean, after standardization).
        dropout: the probability of ordinary dropout on every layer except the code.
        spread: the scale of the features. "deviation" (the default) divides each feature by its standard deviation.
            "variance" divides by the variance, as the paper says, and gives features of small variance the most weight.
            "common" divides all features by one scale, which keeps the proportions of squared errors.
        encoder: any module from (n, features) to pre-activations (n, width), in place of `layers`.
        decoder: any module from (n, width) to (n, features).

    """

    def __init__(
        self,
        features: int,
        width: int,
        layers: Sequence[int] = (),
        *,
        lengths: Lengths | Nesting | None = None,
        tied: bool = False,
        binarize: Binarize | None = None,
        corruption: float = 0.1,
        dropout: float = 0.2,
        spread: Spread = "deviation",
        encoder: nn.Module | None = None,
        decoder: nn.Module | None = None,
    ) -> None:
        features = check_int(features, "features", least=1, most=MAX_WIDTH)
        width = check_int(width, "width", least=1, most=MAX_WIDTH)
        if (encoder is None) != (decoder is None) or (tied and encoder is not None):
            raise InvalidInput(
                "encoder and decoder come together and replace layers and tied, "
                f"got encoder={encoder!r}, decoder={decoder!r}, tied={tied}"
            )
        if encoder is None or decoder is None:
            encoder = Encoder(features, layers, width, tied=tied, dropout=check_probability(dropout, "dropout"))
            decoder = MirrorDecoder(encoder)
        super().__init__(
            features,
            width,
            encoder,
            decoder,
            lengths=lengths,
            binarize=binarize,
            corruption=corruption,
            spread=spread,
        )

    def decode_units(self, units: Tensor) -> Tensor:
        """Return reconstructions, (n, width) -> (n, features)."""
        z: Tensor = self.decoder(units)
        return z * self.spread + self.mean

    def loss(self, decoded: Tensor, target: Tensor) -> Tensor:
        """Return the mean squared error of standardized features, (n, features) each -> a scalar."""
        return (decoded - target).square().mean()

    def error(self, code: Tensor, target: Tensor) -> Tensor:
        """Return the mean squared error of a feature, (n, length), (n, features) -> a scalar; 0 units are the mean."""
        decoded = self.decode(code) if code.shape[1] else self.mean
        return (decoded - target).double().square().mean()

    def grow(self, units: int) -> None:
        """Widen the code. Old units are frozen, so old prefixes and their reconstructions stay the same bit for bit."""
        units = check_int(units, "units", least=1, most=MAX_WIDTH)
        self.freeze_hidden()
        self.freeze(self.width)
        self._own_encoder().grow(units)
        self.width += units
        self.set_lengths(self.lengths)
        if self.binarize is not None:
            self.binarize.grow(units)

    def _freeze_decoder(self) -> None:
        self.decoder.requires_grad_(False)  # hidden layers and biases: units' decoder weights lie in the encoder

    def set_linear_decoder(self, weight: Tensor, bias: Tensor) -> None:
        """Replace a decoder without hidden layers, (features, width) and (features,); tied weights are untied."""
        encoder, decoder = self._own_encoder(), self.decoder
        if not isinstance(decoder, MirrorDecoder) or len(encoder.hidden) or weight.shape != (self.features, self.width):
            raise InvalidInput(
                f"a linear decoder must have weights (features, width) and no hidden layers, got {tuple(weight.shape)} "
                f"for {self.features} features, width {self.width} and layers {tuple(encoder.sizes[1:])}"
            )
        encoder.tied = False
        with torch.no_grad():
            for block, columns in zip(encoder.code_blocks(), weight.split(self.blocks(), dim=1), strict=True):
                block.untie(columns)
            decoder.biases[0].copy_(bias)
