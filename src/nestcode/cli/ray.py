"""What commands do with `--ray`: encode the items of a file or folder on a Ray cluster, and search parts there."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from nestcode.cli.files import STANDARD, check_place
from nestcode.cli.inputs import TableRows, open_rows, read_ids
from nestcode.cli.options import messages
from nestcode.coders import Coder
from nestcode.errors import InvalidInput, import_extra
from nestcode.scale.ray import SearchCluster, encode


def connect(address: str) -> Any:
    """Connect to a Ray cluster, and return the module; `ray.shutdown()` ends it."""
    ray = import_extra("ray", extra="ray", purpose="--ray")
    try:
        ray.init(address=None if address == "local" else address, logging_level="error", log_to_driver=False)
    except Exception as error:  # it raises errors of many kinds
        raise InvalidInput(f"--ray must name a cluster that answers, got {address}: {error}") from error
    return ray


@contextmanager
def cluster_of(address: str, parts: str, replicas: int, memory: str | None, timeout: float) -> Iterator[SearchCluster]:
    """Search the parts in a folder, or at a URL, on a Ray cluster."""
    ray = connect(address)
    try:
        with messages().status(f"Starting {replicas} replicas of each part in {parts}"):
            cluster = SearchCluster(parts, replicas=replicas, timeout=timeout, memory=memory)
        with cluster:
            yield cluster
    finally:
        ray.shutdown()


def build_on_ray(
    address: str,
    data: Path,
    out: Path,
    coder: Coder,
    *,
    ids: Path | None,
    array: str | None,
    size: int,
    **settings: Any,
) -> list[str]:
    """Build a sharded index on a cluster, and return its folders; workers read the items themselves."""
    import_extra("ray", extra="ray", purpose="nestcode index build --ray")
    if data == STANDARD:
        raise InvalidInput("workers read the items, and cannot read standard input: give a file or a folder")
    rows = open_rows(data, array, size)
    if isinstance(rows, TableRows):
        raise InvalidInput(f"--ray reads .npy files and folders of images, got {data}: use nestcode.scale.ray.encode")
    if rows.features != coder.n_features_in_:
        raise InvalidInput(f"items must have the {coder.n_features_in_} features of the coder, got {rows.features}")
    known = None if ids is None else read_ids(ids)
    if known is not None and len(known) != len(rows):
        raise InvalidInput(f"there must be an id for each of {len(rows)} items, got {len(known)}")
    check_place(out)
    source, count = data.resolve(), len(rows)

    def read(batch: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        labels = batch["id"] if known is None else known[batch["id"]]
        return {"id": labels, "item": open_rows(source, array, size).rows(batch["id"])}

    ray = connect(address)
    import_module("ray.data")  # configures its logger
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    try:
        with messages().status(f"Encoding {count:,} items on Ray"):
            ray.data.DataContext.get_current().enable_progress_bars = False
            items = ray.data.range(count).map_batches(read, batch_format="numpy", batch_size=rows.step)
            return list(map(str, encode(items, coder, out, **settings)))
    finally:
        ray.shutdown()
