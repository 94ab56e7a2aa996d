"""The error of a model by length."""

from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nestcode.arrays import check_int
from nestcode.errors import InvalidInput
from nestcode.nn.autoencoder import OrderedAutoencoder
from nestcode.nn.classifier import OrderedClassifier
from nestcode.nn.modes import evaluation_mode


def errors_by_length(
    model: OrderedAutoencoder, X: Tensor, lengths: Iterable[int], labels: Tensor | None = None
) -> NDArray[np.float64]:
    """Return the mean squared error of a feature at each length; length 0 decodes to the mean.

    For a classifier, the error rate: the share of items that are not classified as their label.

    >>> model = OrderedAutoencoder(4, width=2)
    >>> errors_by_length(model, torch.ones(3, 4), [0])
    array([1.])
    """
    lengths = [check_int(length, "a length", least=0) for length in lengths]
    with evaluation_mode(model), torch.inference_mode():
        code = model.encode(X)
        if isinstance(model, OrderedClassifier):
            if labels is None:
                raise InvalidInput("the error rate of a classifier needs labels: give one for each item, as labels=y")
            guesses = [model.decode(code[:, :length]).argmax(dim=1) for length in lengths]
            return np.array([float((guess != labels).double().mean()) for guess in guesses])
        target = X.to(model.mean.dtype)
        return np.array([_error(model, code, target, length) for length in lengths])


def _error(model: OrderedAutoencoder, code: Tensor, target: Tensor, length: int) -> float:
    decoded = model.mean if length == 0 else model.decode(code[:, :length])
    return float((decoded - target).double().square().mean())


def report_lengths(width: int) -> list[int]:
    """Return the lengths of a report: powers of four, and the width.

    >>> report_lengths(100)
    [1, 4, 16, 64, 100]
    """
    return sorted({*(4**power for power in range(12) if 4**power < width), width})
