"""The deep coder: an ordered autoencoder trained with nested dropout (section 4 of the paper), as a coder.

The network is `nestcode.nn.OrderedAutoencoder`, its training `nestcode.training`; here they meet the coders' protocol.
"""

import warnings
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from nestcode.coders._network import (
    NetworkRanking,
    NormalizedSource,
    check_table,
    lengths_from_json,
    lengths_to_json,
    useful_lengths,
)
from nestcode.coders._rows import PIECE, Floats, as_floats, check_rows, squares
from nestcode.coders.base import Coder, error_at
from nestcode.codes import CORES, Codes
from nestcode.errors import InvalidInput, whole_number
from nestcode.lengths import Lengths
from nestcode.nn.autoencoder import OrderedAutoencoder
from nestcode.nn.binarize import Binarize
from nestcode.nn.nesting import Nesting
from nestcode.storage import Record
from nestcode.training.config import Training
from nestcode.training.data import Source, as_source
from nestcode.training.errors_by_length import errors_by_length
from nestcode.training.feed import split_items
from nestcode.training.journal import run_of
from nestcode.training.loop import ONE_AT_A_TIME, train
from nestcode.training.presets import Network, Preset, find_preset

MEASURED = 512  # items that errors are measured on


@dataclass(frozen=True)
class _Fitted:
    settings: Preset  # settings that were changed since wait for the next fit
    network: OrderedAutoencoder
    errors: NDArray[np.float64]  # of an item, by length
    useful: NDArray[np.int64]  # the length to decode at, of all up to a length
    normalize: bool


