"""Bits of another coder, decoded by a network: what nobody can do worse than that coder, and images do much better.

The bits stay as they are. Errors on items held out say how far the network is trusted at each length.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from nestcode.arrays import PIECE, Floats, as_floats
from nestcode.coders.base import Coder, Projection
from nestcode.coders.deep.network import (
    NormalizedSource,
    check_table,
    load_weights,
    some_lengths,
    useful_lengths,
    weights_of,
)
from nestcode.codes import Codes
from nestcode.errors import InvalidInput
from nestcode.nn.refine import CHANNELS, LAYERS, ImageRefiner, VectorRefiner
from nestcode.storage import Arrays
from nestcode.training.config import Training
from nestcode.training.data import Source
from nestcode.training.feed import split_items
from nestcode.training.journal import Run
from nestcode.training.loop import ONE_AT_A_TIME
from nestcode.training.refinement import Pairs, refine

MEASURED = 512  # items that errors are measured on
MOST_BYTES = 3 << 30  # of what is trained on
MOST = 60_000.0  # times `scale` from the mean: what is farther is trained on as if it were there, as float16 ends
BASE = "base."  # begins the names of the coder's own arrays in a file


@dataclass(frozen=True)
class RefinedBits:
    """What a fit found."""

    base: Coder
    network: VectorRefiner | ImageRefiner
    training: Training
    scale: float  # items are about that far from their mean
    trust: NDArray[np.float64]  # (width + 1,): the share of what the network adds that is added
    errors: NDArray[np.float64]  # of an item, by length
    useful: NDArray[np.int64]  # the length to decode at, of all up to a length
    normalize: bool

    @classmethod
    def fit(
        cls,
        source: Source,
        base: Coder,
        network: VectorRefiner | ImageRefiner,
        training: Training,
        run: Run,
        *,
        normalize: bool,
        lengths: Sequence[int] | None = None,
    ) -> Self:
        """Train the network to decode a fitted coder's bits, at lengths of every octave unless others are given."""
        metric = "cosine" if normalize else "l2"
        if getattr(base, "metric", metric) != metric:
            raise InvalidInput(f"metric must be that of base, {base.metric!r}, got {metric!r}")  # type: ignore[attr-defined]
        if normalize:
            source = NormalizedSource(source)
        apart, learnt = split_items(len(source), training)
        scale = float(np.sqrt(max(base.expected_error(0), 0))) or 1.0
        with ONE_AT_A_TIME:
            refine(network, make_pairs(source, learnt, base, scale, lengths or octaves(base.width)), training, run)
        width = base.width
        untried = cls(
            base, network, training, scale, np.ones(width + 1), np.zeros(width + 1), np.arange(width + 1), normalize
        )
        which = apart if len(apart) else learnt
        return untried._measured(source.rows(which[:: -(-len(which) // MEASURED)]))

    def _measured(self, rows: NDArray[Any]) -> Self:
        """With errors and trust at all lengths: straight lines between those that were measured."""
        true = as_floats(rows).astype(np.float32)
        codes, every = self.base.encode(rows), np.arange(self.width + 1)
        lengths = some_lengths(self.width)
        trust, errors = [], []
        for length in lengths:
            cut = codes.prefix(int(length))
            plain = self.base.decode(cut)
            added, left = self.refined(plain, int(length)) - plain, true - plain
            added, left = added.astype(np.float64), left.astype(np.float64)
            norm = float(np.vdot(added, added))
            share = float(np.clip(np.vdot(added, left) / norm, 0, 1)) if norm > 0 else 0.0
            trust.append(share)
            errors.append(float(np.mean(np.sum((left - share * added) ** 2, axis=1))))
        if not np.isfinite(errors).all():
            raise InvalidInput("data must not be so uneven that squares leave the range: drop or clip what is huge")
        known = np.interp(every, lengths, errors)
        useful = useful_lengths(known)
        found = np.interp(every, lengths, trust)
        return type(self)(
            self.base, self.network, self.training, self.scale, found, known[useful], useful, self.normalize
        )

    @property
    def width(self) -> int:
        """Bits of a code."""
        return len(self.errors) - 1

    @property
    def features(self) -> int:
        """Numbers of an item."""
        return self.base.n_features_in_

    def encode(self, source: Source) -> NDArray[np.uint8]:
        """The packed bits of items."""
        parts = [
            self.base.encode(source.rows(np.arange(first, min(first + PIECE, len(source))))).packed
            for first in range(0, len(source), PIECE)
        ]
        return np.concatenate(parts)

    def decode(self, codes: Codes) -> Floats:
        """What codes decode to."""
        length = int(self.useful[codes.width])
        out = np.empty((len(codes), self.features), dtype=np.float32)
        share = np.float32(self.trust[length])
        for first in range(0, len(codes), PIECE):
            plain = self.base.decode(codes[first : first + PIECE].prefix(length))
            out[first : first + PIECE] = plain + share * (self.refined(plain, length) - plain) if share else plain
        return out

    def refined(self, plain: Floats, length: int) -> Floats:
        """What the network makes of decoded items."""
        mean, scale = projection_of(self.base).mean.astype(np.float32), np.float32(self.scale)
        device = next(self.network.parameters()).device
        with torch.inference_mode():
            x = torch.from_numpy((plain - mean) / scale).to(device)
            made = self.network(x, torch.full((len(x),), length, device=device)).cpu().numpy()
        refined: Floats = made * scale + mean
        return refined

    def to_record(self) -> tuple[dict[str, Any], Arrays]:
        """Settings and arrays for a file."""
        below = self.base.to_record()
        settings = {
            "width": int(self.width), "training": self.training.to_json(), "scale": self.scale,
            "refiner": self.network.made(),
            "base": {"kind": below.kind, "version": below.version, "settings": below.settings},
        }  # fmt: skip
        arrays = {BASE + name: array for name, array in below.arrays.items()}
        tables = {"trust": self.trust, "errors": self.errors, "useful": self.useful}
        return settings, {**arrays, **weights_of(self.network), **tables}

    @classmethod
    def read(
        cls,
        settings: dict[str, Any],
        arrays: Arrays,
        base: Coder,
        network: VectorRefiner | ImageRefiner,
        *,
        normalize: bool,
    ) -> Self:
        """What `to_record` gave."""
        arrays = {name: array for name, array in arrays.items() if not name.startswith(BASE)}
        trust, errors, useful = (arrays.pop(name) for name in ("trust", "errors", "useful"))
        check_table(errors, useful, settings["width"])
        if trust.shape != errors.shape or not ((trust >= 0) & (trust <= 1)).all():
            raise ValueError("its trust in the network is out of range")
        if not 0 < settings["scale"] < np.inf:
            raise ValueError(f"its scale is {settings['scale']}")
        load_weights(network, arrays)
        training = Training.from_json(settings["training"])
        return cls(base, network.eval(), training, settings["scale"], trust, errors, useful, normalize)


def make_pairs(source: Source, which: NDArray[np.int64], base: Coder, scale: float, at: Sequence[int]) -> Pairs:
    """Items and what their codes decode to, at some lengths."""
    projection = projection_of(base)
    mean, directions = projection.mean, projection.directions
    lengths = np.array(at)
    most = MOST_BYTES // (2 * (len(lengths) * len(directions) + source.features))
    which = which[:: -(-len(which) // max(most, 1))]
    numbers = np.empty((len(lengths), len(which), len(directions)), dtype=np.float16)
    items = np.empty((len(which), source.features), dtype=np.float16)
    for first in range(0, len(which), PIECE):
        some = slice(first, first + PIECE)
        rows = source.rows(which[some])
        items[some] = np.clip((as_floats(rows) - mean) / scale, -MOST, MOST)
        codes = base.encode(rows)
        for place, length in enumerate(lengths):
            decoded = base.coefficients(codes.prefix(int(length))) / np.float32(scale)
            numbers[place, some] = np.clip(decoded, -MOST, MOST)
    return Pairs(lengths, numbers, np.asarray(directions, dtype=np.float32), items, repr(base))


def projection_of(base: Coder) -> Projection:
    """Return the projection of a base, all of which have one."""
    projection = base.projection()
    assert projection is not None
    return projection


def octaves(width: int) -> list[int]:
    """Lengths to train at: two of every octave, and the width.

    >>> octaves(40)
    [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 40]
    """
    powers = [1 << i for i in range(int(width).bit_length())]
    return sorted({length for power in powers for length in (power, power * 3 // 2) if length <= width} | {width})


def image_shape(source: Source) -> tuple[int, ...] | None:
    """The shape of an item, if items are images."""
    shape: tuple[int, ...] = getattr(source, "shape", ())
    return shape if len(shape) in (2, 3) else None


def check_refining(training: Training) -> None:
    """Raise if settings ask for what only an autoencoder's training does."""
    if training != training.but(optimizer="adam", penalty=None, invariance=0.0, agreement=0.0, parts=1):
        raise InvalidInput(
            "a network that decodes another coder's bits is trained by Adam without penalties: give layers= for an "
            "autoencoder, or leave optimizer, penalty, invariance, agreement and parts as they are"
        )


def make_refiner(
    features: int, shape: Sequence[int] | None, channels: Sequence[int] | None = None, *, mirrored: bool = False
) -> VectorRefiner | ImageRefiner:
    """An untrained network for images of a shape, or for vectors."""
    if shape is None:
        layers = tuple(channels or LAYERS)
        if len(set(layers)) > 1:
            raise InvalidInput(
                f"channels must all be equal for vectors, as in (1024, 1024), got {layers}: images as rows need shape"
            )
        return VectorRefiner(features, layers[0], len(layers))
    if int(np.prod(shape)) != features:
        raise InvalidInput(f"shape must be that of {features} features, got {tuple(shape)}")
    return ImageRefiner(shape, channels or CHANNELS, mirrored=mirrored)


def check_items(source: Source, features: int, network: torch.nn.Module) -> None:
    """Raise unless items are like those a network was trained on."""
    if source.features != features:
        raise InvalidInput(
            f"data must have the {features} features the coder was fitted on, got {source.features}: "
            "fit a new coder or give the same features"
        )
    seen, known = image_shape(source), network.given if isinstance(network, ImageRefiner) else ()
    if seen is not None and len(seen) == len(known) and seen != known:
        raise InvalidInput(
            f"images must have the shape {known} the coder was fitted on, got {seen}: move the axes, as in "
            "X.transpose(0, 3, 1, 2)"
        )
