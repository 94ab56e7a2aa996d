"""Pictures of any size as bytes that can be cut anywhere: compress, decompress, and what a stream says of itself."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from nestcode.arrays import check_int
from nestcode.coders.pretrained import find_pretrained
from nestcode.errors import DamagedFile, InvalidInput
from nestcode.images.codec import PASSES, Encoded, ImageCodec, Picture
from nestcode.images.format import TILE, Entry, ImageStreamHeader, check_name, lay_out, parse_image_header
from nestcode.storage import parse_record, record_bytes
from nestcode.streams.payload import Blocks, settle
from nestcode.streams.stream import Buffer, Told, as_view, check_choice

LIMIT = 8 << 30  # bytes of memory
WORK, HELD = 40, 9  # of which so many go for each number of a picture: when it is decoded, and while it waits for more
MODEL = 1 << 20  # bytes that it has learnt in between


@dataclass(frozen=True)
class ImageStreamInfo(Told):
    """What a stream of pictures, whole or cut, holds.

    >>> from nestcode.data import sample_images
    >>> data = compress_images(list(sample_images().values()), length=100)
    >>> known = stream_info(data[:4000])
    >>> known.count, round(known.width), round(known.length), known.verified
    (2, 100, 54, 0)
    """

    header_bytes: int  # a cut after so many bytes or more can be decoded
    total_bytes: int  # of the whole stream
    count: int  # pictures
    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    width: float  # bits of a tile of 32 x 32 pixels in the whole stream, on average
    length: float  # of which so many arrived
    expected_error: float  # mean squared, of a pixel between 0 and 1
    coder: str  # its fingerprint
    embedded: bool  # whether the coder is in the stream
    verified: int  # bytes of payload that their checksums prove
    unverified: int  # bytes of payload that arrived without their checksum
    damaged: int | None  # the first block that is not as it was written
    trailing: int  # bytes after the end

    def __str__(self) -> str:
        shown = [f"{name} {' x '.join(map(str, shape))}" for name, shape in zip(self.names, self.shapes, strict=True)]
        lines = [
            f"{self.count} pictures{': ' if shown else ''}{', '.join(shown[:3])}{', …' if self.count > 3 else ''}",
            f"{self.length:.0f} of {self.width:.0f} bits of a tile of 32 x 32 pixels arrived, expected error "
            f"{self.expected_error:.4g} ({-10 * math.log10(self.expected_error):.1f} dB)",
            *self._state("ImageCodec"),
        ]
        return "\n".join(lines)


def compress_images(
    pictures: Sequence[Picture],
    coder: ImageCodec | None = None,
    *,
    names: Sequence[str] | None = None,
    embed: bool = False,
    length: int | None = None,
    budget: int | None = None,
    max_error: float | None = None,
) -> bytes:
    """Pictures of any size as a stream: cut anywhere after its header, it decodes, and each further byte helps.

    >>> from nestcode.data import sample_images
    >>> picture = sample_images()["flower"][:128, :256]
    >>> data = compress_images([picture])
    >>> size = stream_info(data).header_bytes
    >>> cuts = [decompress_images(data[: size + n])[0].astype(float) for n in (0, 200, 1000, 5000)]
    >>> errors = [float(np.mean((cut - picture) ** 2)) for cut in cuts]
    >>> errors == sorted(errors, reverse=True)
    True

    Args:
        pictures: arrays of bytes, (height, width) or (height, width, channels): grey or color, with opacity or without.
        coder: by default the one that comes with Nestcode.
        names: of the pictures, as paths; by default they are numbered.
        embed: put the coder into the stream, so that nobody needs to have it.
        length: keep at most so many bits of a tile of 32 x 32 pixels, on average over all pictures.
        budget: keep at most so many bytes in all.
        max_error: keep no more than each picture needs for this mean squared error of a pixel between 0 and 1.

    """
    if names is not None and len(names) != len(pictures):
        raise InvalidInput(f"names must be one for each of {len(pictures)} pictures, got {len(names)}")
    if isinstance(pictures, np.ndarray) or not isinstance(pictures, Sequence):
        raise InvalidInput(
            f"pictures must be a list of arrays, got {type(pictures).__name__}: "
            "put one into [picture], several into list(pictures)"
        )
    coder = ImageCodec.load() if coder is None else coder
    collection = Collection(coder, max_error)
    kept: list[bytes] = []
    for number, picture in enumerate(pictures):
        name = str(number) if names is None else names[number]
        kept.append(collection.add(name, picture))
    header, embedded = collection.finish(embed=embed, length=length, budget=budget)
    return b"".join(lay_out(header, embedded, lambda number, some: kept[number][some]))


def decompress_images(
    data: Buffer,
    coder: ImageCodec | None = None,
    *,
    length: int | None = None,
    limit: int = LIMIT,
    on_damage: Literal["error", "keep"] = "error",
) -> list[Picture]:
    """The pictures of a stream, whole or cut; without bits, they are grey.

    >>> data = compress_images([np.zeros((50, 40), dtype=np.uint8)])
    >>> [int(decompress_images(data, length=length)[0].mean()) for length in (0, 1000)]
    [128, 0]

    Args:
        data: what `compress_images` or `ImageStreamWriter` made, or the beginning of it.
        coder: the one that made it, unless it is embedded or comes with Nestcode.
        length: use at most so many bits of a tile of 32 x 32 pixels, on average.
        limit: refuse what takes more bytes of memory than this.
        on_damage: "keep" decodes what precedes a damaged block, and warns.

    """
    check_choice(on_damage)
    view = as_view(data)
    header = parse_image_header(view)
    check_memory(header, limit)
    found = find_codec(header, view, coder)
    blocks = Blocks(header, view)
    blocks.verify()
    settle(blocks.error(), on_damage)
    arrived = min(blocks.bits // 8, header.bytes_for(length))
    return [decode_one(header, blocks, found, number, arrived) for number in range(len(header.entries))]


def stream_info(data: Buffer) -> ImageStreamInfo:
    """What a stream of pictures holds and how much of it arrived; no coder is needed.

    >>> from nestcode.data import sample_images
    >>> data = compress_images([sample_images()["china"][:64, :64]], names=["china.png"])
    >>> known = stream_info(data[:-100])
    >>> known.names, known.shapes, known.total_bytes == len(data), known.damaged
    (('china.png',), ((64, 64, 3),), True, None)
    """
    view = as_view(data)
    header = parse_image_header(view)
    blocks = Blocks(header, view)
    blocks.verify()
    return describe(header, blocks)


def describe(header: ImageStreamHeader, blocks: Blocks) -> ImageStreamInfo:
    """What is known of a payload."""
    tiles = max(header.tiles, 1)
    return ImageStreamInfo(
        header_bytes=header.size, total_bytes=header.total, count=len(header.entries),
        names=tuple(entry.name for entry in header.entries), shapes=tuple(entry.shape for entry in header.entries),
        width=8 * header.payload / tiles, length=blocks.bits / tiles, expected_error=header.error_at(blocks.bits // 8),
        coder=header.coder, embedded=header.embedded > 0, verified=blocks.verified, unverified=blocks.unverified,
        damaged=blocks.damaged, trailing=blocks.trailing,
    )  # fmt: skip


def decode_one(header: ImageStreamHeader, blocks: Blocks, coder: ImageCodec, number: int, arrived: int) -> Picture:
    """One picture, out of so many bytes of payload."""
    data = b"".join(blocks.read(some.start, some.stop).tobytes() for some in header.pieces(number, arrived))
    return coder.decode(data, header.entries[number].shape)


class Collection:
    """Pictures that are to become a stream; whoever adds them keeps their bytes."""

    def __init__(self, coder: ImageCodec, max_error: float | None = None) -> None:
        if not isinstance(coder, ImageCodec):
            raise InvalidInput(f"coder must be an ImageCodec, got {coder!r}: ImageCodec.load() gives one")
        if max_error is not None and not (isinstance(max_error, int | float) and 0 < max_error <= 1):
            raise InvalidInput(f"max_error must be between 0 and 1, got {max_error!r}: 0.001 is 30 dB")
        coder._check_fitted()
        self._coder, self._max_error = coder, max_error
        self._entries: list[Entry] = []
        self._errors = np.zeros(PASSES)
        self._pixels = 0
        self._names: set[str] = set()

    def add(self, name: str, picture: Picture) -> bytes:
        """The bytes of one more picture."""
        name = check_name(name)
        if name in self._names:
            raise InvalidInput(f"names of pictures must differ, got {name!r} twice")
        encoded = self._coder._encode(picture)
        kept = len(encoded.data) if self._max_error is None else self._needed(picture, encoded, self._max_error)
        sizes = np.minimum(encoded.sizes, kept)
        self._names.add(name)
        self._entries.append(Entry(name, picture.shape, tuple(sizes.tolist())))
        self._errors += np.asarray(encoded.errors)[np.searchsorted(sizes, sizes)] * picture.size
        self._pixels += picture.size
        return encoded.data[:kept]

    def _needed(self, picture: Picture, encoded: Encoded, most: float) -> int:
        """The fewest bytes that leave no more than that error."""

        def error(count: int) -> float:
            missing = self._coder.decode(encoded.data[:count], picture.shape).astype(np.float32) - picture
            return float(np.mean(missing**2)) / 255**2

        low, high = 0, len(encoded.data)
        if error(high) > most:
            raise InvalidInput(
                f"max_error {most:g} is less than the {error(high):.2g} that all bits leave: give a larger one, or a "
                f"coder of a smaller step than {self._coder.step:g}"
            )
        while high - low > 1 + high // 200:
            middle = (low + high) // 2
            low, high = (low, middle) if error(middle) <= most else (middle, high)
        return high

    def finish(self, *, embed: bool, length: int | None, budget: int | None) -> tuple[ImageStreamHeader, bytes]:
        """The header, and the coder if it goes with it."""
        record = self._coder.to_record()
        embedded = record_bytes(record) if embed else b""
        errors = self._errors / max(self._pixels, 1) / 255**2
        quality = tuple(round(-100 * math.log10(error)) if error > 0 else 999 for error in errors.tolist())
        header = ImageStreamHeader(
            entries=tuple(self._entries), quality=quality, coder=record.fingerprint,
            payload=sum(entry.sizes[-1] for entry in self._entries), embedded=len(embedded),
        )  # fmt: skip
        if length is not None:
            header = header.cut_to(header.bytes_for(length))
        if budget is not None and header.total > check_int(budget, "budget", least=0):
            cut = header.cut_within(budget)
            if cut.total > budget:
                raise InvalidInput(
                    f"budget must be at least the {cut.size} bytes of the header, got {budget}"
                    + (": leave out embed" if embed else "")
                )
            header = cut
        return header, embedded


def find_codec(header: ImageStreamHeader, data: memoryview, coder: ImageCodec | None) -> ImageCodec:
    """The coder that made a stream: the one given, embedded or shipped."""
    made_by = f"the stream was made by an ImageCodec with fingerprint {header.coder}"
    if coder is not None:
        if not isinstance(coder, ImageCodec):
            raise InvalidInput(f"coder must be an ImageCodec, got {coder!r}: ImageCodec.load() gives one")
        if coder.fingerprint != header.coder:
            raise InvalidInput(f"{made_by}, the coder given has {coder.fingerprint}: give the coder that made it")
        return coder
    if header.embedded:
        where = "the coder in the stream"
        record = parse_record(bytes(data[header.size - header.embedded : header.size]), where)
        if record.kind != "PictureCoder" or record.fingerprint != header.coder:
            raise DamagedFile(f"{made_by}, but another is embedded: restore a copy")
        return ImageCodec.from_record(record, where)
    name = find_pretrained(header.coder, "images")
    if name is not None:
        return ImageCodec.load(name)
    raise InvalidInput(f"{made_by}, which neither comes with Nestcode nor is embedded: give the coder that made it")


def check_memory(header: ImageStreamHeader, limit: int, *, at_once: bool = False) -> None:
    """Refuse what would take too much memory, with the pictures decoded one after the other or side by side."""
    numbers = [entry.tiles * TILE**2 * (*entry.shape, 1)[2] for entry in header.entries]
    most = sum(numbers) + WORK * max(numbers, default=0)
    if at_once:
        most += sum(HELD * count + MODEL for count in numbers)
    if most > check_int(limit, "limit", least=0):
        raise InvalidInput(
            f"the stream's {len(numbers)} pictures take {most} bytes of memory, more than the limit of {limit}: give a "
            "larger limit, or read them one by one by ImageStreamReader"
        )