class DeepCoder(Coder):
    """A network trained with nested dropout (needs PyTorch).

    >>> from nestcode.data import digits
    >>> X, _ = digits()
    >>> coder = DeepCoder(width=32, training=Training(steps=300, learning_rate=0.01)).fit(X, progress=False)
    >>> codes = coder.encode(X)
    >>> errors = [float(np.mean((X - coder.decode(codes.prefix(k))) ** 2)) for k in (0, 8, 32)]
    >>> errors[0] > errors[1] > errors[2]
    True

    Training can be stopped and resumed: `fit(X, checkpoint="run.ckpt", resume=True)` goes on where it was, bit for bit.

    Args:
        width: bits of a code.
        layers: widths of the hidden layers between the features and the code; the decoder mirrors them.
        lengths: how many leading bits are kept in training, or another `nestcode.nn.Nesting`.
        beta: how often a bit is 1.
        encoder: any module from (n, features) to (n, width), in place of `layers`.
        decoder: any module from (n, width), with 0 for dropped bits, to (n, features).
        preset: "paper-retrieval" or "paper-compression": the paper's networks; other arguments replace parts of them.
        network: how the network is made, beside its sizes.
        training: how it is trained.
        metric: "l2", or "cosine" to scale every item to length 1 first.

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
    ) -> None:
        chosen = find_preset(preset)
        if metric not in ("l2", "cosine"):
            raise InvalidInput(f'metric must be "l2" or "cosine", got {metric!r}')
        self.width = chosen.width if width is None else width
        whole_number(self.width, "width", least=1)
        if layers is not None and not isinstance(layers, Sequence):
            raise InvalidInput(f"layers must be widths of hidden layers, as in (256, 128), got {layers!r}")
        for name, value, kind in (("network", network, Network), ("training", training, Training)):
            if not isinstance(value, kind | None):
                raise InvalidInput(f"{name} must be {kind.__name__}(…), got {value!r}")
        self.layers, self.lengths, self.beta = layers, lengths, beta
        self.encoder, self.decoder = encoder, decoder
        self.preset, self.network, self.training = preset, network, training
        self.metric = metric
        self._fit: _Fitted | None = None

    def fit(self, X: Any, y: object = None, **run: Any) -> Self:  # noqa: ARG002
        """Train on data: an array or memory map, images, a torch dataset, an `ImageFolder`.

        Args:
            X: the data.
            y: ignored.
            run: where the run leaves its traces: checkpoint, resume, log, tensorboard, progress (see `training.Run`).

        """
        how = run_of(run)
        settings = self._chosen()
        training = settings.training
        source = as_source(X)
        if self.metric == "cosine":
            source = NormalizedSource(source)
        with ONE_AT_A_TIME, torch.random.fork_rng():
            torch.manual_seed(training.seed)
            network = self._build(settings, source.features, settings.width)
        train(network, source, training, how)
        apart, learnt = split_items(len(source), training)
        probe = torch.from_numpy(source.rows((apart if len(apart) else learnt)[:MEASURED]))
        self._fit = self._measured(settings, network, probe)
        return self

    def encode(self, X: ArrayLike) -> Codes:
        """(n, features) -> codes of `width` bits."""
        fit = self._fitted()
        if isinstance(X, np.ndarray) and X.shape == (0, fit.network.features):
            return Codes._wrap(np.zeros((0, -(-self._bits(fit) // 8)), dtype=np.uint8), self._bits(fit))
        network, source = fit.network, self._source(X)
        packed = np.zeros((len(source), -(-self._bits(fit) // 8)), dtype=np.uint8)
        done = 0
        with torch.inference_mode():
            for rows in self._pieces(source):
                bits = (network.encode(rows) > 0).cpu().numpy()
                made = np.packbits(bits, axis=1)
                packed[done : done + len(made), : made.shape[1]] = made
                done += len(made)
        return Codes._wrap(packed, self._bits(fit))

    def decode(self, codes: Codes) -> Floats:
        """Codes of any length from 0 to `width` -> (n, features); length 0 gives the mean.

        Where the last bits would make the error larger on average, they are left out: it never rises with length.
        """
        fit = self._fitted()
        self._check_length(codes, self._bits(fit))
        network = fit.network
        length = int(fit.useful[codes.width])
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

    def expected_error(self, length: int) -> float:
        """The mean squared error of a feature at `length` bits, as measured on items held out from training."""
        fit = self._fitted()
        return error_at(length, fit.errors, fit.network.features)

    @property
    def n_features_in_(self) -> int:
        """How many features the coder was fitted on."""
        return self._fitted().network.features

    @property
    def network_(self) -> OrderedAutoencoder:
        """The trained network."""
        return self._fitted().network

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

    def _build(self, chosen: Preset, features: int, width: int) -> OrderedAutoencoder:
        if chosen.training.growth is not None:
            width = chosen.training.growth.start
        how = asdict(chosen.network)
        binarize = Binarize(width, chosen.beta, how.pop("gradient"), signed=how.pop("signed"))
        how |= {"encoder": deepcopy(self.encoder), "decoder": deepcopy(self.decoder)}
        return OrderedAutoencoder(features, width, chosen.layers, lengths=chosen.lengths, binarize=binarize, **how)

    def _measured(self, settings: Preset, network: OrderedAutoencoder, probe: Tensor) -> _Fitted:
        """With the errors of all lengths: the first 64, then every eighth, and straight lines between."""
        measured = np.array(sorted({*range(min(64, network.width) + 1), *range(64, network.width, 8), network.width}))
        errors = errors_by_length(network, probe.to(network.mean.device), measured) * network.features
        known = np.interp(np.arange(settings.width + 1), measured, errors)  # and the last one beyond
        if network.width < settings.width:
            warnings.warn(
                f"growth stopped at {network.width} of {settings.width} bits, the others are always 0: train longer, "
                "or lower the least gain",
                stacklevel=3,
            )
        useful = np.minimum(useful_lengths(known), network.width)
        return _Fitted(settings, network, known[useful], useful, self.metric == "cosine")

    @staticmethod
    def _bits(fit: _Fitted) -> int:
        return len(fit.useful) - 1

    def _source(self, X: ArrayLike) -> Source:
        """Data to encode, checked."""
        features = self.n_features_in_
        source = as_source(X)
        if source.features != features:
            raise InvalidInput(
                f"data must have the {features} features the coder was fitted on, got {source.features}: "
                "fit a new coder or give the same features"
            )
        return source

    def _pieces(self, source: Source) -> Iterator[Tensor]:
        """Rows as the network takes them."""
        fit = self._fitted()
        for first in range(0, len(source), PIECE):
            rows = source.rows(np.arange(first, min(first + PIECE, len(source))))
            floats = as_floats(rows, normalize=fit.normalize).astype(np.float32, copy=False)
            yield torch.from_numpy(floats).to(fit.network.mean.device)

    def asymmetric_distances(self, queries: ArrayLike, codes: Codes) -> Floats:
        """Squared distances from raw queries to decoded codes, (queries, items); by angle with metric "cosine"."""
        network, normalize = self._fitted().network, self._fitted().normalize
        rows = as_floats(check_rows(queries, network.features), normalize=normalize).astype(np.float32)
        decoded = self.decode(codes)
        own, norms = squares(rows)[:, None], squares(decoded)
        distances = np.maximum(own + norms - 2.0 * (rows @ decoded.T), 0).astype(np.float32)
        return self._by_angle(queries, codes, distances) if normalize else distances

    def _coefficients(self, codes: Codes, threads: int = CORES) -> Floats:  # noqa: ARG002
        return self.decode(codes)

    def _ranking(self, width: int) -> NetworkRanking:
        return NetworkRanking(self, self.n_features_in_, width)

    def _fitted(self) -> _Fitted:
        if self._fit is None:
            raise self._not_fitted()
        return self._fit

    def _to_record(self) -> Record:
        fit = self._fitted()
        chosen = fit.settings
        settings = {
            "width": chosen.width, "layers": list(chosen.layers), "lengths": lengths_to_json(chosen.lengths),
            "beta": chosen.beta, "preset": self.preset, "network": asdict(chosen.network),
            "training": chosen.training.to_json(), "metric": "cosine" if fit.normalize else "l2",
            "features": fit.network.features, "blocks": fit.network.blocks(),
            "modules": self.encoder is not None,
        }  # fmt: skip
        arrays = {name: tensor.cpu().numpy() for name, tensor in fit.network.state_dict().items()}
        return Record("DeepCoder", self.VERSION, settings, {**arrays, "errors": fit.errors, "useful": fit.useful})

    @classmethod
    def _read(cls, record: Record, encoder: nn.Module | None = None, decoder: nn.Module | None = None) -> Self:
        settings, arrays = dict(record.settings), dict(record.arrays)
        features, blocks = settings.pop("features"), settings.pop("blocks")
        del settings["modules"]
        settings["lengths"] = lengths_from_json(settings["lengths"])
        settings["network"] = Network(**settings["network"])
        settings["training"] = Training.from_json(settings["training"])
        coder = cls(**settings, encoder=encoder, decoder=decoder)
        errors, useful = arrays.pop("errors"), arrays.pop("useful")
        check_table(errors, useful, coder.width)
        chosen = coder._chosen()
        network = coder._build(replace(chosen, training=chosen.training.but(growth=None)), features, blocks[0])
        for units in blocks[1:]:
            network.grow(units)
        try:
            network.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in arrays.items()})
        except RuntimeError as error:  # other names or shapes
            raise ValueError(str(error)) from error
        coder._fit = _Fitted(chosen, network.eval(), errors, useful, coder.metric == "cosine")
        return coder
