"""Additive codebooks for given codes, by which searches estimate distances if a network decodes."""

import numpy as np
import torch
from torch import Tensor

from nestcode.arrays import Doubles
from nestcode.coders.codebooks import ENTRIES

SWEEPS = 3


def fit_additive(codes: Tensor, rows: Tensor, survival: Doubles, sweeps: int = SWEEPS) -> tuple[Tensor, Tensor]:
    """Return codebooks whose summed entries approximate rows at every prefix length, and the counts of entries.

    They minimize the expected squared error of a random prefix by coordinate descent: the least-squares entries of one
    stage, given the other stages. (n, stages), (n, features) -> (stages, 256, features), (stages, 256).

    Args:
        codes: of the rows, one integer below 256 per stage.
        rows: to approximate.
        survival: P(length ≥ stage), (stages,), which weights what a stage adds.
        sweeps: over all stages; the first one is residual quantization with given codes.

    """
    chosen, weights = codes.long().T, np.asarray(survival).tolist()
    codebooks = rows.new_zeros(len(chosen), ENTRIES, rows.shape[1])
    counts = torch.stack([entries.bincount(minlength=ENTRIES) for entries in chosen])
    for _ in range(sweeps):
        earlier = torch.zeros_like(rows)  # the sum of the entries before a stage
        later = torch.zeros_like(rows)  # that of the entries after it, by their weights
        for stage, entries in enumerate(chosen):
            later += weights[stage] * codebooks[stage, entries]
        for stage, entries in enumerate(chosen):
            later -= weights[stage] * codebooks[stage, entries]
            sums = torch.zeros_like(codebooks[stage]).index_add_(0, entries, rows - earlier - later / weights[stage])
            codebooks[stage] = sums / counts[stage].clamp(min=1)[:, None]
            earlier += codebooks[stage, entries]
    return codebooks, counts
