"""Neighborhoods of images become more similar with length, and similarity equals plain loops."""

from pathlib import Path

import numpy as np

from nestcode import Codes
from nestcode.index import PrefixTree
from nestcode.reproduce.lab import Images, Lab
from nestcode.reproduce.neighborhoods.experiment import (
    RANKS,
    add_findings,
    by_length,
    distances,
    measure,
    queries_shown,
    relative_distances,
    sizes,
)
from nestcode.reproduce.neighborhoods.figures import SIZES
from tests.reproduce.toy import run


def test_the_claims_hold_at_toy_scale(tmp_path: Path) -> None:
    result = run("neighborhoods", tmp_path)
    holds = {finding["claim"]: finding["verdict"] == "holds" for finding in result["findings"]}
    assert holds["smaller neighborhoods are more similar to the query, our linear coder"]
    for name in ("our linear coder",):
        by_size = result["numbers"][name]["by size"]
        assert by_size[-1] < by_size[2] < 1  # two images, 32 images, all of them
        assert holds[f"similarity rises with length, {name}"]
        assert holds[f"each neighborhood is contained in the one before, {name}"]
    names = {path.name for path in tmp_path.iterdir()}
    assert {"neighborhoods-network.png", "neighborhoods-coder.svg", "neighborhoods-training.png"} <= names


def small(n: int = 80) -> tuple[Images, Codes]:
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 256, (n, 3 * 4 * 4), dtype=np.uint8)
    labels = rng.integers(0, 3, n, dtype=np.uint8)
    return Images("noise", 4, rows, rows[:0], labels, labels[:0]), Codes.from_bits(rng.random((n, 24)) < 0.5)


def test_claims_differ_for_random_codes(tmp_path: Path) -> None:
    images, codes = small(600)
    queries = np.arange(100)
    lab = Lab(tmp_path, scale="toy")
    add_findings(lab, "noise", codes, queries, measure(images, codes, queries, distances(images, queries)))
    holds = {finding.claim: finding.verdict == "holds" for finding in lab.findings}
    assert not holds["smaller neighborhoods are more similar to the query, noise"]
    assert not holds["similarity rises with length, noise"]
    assert holds["each neighborhood is contained in the one before, noise"]
    assert min(lab.measured["noise"]["by size"]) > 0.9
    assert [block["rows"][0][0] for block in lab.blocks] == ["same class"]


def test_relative_distances_equal_plain_loops() -> None:
    images, codes = small()
    queries = np.array([3, 40, 77])
    far = distances(images, queries)
    rows = images.train / 255
    np.testing.assert_allclose(far, ((rows[queries, None] - rows) ** 2).sum(axis=2), atol=1e-4)
    found = relative_distances(PrefixTree(codes), codes, queries, far, images.labels)
    shared = codes[queries].common_prefix(codes)
    assert images.labels is not None
    for row, item in enumerate(queries):
        others = np.arange(len(codes)) != item
        usual = far[row, others].mean()
        for column, size in enumerate(SIZES):
            length = np.sort(shared[row])[::-1][min(size, len(codes)) - 1] if size <= len(codes) else 0
            members = (shared[row] >= length) & others
            np.testing.assert_allclose(found["by size"][row, column], far[row, members].mean() / usual, rtol=1e-5)
            same = (images.labels[members] == images.labels[item]).mean()
            np.testing.assert_allclose(found["same class"][row, column], same)
        for length in range(10):
            members = (shared[row] >= length) & others
            mean = far[row, members].mean() / usual if members.any() else np.nan
            np.testing.assert_allclose(found["by length"][row, length], mean, rtol=1e-5, atol=1e-6)


def test_lengths_with_few_neighborhoods_are_left_out() -> None:
    values = np.full((20, 5), np.nan)
    values[:, 0], values[:2, 1], values[:1, 2] = 1, 0.5, 0.1
    lengths, curve = by_length({"by length": values})
    assert lengths.tolist() == [0, 1]
    assert curve.tolist() == [1, 0.5]


def test_a_query_is_alone_where_no_other_shares_its_prefix() -> None:
    _, codes = small()
    tree = PrefixTree(codes)
    for item in range(10):
        count, alone = sizes(tree, codes[item])
        shared = codes[item].common_prefix(codes)[0]
        assert alone == np.sort(shared)[-2] + 1
        assert count[alone] == 1 < count[alone - 1]
    twice = codes.concat(codes)
    assert sizes(PrefixTree(twice), twice[0])[1] == 24  # its duplicate never leaves


def test_queries_are_at_fixed_ranks() -> None:
    alone = np.random.default_rng(0).permutation(101)
    assert [int(alone[place]) for place in queries_shown(alone)] == [int(100 * rank) for rank in RANKS]
