"""ImplicitCoder: residual quantization whose codebooks are functions of the decoded prefix.

Each byte of a code chooses an entry of a codebook, which a network computes for the item from the decoded earlier bytes
(QINCo: Huijben et al. 2024; QINCo2: Vallaeys et al. 2025). Written from the papers.
"""

from typing import Any, ClassVar, Self, Unpack

from nestcode.arrays import check_int
from nestcode.coders.base import BaseLayout, check_beams
from nestcode.coders.codebooks import ENTRIES
from nestcode.coders.implicit.model import ADDITIVE, ImplicitModel
from nestcode.coders.network import (
    NetworkCoder,
    check_adam,
    check_instance,
    check_record_sizes,
    fitted_copy,
    rows_or_source,
)
from nestcode.coders.residual.coder import ResidualCoder
from nestcode.errors import InvalidInput
from nestcode.lengths import Lengths
from nestcode.nn.implicit import LAYERS, UNITS
from nestcode.storage import Record
from nestcode.training.config import Run, RunOptions, Training


class ImplicitCoder(NetworkCoder[ImplicitModel]):
    """Residual quantization by codebooks that a network adapts to each item; for vectors, on a GPU (needs PyTorch).

    >>> from nestcode.data import digits
    >>> X, _ = digits()
    >>> training = Training(steps=40, batch_size=64, learning_rate=3e-3)
    >>> coder = ImplicitCoder(ResidualCoder(16), units=32, layers=1, training=training).fit(X, progress=False)
    >>> coder.encode(X[:3]).width
    16
    >>> coder.expected_error(16) < coder.expected_error(8) < coder.expected_error(0)
    True

    Training starts from the codebooks of a `ResidualCoder`, and can be interrupted: `fit(X, checkpoint="run.ckpt",
    resume=True)` continues it, bit for bit. An `Index` estimates distances by additive codebooks, fitted to the same
    codes, and reranks by the network's decoding.

    Args:
        base: the coder whose codebooks training starts from, with the width and the metric. A fitted coder is used
            unchanged, an unfitted coder is fitted on the training items.
        units: of the network of each byte.
        layers: residual blocks of the network of each byte.
        beams: the number of partial encodings that beam search keeps for each item; more beams give better codes and
            take longer.
        preselected: entries that the network is evaluated for, for each beam: those of the nearest centroids.
        lengths: the distribution of the number of bytes that are kept, by which training weights errors; by default
            `LogUniform()`. `Uniform()` gives the loss of QINCo.
        training: steps, batch size, learning rate and so on.

    """

    TRAINING: ClassVar[Training] = Training(steps=2000, batch_size=256, learning_rate=2e-3)  # minutes on a GPU

    def __init__(
        self,
        base: ResidualCoder,
        units: int = UNITS,
        layers: int = LAYERS,
        beams: int = 4,
        preselected: int = 8,
        lengths: Lengths | None = None,
        training: Training | None = None,
    ) -> None:
        if not isinstance(base, ResidualCoder):
            raise InvalidInput(f"base must be ResidualCoder(…), whose codebooks training starts from, got {base!r}")
        check_int(units, "units", least=1)
        check_int(layers, "layers", least=1)
        check_beams(beams, "4 is good, 16 better")
        if check_int(preselected, "preselected", least=1) > ENTRIES:
            raise InvalidInput(f"preselected must be at most the {ENTRIES} entries of a codebook, got {preselected}")
        check_instance(lengths, Lengths, "lengths")
        check_instance(training, Training, "training")
        self.base, self.units, self.layers, self.beams, self.preselected = base, units, layers, beams, preselected
        self.lengths, self.training = lengths, training

    @property
    def width(self) -> int:  # type: ignore[override]
        """Bits of a code: the width of the base coder."""
        return self.base.width

    @property
    def metric(self) -> str:
        """The metric of the base."""
        return self.base.metric

    def fit(self, X: Any, y: object = None, **run: Unpack[RunOptions]) -> Self:  # noqa: ARG002
        """Train on data: an array or memory map, a torch dataset.

        Args:
            X: the data.
            y: ignored, for scikit-learn.
            run: checkpoints, logs and progress, see `nestcode.training.Run`.

        """
        how, source, training = Run.of(run), rows_or_source(X), self.training or self.TRAINING
        check_adam(training, "an implicit coder")
        base = fitted_copy(self.base, source, training)
        network = {"units": self.units, "layers": self.layers}
        search = {"beams": int(self.beams), "preselected": int(self.preselected)}
        self._set_model(ImplicitModel.fit(source, base, network, search, self.lengths, training, how))
        self._store_columns(X)
        return self

    @property
    def additive_(self) -> ResidualCoder:
        """The coder that approximately decodes the same codes by additive codebooks."""
        return self._fitted().additive

    def layout(self, length: int) -> BaseLayout:  # noqa: ARG002
        """Return the additive codebooks, which estimate distances; only this coder's `decode` has the exact ones."""
        return BaseLayout(self._fitted().additive)

    @classmethod
    def _read(cls, record: Record) -> Self:
        check_record_sizes(record)
        settings = record.settings
        written = settings["additive"]
        arrays = {
            name.removeprefix(ADDITIVE): array for name, array in record.arrays.items() if name.startswith(ADDITIVE)
        }
        below = Record(written["kind"], written["version"], written["settings"], arrays)
        additive = ResidualCoder.from_record(below, "its additive codebooks")
        if settings["metric"] != additive.metric_:
            raise ValueError(f"its metric is {settings['metric']}, that of its codebooks {additive.metric_}")
        model = ImplicitModel.read(settings, record.arrays, additive)
        coder = cls(
            ResidualCoder(**written["settings"]),  # not fitted: the codebooks that training started from are not kept
            **settings["network"],
            beams=settings["beams"],
            preselected=settings["candidates"],
            lengths=model.lengths,
            training=model.training,
        )
        coder._set_model(model, settings["preset"], record.kind)
        return coder
