"""Hamming distances from one query to many codes: nestcode against FAISS's flat binary index and NumPy, one thread.

Two tasks. "all": all distances, `Codes.hamming` against FAISS's `hammings`. "nearest": the nearest code,
`Codes.hamming(...).argmin()` against `IndexBinaryFlat.search(k=1)`. Both check that the results agree.
"""

import faiss
import numpy as np
from numpy.typing import NDArray

from _report import arguments, save, seconds_each, show
from nestcode import Codes


def main() -> None:
    """Measure, print and save."""
    options = arguments(__doc__)
    faiss.omp_set_num_threads(1)
    counts = (1000,) if options.quick else (10_000, 100_000, 1_000_000)
    rows = [measure(width, count, rounds=20) for width in (256, 2048) for count in counts]
    show(
        "Hamming distances of one query, one thread: ms",
        rows,
        "x: speed-up over FAISS; best of 20 interleaved rounds.",
    )
    save(options.json, rows, ["nestcode", "numpy", "faiss-cpu"])


def measure(width: int, count: int, rounds: int) -> dict[str, float | int]:
    """Measure both tasks at one size."""
    packed = np.random.default_rng(0).integers(0, 256, (count, width // 8), dtype=np.uint8)
    query = packed[count // 2 : count // 2 + 1].copy()
    codes, code = Codes(packed, width), Codes(query, width)
    index = faiss.IndexBinaryFlat(width)
    index.add(packed)

    def faiss_all() -> NDArray[np.int32]:
        distances = np.empty((1, count), dtype=np.int32)  # allocated each time, as in ours
        pointers = (faiss.swig_ptr(array) for array in (query, packed))
        faiss.hammings(*pointers, 1, count, width // 8, faiss.swig_ptr(distances))  # type: ignore[attr-defined]
        return distances

    def numpy_all() -> NDArray[np.int64]:
        total: NDArray[np.int64] = np.bitwise_count(packed ^ query).sum(axis=1, dtype=np.int64)
        return total

    ours = code.hamming(codes)
    assert np.array_equal(ours, faiss_all())
    assert np.array_equal(ours[0], numpy_all())
    assert ours.argmin() == index.search(query, 1)[1][0, 0] == count // 2
    best = seconds_each(
        {
            "ours": lambda: code.hamming(codes),
            "faiss": faiss_all,
            "ours nearest": lambda: code.hamming(codes).argmin(),
            "faiss nearest": lambda: index.search(query, 1),
        },
        rounds,
    )
    best |= seconds_each({"numpy": numpy_all}, rounds=2)
    return {
        "bits": width,
        "codes": count,
        "nestcode all": 1e3 * best["ours"],
        "FAISS all": 1e3 * best["faiss"],
        "all x": best["faiss"] / best["ours"],
        "nestcode nearest": 1e3 * best["ours nearest"],
        "FAISS nearest": 1e3 * best["faiss nearest"],
        "nearest x": best["faiss nearest"] / best["ours nearest"],
        "NumPy all": 1e3 * best["numpy"],
    }


if __name__ == "__main__":
    main()
