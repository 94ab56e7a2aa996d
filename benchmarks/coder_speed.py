"""The cost of LinearCoder relative to its projection.

Encoding is timed relative to the float32 matrix product of the same data and directions, decoding a prefix relative to
decoding the whole code. CIFAR-10 with --data DIR, else patches of the sample images.
"""

import numpy as np

from _report import arguments, images, save, seconds_each, show
from nestcode import LinearCoder


def main() -> None:
    """Measure, print and save."""
    options = arguments(__doc__)
    name, train, test = images(options)
    width = min(1024, 4 * train.shape[1])
    coder = LinearCoder(width).fit(train)
    X = test.astype(np.float32)
    codes, short = coder.encode(X), coder.encode(X).prefix(64)
    directions = coder.projection().directions
    best = seconds_each(
        {
            "product": lambda: X @ directions.T,
            "encode": lambda: coder.encode(X),
            "encode uint8": lambda: coder.encode(test),
            "decode": lambda: coder.decode(codes),
            "decode 64": lambda: coder.decode(short),
        },
        rounds=5,
    )
    rows = [
        {
            "images": len(X),
            "features": X.shape[1],
            "directions": len(directions),
            "bits": width,
            "product ms": 1e3 * best["product"],
            "encode / product": best["encode"] / best["product"],
            "uint8 / product": best["encode uint8"] / best["product"],
            "decode 64 / decode all": best["decode 64"] / best["decode"],
        }
    ]
    show(f"LinearCoder, {name}", rows, "Best of 5 interleaved rounds.")
    save(options.json, rows, ["nestcode", "numpy"])


if __name__ == "__main__":
    main()
