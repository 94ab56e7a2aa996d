"""Training of ordered autoencoders and classifiers: the loss of truncated codes, and the techniques of section 4.

rows ──augment, corrupt──▶ encoder ──▶ units ──truncate──▶ decoder ──▶ reconstruction or cross-entropy loss
├── two views ──▶ contrastive loss (`contrastive.py`)
└── perturbed ──▶ invariance penalty (`regularization.py`)
"""

import hashlib
from collections import defaultdict
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from nestcode.errors import InvalidInput
from nestcode.lengths import Beyond, Lengths
from nestcode.nn.autoencoder import OrderedAutoencoder
from nestcode.nn.binarize import Anchor
from nestcode.nn.network import OrderedNetwork
from nestcode.training.checks import check_data, check_labels, check_model, checksum
from nestcode.training.config import Run, Training
from nestcode.training.contrastive import nested_info_nce
from nestcode.training.data import as_source
from nestcode.training.evaluation import errors_by_length, report_lengths
from nestcode.training.loop import minimize
from nestcode.training.objective import Objective
from nestcode.training.regularization import invariance_penalty
from nestcode.training.runtime.accelerator import Accelerator
from nestcode.training.runtime.loader import RowLoader
from nestcode.training.runtime.sampler import MicroBatch, split_holdout
from nestcode.training.sweep import Sweeper

EVALUATED = 1024  # held-out rows of a report


def train(
    model: OrderedNetwork,
    X: Any,
    training: Training | None = None,
    run: Run | None = None,
    labels: Any = None,
    augment: nn.Module | None = None,
) -> list[dict[str, Any]]:
    """Train a model on data and return the reports of the run.

    >>> from nestcode.data import digits
    >>> _ = torch.manual_seed(0)
    >>> model = OrderedAutoencoder(64, width=16, corruption=0, dropout=0)
    >>> reports = train(model, digits()[0], Training(steps=200, learning_rate=0.01), Run(progress=False))
    >>> reports[-1]["errors"][16] < 0.5 * reports[0]["errors"][16]
    True

    After the run, even a failed one, the model is in evaluation mode with its original lengths and frozen units.

    Args:
        model: the network; its mean and scale are set to the mean and scale of the data first.
        X: an array or memory map (n, features), images (n, …), a torch dataset, a folder of images.
        training: the settings of the run.
        run: checkpoints and logs.
        labels: a class for each item, (n,), for an `OrderedClassifier`.
        augment: a module that changes rows at random, (n, features) -> the same, on the device and before they are
            standardized: `nestcode.nn.RandomViews((3, 32, 32))` crops and flips images, (n, 3, 32, 32). The changed
                rows are also the targets of the reconstruction.

    """
    if not isinstance(model, OrderedNetwork):
        raise InvalidInput(
            f"model must be an OrderedAutoencoder or an OrderedClassifier, got {type(model).__name__}: make one of "
            "your modules, encoder= and decoder="
        )
    training = training or Training()
    return minimize(AutoencoderObjective(model, X, training, labels, augment), training, run or Run())


