"""What is asserted of a Ray cluster of two node processes; in a process of its own, as Ray leaves threads behind."""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import ray
import ray.data
from ray.cluster_utils import Cluster
from typer.testing import CliRunner

from nestcode import Index, LinearCoder
from nestcode.cli.app import app
from nestcode.errors import InvalidInput
from nestcode.scale import encode_shard, merge_shards
from nestcode.scale.ray import encode
from tests.scale.test_shards import contents

RNG = np.random.default_rng(0)
X = (RNG.standard_normal((1500, 12)) * np.linspace(3, 0.3, 12)).astype(np.float32)
IDS = RNG.permutation(9000)[:1500]
CODER = LinearCoder(width=40).fit(X)
NODE = {"num_cpus": 1, "object_store_memory": 100 << 20}


def main(folder: Path) -> None:
    """Start the cluster, and assert everything."""
    cluster = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
    cluster.add_node(**NODE)
    try:
        ray.init(address=cluster.address, logging_level="error", log_to_driver=False)
        ray.data.DataContext.get_current().enable_progress_bars = False
        a_killed_worker_changes_nothing(folder)
        ray.shutdown()
        the_command_builds_what_one_process_builds(cluster.address, folder)
    finally:
        ray.shutdown()
        cluster.shutdown()


def dataset() -> Any:
    """Return items in four blocks."""
    blocks = np.array_split(np.arange(1500), 4)
    return ray.data.from_arrow([pa.table({"id": IDS[rows], "item": list(X[rows])}) for rows in blocks])


def a_killed_worker_changes_nothing(folder: Path) -> None:
    """Kill the worker of one block, and compare with shards that were made here."""
    marker, out = folder / "died", folder / "index"

    def die_once(batch: dict[str, Any]) -> dict[str, Any]:
        if IDS[700] in batch["id"] and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return batch

    killed = dataset().map_batches(die_once, batch_size=None, batch_format="numpy")
    parts = encode(killed, CODER, out, parts=2, vectors="float16", rows=400)
    assert marker.exists()
    plain = encode_shard(X, IDS, folder / "shard", CODER, vectors="float16")
    assert contents(parts) == contents(merge_shards([plain], folder / "plain", parts=2))
    assert Index.open(parts).search(X[7], k=1).ids.tolist() == [IDS[7]]
    before = contents(parts)
    assert contents(encode(dataset(), CODER, out, parts=2, vectors="float16", rows=400)) == before
    with pytest.raises(InvalidInput, match="other items or settings"):
        encode(dataset(), CODER, out, parts=3)
    with pytest.raises(InvalidInput, match="give a new folder"):
        encode(dataset(), CODER, folder, parts=3)


def the_command_builds_what_one_process_builds(address: str, folder: Path) -> None:
    """Build on the cluster from a file."""
    np.save(folder / "x.npy", X)
    CODER.save(folder / "my.coder")
    print("command", file=sys.stderr)
    build = ["index", "build", str(folder / "x.npy"), "--coder", str(folder / "my.coder"), "-o"]
    run = CliRunner().invoke(app, [*build, str(folder / "parts"), "--ray", address, "--parts", "2", "--json"])
    assert run.exit_code == 0, run.output
    index = Index.open(json.loads(run.stdout)["paths"])
    assert index.codes(np.arange(1500)) == CODER.encode(X)
    assert CliRunner().invoke(app, [*build, str(folder / "other"), "--parts", "2"]).exit_code == 2


if __name__ == "__main__":
    main(Path(sys.argv[1]))
