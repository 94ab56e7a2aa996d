"""Write the golden file of a rotation coder, which stores a seed: `python -m tests.golden.make_rotation`."""

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nestcode import RotationCoder

HERE = Path(__file__).parent


def vectors() -> NDArray[np.float64]:
    """Return the same 40 vectors in every version of NumPy."""
    return np.cos(np.outer(np.arange(40), np.arange(1, 14) ** 1.5))


def main() -> None:
    """Write the coder, and what it encodes and decodes."""
    coder = RotationCoder(width=30, metric="cosine", seed=11).fit(vectors())
    codes = coder.encode(vectors())
    coder.save(HERE / "rotation-v1.coder")
    held = {"codes": codes.packed.tobytes().hex(), "decoded": coder.decode(codes).round(4).tolist()}
    (HERE / "rotation-v1.json").write_text(json.dumps(held) + "\n")


if __name__ == "__main__":
    main()
