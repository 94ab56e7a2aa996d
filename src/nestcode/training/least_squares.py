"""Refit of a linear decoder on fixed codes, by the normal equations of the expected loss over lengths.

With units x_k, S_k = P(length ≥ k) and γ_k the decoder's columns, E|y − Σ_{k ≤ length} γ_k x_k|² is least where

    Σ_l S_max(k,l) E[x_k x_l] γ_l = S_k E[x_k y]        for all k,

the bias being the column of a unit that is always 1 and always kept. One linear system gives the best columns for the
whole distribution of lengths. Not here: the training of the codes.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nestcode.errors import InvalidInput
from nestcode.lengths import Lengths
from nestcode.nn.autoencoder import OrderedAutoencoder
from nestcode.nn.modes import evaluation_mode
from nestcode.nn.sampling import length_table
from nestcode.training.data import as_source

PIECE = 4096  # rows


def refit(model: OrderedAutoencoder, X: Any, lengths: Lengths | None = None) -> None:
    """Replace a linear decoder, in place, by the decoder with the least expected squared error over lengths.

    >>> from nestcode.data import digits
    >>> from nestcode.lengths import Uniform
    >>> from nestcode.training import errors_by_length
    >>> _ = torch.manual_seed(0)
    >>> X = digits()[0]
    >>> model = OrderedAutoencoder(64, width=16, lengths=Uniform(), tied=True).eval()      # untrained
    >>> before = errors_by_length(model, torch.from_numpy(X), range(1, 17)).mean()
    >>> refit(model, X)
    >>> bool(errors_by_length(model, torch.from_numpy(X), range(1, 17)).mean() < 0.5 * before)
    True

    Codes do not change. Tied weights are untied: the decoder gets its own. A unit that is always 0, or never kept, gets
    a column of zeros.

    Args:
        model: with a decoder without hidden layers.
        X: training items, anything that `train` takes.
        lengths: the distribution of the kept length; the model's by default.

    """
    lengths = model.nested.lengths if lengths is None else lengths  # type: ignore[assignment]
    if not isinstance(lengths, Lengths):
        raise InvalidInput(f"lengths must be a distribution from nestcode.lengths, got {lengths!r}: give lengths=")
    source, device = as_source(X), model.mean.device
    pieces = (np.arange(first, min(first + PIECE, len(source))) for first in range(0, len(source), PIECE))
    refit_on(model, (torch.from_numpy(source.rows(piece)).to(device) for piece in pieces), lengths)


def refit_on(model: OrderedAutoencoder, pieces: Iterable[Tensor], lengths: Lengths) -> None:
    """Refit on the rows of all pieces, (n, features) each."""
    units, features = model.width + 1, model.features
    products = torch.zeros(units, units + features, dtype=torch.float64, device=model.mean.device)
    with torch.no_grad(), evaluation_mode(model):
        for rows in pieces:
            code = torch.nn.functional.pad(model.encode(rows).double(), (1, 0), value=1.0)
            products += code.T @ torch.cat([code, model.standardize(rows).double()], dim=1)
    survival = length_table("survival", lengths, model.width, products.device, torch.float64)
    columns = least_expected_loss(products[:, :units], products[:, units:], survival)
    model.set_linear_decoder(columns[1:].T, columns[0])


def least_expected_loss(gram: Tensor, cross: Tensor, survival: Tensor) -> Tensor:
    """Return the columns of least expected loss, (1 + width, features); the first is the bias.

    >>> x, y = torch.tensor([[1.0, 1.0], [1.0, 2.0]]), torch.tensor([[3.0], [5.0]])   # y = 1 + 2 x
    >>> least_expected_loss(x.T @ x, x.T @ y, survival=torch.ones(1))
    tensor([[1.0000],
            [2.0000]])

    Where units are linearly dependent it is the solution of least norm, for units scaled to mean square 1.

    Args:
        gram: Σ x xᵀ over items, (1 + width, 1 + width); x_0 = 1.
        cross: Σ x yᵀ, (1 + width, features).
        survival: S_k = P(length ≥ k), (width,).

    """
    kept = torch.nn.functional.pad(survival, (1, 0), value=1.0)
    root = (kept * gram.diagonal()).sqrt()
    scale = torch.where(root > 0, 1 / root, 0.0)
    # Scaled to a diagonal of 1: survivals of many orders of magnitude would otherwise ruin the condition number.
    both = torch.minimum(kept[:, None], kept) * gram * scale[:, None] * scale
    values, vectors = torch.linalg.eigh(both)
    small = values <= len(values) * torch.finfo(values.dtype).eps * values[-1]
    inverse = torch.where(small, 0.0, 1 / values)
    right = vectors.T @ ((kept * scale)[:, None] * cross)
    columns: Tensor = scale[:, None] * (vectors @ (inverse[:, None] * right))
    return columns
