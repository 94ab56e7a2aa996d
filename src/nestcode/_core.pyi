from collections.abc import Sequence
from typing import Any

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
def read_planes(
    packed: NDArray[np.uint8],
    owners: NDArray[np.int32],
    first: int,
    numbers: NDArray[np.float32],
    out: NDArray[np.float32],
    threads: int = 1,
) -> None: ...
def sum_tables(
    cells: NDArray[np.uint8], tables: NDArray[np.float32], out: NDArray[np.float32], threads: int = 1
) -> None: ...
def extend_beams(
    errors: NDArray[np.float32],
    products: NDArray[np.float32],
    norms: NDArray[np.float32],
    from_beam: NDArray[np.uint16],
    entry: NDArray[np.uint16],
    new_errors: NDArray[np.float32],
    threads: int = 1,
) -> None: ...
def sum_entries(
    cells: NDArray[np.uint8], codebooks: NDArray[np.float32], out: NDArray[np.float32], threads: int = 1
) -> None: ...
def find_widest(levels: NDArray[np.int16], out: NDArray[np.int32], threads: int = 1) -> None: ...
def encode_adaptive(
    rows: NDArray[np.float32],
    levels: NDArray[np.int16],
    books: NDArray[np.float32],
    changes: NDArray[np.int16],
    beams: int,
    out: NDArray[np.uint8],
    threads: int = 1,
) -> None: ...
def decode_adaptive(
    codes: NDArray[np.uint8],
    levels: NDArray[np.int16],
    books: NDArray[np.float32],
    changes: NDArray[np.int16],
    out: NDArray[np.float32],
    threads: int = 1,
) -> None: ...
def simd_names() -> list[str]: ...

class Guard:
    def __init__(self, data: NDArray[np.uint8], sums: NDArray[np.uint64]) -> None: ...
    def touch(self, begin: int, end: int) -> None: ...
    def verify(self) -> None: ...
    @property
    def damaged(self) -> int: ...

class Tree:
    def __init__(
        self,
        owner: object,
        rows: NDArray[np.uint8],
        heads: NDArray[np.uint64],
        order: NDArray[np.uint32],
        tables: NDArray[np.uint32],
        dead: NDArray[np.uint32],
        ids: NDArray[np.int64],
        width: int,
        rows_guard: Guard | None = None,
        heads_guard: Guard | None = None,
        tables_guard: Guard | None = None,
        ids_guard: Guard | None = None,
    ) -> None: ...

class Forest:
    def __init__(self, trees: Sequence[Tree], width: int) -> None: ...
    def neighborhood(
        self, query: Any, *, size: int | None = None, fraction: float | None = None, threads: int | None = 1
    ) -> Any: ...
    def _find_neighborhoods(
        self,
        queries: NDArray[np.uint8],
        size: int,
        lengths: NDArray[np.int32],
        counts: NDArray[np.int64],
        ranges: NDArray[np.uint32],
        threads: int = 1,
    ) -> None: ...
    def _find_prefixes(
        self, query: NDArray[np.uint8], counts: NDArray[np.int64], ranges: NDArray[np.uint32]
    ) -> None: ...
    def _gather_ids(self, neighborhood: Neighborhood, ids: NDArray[np.int64]) -> None: ...
    def _merge(self, rows: NDArray[np.uint8], heads: NDArray[np.uint64], ids: NDArray[np.int64]) -> None: ...
    @property
    def _damaged(self) -> bool: ...

