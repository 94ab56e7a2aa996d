"""The C++ kernels (`cpp/nestcode`, bound in `cpp/python`).

Arrays must have the given dtype and be C-contiguous, except that the rows of packed codes may have any stride. Results
are written into the arrays passed as `out` and the like. Shapes that do not fit raise ValueError, and a worker thread
that runs out of memory raises MemoryError. `simd` names an instruction set of `simd_names()`; the default is the
fastest one.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

_Metric = Literal["l2", "cosine", "inner"]

# Packed codes (cpp/python/codes.cpp)

def hamming(
    a: NDArray[np.uint8], b: NDArray[np.uint8], out: NDArray[np.int32], threads: int = 1, simd: str = ""
) -> None:
    """Write the Hamming distance of every pair of rows, (rows of a, rows of b)."""

def common_prefix(
    a: NDArray[np.uint8], b: NDArray[np.uint8], width: int, out: NDArray[np.int32], threads: int = 1
) -> None:
    """Write the length of the longest common prefix of every pair of rows, (rows of a, rows of b)."""

def argsort_rows(packed: NDArray[np.uint8], order: NDArray[np.int64]) -> None:
    """Write the stable argsort of the rows in lexicographic order."""

def simd_names() -> list[str]:
    """Return the instruction sets that this processor supports, slowest first."""

# Quantizers and ADC (cpp/python/coders.cpp)

def center_rows(
    rows: NDArray[np.floating[Any]],
    mean: NDArray[np.floating[Any]],
    normalize: bool,
    most: float,
    out: NDArray[np.floating[Any]],
    threads: int = 1,
) -> bool:
    """Write rows, L2-normalized where `normalize` is set, less the mean unless it is empty, in the type of `out`.

    Rows and mean are float32 or float64, `out` is the same or float32. Return whether no value is NaN or above `most`.
    """

def sum_squares(rows: NDArray[np.floating[Any]], out: NDArray[np.float64], threads: int = 1) -> None:
    """Write the squared norms of rows, float32 or float64, in float64."""

def split_intervals(
    values: NDArray[np.float64],
    sums: NDArray[np.float64],
    edges: NDArray[np.int64],
    levels: NDArray[np.float64],
    parts: NDArray[np.int64],
    thresholds: NDArray[np.float32],
    means: NDArray[np.float64],
) -> float:
    """Write two-means splits of the intervals between edges of sorted values, which have these running sums.

    Write the edges, thresholds and means of the parts; an empty part has its parent's level. Return by how much the
    squares that the levels explain rise.
    """

def quantize_scalars(
    coefficients: NDArray[np.float32],
    thresholds: NDArray[np.float32],
    depths: NDArray[np.uint8],
    intervals: NDArray[np.uint8],
    threads: int = 1,
) -> None:
    """Write the interval of each coefficient in its direction's tree of thresholds, as the high bits of a byte."""

def permute_bits(
    packed: NDArray[np.uint8], sources: NDArray[np.int32], out: NDArray[np.uint8], threads: int = 1
) -> None:
    """Write rows whose bit j is bit sources[j] of the row, or 0 if that is negative."""

def decode_bit_planes(
    packed: NDArray[np.uint8],
    allocation: NDArray[np.int32],
    first: int,
    levels: NDArray[np.float32],
    out: NDArray[np.float32],
    threads: int = 1,
) -> None:
    """Write the coefficients, (rows, directions), that the bit planes from bit `first` on decode to."""

def extend_beams(
    errors: NDArray[np.float32],
    ancestors: NDArray[np.uint32],
    products: NDArray[np.float32],
    recent: NDArray[np.uint8],
    tables: NDArray[np.float32],
    norms: NDArray[np.float32],
    from_beam: NDArray[np.uint16],
    entry: NDArray[np.uint16],
    new_errors: NDArray[np.float32],
    threads: int = 1,
) -> None:
    """Write the best continuations of each item's beams by one more codebook entry: beam, entry and squared error.

    The residual of a beam is that of its ancestor, whose inner products with the entries are a row of `products`, less
    its recent entries, whose inner products with them are in `tables`, (recent stages, 256, entries).
    """

