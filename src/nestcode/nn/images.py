"""Images: a convolutional encoder, and random views of an image that should get the same code.

    rows ──RandomViews──▶ rows, shifted, flipped, zoomed, recoloured (in training) ──ImageEncoder──▶ pre-activations

Rows are flat, as everywhere: plane after plane, so that a CIFAR-10 image is (3, 32, 32). Both are modules for the
`encoder=` of `OrderedAutoencoder` and `OrderedClassifier`. Not here: what views are compared for
(`nestcode.training.contrastive`).
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from nestcode.arrays import check_int
from nestcode.errors import InvalidInput

Shape = tuple[int, int, int]  # channels, height, width of an image
GROUPS = 8  # of channels that are normalized together
THINNEST = 3 / 4  # the least ratio of the sides of a zoomed window; its inverse is the largest


class ImageEncoder(nn.Module):
    """A residual network of eight convolutions: (n, channels · height · width) -> pre-activations (n, width).

    >>> encoder = ImageEncoder((3, 32, 32), width=64, channels=8)
    >>> encoder(torch.rand(5, 3072)).shape
    torch.Size([5, 64])

    It normalizes groups of channels within an image, never over a batch: what an image's code is does not depend on
    the images beside it, nor on how a batch is split into parts.

    Args:
        shape: channels, height and width of an image; a row holds its planes one after another.
        width: units of the code.
        channels: of the first convolution; they double three times.

    """

    def __init__(self, shape: Shape, width: int, channels: int = 64) -> None:
        super().__init__()
        self.shape = check_shape(shape)
        c = check_int(channels, "channels", least=1)
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
        self.code = nn.Linear(8 * c, check_int(width, "width", least=1))

    def forward(self, rows: Tensor) -> Tensor:
        """Pre-activations of flat rows."""
        images = rows.reshape(len(rows), *self.shape).contiguous(memory_format=torch.channels_last)
        pre: Tensor = self.code(self.body(images).amax(dim=(2, 3)))
        return pre

    def extra_repr(self) -> str:
        """What `print(model)` shows."""
        return f"{self.shape}"


class Convolution(nn.Module):
    """A 3 x 3 convolution, halved sides if asked for, normalized groups of channels, rectified.

    >>> Convolution(3, 16, halve=True)(torch.rand(2, 3, 8, 8)).shape
    torch.Size([2, 16, 4, 4])

    Its filters are standardized: with that, normalizing groups is as good as normalizing batches.
    """

    def __init__(self, before: int, after: int, halve: bool = False) -> None:
        super().__init__()
        self.halve = halve
        self.weight = nn.Parameter(nn.init.kaiming_normal_(torch.empty(after, before, 3, 3)))
        self.gain = nn.Parameter(torch.ones(after, 1, 1, 1))
        self.norm = nn.GroupNorm(GROUPS, after)

    def forward(self, images: Tensor) -> Tensor:
        """(n, before, height, width) -> (n, after, height, width), or half of these."""
        fan_in = self.weight[0].numel()
        variance, mean = torch.var_mean(self.weight, dim=(1, 2, 3), keepdim=True, correction=0)
        filters = (self.weight - mean) * torch.rsqrt(variance * fan_in + 1e-6) * self.gain
        images = functional.conv2d(images, filters, padding=1)
        if self.halve:
            images = functional.max_pool2d(images, 2, ceil_mode=True)
        return functional.relu(self.norm(images))


class Residual(nn.Module):
    """Two convolutions that add to what they are given.

    >>> Residual(16)(torch.rand(2, 16, 4, 4)).shape
    torch.Size([2, 16, 4, 4])
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(Convolution(channels, channels), Convolution(channels, channels))

    def forward(self, images: Tensor) -> Tensor:
        """(n, channels, height, width) -> the same."""
        out: Tensor = images + self.inner(images)
        return out


