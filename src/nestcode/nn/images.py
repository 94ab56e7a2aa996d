"""Images: a convolutional encoder, and data augmentation that makes random views of an image.

    rows ──RandomViews──▶ rows, shifted, flipped, zoomed, color-jittered (in training) ──ImageEncoder──▶ pre-activations

Rows are flat, channel after channel: a CIFAR-10 image is (3, 32, 32). Both modules serve as the `encoder=` of
`OrderedAutoencoder` and `OrderedClassifier`. Not here: the contrastive loss of two views
(`nestcode.training.contrastive`).
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from nestcode.arrays import check_int, is_number, shown
from nestcode.codes import MAX_WIDTH
from nestcode.errors import InvalidInput

Shape = tuple[int, int, int]  # channels, height, width of an image
GROUPS = 8  # of group normalization
ASPECT = 3 / 4  # the least aspect ratio of a crop; its inverse is the largest


class ImageEncoder(nn.Module):
    """A residual network of eight convolutions: (n, channels · height · width) -> pre-activations (n, width).

    >>> encoder = ImageEncoder((3, 32, 32), width=64, channels=8)
    >>> encoder(torch.rand(5, 3072)).shape
    torch.Size([5, 64])

    It uses group normalization, never batch normalization: the code of an image does not depend on the other images of
    its batch, nor on how a batch is split into micro-batches.

    Args:
        shape: channels, height and width of an image; a row holds its channels one after another.
        width: units of the code.
        channels: of the first convolution; they double three times.

    """

    def __init__(self, shape: Shape, width: int, channels: int = 64) -> None:
        super().__init__()
        self.shape = check_shape(shape)
        c = check_int(channels, "channels", least=1, most=MAX_WIDTH)
        if c % GROUPS:
            raise InvalidInput(f"channels must divide by {GROUPS}, got {channels}")
        self.body = nn.Sequential(
            Convolution(self.shape[0], c),
            Convolution(c, 2 * c, halve=True),
            Residual(2 * c),
            Convolution(2 * c, 4 * c, halve=True),
            Convolution(4 * c, 8 * c, halve=True),
            Residual(8 * c),
        )
        self.code = nn.Linear(8 * c, check_int(width, "width", least=1, most=MAX_WIDTH))

    def forward(self, rows: Tensor) -> Tensor:
        """Return the pre-activations of flat rows."""
        images = rows.reshape(len(rows), *self.shape).contiguous(memory_format=torch.channels_last)
        pre: Tensor = self.code(self.body(images).amax(dim=(2, 3)))
        return pre

    def extra_repr(self) -> str:
        """Return what `print(model)` shows."""
        return f"{self.shape}"


class Convolution(nn.Module):
    """A weight-standardized 3 x 3 convolution, optional max pooling, group normalization, ReLU.

    >>> Convolution(3, 16, halve=True)(torch.rand(2, 3, 8, 8)).shape
    torch.Size([2, 16, 4, 4])

    With weight standardization, group normalization is as good as batch normalization (Qiao et al., 2019).
    """

    def __init__(self, before: int, after: int, halve: bool = False) -> None:
        super().__init__()
        self.halve = halve
        self.weight = nn.Parameter(nn.init.kaiming_normal_(torch.empty(after, before, 3, 3)))
        self.gain = nn.Parameter(torch.ones(after, 1, 1, 1))
        self.norm = nn.GroupNorm(GROUPS, after)

    def forward(self, images: Tensor) -> Tensor:
        """Return the convolved images, (n, before, height, width) -> (n, after, height, width), or half the sides."""
        fan_in = self.weight[0].numel()
        variance, mean = torch.var_mean(self.weight, dim=(1, 2, 3), keepdim=True, correction=0)
        filters = (self.weight - mean) * torch.rsqrt(variance * fan_in + 1e-6) * self.gain
        images = functional.conv2d(images, filters, padding=1)
        if self.halve:
            images = functional.max_pool2d(images, 2, ceil_mode=True)
        return functional.relu(self.norm(images))


class Residual(nn.Module):
    """A residual block of two convolutions.

    >>> Residual(16)(torch.rand(2, 16, 4, 4)).shape
    torch.Size([2, 16, 4, 4])
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(Convolution(channels, channels), Convolution(channels, channels))

    def forward(self, images: Tensor) -> Tensor:
        """Return the images plus a correction, (n, channels, height, width) -> the same."""
        out: Tensor = images + self.inner(images)
        return out


