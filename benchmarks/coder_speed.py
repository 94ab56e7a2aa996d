"""The cost of LinearCoder and ResidualCoder relative to matrix products.

LinearCoder: encoding is timed relative to the float32 matrix product of the same data and directions, decoding a prefix
relative to decoding the whole code. ResidualCoder: encoding and fitting relative to the product of the coefficients and
all codebooks, which a beam search that multiplies the residuals of all beams takes as many times as there are beams.
CIFAR-10 with --data DIR, else patches of the sample images.
"""

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from _report import arguments, images, save, seconds_each, show
from nestcode import LinearCoder, ResidualCoder


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
    residual = measure_residual(X, 32 if options.quick else 256)
    show(f"ResidualCoder, {name}", [residual], "Best of 3 interleaved rounds, fit of 1.")
    save(options.json, [*rows, residual], ["nestcode", "numpy"])


def measure_residual(X: NDArray[np.float32], width: int) -> dict[str, Any]:
    """Return the time of ResidualCoder over that of the product of coefficients and codebooks."""
    start = time.perf_counter()
    coder = ResidualCoder(width).fit(X)
    fit = time.perf_counter() - start
    directions, codebooks = coder.projection().directions, coder.to_record().arrays["books"]
    coefficients, entries = X @ directions.T, codebooks.reshape(-1, len(directions)).T.copy()
    best = seconds_each({"product": lambda: coefficients @ entries, "encode": lambda: coder.encode(X)}, rounds=3)
    return {
        "items": len(X),
        "directions": len(directions),
        "bits": width,
        "beams": coder.beams,
        "product ms": 1e3 * best["product"],
        "encode / product": best["encode"] / best["product"],
        "fit / product": fit / best["product"],
    }


if __name__ == "__main__":
    main()
