"""The deep coder: networks where they pay.

By default it keeps the bits of the best coder below it and trains a network to decode them, at every length
(`refined.py`). With layers, modules or a preset of the paper it is an ordered autoencoder, whose network finds the
bits too (`autoencoder.py`). Here both meet the coders' protocol.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import fields, replace
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import nn

from nestcode.arrays import PIECE, Floats, check_int
from nestcode.coders.adaptive.coder import AdaptiveCoder
from nestcode.coders.auto import better
from nestcode.coders.base import BaseLayout, Coder, error_at
from nestcode.coders.deep.autoencoder import AutoencoderBits, Modules
from nestcode.coders.deep.labelled import LabelledBits
from nestcode.coders.deep.network import check_shape, check_sizes, rows_or_source
from nestcode.coders.deep.refined import BASE, RefinedBits, check_items, check_refining, image_shape, make_refiner
from nestcode.coders.linear.coder import LinearCoder
from nestcode.coders.residual.coder import ResidualCoder
from nestcode.codes import Codes
from nestcode.errors import InvalidInput
from nestcode.lengths import Lengths
from nestcode.nn.nesting import Nesting
from nestcode.nn.refine import CHANNELS
from nestcode.storage import Record
from nestcode.training.config import Training
from nestcode.training.data import Source
from nestcode.training.feed import split_items
from nestcode.training.journal import Run, run_of
from nestcode.training.loop import ONE_AT_A_TIME
from nestcode.training.presets import Network, Preset, find_preset

BASES: dict[str, type[Coder]] = {kind.__name__: kind for kind in (LinearCoder, ResidualCoder, AdaptiveCoder)}

REFINING = {  # how a network that decodes is trained where nothing else is said: minutes on a processor
    "images": Training(steps=500, batch_size=32, learning_rate=3e-3),
    "vectors": Training(steps=2000, batch_size=256),
}


class DeepCoder(Coder):
    """Codes that a network decodes (needs PyTorch).

    >>> from nestcode.data import digits
    >>> X, _ = digits()
    >>> coder = DeepCoder(width=32, training=Training(steps=300)).fit(X, progress=False)
    >>> codes = coder.encode(X)
    >>> errors = [float(np.mean((X - coder.decode(codes.prefix(k))) ** 2)) for k in (0, 8, 32)]
    >>> errors[0] > errors[1] > errors[2]
    True

    Training can be stopped and resumed: `fit(X, checkpoint="run.ckpt", resume=True)` goes on where it was, bit for bit.

    Args:
        width: bits of a code.
        layers: widths of the hidden layers of an ordered autoencoder that finds the bits itself, () for none; its
            decoder mirrors them.
        lengths: how many leading bits of it are kept in training, or another `nestcode.nn.Nesting`.
        beta: how often a bit of it is 1.
        encoder: any module from (n, features) to (n, width), in place of `layers`.
        decoder: any module from (n, width), with 0 for dropped bits, to (n, features).
        preset: "paper-retrieval" or "paper-compression": the paper's networks; other arguments replace parts of them.
        network: how an ordered autoencoder is made, beside its sizes.
        training: how it is trained.
        metric: "l2", or "cosine" to scale every item to length 1 first.
        base: the coder whose bits a network decodes, where none of the arguments above asks for an autoencoder; if it
            is fitted it stays as it is. By default the better of `AdaptiveCoder` and `ResidualCoder`.
        shape: of images that come as rows, as in (3, 32, 32); images that come as arrays have theirs.
        channels: of the convolutions that decode images, at full size, half of it and so on, or of the layers that
            decode vectors, as in (1024, 1024); (16, 32) and (512, 512) by default, GPUs take more.
        mirrored: learn from mirrored images too, where they are as good.

    """

    def __init__(
        self,
        width: int | None = None,
        layers: Sequence[int] | None = None,
        lengths: Lengths | Nesting | None = None,
        beta: float | None = None,
        encoder: nn.Module | None = None,
        decoder: nn.Module | None = None,
        preset: str | None = None,
        network: Network | None = None,
        training: Training | None = None,
        metric: Literal["l2", "cosine"] = "l2",
        base: LinearCoder | ResidualCoder | AdaptiveCoder | None = None,
        shape: Sequence[int] | None = None,
        channels: Sequence[int] | None = None,
        mirrored: bool = False,
    ) -> None:
        find_preset(preset)
        if metric not in ("l2", "cosine"):
            raise InvalidInput(f'metric must be "l2" or "cosine", got {metric!r}')
        if base is not None and not isinstance(base, tuple(BASES.values())):
            raise InvalidInput(f"base must be one of {', '.join(BASES)}, got {base!r}")
        self.width, self.preset, self.base = width, preset, base
        check_int(self.width, "width", least=1)
        if base is not None and base.width != self.width:
            raise InvalidInput(f"width must be that of base, {base.width}, got {self.width}")
        if base is not None and base.metric != metric:
            raise InvalidInput(f"metric must be that of base, {base.metric!r}, got {metric!r}")
        check_shape(shape, "shape")
        check_shape(channels, "channels")
        if layers is not None and not isinstance(layers, Sequence):
            raise InvalidInput(f"layers must be widths of hidden layers, as in (256, 128), got {layers!r}")
        for name, value, kind in (("network", network, Network), ("training", training, Training)):
            if not isinstance(value, kind | None):
                raise InvalidInput(f"{name} must be {kind.__name__}(…), got {value!r}")
        self.layers, self.lengths, self.beta = layers, lengths, beta
        self.encoder, self.decoder = encoder, decoder
        self.network, self.training, self.metric, self.shape = network, training, metric, shape
        self.channels, self.mirrored = channels, mirrored
        if base is not None and self._finds_bits():
            raise InvalidInput("base has bits of its own: leave out base, or what an autoencoder is made of")
        self._fit: AutoencoderBits | RefinedBits | None = None

    @property
    def width(self) -> int:
        """Bits of a code: those of the preset or of base, where none are given."""
        chosen = find_preset(self.preset) if self.base is None else self.base
        return chosen.width if self._width is None else self._width

    @width.setter
    def width(self, width: int | None) -> None:
        self._width = width

    def _given(self, name: str) -> Any:
        return self._width if name == "width" else super()._given(name)

    def fit(self, X: Any, y: Any = None, **run: Any) -> Self:
        """Train on data: an array or memory map, images, a torch dataset, an `ImageFolder`.

        Args:
            X: the data.
            y: a label for each item, where codes are to tell classes apart: an `nn.OrderedClassifier` of `layers` or
                `encoder` then finds the bits, and items of a class are near each other by Hamming distance.
            run: where the run leaves its traces: checkpoint, resume, log, tensorboard, progress (see `training.Run`).

        """
        how, settings, source = run_of(run), self._chosen(), rows_or_source(X)
        normalize, modules = self.metric == "cosine", Modules(self.encoder, self.decoder)
        if y is not None:
            if self.base is not None or self.decoder is not None:
                raise InvalidInput("with labels a classifier finds the bits: leave out base and decoder")
            self._fit = LabelledBits.learn(source, y, settings, modules, how, normalize=normalize)
        elif self._finds_bits():
            self._fit = AutoencoderBits.fit(source, settings, modules, how, normalize=normalize)
        else:
            self._fit = self._refine(source, how)
        self._learn_columns(X)
        return self

    def _refine(self, source: Source, run: Run) -> RefinedBits:
        """A base's bits, and a network trained to decode them."""
        shape = self.shape if self.shape is not None else image_shape(source)
        training = self.training or REFINING["vectors" if shape is None else "images"]
        check_refining(training)
        with ONE_AT_A_TIME, torch.random.fork_rng():
            torch.manual_seed(training.seed)
            network = make_refiner(source.features, shape, self.channels, mirrored=self.mirrored)
        base = self._fitted_base(source, training)
        return RefinedBits.fit(source, base, network, training, run, normalize=self.metric == "cosine")

    def encode(self, X: ArrayLike) -> Codes:
        """(n, features) -> codes of `width` bits."""
        fit = self._fitted()
        if isinstance(X, np.ndarray) and X.shape == (0, fit.features):
            return Codes.unchecked(np.zeros((0, -(-fit.width // 8)), dtype=np.uint8), fit.width)
        source = rows_or_source(X)
        check_items(source, fit.features, fit.network)
        return Codes.unchecked(fit.encode(source), fit.width)

    def decode(self, codes: Codes) -> Floats:
        """Codes of any length from 0 to `width` -> (n, features); length 0 gives the mean.

        Where the last bits would make the error larger on average, they are left out: it never rises with length.
        """
        fit = self._fitted()
        self.check_codes(codes)
        return fit.decode(codes)

    def expected_error(self, length: int) -> float:
        """The mean squared error of a feature at `length` bits, as measured on items held out from training."""
        fit = self._fitted()
        return error_at(length, fit.errors, fit.features)

    @property
    def n_features_in_(self) -> int:
        """How many features the coder was fitted on."""
        return self._fitted().features

    @property
    def network_(self) -> nn.Module:
        """The trained network: an `nn.OrderedAutoencoder`, or what refines the bits of `base_`."""
        return self._fitted().network

    @property
    def base_(self) -> Coder:
        """The coder whose bits the network decodes."""
        fit = self._fitted()
        if not isinstance(fit, RefinedBits):
            raise AttributeError("base_: an autoencoder finds its bits itself")
        return fit.base

    def _finds_bits(self) -> bool:
        """Whether an autoencoder is asked for."""
        parts = self.layers, self.lengths, self.beta, self.encoder, self.decoder, self.preset, self.network
        growth = self.training is not None and (self.training.growth or self.training.sweep)
        return bool(growth) or any(part is not None for part in parts)

    def _chosen(self) -> Preset:
        """All settings, from the arguments or else the preset."""
        preset = find_preset(self.preset)
        given: dict[str, Any] = {
            "width": self.width, "layers": None if self.layers is None else tuple(self.layers), "beta": self.beta,
            "lengths": self.lengths, "network": self.network, "training": self.training,
        }  # fmt: skip
        own: dict[str, Any] = {field.name: getattr(preset, field.name) for field in fields(preset)}
        chosen = Preset(**{name: own[name] if value is None else value for name, value in given.items()})
        growth = chosen.training.growth
        if growth is None:
            return chosen
        growth = replace(growth, start=min(growth.start, self.width), most=min(growth.most, self.width))
        return replace(chosen, training=chosen.training.but(growth=growth))

    def _fitted_base(self, source: Source, training: Training) -> Coder:
        """The coder whose bits are kept."""
        if self.base is not None and self.base.__sklearn_is_fitted__():
            if self.base.n_features_in_ != source.features:
                raise InvalidInput(
                    f"base was fitted on {self.base.n_features_in_} features, the data has {source.features}: "
                    "fit base on this data, or give one that is not fitted"
                )
            return deepcopy(self.base)
        learnt = split_items(len(source), training)[1]
        rows = [source.rows(learnt[first : first + PIECE]) for first in range(0, len(learnt), PIECE)]
        if self.base is not None:
            return deepcopy(self.base).fit(rows)
        coders = [kind(self.width, self.metric, seed=training.seed) for kind in (AdaptiveCoder, ResidualCoder)]
        return coders[better(rows, coders)].fit(rows)

    @property
    def width_(self) -> int:
        """Bits of a code, as fitted."""
        return self._fitted().width

    @property
    def metric_(self) -> Literal["l2", "cosine"]:
        """The metric the coder was fitted for."""
        return "cosine" if self._fitted().normalize else "l2"

    def layout(self, length: int) -> BaseLayout | None:  # noqa: ARG002
        """Return the coder whose bits a network decodes; None where the network finds the bits."""
        fit = self._fitted()
        return BaseLayout(fit.base) if isinstance(fit, RefinedBits) else None

    def _fitted(self) -> AutoencoderBits | RefinedBits:
        if self._fit is None:
            raise self._not_fitted()
        return self._fit

    def to_record(self) -> Record:
        """Return the fitted coder as a record."""
        fit = self._fitted()
        settings, arrays = fit.to_record()
        settings |= {"preset": self.preset, "metric": "cosine" if fit.normalize else "l2"}
        settings |= {"modules": self.encoder is not None}
        return Record("DeepCoder", self.VERSION, settings, dict(arrays))

    @classmethod
    def _read(cls, record: Record, encoder: nn.Module | None = None, decoder: nn.Module | None = None) -> Self:
        check_sizes(record)
        settings, normalize = record.settings, record.settings["metric"] == "cosine"
        if "base" not in settings:
            modules = Modules(encoder, decoder)
            kind = LabelledBits if "classes" in settings else AutoencoderBits
            fit = kind.read(settings, record.arrays, modules, normalize=normalize)
            chosen = {field.name: getattr(fit.settings, field.name) for field in fields(fit.settings)}
            coder = cls(
                **chosen, encoder=encoder, decoder=decoder, preset=settings["preset"], metric=settings["metric"]
            )
            coder._fit = fit
            return coder
        below = settings["base"]
        arrays = {name.removeprefix(BASE): array for name, array in record.arrays.items() if name.startswith(BASE)}
        base: Any = BASES[below["kind"]]._read(Record(below["kind"], below["version"], below["settings"], arrays))
        made: dict[str, Any] = {
            name: tuple(part) if isinstance(part, list) else part for name, part in settings["refiner"].items()
        }
        if made["shape"] is None and made["channels"] == CHANNELS:
            made["channels"] = None
        network = make_refiner(base.n_features_in_, **made)
        refined = RefinedBits.read(settings, record.arrays, base, network, normalize=normalize)
        coder = cls(settings["width"], training=refined.training, metric=settings["metric"], base=base, **made)
        coder._fit = refined
        return coder