def grow_two_means_tree(
    rows: NDArray[np.float32], starts: NDArray[np.float32], leaves: NDArray[np.float32], threads: int = 1
) -> None:
    """Write the means of the leaves of a tree of two-means splits, whose power iterations start at `starts`."""

def nearest_entries(
    products: NDArray[np.float32], half_norms: NDArray[np.float32], nearest: NDArray[np.int64], threads: int = 1
) -> None:
    """Write the entry of each row whose inner product, less half of the entry's squared norm, is largest."""

def sum_rows_by_entry(
    rows: NDArray[np.float32],
    sources: NDArray[np.uint32],
    entries: NDArray[np.int64],
    sums: NDArray[np.float32],
    threads: int = 1,
) -> None:
    """Add the row of each source to the row of `sums` that its entry names."""

def sum_codebook_entries(
    codes: NDArray[np.uint8], codebooks: NDArray[np.float32], out: NDArray[np.float32], threads: int = 1
) -> None:
    """Add the entries that codes select in codebooks (bytes, 256, features) to the rows of `out`."""

def find_largest_scales(log_scales: NDArray[np.int16], out: NDArray[np.int32], threads: int = 1) -> None:
    """Write the coordinates of the largest scales of each row, largest first."""

def encode_adaptive(
    rows: NDArray[np.float32],
    log_scales: NDArray[np.int16],
    entries: NDArray[np.float32],
    changes: NDArray[np.int16],
    beams: int,
    out: NDArray[np.uint8],
    threads: int = 1,
) -> None:
    """Write the codes of rows, (rows, stages), by backward-adaptive residual quantization with beam search."""

def decode_adaptive(
    codes: NDArray[np.uint8],
    log_scales: NDArray[np.int16],
    entries: NDArray[np.float32],
    changes: NDArray[np.int16],
    out: NDArray[np.float32],
    threads: int = 1,
) -> None:
    """Write the rows, (codes, directions), that codes of the adaptive quantizer decode to."""

# Memory-mapped files (cpp/python/storage.cpp)

class ChecksumGuard:
    """Memory-mapped data whose blocks of `block` bytes are verified when first touched."""

    def __init__(self, data: NDArray[np.uint8], checksums: NDArray[np.uint64], block: int = 65536) -> None: ...
    def touch(self, begin: int, end: int) -> None:
        """Verify the blocks of a range of bytes that have not been verified yet."""
    def touch_rows(self, positions: NDArray[np.uint32], row_bytes: int) -> None:
        """Verify the blocks of some rows of `row_bytes` bytes; positions beyond the last row are ignored."""
    def verify(self) -> None:
        """Verify every block, including those that were verified before."""
    @property
    def first_damaged(self) -> int:
        """The first damaged block among those checked so far, -1 if there is none."""

def block_checksums(data: NDArray[np.uint8], block: int = 65536) -> NDArray[np.uint64]:
    """Return the checksum of each block of `block` bytes."""

# Prefix trees (cpp/python/index.cpp)

class PrefixTree:
    """Sorted codes with the lookup tables of their top levels, and tombstones.

    `heads` are the first 64 bits of the sorted codes, `order` the row at each position (empty if the rows are sorted),
    `tables` what `build_prefix_tables` returned, `tombstones` the ascending positions of removed items. `owner` is kept
    alive with the tree.
    """

    def __init__(
        self,
        owner: object,
        rows: NDArray[np.uint8],
        heads: NDArray[np.uint64],
        order: NDArray[np.uint32],
        tables: NDArray[np.uint32],
        tombstones: NDArray[np.uint32],
        ids: NDArray[np.uint32] | NDArray[np.int64],
        width: int,
        rows_guard: ChecksumGuard | None = None,
        heads_guard: ChecksumGuard | None = None,
        tables_guard: ChecksumGuard | None = None,
        ids_guard: ChecksumGuard | None = None,
    ) -> None: ...
    def find_starts(self, length: int, out: NDArray[np.uint32]) -> None:
        """Write where the items of each prefix of this length begin, and where the last ones end, (2^length + 1,)."""

