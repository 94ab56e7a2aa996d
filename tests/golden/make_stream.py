"""Make the golden streams of the present version: plain, entropy coded, with the coder embedded, and of pictures.

    python -m tests.golden.make_stream

Made once when a version of the layout is new, and never again: every later Nestcode must read these very bytes. Beside
them, `stream-v1.coder` made them and `stream-v1.json` says what they hold; `pictures-v1.json` does so for pictures,
whose coder has learnt nothing. The data follows from arithmetic.
"""

import hashlib
import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nestcode import LinearCoder, compress, decompress
from nestcode.images import ImageCodec, compress_images, decompress_images
from nestcode.images.codec import ImageDecoder, Picture
from nestcode.images.format import VERSION as PICTURES_VERSION
from nestcode.images.format import parse_image_header
from nestcode.streams.format import VERSION

HERE = Path(__file__).parent
KINDS: dict[str, dict[str, bool]] = {"plain": {}, "entropy": {"entropy": True}, "embedded": {"embed": True}}


def images() -> NDArray[np.uint8]:
    """700 pictures of 4 x 3 pixels, some of them more often than others."""
    i, j = (np.arange(700) ** 2 % 41)[:, None], np.arange(12)
    whole: NDArray[np.int64] = 128 + (i * 37 + j * 91 + i * i * (j + 1)) % 101 // (j + 1)
    return whole.astype(np.uint8).reshape(-1, 4, 3)


SHAPES = {"wide.png": (130, 140, 3), "below/grey.png": (35, 9), "opacity.png": (20, 33, 4), "a é.png": (1, 1, 2)}


def pictures() -> list[Picture]:
    """Of all kinds, the first large enough to turn its colors."""
    out = []
    for shape in SHAPES.values():
        i, j, k = np.meshgrid(*map(np.arange, (*shape, 1)[:3]), indexing="ij")
        ramps, busy = 30 * k + i + j // 2, (i * j // 3 + i * i + 7 * j * (k + 1)) % 31
        out.append(((ramps + np.where(i % 64 < 10, busy, 0)) % 256).astype(np.uint8).reshape(shape))
    return out


def blank() -> ImageCodec:
    """A coder that has learnt nothing: a grey picture has no bits."""
    return ImageCodec().fit([np.full((1, 1), 128, dtype=np.uint8)])


def decoders(data: bytes, arrived: int) -> list[ImageDecoder]:
    """Of the pictures of a stream whose payload is one piece after the other, as `docs/format.md` says."""
    header = parse_image_header(memoryview(data))
    payload = b"".join(data[at : at + 4096] for at in range(header.size, len(data), 4100))[: header.payload]
    out = []
    for number, entry in enumerate(header.entries):
        out.append(ImageDecoder(blank(), entry.shape))
        for piece in header.pieces(number, arrived):
            out[-1].feed(payload[piece])
    return out


def numbers(decoder: ImageDecoder) -> str:
    """A checksum of all that is known of a picture, in whole numbers."""
    known = np.zeros(0, np.int32) if decoder._known is None else decoder._known
    return hashlib.sha256(known.astype("<i4").tobytes()).hexdigest()


def make_pictures() -> None:
    """Write the stream of pictures and what it holds."""
    path = HERE / f"pictures-v{PICTURES_VERSION}.nest"
    check_new(path)
    data = compress_images(pictures(), blank(), names=list(SHAPES))
    header = parse_image_header(memoryview(data))
    path.write_bytes(data)
    held = {
        str(arrived): {
            "numbers": [numbers(decoder) for decoder in decoders(data, arrived)],
            "pixels": [
                picture.ravel()[::97].tolist()
                for picture in decompress_images(data[: header.size + arrived + 4 * (arrived // 4096)], blank())
            ],
        }
        for arrived in (0, 700, 5000, header.payload)
    }
    path.with_suffix(".json").write_text(json.dumps({"coder": blank().fingerprint, "held": held}) + "\n")


def check_new(path: Path) -> None:
    """Golden streams are never made again."""
    if path.exists():
        raise SystemExit(f"{path} is there: golden streams are made once, and kept as long as they must be readable")


def make_items() -> None:
    """Write the streams of items and what they hold."""
    start = HERE / f"stream-v{VERSION}"
    check_new(start.with_suffix(".coder"))
    coder = LinearCoder(width=70).fit(images().reshape(700, 12))
    coder.save(start.with_suffix(".coder"))
    for name, options in KINDS.items():
        start.with_name(f"{start.name}-{name}.nest").write_bytes(compress(images(), coder, **options))
    whole = compress(images(), coder)
    held = {
        "codes": coder.encode(images().reshape(700, 12)).packed.tobytes().hex(),
        "items": decompress(whole, coder)[:50].tolist(),
        "cut at 4000": decompress(whole[:4000], coder)[:50].tolist(),
    }
    start.with_suffix(".json").write_text(json.dumps(held) + "\n")


if __name__ == "__main__":
    for make in (make_pictures, make_items):
        make()
