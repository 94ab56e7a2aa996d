"""The fitted implicit coder: a network for encoding and decoding, and additive codebooks of the same bits.

    x ──project──▶ coefficients ──beam search──▶ bytes ──network──▶ coefficients ──▶ x̂
                                                   └──sum of additive codebooks──▶ estimated distances

A byte whose bits are not all known decodes to the mean of its subtree: the centroids are the leaves of a tree, in the
order that the residual coder gave them.
"""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from nestcode.arrays import PIECE, Bytes, Floats, center, multiply, squared_norms
from nestcode.coders.base import Projection
from nestcode.coders.codebooks import ENTRIES, truncate_codebook
from nestcode.coders.implicit.additive import fit_additive
from nestcode.coders.network import EVALUATED, VALUES, best_lengths, check_errors, load_network, weights_of
from nestcode.coders.residual.coder import ResidualCoder
from nestcode.codes import Codes
from nestcode.errors import InvalidInput
from nestcode.lengths import Lengths, LogUniform, Uniform
from nestcode.nn.implicit import ImplicitCodebooks
from nestcode.nn.serialization import lengths_from_json, lengths_to_json
from nestcode.storage import Arrays
from nestcode.training.config import Run, Training
from nestcode.training.data import Source
from nestcode.training.implicit import train_implicit
from nestcode.training.runtime.randomness import seeded
from nestcode.training.runtime.sampler import split_holdout

MOST_BYTES = 3 << 30  # of training rows in memory
GPU_VALUES = 1 << 27  # of the widest layer of a beam search on a GPU: launches take longer than small pieces
TABLE_ROWS = 128 * ENTRIES  # that the additive codebooks are fitted on
ADDITIVE = "additive."  # prefix of the additive codebooks' arrays in a file


