"""Random views change what they may; the code of an image does not depend on the other images of a batch."""

from typing import Any

import pytest
import torch
from torch import Tensor

from nestcode.errors import InvalidInput
from nestcode.nn import ImageEncoder, RandomViews

SHAPE = (3, 6, 8)


def rows(n: int = 20, shape: tuple[int, int, int] = SHAPE) -> Tensor:
    return torch.randn(n, shape[0] * shape[1] * shape[2], generator=torch.Generator().manual_seed(1))


def views(shape: tuple[int, int, int] = SHAPE, **settings: Any) -> RandomViews:
    torch.manual_seed(0)
    return RandomViews(shape, **{"crop": 0, "flip": False, **settings})


def all_shifts(image: Tensor, crop: int) -> list[Tensor]:
    """Every shift and flip of an image, (channels, height, width), by padding and slicing."""
    channels, height, width = image.shape
    padded = torch.nn.functional.pad(image[None], (crop, crop, crop, crop), mode="reflect")[0]
    cut = [padded[:, y : y + height, x : x + width] for y in range(2 * crop + 1) for x in range(2 * crop + 1)]
    assert len(cut[0]) == channels
    return [*cut, *(part.flip(2) for part in cut)]


def test_in_evaluation_mode_a_view_is_the_image() -> None:
    X = rows()
    noisy = RandomViews(SHAPE, crop=2, zoom=0.3, color=0.5, gray=0.5)
    assert not torch.equal(noisy(X), X)
    assert torch.equal(noisy.eval()(X), X)


def test_shifts_and_flips_equal_padding_and_slicing_and_are_uniform() -> None:
    one = rows(1)
    possible = torch.stack(all_shifts(one.reshape(SHAPE), crop=1)).flatten(1)  # 18 of them
    made = views(crop=1, flip=True)(one.expand(1800, -1))
    distances = (made[:, None] - possible).abs().amax(dim=2)
    assert (distances.min(dim=1).values == 0).all()
    counts = distances.argmin(dim=1).bincount(minlength=18)
    assert ((counts > 60) & (counts < 140)).all()


def test_a_flip_keeps_the_sums_of_pixel_rows() -> None:
    X = rows()
    made = views(flip=True)(X)
    changed = (made != X).any(dim=1)
    assert 0 < changed.sum() < len(X)
    before, after = (part.reshape(-1, *SHAPE).sum(dim=3) for part in (X, made))
    assert torch.allclose(before, after, atol=1e-5)


def test_a_zoom_shows_a_crop_of_the_image() -> None:
    ramp = torch.linspace(0, 1, 8).expand(3, 6, 8).reshape(1, -1)
    made = views(zoom=0.2)(ramp.expand(200, -1)).reshape(-1, *SHAPE)
    assert made.min() >= 0
    assert made.max() <= 1
    assert (made.diff(dim=3) >= -1e-6).all()  # still from left to right
    shown = made[..., -1] - made[..., 0]
    assert shown.min() < 0.6
    assert shown.max() > 0.95
    flat = torch.full((5, 144), 0.7)
    assert torch.allclose(views(zoom=0.2, crop=3, flip=True)(flat), flat)


def test_grayscale_keeps_brightness() -> None:
    X = rows()
    made = views(gray=1.0)(X).reshape(-1, *SHAPE)
    assert torch.allclose(made[:, 0], made[:, 1], atol=1e-5)
    assert torch.allclose(made.mean(dim=1), X.reshape(-1, *SHAPE).mean(dim=1), atol=1e-5)


def test_raw_images_are_jittered_as_standardized_ones_are() -> None:
    raw, standardized = views(color=0.5)(60 * rows()), views(color=0.5)(rows())
    assert torch.allclose(raw, 60 * standardized, atol=1e-3)


def test_color_jitter_keeps_gray_images_gray_and_skips_one_in_five() -> None:
    gray = rows(500, (1, 6, 8)).repeat(1, 3)
    made = views(color=0.5)(gray).reshape(-1, *SHAPE)
    assert torch.allclose(made[:, 0], made[:, 2], atol=1e-5)
    kept = (views(color=0.5)(rows(500)) - rows(500)).abs().amax(dim=1) < 1e-5
    assert 60 < kept.sum() < 140


def test_the_same_seed_gives_the_same_views() -> None:
    made = [views(crop=2, flip=True, zoom=0.5, color=0.3, gray=0.1)(rows()) for _ in range(2)]
    assert torch.equal(*made)


@pytest.mark.parametrize("shape", [(3, 16, 16), (1, 8, 8), (2, 5, 7), (1, 1, 3)])
def test_images_of_any_size_are_encoded_independently(shape: tuple[int, int, int]) -> None:
    torch.manual_seed(0)
    encoder, X = ImageEncoder(shape, width=12, channels=8), rows(6, shape)
    pre = encoder(X)
    assert pre.shape == (6, 12)
    assert torch.allclose(encoder(X[2:3]), pre[2:3], atol=1e-5)
    assert torch.allclose(encoder.eval()(X), pre, atol=1e-5)
    pre.square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in encoder.parameters())


def test_weight_standardization_ignores_scale_and_offset() -> None:
    torch.manual_seed(0)
    encoder, X = ImageEncoder((3, 8, 8), width=4, channels=8), rows(3, (3, 8, 8))
    before = encoder(X)
    with torch.no_grad():
        for name, parameter in encoder.body.named_parameters():
            if name.endswith(".weight") and parameter.ndim == 4:
                parameter.mul_(3).add_(0.5)
    assert torch.allclose(encoder(X), before, atol=1e-3)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"crop": 6}, r"crop must be below the sides of an image of shape \(3, 6, 8\), got 6"),
        ({"zoom": 0}, "zoom must be above 0 and at most 1, got 0"),
        ({"color": 2}, "color and gray must be from 0 to 1, got 2"),
        ({"shape": (1, 6, 8), "gray": 0.5}, "need images of 3 channels"),
        ({"shape": (6, 8)}, r"shape must be \(channels, height, width\)"),
    ],
)
def test_wrong_settings_are_named(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        views(**wrong)


def test_channels_must_divide_into_groups() -> None:
    with pytest.raises(InvalidInput, match="channels must divide by 8, got 12"):
        ImageEncoder((3, 8, 8), width=4, channels=12)