class Forest:
    """Prefix trees that are queried as one.

    The methods with an underscore are for the Python subclass, `nestcode.index.tree.Forest`, which checks arguments.
    """

    def __init__(self, trees: Sequence[PrefixTree], width: int) -> None: ...
    def neighborhood(
        self, query: Any, *, size: int | None = None, fraction: float | None = None, threads: int | None = 1
    ) -> Any:
        """Return the deepest neighborhood of a query that is large enough; a fast path for one code."""
    def _find_neighborhoods(
        self,
        queries: NDArray[np.uint8],
        size: int,
        lengths: NDArray[np.int32],
        counts: NDArray[np.int64],
        ranges: NDArray[np.uint32],
        threads: int = 1,
    ) -> None:
        """Write the length, the number of items and the ranges, (queries, trees, 2), of each query's neighborhood."""
    def _find_prefixes(self, query: NDArray[np.uint8], counts: NDArray[np.int64], ranges: NDArray[np.uint32]) -> None:
        """Write the number of items and the ranges, (lengths, trees, 2), of each prefix of a query, shortest first."""
    def gather_ids(
        self, ranges: NDArray[np.uint32], offsets: NDArray[np.int64], ids: NDArray[np.int64], threads: int = 1
    ) -> None:
        """Write the ids in the ranges, (queries, trees, 2), of each query; `offsets` are where each query's begin."""
    @property
    def _damaged(self) -> bool:
        """Whether a damaged block was read."""

class Neighborhood:
    """All items that share a prefix with a query."""

    def __init__(self, forest: Forest, length: int, count: int, ranges: NDArray[np.uint32]) -> None: ...
    @property
    def length(self) -> int:
        """The length of the prefix, in bits."""
    @property
    def count(self) -> int:
        """The number of items."""
    @property
    def ids(self) -> NDArray[np.int64]:
        """The ids of the items, in the order of the tree."""

def merge_trees(
    trees: Sequence[PrefixTree],
    rows: NDArray[np.uint8],
    heads: NDArray[np.uint64],
    ids: NDArray[np.int64],
    sources: NDArray[np.int64],
) -> None:
    """Write the rows, heads and ids of all live items in sorted order, by a k-way merge.

    `sources` are the positions that these items had, counted through all trees.
    """

def insert_rows(
    packed: NDArray[np.uint8],
    first: int,
    heads: NDArray[np.uint64],
    order: NDArray[np.uint32],
    new_heads: NDArray[np.uint64],
    new_order: NDArray[np.uint32],
) -> None:
    """Write the sorted order of all rows, given that of the rows before `first`."""

def find_ids(
    ids: NDArray[np.uint32] | NDArray[np.int64],
    by_id: NDArray[np.uint32],
    wanted: NDArray[np.int64],
    found: NDArray[np.int64],
    ids_guard: ChecksumGuard | None = None,
    by_id_guard: ChecksumGuard | None = None,
) -> None:
    """Write the position of each wanted id, or -1; `by_id` lists all positions by ascending id."""

def load_heads(packed: NDArray[np.uint8], heads: NDArray[np.uint64]) -> None:
    """Write the first 64 bits of each row as an integer."""

def build_prefix_tables(heads: NDArray[np.uint64], width: int) -> NDArray[np.uint32]:
    """Return the lookup tables of sorted heads."""

# Search over inverted lists (cpp/python/search.cpp)

class InvertedLists:
    """The inverted lists of one segment: sorted codes, and what the scorers need of them.

    `starts` has the first position of each list and the end. Fast-scan reads `blocks`, (blocks, bytes, 32), the first
    block of each centroid in `block_starts`, and `biases` in units of `bias_unit`, for angles also `norms`, of what the
    blocks' items decode to; ADC reads codes, and the squared norms of what they decode to. Arrays that a scorer does
    not need are empty. Mapped arrays come with their guards.
    """

    def __init__(
        self,
        codes: NDArray[np.uint8],
        starts: NDArray[np.uint32],
        blocks: NDArray[np.uint8],
        block_starts: NDArray[np.uint32],
        biases: NDArray[np.int16],
        bias_unit: float,
        norms: NDArray[np.float32],
        codes_guard: ChecksumGuard | None = None,
        blocks_guard: ChecksumGuard | None = None,
        biases_guard: ChecksumGuard | None = None,
        norms_guard: ChecksumGuard | None = None,
    ) -> None: ...

