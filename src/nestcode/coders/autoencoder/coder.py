"""The autoencoder coder: the paper's deep network with nested dropout as a coder."""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, Self, Unpack

from torch import nn

from nestcode.coders.autoencoder.model import AutoencoderModel, settings_from_json
from nestcode.coders.base import Metric, check_settings
from nestcode.coders.network import (
    NetworkCoder,
    check_instance,
    check_record_sizes,
    check_sizes,
    rows_or_source,
)
from nestcode.lengths import Lengths
from nestcode.nn.nesting import Nesting
from nestcode.storage import Record
from nestcode.training.config import Run, RunOptions, Training
from nestcode.training.presets import Network, Preset, find_preset


class AutoencoderCoder(NetworkCoder[AutoencoderModel]):
    """Bits of an ordered autoencoder, which is trained by nested dropout and decodes them (needs PyTorch).

    >>> from nestcode.data import digits
    >>> X, _ = digits()
    >>> training = Training(steps=100, learning_rate=0.01)
    >>> coder = AutoencoderCoder(width=16, layers=(32,), training=training).fit(X, progress=False)
    >>> coder.expected_error(16) < coder.expected_error(4) < coder.expected_error(0)
    True

    Training can be interrupted: `fit(X, checkpoint="run.ckpt", resume=True)` continues it, bit for bit.

    Args:
        width: bits of a code; by default the preset's width.
        layers: widths of the hidden layers from the input to the code; the decoder mirrors them. () for none.
        metric: "l2", or "cosine" to L2-normalize every item first.
        preset: "paper-retrieval" or "paper-compression", the paper's networks; other arguments replace parts of it.
        lengths: the distribution of the kept length in training, or another `nestcode.nn.Nesting`.
        network: the architecture except its sizes: tied weights, binarization, noise, modules of your own.
        training: steps, optimizer, regularization, unit sweeping, growth and other settings.

    """

    def __init__(
        self,
        width: int | None = None,
        *,
        layers: Sequence[int] | None = None,
        metric: Metric = "l2",
        preset: str | None = None,
        lengths: Lengths | Nesting | None = None,
        network: Network | None = None,
        training: Training | None = None,
    ) -> None:
        find_preset(preset)
        self.width, self.preset = width, preset
        check_sizes(layers, "layers")
        check_settings(self.width, metric)
        check_instance(lengths, (Lengths, Nesting), "lengths")
        check_instance(network, Network, "network")
        check_instance(training, Training, "training")
        self.layers, self.metric, self.lengths, self.network, self.training = layers, metric, lengths, network, training

    @property
    def width(self) -> int:
        """Bits of a code; by default the preset's width."""
        return find_preset(self.preset).width if self._width is None else self._width

    @width.setter
    def width(self, width: int | None) -> None:
        self._width = width

    def _given(self, name: str) -> Any:
        return self._width if name == "width" else super()._given(name)

    def fit(self, X: Any, y: object = None, **run: Unpack[RunOptions]) -> Self:  # noqa: ARG002
        """Train on data: an array or memory map, images, a torch dataset, an `ImageFolder`.

        Args:
            X: the data.
            y: ignored, for scikit-learn.
            run: checkpoints, logs and progress, see `nestcode.training.Run`.

        """
        how, source = Run.of(run), rows_or_source(X)
        model = AutoencoderModel.fit(source, self.settings(), how, normalize=self.metric == "cosine")
        self._set_model(model, self.preset)
        self._store_columns(X)
        return self

    def settings(self) -> Preset:
        """Return all settings: the arguments, and the preset's where there are none.

        >>> AutoencoderCoder(preset="paper-retrieval").settings().layers
        (2048, 1024)
        """
        given: dict[str, Any] = {
            "width": self.width, "layers": None if self.layers is None else tuple(self.layers),
            "lengths": self.lengths, "network": self.network, "training": self.training,
        }  # fmt: skip
        settings = replace(
            find_preset(self.preset), **{name: value for name, value in given.items() if value is not None}
        )
        growth = settings.training.growth
        if growth is None:
            return settings
        growth = replace(growth, start=min(growth.start, self.width), most=min(growth.most, self.width))
        return replace(settings, training=settings.training.but(growth=growth))

    @classmethod
    def _read(cls, record: Record, encoder: nn.Module | None = None, decoder: nn.Module | None = None) -> Self:
        check_record_sizes(record)
        values = record.settings
        settings = settings_from_json(values, encoder=encoder, decoder=decoder)
        model = AutoencoderModel.read(settings, values, record.arrays)
        chosen = {field.name: getattr(settings, field.name) for field in fields(settings)}
        coder = cls(**chosen, preset=values["preset"], metric=values["metric"])
        coder._set_model(model, values["preset"], record.kind)
        return coder
