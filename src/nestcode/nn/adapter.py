"""A small network on frozen embeddings that orders their dimensions: every prefix is an embedding.

    frozen embeddings ──rotation, plus a correction by one hidden layer──▶ ordered embeddings ──truncate──▶ any length

It is distilled from the embeddings, without labels or their model: at every length, items should have the neighbors
that they have at full length.
"""

from collections.abc import Iterator
from functools import partial
from math import cos, pi
from typing import Self

import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.nn import functional

from nestcode.arrays import as_float64, check_int, check_rows
from nestcode.codes import MAX_WIDTH
from nestcode.errors import InvalidInput
from nestcode.lengths import Lengths, LogUniform, Mixture, Uniform
from nestcode.nn.contrastive import PrefixDistillation, Temperature
from nestcode.nn.dropout import check_tensor
from nestcode.nn.losses import NestedLoss

BATCH = 512
NEIGHBORS = 16  # of each anchor of a batch: random rows alone are all far from each other
DRAWS = 4  # lengths of each step


class NestedAdapter(nn.Module):
    """An adapter from frozen embeddings to embeddings that may be truncated: (n, features) -> (n, features).

    >>> from nestcode.data import digits
    >>> X = torch.from_numpy(digits()[0])
    >>> adapter = NestedAdapter(64).fit(X, steps=20)
    >>> adapter(X)[:, :8].shape                                   # compare prefixes by cosine
    torch.Size([1797, 8])

    Before `fit` it is the identity. `fit` starts from the principal directions of the data, so that the first step
    truncates as PCA does, and the correction from 0.

    Args:
        features: of an embedding.
        hidden: units of the correction's hidden layer; twice the features by default.

    """

    def __init__(self, features: int, hidden: int | None = None) -> None:
        super().__init__()
        features = check_int(features, "features", least=1, most=MAX_WIDTH)
        hidden = 2 * features if hidden is None else check_int(hidden, "hidden", least=1, most=MAX_WIDTH)
        self.rotation = nn.Linear(features, features, bias=False)
        self.correction = nn.Sequential(nn.Linear(features, hidden), nn.GELU(), nn.Linear(hidden, features))
        with torch.no_grad():
            self.rotation.weight.copy_(torch.eye(features))
            for parameter in self.correction[2].parameters():
                parameter.zero_()

    def forward(self, x: Tensor) -> Tensor:
        """Return ordered embeddings, (n, features) -> (n, features)."""
        check_tensor(x, "embeddings")
        x = functional.normalize(x, dim=-1)
        out: Tensor = self.rotation(x) + self.correction(x * x.shape[-1] ** 0.5)  # features of unit variance
        return out

    def fit(
        self,
        X: ArrayLike | Tensor,
        *,
        steps: int = 3000,
        lengths: Lengths | None = None,
        temperature: float = 0.05,
        lr: float = 5e-4,
        seed: int = 0,
    ) -> Self:
        """Train on embeddings, (n, features), on the device of the adapter.

        Args:
            X: the frozen embeddings; they are compared by cosine.
            steps: of the optimizer, each with 512 items; they take minutes on a CPU, seconds on a GPU.
            lengths: the distribution of the kept length; by default half log-uniform and half uniform.
            temperature: of the neighbors at full length, in cosine: the lower, the more only the nearest count.
            lr: the highest learning rate.
            seed: of the batches and lengths.

        """
        device, steps = self.rotation.weight.device, check_int(steps, "steps", least=1)
        rows = torch.from_numpy(as_float64(check_rows(X, self.rotation.in_features), normalize=True)).float().to(device)
        if len(rows) < 2 * NEIGHBORS:
            raise InvalidInput(f"fit needs at least {2 * NEIGHBORS} embeddings, got {len(rows)}")
        with torch.no_grad():  # not centered: the cosine is not either
            self.rotation.weight.copy_(torch.linalg.eigh(rows.T @ rows)[1].flip(1).T)
        rows = rows.to(self.rotation.weight.dtype)
        lengths = Mixture([LogUniform(), Uniform()]) if lengths is None else lengths
        # Similarities of short prefixes spread more: their temperatures are learned.
        own = Temperature({1 << power: temperature for power in range(rows.shape[1].bit_length())}).to(device)
        loss = NestedLoss(PrefixDistillation(own, temperature), lengths, together=True, draws=DRAWS)
        optimizer = torch.optim.AdamW([*self.parameters(), *own.parameters()], lr, weight_decay=0.0)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, partial(warm_cosine, steps=steps))
        draws = torch.Generator(device).manual_seed(seed)
        was = self.training
        self.train()
        for batch in neighbor_batches(rows, steps, torch.Generator().manual_seed(seed)):
            optimizer.zero_grad()
            loss(self(batch), batch, generator=draws).backward()
            optimizer.step()
            schedule.step()
        return self.train(was)


def warm_cosine(step: int, steps: int) -> float:
    """Return the share of the highest learning rate: linear in the first tenth of the steps, then a cosine to 0.

    >>> [round(warm_cosine(step, 20), 2) for step in (0, 1, 10, 20)]
    [0.5, 0.99, 0.5, 0.0]
    """
    return min(1.0, 10 * (step + 1) / steps) * (1 + cos(pi * step / steps)) / 2


def neighbor_batches(rows: Tensor, steps: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Yield batches of random anchors, each with its nearest rows by inner product, (at most 512, features).

    >>> batch, = neighbor_batches(torch.eye(100), steps=1, generator=torch.Generator().manual_seed(0))
    >>> batch.shape[1]
    100
    """
    count = min(NEIGHBORS, len(rows))
    for _ in range(steps):
        anchors = torch.randint(len(rows), (BATCH // NEIGHBORS,), generator=generator).to(rows.device)
        yield rows[(rows[anchors] @ rows.T).topk(count).indices.unique()]
