"""Images of any size as one stream of bytes: `compress_images`, and `decompress_images` of any prefix."""

import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nestcode import _core, metrics
from nestcode.arrays import check_int, is_number, shown
from nestcode.codes import thread_count
from nestcode.container.blocks import OnDamage, StoredBlocks, check_on_damage, report_damage
from nestcode.container.decoder import Buffer, as_view
from nestcode.container.files import FileView
from nestcode.errors import DamagedFile, InvalidInput
from nestcode.images.bitplanes import PASSES, UNLIMITED, Bitstream
from nestcode.images.codec import RECORD_KIND, ImageCodec, ImageDecoder, check_refiner, check_scale
from nestcode.images.format import (
    DEPTHS,
    Entry,
    ImageStreamHeader,
    check_bpp,
    check_name,
    check_profile,
    lay_out,
    parse_image_header,
)
from nestcode.images.image import Image, Tune, check_image, check_tune
from nestcode.images.lapped_dct import BLOCK
from nestcode.images.pool import map_in_order
from nestcode.images.pretrained import find_pretrained
from nestcode.images.refiner import Refiner
from nestcode.storage import parse_record, record_bytes

LIMIT = 8 << 30  # bytes of memory
COEFFICIENT = 6  # bytes of memory of a decoder for each coefficient
STRIPS = 20  # bytes for each coefficient of a row of blocks while pixels are reconstructed and filtered
MODEL = 1 << 20  # bytes of the context model of a decoder, at most: of a codec of version 1
SPARE = 1.25  # more than its share of the bytes that an image is encoded to at first
RESIDUAL = 1 << 20  # bytes of the model of a residual for each channel
PREVIEW_STEP = 32  # of the quantizer where residuals begin: 35 to 41 dB
SAMPLE = 12  # bytes of memory of an encoder for each value of a pixel, about
MAX_PSNR = 100  # dB
SECANTS = 8  # steps of the secant method before bisection
LEAST_ERROR = 1e-5  # squared error of a pixel value in [0, 255] that is stated at least


def compress_images(
    images: Sequence[Image],
    codec: ImageCodec | None = None,
    *,
    names: Sequence[str] | None = None,
    profiles: Sequence[bytes] | None = None,
    embed: bool = False,
    tune: Tune = "psnr",
    bpp: float | None = None,
    budget: int | None = None,
    psnr: float | None = None,
    ssim: float | None = None,
    lossless: bool = False,
    threads: int | None = 1,
) -> bytes:
    """Return images of any size as a stream; every prefix that includes the header decodes.

    >>> import nestcode as nc
    >>> image = nc.data.sample_images()["flower"][:128, :256]
    >>> data = compress_images([image])
    >>> size = nc.stream_info(data).header_bytes
    >>> decoded = [decompress_images(data[: size + cut])[0].astype(float) for cut in (0, 200, 1000, 5000)]
    >>> errors = [float(np.mean((some - image) ** 2)) for some in decoded]
    >>> errors == sorted(errors, reverse=True)
    True

    Args:
        images: uint8 or uint16 arrays (height, width) or (height, width, channels): gray, gray and alpha, RGB or RGBA.
        codec: by default the pretrained one, which receivers have.
        names: relative paths that differ; by default "0", "1", ….
        profiles: the ICC profile of each image, b"" for none; the stream keeps them unchanged.
        embed: put the codec into the stream, for receivers that do not have it.
        tune: "psnr" codes all channels with the same precision; "ssim" codes chroma three times as coarsely as luma,
            which eyes prefer.
        bpp: keep this rate, in bits of payload per pixel of all images together. Less than 8 bits in total keep only
            the header.
        budget: keep at most this many bytes, header included.
        psnr: keep the bits that each image needs for this PSNR in dB, over all its channels.
        ssim: keep the bits that each image needs for this SSIM of its luma.
        lossless: keep the images bit for bit; every prefix is a preview.
        threads: the number of images to encode at once; None uses all cores. The stream does not depend on it.

    Set at most one of `bpp`, `budget`, `psnr`, `ssim` and `lossless`. A lossless stream begins with the lossy stream,
    up to about 38 dB; the following bytes make the lines of each image exact, from the first to the last.

    >>> data = compress_images([image], lossless=True)
    >>> bool((decompress_images(data)[0] == image).all()), len(data) < image.nbytes / 2
    (True, True)
    """
    for given, what in ((names, "names"), (profiles, "profiles")):
        if given is not None and len(given) != len(images):
            raise InvalidInput(f"{what} must be one for each of {len(images)} images, got {len(given)}")
    if isinstance(images, np.ndarray) or not isinstance(images, Sequence):
        raise InvalidInput(
            f"images must be a list of arrays, got {type(images).__name__}: put one into [image], several into "
            "list(images)"
        )
    encoder = ImageStreamEncoder(codec, Target(bpp, budget, psnr, ssim, lossless), tune=tune, embed=embed)
    named = [str(k) for k in range(len(images))] if names is None else names
    items = list(zip(named, images, profiles or [b""] * len(images), strict=True))
    bitstreams = encoder.add_list(items, threads)
    header, embedded = encoder.finish()
    return b"".join(lay_out(header, embedded, lambda image, part: bitstreams[image][part]))