class Neighborhood:
    def __init__(self, forest: Forest, length: int, count: int, ranges: NDArray[np.uint32]) -> None: ...
    @property
    def length(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def ids(self) -> NDArray[np.int64]: ...

def insert_rows(
    packed: NDArray[np.uint8],
    first: int,
    heads: NDArray[np.uint64],
    order: NDArray[np.uint32],
    new_heads: NDArray[np.uint64],
    new_order: NDArray[np.uint32],
) -> None: ...
def find_ids(
    ids: NDArray[np.int64],
    places: NDArray[np.uint32],
    wanted: NDArray[np.int64],
    found: NDArray[np.int64],
    ids_guard: Guard | None = None,
    places_guard: Guard | None = None,
) -> None: ...
def load_heads(packed: NDArray[np.uint8], heads: NDArray[np.uint64]) -> None: ...
def build_tables(heads: NDArray[np.uint64], width: int) -> NDArray[np.uint32]: ...
def block_sums(data: NDArray[np.uint8]) -> NDArray[np.uint64]: ...

class SearchPart:
    def __init__(
        self,
        rows: NDArray[np.uint8],
        starts: NDArray[np.uint32],
        skipped: NDArray[np.uint32],
        blocks: NDArray[np.uint8],
        block_starts: NDArray[np.uint32],
        biases: NDArray[np.int16],
        unit: float,
        norms: NDArray[np.float32],
    ) -> None: ...

class ScanGroups:
    def __init__(
        self, directions: NDArray[np.int32], numbers: NDArray[np.float32], parents: NDArray[np.float32]
    ) -> None: ...

class SumCells:
    def __init__(
        self,
        products: NDArray[np.float32],
        rest: NDArray[np.float32],
        offsets: NDArray[np.float32],
        scales: NDArray[np.float32],
        shifts: NDArray[np.float32],
    ) -> None: ...

class SearchOutputs:
    def __init__(
        self, scores: NDArray[np.float32], places: NDArray[np.uint32], compared: NDArray[np.int64]
    ) -> None: ...

class Searcher:
    def __init__(self, parts: Sequence[SearchPart]) -> None: ...
    def blocks(
        self,
        cells: SumCells,
        norms: NDArray[np.float32],
        queries: NDArray[np.float32],
        groups: ScanGroups,
        inner: bool,
        candidates: int,
        out: SearchOutputs,
        threads: int = 1,
        simd: str = "",
    ) -> None: ...
    def tables(
        self,
        cells: SumCells,
        tables: NDArray[np.float32],
        inner: bool,
        candidates: int,
        out: SearchOutputs,
        threads: int = 1,
    ) -> None: ...
    def hamming(
        self, queries: NDArray[np.uint8], candidates: int, out: SearchOutputs, threads: int = 1, simd: str = ""
    ) -> None: ...

def rescore(
    vectors: NDArray[np.float32],
    queries: NDArray[np.float32],
    items: NDArray[np.int64],
    metric: str,
    out: NDArray[np.float32],
    threads: int,
    shift: NDArray[np.float32],
    square: float,
    products: NDArray[np.float32],
) -> None: ...
def take_nearest(
    distances: NDArray[np.float32],
    ids: NDArray[np.int64],
    near: NDArray[np.float32],
    near_ids: NDArray[np.int64],
    threads: int = 1,
) -> None: ...
def fill_blocks(cells: NDArray[np.uint8], places: NDArray[np.uint32], out: NDArray[np.uint8]) -> None: ...

class CodeEncoder:
    def __init__(self, width: int) -> None: ...
    def encode(self, packed: NDArray[np.uint8], group: int) -> None: ...
    def finish(self) -> bytes: ...

class CodeDecoder:
    def __init__(self, count: int, width: int, plain: NDArray[np.uint8]) -> None: ...
    def feed(self, data: NDArray[np.uint8]) -> int: ...

class PictureModel:
    def __init__(self) -> None: ...
    def write(self, chances: NDArray[np.uint16], seen: NDArray[np.uint8], weights: NDArray[np.int32]) -> None: ...
    def read(self, chances: NDArray[np.uint16], seen: NDArray[np.uint8], weights: NDArray[np.int32]) -> None: ...

class PictureReader:
    def __init__(self, model: PictureModel, kinds: list[int], planes: int, known: NDArray[np.int32]) -> None: ...
    def feed(self, data: bytes) -> None: ...
    @property
    def plane(self) -> int: ...

def picture_model_sizes() -> tuple[int, int]: ...
def encode_picture(
    model: PictureModel, kinds: list[int], numbers: NDArray[np.int32], planes: int, limit: int, learn: bool
) -> tuple[bytes, list[tuple[int, float]]]: ...
