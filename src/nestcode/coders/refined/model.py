"""The fitted refined coder: a base coder, a network, and the shrinkage of its correction at each length.

    bits ──base──▶ x̂ ──network(x̂, length)──▶ x̂ + shrinkage · correction

The bits stay as they are; the network is trained by nested dropout over their prefixes. On held-out items the
shrinkage of its correction is fitted at each length, between 0 and 1: there the result is never worse than the base.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from nestcode.arrays import PIECE, Floats, as_floats
from nestcode.coders.base import Coder, Projection
from nestcode.coders.network import (
    EVALUATED,
    NormalizedSource,
    best_lengths,
    check_errors,
    evaluated_lengths,
    load_network,
    piece_size,
    weights_of,
)
from nestcode.coders.refined.network import MLP, UNet, network_to_json
from nestcode.codes import Codes
from nestcode.errors import InvalidInput
from nestcode.nn.refine import ImageRefiner, VectorRefiner
from nestcode.storage import Arrays
from nestcode.training.config import Run, Training
from nestcode.training.data import Source
from nestcode.training.refinement import Pairs, refine
from nestcode.training.runtime.sampler import split_holdout

MOST_BYTES = 3 << 30  # of training pairs in memory
LARGEST = 60_000.0  # in units of `scale`: values beyond are clipped for training, as float16 ends there
BASE = "base."  # prefix of the base's arrays in a file


@dataclass(frozen=True)
class RefinedModel:
    """A base coder and the network that refines what it decodes."""

    base: Coder
    network: VectorRefiner | ImageRefiner
    training: Training
    scale: float  # root mean square distance of a feature from its mean: the unit of the network's inputs
    shrinkage: NDArray[np.float64]  # (width + 1,): the share of the network's correction that is added
    errors: NDArray[np.float64]  # (width + 1,): squared error of an item by length
    decode_at: NDArray[np.int64]  # (width + 1,): the length that codes of a length are decoded at
    normalize: bool
    trained_at: tuple[int, ...] | None = None  # prefix lengths, where the caller chose them

    @classmethod
    def fit(
        cls,
        source: Source,
        base: Coder,
        network: VectorRefiner | ImageRefiner,
        training: Training,
        run: Run,
        *,
        trained_at: Sequence[int] | None = None,
    ) -> Self:
        """Train the network to decode a fitted coder's bits, then fit the shrinkage on held-out items."""
        normalize = base.metric_ == "cosine"
        if normalize:
            source = NormalizedSource(source)
        held_out, train = split_holdout(len(source), training)
        scale = float(np.sqrt(max(base.expected_error(0), 0))) or 1.0
        refine(network, make_pairs(source, train, base, scale, trained_at or octaves(base.width_)), training, run)
        every = np.arange(base.width_ + 1)
        model = cls(
            base, network, training, scale, np.ones(len(every)), np.zeros(len(every)), every, normalize,
            None if trained_at is None else tuple(trained_at),
        )  # fmt: skip
        items = held_out if len(held_out) else train
        return model._evaluated(source.rows(items[:: -(-len(items) // EVALUATED)]))

    def _evaluated(self, rows: NDArray[Any]) -> Self:
        """Return the model with the least-squares shrinkage and the error at each length, interpolated linearly."""
        target = as_floats(rows).astype(np.float32)
        codes, every = self.base.encode(rows), np.arange(self.width + 1)
        lengths = evaluated_lengths(self.width)
        shrinkage, errors = [], []
        for length in lengths:
            plain = self.base.decode(codes.prefix(int(length)))
            correction = (self.refined(plain, int(length)) - plain).astype(np.float64)
            residual = (target - plain).astype(np.float64)
            norm = float(np.vdot(correction, correction))
            share = float(np.clip(np.vdot(correction, residual) / norm, 0, 1)) if norm > 0 else 0.0
            shrinkage.append(share)
            errors.append(float(np.mean(np.sum((residual - share * correction) ** 2, axis=1))))
        if not np.isfinite(errors).all():
            raise InvalidInput("squared errors must be finite, got an overflow: drop or clip outliers in the data")
        by_length = np.interp(every, lengths, errors)
        decode_at = best_lengths(by_length)
        fitted = np.interp(every, lengths, shrinkage)
        return replace(self, shrinkage=fitted, errors=by_length[decode_at], decode_at=decode_at)

    @property
    def width(self) -> int:
        """Bits of a code."""
        return len(self.errors) - 1

    @property
    def features(self) -> int:
        """Features of an item."""
        return self.base.n_features_in_

    def encode(self, source: Source) -> NDArray[np.uint8]:
        """Return the packed bits of items, (n, bytes)."""
        parts = [
            self.base.encode(source.rows(np.arange(first, min(first + PIECE, len(source))))).packed
            for first in range(0, len(source), PIECE)
        ]
        return np.concatenate(parts)

    def decode(self, codes: Codes) -> Floats:
        """Return the items that codes of any length decode to, (n, features)."""
        length = int(self.decode_at[codes.width])
        out = np.empty((len(codes), self.features), dtype=np.float32)
        share = np.float32(self.shrinkage[length])
        piece = piece_size(self.network, self.features)
        for first in range(0, len(codes), piece):
            plain = self.base.decode(codes[first : first + piece].prefix(length))
            out[first : first + piece] = plain + share * (self.refined(plain, length) - plain) if share else plain
        return out

    def refined(self, plain: Floats, length: int) -> Floats:
        """Return the network's output for decoded items, (n, features)."""
        mean, scale = projection_of(self.base).mean.astype(np.float32), np.float32(self.scale)
        device = next(self.network.parameters()).device
        with torch.inference_mode():
            x = torch.from_numpy((plain - mean) / scale).to(device)
            output = self.network(x, torch.full((len(x),), length, device=device)).cpu().numpy()
        refined: Floats = output * scale + mean
        return refined

    def to_record(self) -> tuple[dict[str, Any], Arrays]:
        """Return the settings and arrays of a file."""
        below = self.base.to_record()
        settings = {
            "width": int(self.width), "training": self.training.to_json(), "scale": self.scale,
            "refiner": network_to_json(self.network),
            "base": {"kind": below.kind, "version": below.version, "settings": below.settings},
        }  # fmt: skip
        if self.trained_at is not None:
            settings["lengths"] = [int(length) for length in self.trained_at]
        arrays = {BASE + name: array for name, array in below.arrays.items()}
        tables = {"trust": self.shrinkage, "errors": self.errors, "useful": self.decode_at}
        return settings, {**arrays, **weights_of(self.network), **tables}

    @classmethod
    def read(cls, settings: dict[str, Any], arrays: Arrays, base: Coder, network: MLP | UNet) -> Self:
        """Return the model that `to_record` described."""
        arrays = {name: array for name, array in arrays.items() if not name.startswith(BASE)}
        shrinkage, errors, decode_at = (arrays.pop(name) for name in ("trust", "errors", "useful"))
        check_errors(errors, decode_at, settings["width"])
        if shrinkage.shape != errors.shape or not ((shrinkage >= 0) & (shrinkage <= 1)).all():
            raise ValueError("the shrinkage of its network is out of range")
        if not 0 < settings["scale"] < np.inf:
            raise ValueError(f"its scale is {settings['scale']}")
        module = load_network(lambda: network.build(base.n_features_in_), arrays)
        training, lengths = Training.from_json(settings["training"]), settings.get("lengths")
        return cls(
            base, module, training, settings["scale"], shrinkage, errors, decode_at,
            base.metric_ == "cosine", None if lengths is None else tuple(lengths),
        )  # fmt: skip


def make_pairs(source: Source, items: NDArray[np.int64], base: Coder, scale: float, lengths: Sequence[int]) -> Pairs:
    """Return the training pairs: items, and what their codes decode to at some lengths, as float16."""
    projection = projection_of(base)
    mean, directions = projection.mean, projection.directions
    at = np.array(lengths)
    most = MOST_BYTES // (2 * (len(at) * len(directions) + source.features))
    items = items[:: -(-len(items) // max(most, 1))]
    coefficients = np.empty((len(at), len(items), len(directions)), dtype=np.float16)
    targets = np.empty((len(items), source.features), dtype=np.float16)
    for first in range(0, len(items), PIECE):
        piece = slice(first, first + PIECE)
        rows = source.rows(items[piece])
        targets[piece] = np.clip((as_floats(rows) - mean) / scale, -LARGEST, LARGEST)
        codes = base.encode(rows)
        for place, length in enumerate(at):
            decoded = base.coefficients(codes.prefix(int(length))) / np.float32(scale)
            coefficients[place, piece] = np.clip(decoded, -LARGEST, LARGEST)
    return Pairs(at, coefficients, np.asarray(directions, dtype=np.float32), targets, repr(base))


def projection_of(base: Coder) -> Projection:
    """Return the projection of a base, all of which have one."""
    projection = base.projection()
    assert projection is not None
    return projection


def octaves(width: int) -> list[int]:
    """Return the default lengths to train at: two of every octave, and the width.

    >>> octaves(40)
    [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 40]
    """
    powers = [1 << i for i in range(int(width).bit_length())]
    return sorted({length for power in powers for length in (power, power * 3 // 2) if length <= width} | {width})
