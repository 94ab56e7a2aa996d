"""The restoration network: the identity before training, local, and without effect at the finest step."""

import pytest
import torch

from nestcode.errors import InvalidInput
from nestcode.nn.restoration import FINEST, PERIOD, RestorationUNet


def random_network(seed: int = 0) -> RestorationUNet:
    """A network of random weights, whose last layer would be 0 otherwise."""
    torch.manual_seed(seed)
    network = RestorationUNet((8, 8), (1, 1)).eval()
    torch.nn.init.normal_(network.end.weight, std=0.5)
    torch.nn.init.normal_(network.place)
    return network


@torch.inference_mode()
def test_an_untrained_network_is_the_identity() -> None:
    x = torch.rand(3, 3, 16, 8)
    assert torch.equal(RestorationUNet((8, 8), (1, 1))(x, torch.tensor([4.0, 30.0, 1e5])), x)


@torch.inference_mode()
def test_the_correction_grows_with_the_step_from_none_at_the_finest() -> None:
    x = torch.rand(1, 3, 32, 32).expand(5, -1, -1, -1)
    corrections = (random_network()(x, FINEST * torch.tensor([0.5, 1, 1.1, 2, 1e4])) - x).abs().amax((1, 2, 3))
    assert corrections[:2].tolist() == [0, 0]
    assert 0 < corrections[2] < corrections[3]
    assert corrections[4] < 100


@torch.inference_mode()
def test_no_pixel_beyond_the_reach_changes_an_output() -> None:
    network = random_network()
    x, steps = torch.rand(1, 3, 8, 256), torch.tensor([50.0])
    before = network(x, steps)
    x[..., 96] += 1
    changed = (network(x, steps) - before).abs().amax((0, 1, 2)).nonzero().ravel()
    assert 96 - network.reach <= int(changed.min()) < 96 < int(changed.max()) <= 96 + network.reach


@torch.inference_mode()
def test_images_shifted_by_a_block_are_corrected_alike_and_by_half_a_block_are_not() -> None:
    network, steps = random_network(), torch.tensor([50.0])
    x = torch.rand(1, 3, 8, 256)
    corrections = [network(x[..., shift:], steps)[..., 112 - shift : 128 - shift] for shift in (0, PERIOD, PERIOD // 2)]
    assert torch.allclose(corrections[0], corrections[1], atol=1e-5)
    assert (corrections[0] - corrections[2]).abs().max() > 1e-3


def test_sizes_are_checked() -> None:
    with pytest.raises(InvalidInput, match="must be at least 1, got"):
        RestorationUNet((8, 0))
