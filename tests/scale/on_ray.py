"""What is asserted of a Ray cluster of two node processes; in a process of its own, as Ray leaves threads behind.

Clients that search while actors and nodes die are a kind of `make torture` (tests/torture/cluster.py).
"""

import json
import os
import re
import runpy
import shutil
import signal
import sys
from contextlib import chdir
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest
import ray
import ray.data
import yaml
from jsonschema import ValidationError  # type: ignore[import-untyped]
from ray.autoscaler._private.util import prepare_config, validate_config
from typer.testing import CliRunner

from nestcode import Index, LinearCoder
from nestcode.cli.app import app
from nestcode.client import Client
from nestcode.errors import DamagedFile, InvalidInput, Unavailable
from nestcode.scale import PartCache, encode_shard, merge_shards
from nestcode.scale.ray import PartialHits, SearchCluster, encode
from nestcode.serve import Service, create_app, in_thread
from tests.docs import statements
from tests.docs.blocks import ON_RAY, blocks_of, first_lines_of
from tests.scale.faults import NODE, PATIENCE, process_of, started
from tests.scale.test_shards import contents

ROOT = Path(__file__).parents[2]
RNG = np.random.default_rng(0)
X = (RNG.standard_normal((1500, 12)) * np.linspace(3, 0.3, 12)).astype(np.float32)
IDS = RNG.permutation(9000)[:1500]
CODER = LinearCoder(width=40).fit(X)


def main(folder: Path) -> None:
    """Start the cluster, and assert everything."""
    cluster = started()
    cluster.add_node(**NODE)
    try:
        ray.init(address=cluster.address, logging_level="error", log_to_driver=False)
        ray.data.DataContext.get_current().enable_progress_bars = False
        a_killed_worker_changes_nothing(folder)
        ray.shutdown()
        the_command_builds_what_one_process_builds(cluster.address, folder)
        ray.shutdown()
        print("search", file=sys.stderr)
        the_page_runs(cluster.address, folder)
        ray_up_takes_the_configuration_of_the_page()
        ray.shutdown()
        the_benchmark_runs(cluster.address, folder)
        ray.init(address=cluster.address, logging_level="error", log_to_driver=False)
        a_part_that_hangs_or_is_damaged_is_named(folder)
        a_service_of_a_cluster_answers_as_that_of_one_machine(folder)
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


def a_part_that_hangs_or_is_damaged_is_named(folder: Path) -> None:
    """Stop the process of one part, let it go on, and offer a damaged generation, and another good one."""
    parts = sorted((folder / "index").glob("part-*"))
    index = Index.open(parts)
    cache = PartCache(folder / "cache")
    with SearchCluster(parts, replicas=1, timeout=2.0, cache=cache, num_cpus=0) as cluster:
        expected = index.search(X[:5])
        assert cluster.search(X[:5]).ids.tolist() == expected.ids.tolist()
        with pytest.raises(InvalidInput, match="a cluster only reads its parts, and cannot add: build other parts"):
            cluster.add(X[:5])
        with pytest.raises(InvalidInput, match="radius must be a finite number"):
            cluster.range_search(X[:5], float("nan"))
        pid = process_of(cluster, 1, 0)
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(Unavailable, match=r"no replica of .*part-0001 answered within 2 seconds"):
            cluster.search(X[:5])
        hits = cluster.search(X[:5], allow_partial=True)
        assert isinstance(hits, PartialHits)
        assert [*hits.missing] == [str(parts[1])]
        assert hits.ids.tolist() == Index.open(parts[0]).search(X[:5]).ids.tolist()
        os.kill(pid, signal.SIGCONT)
        assert cluster.search(X[:5]).ids.tolist() == expected.ids.tolist()
        bad, other = shutil.copytree(parts[1], folder / "bad"), shutil.copytree(parts[1], folder / "other")
        file = next(bad.glob("*.codes.npy"))
        file.write_bytes(file.read_bytes()[:-1] + b"?")
        with pytest.raises(DamagedFile, match=rf"the part {bad} is damaged in all of its replicas"):
            cluster.refresh([bad])
        assert not cluster.refresh()
        with Index.open(other, mode="a") as writer:
            writer.remove(writer.ids[:100])
            writer.commit()
        assert cluster.refresh([other])
        assert cluster.ids.tolist() == Index.open(other).ids.tolist()
        assert cluster.refresh(f"file://{folder}/index")  # copied from object storage
        hits = cluster.search(X[:5])
        assert hits.ids.tolist() == expected.ids.tolist()
        assert len(list((folder / "cache").glob("*.lock"))) == len(parts)
    with pytest.raises(InvalidInput, match="this cluster was closed"):
        cluster.search(X[:5])