class FastScanGroups:
    """The directions, (groups, 4), of 4-bit groups, the levels, (groups, 4, 16), of their values, and parents."""

    def __init__(
        self, directions: NDArray[np.int32], levels: NDArray[np.float32], parents: NDArray[np.float32]
    ) -> None: ...
    def correct_items(
        self,
        grouped: NDArray[np.uint8],
        owners: NDArray[np.int64],
        slots: NDArray[np.uint32],
        centroids: NDArray[np.float32],
        offsets: NDArray[np.float32],
        mean: NDArray[np.float32],
        squares: NDArray[np.float64],
        bias_unit: float,
        biases: NDArray[np.int16],
        norms: NDArray[np.float32],
        threads: int = 1,
    ) -> None:
        """Write the biases of grouped items, (n, bytes), into their slots.

        `owners` are their centroids, `offsets` those of centroids from their parents. Where `mean` is not empty, write
        the norms of what the groups decode to with it; `squares` are the squared norms of the centroids with it.
        """

class Lists:
    """The inverted lists of several segments, which are searched as one."""

    def __init__(self, segments: Sequence[InvertedLists]) -> None: ...
    @property
    def damaged(self) -> bool:
        """Whether a search read from a damaged block: its results must be discarded."""

class Selection:
    """The items that a search may return, by a bitmap of each run: those in lists first, then those with graphs.

    An empty bitmap allows all items of its run.
    """

    def __init__(self, lists: Lists | None, bitmaps: Sequence[NDArray[np.uint64]]) -> None: ...

def select_ids(
    ids: NDArray[np.uint32] | NDArray[np.int64], by_id: NDArray[np.uint8], size: int, words: NDArray[np.uint64]
) -> None:
    """Write the bitmap of the items whose ids are set in a bitmap by id, of `size` ids, the first one lowest."""

def read_ahead(rows: NDArray[np.generic], guard: ChecksumGuard | None, positions: NDArray[np.int64]) -> bool:
    """Ask the system for rows of a mapped array that are not in memory, and return whether there were any.

    Blocks that were not verified yet are asked for as a whole.
    """

class VectorRows:
    """The vectors of one segment, (n, features): float32, float16, or int8 with a scale for each row.

    Without scales integers are themselves. Mapped arrays come with their guards.
    """

    @overload
    def __init__(
        self,
        rows: NDArray[np.generic],
        scales: NDArray[np.float32],
        guard: ChecksumGuard | None = None,
        scales_guard: ChecksumGuard | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        blocks: NodeBlocks,
        like: NDArray[np.generic],
        scales: NDArray[np.float32],
        scales_guard: ChecksumGuard | None,
    ) -> None:
        """Rows in the nodes of a graph, of the type and shape of `like`."""

class NodeBlocks:
    """The nodes of a graph in blocks of a mapped file, (blocks, bytes), and the slot of each item among them."""

    def __init__(
        self,
        data: NDArray[np.uint8],
        slots: NDArray[np.uint32],
        degree: int,
        vector_bytes: int,
        guard: ChecksumGuard | None,
    ) -> None: ...
    @staticmethod
    def layout(degree: int, vector_bytes: int) -> tuple[int, int, int]:
        """Return the bytes of a node, the nodes of a block and its bytes."""

class VectorRuns:
    """The vectors of several segments, by positions that count through all of them, or of an array (n, features)."""

    def __init__(self, runs: Sequence[VectorRows] | NDArray[np.generic]) -> None: ...
    @property
    def count(self) -> int:
        """How many vectors there are."""
    def rerank(
        self,
        queries: NDArray[np.float32],
        candidates: NDArray[np.int64],
        metric: str,
        out: NDArray[np.float32],
        threads: int = 1,
        simd: str = "",
    ) -> None:
        """Write the distances from each query to its candidates, (queries, many): positions, or -1 for none."""
    def expand(self, items: NDArray[np.int64], out: NDArray[np.float32], threads: int = 1, simd: str = "") -> None:
        """Write vectors as float32, (items, features)."""

