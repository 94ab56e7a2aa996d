"""Pillow reads and writes streams of images: importing this module registers the format `NEST`.

    import nestcode.integrations.pillow

    Image.open("photo.nest").show()
    image.save("photo.nest", bpp=0.5)

A truncated file opens as a coarser image. The images of a stream are frames, as of a TIFF file with several pages.
`Image.thumbnail` and `Image.draft` decode at 1/2, 1/4 or 1/8 of the size, as for JPEG files.
"""

import warnings
from typing import IO, Any

import numpy as np

from nestcode.container.blocks import StoredBlocks
from nestcode.container.layout import IMAGES_MAGIC
from nestcode.errors import InvalidInput, import_extra
from nestcode.images import compress_images
from nestcode.images.format import parse_image_header
from nestcode.images.image import scaled_shape
from nestcode.images.stream import LIMIT, check_memory, decode_image, find_codec

import_extra("PIL", extra="pillow", purpose="nestcode.integrations.pillow")

from PIL import Image, ImageFile, ImageOps  # noqa: E402

FORMAT = "NEST"
MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}  # by channels
DEEP_GRAY = "I;16"
REDUCTIONS = (8, 4, 2)  # of sizes that a draft may have
OPTIONS = ("bpp", "budget", "psnr", "ssim", "lossless", "tune")  # of `Image.save`, as of `compress_images`


class NestImageFile(ImageFile.ImageFile):
    """A stream of images, whole or truncated.

    >>> import io
    >>> import nestcode as nc
    >>> from PIL import Image
    >>> stream = io.BytesIO(nc.compress_images(list(nc.data.sample_images().values()), bpp=0.5))
    >>> with Image.open(stream) as image:
    ...     image.format, image.mode, image.size, image.n_frames
    ('NEST', 'RGB', (640, 427), 2)
    """

    format = FORMAT
    format_description = "Nestcode stream of images"

    def _open(self) -> None:
        assert self.fp is not None
        self._data = self.fp.read()
        view = memoryview(self._data)
        self._header = parse_image_header(view)
        if not self._header.entries:
            raise InvalidInput("the stream has no image: give another one")
        self._codec = find_codec(self._header, view, None)
        self.n_frames = len(self._header.entries)
        self.is_animated = self.n_frames > 1
        self.seek(0)

    def seek(self, frame: int) -> None:
        """Choose an image of the stream by its position."""
        if not 0 <= frame < self.n_frames:
            raise EOFError(f"frame must be between 0 and {self.n_frames - 1}, got {frame}")
        entry = self._header.entries[frame]
        if frame:  # Pillow itself looks at the first one
            _check_pixels(entry.shape[1], entry.shape[0])
        self._frame, self._reduction = frame, 1
        channels = (*entry.shape, 1)[2]
        self._mode = DEEP_GRAY if channels == 1 and entry.depth == 16 else MODES[channels]
        self._size = entry.shape[1], entry.shape[0]
        self.info = {"name": entry.name}
        if entry.profile:
            self.info["icc_profile"] = entry.profile
        self._due = True  # whether the frame has not been decoded

    def tell(self) -> int:
        """Return the position of the chosen image."""
        return self._frame

    def draft(
        self,
        mode: str | None,  # noqa: ARG002
        size: tuple[int, int] | None,
    ) -> tuple[str, tuple[int, int, float, float]] | None:
        """Decode at 1/2, 1/4 or 1/8 of the size, if the image is at least as large as `size` then."""
        if not self._due or self._reduction != 1 or size is None:
            return None
        width, height = self._size
        for reduction in REDUCTIONS:
            if min(width / max(size[0], 1), height / max(size[1], 1)) >= reduction:
                self._reduction = reduction
                rows, columns = scaled_shape((height, width), 1 / reduction)
                self._size = columns, rows
                return self._mode, (0, 0, width / reduction, height / reduction)
        return None

    def load(self) -> Any:
        """Decode the chosen image."""
        if self._due:
            check_memory([self._header.entries[self._frame]], LIMIT)
            blocks = StoredBlocks(self._header, memoryview(self._data))
            blocks.verify()
            if (damage := blocks.error()) is not None and not ImageFile.LOAD_TRUNCATED_IMAGES:
                raise damage
            pixels = decode_image(
                self._header, blocks, self._codec, self._frame, blocks.bits // 8, scale=1 / self._reduction
            )
            if pixels.dtype == np.uint16 and self._mode != DEEP_GRAY:  # Pillow has no colors of 16 bits
                pixels = np.rint(pixels / 257).astype(np.uint8)
            raw = "I;16N" if self._mode == DEEP_GRAY else self._mode
            self.im = Image.frombytes(self._mode, self._size, pixels.tobytes(), "raw", raw).im
            self.tile = []
            self._due = False
        return super().load()


def _check_pixels(width: int, height: int) -> None:
    """Refuse a frame beyond `Image.MAX_IMAGE_PIXELS`, as Pillow does."""
    most, pixels = Image.MAX_IMAGE_PIXELS, width * height
    if most is None or pixels <= most:
        return
    message = f"a frame must have at most {most:,} pixels, got {pixels:,}: raise Image.MAX_IMAGE_PIXELS if you trust it"
    if pixels > 2 * most:
        raise Image.DecompressionBombError(message)
    warnings.warn(message, Image.DecompressionBombWarning, stacklevel=3)


def _accept(prefix: bytes) -> bool:
    return prefix.startswith(IMAGES_MAGIC)


def _pixels(image: Image.Image) -> Any:
    """Return an image as `compress_images` takes it, upright."""
    image = ImageOps.exif_transpose(image)
    if image.mode not in (*MODES.values(), DEEP_GRAY):
        if image.mode in ("I", "F"):
            raise InvalidInput(
                f"an image of mode {image.mode} has no range of values: convert it, as with convert('L') or to I;16"
            )
        image = image.convert("L" if image.mode == "1" else "RGBA" if image.has_transparency_data else "RGB")
    return np.asarray(image)


def _save(image: Image.Image, file: IO[bytes], name: str | bytes, *, frames: bool = False) -> None:  # noqa: ARG001
    given = image.encoderinfo
    images = [image, *(given.get("append_images", []) if frames else [])]
    every = [frame for each in images for frame in (_frames(each) if frames else [each])]
    profile = given.get("icc_profile", image.info.get("icc_profile")) or b""
    options = {option: given[option] for option in OPTIONS if option in given}
    file.write(compress_images([_pixels(each) for each in every], profiles=[profile] * len(every), **options))


def _frames(image: Image.Image) -> list[Image.Image]:
    frames = []
    for frame in range(getattr(image, "n_frames", 1)):
        image.seek(frame)
        frames.append(image.copy())
    return frames


def _save_all(image: Image.Image, file: IO[bytes], name: str | bytes) -> None:
    _save(image, file, name, frames=True)


Image.register_open(FORMAT, NestImageFile, _accept)
Image.register_save(FORMAT, _save)
Image.register_save_all(FORMAT, _save_all)
Image.register_extension(FORMAT, ".nest")