def a_service_of_a_cluster_answers_as_that_of_one_machine(folder: Path) -> None:
    """Ask both the same, stop the process of one part, and let the link to the parts lead to another generation."""
    parts, link = sorted((folder / "index").glob("part-*")), folder / "current"
    link.symlink_to(folder / "index")
    cluster = SearchCluster(link, replicas=1, timeout=2.0, num_cpus=0)
    with in_thread(create_app(Service(parts))) as one, in_thread(create_app(Service(cluster))) as url:
        requests: list[tuple[str, dict[str, Any]]] = [
            ("search", {"vectors": X[:3].tolist(), "k": 7, "allow_partial": True}),
            ("search", {"ids": IDS[:2].tolist(), "rank": "hamming", "filter": IDS[::3].tolist()}),
            ("search", {"ids": [1], "filter": "year > 2020"}),
            ("neighborhood", {"vectors": X[:3].tolist(), "size": 9}),
            ("nested", {"ids": IDS[:1].tolist(), "length": 5}),
            ("encode", {"vectors": X[:3].tolist()}),
            ("items", {"vectors": X[:1].tolist(), "ids": [10**6]}),
            ("search", {"vectors": [[0.5]]}),
        ]
        for route, request in requests:
            expected, found = (httpx.post(f"{at}/v1/{route}", json=request, timeout=PATIENCE) for at in (one, url))
            assert found.status_code == expected.status_code, found.text
            assert found.json() == expected.json() or expected.status_code == 403
        assert "let the folder of --parts lead to it" in httpx.post(f"{url}/v1/items").json()["error"]
        assert 'nestcode_part_ready{part="part-0001"} 1.0' in httpx.get(f"{url}/metrics").text
        with Client(one) as single, Client(url, timeout=PATIENCE) as client:
            assert len(client) == len(single) == 1500
            nearest = single.search(X[:100], k=3).distances.tolist()
            assert client.search(X[:100], k=3).distances.tolist() == nearest
            pid = process_of(cluster, 1, 0)
            os.kill(pid, signal.SIGSTOP)
            with pytest.raises(Unavailable, match="a part of the index does not answer: try again later"):
                client.search(X[:5])
            hits = client.search(X[:5], allow_partial=True)
            assert isinstance(hits, PartialHits)
            assert [*hits.missing] == ["part-0001"]
            assert hits.ids.tolist() == Index.open(parts[0]).search(X[:5]).ids.tolist()
            os.kill(pid, signal.SIGCONT)
            merge_shards(folder / "shard", folder / "next", parts=1)
            (folder / "new").symlink_to(folder / "next")
            (folder / "new").replace(link)
            while len(cluster.metrics()) > 1:
                assert client.search(X[:100], k=3).distances.tolist() == nearest
            assert client.search(X[:100], k=3).distances.tolist() == nearest


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


def the_benchmark_runs(address: str, folder: Path) -> None:
    """Run benchmarks/cluster.py, which connects to a cluster and leaves it."""
    script, out = ROOT / "benchmarks" / "cluster.py", folder / "cluster.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_ADDRESS", address)
        patch.syspath_prepend(script.parent)
        patch.setattr(sys, "argv", [str(script), "--quick", "--json", str(out)])
        runpy.run_path(str(script), run_name="__main__")
    assert {row["table"] for row in json.loads(out.read_text())["rows"]} == {"routing", "fan-out"}


def the_page_runs(address: str, folder: Path) -> None:
    """Run the snippets of pages that start Ray; what comments state must be true."""
    for name in ON_RAY:
        (folder / name).mkdir()
        text = (ROOT / "docs" / "how-to" / name).read_text()
        namespace: dict[str, object] = {"__name__": "__main__"}
        with chdir(folder / name), pytest.MonkeyPatch.context() as patch:
            patch.setenv("RAY_ADDRESS", address)
            for (language, block), line in zip(blocks_of(text), first_lines_of(text), strict=True):
                assert language == "python"
                assert statements.run(block, namespace, name, line) == []


def ray_up_takes_the_configuration_of_the_page() -> None:
    """Check the configuration as `ray up` does before it starts anything, and that the check sees a mistake."""
    text = (ROOT / "docs" / "how-to" / "cluster.md").read_text()
    (block,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    validate_config(prepare_config(yaml.safe_load(block)))
    with pytest.raises(ValidationError, match="worker_node"):
        validate_config(prepare_config({**yaml.safe_load(block), "worker_node": 3}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
