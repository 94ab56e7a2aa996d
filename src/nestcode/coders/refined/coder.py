"""The refined coder: the bits of a linear, residual or adaptive coder, decoded by a network."""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, Self, Unpack

from nestcode.coders.adaptive.coder import AdaptiveCoder
from nestcode.coders.auto import least_distortion
from nestcode.coders.base import BaseLayout
from nestcode.coders.linear.coder import LinearCoder
from nestcode.coders.network import (
    NetworkCoder,
    check_adam,
    check_instance,
    check_record_sizes,
    check_sizes,
    fitted_copy,
    rows_or_source,
    training_rows,
)
from nestcode.coders.refined.model import BASE, RefinedModel
from nestcode.coders.refined.network import MLP, UNet, image_shape, network_for, network_from_json
from nestcode.coders.residual.coder import ResidualCoder
from nestcode.errors import InvalidInput
from nestcode.nn.refine import ImageRefiner
from nestcode.storage import Record
from nestcode.training.config import Run, RunOptions, Training
from nestcode.training.data import Source
from nestcode.training.runtime.randomness import seeded

Base = LinearCoder | ResidualCoder | AdaptiveCoder
BASES: dict[str, type[Base]] = {kind.__name__: kind for kind in (LinearCoder, ResidualCoder, AdaptiveCoder)}


class RefinedCoder(NetworkCoder[RefinedModel]):
    """The bits of another coder, decoded by a network trained at every length (needs PyTorch).

    >>> from nestcode.data import digits
    >>> X, _ = digits()
    >>> coder = RefinedCoder(LinearCoder(16), MLP(units=64), training=Training(steps=60)).fit(X, progress=False)
    >>> codes = coder.encode(X)
    >>> codes == coder.base_.encode(X)
    True
    >>> coder.expected_error(16) < coder.base_.expected_error(16)
    True

    The coder uses the network only at lengths where it lowers the error on held-out items, so it is never worse than
    its base there. Training can be interrupted: `fit(X, checkpoint="run.ckpt", resume=True)` continues it, bit for bit.

    Args:
        base: the coder that makes the bits. `fit` fits it on the training items, unless it is fitted already. Of
            several coders, such as (AdaptiveCoder(256), ResidualCoder(256)), `fit` chooses the one with the least error
            on held-out rows.
        network: `MLP(…)`, or `UNet(…)` for images; by default the one that suits the data.
        trained_at: the prefix lengths to train at; by default two of every octave.
        training: steps, batch size, learning rate and other settings; by default training takes minutes on a CPU.

    """

    def __init__(
        self,
        base: Base | Sequence[Base],
        network: MLP | UNet | None = None,
        trained_at: Sequence[int] | None = None,
        training: Training | None = None,
    ) -> None:
        self.base, self.network, self.trained_at, self.training = base, network, trained_at, training
        bases = self._bases()
        if not bases or not all(isinstance(each, tuple(BASES.values())) for each in bases):
            raise InvalidInput(f"base must be one of {', '.join(BASES)}, or several of them, got {base!r}")
        if len({(each.width, each.metric) for each in bases}) > 1:
            raise InvalidInput(f"the coders of base must agree in width and metric, got {base!r}")
        check_instance(network, (MLP, UNet), "network")
        check_instance(training, Training, "training")
        check_sizes(trained_at, "trained_at")
        if trained_at is not None and (not trained_at or max(trained_at) > self.width):
            raise InvalidInput(f"trained_at must be from 1 to the width {self.width}, got {list(trained_at)}")

    def _bases(self) -> Sequence[Base]:
        return self.base if isinstance(self.base, list | tuple) else [self.base]  # type: ignore[list-item]

    @property
    def width(self) -> int:  # type: ignore[override]
        """Bits of a code: the width of the base coder."""
        return self._bases()[0].width

    @property
    def metric(self) -> str:
        """The metric of the base."""
        return self._bases()[0].metric

    def fit(self, X: Any, y: object = None, **run: Unpack[RunOptions]) -> Self:  # noqa: ARG002
        """Train on data: an array or memory map, images, a torch dataset, an `ImageFolder`.

        Args:
            X: the data.
            y: ignored, for scikit-learn.
            run: checkpoints, logs and progress, see `nestcode.training.Run`.

        """
        how, source = Run.of(run), rows_or_source(X)
        network = self.network or network_for(source)
        training = self.training or network.TRAINING
        check_adam(training, "a refined coder")
        with seeded(training.seed):
            module = network.build(source.features, image_shape(source))
        base = self._fitted_base(source, training)
        self._set_model(RefinedModel.fit(source, base, module, training, how, trained_at=self.trained_at))
        self._store_columns(X)
        return self

    def _fitted_base(self, source: Source, training: Training) -> Base:
        """Return a copy of the base, fitted; the best of several."""
        bases = self._bases()
        if len(bases) == 1:
            return fitted_copy(bases[0], source, training)
        rows = training_rows(source, training)
        return deepcopy(bases[least_distortion(rows, bases)]).fit(rows)

    @property
    def base_(self) -> Base:
        """The fitted coder whose bits the network decodes."""
        base: Base = self._fitted().base  # type: ignore[assignment]
        return base

    def _check_items(self, source: Source) -> None:
        super()._check_items(source)
        network, seen = self._fitted().network, image_shape(source)
        known = network.item_shape if isinstance(network, ImageRefiner) else ()
        if seen is not None and len(seen) == len(known) and seen != known:
            raise InvalidInput(
                f"images must have the shape {known} the coder was fitted on, got {seen}: move the axes, as in "
                "X.transpose(0, 3, 1, 2)"
            )

    def layout(self, length: int) -> BaseLayout:  # noqa: ARG002
        """Return the base, whose layout estimates distances; only this coder's `decode` has the exact ones."""
        return BaseLayout(self._fitted().base)

    @classmethod
    def _read(cls, record: Record) -> Self:
        check_record_sizes(record)
        settings = record.settings
        written = settings["base"]
        arrays = {name.removeprefix(BASE): array for name, array in record.arrays.items() if name.startswith(BASE)}
        below = Record(written["kind"], written["version"], written["settings"], arrays)
        base = BASES[written["kind"]].from_record(below, "its base")
        network = network_from_json(settings["refiner"])
        model = RefinedModel.read(settings, record.arrays, base, network)
        if settings["metric"] != base.metric_:
            raise ValueError(f"its metric is {settings['metric']}, that of its base {base.metric_}")
        coder = cls(base, network, settings.get("lengths"), model.training)
        coder._set_model(model, settings["preset"], record.kind)
        return coder
