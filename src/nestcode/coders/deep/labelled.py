"""Bits that tell classes apart: an ordered classifier finds them, and sums of theirs decode them.

The head of the classifier gives classes, not items. So that codes decode at every length all the same, each bit is made
uncorrelated with the bits before it, and adds what it tells on average: for every length at once this is the best
linear decoder of that many bits.
"""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from nestcode.arrays import Floats, as_floats, squared_norms
from nestcode.coders.deep.autoencoder import AutoencoderBits, Modules, settings_from_json
from nestcode.coders.deep.network import NormalizedSource, check_table, load_weights, useful_lengths
from nestcode.codes import Codes
from nestcode.errors import InvalidInput
from nestcode.nn.binarize import Binarize
from nestcode.nn.classifier import OrderedClassifier
from nestcode.storage import Arrays
from nestcode.training.data import Source
from nestcode.training.feed import split_items
from nestcode.training.journal import Run
from nestcode.training.loop import ONE_AT_A_TIME, train
from nestcode.training.presets import Preset

MOST = 50_000  # items that the decoder is fitted on
RIDGE = 1e-3  # of a bit's variance, where it hardly differs from those before it
LAYERS = (256,)  # where nothing else is said


@dataclass(frozen=True)
class LabelledBits(AutoencoderBits):
    """What a fit with labels found."""

    classes: NDArray[Any]  # in the order of the classifier's numbers
    mean: NDArray[np.float64]  # (features,)
    offsets: NDArray[np.float64]  # (width,): means of the bits
    apart: NDArray[np.float64]  # (width, width): makes bits uncorrelated, each by those before it
    steps: NDArray[np.float64]  # (width, features): what each then adds

    @classmethod
    def learn(
        cls, source: Source, labels: ArrayLike, settings: Preset, modules: Modules, run: Run, *, normalize: bool
    ) -> Self:
        """Train a classifier, then fit the decoder."""
        try:
            given = np.asarray(labels)
            given = np.array(given.tolist()) if given.dtype == object else given
        except (TypeError, ValueError, RuntimeError) as error:
            raise InvalidInput(f"y must be one label an item, as in an array of numbers or names ({error})") from error
        if given.shape != (len(source),):
            raise InvalidInput(
                f"y must have a label for each of the {len(source)} items, got shape {given.shape}: give y.ravel(), or "
                "y.argmax(axis=1) of one column a class"
            )
        if given.dtype.kind not in "biufU" or (given.dtype.kind == "f" and not np.isfinite(given).all()):
            raise InvalidInput(
                f"y must be whole numbers or names without gaps, got {given.dtype}: drop items without one"
            )
        classes, numbers = np.unique(given, return_inverse=True)
        if len(classes) < 2:
            raise InvalidInput(f"y must have at least 2 classes, got {len(classes)} class: without labels leave y out")
        if normalize:
            source = NormalizedSource(source)
        training = settings.training
        with ONE_AT_A_TIME, torch.random.fork_rng():
            torch.manual_seed(training.seed)
            network = make_classifier(settings, source.features, len(classes), modules)
        train(network, source, training, run, labels=numbers.astype(np.int64))
        apart, learnt = split_items(len(source), training)
        nothing = np.zeros(settings.width + 1)
        bits = cls(settings, network, nothing, np.arange(settings.width + 1), normalize, classes, *_no_decoder(network))
        return bits._decoding(source, learnt[:: -(-len(learnt) // MOST)], apart if len(apart) else learnt)

    def _decoding(self, source: Source, learnt: NDArray[np.int64], probed: NDArray[np.int64]) -> Self:
        """With a decoder fitted to some items, and errors measured on others."""
        bits, rows = self._bits_and_rows(source, learnt)
        offsets, mean = bits.mean(axis=0), rows.mean(axis=0, dtype=np.float64)
        centered = bits - offsets
        covariance = centered.T @ centered / len(bits) + RIDGE * np.eye(self.width)
        apart = np.linalg.inv(np.linalg.cholesky(covariance))
        steps = apart @ (centered.T @ (rows - mean)) / len(bits)
        bits, rows = self._bits_and_rows(source, probed)
        told, left = (bits - offsets) @ apart.T, rows - mean
        errors = [float(squared_norms(left).mean())]
        for unit in range(self.width):
            left = left - told[:, unit, None] * steps[unit]
            errors.append(float(squared_norms(left).mean()))
        known = np.array(errors)
        useful = useful_lengths(known)
        return type(self)(
            self.settings,
            self.network,
            known[useful],
            useful,
            self.normalize,
            self.classes,
            mean,
            offsets,
            apart,
            steps,
        )

    def _bits_and_rows(self, source: Source, which: NDArray[np.int64]) -> tuple[NDArray[Any], Floats]:
        rows = as_floats(source.rows(which), normalize=self.normalize).astype(np.float32)
        with torch.inference_mode():
            parts = torch.from_numpy(rows).to(self.network.mean.device).split(4096)
            bits = np.concatenate([(self.network.encode(part) > 0).cpu().numpy() for part in parts])
        return bits.astype(np.float64), rows

    def decode(self, codes: Codes) -> Floats:
        """What codes decode to."""
        length = int(self.useful[codes.width])
        told = (codes.prefix(length).bits() - self.offsets[:length]) @ self.apart[:length, :length].T
        return (self.mean + told @ self.steps[:length]).astype(np.float32)

    def to_record(self) -> tuple[dict[str, Any], Arrays]:
        """Settings and arrays for a file."""
        settings, arrays = super().to_record()
        own = {name: getattr(self, name) for name in ("mean", "offsets", "apart", "steps")}
        return {**settings, "classes": self.classes.tolist()}, {
            **arrays,
            **{f"decoder.{name}": own[name] for name in own},
        }

    @classmethod
    def read(cls, settings: dict[str, Any], arrays: Arrays, modules: Modules, *, normalize: bool) -> Self:
        """What `to_record` gave."""
        arrays = dict(arrays)
        errors, useful = arrays.pop("errors"), arrays.pop("useful")
        check_table(errors, useful, settings["width"])
        own = [arrays.pop(f"decoder.{name}") for name in ("mean", "offsets", "apart", "steps")]
        width, features = settings["width"], settings["features"]
        for array, shape in zip(own, ((features,), (width,), (width, width), (width, features)), strict=True):
            if array.shape != shape or not np.isfinite(array).all():
                raise ValueError(f"its decoder has an array of shape {array.shape}, expected finite numbers of {shape}")
        chosen = settings_from_json(settings)
        network = make_classifier(chosen, features, len(settings["classes"]), modules)
        load_weights(network, arrays)
        return cls(chosen, network.eval(), errors, useful, normalize, np.array(settings["classes"]), *own)


def make_classifier(chosen: Preset, features: int, classes: int, modules: Modules) -> OrderedClassifier:
    """An untrained network."""
    how = chosen.network
    binarize = Binarize(chosen.width, chosen.beta, how.gradient, signed=how.signed)
    return OrderedClassifier(
        features,
        chosen.width,
        classes,
        chosen.layers or LAYERS,
        lengths=chosen.lengths,
        binarize=binarize,
        corruption=how.corruption,
        dropout=how.dropout,
        spread=how.spread,
        encoder=modules.fresh_encoder(),
    )


def _no_decoder(network: OrderedClassifier) -> tuple[NDArray[np.float64], ...]:
    width, features = network.width, network.features
    return np.zeros(features), np.zeros(width), np.zeros((width, width)), np.zeros((width, features))
