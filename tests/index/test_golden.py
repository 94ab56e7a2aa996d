"""Golden files: every version of the format that was ever written can be read."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from nestcode import Codes, Index
from nestcode.index.manifest import VERSION
from nestcode.search import planner
from tests.golden.make_index import HERE, REMOVED, attributes, ids, vectors

VERSIONS = range(1, VERSION + 1)
every_version = pytest.mark.parametrize("version", VERSIONS)


def test_each_version_has_a_golden_index() -> None:
    assert sorted(path.name for path in HERE.glob("index-v*/")) == sorted(f"index-v{version}" for version in VERSIONS)


@every_version
def test_a_golden_index_has_its_contents(version: int) -> None:
    held = json.loads((HERE / f"index-v{version}.json").read_text())
    left = sorted(set(ids().tolist()) - set(REMOVED))
    with Index.open(HERE / f"index-v{version}") as index:
        index.verify()
        assert index.ids.tolist() == [int(item) for item in held["codes"]] == left
        codes = [row.tobytes().hex() for row in index.codes(left).packed]
        assert codes == list(held["codes"].values())
        np.testing.assert_allclose(index.reconstruct(left), held["reconstructions"], atol=1e-3)
        assert not any(item in index for item in REMOVED)
        if version > 1:
            np.testing.assert_allclose(index.vectors(left), held["vectors"], atol=1e-4)
            X = dict(zip(ids().tolist(), vectors(), strict=True))
            for item in left[:5]:
                assert index.search(X[item], k=1).ids.tolist() == [item]


def test_a_golden_graph_leads_to_its_items(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "NS_PER_SCAN", 1e12)  # so that a walk is not given up for a scan
    X = dict(zip(ids().tolist(), vectors(), strict=True))
    for version in VERSIONS[2:]:
        with Index.open(HERE / f"index-v{version}") as index:
            assert [one.graph is not None for one in index._live.current.segments] == [True, False]
            for item in index.ids.tolist():
                assert item in index.search(X[item], k=3, candidates=20).ids


def test_golden_attributes_are_those_of_their_items() -> None:
    expected = dict(zip(ids().tolist(), attributes(), strict=True))
    for version in VERSIONS[5:]:
        with Index.open(HERE / f"index-v{version}") as index:
            own = index.ids.tolist()
            assert index.attributes(own).to_pylist() == [expected[item] for item in own]
            assert index.columns["lang"] == "category"
            found = index.matching("lang = 'en' AND year > 2020 AND NOT array_contains(tags, 't1')")
            rows = [(item, expected[item]) for item in own]
            assert found.tolist() == [
                item
                for item, row in rows
                if row["lang"] == "en"
                and (row["year"] or 0) > 2020
                and "t1" not in (["t1"] if row["tags"] is None else row["tags"])
            ]


@every_version
def test_a_golden_index_finds_neighborhoods(version: int) -> None:
    """The same as a scan of its codes."""
    with Index.open(HERE / f"index-v{version}") as index:
        codes = index.codes(index.ids)
        shared = codes.common_prefix(codes)
        for row, item in enumerate(codes):
            for size in (1, 2, 10):
                hood = index.neighborhood(item, size=size)
                assert hood.length == np.sort(shared[row])[-size]
                assert sorted(hood.ids.tolist()) == index.ids[shared[row] >= hood.length].tolist()


@every_version
def test_a_golden_coder_encodes_the_same(version: int) -> None:
    X = dict(zip(ids().tolist(), vectors(), strict=True))
    with Index.open(HERE / f"index-v{version}") as index:
        assert index.coder is not None
        left = np.stack([X[item] for item in index.ids.tolist()])
        agree = index.coder.encode(left).prefix(index.width).hamming(index.codes(index.ids)).diagonal() == 0
        assert agree.mean() > 0.9  # a value at a threshold may fall to either side on another machine
        error = np.mean((index.reconstruct(index.ids) - left) ** 2)
        assert error < 2 * index.coder.expected_error(index.width)


@every_version
def test_a_golden_index_can_be_changed(version: int, tmp_path: Path) -> None:
    folder = tmp_path / "index"
    shutil.copytree(HERE / f"index-v{version}", folder)
    with Index.open(folder, mode="a") as index:
        before = index.ids
        index.add(vectors()[:1])
        index.compact()
        index.commit()
    with Index.open(folder) as index:
        assert index.ids.tolist() == [*before.tolist(), 197]  # ids follow the largest ever used
        assert isinstance(index.codes([197]), Codes)
        index.verify()