class RandomViews(nn.Module):
    """Another view of each image in training, the image itself in evaluation: (n, features) -> the same.

    >>> views = RandomViews((1, 1, 4), crop=0, flip=True)
    >>> row = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    >>> {tuple(views(row)[0].tolist()) for _ in range(30)} == {(1, 2, 3, 4), (4, 3, 2, 1)}
    True
    >>> views.eval()(row)
    tensor([[1., 2., 3., 4.]])

    What is beyond the border mirrors what is inside. Colours are changed around 0, as standardized images have them.

    Args:
        shape: channels, height and width of an image.
        crop: the most pixels by which it is shifted, up or down and to the left or right.
        flip: mirror half of the images, left to right.
        zoom: the least share of its area that a view shows, enlarged to the whole; 1 leaves sizes alone.
        colour: how much brightness, contrast, saturation and hue change, of four in five images; 0.5 is usual.
        grey: the probability that an image loses its colours.

    """

    def __init__(
        self,
        shape: Shape,
        crop: int = 4,
        flip: bool = True,
        *,
        zoom: float = 1.0,
        colour: float = 0.0,
        grey: float = 0.0,
    ) -> None:
        super().__init__()
        self.shape = check_shape(shape)
        self.crop, self.flip = check_int(crop, "crop", least=0), bool(flip)
        if self.crop >= min(shape[1:]) and self.crop:
            raise InvalidInput(f"crop must be below the sides of an image of shape {shape}, got {crop}")
        if not 0 < zoom <= 1:
            raise InvalidInput(f"zoom must be above 0 and at most 1, got {zoom!r}")
        if not (0 <= colour <= 1 and 0 <= grey <= 1):
            raise InvalidInput(f"colour and grey must be from 0 to 1, got {colour!r} and {grey!r}")
        if (colour or grey) and shape[0] != 3:
            raise InvalidInput(f"colour and grey need images of 3 channels, got shape {shape}: leave them 0")
        self.zoom, self.colour, self.grey = float(zoom), float(colour), float(grey)

    def forward(self, rows: Tensor) -> Tensor:
        """Views of flat rows."""
        if not self.training:
            return rows
        images = rows.reshape(len(rows), *self.shape)
        images = self._moved(images)
        if self.colour or self.grey:
            images = self._coloured(images)
        return images.reshape(rows.shape)

    def _moved(self, images: Tensor) -> Tensor:
        """Shift, zoom and flip: rows and columns are interpolated by a product each."""
        n, height, width = len(images), *self.shape[1:]
        like = images.new_empty(n)
        shares = torch.ones_like(like), torch.ones_like(like)  # of the height and the width that are shown
        if self.zoom < 1:
            side = (self.zoom + (1 - self.zoom) * torch.rand_like(like)).sqrt()
            stretch = THINNEST ** (torch.rand_like(like) - 0.5)
            shares = (side * stretch).clamp(max=1), (side / stretch).clamp(max=1)
        down, across = self._places(height, shares[0]), self._places(width, shares[1])
        if self.flip:
            across = torch.where(torch.rand_like(like)[:, None] < 0.5, across.flip(1), across)
        with torch.autocast(images.device.type, enabled=False):  # pixels, not products that may be rounded
            return _weights(down, height)[:, None] @ images @ _weights(across, width)[:, None].transpose(2, 3)

    def _places(self, side: int, share: Tensor) -> Tensor:
        """Which places of a side a view shows, (n, side), when it shows a share of it, (n,)."""
        first = torch.rand_like(share) * (1 - share) * side
        shift = torch.floor(torch.rand_like(share) * (2 * self.crop + 1)) - self.crop
        steps = torch.arange(side, device=share.device, dtype=share.dtype)
        places = (first + shift)[:, None] + (steps + 0.5) * share[:, None] - 0.5
        return (side - 1) - ((side - 1) - places.abs()).abs()  # mirrored at both borders

    def _coloured(self, images: Tensor) -> Tensor:
        """Change colours: contrast, brightness, and a turn and stretch around the axis of greys."""
        n = len(images)
        draws = (2 * torch.rand(4, n, 1, 1, device=images.device, dtype=images.dtype) - 1) * self.colour
        draws = draws * (torch.rand_like(draws[:1]) < 0.8)
        brightness, contrast, saturation, hue = draws[0], 1 + draws[1], 1 + draws[2], draws[3] * (0.4 * math.pi)
        saturation = torch.where(torch.rand_like(saturation) < self.grey, 0.0, saturation)
        one = torch.eye(3, device=images.device, dtype=images.dtype)
        grey = torch.full_like(one, 1 / 3)
        turn = (one.roll(1, 0) - one.roll(-1, 0)) / math.sqrt(3)  # the cross product with the axis
        matrix = grey + saturation * (hue.cos() * (one - grey) + hue.sin() * turn)  # (n, 3, 3)
        planes = images.flatten(2)
        mean = planes.mean(dim=(1, 2), keepdim=True)
        with torch.autocast(images.device.type, enabled=False):
            planes = matrix @ ((planes - mean) * contrast + mean + brightness)
        return planes.reshape(images.shape)

    def extra_repr(self) -> str:
        """What `print(model)` shows."""
        colours = f"zoom={self.zoom}, colour={self.colour}, grey={self.grey}"
        return f"{self.shape}, crop={self.crop}, flip={self.flip}, {colours}"


def check_shape(shape: Shape) -> Shape:
    """Three whole numbers: channels, height and width.

    >>> check_shape((3, 32, 32))
    (3, 32, 32)
    """
    if len(shape) != 3:
        raise InvalidInput(f"shape must be (channels, height, width), got {shape}")
    channels, height, width = (check_int(size, "a side of shape", least=1) for size in shape)
    return channels, height, width


def _weights(places: Tensor, side: int) -> Tensor:
    """Of each pixel at each place, by linear interpolation: (n, places) -> (n, places, side)."""
    pixels = torch.arange(side, device=places.device, dtype=places.dtype)
    return (1 - (places[:, :, None] - pixels).abs()).clamp(min=0)
