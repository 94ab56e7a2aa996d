"""The error of a model by length."""

from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nestcode.arrays import check_int
from nestcode.errors import InvalidInput
from nestcode.nn.modes import evaluation_mode
from nestcode.nn.network import OrderedNetwork


def errors_by_length(
    model: OrderedNetwork, X: Tensor, lengths: Iterable[int], labels: Tensor | None = None
) -> NDArray[np.float64]:
    """Return the mean squared error of a feature at each length; length 0 decodes to the mean.

    For a classifier, the error rate: the share of items that are not classified as their label.

    >>> from nestcode.nn import OrderedAutoencoder
    >>> model = OrderedAutoencoder(4, width=2)
    >>> errors_by_length(model, torch.ones(3, 4), [0])
    array([1.])
    """
    lengths = [check_int(length, "a length", least=0) for length in lengths]
    target = X.to(model.mean.dtype) if model.classes is None else labels
    if target is None:
        raise InvalidInput("the error rate of a classifier needs labels: give one for each item, as labels=y")
    with evaluation_mode(model), torch.inference_mode():
        code = model.encode(X)
        return np.array([float(model.error(code[:, :length], target)) for length in lengths])


def report_lengths(width: int) -> list[int]:
    """Return the lengths of a report: powers of four, and the width.

    >>> report_lengths(100)
    [1, 4, 16, 64, 100]
    """
    return sorted({*(4**power for power in range(12) if 4**power < width), width})
