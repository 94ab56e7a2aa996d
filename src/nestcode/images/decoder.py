"""Pictures get better as the bytes of their stream arrive."""

import numpy as np
from numpy.typing import NDArray

from nestcode.errors import DamagedFile
from nestcode.images.codec import ImageCodec, ImageDecoder, Picture
from nestcode.images.format import ImageStreamHeader, parse_image_header
from nestcode.images.stream import LIMIT, check_memory, find_codec
from nestcode.streams.payload import Checked
from nestcode.streams.shared import Chunked


class ImageStreamDecoder(Chunked["_Arrival"]):
    """Decodes a stream of pictures as it arrives, in chunks of any size.

    >>> from nestcode.data import sample_images
    >>> from nestcode.images import compress_images
    >>> data, decoder = compress_images([sample_images()["china"][:96, :96]]), ImageStreamDecoder()
    >>> for first in range(0, len(data), 1000):
    ...     decoder.feed(data[first : first + 1000])
    >>> decoder.names, decoder.pictures()[0].shape
    (('0',), (96, 96, 3))

    No bit is decoded twice, and `pictures()` paints again only those pictures of which more arrived.

    Args:
        coder: the one that made the stream, unless it is embedded or comes with Nestcode.
        limit: refuse streams that take more bytes of memory than this; all pictures are decoded side by side.

    """

    def __init__(self, coder: ImageCodec | None = None, *, limit: int = LIMIT) -> None:
        super().__init__(limit)
        self._given = coder

    def _begin(self, view: memoryview) -> "_Arrival":
        header = parse_image_header(view)
        check_memory(header, self._limit, at_once=True)
        return _Arrival(header, find_codec(header, view, self._given))

    @property
    def names(self) -> tuple[str, ...]:
        """Of the pictures."""
        return tuple(entry.name for entry in self._opened().header.entries)

    @property
    def length(self) -> float:
        """How many bits of a tile of 32 x 32 pixels arrived, on average."""
        return self._opened().bits / max(self._opened().header.tiles, 1)

    def pictures(self) -> list[Picture]:
        """All pictures, each as well as what arrived of it says."""
        return self._opened().pictures()


class _Arrival(Checked):
    """Pictures as their bytes arrive."""

    header: ImageStreamHeader

    def __init__(self, header: ImageStreamHeader, coder: ImageCodec) -> None:
        super().__init__(header)
        self._coder = coder
        self._ends = np.cumsum(header.steps.T.ravel())  # of the pieces of pictures, pass by pass
        self._begin()

    def _begin(self) -> None:
        self._decoders = [ImageDecoder(self._coder, entry.shape) for entry in self.header.entries]
        self._painted: list[Picture | None] = [None] * len(self._decoders)
        self._payload = bytearray()

    def _store(self, at: int, data: NDArray[np.uint8]) -> int:
        self._payload += data.tobytes()
        done = 0
        while done < len(data):
            piece = int(np.searchsorted(self._ends, at + done, side="right"))
            size = min(int(self._ends[piece]) - at - done, len(data) - done)
            picture = piece % len(self._decoders)
            self._decoders[picture].feed(data[done : done + size].tobytes())
            self._painted[picture] = None
            done += size
        return 8 * (at + done)

    def _seal(self) -> None:
        try:
            super()._seal()
        except DamagedFile:  # what was made of it cannot be taken back
            proven = self._payload[: self.verified]
            self._begin()
            self._store(0, np.frombuffer(proven, dtype=np.uint8))
            raise

    def pictures(self) -> list[Picture]:
        """All of them, copies."""
        for number, decoder in enumerate(self._decoders):
            if self._painted[number] is None:
                self._painted[number] = decoder.picture()
        return [picture.copy() for picture in self._painted if picture is not None]
