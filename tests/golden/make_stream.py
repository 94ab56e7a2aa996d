"""Make the golden streams of the current version: plain, entropy coded, with an embedded coder, and of images.

    python -m tests.golden.make_stream

They are made once, when a version of the format is new: every later Nestcode must read these bytes. `stream-v1.coder`
made the streams of items and `stream-v1.json` has their contents; `images-v1.json` has those of the images, whose codec
is untrained, and `images-v1-pixels.json` checksums of their pixels. The data is computed from integers.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestcode import LinearCoder, _core, compress, decompress
from nestcode.images import ImageCodec, compress_images, decompress_images
from nestcode.images.codec import RECORD_KIND, ImageDecoder
from nestcode.images.format import VERSION as IMAGES_VERSION
from nestcode.images.format import parse_image_header
from nestcode.images.image import Image
from nestcode.storage import Record
from nestcode.streams.format import VERSION

HERE = Path(__file__).parent
KINDS: dict[str, dict[str, bool]] = {"plain": {}, "entropy": {"entropy": True}, "embedded": {"embed": True}}


def items() -> NDArray[np.uint8]:
    """700 items of 4 x 3 values, some of them more frequent than others."""
    i, j = (np.arange(700) ** 2 % 41)[:, None], np.arange(12)
    whole: NDArray[np.int64] = 128 + (i * 37 + j * 91 + i * i * (j + 1)) % 101 // (j + 1)
    return whole.astype(np.uint8).reshape(-1, 4, 3)


SHAPES = {"wide.png": (130, 140, 3), "below/grey.png": (35, 9), "opacity.png": (20, 33, 4), "a é.png": (1, 1, 2)}


MANY = [bytes(range(200)), b"", bytes(range(200)), b"another"]
PROFILES = {1: [b""] * 4, 2: MANY, 3: MANY, 4: MANY, 5: MANY}  # by version


def images(version: int) -> list[Image]:
    """Images of all kinds, the first large enough to rotate its colors, the others of 16 bits since version 2."""
    out: list[Image] = []
    for shape in SHAPES.values():
        i, j, k = np.meshgrid(*map(np.arange, (*shape, 1)[:3]), indexing="ij")
        ramps, busy = 30 * k + i + j // 2, (i * j // 3 + i * i + 7 * j * (k + 1)) % 31
        image = ((ramps + np.where(i % 64 < 10, busy, 0)) % 256).astype(np.uint8).reshape(shape)
        out.append(image.astype(np.uint16) * 256 + 7 * image if version > 1 and out else image)
    return out


def blank(version: int = IMAGES_VERSION) -> ImageCodec:
    """An untrained codec of a version of streams: a gray image has no bits to train on."""
    if version > 3:
        return ImageCodec().fit([np.full((1, 1), 128, dtype=np.uint8)])
    contexts = _core.image_model_sizes(1)[0]
    weights = np.repeat(np.array([(4 << 16) // 25, (4 << 16) // 16], dtype=np.int32), [480 * 8, 20 * 5])
    arrays: dict[str, NDArray[Any]] = {
        "chances": np.full(contexts, 1 << 15, np.uint16), "seen": np.zeros(contexts, np.uint8), "weights": weights
    }  # fmt: skip
    return ImageCodec.from_record(Record(RECORD_KIND, 1, {"step": 4.0}, arrays), "blank")


def blank_of(data: bytes) -> ImageCodec:
    """The untrained codec that made a golden stream."""
    return blank(int.from_bytes(data[8:12], "little"))


def bitstreams(data: bytes, arrived: int) -> dict[tuple[int, ...], bytes]:
    """Shapes and bitstreams of the images of a stream, of `arrived` bytes as `docs/format.md` describes the payload."""
    header = parse_image_header(memoryview(data))
    payload = b"".join(data[at : at + 4096] for at in range(header.size, len(data), 4100))[: header.payload]
    return {
        entry.shape: b"".join(payload[part] for part in header.slices(image, arrived))
        for image, entry in enumerate(header.entries)
    }


def decoders(data: bytes, arrived: int) -> list[ImageDecoder]:
    """Decoders of the images of a stream, fed with the first `arrived` bytes of its payload."""
    out, entries = [], parse_image_header(memoryview(data)).entries
    for entry, part in zip(entries, bitstreams(data, arrived).values(), strict=True):
        out.append(ImageDecoder(blank_of(data), entry.shape, f"u{entry.depth // 8}", lossy=entry.lossy))
        out[-1].feed(part)
    return out


def known_bits(decoder: ImageDecoder) -> str:
    """A checksum of the bits that a decoder knows of all coefficients."""
    return hashlib.sha256(np.array(decoder._decoder.known, dtype="<i4").tobytes()).hexdigest()


def make_images() -> None:
    """Write the stream of images and its contents."""
    path = HERE / f"images-v{IMAGES_VERSION}.nest"
    check_new(path)
    made, profiles = images(IMAGES_VERSION), PROFILES[IMAGES_VERSION]
    data = compress_images(made, blank(), names=list(SHAPES), profiles=profiles, tune="ssim", lossless=True)
    header = parse_image_header(memoryview(data))
    path.write_bytes(data)
    held = {
        str(arrived): {
            "numbers": [known_bits(decoder) for decoder in decoders(data, arrived)],
            "pixels": [
                image.ravel()[::97].tolist()
                for image in decompress_images(data[: header.size + arrived + 4 * (arrived // 4096)], blank())
            ],
        }
        for arrived in (0, 700, 5000, header.payload)
    }
    path.with_suffix(".json").write_text(json.dumps({"coder": blank().fingerprint, "held": held}) + "\n")


def pixel_digests(data: bytes) -> dict[str, str]:
    """Checksums of all pixels that the first bytes of a stream decode to, by their number."""
    start = parse_image_header(memoryview(data)).size
    cuts = [start, start + 1, *range(start + 500, len(data), 1500), len(data)]
    decoded = {str(cut): decompress_images(data[:cut], blank_of(data)) for cut in cuts}
    return {cut: hashlib.sha256(b"".join(map(np.ndarray.tobytes, some))).hexdigest() for cut, some in decoded.items()}


def make_pixels() -> None:
    """Write the checksums of the pixels of the stream of images, the same on every machine."""
    data, path = (HERE / f"images-v{IMAGES_VERSION}{end}" for end in (".nest", "-pixels.json"))
    check_new(path)
    path.write_text(json.dumps(pixel_digests(data.read_bytes()), indent=1) + "\n")


def check_new(path: Path) -> None:
    """Refuse to overwrite a golden stream."""
    if path.exists():
        raise SystemExit(f"{path} exists: golden streams are made once and never overwritten")


def make_items() -> None:
    """Write the streams of items and their contents."""
    start = HERE / f"stream-v{VERSION}"
    check_new(start.with_suffix(".coder"))
    coder = LinearCoder(width=70).fit(items().reshape(700, 12))
    coder.save(start.with_suffix(".coder"))
    for name, options in KINDS.items():
        start.with_name(f"{start.name}-{name}.nest").write_bytes(compress(items(), coder, **options))
    whole = compress(items(), coder)
    held = {
        "codes": coder.encode(items().reshape(700, 12)).packed.tobytes().hex(),
        "items": decompress(whole, coder)[:50].tolist(),
        "cut at 4000": decompress(whole[:4000], coder)[:50].tolist(),
    }
    start.with_suffix(".json").write_text(json.dumps(held) + "\n")


if __name__ == "__main__":
    for make in (make_images, make_pixels, make_items):
        make()
