"""Training of implicit codebooks: the squared error of every decoded prefix.

Each step encodes its batch by beam search without gradients, then decodes the codes once with gradients. That pass
decodes every prefix on its way, so nested dropout needs no draws: the loss is its expectation, the error of each length
weighted by the length's probability. With `Uniform()` lengths it is the loss of QINCo, a sum over all stages.
"""

import hashlib
from typing import Any

import torch
from torch import Tensor

from nestcode.arrays import Floats
from nestcode.lengths import Lengths
from nestcode.nn.implicit import ImplicitCodebooks
from nestcode.training.config import Run, Training
from nestcode.training.loop import minimize
from nestcode.training.objective import Objective
from nestcode.training.runtime.accelerator import Accelerator
from nestcode.training.runtime.sampler import MicroBatch

BEAMS, CANDIDATES = 4, 8  # of a training step
EVALUATED = 1024  # held-out rows of a report


def train_implicit(
    codebooks: ImplicitCodebooks,
    rows: Floats,
    held_out: Floats,
    lengths: Lengths,
    training: Training,
    run: Run,
    last: int = 1,
) -> list[dict[str, Any]]:
    """Train implicit codebooks on rows of variance 1, (n, features), and return the reports of the run."""
    return minimize(ImplicitObjective(codebooks, rows, held_out, lengths, training, last), training, run)


class ImplicitObjective(Objective):
    """The expected squared errors of decoded prefixes and of the centroids."""

    def __init__(
        self,
        codebooks: ImplicitCodebooks,
        rows: Floats,
        held_out: Floats,
        lengths: Lengths,
        training: Training,
        last: int,
    ) -> None:
        self.model: ImplicitCodebooks = codebooks
        self.examples, self.lengths, self.training = len(rows), lengths, training
        self._all_rows, self._held_out, self._last = rows, held_out, last

    def identity(self) -> dict[str, Any]:
        """Return the lengths, and checksums of the data and of the architecture."""
        sample = self._all_rows[:: max(1, self.examples // 256)]
        shapes = {name: tuple(weight.shape) for name, weight in self.model.named_parameters()}
        return {
            "lengths": str(self.lengths),
            "data": hashlib.sha256(sample.tobytes()).hexdigest()[:16],
            "model": hashlib.sha256(str(shapes).encode()).hexdigest()[:16],
        }

    def prepare(self, accelerator: Accelerator, micro_batch_size: int) -> None:
        """Move the rows to the device, on a GPU if they take less than a third of its memory."""
        self.device = accelerator.device
        self.model.to(self.device).train()
        rows = torch.from_numpy(self._all_rows)
        fits = not accelerator.gpu or rows.nbytes < torch.cuda.mem_get_info(self.device)[0] / 3
        self._resident = rows.to(self.device) if fits else rows
        self._evaluated = torch.from_numpy(self._held_out[:EVALUATED]).to(self.device)
        self._rows = torch.empty(micro_batch_size, rows.shape[1], device=self.device)  # where a CUDA graph reads
        self._weights = torch.from_numpy(self.lengths.pmf(self.model.stages)).float().to(self.device)

    def load(self, step: int, micro_batch: MicroBatch) -> None:  # noqa: ARG002
        """Copy rows to the buffers that a CUDA graph reads."""
        examples = torch.from_numpy(micro_batch.examples).to(self._resident.device)
        self._rows.copy_(self._resident[examples], non_blocking=True)

    def loss(self) -> Tensor:
        """Return the expected error of the loaded rows plus the error of the centroids."""
        x = self._rows
        codes = self.model.search(x, BEAMS, CANDIDATES, self._last)
        decoded = self.model(codes)
        errors = (x[:, None] - decoded).square().mean(dim=(0, 2))  # by stage
        before = torch.cat([torch.zeros_like(decoded[:, :1]), decoded[:, :-1]], dim=1).detach()
        misses = (x[:, None] - before - self.model.chosen_centroids(codes)).square().mean(dim=(0, 2))
        loss: Tensor = (self._weights * errors).sum() + misses.mean()
        return loss

    @torch.no_grad()
    def errors(self) -> dict[int, float]:
        """Return the error by length on held-out rows, encoded as training does."""
        codes = self.model.search(self._evaluated, BEAMS, CANDIDATES, self._last)
        errors = (self._evaluated[:, None] - self.model(codes)).square().mean(dim=(0, 2)).tolist()
        return {8 * (stage + 1): error for stage, error in enumerate(errors)}
