"""A linear autoencoder trained on the exact nested loss: the model both chapters share."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress
from torch import Tensor

from nestcode.lengths import Lengths
from nestcode.nn import expected_loss

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Linear:
    """An encoder and a decoder that are matrices around a mean."""

    mean: Floats  # (features,)
    encoder: Floats  # (width, features)
    decoder: Floats  # (features, width)

    def encode(self, X: Floats) -> Floats:
        """(n, features) -> (n, width)."""
        code: Floats = np.matmul(X - self.mean, self.encoder.T, dtype=np.float32)
        return code

    def decode(self, code: Floats) -> Floats:
        """Any number of leading units, (n, length), to (n, features)."""
        return code @ self.decoder[:, : code.shape[1]].T + self.mean


def train(X: Floats, *, width: int, lengths: Lengths, steps: int, name: str, console: Console) -> Linear:
    """Minimise the expected error over prefixes by L-BFGS, which the exact loss allows: it has no noise."""
    mean = X.mean(axis=0)
    # A linear model's error depends on the data by their covariance alone, so a few rows stand for all.
    data = torch.from_numpy(np.linalg.qr(X - mean, mode="r"))
    generator = torch.Generator().manual_seed(0)
    encoder = torch.randn(width, X.shape[1], generator=generator).mul_(0.01).requires_grad_()
    decoder = encoder.detach().T.contiguous().requires_grad_()
    optimizer = torch.optim.LBFGS(
        [encoder, decoder], max_iter=10, history_size=20, tolerance_change=0, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = expected_loss(data @ encoder.T, decoder, data, lengths)
        loss.backward()
        return loss

    with Progress(console=console, transient=True) as progress:
        for _ in progress.track(range(0, steps, 10), description=f"  {name}"):
            optimizer.step(closure)
    return Linear(mean, encoder.detach().numpy(), decoder.detach().numpy())
