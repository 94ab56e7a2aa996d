"""Evaluation mode for a while."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def evaluation_mode(module: nn.Module) -> Iterator[None]:
    """Switch a module to evaluation mode for a block; afterwards each of its parts is in its own mode again.

    >>> dropout = nn.Dropout()
    >>> with evaluation_mode(dropout):
    ...     dropout.training
    False
    >>> dropout.training
    True
    """
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training
