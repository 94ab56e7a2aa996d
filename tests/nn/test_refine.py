"""Refiners begin as the identity, take images of any layout, flip them horizontally and depend on the length."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from nestcode.errors import InvalidInput
from nestcode.nn.refine import ImageRefiner, LengthEmbedding, VectorRefiner
from nestcode.training import Run, Training
from nestcode.training.refinement import Pairs, refine

SHAPES = [(8, 8), (7, 5), (1, 9), (3, 8, 6), (3, 5, 7), (8, 6, 3), (5, 7, 3), (1, 4, 4), (4, 4, 1), (3, 3, 3)]


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def rows(shape: tuple[int, ...], n: int = 4) -> Tensor:
    return torch.rand(n, int(np.prod(shape)))


def shaken(network: Any) -> Any:
    """A network whose last layer adds something."""
    torch.nn.init.normal_(network.end.weight)
    return network.eval()


@pytest.mark.parametrize("channels", [(8,), (8, 16), (8, 16, 24)])
@pytest.mark.parametrize("shape", SHAPES)
def test_untrained_refiners_of_images_are_the_identity(shape: tuple[int, ...], channels: tuple[int, ...]) -> None:
    x, network = rows(shape), ImageRefiner(shape, channels)
    lengths = torch.tensor([0, 1, 8, 1000])
    assert torch.equal(network(x, lengths), x)
    assert shaken(network)(x, lengths).shape == x.shape
    assert not torch.equal(network(x, lengths), x)


@pytest.mark.parametrize("features", [1, 5, 64])
def test_untrained_refiners_of_vectors_are_the_identity(features: int) -> None:
    x, network = rows((features,)), VectorRefiner(features, units=16)
    assert torch.equal(network(x, torch.tensor([0, 1, 8, 1000])), x)


@pytest.mark.parametrize("shape", SHAPES)
def test_flipping_exchanges_left_and_right(shape: tuple[int, ...]) -> None:
    x, network = rows(shape), ImageRefiner(shape, (8,))
    channels_last = len(shape) == 3 and shape[0] > shape[2]
    plain = x.reshape(-1, *shape).flip(2 if channels_last else len(shape)).reshape(len(x), -1)
    assert torch.equal(network.flipped(x), plain)
    assert torch.equal(network.flipped(network.flipped(x)), x)


def test_both_layouts_are_the_same_image() -> None:
    """The same weights give the same output, whether channels come first or last."""
    first, last = shaken(ImageRefiner((3, 8, 6), (8, 16))), ImageRefiner((8, 6, 3), (8, 16)).eval()
    last.load_state_dict(first.state_dict())
    images, lengths = torch.rand(4, 3, 8, 6), torch.tensor([1, 2, 3, 4])
    one = first(images.reshape(4, -1), lengths).reshape(4, 3, 8, 6)
    other = last(images.movedim(1, -1).reshape(4, -1), lengths).reshape(4, 8, 6, 3)
    assert torch.allclose(one, other.movedim(-1, 1), atol=1e-6)


@pytest.mark.parametrize("shape", [(6, 6), (3, 5, 5)])
def test_items_are_refined_independently(shape: tuple[int, ...]) -> None:
    network, x, lengths = shaken(ImageRefiner(shape, (8, 16))), rows(shape), torch.tensor([1, 9, 30, 64])
    alone = torch.cat([network(x[i : i + 1], lengths[i : i + 1]) for i in range(4)])
    assert torch.allclose(network(x, lengths), alone, atol=1e-5)


def test_rows_need_not_be_contiguous() -> None:
    network, wide = shaken(ImageRefiner((4, 4, 3), (8,))), rows((96,))
    lengths = torch.full((4,), 5)
    assert torch.equal(network(wide[:, ::2], lengths), network(wide[:, ::2].contiguous(), lengths))
    assert torch.equal(network.flipped(wide[:, ::2]), network.flipped(wide[:, ::2].contiguous()))


@pytest.mark.parametrize("kind", ["images", "vectors"])
def test_the_correction_depends_on_the_length(kind: str) -> None:
    """Half of an item is missing at length 1, a tenth at length 64: only who knows the length can add it."""
    rng = np.random.default_rng(0)
    items = rng.standard_normal((256, 16)).astype(np.float16)
    pairs = Pairs(
        np.array([1, 64]), np.stack([items / 2, items * np.float16(0.9)]), np.eye(16, dtype=np.float32), items
    )
    network = ImageRefiner((4, 4), (8,)) if kind == "images" else VectorRefiner(16, units=32)
    refine(network, pairs, Training(steps=60, batch_size=32, learning_rate=0.01), Run(progress=False))
    assert not network.training
    x = torch.from_numpy(items[:50]).float()
    with torch.inference_mode():
        short, whole = (network(x, torch.full((50,), length)) for length in (1, 64))
    assert (short - x).square().mean() > 2 * (whole - x).square().mean()


def test_neighboring_lengths_have_similar_embeddings() -> None:
    told = LengthEmbedding(16)(torch.tensor([100, 101, 1]))
    assert (told[0] - told[1]).norm() < 0.2 * (told[0] - told[2]).norm()


def test_settings_rebuild_the_network() -> None:
    network = ImageRefiner((5, 7, 3), (8, 16), flip=True)
    again = ImageRefiner(**network.settings())
    again.load_state_dict(network.state_dict())
    assert (again.settings(), again.shape, again.flip) == (network.settings(), (3, 5, 7), True)
    assert VectorRefiner(5, units=24, layers=3).settings() == {"units": 24, "layers": 3}


@pytest.mark.parametrize("shape", [(8,), (1, 2, 3, 4), (0, 8), (-8, -8), (3, 0, 8)])
def test_wrong_shapes_are_named(shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidInput, match=r"shape must be \(height, width\), .*, got"):
        ImageRefiner(shape)


@pytest.mark.parametrize("channels", [(), (12,), (16, 20), (0, 8)])
def test_wrong_channels_are_named(channels: tuple[int, ...]) -> None:
    with pytest.raises(InvalidInput, match="channels must be multiples of 8"):
        ImageRefiner((8, 8), channels)
