"""Images of any size as one stream of bytes: `compress_images`, and `decompress_images` of any prefix."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from nestcode.arrays import check_int
from nestcode.coders.pretrained import find_pretrained
from nestcode.container.blocks import OnDamage, StoredBlocks, check_on_damage, report_damage
from nestcode.container.decoder import Buffer, as_view
from nestcode.container.files import FileView
from nestcode.errors import DamagedFile, InvalidInput
from nestcode.images.bitplanes import PASSES, Bitstream
from nestcode.images.codec import RECORD_KIND, Image, ImageCodec
from nestcode.images.format import Entry, ImageStreamHeader, check_name, lay_out, parse_image_header
from nestcode.images.lapped_dct import BLOCK
from nestcode.storage import parse_record, record_bytes

LIMIT = 8 << 30  # bytes of memory
COEFFICIENT = 9  # bytes of memory of a decoder for each coefficient
STRIPS = 8  # bytes for each coefficient of a row of blocks while pixels are reconstructed
MODEL = 1 << 20  # bytes of the context model of a decoder


def compress_images(
    images: Sequence[Image],
    codec: ImageCodec | None = None,
    *,
    names: Sequence[str] | None = None,
    embed: bool = False,
    bpp: float | None = None,
    budget: int | None = None,
    max_error: float | None = None,
) -> bytes:
    """Return images of any size as a stream: truncated anywhere after its header it decodes, each further byte helps.

    >>> import nestcode as nc
    >>> image = nc.data.sample_images()["flower"][:128, :256]
    >>> data = compress_images([image])
    >>> size = nc.stream_info(data).header_bytes
    >>> decoded = [decompress_images(data[: size + cut])[0].astype(float) for cut in (0, 200, 1000, 5000)]
    >>> errors = [float(np.mean((some - image) ** 2)) for some in decoded]
    >>> errors == sorted(errors, reverse=True)
    True

    Args:
        images: uint8 arrays (height, width) or (height, width, channels): gray, gray and alpha, RGB or RGBA.
        codec: by default the pretrained one, which receivers have.
        names: relative paths that differ; by default "0", "1", ….
        embed: put the codec into the stream, so that receivers need not have it.
        bpp: keep this rate, in bits of payload per pixel of all images together.
        budget: keep at most this many bytes, header included.
        max_error: keep what each image needs for this mean squared error of a pixel value in [0, 1].

    """
    if names is not None and len(names) != len(images):
        raise InvalidInput(f"names must be one for each of {len(images)} images, got {len(names)}")
    if isinstance(images, np.ndarray) or not isinstance(images, Sequence):
        raise InvalidInput(
            f"images must be a list of arrays, got {type(images).__name__}: put one into [image], several into "
            "list(images)"
        )
    encoder = ImageStreamEncoder(codec, max_error)
    bitstreams = [encoder.add(str(k) if names is None else names[k], image) for k, image in enumerate(images)]
    header, embedded = encoder.finish(embed=embed, bpp=bpp, budget=budget)
    return b"".join(lay_out(header, embedded, lambda image, part: bitstreams[image][part]))


def decompress_images(
    data: Buffer,
    codec: ImageCodec | None = None,
    *,
    bpp: float | None = None,
    limit: int = LIMIT,
    on_damage: OnDamage = "error",
) -> list[Image]:
    """Return the images of a stream, whole or truncated; without any payload they are gray.

    >>> data = compress_images([np.zeros((50, 40), dtype=np.uint8)])
    >>> [int(decompress_images(data, bpp=bpp)[0].mean()) for bpp in (0, 1)]
    [128, 0]

    Args:
        data: what `compress_images` or `ImageStreamWriter` made, whole or truncated.
        codec: the one that made it, unless it is embedded or ships with Nestcode.
        bpp: use at most this rate, in bits of payload per pixel of all images together.
        limit: refuse streams whose images take more bytes of memory than this.
        on_damage: "keep" decodes what precedes the first damaged block, and warns.

    """
    check_on_damage(on_damage)
    view = as_view(data)
    header = parse_image_header(view)
    check_memory(header.entries, limit)
    found = find_codec(header, view, codec)
    blocks = StoredBlocks(header, view)
    blocks.verify()
    report_damage(blocks.error(), on_damage)
    arrived = min(blocks.bits // 8, header.bytes_at(bpp))
    return [decode_image(header, blocks, found, image, arrived) for image in range(len(header.entries))]


def decode_image(header: ImageStreamHeader, blocks: StoredBlocks, codec: ImageCodec, image: int, arrived: int) -> Image:
    """Return one image from the first `arrived` bytes of payload."""
    data = b"".join(blocks.read(part.start, part.stop).tobytes() for part in header.slices(image, arrived))
    return codec.decode(data, header.entries[image].shape)


class ImageStreamEncoder:
    """Encodes the images of a stream one by one and makes its header; the caller keeps the bitstreams."""

    def __init__(self, codec: ImageCodec | None = None, max_error: float | None = None) -> None:
        self._codec = check_codec(ImageCodec.load() if codec is None else codec)
        if max_error is not None and not (isinstance(max_error, int | float) and 0 < max_error <= 1):
            raise InvalidInput(f"max_error must be above 0 and at most 1, got {max_error!r}: 0.001 is 30 dB")
        self._codec.check_fitted()
        self._max_error = max_error
        self._entries: list[Entry] = []
        self._errors = np.zeros(PASSES)  # squared errors of all values, after each pass
        self._values = 0
        self._names: set[str] = set()

    def add(self, name: str, image: Image) -> bytes:
        """Return the bitstream of one more image."""
        name = check_name(name)
        if name in self._names:
            raise InvalidInput(f"names of images must differ, got {name!r} twice: rename one of them")
        encoded = self._codec.encode_passes(image)
        size = len(encoded.data) if self._max_error is None else self._size_for(image, encoded, self._max_error)
        sizes = np.minimum(encoded.sizes, size)
        self._names.add(name)
        self._entries.append(Entry(name, image.shape, tuple(sizes.tolist())))
        self._errors += np.asarray(encoded.errors)[np.searchsorted(sizes, sizes)] * image.size
        self._values += image.size
        return encoded.data[:size]

    def _size_for(self, image: Image, encoded: Bitstream, most: float) -> int:
        """Find the fewest bytes, within half a percent, that leave at most that error, by bisection."""

        def error(size: int) -> float:
            difference = self._codec.decode(encoded.data[:size], image.shape).astype(np.float32) - image
            return float(np.mean(difference**2)) / 255**2

        low, high = 0, len(encoded.data)
        if error(high) > most:
            raise InvalidInput(
                f"max_error {most:g} is less than the {error(high):.2g} that all bits leave: give a larger one, or a "
                f"codec of a smaller step than {self._codec.step:g}"
            )
        while high - low > 1 + high // 200:
            middle = (low + high) // 2
            low, high = (low, middle) if error(middle) <= most else (middle, high)
        return high

    def finish(self, *, embed: bool, bpp: float | None, budget: int | None) -> tuple[ImageStreamHeader, bytes]:
        """Return the header of the stream, truncated as requested, and the embedded codec."""
        record = self._codec.to_record()
        embedded = record_bytes(record) if embed else b""
        errors = self._errors / max(self._values, 1) / 255**2
        quality = tuple(round(-100 * math.log10(error)) if error > 0 else 999 for error in errors.tolist())
        header = ImageStreamHeader(
            entries=tuple(self._entries), quality=quality, coder=record.fingerprint,
            payload=sum(entry.sizes[-1] for entry in self._entries), embedded=len(embedded),
        )  # fmt: skip
        if bpp is not None:
            header = header.truncate(header.bytes_at(bpp))
        if budget is not None and header.total > check_int(budget, "budget", least=0):
            cut = header.truncate_to_total(budget)
            if cut.total > budget:
                raise InvalidInput(
                    f"budget must be at least the {cut.size} bytes of the header, got {budget}"
                    + (": leave out embed" if embed else "")
                )
            header = cut
        return header, embedded


def check_codec(codec: Any) -> ImageCodec:
    """Return the codec, or raise if it is none."""
    if not isinstance(codec, ImageCodec):
        raise InvalidInput(f"codec must be an ImageCodec, got {codec!r}: ImageCodec.load() returns one")
    return codec


def find_codec(header: ImageStreamHeader, view: memoryview | FileView, codec: Any) -> ImageCodec:
    """Return the codec that made a stream: the given one, the embedded one or a pretrained one."""
    made_by = f"the stream was made by an ImageCodec with fingerprint {header.coder}"
    if codec is not None:
        if check_codec(codec).fingerprint != header.coder:
            raise InvalidInput(f"{made_by}, the given codec has {codec.fingerprint}: give the codec that made it")
        return check_codec(codec)
    if header.embedded:
        source = "the codec in the stream"
        record = parse_record(bytes(view[header.size - header.embedded : header.size]), source)
        if record.kind != RECORD_KIND or record.fingerprint != header.coder:
            raise DamagedFile(f"{made_by}, but another is embedded: restore a copy")
        return ImageCodec.from_record(record, source)
    name = find_pretrained(header.coder, "images")
    if name is not None:
        return ImageCodec.load(name)
    raise InvalidInput(f"{made_by}, which is neither embedded nor shipped with Nestcode: give the codec")


def check_memory(entries: Sequence[Entry], limit: int, *, progressive: bool = False) -> None:
    """Refuse images that take more memory than `limit`, decoded one after another or progressively side by side."""
    counts = [entry.coefficients for entry in entries]
    decoders = [COEFFICIENT * count + MODEL for count in counts]
    strips = [STRIPS * entry.coefficients // -(-entry.shape[0] // BLOCK) for entry in entries]
    if progressive:  # and a second copy of the pixels
        most = 2 * sum(counts) + sum(decoders) + max(strips, default=0)
    else:
        most = sum(counts) + max(map(sum, zip(decoders, strips, strict=True)), default=0)
    if most > check_int(limit, "limit", least=0):
        raise InvalidInput(
            f"the stream's {len(counts)} images take {most} bytes of memory, more than the limit of {limit}: give a "
            "larger limit, or read them one by one with ImageStreamReader"
        )
