"""Streams of images written to files, one image for each thread in memory at a time."""

import os
from collections.abc import Iterable

from nestcode.container.files import SpooledWriter
from nestcode.images.codec import ImageCodec
from nestcode.images.format import lay_out
from nestcode.images.image import Image, Tune
from nestcode.images.stream import ImageStreamEncoder, Target
from nestcode.storage import write_pieces


class ImageStreamWriter(SpooledWriter):
    """Writes a stream of images that come one by one; the file appears when it is complete, or not at all.

    >>> import tempfile
    >>> from pathlib import Path
    >>> import nestcode as nc
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "samples.nest"
    ...     with ImageStreamWriter(path, bpp=0.1) as writer:
    ...         for name, image in nc.data.sample_images().items():
    ...             writer.add(name, image)
    ...     with nc.ImageStreamReader(path) as reader:
    ...         reader.names, reader["china"].shape
    (('china', 'flower'), (427, 640, 3))

    Until then bitstreams are spooled to an unnamed temporary file in the same folder, which disappears however the
    process ends.

    Args:
        path: the file; an existing one is replaced once the new one is complete.
        codec, embed, tune, bpp, budget, psnr, ssim, lossless: as in `compress_images`.

    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        codec: ImageCodec | None = None,
        *,
        embed: bool = False,
        tune: Tune = "psnr",
        bpp: float | None = None,
        budget: int | None = None,
        psnr: float | None = None,
        ssim: float | None = None,
        lossless: bool = False,
    ) -> None:
        target = Target(bpp, budget, psnr, ssim, lossless)
        self._encoder = ImageStreamEncoder(codec, target, tune=tune, embed=embed)
        self._starts = [0]  # of the bitstreams in the spool
        super().__init__(path)

    def add(self, name: str, image: Image, profile: bytes = b"") -> None:
        """Add an image, a uint8 or uint16 array (height, width) or (height, width, channels), and its ICC profile."""
        self.add_all([(name, image, profile)])

    def add_all(self, images: Iterable[tuple[str, Image, bytes]], threads: int | None = 1) -> None:
        """Add images with their names and profiles, encoded by several threads; None is one for each core.

        Images are drawn one by one, and memory holds one for each thread.
        """
        self._check_open()
        for data in self._encoder.add_all(images, threads):
            try:
                self._append(data)
            except BaseException:
                self.discard()
                raise
            self._starts.append(self._starts[-1] + len(data))

    def _finish(self) -> None:
        header, embedded = self._encoder.finish()
        spooled = self._map_spool() if self._starts[-1] else b""

        def read(image: int, part: slice) -> bytes:
            return spooled[self._starts[image] + part.start : self._starts[image] + part.stop]

        write_pieces(self.path, lay_out(header, embedded, read))