class AutoencoderObjective(Objective):
    """The loss of an ordered autoencoder or classifier on data, with unit sweeping and growth."""

    def __init__(
        self,
        model: OrderedNetwork,
        X: Any,
        training: Training,
        labels: Any = None,
        augment: nn.Module | None = None,
    ) -> None:
        self.model: OrderedNetwork = model
        self.augment = augment
        self.training, self.source = training, as_source(X)
        check_data(self.source, model, augment)
        self._labels = check_labels(model, labels, len(self.source))
        self.examples = len(split_holdout(len(self.source), training)[1])
        self.lengths, self.discrete = model.lengths, model.binarize is not None
        self._before = _State(model)
        self._anchors: defaultdict[int, Anchor] | None = None  # by micro-batch, within a line search

    def identity(self) -> dict[str, Any]:
        """Return checksums of the data and of the architecture."""
        parts = str(self.model) if self.augment is None else f"{self.model} {self.augment}"
        model = hashlib.sha256(parts.encode()).hexdigest()[:16]
        return {"data": checksum(self.source, self._labels), "model": model}

    def prepare(self, accelerator: Accelerator, micro_batch_size: int) -> None:
        """Standardize the model to the data, and allocate the buffers of a micro-batch."""
        self.accelerator = accelerator
        self.loader = RowLoader(self.source, self.training, accelerator.device, self._labels)
        self.model.to(accelerator.device).train()
        check_model(self.model, self.training, self.loader.rows(self.loader.train[:2]))
        self.model.set_moments(*self.loader.moments())
        self.evaluated, self.sample = self.loader.evaluation_rows(), self.loader.sample()
        self.targets = self.loader.evaluation_labels()
        self.rows = self.sample.new_empty(micro_batch_size, self.model.features)
        self.labels = None if self.targets is None else self.targets.new_empty(micro_batch_size)

    def begin_stage(self) -> None:
        """Set thresholds, and compile the loss of a model of this width."""
        self.model.zero_grad()  # frozen parameters would keep their last gradient
        if self.model.binarize is not None:
            self.model.binarize.deferred = True
            with torch.no_grad():
                self.model.binarize.initialize(self.model.preactivations(self.sample))
        sweep, steps = self.training.sweep, self.training.total_steps(self.examples)
        self.sweeper = None if sweep is None else Sweeper(self.model, sweep, self.sample, steps)
        self._compiled = self.accelerator.compiled(AutoencoderLoss(self.model, self.training, self.augment))

    def begin_search(self) -> None:
        """Set thresholds to exact quantiles, and make bits anew in the next evaluation."""
        self._anchors = defaultdict(Anchor)
        if self.model.binarize is not None:
            with torch.no_grad():
                self.model.binarize.initialize(self.model.preactivations(self.sample))

    def begin_batch(self) -> None:
        """Discard the statistics that thresholds follow."""
        if self.model.binarize is not None:
            self.model.binarize.discard()

    def load(self, step: int, micro_batch: MicroBatch) -> None:  # noqa: ARG002
        """Copy rows and labels to the buffers that a CUDA graph reads."""
        if self.model.binarize is not None and self._anchors is not None:
            self.model.binarize.anchor = self._anchors[micro_batch.index]
        indices = self.loader.train[micro_batch.examples]
        self.rows.copy_(self.loader.rows(indices), non_blocking=True)
        if self.labels is not None:
            self.labels.copy_(self.loader.labels(indices), non_blocking=True)

    def loss(self) -> Tensor:
        """Return the mean loss of the loaded micro-batch."""
        return self._compiled(self.rows, self.labels)

    def after_step(self, step: int) -> bool:
        """Restore frozen units, update thresholds and sweep."""
        if self.model.frozen:
            self.model.restore_frozen()
        if self.model.binarize is not None:
            self.model.binarize.update()
        return self.sweeper is not None and self.sweeper.check(step)

    def regularized_weights(self) -> list[nn.Parameter]:
        """Return the weights of the code's units that are not frozen."""
        return self.model.code_weights()

    def frozen_units(self) -> int:
        """Return how many leading units no longer change."""
        return self.model.frozen

    def errors(self) -> dict[int, float]:
        """Return the error at a few lengths on held-out rows."""
        lengths = report_lengths(self.model.width)
        targets = None if self.targets is None else self.targets[:EVALUATED]
        errors = errors_by_length(self.model, self.evaluated[:EVALUATED], lengths, targets)
        return dict(zip(lengths, map(float, errors), strict=True))

    def grows(self) -> bool:
        """Return whether the last units gained enough for a wider code."""
        growth, width = self.training.growth, self.model.width
        if growth is None or width + growth.step > growth.most:
            return False
        before = max(0, width - growth.step)
        variance, without, now = errors_by_length(self.model, self.evaluated, [0, before, width])
        return growth.pays(variance, without, now, units=width - before)

    def grow(self) -> None:
        """Widen the code."""
        assert self.training.growth is not None
        assert isinstance(self.model, OrderedAutoencoder)  # as `check_model` ensures
        if not isinstance(self.lengths, Lengths):
            raise InvalidInput(f"a code grows along a chain, got {self.lengths}: give lengths from nestcode.lengths")
        width = self.model.width
        self._finalize_thresholds()
        self.model.grow(self.training.growth.step)
        self.model.set_lengths(Beyond(self.lengths, width))

    def finish(self) -> None:
        """Set exact thresholds."""
        self._finalize_thresholds()

    def release(self) -> None:
        """Restore the lengths and the frozen units from before the run, and switch to evaluation mode."""
        self._before.restore()
        super().release()

    def _finalize_thresholds(self) -> None:
        """Set thresholds to exact quantiles of all data, or a large sample of it."""
        if self.model.binarize is not None:
            with torch.no_grad():
                self.model.binarize.finalize(map(self.model.preactivations, self.loader.pieces()))

    def state_dict(self) -> dict[str, Any] | None:
        """Return the state of the sweep."""
        return None if self.sweeper is None else self.sweeper.state_dict()

    def load_state_dict(self, state: dict[str, Any] | None) -> None:
        """Freeze the units that a checkpoint had frozen."""
        if self.sweeper is not None and state is not None:
            self.sweeper.load_state_dict(state)


