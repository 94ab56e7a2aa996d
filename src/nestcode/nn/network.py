"""What ordered networks share: units ordered by nested dropout, and whatever decodes their first ones.

    X ──standardize──▶ z ──corrupt──▶ encoder ──▶ pre-activations ──▶ units or bits ──truncate──▶ decoder

`autoencoder.py` decodes to items, `classifier.py` to classes.
"""

from abc import abstractmethod
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from nestcode.arrays import check_int, is_number, shown
from nestcode.errors import InvalidInput
from nestcode.lengths import Lengths, LogUniform
from nestcode.nn.binarize import Binarize
from nestcode.nn.dropout import Kept, NestedDropout, check_tensor
from nestcode.nn.layers import Encoder
from nestcode.nn.modes import evaluation_mode
from nestcode.nn.nesting import Nesting
from nestcode.nn.sampling import sample_from_cdf

Spread = Literal["deviation", "variance", "common"]
SPREADS = ("deviation", "variance", "common")


class OrderedNetwork(nn.Module):
    """An encoder with nested dropout on its units, and a decoder of any number of leading ones.

    >>> from nestcode.nn import OrderedAutoencoder, OrderedClassifier
    >>> [model.decode(torch.ones(1, 2)).shape[1] for model in (OrderedAutoencoder(64, 8), OrderedClassifier(64, 8, 10))]
    [64, 10]

    `OrderedAutoencoder` and `OrderedClassifier` are two; `nestcode.training.train` trains them.
    """

    mean: Tensor  # (features,)
    spread: Tensor  # (features,)
    survival: Tensor  # (width,): the probability that a unit is kept
    classes: int | None = None  # that are predicted; None where items are reconstructed
    _cdf: Tensor | None  # (width,)

    def __init__(
        self,
        features: int,
        width: int,
        encoder: nn.Module,
        decoder: nn.Module,
        *,
        lengths: Lengths | Nesting | None,
        binarize: Binarize | None,
        corruption: float,
        spread: Spread,
    ) -> None:
        super().__init__()
        self.features, self.width = features, width
        self.corruption = check_probability(corruption, "corruption")
        if spread not in SPREADS:
            raise InvalidInput(f"spread must be one of {', '.join(SPREADS)}, got {spread!r}")
        if binarize is not None and (not isinstance(binarize, Binarize) or binarize.width != width):
            raise InvalidInput(f"binarize must be a Binarize of the code's width {width}, got {binarize!r}")
        self.encoder, self.decoder = encoder, decoder
        self.binarize = binarize
        lengths = LogUniform() if lengths is None else lengths
        self.nested = NestedDropout(lengths)
        self.spread_of: Spread = spread
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("spread", torch.ones(features))
        self.set_lengths(lengths)

    @abstractmethod
    def decode_units(self, units: Tensor) -> Tensor:
        """Decode units, the last of which may be 0: (n, width) -> items or logits."""

    @abstractmethod
    def loss(self, decoded: Tensor, target: Tensor) -> Tensor:
        """Return the mean loss of the decoder's outputs, given standardized items or labels."""

    @abstractmethod
    def error(self, code: Tensor, target: Tensor) -> Tensor:
        """Return the mean error after decoding leading units, given items or labels."""

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
        check_tensor(X, "data")
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
        """Return what codes decode to, truncated to `kept` units or in training to random lengths."""
        return self.decode_units(self.truncate(self.units(self.encoder(self.corrupt(self.standardize(X)))), kept))

    def encode(self, X: Tensor) -> Tensor:
        """Return the code's units, (n, features) -> (n, width)."""
        units: Tensor = self.units(self.encoder(self.standardize(X)))
        return units

    def decode(self, code: Tensor) -> Tensor:
        """Decode any number of leading units, (n, length) -> items or logits; later units are 0."""
        check_tensor(code, "a code")
        if code.ndim != 2 or code.shape[1] > self.width:
            raise InvalidInput(f"a code must be (n, up to {self.width}), got shape {tuple(code.shape)}")
        return self.decode_units(functional.pad(code.to(self.mean.dtype), (0, self.width - code.shape[1])))

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

        Frozen weights get no gradient. Call `restore_frozen` after each step of an optimizer with momentum. Without
        hidden layers, or after `freeze_hidden`, the thresholds of frozen units and the shared parameters of the decoder
        are frozen too: codes and reconstructions of frozen units then stay the same, bit for bit.
        """
        encoder, units = self._own_encoder(), check_int(units, "units", least=0)
        if not encoder.frozen <= units <= self.width:
            raise InvalidInput(f"units must be from {encoder.frozen}, frozen before, to {self.width}, got {units}")
        encoder.freeze(units)
        self._hold_shared()

    def freeze_hidden(self) -> None:
        """Freeze the hidden layers of the encoder and, if units are frozen, the shared parameters of the decoder."""
        self._own_encoder().hidden.requires_grad_(False)
        self._hold_shared()

    def _hold_shared(self) -> None:
        """Freeze what codes and reconstructions of frozen units depend on beside these units."""
        if self.frozen and self.hidden_frozen:
            self._freeze_decoder()
            if self.binarize is not None:
                self.binarize.frozen = self.frozen

    def _freeze_decoder(self) -> None:
        """Freeze the decoder's parameters that do not belong to a unit."""

    def unfreeze(self, units: int = 0) -> None:
        """Train all but the first `units` again, with the hidden layers and the decoder."""
        self._own_encoder().unfreeze(check_int(units, "units", least=0))
        self.decoder.requires_grad_()
        if self.binarize is not None:
            self.binarize.frozen = min(units, self.binarize.frozen)
        self._hold_shared()

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

    def _own_encoder(self) -> Encoder:
        if not isinstance(self.encoder, Encoder):
            raise InvalidInput("only the built-in layers can freeze units and grow: leave out encoder and decoder")
        return self.encoder

    def extra_repr(self) -> str:
        """Return what `print(model)` shows."""
        return f"{self.features}, width={self.width}, corruption={self.corruption}, spread={self.spread_of!r}"


def check_probability(value: float, name: str) -> float:
    """Return a probability below 1, or raise."""
    if not is_number(value) or not 0 <= value < 1:
        raise InvalidInput(f"{name} must be at least 0 and below 1, got {shown(value)}")
    return float(value)
