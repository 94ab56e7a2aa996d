"""Which examples make up each batch: the held-out split, the order of each epoch, micro-batches and processes."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from nestcode.errors import InvalidInput
from nestcode.training.config import Training
from nestcode.training.data import Indices, batch_count, batches
from nestcode.training.runtime.distributed import ProcessGroup

MOST_HELD_OUT = 4096


def split_holdout(count: int, training: Training) -> tuple[Indices, Indices]:
    """Return the indices of the held-out items, and of the training items.

    >>> [len(part) for part in split_holdout(1000, Training(holdout=0.05))]
    [50, 950]
    """
    order = np.random.default_rng([training.seed, 0]).permutation(count)
    held_out = min(int(training.holdout * count), MOST_HELD_OUT)
    return np.sort(order[:held_out]), np.sort(order[held_out:])


@dataclass(frozen=True)
class MicroBatch:
    """A part of a batch whose gradient is computed at once."""

    index: int  # within the batch
    examples: Indices


class BatchSampler:
    """The batches of a run, split into micro-batches of each process.

    >>> sampler = BatchSampler(100, Training(batch_size=10, micro_batches=2, steps=3), ProcessGroup())
    >>> [[len(part.examples) for part in batch] for batch in sampler.batches(stage=0, step=0)]
    [[5, 5], [5, 5], [5, 5]]
    """

    def __init__(self, examples: int, training: Training, group: ProcessGroup) -> None:
        self._count, self._seed = examples, training.seed
        self.micro_batches = max(training.micro_batches, group.size)
        self._own = range(self.micro_batches * group.rank // group.size,
                          self.micro_batches * (group.rank + 1) // group.size)  # fmt: skip
        self.batch_size = min(training.batch_size, examples)
        if self.batch_size % self.micro_batches or self.micro_batches % group.size:
            raise InvalidInput(
                f"a batch of {self.batch_size}, of {examples} training items, must divide by its {self.micro_batches} "
                f"micro-batches, and these by the {group.size} processes: change batch_size or micro_batches"
            )
        self.micro_batch_size = self.batch_size // self.micro_batches
        self.total = training.total_steps(examples)

    def batches(self, stage: int, step: int) -> Iterator[list[MicroBatch]]:
        """Yield this process's micro-batches of each batch, from a step on; stages have orders of their own."""
        epoch_steps = batch_count(self._count, self.batch_size)
        seed = self._seed + 1_000_003 * stage
        while step < self.total:
            epoch, start = divmod(step, epoch_steps)
            parts = [
                batches(self._count, self.batch_size, epoch, seed, parts=self.micro_batches, part=index, start=start)
                for index in self._own
            ]
            for pieces in zip(*parts, strict=True):
                if step < self.total:
                    yield [MicroBatch(index, piece) for index, piece in zip(self._own, pieces, strict=True)]
                step += 1
