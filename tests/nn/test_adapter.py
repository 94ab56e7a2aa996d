"""The adapter: the identity before it is fitted, better neighbors in short prefixes than PCA's after it."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from nestcode.data import digits
from nestcode.errors import InvalidInput
from nestcode.lengths import Empirical
from nestcode.nn import NestedAdapter, NestedLoss, PrefixDistillation
from nestcode.nn.adapter import neighbor_batches


def rows() -> Tensor:
    X, _ = digits()
    return torch.from_numpy(np.random.default_rng(0).permutation(X - X.mean(axis=0)).astype(np.float32))


def test_it_is_the_identity_before_it_is_fitted() -> None:
    X = rows()[:9]
    torch.testing.assert_close(NestedAdapter(64, hidden=5)(X), normalize(X, dim=1))


def test_prefixes_imitate_the_neighbors_of_held_out_rows_more_closely_than_pca() -> None:
    X = normalize(rows(), dim=1)
    train, test = X[:1000], X[1000:1300]
    torch.manual_seed(0)
    adapter = NestedAdapter(64).fit(train, steps=25, lr=3e-3)
    directions = torch.linalg.eigh(train.T @ train)[1].flip(1)
    loss = NestedLoss(PrefixDistillation(0.1), Empirical([1] * 4, lengths=[2, 4, 8, 16]), draws=None)
    with torch.no_grad():
        assert loss(adapter(test), test) < loss(test @ directions, test)


def test_a_seed_makes_it_repeatable_from_arrays_and_tensors() -> None:
    adapters = []
    for X in (rows()[:100], rows()[:100].numpy()):
        torch.manual_seed(0)
        adapters.append(NestedAdapter(64, hidden=4).fit(X, steps=2, seed=3))
    for a, b in zip(*(adapter.parameters() for adapter in adapters), strict=True):
        assert torch.equal(a, b)


def test_it_is_trained_in_its_own_dtype(monkeypatch: pytest.MonkeyPatch) -> None:
    # Otherwise PyTorch warns where the processor has no bfloat16, and switches oneDNN off for the rest of the process:
    # later tests would not compute what the processes that they start do.
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", False)
    for dtype in (torch.float64, torch.bfloat16):
        adapter = NestedAdapter(64).to(dtype).fit(rows(), steps=2)
        assert adapter(rows().to(dtype)).dtype == dtype


def test_batches_hold_anchors_and_their_neighbors() -> None:
    X = normalize(rows()[:300], dim=1)
    (batch,) = neighbor_batches(X, 1, torch.Generator().manual_seed(0))
    anchors = torch.randint(300, (32,), generator=torch.Generator().manual_seed(0))
    expected = {int(i) for anchor in anchors for i in (X @ X[anchor]).argsort(descending=True)[:16]}
    assert torch.equal(batch, X[sorted(expected)])


MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "other features": (lambda: NestedAdapter(63).fit(rows(), steps=1), "data must have the 63 features"),
    "few rows": (lambda: NestedAdapter(64).fit(rows()[:9], steps=1), "fit needs at least 32 embeddings, got 9"),
    "no steps": (lambda: NestedAdapter(64).fit(rows(), steps=0), "steps must be an integer of at least 1, got 0"),
    "NaN": (lambda: NestedAdapter(64).fit(rows() * torch.nan, steps=1), "finite"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_named(mistake: str) -> None:
    call, message = MISTAKES[mistake]
    with pytest.raises(InvalidInput, match=re.escape(message)):
        call()
