"""Entropy coding of codes: the ratio of bits of the stream to bits of the codes, and the throughput on one thread.

Codes of three coders for scikit-learn's digits and for images (CIFAR-10's first 5,000 test images with --data); codes
of an ordered autoencoder whose bits are 1 with probability 0.2; and independent random bits of that probability, whose
entropy is 0.722 bits. Decoding is verified.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from _report import arguments, images, save, seconds_each, show
from nestcode import AdaptiveCoder, LinearCoder, ResidualCoder, _core
from nestcode.coders import AutoencoderCoder, Coder
from nestcode.data import digits
from nestcode.streams.entropy import entropy_encode
from nestcode.training import Network, Training


def main() -> None:
    """Measure, print and save."""
    options = arguments(__doc__)
    name, train, test = images(options)
    train, test = train[:: len(train) // 5000 or 1], test[:5000]
    small, _ = digits()
    if options.quick:
        train, test, small = train[:300], test[:300], small[:300]
    sets: dict[str, tuple[NDArray[Any], NDArray[Any], int]] = {
        "digits": (small, small, 32 if options.quick else 64),
        name: (train, test, 32 if options.quick else 256),
    }
    rows = [random_bits(0.2, 200 if options.quick else 5000), random_bits(0.5, 200 if options.quick else 5000)]
    training = Training(steps=3 if options.quick else 1000)
    sparse = AutoencoderCoder(width=64, network=Network(beta=0.2), training=training).fit(small, progress=False)
    rows.append(measure("digits", "AutoencoderCoder, beta 0.2", sparse.encode(small).packed, 64))
    for label, (train_rows, rows_to_code, width) in sets.items():
        for kind in (LinearCoder, AdaptiveCoder, ResidualCoder):
            coder: Coder = kind(width=width).fit(train_rows)
            rows.append(measure(label, kind.__name__, coder.encode(rows_to_code).packed, width))
    show("Entropy coding", rows, "ratio: bits of the stream per bit of the codes.")
    save(options.json, rows, ["nestcode", "numpy"])


def random_bits(one: float, count: int) -> dict[str, str | int | float]:
    """Measure independent bits that are 1 with that probability."""
    bits = np.random.default_rng(0).random((count, 256)) < one
    return measure("random", f"P(1) = {one}", np.packbits(bits, axis=1), 256)


def measure(label: str, coder: str, packed: NDArray[np.uint8], width: int) -> dict[str, str | int | float]:
    """Measure one set of codes."""
    data = np.frombuffer(entropy_encode(packed, width), dtype=np.uint8)

    def decode() -> NDArray[np.uint8]:
        plain = np.zeros(packed.size, dtype=np.uint8)
        assert _core.CodeDecoder(len(packed), width, plain).feed(data, len(packed) * width) == len(packed) * width
        return plain

    groups = [packed[:, first : first + 8].tobytes() for first in range(0, packed.shape[1], 8)]
    assert decode().tobytes() == b"".join(groups)
    best = seconds_each({"encode": lambda: entropy_encode(packed, width), "decode": decode}, rounds=2)
    bits = len(packed) * width
    return {
        "items": label,
        "coder": coder,
        "count": len(packed),
        "width": width,
        "ratio": 8 * len(data) / bits,
        "encode Mbit/s": bits / best["encode"] / 1e6,
        "decode Mbit/s": bits / best["decode"] / 1e6,
    }


if __name__ == "__main__":
    main()
