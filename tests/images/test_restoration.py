"""The restoration network: the identity before training, local, and without effect at the finest step."""

import numpy as np
import pytest
import torch

from nestcode.errors import InvalidInput
from nestcode.images.refiner import FINEST, PERIOD, Refiner, reach
from nestcode.images.restoration import RestorationUNet, quantized


def random_network(seed: int = 0) -> RestorationUNet:
    """A network of random weights, whose last layer would be 0 otherwise."""
    torch.manual_seed(seed)
    network = RestorationUNet((16, 32), (1, 1, 1)).eval()
    torch.nn.init.normal_(network.end.weight, std=0.5)
    torch.nn.init.normal_(network.place)
    return network


@torch.inference_mode()
def test_an_untrained_network_is_the_identity() -> None:
    x = torch.rand(3, 3, 16, 8)
    assert torch.equal(RestorationUNet((16, 32), (1, 1, 1))(x, torch.tensor([4.0, 30.0, 1e5])), x)


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
    assert 96 - reach(network.blocks) <= int(changed.min()) < 96 < int(changed.max()) <= 96 + reach(network.blocks)


@torch.inference_mode()
def test_images_shifted_by_a_block_are_corrected_alike_and_by_half_a_block_are_not() -> None:
    network, steps = random_network(), torch.tensor([50.0])
    x = torch.rand(1, 3, 8, 256)
    corrections = [network(x[..., shift:], steps)[..., 112 - shift : 128 - shift] for shift in (0, PERIOD, PERIOD // 2)]
    assert torch.allclose(corrections[0], corrections[1], atol=1e-5)
    assert (corrections[0] - corrections[2]).abs().max() > 1e-3


@torch.inference_mode()
def test_8_bits_correct_nearly_as_floats_do() -> None:
    network, x = random_network(), torch.rand(2, 3, 32, 48)
    pixels = (255 * x).round()
    refiner = Refiner(network.blocks, quantized(network, [(each, 40.0) for each in pixels / 255]))
    for each in pixels:
        turned = [each, each.flip(1, 2)]
        views = [view for some in turned for view in (some, some.transpose(1, 2))]
        outs = [255 * network(view[None] / 255, torch.tensor([40.0]))[0] for view in views]
        upright = [out if i % 2 == 0 else out.transpose(1, 2) for i, out in enumerate(outs)]
        expected = sum(out if i < 2 else out.flip(1, 2) for i, out in enumerate(upright)) / 4 - each
        image = each.permute(1, 2, 0).numpy().astype(np.uint8)
        refined = torch.from_numpy(refiner.refine(image, 40.0).astype(np.float32)).permute(2, 0, 1)
        clipped = (each + expected).clamp(0, 255)
        assert (refined - clipped).square().mean() < 0.02 * (clipped - each).square().mean()


def test_sizes_are_checked() -> None:
    with pytest.raises(InvalidInput, match="must be at least 1, got"):
        RestorationUNet((8, 0))
