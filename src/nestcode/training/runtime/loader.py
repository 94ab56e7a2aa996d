"""Rows of the training data on the device, their moments, and the rows a run is evaluated on."""

from collections.abc import Iterator

import torch
from torch import Tensor

from nestcode.training.config import Training
from nestcode.training.data import Indices, Source
from nestcode.training.runtime.sampler import split_holdout

MOST_FOR_MOMENTS = 100_000
PIECE = 4096


class RowLoader:
    """Rows of a source, and their labels, on a device."""

    def __init__(self, source: Source, training: Training, device: torch.device, labels: Indices | None = None) -> None:
        self.source, self.device = source, device
        self._held_out, self.train = split_holdout(len(source), training)
        self._resident = self._copy_to_gpu()
        self._labels = None if labels is None else torch.from_numpy(labels).to(device)
        sample = self.train[:: -(-len(self.train) // PIECE)]
        self._sample, self._evaluated = sample, self._held_out if len(self._held_out) else sample

    def rows(self, indices: Indices) -> Tensor:
        """Return rows on the device, (n, features)."""
        if self._resident is not None:
            return self._resident[self._on_device(indices)]
        return torch.from_numpy(self.source.rows(indices)).to(self.device, non_blocking=True)

    def labels(self, indices: Indices) -> Tensor:
        """Return labels on the device, (n,)."""
        assert self._labels is not None
        return self._labels[self._on_device(indices)]

    def evaluation_rows(self) -> Tensor:
        """Return the rows to evaluate on: the held-out ones, or else a sample of the training rows."""
        return self.rows(self._evaluated)

    def evaluation_labels(self) -> Tensor | None:
        """Return the labels of the evaluation rows, if there are labels."""
        return None if self._labels is None else self.labels(self._evaluated)

    def sample(self) -> Tensor:
        """Return a few thousand training rows."""
        return self.rows(self._sample)

    def pieces(self) -> Iterator[Tensor]:
        """Yield a large sample of the training rows, some at a time."""
        some = self.train[:: -(-len(self.train) // MOST_FOR_MOMENTS)]
        for first in range(0, len(some), PIECE):
            yield self.rows(some[first : first + PIECE])

    def moments(self) -> tuple[Tensor, Tensor]:
        """Return the mean and the variance of each feature, in float64."""
        shift = self.sample().double().mean(dim=0)  # near the mean, so that the variance does not cancel
        count, total, squares = 0, torch.zeros_like(shift), torch.zeros_like(shift)
        for piece in self.pieces():
            rows = piece.double() - shift
            total += rows.sum(dim=0)
            squares += rows.square().sum(dim=0)
            count += len(rows)
        mean = total / count
        return mean + shift, (squares / count - mean.square()).clamp(min=0)

    def _on_device(self, indices: Indices) -> Tensor:
        """Return indices on the device, through pinned memory so that the copy is asynchronous."""
        places = torch.from_numpy(indices)
        return places.pin_memory().to(self.device, non_blocking=True) if self.device.type == "cuda" else places

    def _copy_to_gpu(self) -> Tensor | None:
        """Return all of the data on the GPU, if it is an array in memory and takes less than a quarter of the GPU's."""
        if self.device.type != "cuda" or not self.source.resident:
            return None
        whole = torch.from_numpy(self.source.whole())
        free = torch.cuda.mem_get_info(self.device)[0]
        return whole.to(self.device) if whole.nbytes < free / 4 else None