class _State:
    """The changes of a run to a model beyond its state: lengths, frozen units, when thresholds move."""

    def __init__(self, model: OrderedNetwork) -> None:
        self._model, self._lengths, self._frozen = model, model.lengths, model.frozen
        self._trained = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
        self._thresholds = None if model.binarize is None else (model.binarize.deferred, model.binarize.frozen)

    def restore(self) -> None:
        """Return to that state, in a model that may have grown."""
        model = self._model
        model.set_lengths(self._lengths)
        if model.frozen > self._frozen:
            model.unfreeze(self._frozen)
        for parameter, trained in self._trained:
            parameter.requires_grad_(trained)
        if model.binarize is not None and self._thresholds is not None:
            model.binarize.deferred, model.binarize.frozen = self._thresholds
            model.binarize.anchor = None


class AutoencoderLoss(nn.Module):
    """The loss of a batch, (n, features) -> a scalar: squared error of standardized features, or cross-entropy.

    >>> _ = torch.manual_seed(0)
    >>> from nestcode.training import Invariance
    >>> model = OrderedAutoencoder(64, width=16)
    >>> bool(AutoencoderLoss(model, Training(invariance=Invariance(0.1)))(torch.rand(10, 64)) > 0)
    True
    """

    def __init__(self, model: OrderedNetwork, training: Training, augment: nn.Module | None = None) -> None:
        super().__init__()
        self.model, self.settings, self.augment = model, training, augment
        # Two passes through dropout would differ by its noise: the penalty is on the deterministic encoder.
        self._deterministic = (_in_evaluation_mode(self.model.encoder),)  # a tuple hides it from train()

    def forward(self, X: Tensor, labels: Tensor | None = None) -> Tensor:
        """Decode randomly truncated codes, and compare with the items or their labels."""
        model, settings = self.model, self.settings
        contrastive, invariance = settings.contrastive, settings.invariance
        z = model.standardize(X if self.augment is None else self.augment(X.to(model.mean.dtype)))
        views = z.repeat(2, 1) if contrastive.weight else z
        units = model.units(model.encoder(model.corrupt(views)))
        code, share = model.truncate(units[: len(z)]), settings.reconstruction
        decoded = model.decoder(code if share == 1 else share * code + (1 - share) * code.detach())  # stop-gradient
        loss = model.loss(decoded, z if labels is None else labels)
        if contrastive.weight:
            kept = model.truncate(torch.ones_like(units))
            loss = loss + contrastive.weight * nested_info_nce(units, kept, contrastive.temperature)
        if invariance.weight:
            some = z[: max(1, round(invariance.share * len(z)))]
            loss = loss + invariance.weight * self._invariance(some)
        return loss

    def _invariance(self, z: Tensor) -> Tensor:
        """Return the invariance penalty of rectified units, as in the paper, or of standardized pre-activations.

        A bit does not change when its pre-activation is scaled or shifted. Small weights, or biases that move rectified
        units below 0, satisfy the paper's penalty and leave the bits as they were; the second penalty is immune.
        """
        encoder, model, how = self._deterministic[0], self.model, self.settings.invariance
        if how.units == "rectified" or model.binarize is None:
            weights = None if how.units == "rectified" else model.survival
            return invariance_penalty(lambda y: torch.relu(encoder(y)), z, how.perturbation, weights=weights)
        pre: Tensor = encoder(z)
        scale = pre.float().std(dim=0, correction=0).clamp(min=1e-6)
        return invariance_penalty(
            lambda y: encoder(y) / scale, z, how.perturbation, weights=model.survival, clean=pre / scale
        )


def _in_evaluation_mode(module: nn.Module) -> nn.Module:
    """Return the same module, with the same parameters, in evaluation mode."""
    shared = {id(tensor): tensor for tensor in [*module.parameters(), *module.buffers()]}
    return deepcopy(module, shared).eval()
