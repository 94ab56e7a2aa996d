"""Seeded use of PyTorch's global random generator."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

RNG_LOCK = threading.RLock()  # the global generator belongs to all threads


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the global generator for a block and restore its state afterwards.

    >>> before = torch.get_rng_state()
    >>> with seeded(0):
    ...     first = torch.rand(2)
    >>> with seeded(0):
    ...     bool((torch.rand(2) == first).all())
    True
    >>> bool((torch.get_rng_state() == before).all())
    True
    """
    with RNG_LOCK, torch.random.fork_rng():
        torch.manual_seed(seed)
        yield