def decompress_images(
    data: Buffer,
    codec: ImageCodec | None = None,
    *,
    bpp: float | None = None,
    refiner: Refiner | None = None,
    scale: float = 1,
    limit: int = LIMIT,
    on_damage: OnDamage = "error",
    threads: int | None = 1,
) -> list[Image]:
    """Return the images of a stream, whole or truncated; without any payload they are gray.

    >>> data = compress_images([np.zeros((50, 40), dtype=np.uint8)])
    >>> [int(decompress_images(data, bpp=bpp)[0].mean()) for bpp in (0, 1)]
    [128, 0]

    Args:
        data: a stream of `compress_images` or `ImageStreamWriter`, whole or truncated.
        codec: the codec that made the stream, unless it is embedded or pretrained.
        bpp: use at most this rate, in bits of payload per pixel of all images together.
        refiner: a network that refines the decoded images, such as `Refiner.load()`; it takes some 150 MB beside
            `limit`.
        scale: 1/2, 1/4 or 1/8 decodes smaller images from the lowest frequencies of each block.
        limit: the most bytes of memory; a stream whose images need more is refused.
        on_damage: "keep" decodes the bytes before the first damaged block, and warns.
        threads: the number of images to decode at once, within `limit`; None uses all cores.

    """
    check_on_damage(on_damage)
    check_scale(scale, check_refiner(refiner))
    several = thread_count(threads)
    view = as_view(data)
    header = parse_image_header(view)
    room = check_memory(header.entries, limit)
    found = find_codec(header, view, codec)
    blocks = StoredBlocks(header, view)
    blocks.verify()
    report_damage(blocks.error(), on_damage)
    arrived = min(blocks.bits // 8, header.bytes_at(bpp))
    return list(
        map_in_order(
            lambda image: decode_image(header, blocks, found, image, arrived, refiner, scale),
            range(len(header.entries)),
            several,
            lambda image: decoder_memory(header.entries[image]),
            room,
        )
    )


def decode_image(
    header: ImageStreamHeader,
    blocks: StoredBlocks,
    codec: ImageCodec,
    image: int,
    arrived: int,
    refiner: Refiner | None = None,
    scale: float = 1,
) -> Image:
    """Return one image from the first `arrived` bytes of payload."""
    data = b"".join(blocks.read(part.start, part.stop).tobytes() for part in header.slices(image, arrived))
    entry = header.entries[image]
    decoder = ImageDecoder(codec, entry.shape, DEPTHS[entry.depth], header.flags, entry.lossy)
    decoder.feed(data)
    return decoder.image(refiner, scale=scale)


@dataclass(frozen=True)
class Target:
    """The target of truncation: a rate, a size, a quality of each image, or nothing."""

    bpp: float | None = None  # bits of payload per pixel of all images
    budget: int | None = None  # bytes, header included
    psnr: float | None = None  # dB
    ssim: float | None = None
    lossless: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.lossless, bool):
            raise InvalidInput(f"lossless must be True or False, got {self.lossless!r}")
        given = [name for name, value in vars(self).items() if value is not None and value is not False]
        if len(given) > 1:
            raise InvalidInput(
                f"at most one of bpp, budget, psnr, ssim and lossless may be given, got {' and '.join(given)}"
            )
        if self.bpp is not None:
            check_bpp(self.bpp)
        if self.budget is not None:
            check_int(self.budget, "budget", least=0)
        if self.psnr is not None and not _is_between(self.psnr, 0, MAX_PSNR):
            raise InvalidInput(
                f"psnr must be above 0 and below {MAX_PSNR} dB, got {shown(self.psnr)}: 35 is a good choice"
            )
        if self.ssim is not None and not _is_between(self.ssim, 0, 1):
            raise InvalidInput(f"ssim must be above 0 and below 1, got {shown(self.ssim)}: 0.95 is a good choice")

    def most_bytes(self, pixels: int) -> int:
        """Return the largest payload, in bytes, of images with this number of pixels."""
        if self.bpp is not None:
            return int(check_bpp(self.bpp) * pixels / 8)
        return UNLIMITED if self.budget is None else self.budget


