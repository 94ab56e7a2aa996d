"""Semantic hashing, the paper's baseline: `semantic_hashing.cpp`, compiled into `build/` on first use."""

import ctypes
import os
import subprocess
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nestcode import Codes

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "benchmarks/semantic_hashing.cpp"


class HashTable:
    """A hash table of sorted codes."""

    def __init__(self, codes: Codes) -> None:
        self._library, self._packed = _library(), np.ascontiguousarray(codes.packed)
        self._width = codes.width
        self._table = self._library.hash_table_new(self._packed.ctypes, *self._packed.shape)

    def __del__(self) -> None:
        self._library.hash_table_delete(self._table)

    def search(self, queries: Codes, radius: int, max_probes: int) -> tuple[NDArray[np.int64], int]:
        """Return the number of items within a Hamming radius of each query, and the number of probes.

        A query stops after `max_probes`.
        """
        if queries.width != self._width:
            raise ValueError(
                f"queries must have the table's width {self._width}, got {queries.width}: encode them alike"
            )
        packed, found = np.ascontiguousarray(queries.packed), np.empty(len(queries), dtype=np.int64)
        probes: int = self._library.hash_table_search(
            self._table, packed.ctypes, *packed.shape, self._width, radius, max_probes, found.ctypes
        )
        return found, probes


@cache
def _library() -> ctypes.CDLL:
    """Return the compiled library; compile it if it is missing or older than its sources."""
    built = ROOT / "build/semantic_hashing.so"
    newest = max(path.stat().st_mtime for path in (SOURCE, ROOT / "cpp/nestcode/rows.hpp"))
    if not built.exists() or built.stat().st_mtime < newest:
        built.parent.mkdir(exist_ok=True)
        compiler = os.environ.get("CXX", "c++")
        flags = ["-std=c++20", "-O3", "-shared", "-fPIC", f"-I{ROOT / 'cpp'}"]
        subprocess.run([compiler, *flags, str(SOURCE), "-o", str(built)], check=True)
    library = ctypes.CDLL(str(built))
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    library.hash_table_new.argtypes, library.hash_table_new.restype = [pointer, size, size], pointer
    library.hash_table_delete.argtypes, library.hash_table_delete.restype = [pointer], None
    library.hash_table_search.argtypes = [
        *(pointer, pointer, size, size),
        *(ctypes.c_int32, ctypes.c_int32, ctypes.c_uint64, pointer),
    ]
    library.hash_table_search.restype = ctypes.c_uint64
    return library