class RandomViews(nn.Module):
    """Random views of images in training mode, the images themselves in evaluation mode: (n, features) -> the same.

    >>> views = RandomViews((1, 1, 4), crop=0, flip=True)
    >>> row = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    >>> {tuple(views(row)[0].tolist()) for _ in range(30)} == {(1, 2, 3, 4), (4, 3, 2, 1)}
    True
    >>> views.eval()(row)
    tensor([[1., 2., 3., 4.]])

    Borders are padded by reflection. Images may be raw or standardized: brightness changes by a share of the standard
    deviation of the batch.

    Args:
        shape: channels, height and width of an image.
        crop: the largest shift in pixels, in both directions.
        flip: flip half of the images horizontally.
        zoom: the least share of its area that a random resized crop shows; 1 leaves sizes alone.
        color: the strength of color jitter (brightness, contrast, saturation, hue) in four of five images, e.g. 0.5.
        gray: the probability that an image is converted to grayscale.

    """

    def __init__(
        self,
        shape: Shape,
        crop: int = 4,
        flip: bool = True,
        *,
        zoom: float = 1.0,
        color: float = 0.0,
        gray: float = 0.0,
    ) -> None:
        super().__init__()
        self.shape = check_shape(shape)
        self.crop, self.flip = check_int(crop, "crop", least=0), bool(flip)
        if self.crop >= min(shape[1:]) and self.crop:
            raise InvalidInput(f"crop must be below the sides of an image of shape {shape}, got {crop}")
        if not is_number(zoom) or not 0 < zoom <= 1:
            raise InvalidInput(f"zoom must be above 0 and at most 1, got {shown(zoom)}")
        if not all(is_number(share) and 0 <= share <= 1 for share in (color, gray)):
            raise InvalidInput(f"color and gray must be from 0 to 1, got {shown(color)} and {shown(gray)}")
        if (color or gray) and shape[0] != 3:
            raise InvalidInput(f"color and gray need images of 3 channels, got shape {shape}: leave them 0")
        self.zoom, self.color, self.gray = float(zoom), float(color), float(gray)

    def forward(self, rows: Tensor) -> Tensor:
        """Return views of flat rows."""
        if not self.training:
            return rows
        images = rows.reshape(len(rows), *self.shape)
        images = self._cropped(images)
        if self.color or self.gray:
            images = self._jittered(images)
        return images.reshape(rows.shape)

    def _cropped(self, images: Tensor) -> Tensor:
        """Shift, zoom and flip: by whole pixels, or with a zoom bilinearly, as a matrix product per axis."""
        n, height, width = len(images), *self.shape[1:]
        like = images.new_empty(n)
        shares = torch.ones_like(like), torch.ones_like(like)  # of the height and the width
        if self.zoom < 1:
            side = (self.zoom + (1 - self.zoom) * torch.rand_like(like)).sqrt()
            stretch = ASPECT ** (torch.rand_like(like) - 0.5)
            shares = (side * stretch).clamp(max=1), (side / stretch).clamp(max=1)
        down, across = self._places(height, shares[0]), self._places(width, shares[1])
        if self.flip:
            across = torch.where(torch.rand_like(like)[:, None] < 0.5, across.flip(1), across)
        if self.zoom == 1:
            pixels = (down[:, :, None] * width + across[:, None, :]).long().flatten(1)  # (n, height · width)
            return images.flatten(2).gather(2, pixels[:, None].expand(-1, self.shape[0], -1)).view(images.shape)
        with torch.autocast(images.device.type, enabled=False):  # pixels would be rounded
            return _weights(down, height)[:, None] @ images @ _weights(across, width)[:, None].transpose(2, 3)

    def _places(self, side: int, share: Tensor) -> Tensor:
        """Return the source coordinates of a side, (n, side), of a crop that shows a share of it, (n,)."""
        first = torch.rand_like(share) * (1 - share) * side
        shift = torch.floor(torch.rand_like(share) * (2 * self.crop + 1)) - self.crop
        steps = torch.arange(side, device=share.device, dtype=share.dtype)
        places = (first + shift)[:, None] + (steps + 0.5) * share[:, None] - 0.5
        return (side - 1) - ((side - 1) - places.abs()).abs()  # reflected at both borders

    def _jittered(self, images: Tensor) -> Tensor:
        """Jitter contrast and brightness, and rotate and scale colors around the gray axis (hue, saturation)."""
        n = len(images)
        draws = (2 * torch.rand(4, n, 1, 1, device=images.device, dtype=images.dtype) - 1) * self.color
        draws = draws * (torch.rand_like(draws[:1]) < 0.8)
        # In standard deviations, so that raw pixels get as much jitter as standardized ones.
        brightness, contrast, saturation, hue = (
            draws[0] * images.std(correction=0),
            1 + draws[1],
            1 + draws[2],
            draws[3] * (0.4 * math.pi),
        )
        saturation = torch.where(torch.rand_like(saturation) < self.gray, 0.0, saturation)
        one = torch.eye(3, device=images.device, dtype=images.dtype)
        gray = torch.full_like(one, 1 / 3)
        rotation = (one.roll(1, 0) - one.roll(-1, 0)) / math.sqrt(3)  # the cross product with the axis
        matrix = gray + saturation * (hue.cos() * (one - gray) + hue.sin() * rotation)  # (n, 3, 3)
        planes = images.flatten(2)
        mean = planes.mean(dim=(1, 2), keepdim=True)
        with torch.autocast(images.device.type, enabled=False):
            planes = matrix @ ((planes - mean) * contrast + mean + brightness)
        return planes.reshape(images.shape)

    def extra_repr(self) -> str:
        """Return what `print(model)` shows."""
        colors = f"zoom={self.zoom}, color={self.color}, gray={self.gray}"
        return f"{self.shape}, crop={self.crop}, flip={self.flip}, {colors}"


def check_shape(shape: Shape) -> Shape:
    """Return a shape as three integers: channels, height and width.

    >>> check_shape((3, 32, 32))
    (3, 32, 32)
    """
    if not isinstance(shape, Sequence) or len(shape) != 3:
        raise InvalidInput(f"shape must be (channels, height, width), got {shown(shape)}")
    channels, height, width = (check_int(size, "a side of shape", least=1, most=MAX_WIDTH) for size in shape)
    return channels, height, width


def _weights(places: Tensor, side: int) -> Tensor:
    """Return the weight of each pixel at each coordinate, by linear interpolation: (n, places) -> (n, places, side)."""
    pixels = torch.arange(side, device=places.device, dtype=places.dtype)
    return (1 - (places[:, :, None] - pixels).abs()).clamp(min=0)
