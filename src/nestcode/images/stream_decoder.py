"""Progressive decoding: images refine while the chunks of their stream arrive."""

from typing import Protocol

import numpy as np

from nestcode.arrays import Bytes, is_number, shown
from nestcode.container.blocks import ArrivingBlocks
from nestcode.container.decoder import ProgressiveDecoder
from nestcode.errors import DamagedFile, InvalidInput
from nestcode.images.codec import ImageCodec, ImageDecoder, check_refiner
from nestcode.images.format import DEPTHS, ImageStreamHeader, parse_image_header
from nestcode.images.image import Image
from nestcode.images.refiner import Refiner
from nestcode.images.stream import LIMIT, check_memory, find_codec

FIRST_BYTES = 4096  # read at once while the header is not known


class Readable(Protocol):
    """A file: `read` returns at most `count` bytes, and none at its end."""

    def read(self, count: int, /) -> bytes:
        """Return the next bytes."""


class ImageStreamDecoder(ProgressiveDecoder["_ArrivingImages"]):
    """Decodes a stream of images as it arrives, in chunks of any size.

    >>> import nestcode as nc
    >>> data = nc.compress_images([nc.data.sample_images()["china"][:96, :96]])
    >>> decoder = ImageStreamDecoder()
    >>> for first in range(0, len(data), 1000):
    ...     decoder.feed(data[first : first + 1000])
    >>> decoder.names, decoder.images()[0].shape
    (('0',), (96, 96, 3))

    The decoder decodes no bit twice, and `images()` reconstructs an image only if more of its bytes have arrived.

    Args:
        codec: the codec that made the stream, unless it is embedded or pretrained.
        refiner: a network that refines the decoded images, such as `Refiner.load()`; it takes some 150 MB beside
            `limit`.
        limit: the most bytes of memory; a stream that needs more is refused. All images are decoded side by side.

    """

    def __init__(self, codec: ImageCodec | None = None, *, refiner: Refiner | None = None, limit: int = LIMIT) -> None:
        super().__init__(limit)
        self._given, self._refiner = codec, check_refiner(refiner)

    def _begin(self, view: memoryview) -> "_ArrivingImages":
        header = parse_image_header(view)
        check_memory(header.entries, self._limit, progressive=True)
        return _ArrivingImages(header, find_codec(header, view, self._given), self._refiner)

    def read(self, file: Readable, *, width: float | None = None) -> None:
        """Read and decode the bytes of a file that images need at a display width.

        A later call with a larger width continues.

        >>> import io
        >>> import nestcode as nc
        >>> data = nc.compress_images([nc.data.sample_images()["china"]])
        >>> decoder, file = ImageStreamDecoder(), io.BytesIO(data)
        >>> decoder.read(file, width=160)
        >>> 30 * file.tell() < len(data), decoder.images()[0].shape
        (True, (427, 640, 3))

        Args:
            file: an open file, a `nestcode.client.RemoteStream`, a file of fsspec: anything with `read(count)`. Its
                position must be where the last bytes of this decoder ended.
            width: the width of an image on the screen in pixels; by default the whole file is read.

        """
        if width is not None and not (is_number(width) and width >= 0):
            raise InvalidInput(f"width must be a number of pixels of at least 0, got {shown(width)}: 320 is one")
        while True:
            header = None if self._arrival is None else self._arrival.header
            if header is None:
                wanted = max(FIRST_BYTES, self._needed)
            else:
                wanted = header.total if width is None else header.bytes_for_width(width)
            chunk = file.read(wanted - self._fed) if wanted > self._fed else b""
            if not chunk:
                return
            self.feed(chunk)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the images."""
        return tuple(entry.name for entry in self._payload().header.entries)

    @property
    def bpp(self) -> float:
        """The rate that arrived, in bits of payload per pixel."""
        return self._payload().header.bpp(self._payload().bits)

    def images(self) -> list[Image]:
        """Return all images, each decoded from the bits of it that arrived."""
        return self._payload().images()


class _ArrivingImages(ArrivingBlocks):
    """Images whose bitstreams arrive interleaved."""

    header: ImageStreamHeader

    def __init__(self, header: ImageStreamHeader, codec: ImageCodec, refiner: Refiner | None) -> None:
        super().__init__(header)
        self._codec, self._refiner = codec, refiner
        self._ends = np.cumsum(header.pass_sizes.T.ravel())  # in the payload, of each pass of each image
        self._reset()

    def _reset(self) -> None:
        self._decoders = [
            ImageDecoder(self._codec, entry.shape, DEPTHS[entry.depth], self.header.flags, entry.lossy)
            for entry in self.header.entries
        ]
        self._decoded: list[Image | None] = [None] * len(self._decoders)
        self._payload = bytearray()

    def _store(self, at: int, data: Bytes) -> int:
        self._payload += data.tobytes()
        done = 0
        while done < len(data):
            piece = int(np.searchsorted(self._ends, at + done, side="right"))
            size = min(int(self._ends[piece]) - at - done, len(data) - done)
            image = piece % len(self._decoders)
            self._decoders[image].feed(data[done : done + size].tobytes())
            self._decoded[image] = None
            done += size
        return 8 * (at + done)

    def _end_block(self) -> None:
        try:
            super()._end_block()
        except DamagedFile:  # decoders cannot step back: decode the verified payload again
            intact = self._payload[: self.verified]
            self._reset()
            self._store(0, np.frombuffer(intact, dtype=np.uint8))
            raise

    def images(self) -> list[Image]:
        """Return copies of all images."""
        for image, decoder in enumerate(self._decoders):
            if self._decoded[image] is None:
                self._decoded[image] = decoder.image(self._refiner)
        return [decoded.copy() for decoded in self._decoded if decoded is not None]
