"""Make the golden streams of the present version: plain, entropy coded, and with the coder embedded.

    python -m tests.golden.make_stream

Made once when a version of the layout is new, and never again: every later Nestcode must read these very bytes. Beside
them, `stream-v1.coder` made them and `stream-v1.json` says what they hold. The data follows from arithmetic.
"""

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nestcode import LinearCoder, compress, decompress
from nestcode.streams.format import VERSION

HERE = Path(__file__).parent
KINDS: dict[str, dict[str, bool]] = {"plain": {}, "entropy": {"entropy": True}, "embedded": {"embed": True}}


def images() -> NDArray[np.uint8]:
    """700 pictures of 4 x 3 pixels, some of them more often than others."""
    i, j = (np.arange(700) ** 2 % 41)[:, None], np.arange(12)
    whole: NDArray[np.int64] = 128 + (i * 37 + j * 91 + i * i * (j + 1)) % 101 // (j + 1)
    return whole.astype(np.uint8).reshape(-1, 4, 3)


def main() -> None:
    """Write the streams and what they hold."""
    start = HERE / f"stream-v{VERSION}"
    if start.with_suffix(".coder").exists():
        raise SystemExit(f"{start} is there: golden streams are made once, and kept as long as they must be readable")
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
    main()