def select_top_k(
    distances: NDArray[np.float32],
    ids: NDArray[np.int64],
    top_distances: NDArray[np.float32],
    top_ids: NDArray[np.int64],
    threads: int = 1,
) -> None:
    """Write the k nearest items of each query, nearest first, ties by ascending id; id -1 if there are fewer."""

def sum_group_tables(
    grouped: NDArray[np.uint8], tables: NDArray[np.float64], out: NDArray[np.float64], threads: int = 1
) -> None:
    """Write the sums of the entries of tables, (groups, 16), that the 4-bit groups of items select."""

def pack_blocks(grouped: NDArray[np.uint8], slots: NDArray[np.uint32], out: NDArray[np.uint8]) -> None:
    """Write grouped codes, (codes, bytes), into the slots of fast-scan blocks, (blocks, bytes, 32)."""

# Graphs (cpp/python/graph.cpp)

class GraphProjection:
    """The mean and directions that queries are projected on, the groups of their tables, and the unit of norms."""

    def __init__(
        self, mean: NDArray[np.float32], directions: NDArray[np.float32], groups: FastScanGroups, norm_unit: float
    ) -> None: ...

def build_graph(
    projection: GraphProjection,
    vectors: NDArray[np.float32],
    grouped: NDArray[np.uint8],
    norms: NDArray[np.uint16],
    factors: NDArray[np.uint16],
    entries: NDArray[np.uint32],
    neighbors: NDArray[np.uint32],
    degree: int,
    ef: int,
    passes: int,
    seed: int,
    threads: int = 1,
    simd: str = "",
) -> None:
    """Write the neighbors of each item, (items, 32), of which `degree` are others; norms and factors are float16."""

def place_nodes(neighbors: NDArray[np.uint32], nodes: int, slots: NDArray[np.uint32]) -> None:
    """Write the slot of each item in blocks of so many nodes."""

class GraphRecords:
    """The records of all items, then those of the entry points, `degree` in each: packed in `data` at first visits.

    Then the item's vector is verified, too, if a guard watches the vectors. The neighbors may lie in `data` already.
    With blocks, which have the neighbors, each visit packs its record and none is kept.
    """

    def __init__(
        self,
        neighbors: NDArray[np.uint32],
        entries: NDArray[np.uint32],
        grouped: NDArray[np.uint8],
        norms: NDArray[np.uint16],
        factors: NDArray[np.uint16],
        data: NDArray[np.uint8],
        vectors: VectorRows | None,
        blocks: NodeBlocks | None = None,
        degree: int = 32,
    ) -> None: ...
    @property
    def nodes(self) -> int:
        """How many items there are."""
    @property
    def packed(self) -> int:
        """How many records are packed."""
    @property
    def nbytes(self) -> int:
        """Bytes of all records."""
    def pack(self, threads: int = 1) -> None:
        """Pack all records that were not visited yet."""

class Graph:
    """The records of a graph, and the vectors of its items in the same order, if they are kept."""

    def __init__(self, records: GraphRecords, projection: GraphProjection, vectors: VectorRows | None) -> None: ...
    def search(
        self,
        queries: NDArray[np.float32],
        metric: _Metric,
        ef: int,
        allowed: NDArray[np.uint64],
        distances: NDArray[np.float32],
        positions: NDArray[np.uint32],
        visited: NDArray[np.int64],
        most: int = ...,
        threads: int = 1,
        simd: str = "",
    ) -> None:
        """Write the nearest items of each query, (queries, k), and how many nodes were visited, -1 if `most` were."""

# Search by vectors (cpp/python/row_search.cpp)

