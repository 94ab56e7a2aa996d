"""Encoding and merging on a Ray cluster whose machines share a file system.

Ray Data reads and divides the items, Ray runs the steps of `nestcode.scale.shards` and runs them again where a worker
or a machine dies; folders that are complete as soon as they exist make that safe.
"""

import hashlib
import shutil
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nestcode.arrays import check_int
from nestcode.coders import Coder
from nestcode.errors import InvalidInput, import_extra
from nestcode.scale.shards import check_plan, encode_shard, find_splitters, merge_range, part_path
from nestcode.search.vectors import VectorType

if TYPE_CHECKING:
    from ray.data import Dataset

Batch = dict[str, NDArray[Any]]
ROWS = 1 << 16  # of a shard
SHARDS = "shards"


def encode(
    dataset: "Dataset",
    coder: Coder,
    out: str | PathLike[str],
    *,
    items: str = "item",
    ids: str = "id",
    parts: int = 1,
    width: int | None = None,
    vectors: VectorType | None = None,
    graph: bool = False,
    rows: int = ROWS,
    **resources: Any,
) -> list[Path]:
    """Encode a data set into a sharded index, and return the folders of its parts, which `Index.open` takes.

    The parts are the same, byte for byte, even if workers died meanwhile. After an interruption the same call
    continues.

    >>> parts = encode(ray.data.read_parquet("s3://…"), coder, "/shared/my.index", parts=64)  # doctest: +SKIP
    >>> index = Index.open(parts)  # doctest: +SKIP

    Args:
        dataset: of Ray Data, for example `ray.data.read_parquet(path)`.
        coder: a fitted coder.
        out: a folder for the index, on a file system that all workers share.
        items: the column of vectors.
        ids: the column of ids, distinct integers of at least 0.
        parts: how many indexes of consecutive key ranges to write; a worker merges one in memory.
        width: the number of leading bits to keep; by default the coder's width.
        vectors: store the vectors too, as "float16", "int8" or "float32".
        graph: build graphs, as `nestcode.Index` does.
        rows: how many items a task encodes.
        **resources: of these tasks, as of `Dataset.map_batches`: `num_cpus=1`, `num_gpus=0.25`, `concurrency=8`.

    """
    ray = import_extra("ray", extra="ray", purpose="nestcode.scale.ray")
    folder, known = Path(out).absolute(), ray.put(coder)
    parts, rows = check_int(parts, "parts", least=1), check_int(rows, "rows", least=1)
    settings = {"coder": coder.fingerprint, "width": width, "vectors": vectors}
    check_plan(folder, {**settings, "parts": parts, "graph": graph}, made="*")

    def encode_batch(batch: Batch) -> Batch:
        for name in (items, ids):
            if name not in batch:
                raise InvalidInput(
                    f"a data set must have the column {name!r}, got {', '.join(batch)}: name the right one"
                )
        order = np.argsort(batch[ids])
        rows, labels = np.stack([*batch[items]])[order], batch[ids][order]
        name = hashlib.sha256(labels.astype("<i8").tobytes()).hexdigest()[:32]
        path = encode_shard(rows, labels, folder / SHARDS / name, ray.get(known), width=width, vectors=vectors)
        return {"shard": np.array([str(path)])}

    batches = dataset.map_batches(encode_batch, batch_size=rows, batch_format="numpy", **resources)
    shards = sorted(row["shard"] for row in batches.take_all())
    if not shards:
        raise InvalidInput("a data set must have at least one row, got none: read another")
    splitters = find_splitters(shards, parts)
    merge = ray.remote(max_retries=-1)(merge_range)
    tasks = [
        merge.remote(shards, splitters, part, part_path(folder, part), graph=graph)
        for part in range(len(splitters) + 1)
    ]
    found: list[Path] = ray.get(tasks)
    shutil.rmtree(folder / SHARDS)
    return found
