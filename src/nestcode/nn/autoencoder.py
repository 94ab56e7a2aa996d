"""The ordered autoencoder: a deep network whose code is ordered by nested dropout (section 4 of the paper).

    X ──standardize──▶ z ──corrupt──▶ encoder ──▶ pre-activations ──▶ units or bits ──truncate──▶ decoder ──▶ ẑ ──▶ X̂

The network alone; how it is trained is in `nestcode.training`, and `nestcode.AutoencoderCoder` is both.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from nestcode.arrays import check_int
from nestcode.errors import InvalidInput
from nestcode.lengths import Lengths, LogUniform
from nestcode.nn.binarize import Binarize
from nestcode.nn.dropout import Kept, NestedDropout
from nestcode.nn.layers import Encoder, MirrorDecoder
from nestcode.nn.modes import evaluation_mode
from nestcode.nn.nesting import Nesting
from nestcode.nn.sampling import sample_from_cdf

Spread = Literal["deviation", "variance", "common"]
SPREADS = ("deviation", "variance", "common")


class OrderedAutoencoder(nn.Module):
    """An autoencoder of any depth with nested dropout on its code.

    >>> _ = torch.manual_seed(0)
    >>> model = OrderedAutoencoder(3072, width=512, layers=(2048, 1024), tied=True)  # the paper's retrieval network
    >>> X = torch.rand(4, 3072)
    >>> model(X).shape, model.encode(X).shape, model.decode(model.encode(X)[:, :64]).shape
    (torch.Size([4, 3072]), torch.Size([4, 512]), torch.Size([4, 3072]))

    In training mode inputs are corrupted, hidden units dropped and codes truncated at random; in evaluation mode not.

    Args:
        features: of an item.
        width: units of the code.
        layers: widths of the hidden layers, from the input to the code; the decoder mirrors them.
        lengths: the distribution of the kept length in training, or another `Nesting`. LogUniform() by default.
        tied: the decoder's weights are the encoder's, transposed.
        binarize: turns the units into bits; without it they are rectified.
        corruption: the probability that an input element is set to 0 (the mean, after standardization).
        dropout: of ordinary dropout on every layer but the code.
        spread: what features are divided by: their standard "deviation" (the default); their "variance", as the paper
            says, which gives features of small variance the most weight; or one scale "common" to all, which keeps the
            proportions of squared errors.
        encoder: any module from (n, features) to pre-activations (n, width), in place of `layers`.
        decoder: any module from (n, width) to (n, features).

    """

    mean: Tensor  # (features,)
    spread: Tensor  # (features,)
    survival: Tensor  # (width,): the probability that a unit is kept
    _cdf: Tensor | None  # (width,)

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
        super().__init__()
        self.features = check_int(features, "features", least=1)
        width = check_int(width, "width", least=1)
        self.corruption = check_probability(corruption, "corruption")
        if spread not in SPREADS:
            raise InvalidInput(f"spread must be one of {', '.join(SPREADS)}, got {spread!r}")
        if (encoder is None) != (decoder is None) or (tied and encoder is not None):
            raise InvalidInput(
                "encoder and decoder come together and replace layers and tied, "
                f"got encoder={encoder!r}, decoder={decoder!r}, tied={tied}"
            )
        if binarize is not None and (not isinstance(binarize, Binarize) or binarize.width != width):
            raise InvalidInput(f"binarize must be a Binarize of the code's width {width}, got {binarize!r}")
        if encoder is None or decoder is None:
            encoder = Encoder(features, layers, width, tied=tied, dropout=check_probability(dropout, "dropout"))
            decoder = MirrorDecoder(encoder)
        self.encoder, self.decoder = encoder, decoder
        self.binarize = binarize
        lengths = LogUniform() if lengths is None else lengths
        self.nested = NestedDropout(lengths)
        self.spread_of: Spread = spread
        self.width = width
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("spread", torch.ones(features))
        self.set_lengths(lengths)

    def set_moments(self, mean: Tensor, variance: Tensor) -> None:
        """Set the mean and variance of each feature, (features,)."""
        if self.spread_of == "common":
            variance = variance.mean().expand_as(variance)
        spread = variance if self.spread_of == "variance" else variance.sqrt()
        self.mean.copy_(mean)
        self.spread.copy_(torch.where(spread > 0, spread, 1.0))  # a constant feature stays as it is

    def set_lengths(self, lengths: Lengths | Nesting) -> None:
        """Draw lengths from another distribution from now on."""
        if not isinstance(lengths, Lengths | Nesting):
            raise InvalidInput(
                f"lengths must be a distribution from nestcode.lengths or a Nesting, got {lengths!r}: a schedule is "
                "for NestedDropout and NestedLoss"
            )
        self.lengths = self.nested.lengths = lengths
        # A table on the device: a compiled step would otherwise copy it from the host each time.
        table = torch.from_numpy(lengths.cdf(self.width)) if isinstance(lengths, Lengths) else None
        self.register_buffer("_cdf", None if table is None else table.to(self.mean.device), persistent=False)
        survival = torch.as_tensor(lengths.survival(self.width), dtype=torch.float32)
        self.register_buffer("survival", survival.to(self.mean.device), persistent=False)

    def truncate(self, units: Tensor, kept: Kept | None = None) -> Tensor:
        """Keep the first `kept` units, or in training random prefixes."""
        if kept is None and self.nested.training and self._cdf is not None:
            kept = sample_from_cdf(self._cdf, len(units))
        out: Tensor = self.nested(units, kept)
        return out

    def standardize(self, X: Tensor) -> Tensor:
        """Return standardized features, (n, features) -> the same."""
        if X.ndim != 2 or X.shape[1] != self.features:
            raise InvalidInput(f"data must be (n, {self.features}), got shape {tuple(X.shape)}")
        return (X.to(self.mean.dtype) - self.mean) / self.spread

    def corrupt(self, z: Tensor) -> Tensor:
        """Set input elements to 0 at random in training (denoising)."""
        if not (self.training and self.corruption):
            return z
        return z * (torch.rand_like(z) >= self.corruption)

    def preactivations(self, X: Tensor) -> Tensor:
        """Return pre-activations without noise, (n, features) -> (n, width)."""
        with evaluation_mode(self):
            pre: Tensor = self.encoder(self.standardize(X))
        return pre

    def units(self, preactivations: Tensor) -> Tensor:
        """Return the code's units: bits, or rectified pre-activations."""
        return functional.relu(preactivations) if self.binarize is None else self.binarize(preactivations)

    def forward(self, X: Tensor, kept: Kept | None = None) -> Tensor:
        """Return reconstructions from codes truncated to `kept`, or to random lengths in training: (n, features)."""
        units = self.units(self.encoder(self.corrupt(self.standardize(X))))
        return self._restore(self.decoder(self.truncate(units, kept)))

    def encode(self, X: Tensor) -> Tensor:
        """Return the code's units, (n, features) -> (n, width)."""
        units: Tensor = self.units(self.encoder(self.standardize(X)))
        return units

    def decode(self, code: Tensor) -> Tensor:
        """Decode any number of leading units, (n, length) -> (n, features); the others are 0."""
        if code.ndim != 2 or code.shape[1] > self.width:
            raise InvalidInput(f"a code must be (n, up to {self.width}), got shape {tuple(code.shape)}")
        return self._restore(self.decoder(functional.pad(code.to(self.mean.dtype), (0, self.width - code.shape[1]))))

    def _restore(self, z: Tensor) -> Tensor:
        return z * self.spread + self.mean

    # Frozen units, for unit sweeping and growth.

    @property
    def frozen(self) -> int:
        """How many leading units are frozen."""
        return self.encoder.frozen if isinstance(self.encoder, Encoder) else 0

    @property
    def hidden_frozen(self) -> bool:
        """Whether the hidden layers of the encoder are frozen, or there are none."""
        return isinstance(self.encoder, Encoder) and not any(
            parameter.requires_grad for parameter in self.encoder.hidden.parameters()
        )

    def freeze(self, units: int) -> None:
        """Freeze the first `units`: their encoder weights, biases and decoder weights.

        They get no gradient any more. Call `restore_frozen` after each step of an optimizer with momentum. Their
        codes stay as they are once the hidden layers below are frozen too; until then their thresholds follow.
        """
        encoder = self._own_encoder()
        if not encoder.frozen <= units <= self.width:
            raise InvalidInput(f"units must be from {encoder.frozen}, frozen before, to {self.width}, got {units}")
        encoder.freeze(units)
        self._hold_thresholds()

    def freeze_hidden(self) -> None:
        """Freeze the hidden layers of the encoder; in a tied network these are the decoder's weights too."""
        self._own_encoder().hidden.requires_grad_(False)
        self._hold_thresholds()

    def _hold_thresholds(self) -> None:
        if self.binarize is not None and self.hidden_frozen:
            self.binarize.frozen = self.frozen

    def unfreeze(self, units: int = 0) -> None:
        """Train all but the first `units` again, with the hidden layers and the decoder."""
        self._own_encoder().unfreeze(check_int(units, "units", least=0))
        self.decoder.requires_grad_()
        if self.binarize is not None:
            self.binarize.frozen = min(units, self.binarize.frozen)

    def blocks(self) -> list[int]:
        """Return the widths that the code grew by, first to last."""
        if not isinstance(self.encoder, Encoder):
            return [self.width]
        return [len(block.weight) for block in self.encoder.code_blocks()]

    def code_weights(self) -> list[nn.Parameter]:
        """Return the weights of blocks with units that are not frozen, (units, below) each."""
        return [block.weight for block in self._own_encoder().code_blocks() if block.frozen < len(block.weight)]

    def restore_frozen(self) -> None:
        """Restore the values of frozen units."""
        for block in self._own_encoder().code_blocks():
            block.restore_frozen()

    def grow(self, units: int) -> None:
        """Widen the code. Old units are frozen, so old prefixes and their reconstructions stay the same bit for bit."""
        units = check_int(units, "units", least=1)
        self.freeze_hidden()
        self.freeze(self.width)
        self.decoder.requires_grad_(False)
        self._own_encoder().grow(units)
        self.width += units
        self.set_lengths(self.lengths)
        if self.binarize is not None:
            self.binarize.grow(units)

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

    def _own_encoder(self) -> Encoder:
        if not isinstance(self.encoder, Encoder):
            raise InvalidInput("only the built-in layers can freeze units and grow: leave out encoder and decoder")
        return self.encoder

    def extra_repr(self) -> str:
        """Return what `print(model)` shows."""
        return f"{self.features}, width={self.width}, corruption={self.corruption}, spread={self.spread_of!r}"


def check_probability(value: float, name: str) -> float:
    """Return a probability below 1, or raise."""
    if not 0 <= value < 1:
        raise InvalidInput(f"{name} must be at least 0 and below 1, got {value!r}")
    return float(value)