class RowProjection:
    """The projection of rows: on the first `used` directions, and on the coarse parts of lists' centroids.

    `coarse` is in features, or in as many leading directions as it has columns, these also as bits of float16;
    `complement` is an orthonormal basis of what lies outside of the directions, or empty; `mean_coefficients` are those
    of the mean, `mean_square` is its squared norm, and `mean_rest` its part outside of the directions.
    `normalized` says whether the coder L2-normalizes items; `unit` is the norm that queries of the cosine get.
    """

    def __init__(
        self,
        metric: _Metric,
        normalized: bool,
        unit: float,
        mean: NDArray[np.float64],
        directions: NDArray[np.float32],
        used: int,
        coarse: NDArray[np.float32] | NDArray[np.uint16],
        complement: NDArray[np.float32],
        mean_coefficients: NDArray[np.float32],
        mean_square: float,
        mean_rest: NDArray[np.float64],
    ) -> None: ...

class ListScoring:
    """How inverted lists are ranked, and their items scored: by fast-scan with groups, else by ADC with codebooks.

    `coarse_offsets` are added to products with coarse parts; `scales` and `shifts`, (coarse, fine), turn products into
    distances; `norms` are those of the centroids.
    """

    def __init__(
        self,
        coarse_offsets: NDArray[np.float32],
        fine: NDArray[np.float32],
        scales: NDArray[np.float32],
        shifts: NDArray[np.float32],
        norms: NDArray[np.float32],
        groups: FastScanGroups | None,
        codebooks: NDArray[np.float32],
    ) -> None: ...

class CoefficientDecoder:
    """What whole codes decode to: bit planes around centroids, or sums of codebook entries if there are any."""

    def __init__(
        self,
        centroids: NDArray[np.float32],
        allocation: NDArray[np.int32],
        levels: NDArray[np.float32],
        codebooks: NDArray[np.float32],
    ) -> None: ...

class RowBudget:
    """What a search may do, and what that costs: candidates in lists and of a walk (ef), and how many are reranked.

    As long as many hits come late, lists are probed until they hold `most_listed` candidates, a walk that `widens` goes
    on with twice as many, and a search that `reranks_more` reranks twice as many. Before all of that costs more than
    `most_ns`, the search is given up.
    """

    def __init__(
        self,
        listed: int,
        most_listed: int,
        ef: int,
        widens: bool,
        reranked: int,
        reranks_more: bool,
        most_ns: float,
        ns_per_estimated: float,
        ns_per_candidate: float,
        ns_per_visited: float,
        ns_per_reranked: float,
    ) -> None: ...

class RowSearcher:
    """A snapshot that lists and walks search: runs in inverted lists, then runs with graphs, with the ids of each.

    Queries are rows, or codes where there is no projection: lists then compare them by Hamming distance. Candidates are
    reranked by `vectors`, or by what their codes decode to.
    """

    def __init__(
        self,
        projection: RowProjection | None,
        scoring: ListScoring | None,
        lists: Lists | None,
        graphs: Sequence[Graph],
        ids: Sequence[NDArray[np.uint32] | NDArray[np.int64]],
        id_guards: Sequence[ChecksumGuard | None],
        vectors: VectorRuns | None,
        decoder: CoefficientDecoder | None,
        codes: Sequence[NDArray[np.uint8]],
        code_guards: Sequence[ChecksumGuard | None],
    ) -> None: ...
    def search(
        self,
        selection: Selection,
        queries: NDArray[Any],
        budget: RowBudget,
        ids: NDArray[np.int64],
        distances: NDArray[np.float32],
        compared: NDArray[np.int64],
        rerank: Callable[[NDArray[np.uint64], NDArray[np.uint32]], NDArray[np.float32]] | None = None,
        threads: int = 1,
        simd: str = "",
        spent: NDArray[np.float64] | None = None,
    ) -> bool:
        """Write the nearest items, (queries, k), and how many each query was compared with, -1 where it was given up.

        `rerank` returns the distances from some queries, given by their numbers, to some positions each. Without it,
        vectors and a decoder, hits have their estimates. `spent` gets what the work of each query cost, also of those
        given up. Return False, with nothing to be trusted, if a row or a distance exceeds float32, or a file is
        damaged.
        """

# Exhaustive search (cpp/python/scan.cpp). Hits of id -1 are missing; others stay if they are among the nearest.

