"""Bits of an ordered autoencoder: the network finds them and decodes them (section 4 of the paper)."""

import warnings
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nestcode.arrays import PIECE, Floats, as_floats
from nestcode.coders.deep.network import (
    NormalizedSource,
    check_table,
    lengths_from_json,
    lengths_to_json,
    load_weights,
    some_lengths,
    useful_lengths,
    weights_of,
)
from nestcode.codes import Codes
from nestcode.nn.autoencoder import OrderedAutoencoder
from nestcode.storage import Arrays
from nestcode.training.config import Training
from nestcode.training.data import Source
from nestcode.training.errors_by_length import errors_by_length
from nestcode.training.feed import split_items
from nestcode.training.journal import Run
from nestcode.training.loop import ONE_AT_A_TIME, train
from nestcode.training.presets import Network, Preset

MEASURED = 512  # items that errors are measured on


@dataclass(frozen=True)
class Modules:
    """Networks of the user's own."""

    encoder: nn.Module | None = None
    decoder: nn.Module | None = None

    def fresh_encoder(self) -> nn.Module | None:
        """A copy, so that training leaves the user's own as it is."""
        return deepcopy(self.encoder)

    def build(self, settings: Preset, features: int) -> OrderedAutoencoder:
        """An untrained network with them, or with layers where there are none."""
        return settings.build(features, encoder=self.fresh_encoder(), decoder=deepcopy(self.decoder))


@dataclass(frozen=True)
class AutoencoderBits:
    """What a fit found."""

    settings: Preset  # settings that were changed since wait for the next fit
    network: OrderedAutoencoder
    errors: NDArray[np.float64]  # of an item, by length
    useful: NDArray[np.int64]  # the length to decode at, of all up to a length
    normalize: bool

    @classmethod
    def fit(cls, source: Source, settings: Preset, modules: Modules, run: Run, *, normalize: bool) -> Self:
        """Train a network."""
        training = settings.training
        if normalize:
            source = NormalizedSource(source)
        with ONE_AT_A_TIME, torch.random.fork_rng():
            torch.manual_seed(training.seed)
            network = modules.build(settings, source.features)
        train(network, source, training, run)
        apart, learnt = split_items(len(source), training)
        probe = torch.from_numpy(source.rows((apart if len(apart) else learnt)[:MEASURED]))
        return cls._measured(settings, network, probe, normalize=normalize)

    @classmethod
    def _measured(cls, settings: Preset, network: OrderedAutoencoder, probe: Tensor, *, normalize: bool) -> Self:
        """With the errors of all lengths: straight lines between those that were measured."""
        measured = some_lengths(network.width)
        errors = errors_by_length(network, probe.to(network.mean.device), measured) * network.features
        known = np.interp(np.arange(settings.width + 1), measured, errors)  # and the last one beyond
        if network.width < settings.width:
            warnings.warn(
                f"growth stopped at {network.width} of {settings.width} bits, the others are always 0: train longer, "
                "or lower the least gain",
                stacklevel=4,
            )
        useful = np.minimum(useful_lengths(known), network.width)
        return cls(settings, network, known[useful], useful, normalize)

    @property
    def width(self) -> int:
        """Bits of a code."""
        return len(self.useful) - 1

    @property
    def features(self) -> int:
        """Numbers of an item."""
        return self.network.features

    def encode(self, source: Source) -> NDArray[np.uint8]:
        """The packed bits of items."""
        packed = np.zeros((len(source), -(-self.width // 8)), dtype=np.uint8)
        done = 0
        with torch.inference_mode():
            for rows in self._pieces(source):
                bits = (self.network.encode(rows) > 0).cpu().numpy()
                made = np.packbits(bits, axis=1)
                packed[done : done + len(made), : made.shape[1]] = made
                done += len(made)
        return packed

    def decode(self, codes: Codes) -> Floats:
        """What codes decode to."""
        network = self.network
        length = int(self.useful[codes.width])
        out = np.empty((len(codes), network.features), dtype=np.float32)
        out[:] = network.mean.cpu().numpy()
        if length == 0:
            return out
        low = -1.0 if network.binarize is not None and network.binarize.signed else 0.0
        with torch.inference_mode():
            for first in range(0, len(codes), PIECE):
                bits = codes[first : first + PIECE].prefix(length).bits()
                code = torch.from_numpy(np.where(bits, np.float32(1), np.float32(low)))
                out[first : first + PIECE] = network.decode(code.to(network.mean.device)).cpu().numpy()
        return out

    def _pieces(self, source: Source) -> Iterator[Tensor]:
        """Rows as the network takes them."""
        for first in range(0, len(source), PIECE):
            rows = source.rows(np.arange(first, min(first + PIECE, len(source))))
            floats = as_floats(rows, normalize=self.normalize).astype(np.float32, copy=False)
            yield torch.from_numpy(floats).to(self.network.mean.device)

    def to_record(self) -> tuple[dict[str, Any], Arrays]:
        """Settings and arrays for a file."""
        chosen = self.settings
        settings = {
            "width": int(chosen.width), "layers": [int(size) for size in chosen.layers],
            "lengths": lengths_to_json(chosen.lengths),
            "beta": chosen.beta, "network": asdict(chosen.network), "training": chosen.training.to_json(),
            "features": self.features, "blocks": self.network.blocks(),
        }  # fmt: skip
        return settings, {**weights_of(self.network), "errors": self.errors, "useful": self.useful}

    @classmethod
    def read(cls, settings: dict[str, Any], arrays: Arrays, modules: Modules, *, normalize: bool) -> Self:
        """What `to_record` gave."""
        arrays = dict(arrays)
        errors, useful = arrays.pop("errors"), arrays.pop("useful")
        check_table(errors, useful, settings["width"])
        chosen = settings_from_json(settings)
        blocks = settings["blocks"]
        first = replace(chosen, width=blocks[0], training=chosen.training.but(growth=None))
        network = modules.build(first, settings["features"])
        for units in blocks[1:]:
            network.grow(units)
        load_weights(network, arrays)
        return cls(chosen, network.eval(), errors, useful, normalize)


def settings_from_json(settings: dict[str, Any]) -> Preset:
    """The settings of a file."""
    return Preset(
        width=settings["width"],
        layers=tuple(settings["layers"]),
        lengths=lengths_from_json(settings["lengths"]),
        beta=settings["beta"],
        network=Network(**settings["network"]),
        training=Training.from_json(settings["training"]),
    )