@dataclass(frozen=True)
class ImplicitModel:
    """Implicit codebooks in the projection of a residual coder, and additive ones of the same codes."""

    additive: ResidualCoder
    network: ImplicitCodebooks
    training: Training
    lengths: Lengths | None  # None: the default
    beams: int
    preselected: int
    scale: float  # root mean square of a coefficient: the unit of the network's inputs
    errors: NDArray[np.float64]  # (width + 1,): squared error of an item by length
    decode_at: NDArray[np.int64]  # (width + 1,): the length that codes of a length are decoded at

    @classmethod
    def fit(
        cls,
        source: Source,
        base: ResidualCoder,
        network: dict[str, int],
        search: dict[str, int],
        lengths: Lengths | None,
        training: Training,
        run: Run,
    ) -> Self:
        """Train implicit codebooks that start as those of a fitted coder, then fit additive ones to their codes."""
        held_out, train = split_holdout(len(source), training)
        width, projection = base.width_, base.projection()
        train = train[:: -(-len(train) * len(projection.directions) * 4 // MOST_BYTES)]
        rows = _coefficients(source, train, base)
        tested = _coefficients(source, held_out, base) if len(held_out) else rows
        scale = float(np.sqrt(np.mean(np.square(rows, dtype=np.float64)))) or 1.0
        rows /= np.float32(scale)
        with seeded(training.seed):
            module = ImplicitCodebooks(torch.from_numpy(base.codebooks_ / np.float32(scale)), **network)
        train_implicit(
            module, rows, tested / np.float32(scale), lengths or LogUniform(), training, run, _last_step(width)
        )
        zeros, every = np.zeros(width + 1), np.arange(width + 1)
        model = cls(base, module, training, lengths, **search, scale=scale, errors=zeros, decode_at=every)
        some = rows[:: -(-len(rows) // TABLE_ROWS)] * np.float32(scale)
        codes, targets = (torch.from_numpy(array).to(model._device) for array in (model._search(some), some))
        codebooks, counts = (
            part.cpu().numpy() for part in fit_additive(codes, targets, Uniform().survival(module.stages))
        )
        model = replace(model, additive=base.with_codebooks(codebooks, counts, zeros))
        return model._evaluated(source, held_out if len(held_out) else train)

    def _evaluated(self, source: Source, items: NDArray[np.int64]) -> Self:
        """Return the model with the error at each length, of its own decoding and of the additive codebooks."""
        items = items[:: -(-len(items) // EVALUATED)]
        rows = center(source.rows(items), self._projection.mean, normalize=self.normalize)
        target = rows @ self._projection.directions.T
        outside = max(float((squared_norms(rows) - squared_norms(target)).mean()), 0.0)
        packed = self._search(target)
        codes, every = Codes.unchecked(packed, self.width), range(self.width + 1)
        sums = (self.additive.coefficients(codes.prefix(length)) for length in every)
        additive = np.array([squared_norms(target - each).mean() for each in sums]) + outside
        own = self._measure_errors(target, packed) + outside
        if not np.isfinite(own).all():
            raise InvalidInput("squared errors must be finite, got an overflow: drop or clip outliers in the data")
        decode_at = best_lengths(own)
        tables = self.additive.with_codebooks(self.additive.codebooks_, self.additive.counts_, additive)
        return replace(self, additive=tables, errors=own[decode_at], decode_at=decode_at)

    def _measure_errors(self, target: Floats, packed: Bytes) -> NDArray[np.float64]:
        """Return the squared error of coefficients at each length, (width + 1,)."""
        with torch.inference_mode():
            prefixes = self.network(torch.from_numpy(packed).to(self._device)).cpu().numpy() * np.float32(self.scale)
        errors, decoded = np.zeros(self.width + 1), np.zeros_like(target)
        errors[0] = squared_norms(target).mean()
        for stage in range(self.network.stages):
            for length in range(8 * stage + 1, min(8 * stage + 8, self.width)):
                part = self._truncated(stage, length % 8)[packed[:, stage]]
                errors[length] = squared_norms(target - decoded - part).mean()
            decoded = prefixes[:, stage]
            errors[min(8 * stage + 8, self.width)] = squared_norms(target - decoded).mean()
        return errors

    @property
    def width(self) -> int:
        """Bits of a code."""
        return len(self.errors) - 1

    @property
    def features(self) -> int:
        """Features of an item."""
        return self.additive.n_features_in_

    @property
    def normalize(self) -> bool:
        """Whether items are L2-normalized first."""
        return self.additive.metric_ == "cosine"

    @property
    def _projection(self) -> Projection:
        return self.additive.projection()

    def encode(self, source: Source) -> Bytes:
        """Return the packed bits of items, (n, bytes)."""
        parts = [
            self._search(_coefficients(source, np.arange(first, min(first + PIECE, len(source))), self.additive))
            for first in range(0, len(source), PIECE)
        ]
        return np.concatenate(parts)

    def decode(self, codes: Codes) -> Floats:
        """Return the items that codes of any length decode to, (n, features)."""
        coefficients = self._coefficients(codes.prefix(int(self.decode_at[codes.width])))
        out = multiply(coefficients, self._projection.directions)
        out += self._projection.mean.astype(np.float32)
        return out

    def _search(self, coefficients: Floats) -> Bytes:
        """Return the codes of coefficients by beam search, (n, directions) -> (n, bytes)."""
        codes = np.empty((len(coefficients), self.network.stages), dtype=np.uint8)
        device, widest = self._device, max(self.preselected * max(self.network.up.shape[2:]), coefficients.shape[1])
        values = VALUES if device.type == "cpu" else GPU_VALUES
        piece = max(values // (self.beams * widest), 1)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):  # as it was trained
            for first in range(0, len(coefficients), piece):
                x = torch.from_numpy(coefficients[first : first + piece] / np.float32(self.scale)).to(device)
                found = self.network.search(x, self.beams, self.preselected, _last_step(self.width))
                codes[first : first + piece] = found.cpu().numpy()
        return codes

    def _coefficients(self, codes: Codes) -> Floats:
        """Return the coefficients that codes decode to at exactly their length, (n, directions)."""
        whole, bits = divmod(codes.width, 8) if codes.width < self.width else (self.network.stages, 0)
        out = np.empty((len(codes), len(self._projection.directions)), dtype=np.float32)
        piece = VALUES // max(out.shape[1], *self.network.up.shape[2:])
        with torch.inference_mode():
            for first in range(0, len(codes), piece):
                known = torch.from_numpy(codes.packed[first : first + piece, :whole].copy()).to(self._device)
                out[first : first + piece] = self.network.decode(known).cpu().numpy() * np.float32(self.scale)
        if bits:
            out += self._truncated(whole, bits)[codes.packed[:, whole]]
        return out

    def _truncated(self, stage: int, bits: int) -> Floats:
        """Return the centroids of a stage, (256, directions), when only the first bits of its byte are known."""
        with torch.inference_mode():
            centroids = (self.network.scale[stage] * self.network.centroids[stage]).cpu().numpy()
        counts = self.additive.counts_[stage]
        return truncate_codebook(centroids * np.float32(self.scale), counts, bits)

    @property
    def _device(self) -> torch.device:
        return self.network.scale.device

    def to_record(self) -> tuple[dict[str, Any], Arrays]:
        """Return the settings and arrays of a file."""
        below = self.additive.to_record()
        settings = {
            "width": int(self.width), "training": self.training.to_json(), "scale": self.scale,
            "beams": int(self.beams), "candidates": int(self.preselected), "network": self.network.settings(),
            "additive": {"kind": below.kind, "version": below.version, "settings": below.settings},
        }  # fmt: skip
        if self.lengths is not None:
            settings["lengths"] = lengths_to_json(self.lengths)
        arrays = {ADDITIVE + name: array for name, array in below.arrays.items()}
        return settings, {
            **arrays,
            **weights_of(self.network),
            "errors": self.errors,
            "decode_at": self.decode_at,
        }

    @classmethod
    def read(cls, settings: dict[str, Any], arrays: Arrays, additive: ResidualCoder) -> Self:
        """Return the model that `to_record` described."""
        arrays = {name: array for name, array in arrays.items() if not name.startswith(ADDITIVE)}
        errors, decode_at = arrays.pop("errors"), arrays.pop("decode_at")
        check_errors(errors, decode_at, settings["width"])
        if settings["width"] != additive.width_:
            raise ValueError(f"its width is {settings['width']}, that of its additive codebooks {additive.width_}")
        if not 0 < settings["scale"] < np.inf:
            raise ValueError(f"its scale is {settings['scale']}")
        shape = additive.codebooks_.shape
        module = load_network(lambda: ImplicitCodebooks(torch.ones(shape), **settings["network"]), arrays)
        training, search = Training.from_json(settings["training"]), (settings["beams"], settings["candidates"])
        lengths = lengths_from_json(settings.get("lengths"))  # earlier files have none
        return cls(additive, module, training, lengths, *search, settings["scale"], errors, decode_at)


def _coefficients(source: Source, items: NDArray[np.int64], base: ResidualCoder) -> Floats:
    """Return items in the projection of a base, (n, directions)."""
    projection, normalize = base.projection(), base.metric_ == "cosine"
    out = np.empty((len(items), len(projection.directions)), dtype=np.float32)
    for first in range(0, len(items), PIECE):
        rows = center(source.rows(items[first : first + PIECE]), projection.mean, normalize=normalize)
        out[first : first + PIECE] = multiply(rows, projection.directions.T)
    return out


def _last_step(width: int) -> int:
    """Return what entries of the last byte divide by, of which fewer bits are known where 8 does not divide the width.

    >>> [_last_step(width) for width in (4, 8, 31)]
    [16, 1, 2]
    """
    return 1 << (-width % 8)