def scan(
    rows: VectorRuns | ScannedRuns,
    queries: NDArray[np.floating[Any]],
    items: NDArray[np.uint32] | NDArray[np.int64],
    ids: NDArray[np.int64],
    metric: str,
    distances: NDArray[np.float32],
    top_ids: NDArray[np.int64],
    threads: int = 1,
    simd: str = "",
) -> bool:
    """Add the nearest of the vectors or codes `items` to the hits of one query or each.

    Return whether distances fit float32. It is False for queries that are not finite, too, and then nothing was added.
    Raise where a vector is not finite.
    """

def scan_hamming(
    queries: NDArray[np.uint8],
    codes: NDArray[np.uint8],
    ids: NDArray[np.int64],
    distances: NDArray[np.float32],
    top_ids: NDArray[np.int64],
    threads: int = 1,
    simd: str = "",
) -> None:
    """Add the nearest codes by Hamming distance to the hits of each query."""

class CodeFormat:
    """How codes decode to rows of a scan: by levels of directions, around centroids, or by codebooks.

    Codes are bytes of the bits of up to `most` directions, (bytes, most), of some depths; or of codebook entries.
    Centroids have two coordinates outside of the directions: of the mean, and of queries.
    """

    @overload
    def __init__(
        self,
        directions: NDArray[np.int32],
        depths: NDArray[np.int32],
        levels: NDArray[np.float32],
        centroids: NDArray[np.float32],
    ) -> None: ...
    @overload
    def __init__(self, codebooks: NDArray[np.float32], centroids: NDArray[np.float32]) -> None: ...

class ScannedCodes:
    """The items of one run: codes, and their centroids, none where there is only one."""

    def __init__(self, how: CodeFormat, codes: NDArray[np.uint8], centroids: NDArray[np.int64]) -> None: ...
    @property
    def nbytes(self) -> int:
        """Bytes of codes, centroids and norms."""

class ScannedRuns:
    """The codes of some runs, by positions that count through all of them, and the projection of queries."""

    def __init__(self, projection: RowProjection, how: CodeFormat, runs: Sequence[ScannedCodes]) -> None: ...

# Entropy coding of codes (cpp/python/streams.cpp)

class CodeEncoder:
    """An entropy coder of packed codes, 64 bits of all codes at a time."""

    def __init__(self, width: int) -> None: ...
    def encode(self, packed: NDArray[np.uint8], group: int) -> None:
        """Encode one group of 64 bits of all codes; groups come in order."""
    def finish(self) -> bytes:
        """Return the bytes."""

class CodeDecoder:
    """The decoder of entropy-coded codes that arrive in pieces; it writes into `plain`, which must be zeros."""

    def __init__(self, count: int, width: int, plain: NDArray[np.uint8]) -> None: ...
    def feed(self, data: NDArray[np.uint8], most: int) -> int:
        """Append bytes, write every bit that can be decoded, at most `most` in all, and return how many there are."""

# Bit-plane coding of images (cpp/python/images.cpp)

class ImageModel:
    """The context model of the bit-plane coder."""

    def __init__(self) -> None: ...
    @property
    def version(self) -> int:
        """1: adaptive binary models and mixers; 2: additive weights."""
    def halve_rate(self, times: int) -> None:
        """Adapt at 2^-times the rate that images are coded with; version 1 has no such rate."""
    @overload
    def save(self, weights: NDArray[np.int16]) -> None:
        """Write the state of a model of version 2."""
    @overload
    def save(self, probabilities: NDArray[np.uint16], counts: NDArray[np.uint8], weights: NDArray[np.int32]) -> None:
        """Write the state of a model of version 1."""
    @overload
    def load(self, weights: NDArray[np.int16]) -> None:
        """Become a model of version 2 in a state that was saved."""
    @overload
    def load(self, probabilities: NDArray[np.uint16], counts: NDArray[np.uint8], weights: NDArray[np.int32]) -> None:
        """Become a model of version 1 in a state that was saved."""