def _is_between(value: Any, low: float, high: float) -> bool:
    return is_number(value) and low < value < high


def _warn_of_few_bits(name: str, image: Image) -> None:
    """Warn of values of at most 12 bits in an image of 16, whose errors are in proportion to 16."""
    largest = int(image.max()) if image.dtype == np.uint16 else 0
    if 0 < largest < 1 << 12:
        warnings.warn(
            f"image {name!r} has 16 bits per channel, of which values up to {largest} use {largest.bit_length()}: its "
            "error is in proportion to 16, so scale it up first",
            stacklevel=2,
        )


def _colors(image: Image) -> Image:
    """Return the red, green and blue of an image."""
    channels = image[..., None] if image.ndim == 2 else image
    return np.broadcast_to(channels[..., :1], (*image.shape[:2], 3)) if channels.shape[2] < 3 else channels[..., :3]


def _too_short(encoded: Sequence[tuple[Entry, Bitstream]], payload: int) -> list[int]:
    """Return the images whose rate limit ended them before this position of the payload, where the layout is known."""
    if payload == UNLIMITED:
        return []
    entries = tuple(entry for entry, _ in encoded)
    layout = ImageStreamHeader(entries=entries, quality=(), coder="", payload=payload, embedded=0)
    ends = layout.pass_starts + layout.pass_sizes
    return [
        image
        for image, (_, bitstream) in enumerate(encoded)
        if bitstream.complete < PASSES and ends[image, bitstream.complete] < payload
    ]


Item = tuple[str, Image, bytes]  # name, image and profile


