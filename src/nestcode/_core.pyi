import numpy as np
from numpy.typing import NDArray

def hamming(
    a: NDArray[np.uint8], b: NDArray[np.uint8], out: NDArray[np.int32], threads: int = 1, simd: str = ""
) -> None: ...
def common_prefix(
    a: NDArray[np.uint8], b: NDArray[np.uint8], width: int, out: NDArray[np.int32], threads: int = 1
) -> None: ...
def sort_order(packed: NDArray[np.uint8], order: NDArray[np.int64]) -> None: ...
def find_cells(
    numbers: NDArray[np.float32],
    thresholds: NDArray[np.float32],
    depths: NDArray[np.uint8],
    cells: NDArray[np.uint8],
    threads: int = 1,
) -> None: ...
def permute_bits(
    packed: NDArray[np.uint8], sources: NDArray[np.int32], out: NDArray[np.uint8], threads: int = 1
) -> None: ...
def sum_tables(
    cells: NDArray[np.uint8], tables: NDArray[np.float32], out: NDArray[np.float32], threads: int = 1
) -> None: ...
def simd_names() -> list[str]: ...