class ImageDecoder:
    """The decoder of one image that arrives in pieces."""

    def __init__(self, model: ImageModel, step: float, height: int, width: int, channels: int) -> None: ...
    def feed(self, data: bytes) -> bool:
        """Append bytes and decode as far as they reach; return False if the image claims too many bit planes."""
    def write(self, pixels: NDArray[np.uint8 | np.uint16], reduction: int = 1, filtered: bool = True) -> None:
        """Write the pixels from what arrived so far, (height * width * channels,), at a scale of 1 / reduction.

        Those of scale 1 are filtered.
        """
    @property
    def planes(self) -> int:
        """The number of bit planes that the first byte claims."""
    @property
    def passes(self) -> float:
        """How many of the 45 coding passes arrived: those above the highest plane count, and a part as a fraction."""
    @property
    def weight(self) -> float:
        """The weight of the first channel's quantizer step."""
    @property
    def known(self) -> list[int]:
        """What is known of each coefficient, (channels, rows, columns, 16, 16), or nothing before the first bits.

        (2 m + 1) 2^p, with the sign, for a magnitude in [m 2^p, (m + 1) 2^p), and 0 for an insignificant coefficient.
        """

class ResidualDecoder:
    """Turns shown pixels, (height, width, channels), into those of the image, in place."""

    def __init__(self, pixels: NDArray[np.uint8 | np.uint16]) -> None: ...
    def feed(self, data: bytes) -> None:
        """Append bytes and decode as far as they reach."""
    @property
    def lines(self) -> int:
        """How many lines of pixels are those of the image."""

class RestorationNetwork:
    """The network that refines images, in 8-bit integers."""

    def __init__(
        self,
        blocks: tuple[int, int, int],
        layers: list[tuple[NDArray[np.int8], NDArray[np.float32], NDArray[np.uint8]]],
        simd: str = "",
    ) -> None:
        """Take the convolutions in order: weights (outputs, taps, inputs), and what makes bytes of their inputs.

        Features times the second array, plus the third, are bytes. "finer" is four convolutions.
        """
    def correct(
        self,
        pixels: NDArray[np.uint8],
        scales: NDArray[np.float32],
        biases: NDArray[np.float32],
        out: NDArray[np.float32],
        transposed: bool = False,
        turned: bool = False,
        threads: int = 1,
    ) -> None:
        """Write the correction of pixels, both (height, width, 3), by the scales and biases of all outputs.

        It is computed for the image, or for a view of it that is transposed or turned by 180 degrees.
        """

def image_filter_weights() -> tuple[list[list[float]], list[list[float]]]:
    """Return the weights of the filter of decoded images: of luma by class, and of chroma."""

def image_model_sizes(version: int) -> list[int]:
    """Return the sizes of the arrays that a model is saved as."""

def quantize_coefficients(
    coefficients: NDArray[np.float32], step: float, weight: float, out: NDArray[np.int16]
) -> float:
    """Quantize coefficients with a dead zone, and return the squared error in steps.

    Both arrays are (rows, columns, 16, 16). Magnitudes are taken to be in the middle of their interval.
    """

def encode_residual(shown: NDArray[np.uint8 | np.uint16], pixels: NDArray[np.uint8 | np.uint16]) -> bytes:
    """Return what turns shown pixels, (height, width, channels), into those of the image, as bytes."""

def encode_image(
    model: ImageModel,
    kinds: list[int],
    coefficients: NDArray[np.int16],
    limit: int,
    train: bool,
    original: NDArray[np.uint8 | np.uint16],
    step: float,
    rotation: list[int],
    weights: list[int],
) -> tuple[bytes, int, bool, list[tuple[int, float, float]]]:
    """Return the bitstream, its number of planes, whether it is whole, and what is known after every pass.

    That is its bytes, the squared error of coefficients, and the MSE of pixel values, or -1 if it was not measured.
    Unless the bitstream is whole, the last pass is incomplete.

    `rotation`, of the colors, is empty or has 3 values; `weights`, of the step in units of 1/32, is empty or has one
    for each channel.

    Coding stops at about `limit` bytes; with `train` the model keeps what it learned. Errors are on the scale from 0
    to 255, of what a receiver shows against `original`, (height, width, channels). They are -1 where they were not
    measured: after passes that add little, but not the last one, or if `original` is empty.
    """
