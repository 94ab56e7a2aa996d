"""The ordered classifier: nested dropout with labels, so that the first bits separate classes best.

    X ──standardize──▶ z ──corrupt──▶ encoder ──▶ pre-activations ──▶ bits ──truncate──▶ head ──▶ logits

The paper leaves labels to future work. Items of a class get similar codes, so that the nearest neighbors by Hamming
distance are of the same class, at every length.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from nestcode.arrays import check_int
from nestcode.codes import MAX_WIDTH
from nestcode.lengths import Lengths
from nestcode.nn.binarize import Binarize
from nestcode.nn.layers import Encoder
from nestcode.nn.nesting import Nesting
from nestcode.nn.network import OrderedNetwork, Spread, check_probability


class OrderedClassifier(OrderedNetwork):
    """Nested dropout on a code from which a linear head predicts classes; `decode` returns logits.

    >>> _ = torch.manual_seed(0)
    >>> model = OrderedClassifier(64, width=16, classes=10, layers=(32,), binarize=Binarize(16, signed=True)).eval()
    >>> X = torch.rand(5, 64)
    >>> model.decode(model.encode(X)[:, :4]).shape, model.classify(X, kept=4).shape
    (torch.Size([5, 10]), torch.Size([5]))

    Train it with `train(model, X, training, labels=y)`; the errors reported are then error rates.

    Args:
        features: of an item.
        width: units of the code.
        classes: how many; labels are 0 to classes - 1.
        layers: widths of the hidden layers.
        lengths: the distribution of the kept length in training, or another `Nesting`. LogUniform() by default.
        binarize: a module that turns units into bits; without it units are rectified.
        corruption: the probability that an input element is set to 0.
        dropout: of ordinary dropout on the hidden layers.
        spread: what features are divided by, see `OrderedAutoencoder`.
        encoder: any module from (n, features) to pre-activations (n, width), in place of `layers`.
        smoothing: label smoothing, the share of a label that is spread over all classes.

    """

    def __init__(
        self,
        features: int,
        width: int,
        classes: int,
        layers: Sequence[int] = (),
        *,
        lengths: Lengths | Nesting | None = None,
        binarize: Binarize | None = None,
        corruption: float = 0.0,
        dropout: float = 0.0,
        spread: Spread = "common",
        encoder: nn.Module | None = None,
        smoothing: float = 0.0,
    ) -> None:
        features = check_int(features, "features", least=1, most=MAX_WIDTH)
        width = check_int(width, "width", least=1, most=MAX_WIDTH)
        classes, dropout = check_int(classes, "classes", least=2, most=MAX_WIDTH), check_probability(dropout, "dropout")
        super().__init__(
            features,
            width,
            Encoder(features, layers, width, dropout=dropout) if encoder is None else encoder,
            nn.Linear(width, classes),
            lengths=lengths,
            binarize=binarize,
            corruption=corruption,
            spread=spread,
        )
        self.classes, self.smoothing = classes, check_probability(smoothing, "smoothing")

    def decode_units(self, units: Tensor) -> Tensor:
        """Return logits, (n, width) -> (n, classes)."""
        logits: Tensor = self.decoder(units)
        return logits

    def loss(self, decoded: Tensor, target: Tensor) -> Tensor:
        """Return the mean cross-entropy of logits and labels, (n, classes), (n,) -> a scalar."""
        return functional.cross_entropy(decoded, target, label_smoothing=self.smoothing)

    def error(self, code: Tensor, target: Tensor) -> Tensor:
        """Return the error rate: the share of items that are not classified as their label, (n, length), (n,)."""
        return (self.decode(code).argmax(dim=1) != target).double().mean()

    @torch.no_grad()
    def classify(self, X: Tensor, kept: int | None = None) -> Tensor:
        """Return the most probable class given the first `kept` units, or all: (n, features) -> (n,)."""
        kept = self.width if kept is None else check_int(kept, "kept", least=0)
        return self.decode(self.encode(X)[:, :kept]).argmax(dim=1)

    def extra_repr(self) -> str:
        """Return what `print(model)` shows."""
        return f"{super().extra_repr()}, classes={self.classes}, smoothing={self.smoothing}"
