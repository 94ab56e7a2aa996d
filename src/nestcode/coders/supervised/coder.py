"""The supervised coder: bits that tell classes apart, the first ones most."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self, Unpack

from numpy.typing import NDArray
from torch import nn

from nestcode.coders.autoencoder.model import settings_from_json
from nestcode.coders.base import Metric, check_settings
from nestcode.coders.network import (
    NetworkCoder,
    check_instance,
    check_record_sizes,
    check_sizes,
    rows_or_source,
)
from nestcode.coders.supervised.model import LAYERS, SupervisedModel
from nestcode.errors import InvalidInput
from nestcode.lengths import Lengths, LogUniform
from nestcode.nn.nesting import Nesting
from nestcode.storage import Record
from nestcode.training.config import Run, RunOptions, Training
from nestcode.training.presets import Network, Preset


class SupervisedCoder(NetworkCoder[SupervisedModel]):
    """Bits of an ordered classifier: items of a class are near each other by Hamming distance (needs PyTorch).

    >>> from nestcode.data import digits
    >>> X, y = digits()
    >>> coder = SupervisedCoder(16, training=Training(steps=100, learning_rate=5e-3)).fit(X, y, progress=False)
    >>> bits = coder.encode(X).bits()
    >>> between = (bits[y == 3][:, None] != bits[y == 8][None]).mean()
    >>> bool((bits[y == 3][:, None] != bits[y == 3][None]).mean() < 0.5 * between)
    True

    The classifier is trained by nested dropout, so this holds at every length. Codes decode to items too, by the best
    linear decoder of each length. Training can be interrupted: `fit(X, y, checkpoint="run.ckpt", resume=True)`
    continues it, bit for bit.

    Args:
        width: bits of a code.
        layers: widths of the hidden layers, at least one.
        metric: "l2", or "cosine" to L2-normalize every item first.
        lengths: the distribution of the kept length in training, or another `nestcode.nn.Nesting`.
        network: the architecture except its sizes: binarization, noise, an encoder of your own.
        training: steps, optimizer, regularization and so on.

    """

    def __init__(
        self,
        width: int,
        *,
        layers: Sequence[int] = LAYERS,
        metric: Metric = "l2",
        lengths: Lengths | Nesting | None = None,
        network: Network | None = None,
        training: Training | None = None,
    ) -> None:
        self.width = width
        check_sizes(layers, "layers")
        if not layers:
            raise InvalidInput("layers must have at least one hidden layer, got none: (256,) suits most data")
        check_settings(self.width, metric)
        check_instance(lengths, (Lengths, Nesting), "lengths")
        check_instance(network, Network, "network")
        check_instance(training, Training, "training")
        if network is not None and (network.tied or network.decoder is not None):
            raise InvalidInput(
                "a classifier has neither tied weights nor a decoder, got a network with one: leave it out, or use an "
                "AutoencoderCoder"
            )
        self.layers, self.metric, self.lengths, self.network, self.training = layers, metric, lengths, network, training

    def fit(self, X: Any, y: Any = None, **run: Unpack[RunOptions]) -> Self:
        """Train on labeled data: an array or memory map, images, a torch dataset, an `ImageFolder`.

        Args:
            X: the data.
            y: a label for each item, integers or strings.
            run: checkpoints, logs and progress, see `nestcode.training.Run`.

        """
        if y is None:
            raise InvalidInput("y must have a label for each item, got None: an AutoencoderCoder needs no labels")
        how, source = Run.of(run), rows_or_source(X)
        normalize = self.metric == "cosine"
        self._set_model(SupervisedModel.fit(source, y, self._settings_of_fit(), how, normalize=normalize))
        self._store_columns(X)
        return self

    def _settings_of_fit(self) -> Preset:
        return Preset(
            width=self.width,
            layers=tuple(self.layers),
            lengths=self.lengths or LogUniform(),
            network=self.network or Network(),
            training=self.training or Training(),
        )

    @property
    def classes_(self) -> NDArray[Any]:
        """The labels that the coder was fitted on, sorted."""
        return self._fitted().classes

    @classmethod
    def _read(cls, record: Record, encoder: nn.Module | None = None) -> Self:
        check_record_sizes(record)
        values = record.settings
        settings = settings_from_json(values, encoder=encoder)
        model = SupervisedModel.read(settings, values, record.arrays)
        coder = cls(
            settings.width,
            layers=settings.layers or LAYERS,
            metric=values["metric"],
            lengths=settings.lengths,
            network=replace(settings.network, tied=False),  # which presets could name once, without effect
            training=settings.training,
        )
        coder._set_model(model, values["preset"], record.kind)
        return coder
