"""What the loop reads: rows of the data on the device, which of them are learnt from, and in which order."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from nestcode.errors import InvalidInput
from nestcode.training.config import Training
from nestcode.training.data import Indices, Source, batch_count, batches
from nestcode.training.processes import Processes

MOST_HELD_OUT = 4096
MOST_FOR_MOMENTS = 100_000
PIECE = 4096


def split_items(count: int, training: Training) -> tuple[Indices, Indices]:
    """Which items are held out, and which are learnt from.

    >>> [len(part) for part in split_items(1000, Training(holdout=0.05))]
    [50, 950]
    """
    order = np.random.default_rng([training.seed, 0]).permutation(count)
    apart = min(int(training.holdout * count), MOST_HELD_OUT)
    return np.sort(order[:apart]), np.sort(order[apart:])


class Feed:
    """Rows for one process: `parts` of each batch, of which this one takes its share."""

    def __init__(
        self,
        source: Source,
        training: Training,
        processes: Processes,
        device: torch.device,
        labels: Indices | None = None,
    ) -> None:
        self.source, self.device, self.seed = source, device, training.seed
        self.held_out, self.learnt = split_items(len(source), training)
        self.parts = max(training.parts, processes.count)
        self._mine = range(self.parts * processes.rank // processes.count,
                           self.parts * (processes.rank + 1) // processes.count)  # fmt: skip
        self.batch_size = min(training.batch_size, len(self.learnt))
        if self.batch_size % self.parts or self.parts % processes.count:
            raise InvalidInput(
                f"a batch of {self.batch_size}, of {len(self.learnt)} items to learn from, must divide by its "
                f"{self.parts} parts, and these by the {processes.count} processes: change batch_size or parts"
            )
        self.total = training.total_steps(len(self.learnt))
        self._whole = self._copy_to_gpu()
        self._labels = None if labels is None else torch.from_numpy(labels).to(device)
        some = self.learnt[:: -(-len(self.learnt) // PIECE)]
        self._sampled, self._probed = some, self.held_out if len(self.held_out) else some

    def rows(self, indices: Indices) -> Tensor:
        """Rows of the data, (n, features), on the device."""
        if self._whole is not None:
            return self._whole[self._places(indices)]
        return torch.from_numpy(self.source.rows(indices)).to(self.device, non_blocking=True)

    def labels(self, indices: Indices) -> Tensor:
        """Their labels, (n,), on the device."""
        assert self._labels is not None
        return self._labels[self._places(indices)]

    def probe(self) -> Tensor:
        """Rows to measure with: those held out, or some of the others."""
        return self.rows(self._probed)

    def probe_labels(self) -> Tensor | None:
        """The labels of those, if there are any."""
        return None if self._labels is None else self.labels(self._probed)

    def sample(self) -> Tensor:
        """A few thousand of the rows that are learnt from."""
        return self.rows(self._sampled)

    def pieces(self) -> Iterator[Tensor]:
        """A large part of what is learnt from, some rows at a time."""
        some = self.learnt[:: -(-len(self.learnt) // MOST_FOR_MOMENTS)]
        for first in range(0, len(some), PIECE):
            yield self.rows(some[first : first + PIECE])

    def moments(self) -> tuple[Tensor, Tensor]:
        """The mean and the variance of each feature."""
        shift = self.sample().double().mean(dim=0)  # near the mean, so that nothing cancels
        count, total, squares = 0, torch.zeros_like(shift), torch.zeros_like(shift)
        for piece in self.pieces():
            rows = piece.double() - shift
            total += rows.sum(dim=0)
            squares += rows.square().sum(dim=0)
            count += len(rows)
        mean = total / count
        return mean + shift, (squares / count - mean.square()).clamp(min=0)

    def batches(self, stage: int, step: int) -> Iterator[list[tuple[int, Indices]]]:
        """From a step on: the parts of each batch that are this process's, by number."""
        epoch_steps = batch_count(len(self.learnt), self.batch_size)
        seed = self.seed + 1_000_003 * stage
        while step < self.total:
            epoch, start = divmod(step, epoch_steps)
            parts = [
                batches(len(self.learnt), self.batch_size, epoch, seed, parts=self.parts, part=part, start=start)
                for part in self._mine
            ]
            for pieces in zip(*parts, strict=True):
                if step < self.total:
                    yield [(part, self.learnt[piece]) for part, piece in zip(self._mine, pieces, strict=True)]
                step += 1

    def _places(self, indices: Indices) -> Tensor:
        """Numbers of items on the device; from pinned memory, so that nobody waits."""
        places = torch.from_numpy(indices)
        return places.pin_memory().to(self.device, non_blocking=True) if self.device.type == "cuda" else places

    def _copy_to_gpu(self) -> Tensor | None:
        """All of the data, if it is an array in memory and takes less than a quarter of a GPU's."""
        if self.device.type != "cuda" or not self.source.resident:
            return None
        whole = torch.from_numpy(self.source.whole())
        free = torch.cuda.mem_get_info(self.device)[0]
        return whole.to(self.device) if whole.nbytes < free / 4 else None
