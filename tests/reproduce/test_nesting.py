"""Groups and trees: containment of their subsets, and the claims at toy scale."""

from pathlib import Path

import numpy as np

from nestcode.reproduce.nesting.experiment import NESTINGS, UNITS, WIDTH, contained
from tests.reproduce.toy import run


def test_the_claims_hold_at_toy_scale(tmp_path: Path) -> None:
    result = run("nesting", tmp_path)
    holds = {finding["claim"]: finding["verdict"] == "holds" for finding in result["findings"]}
    assert holds["groups: a subset decodes better than the subsets it contains"]
    assert holds["groups: units of one group are exchangeable, units of two groups are not"]
    assert holds["tree: a subset decodes better than the subsets it contains"]
    chain, groups = (result["numbers"]["errors"][name] for name in ("chain", "groups"))
    assert chain[-1] < 0.5 * chain[0]
    assert len(groups) == WIDTH // UNITS
    assert {"nesting-subsets.png", "nesting-swaps.svg"} <= {path.name for path in tmp_path.iterdir()}


def test_recursive_cardinality_draws_numbers_then_splits_uniformly() -> None:
    nesting = NESTINGS["recursive cardinality"]
    masks = nesting.masks(WIDTH).numpy()[:, ::UNITS]
    shares = nesting.probabilities(WIDTH).numpy()
    assert len({mask.tobytes() for mask in masks}) == len(masks) == 2 ** (WIDTH // UNITS) - 1
    kept, first = masks.sum(axis=1), masks[:, : WIDTH // UNITS // 2].sum(axis=1)
    for count in range(1, WIDTH // UNITS + 1):
        own = kept == count
        np.testing.assert_allclose(shares[own].sum(), UNITS / WIDTH)
        each = [shares[own & (first == number)].sum() for number in np.unique(first[own])]
        np.testing.assert_allclose(each, each[0])


def test_contained_subsets_are_those_of_the_covering_relation() -> None:
    assert contained(NESTINGS["groups"]) == [(i, i + 1) for i in range(6)]
    assert contained(NESTINGS["tree"]) == [(0, 1), (0, 2), (1, 3), (1, 4), (2, 5), (2, 6)]
    masks = NESTINGS["chain"].masks(WIDTH).numpy()
    for smaller, larger in contained(NESTINGS["chain"]):
        assert np.all(masks[smaller] <= masks[larger])
        assert masks[larger].sum() == masks[smaller].sum() + 1