class ImageStreamEncoder:
    """Encodes the images of a stream and makes its header; the caller keeps the bitstreams."""

    def __init__(self, codec: ImageCodec | None, target: Target, *, tune: Tune, embed: bool) -> None:
        self._codec = check_codec(ImageCodec.load() if codec is None else codec)
        self._codec.check_fitted()
        self._target, self._tune, self._embed = target, check_tune(tune), embed
        self._entries: list[Entry] = []
        self._errors = np.zeros(PASSES + target.lossless)  # squared errors of all values, after each pass
        self._values = 0
        self._names: set[str] = set()

    def add_all(self, items: Iterable[Item], threads: int | None = 1) -> Iterator[bytes]:
        """Return the bitstreams of more images, given with their names and profiles, encoded several at once."""
        most = UNLIMITED if self._target.budget is None else self._target.budget
        for entry, bitstream in self._encode_all(((item, most) for item in items), threads):
            self._add(entry, bitstream)
            yield bitstream.data

    def add_list(self, items: Sequence[Item], threads: int | None = 1) -> list[bytes]:
        """Return the bitstreams of all images of the stream, as far as the target's rate or size can reach.

        An image is first encoded to somewhat more than its share of the bytes by its pixels. If it ends before the
        stream does, it is encoded again to twice that size.
        """
        pixels = [math.prod(check_image(image).shape[:2]) for _, image, _ in items]
        most = self._target.most_bytes(sum(pixels))
        limits = [min(most, math.ceil(SPARE * most * own / sum(pixels))) for own in pixels]
        encoded = list(self._encode_all(zip(items, limits, strict=True), threads))
        while short := _too_short(encoded, most):
            for image in short:
                limits[image] = min(most, 2 * limits[image])
            again = self._encode_all(((items[image], limits[image]) for image in short), threads)
            for image, one in zip(short, again, strict=True):
                encoded[image] = one
        for entry, bitstream in encoded:
            self._add(entry, bitstream)
        return [bitstream.data for _, bitstream in encoded]

    def _encode_all(self, items: Iterable[tuple[Item, int]], threads: int | None) -> Iterator[tuple[Entry, Bitstream]]:
        """Yield images encoded to a limit of bytes each, in order."""

        def encode(limited: tuple[Item, int]) -> tuple[Entry, Bitstream]:
            (name, image, profile), limit = limited
            name, profile = check_name(name), check_profile(profile)
            check_image(image)
            if not self._target.lossless:
                _warn_of_few_bits(name, image)
            bitstream = self._encode(name, image, limit)
            return Entry(name, image.shape, bitstream.sizes, 8 * image.itemsize, profile), bitstream

        return map_in_order(
            encode, items, thread_count(threads), lambda limited: SAMPLE * check_image(limited[0][1]).size, LIMIT
        )

    def _add(self, entry: Entry, bitstream: Bitstream) -> None:
        if entry.name in self._names:
            raise InvalidInput(f"names of images must differ, got {entry.name!r} twice: rename one of them")
        self._names.add(entry.name)
        self._entries.append(entry)
        values = math.prod(entry.shape)
        self._errors += np.array(bitstream.errors) * values
        self._values += values

    def _encode(self, name: str, image: Image, limit: int) -> Bitstream:
        """Return the bitstream of an image up to a limit, or truncated to the quality that each image is to have."""
        if self._target.lossless:
            return self._encode_lossless(image)
        wanted = self._target.ssim if self._target.psnr is None else self._target.psnr
        if wanted is None:
            encoded = self._codec.encode_passes(image, limit, tune=self._tune)
            return replace(encoded, errors=tuple(np.maximum(encoded.errors, LEAST_ERROR).tolist()))
        encoded, size, shown = self._reach(name, image, wanted)
        sizes = np.minimum(encoded.sizes, size)
        errors = np.interp(sizes, encoded.sizes, np.maximum(encoded.errors, LEAST_ERROR))
        # In the middle of a pass the error is measured: some passes of few bytes remove much.
        errors[sizes == size] = max(255**2 * 10 ** (-metrics.psnr(image, shown) / 10), LEAST_ERROR)
        return Bitstream(encoded.data[:size], tuple(sizes.tolist()), tuple(errors.tolist()))

    def _encode_lossless(self, image: Image) -> Bitstream:
        """Return the bitstream of an image up to a preview, and behind it the residual as one more pass."""
        finer = max(0, int(math.log2(PREVIEW_STEP / self._codec.step)))  # bit planes behind the preview
        passes, limit = PASSES - 3 * finer, 1 + math.prod(image.shape[:2]) // 16  # 0.5 bpp
        while True:
            encoded = self._codec.encode_passes(image, limit, tune=self._tune)
            if encoded.complete >= passes:
                break
            limit *= 2
        sizes = encoded.sizes[:passes] + encoded.sizes[passes - 1 : passes] * (PASSES - passes)
        preview = encoded.data[: sizes[-1]]
        shown = self._codec.decode(preview, image.shape, image.dtype)
        pixels = [np.ascontiguousarray(one).reshape(*image.shape[:2], -1) for one in (shown, image)]
        data = preview + _core.encode_residual(*pixels)
        errors = np.maximum(encoded.errors, LEAST_ERROR)
        errors[passes - 1 :] = max(255**2 * 10 ** (-metrics.psnr(image, shown) / 10), LEAST_ERROR)
        return Bitstream(data, (*sizes, len(data)), (*errors.tolist(), 0.0))

    def _reach(self, name: str, image: Image, wanted: float) -> tuple[Bitstream, int, Image]:
        """Return a bitstream, the number of its bytes that reach the target's quality, and their decoded image.

        They are the fewest within half a percent. The secant method finds them, over the PSNR that the encoder expects
        at each size, since PSNR and the logarithm of SSIM are almost linear in it; bisection finishes if it does not.
        """
        low, limit = 0, 1 + math.prod(check_image(image).shape[:2]) // 16  # 0.5 bpp
        while True:
            encoded = self._codec.encode_passes(image, limit, tune=self._tune)
            high = len(encoded.data)
            shown, reached = self._decode(encoded, high, image)
            if reached >= wanted:
                break
            if encoded.complete == PASSES:
                unit, metric = (" dB", "psnr") if self._target.ssim is None else ("", "ssim")
                most = f"{math.floor(reached * 1000) / 1000:g}"  # rounded down, so that it can be reached
                finer = ", or fit a finer codec, ImageCodec(step=1), and give it (--coder)" * (self._codec.step > 1)
                raise InvalidInput(
                    f"{metric} must be at most {most}{unit}, which all bits of image {name!r} give, got {wanted:g}: "
                    f"lower it{finer}"
                )
            low, limit = high, 2 * limit
        expected = np.maximum.accumulate(-10 * np.log10(np.maximum(encoded.errors, LEAST_ERROR) / 255**2))
        at, off, slope = float(expected[-1]), self._decibels(reached) - self._decibels(wanted), 1.0
        steps = 0
        while high - low > 1 + high // 200:
            middle = float(np.interp(at - off / slope, expected, encoded.sizes))
            middle += math.copysign(high / 400, low + high - 2 * middle)  # so that it replaces the farther bound
            size = min(max(int(middle), low + 1), high - 1) if steps < SECANTS else (low + high) // 2
            decoded, reached = self._decode(encoded, size, image)
            low, high, shown = (low, size, decoded) if reached >= wanted else (size, high, shown)
            before, at = (at, off), float(np.interp(size, encoded.sizes, expected))
            off = self._decibels(reached) - self._decibels(wanted)
            if at != before[0]:
                slope = min(max((off - before[1]) / (at - before[0]), 1 / 4), 4.0)
            steps += 1
        return encoded, high, shown

    def _decode(self, encoded: Bitstream, size: int, image: Image) -> tuple[Image, float]:
        """Return the image decoded from the first bytes of a bitstream, and its quality by the target's metric."""
        shown = self._codec.decode(encoded.data[:size], image.shape, image.dtype)
        if self._target.ssim is None:
            return shown, metrics.psnr(image, shown)
        return shown, metrics.ssim(_colors(image), _colors(shown))

    def _decibels(self, quality: float) -> float:
        """Return a quality in units that rise about as fast as the PSNR."""
        return min(MAX_PSNR, quality if self._target.ssim is None else -10 * math.log10(max(1 - quality, LEAST_ERROR)))

    def finish(self) -> tuple[ImageStreamHeader, bytes]:
        """Return the header of the stream, truncated to the target, and the embedded codec."""
        record = self._codec.to_record()
        embedded = record_bytes(record) if self._embed else b""
        errors = self._errors / max(self._values, 1) / 255**2
        quality = tuple(round(-100 * math.log10(error)) if error > 0 else 999 for error in errors.tolist())
        header = ImageStreamHeader(
            entries=tuple(self._entries), quality=quality, coder=record.fingerprint,
            payload=sum(entry.sizes[-1] for entry in self._entries), embedded=len(embedded),
            lossless=self._target.lossless,
        )  # fmt: skip
        if self._target.bpp is not None:
            header = header.truncate(header.bytes_at(self._target.bpp))
        budget = self._target.budget
        if budget is not None and header.total > budget:
            cut = header.truncate_to_total(budget)
            if cut.total > budget:
                remedies = ["leave out embed"] if self._embed else []
                remedies += ["leave out the profiles"] if any(entry.profile for entry in cut.entries) else []
                raise InvalidInput(
                    f"budget must be at least the {cut.size} bytes of the header, got {budget}: "
                    + " or ".join(["raise it", *remedies])
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
    name = find_pretrained(header.coder)
    if name is not None:
        return ImageCodec.load(name)
    raise InvalidInput(f"{made_by}, which is neither embedded nor shipped with Nestcode: give the codec")


def decoder_memory(entry: Entry) -> int:
    """Return the bytes of memory that decoding an image takes in addition to its pixels."""
    strips = STRIPS * entry.coefficients // -(-entry.shape[0] // BLOCK)
    exact = 0
    if entry.residual:  # a second copy of the pixels, bytes that are joined and copied, models
        exact = entry.nbytes + 3 * entry.residual + RESIDUAL * (*entry.shape, 1)[2]
    return COEFFICIENT * entry.coefficients + MODEL + strips + exact


def check_memory(entries: Sequence[Entry], limit: int, *, progressive: bool = False) -> int:
    """Refuse images that take more memory than `limit`, decoded one after another or progressively side by side.

    Return the part of the limit that the pixels leave to decoders.
    """
    pixels = sum(entry.coefficients * entry.depth // 8 for entry in entries)
    decoders = [decoder_memory(entry) for entry in entries]
    # Side by side there is a second copy of the pixels.
    most = 2 * pixels + sum(decoders) if progressive else pixels + max(decoders, default=0)
    if most > check_int(limit, "limit", least=0):
        raise InvalidInput(
            f"the stream's {len(entries)} images take {most} bytes of memory, more than the limit of {limit}: give a "
            "larger limit, or read them one by one with ImageStreamReader"
        )
    return limit - pixels
