"""The deep coder: an ordered autoencoder trained with nested dropout (section 4 of the paper), as a coder.

The network is `nestcode.nn.OrderedAutoencoder`, its training `nestcode.training`; here they meet the coders' protocol.
"""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from nestcode.coders._network import (
    NetworkRanking,
    NormalizedSource,
    lengths_from_json,
    lengths_to_json,
    useful_lengths,
)
from nestcode.coders._rows import PIECE, Floats, as_floats
from nestcode.coders.base import Coder, error_at, warn_of_useless_bits
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
from nestcode.training.journal import Run
from nestcode.training.loop import train
from nestcode.training.presets import Network, Preset, find_preset

MEASURED = 512  # items that errors are measured on


@dataclass(frozen=True)
class _Fitted:
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
        settings = self._settings_of_run(run)
        training = self._chosen().training
        source = as_source(X)
        if self.metric == "cosine":
            source = NormalizedSource(source)
        width = self.width if training.growth is None else min(training.growth.start, self.width)
        with torch.random.fork_rng():
            torch.manual_seed(training.seed)
            network = self._build(source.features, width)
        train(network, source, training, settings)
        apart, learnt = split_items(len(source), training)
        probe = torch.from_numpy(source.rows((apart if len(apart) else learnt)[:MEASURED]))
        self._fit = self._measured(network, probe)
        return self

    def encode(self, X: ArrayLike) -> Codes:
        """(n, features) -> codes of `width` bits."""
        fit = self._fitted()
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
        return Preset(**{name: own[name] if value is None else value for name, value in given.items()})

    @staticmethod
    def _settings_of_run(run: dict[str, Any]) -> Run:
        unknown = set(run) - {field.name for field in fields(Run)}
        if unknown:
            known = ", ".join(field.name for field in fields(Run))
            raise InvalidInput(f"fit takes {known}, got {', '.join(sorted(unknown))}")
        return Run(**run)

    def _build(self, features: int, width: int) -> OrderedAutoencoder:
        chosen = self._chosen()
        how = asdict(chosen.network)
        binarize = Binarize(width, chosen.beta, how.pop("gradient"), signed=how.pop("signed"))
        how |= {"encoder": deepcopy(self.encoder), "decoder": deepcopy(self.decoder)}
        return OrderedAutoencoder(features, width, chosen.layers, lengths=chosen.lengths, binarize=binarize, **how)

    def _measured(self, network: OrderedAutoencoder, probe: Tensor) -> _Fitted:
        """With the errors of all lengths: the first 64, then every eighth, and straight lines between."""
        measured = np.array(sorted({*range(min(64, network.width) + 1), *range(64, network.width, 8), network.width}))
        errors = errors_by_length(network, probe.to(network.mean.device), measured) * network.features
        known = np.interp(np.arange(self.width + 1), measured, errors)  # and the last one beyond
        if network.width < self.width:
            warn_of_useless_bits(network.width, self.width)
        useful = useful_lengths(known)
        return _Fitted(network, known[useful], useful, self.metric == "cosine")

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
        chosen = self._chosen()
        settings = {
            "width": self.width, "layers": list(chosen.layers), "lengths": lengths_to_json(chosen.lengths),
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
        if errors.shape != (coder.width + 1,) or useful.shape != errors.shape:
            raise ValueError(f"its errors have shape {errors.shape}, expected {(coder.width + 1,)}")
        if not np.isfinite(errors).all() or (useful > np.arange(len(useful))).any() or (useful < 0).any():
            raise ValueError("its errors or useful lengths are out of range")
        network = coder._build(features, blocks[0])
        for units in blocks[1:]:
            network.grow(units)
        try:
            network.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in arrays.items()})
        except RuntimeError as error:  # other names or shapes
            raise ValueError(str(error)) from error
        coder._fit = _Fitted(network.eval(), errors, useful, coder.metric == "cosine")
        return coder
