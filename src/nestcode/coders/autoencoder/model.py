"""The fitted autoencoder coder: an ordered autoencoder makes the bits and decodes them (section 4 of the paper)."""

import warnings
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nestcode.arrays import Floats
from nestcode.coders.network import (
    EVALUATED,
    NormalizedSource,
    UnitModel,
    best_lengths,
    check_errors,
    evaluated_lengths,
    load_network,
    piece_size,
    weights_of,
)
from nestcode.codes import Codes
from nestcode.nn.autoencoder import OrderedAutoencoder
from nestcode.nn.serialization import lengths_from_json, lengths_to_json
from nestcode.storage import Arrays
from nestcode.training.autoencoder import train
from nestcode.training.config import Run, Training
from nestcode.training.data import Source
from nestcode.training.evaluation import errors_by_length
from nestcode.training.presets import Network, Preset
from nestcode.training.runtime.randomness import seeded
from nestcode.training.runtime.sampler import split_holdout


@dataclass(frozen=True)
class AutoencoderModel(UnitModel):
    """A trained ordered autoencoder and its error by length."""

    settings: Preset  # as they were when it was fitted
    network: OrderedAutoencoder
    errors: NDArray[np.float64]  # (width + 1,): squared error of an item by length
    decode_at: NDArray[np.int64]  # (width + 1,): the length that codes of a length are decoded at
    normalize: bool

    @classmethod
    def fit(cls, source: Source, settings: Preset, run: Run, *, normalize: bool) -> Self:
        """Train a network, then measure its error by length on held-out items."""
        training = settings.training
        if normalize:
            source = NormalizedSource(source)
        with seeded(training.seed):
            network = settings.build(source.features)
        train(network, source, training, run)
        held_out, trained_on = split_holdout(len(source), training)
        items = held_out if len(held_out) else trained_on
        return cls._evaluated(settings, network, torch.from_numpy(source.rows(items[:EVALUATED])), normalize=normalize)

    @classmethod
    def _evaluated(cls, settings: Preset, network: OrderedAutoencoder, rows: Tensor, *, normalize: bool) -> Self:
        """Return the model with its error at every length, interpolated linearly between those measured."""
        lengths = evaluated_lengths(network.width)
        errors = errors_by_length(network, rows.to(network.mean.device), lengths) * network.features
        by_length = np.interp(np.arange(settings.width + 1), lengths, errors)  # beyond the network's width: its last
        if network.width < settings.width:
            warnings.warn(
                f"growth stopped at {network.width} of {settings.width} bits, and later bits stay 0: train longer, "
                "or lower the least gain",
                stacklevel=4,
            )
        decode_at = np.minimum(best_lengths(by_length), network.width)
        return cls(settings, network, by_length[decode_at], decode_at, normalize)

    def decode(self, codes: Codes) -> Floats:
        """Return the items that codes of any length decode to, (n, features)."""
        network = self.network
        length = int(self.decode_at[codes.width])
        out = np.empty((len(codes), network.features), dtype=np.float32)
        out[:] = network.mean.cpu().numpy()
        if length == 0:
            return out
        zero = -1.0 if network.binarize is not None and network.binarize.signed else 0.0
        piece = piece_size(network, network.features)
        with torch.inference_mode():
            for first in range(0, len(codes), piece):
                bits = codes[first : first + piece].prefix(length).bits()
                units = torch.from_numpy(np.where(bits, np.float32(1), np.float32(zero)))
                out[first : first + piece] = network.decode(units.to(network.mean.device)).cpu().numpy()
        return out

    def to_record(self) -> tuple[dict[str, Any], Arrays]:
        """Return the settings and arrays of a file."""
        settings = {**settings_to_json(self.settings), "features": self.features, "blocks": self.network.blocks()}
        return settings, {**weights_of(self.network), "errors": self.errors, "useful": self.decode_at}

    @classmethod
    def read(cls, settings: Preset, values: dict[str, Any], arrays: Arrays) -> Self:
        """Return the model that `to_record` described."""
        arrays = dict(arrays)
        errors, decode_at = arrays.pop("errors"), arrays.pop("useful")
        check_errors(errors, decode_at, settings.width)
        blocks = values["blocks"]  # the widths that the code grew by
        if sum(blocks) > settings.width:
            raise ValueError(f"its network has {sum(blocks)} units for a width of {settings.width}")
        first = replace(settings, width=blocks[0], training=settings.training.but(growth=None))

        def build() -> OrderedAutoencoder:
            network = first.build(values["features"])
            for units in blocks[1:]:
                network.grow(units)
            return network

        network = load_network(build, arrays, modules=settings.network.encoder is not None)
        return cls(settings, network, errors, decode_at, values["metric"] == "cosine")


def settings_to_json(settings: Preset) -> dict[str, Any]:
    """Return settings as a file keeps them, without the user's modules."""
    return {
        "width": int(settings.width), "layers": [int(size) for size in settings.layers],
        "lengths": lengths_to_json(settings.lengths), "beta": settings.network.beta,
        "network": settings.network.to_json(), "training": settings.training.to_json(),
        "modules": settings.network.encoder is not None,
    }  # fmt: skip


def settings_from_json(values: dict[str, Any], **modules: Any) -> Preset:
    """Return the settings of a file, with the user's modules if it was saved with some."""
    return Preset(
        width=values["width"],
        layers=tuple(values["layers"]),
        lengths=lengths_from_json(values["lengths"]),
        network=Network(beta=values["beta"], **values["network"], **modules),
        training=Training.from_json(values["training"]),
    )
