"""The fitted supervised coder: an ordered classifier makes the bits, a linear decoder reconstructs items from them.

The head of the classifier gives classes, not items. So that prefixes decode like those of every other coder, a linear
decoder is fitted to the trained bits.
"""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nestcode.arrays import Floats, as_floats
from nestcode.coders.autoencoder.model import settings_to_json
from nestcode.coders.network import (
    NormalizedSource,
    UnitModel,
    best_lengths,
    check_errors,
    encode_bits,
    load_network,
    weights_of,
)
from nestcode.coders.supervised.decoder import PrefixDecoder
from nestcode.codes import Codes
from nestcode.errors import InvalidInput
from nestcode.nn.classifier import OrderedClassifier
from nestcode.storage import Arrays
from nestcode.training.autoencoder import train
from nestcode.training.config import Run
from nestcode.training.data import Source, as_source
from nestcode.training.presets import Preset
from nestcode.training.runtime.randomness import seeded
from nestcode.training.runtime.sampler import split_holdout

LAYERS = (256,)
MOST = 50_000  # items that the decoder is fitted on


@dataclass(frozen=True)
class SupervisedModel(UnitModel):
    """A trained ordered classifier, the decoder of its bits and their error by length."""

    settings: Preset  # as they were when it was fitted
    network: OrderedClassifier
    classes: NDArray[Any]  # the labels, in the order of the classifier's outputs
    decoder: PrefixDecoder
    errors: NDArray[np.float64]  # (width + 1,): squared error of an item by length
    decode_at: NDArray[np.int64]  # (width + 1,): the length that codes of a length are decoded at
    normalize: bool

    @classmethod
    def fit(cls, source: Source, labels: ArrayLike, settings: Preset, run: Run, *, normalize: bool) -> Self:
        """Train a classifier, then fit the decoder and measure its error on held-out items."""
        classes, targets = class_indices(labels, len(source))
        if normalize:
            source = NormalizedSource(source)
        with seeded(settings.training.seed):
            network = build_classifier(settings, source.features, len(classes))
        train(network, source, settings.training, run, labels=targets)
        held_out, trained_on = split_holdout(len(source), settings.training)
        some = trained_on[:: -(-len(trained_on) // MOST)]
        decoder = PrefixDecoder.fit(*_bits_and_rows(network, source, some, normalize=normalize))
        items = held_out if len(held_out) else trained_on
        errors = decoder.errors(*_bits_and_rows(network, source, items, normalize=normalize))
        decode_at = best_lengths(errors)
        return cls(settings, network, classes, decoder, errors[decode_at], decode_at, normalize)

    def decode(self, codes: Codes) -> Floats:
        """Return the items that codes of any length decode to, (n, features)."""
        return self.decoder.decode(codes.prefix(int(self.decode_at[codes.width])).bits())

    def to_record(self) -> tuple[dict[str, Any], Arrays]:
        """Return the settings and arrays of a file."""
        settings = {**settings_to_json(self.settings), "features": self.features, "blocks": self.network.blocks()}
        tables = {"errors": self.errors, "useful": self.decode_at}
        return (
            {**settings, "classes": self.classes.tolist()},
            {**weights_of(self.network), **tables, **self.decoder.to_arrays()},
        )

    @classmethod
    def read(cls, settings: Preset, values: dict[str, Any], arrays: Arrays) -> Self:
        """Return the model that `to_record` described."""
        arrays = dict(arrays)
        errors, decode_at = arrays.pop("errors"), arrays.pop("useful")
        check_errors(errors, decode_at, settings.width)
        decoder = PrefixDecoder.from_arrays(arrays, settings.width, values["features"])
        network = load_network(
            lambda: build_classifier(settings, values["features"], len(values["classes"])),
            arrays,
            modules=settings.network.encoder is not None,
        )
        normalize = values["metric"] == "cosine"
        return cls(settings, network, np.array(values["classes"]), decoder, errors, decode_at, normalize)


def build_classifier(settings: Preset, features: int, classes: int) -> OrderedClassifier:
    """Return the untrained network."""
    how = settings.network
    return OrderedClassifier(
        features,
        settings.width,
        classes,
        settings.layers or LAYERS,  # files of earlier versions name none where they mean these
        lengths=settings.lengths,
        binarize=how.binarize(settings.width),
        corruption=how.corruption,
        dropout=how.dropout,
        spread=how.spread,
        encoder=how.modules()["encoder"],
    )


def class_indices(labels: ArrayLike, items: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the classes among labels, and the index of each item's class."""
    try:
        given = np.asarray(labels)
        given = np.array(given.tolist()) if given.dtype == object else given
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidInput(f"y must have one label per item, as an array of integers or strings ({error})") from error
    if given.shape != (items,):
        raise InvalidInput(
            f"y must have a label for each of the {items} items, got shape {given.shape}: give y.ravel(), or "
            "y.argmax(axis=1) of one-hot rows"
        )
    if given.dtype.kind not in "biufU" or (given.dtype.kind == "f" and not np.isfinite(given).all()):
        raise InvalidInput(f"y must be integers or strings without gaps, got {given.dtype}: drop items without a label")
    classes, indices = np.unique(given, return_inverse=True)
    if len(classes) < 2:
        raise InvalidInput(
            f"y must have at least 2 classes, got {len(classes)} class: an AutoencoderCoder needs no labels"
        )
    return classes, indices.astype(np.int64)


def _bits_and_rows(
    network: OrderedClassifier, source: Source, items: NDArray[np.int64], *, normalize: bool
) -> tuple[NDArray[np.float64], Floats]:
    rows = as_floats(source.rows(items), normalize=normalize).astype(np.float32)
    packed = encode_bits(network, as_source(rows), network.width, normalize=False)
    return Codes.unchecked(packed, network.width).bits().astype(np.float64), rows
