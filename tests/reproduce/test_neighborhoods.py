"""Neighborhoods of images become more alike, and what says so is measured as it should be."""

from pathlib import Path

import numpy as np

from nestcode import Codes, PrefixTree
from nestcode.reproduce.lab import Images, Lab
from nestcode.reproduce.neighborhoods.experiment import (
    RANKS,
    SIZES,
    add_findings,
    by_length,
    choose,
    company,
    distances,
    measure,
    nearness,
)
from tests.reproduce.toy import run


def test_it_shows_what_the_paper_says(tmp_path: Path) -> None:
    found = run("neighborhoods", tmp_path)
    holds = {finding["claim"]: finding["holds"] for finding in found["findings"]}
    assert holds["smaller neighborhoods are more alike, our linear coder"]
    for name in ("the paper's linear model", "our linear coder"):
        by_size = found["numbers"][name]["by size"]
        assert by_size[-1] < by_size[0] < 1  # two images, 512 images, all of them
        assert holds[f"similarity rises with length, {name}"]
        assert holds[f"each neighborhood lies in the one before, {name}"]
    names = {path.name for path in tmp_path.iterdir()}
    assert {"neighborhoods-model.png", "neighborhoods-coder.svg", "neighborhoods-similarity.png"} <= names


def small(n: int = 80) -> tuple[Images, Codes]:
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 256, (n, 3 * 4 * 4), dtype=np.uint8)
    labels = rng.integers(0, 3, n, dtype=np.uint8)
    return Images("noise", 4, rows, rows[:0], labels, labels[:0]), Codes.from_bits(rng.random((n, 24)) < 0.5)


def test_codes_that_say_nothing_are_told_apart(tmp_path: Path) -> None:
    images, codes = small(600)
    asked = np.arange(100)
    lab = Lab(tmp_path, scale="toy")
    add_findings(lab, "noise", codes, asked, measure(images, codes, asked, distances(images, asked)))
    holds = {finding.claim: finding.holds for finding in lab.findings}
    assert not holds["smaller neighborhoods are more alike, noise"]
    assert not holds["similarity rises with length, noise"]
    assert holds["each neighborhood lies in the one before, noise"]
    assert min(lab.measured["noise"]["by size"]) > 0.9
    assert [block["rows"][0][0] for block in lab.blocks] == ["same class"]


def test_nearness_is_that_of_a_plain_count() -> None:
    images, codes = small()
    asked = np.array([3, 40, 77])
    far = distances(images, asked)
    rows = images.train / 255
    np.testing.assert_allclose(far, ((rows[asked, None] - rows) ** 2).sum(axis=2), atol=1e-4)
    found = nearness(PrefixTree(codes), codes, asked, far, images.labels)
    shared = codes[asked].common_prefix(codes)
    assert images.labels is not None
    for row, item in enumerate(asked):
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


def test_lengths_with_little_company_are_left_out() -> None:
    values = np.full((20, 5), np.nan)
    values[:, 0], values[:2, 1], values[:1, 2] = 1, 0.5, 0.1
    lengths, curve = by_length({"by length": values})
    assert lengths.tolist() == [0, 1]
    assert curve.tolist() == [1, 0.5]


def test_a_query_is_alone_where_no_other_shares_its_prefix() -> None:
    _, codes = small()
    tree = PrefixTree(codes)
    for item in range(10):
        count, alone = company(tree, codes[item])
        shared = codes[item].common_prefix(codes)[0]
        assert alone == np.sort(shared)[-2] + 1
        assert count[alone] == 1 < count[alone - 1]
    twice = codes.concat(codes)
    assert company(PrefixTree(twice), twice[0])[1] == 24  # its twin stays


def test_queries_are_at_fixed_ranks() -> None:
    alone = np.random.default_rng(0).permutation(101)
    assert [int(alone[place]) for place in choose(alone)] == [int(100 * rank) for rank in RANKS]
