"""Training of a refiner: the squared error of refined items, at random prefix lengths.

The bits do not change; nested dropout draws how many of them are kept. Each length is weighted by the inverse of the
coder's error there, so that all lengths count alike and an untrained network has a loss of 1.
"""

import hashlib
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nestcode.nn.refine import ImageRefiner, VectorRefiner
from nestcode.training.config import Run, Training
from nestcode.training.loop import minimize
from nestcode.training.objective import Objective
from nestcode.training.runtime.accelerator import Accelerator
from nestcode.training.runtime.sampler import MicroBatch

WEIGHED_ON = 2048  # items that the weights of lengths are estimated on


@dataclass(frozen=True)
class Pairs:
    """Items and their decoded codes at some lengths, scaled to unit variance."""

    lengths: NDArray[np.int64]  # (lengths,)
    coefficients: NDArray[np.float16]  # (lengths, n, directions): decoded items in a projection
    directions: NDArray[np.float32]  # (directions, features)
    items: NDArray[np.float16]  # (n, features), around the mean
    coder: str = ""  # which made the codes


def refine(network: VectorRefiner | ImageRefiner, pairs: Pairs, training: Training, run: Run) -> list[dict[str, Any]]:
    """Train a refiner and return the reports of the run."""
    return minimize(RefinementObjective(network, pairs, training), training, run)


class RefinementObjective(Objective):
    """The weighted squared error of refined items at random lengths."""

    compilable: ClassVar[bool] = False  # each micro-batch is gathered into new tensors

    def __init__(self, network: VectorRefiner | ImageRefiner, pairs: Pairs, training: Training) -> None:
        self.model: VectorRefiner | ImageRefiner = network
        self.pairs, self.examples = pairs, len(pairs.items)
        self._seed, self._batch_size = training.seed, min(training.batch_size, len(pairs.items))

    def identity(self) -> dict[str, Any]:
        """Return the base coder, the lengths, and checksums of the data and of the architecture."""
        items = self.pairs.items[:: max(1, self.examples // 256)]
        return {
            "coder": self.pairs.coder,
            "lengths": self.pairs.lengths.tolist(),
            "data": hashlib.sha256(items.tobytes()).hexdigest()[:16],
            "model": hashlib.sha256(f"{self.model} {self.model.settings()}".encode()).hexdigest()[:16],
        }

    def prepare(self, accelerator: Accelerator, micro_batch_size: int) -> None:  # noqa: ARG002
        """Move the pairs to the device, on a GPU if they take less than a third of its memory."""
        self.device = accelerator.device
        self.model.to(self.device).train()
        size = self.pairs.coefficients.nbytes + self.pairs.items.nbytes
        fits = not accelerator.gpu or size < torch.cuda.mem_get_info(self.device)[0] / 3
        self._home = self.device if fits else torch.device("cpu")
        self._lengths = torch.from_numpy(self.pairs.lengths).to(self._home)
        self._coefficients = torch.from_numpy(self.pairs.coefficients).to(self._home)
        self._items = torch.from_numpy(self.pairs.items).to(self._home)
        self._directions = torch.from_numpy(self.pairs.directions).to(self.device)
        some = torch.arange(min(WEIGHED_ON, self.examples), device=self._home)
        errors = [self._error_of_base(some, place) for place in range(len(self.pairs.lengths))]
        self._weights = 1 / torch.stack(errors).clamp(min=1e-4)

    def _error_of_base(self, examples: Tensor, place: int) -> Tensor:
        decoded, items, _ = self._gather(examples, torch.full_like(examples, place))
        return (decoded - items).square().mean()

    def _gather(self, examples: Tensor, places: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return decoded items, the items and the lengths: examples at places among the lengths."""
        coefficients = self._coefficients[places, examples].to(self.device, non_blocking=True).float()
        items = self._items[examples].to(self.device, non_blocking=True).float()
        return coefficients @ self._directions, items, self._lengths[places].to(self.device)

    def load(self, step: int, micro_batch: MicroBatch) -> None:
        """Draw a length for each example, flip images, and gather the network's input."""
        rng, size = np.random.default_rng([self._seed, step]), len(micro_batch.examples)
        own = slice(micro_batch.index * size, (micro_batch.index + 1) * size)  # of what is drawn for the whole batch
        places = torch.from_numpy(rng.integers(len(self._lengths), size=self._batch_size)[own]).to(self._home)
        flips = rng.random(self._batch_size)[own] < 0.5
        self._decoded, self._target, self._kept = self._gather(
            torch.from_numpy(micro_batch.examples).to(self._home), places
        )
        if isinstance(self.model, ImageRefiner) and self.model.flip:
            flipped = torch.from_numpy(flips).to(self.device)[:, None]
            self._decoded = torch.where(flipped, self.model.flipped(self._decoded), self._decoded)
            self._target = torch.where(flipped, self.model.flipped(self._target), self._target)
        self._weight = self._weights[places.to(self.device)]

    def loss(self) -> Tensor:
        """Return the mean weighted error of the loaded micro-batch."""
        refined = self.model(self._decoded, self._kept)
        loss: Tensor = ((refined.float() - self._target).square().mean(dim=1) * self._weight).mean()
        return loss
