"""Encoding on a Ray cluster of two node processes: the same index whatever dies."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from nestcode import Index, LinearCoder
from nestcode.cli.app import app
from nestcode.errors import InvalidInput
from nestcode.scale import encode_shard, merge_shards
from tests.scale.test_shards import contents

ray = pytest.importorskip("ray", reason="pip install 'nestcode[ray]'")

pytestmark = pytest.mark.filterwarnings("ignore::Warning")  # of Ray about itself

RNG = np.random.default_rng(0)
X = (RNG.standard_normal((1500, 12)) * np.linspace(3, 0.3, 12)).astype(np.float32)
IDS = RNG.permutation(9000)[:1500]
CODER = LinearCoder(width=40).fit(X)


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """Start two node processes with a processor each, and yield their address."""
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "object_store_memory": 100 << 20}
    started = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    started.add_node(**node)
    yield started.address
    started.shutdown()


@pytest.fixture
def connected(cluster: str) -> Iterator[None]:
    """Connect to the cluster."""
    ray.init(address=cluster, logging_level="error", log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    yield
    ray.shutdown()


def dataset() -> Any:
    """Return items in four blocks."""
    import pyarrow as pa

    blocks = np.array_split(np.arange(1500), 4)
    return ray.data.from_arrow([pa.table({"id": IDS[rows], "item": list(X[rows])}) for rows in blocks])


@pytest.mark.usefixtures("connected")
def test_a_killed_worker_changes_nothing(tmp_path: Path) -> None:
    from nestcode.scale.ray import encode

    def die_once(batch: dict[str, Any]) -> dict[str, Any]:
        marker = tmp_path / "died"
        if IDS[700] in batch["id"] and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return batch

    killed = dataset().map_batches(die_once, batch_size=None, batch_format="numpy")
    parts = encode(killed, CODER, tmp_path / "index", parts=2, vectors="float16", rows=400)
    assert (tmp_path / "died").exists()
    plain = encode_shard(X, IDS, tmp_path / "shard", CODER, vectors="float16")
    assert contents(parts) == contents(merge_shards([plain], tmp_path / "plain", parts=2))
    assert Index.open(parts).search(X[7], k=1).ids.tolist() == [IDS[7]]
    before = contents(parts)
    assert contents(encode(dataset(), CODER, tmp_path / "index", parts=2, vectors="float16", rows=400)) == before
    with pytest.raises(InvalidInput, match="parts of another index"):
        encode(dataset(), CODER, tmp_path / "index", parts=3)
    with pytest.raises(InvalidInput, match="new or empty folder"):
        encode(dataset(), CODER, tmp_path, parts=3)


def test_the_command_builds_what_one_process_builds(cluster: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    CODER.save(tmp_path / "my.coder")
    build = ["index", "build", str(tmp_path / "x.npy"), "--coder", str(tmp_path / "my.coder"), "-o"]
    run = CliRunner().invoke(app, [*build, str(tmp_path / "parts"), "--ray", cluster, "--parts", "2", "--json"])
    assert run.exit_code == 0, run.output
    index = Index.open(json.loads(run.stdout)["paths"])
    assert index.codes(np.arange(1500)) == CODER.encode(X)
    assert CliRunner().invoke(app, [*build, str(tmp_path / "other"), "--parts", "2"]).exit_code == 2
