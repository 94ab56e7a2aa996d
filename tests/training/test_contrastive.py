"""The contrastive loss against a plain twin, and what training with it does."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from nestcode.data import digits
from nestcode.errors import InvalidInput
from nestcode.nn import Binarize, OrderedAutoencoder, keep_prefix
from nestcode.training import Contrastive, Run, Training, train
from nestcode.training.autoencoder import AutoencoderLoss
from nestcode.training.contrastive import nested_info_nce

X = digits()[0]


def signs(n: int, width: int, seed: int = 0) -> Tensor:
    return torch.randn(n, width, generator=torch.Generator().manual_seed(seed)).sign()


def plain(units: Tensor, kept: list[int], temperature: float) -> float:
    """One view after the other, by Hamming distances of prefixes."""
    n, losses = len(units), []
    for i, length in enumerate(kept):
        alike = [float(1 - 2 * (units[i, :length] != units[j, :length]).float().mean()) for j in range(n)]
        likely = {j: math.exp(alike[j] / temperature) for j in range(n) if j != i}
        losses.append(-math.log(likely[(i + n // 2) % n] / sum(likely.values())))
    return float(np.mean(losses))


def test_it_equals_the_plain_twin() -> None:
    units, kept = signs(12, 10), [1, 10, 3, 7, 2, 5, 9, 4, 8, 6, 10, 1]
    mask = keep_prefix(torch.ones(12, 10), kept)
    assert float(nested_info_nce(units, mask, 0.3)) == pytest.approx(plain(units, kept, 0.3), rel=1e-5)


def test_units_beyond_the_prefix_do_not_count() -> None:
    units, mask = signs(12, 10), keep_prefix(torch.ones(12, 10), 4)
    changed = torch.cat([units[:, :4], signs(12, 6, seed=5)], dim=1)
    assert torch.equal(nested_info_nce(units, mask, 0.3), nested_info_nce(changed, mask, 0.3))
    assert not torch.equal(nested_info_nce(units, mask + 1 - mask, 0.3), nested_info_nce(changed, mask + 1 - mask, 0.3))


def test_units_are_compared_by_cosine() -> None:
    units, mask = torch.rand(8, 5), torch.ones(8, 5)
    sizes = torch.rand(8, 1) + 0.5
    assert torch.allclose(nested_info_nce(units, mask, 0.3), nested_info_nce(units * sizes, mask, 0.3))
    nothing = torch.zeros(4, 5, requires_grad=True)
    loss = nested_info_nce(nothing, torch.ones(4, 5), 0.3)
    loss.backward()
    assert float(loss.detach()) == pytest.approx(math.log(3))
    assert nothing.grad is not None
    assert nothing.grad.isfinite().all()


def test_two_views_of_each_item_are_needed() -> None:
    with pytest.raises(InvalidInput, match=r"two views of each item, got shapes \(3, 4\) and \(3, 4\)"):
        nested_info_nce(torch.ones(3, 4), torch.ones(3, 4), 0.3)


def corrupted(steps: int = 150, **settings: Any) -> Tensor:
    """Return the codes of two corrupted views of held-out digits, after training."""
    torch.manual_seed(0)
    model = OrderedAutoencoder(64, 16, (64,), binarize=Binarize(16, signed=True), corruption=0.3, dropout=0.0)
    training = Training(steps=steps, batch_size=100, learning_rate=0.01, **settings)
    train(model, X[:1400], training, Run(progress=False))
    with torch.inference_mode():
        z = model.standardize(torch.from_numpy(X[1400:])).repeat(2, 1)
        return model.units(model.encoder(z * (torch.rand_like(z) >= 0.3)))


def losses(units: Tensor) -> Tensor:
    """Return the contrastive loss of codes at several lengths."""
    kept = torch.ones_like(units)
    return torch.stack([nested_info_nce(units, keep_prefix(kept, length), 0.3) for length in (2, 4, 8, 16)])


def test_training_lowers_the_contrastive_loss_at_every_length_and_codes_do_not_collapse() -> None:
    contrastive: dict[str, Any] = {"contrastive": Contrastive(1.0), "reconstruction": 0.0}
    reconstructing, before, after = corrupted(), corrupted(steps=1, **contrastive), corrupted(**contrastive)
    assert (losses(after) < losses(before) - 0.2).all()
    # Reconstruction lowers it almost as much: at a single length the seed decides between the two.
    assert losses(after).mean() < losses(reconstructing).mean()
    one, other = after.chunk(2)
    assert (one != other).float().mean() < 0.7 * (before[: len(one)] != before[len(one) :]).float().mean()
    assert len(one.unique(dim=0)) > 200


def gradients(share: float) -> tuple[Tensor, Tensor]:
    """Of the encoder's and of the decoder's weights, when a share of the reconstruction's reaches the encoder."""
    torch.manual_seed(0)
    encoder, decoder = torch.nn.Linear(64, 8), torch.nn.Linear(8, 64)
    model = OrderedAutoencoder(64, 8, encoder=encoder, decoder=decoder, binarize=Binarize(8, signed=True))
    AutoencoderLoss(model, Training(reconstruction=share))(torch.from_numpy(X[:50])).backward()
    assert encoder.weight.grad is not None
    assert decoder.weight.grad is not None
    return encoder.weight.grad, decoder.weight.grad


def test_reconstruction_0_is_a_stop_gradient() -> None:
    (whole, decoder), (half, same), (none, still) = gradients(1.0), gradients(0.5), gradients(0.0)
    assert torch.allclose(half, whole / 2, atol=1e-7)
    assert not none.any()
    assert torch.equal(decoder, same)
    assert torch.equal(decoder, still)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"contrastive": 1}, r"contrastive must be Contrastive\(…\), got 1"),
        ({"reconstruction": "no"}, "reconstruction must be a number, got 'no'"),
    ],
)
def test_wrong_settings_are_named(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Training(**wrong)
    with pytest.raises(InvalidInput, match="weight of the contrastive loss must be a number of at least 0, got -1"):
        Contrastive(-1)
    with pytest.raises(InvalidInput, match="temperature of the contrastive loss must be a number above 0, got 0"):
        Contrastive(1, temperature=0)
