"""Nestings beyond the chain: which units are kept together, and with which probability."""

import pickle
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from nestcode.errors import InvalidInput
from nestcode.lengths import Empirical, Geometric, Lengths, Uniform
from nestcode.nn.dropout import keep_prefix
from nestcode.nn.nesting import Chain, Groups, Nesting, Tree
from nestcode.nn.sampling import sample_lengths

FAMILIES: list[tuple[Nesting, int]] = [
    (Chain(Geometric(0.8)), 9),
    (Groups([2, 1, 4], Geometric(0.5)), 7),
    (Groups([3], Uniform()), 3),
    (Tree([-1, 0, 0, 1, 1, 2], weights=[1, 2, 0, 3, 1, 1], units=[1, 2, 1, 3, 1, 2]), 10),
    (Tree.binary(3, Uniform(), units=2), 14),
]
EACH_FAMILY = pytest.mark.parametrize(("nesting", "width"), FAMILIES, ids=repr)


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    n = draw(st.integers(1, 12))
    parents = [-1] + [draw(st.integers(0, node - 1)) for node in range(1, n)]
    units = draw(st.lists(st.integers(0, 3), min_size=n, max_size=n).filter(any))
    return Tree(parents, draw(st.lists(st.integers(1, 9), min_size=n, max_size=n)), units)


def way_to(tree: Tree, node: int) -> list[int]:
    """The nodes from one up to the root."""
    return [node] if node == 0 else [node, *way_to(tree, tree.parents[node])]


def mask_of(tree: Tree, nodes: set[int]) -> list[bool]:
    assert not isinstance(tree.units, int)
    return [node in nodes for node, units in enumerate(tree.units) for _ in range(units)]


def width_of(tree: Tree) -> int:
    assert not isinstance(tree.units, int)
    return sum(tree.units)


@EACH_FAMILY
def test_units_are_kept_with_their_survival_probability(nesting: Nesting, width: int) -> None:
    n, masks, probabilities = 20_000, nesting.masks(width), nesting.probabilities(width)
    drawn = nesting.sample(n, width, generator=torch.Generator().manual_seed(0))
    assert drawn.shape == (n, width)
    assert drawn.dtype == torch.bool
    same = (drawn[:, None] == masks).all(dim=2)  # (n, subsets)
    assert same.any(dim=1).all()  # nothing but the family
    assert_close_to_shares(same.double().mean(dim=0), probabilities, n)
    assert_close_to_shares(drawn.double().mean(dim=0), nesting.survival(width), n)
    assert not same[:, probabilities == 0].any()


def assert_close_to_shares(seen: Tensor, expected: Tensor, n: int) -> None:
    assert ((seen - expected).abs() <= 4.5 * (expected * (1 - expected) / n).sqrt() + 1e-12).all()


@EACH_FAMILY
def test_probabilities_add_up_and_draws_are_repeatable(nesting: Nesting, width: int) -> None:
    torch.testing.assert_close(nesting.probabilities(width).sum().item(), 1.0)
    first, second = (nesting.sample(40, width, generator=torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.parametrize(("nesting", "width"), FAMILIES[:3], ids=repr)
def test_subsets_of_a_chain_are_nested(nesting: Nesting, width: int) -> None:
    masks = nesting.masks(width)
    for smaller, larger in pairwise(masks):
        assert (smaller <= larger).all()
        assert larger.sum() > smaller.sum()
    assert masks[-1].all()


@pytest.mark.parametrize("lengths", [Geometric(0.9), Uniform(), Empirical([1, 0, 2])], ids=repr)
def test_a_chain_keeps_prefixes_of_the_drawn_lengths(lengths: Lengths) -> None:
    mask = Chain(lengths).sample(300, 12, generator=torch.Generator().manual_seed(4))
    kept = sample_lengths(lengths, 300, 12, generator=torch.Generator().manual_seed(4))
    assert torch.equal(mask.float(), keep_prefix(torch.ones(300, 12), kept))
    by_table = Nesting.sample(Chain(lengths), 300, 12, generator=torch.Generator().manual_seed(4))
    assert torch.equal(mask, by_table)
    np.testing.assert_allclose(Chain(lengths).survival(12).numpy(), lengths.survival(12), atol=1e-15)


def test_groups_of_one_unit_are_a_chain() -> None:
    groups, chain = Groups([1] * 8, Geometric(0.7)), Chain(Geometric(0.7))
    assert torch.equal(groups.masks(8), chain.masks(8))
    assert torch.equal(groups.probabilities(8), chain.probabilities(8))


def test_units_of_a_group_are_kept_together() -> None:
    mask = Groups([2, 1, 4], Uniform()).sample(200, 7, generator=torch.Generator().manual_seed(0))
    for group in mask.split([2, 1, 4], dim=1):
        assert torch.equal(group.any(dim=1), group.all(dim=1))


@given(trees())
def test_a_subset_of_a_tree_is_the_path_to_its_node(tree: Tree) -> None:
    masks = tree.masks(width_of(tree)).tolist()
    for node, mask in enumerate(masks):
        assert mask == mask_of(tree, set(way_to(tree, node)))


@given(trees())
def test_a_unit_of_a_tree_is_kept_only_with_its_ancestors(tree: Tree) -> None:
    blocks = tree.sample(50, width_of(tree), generator=torch.Generator().manual_seed(0)).split(list(tree.units), dim=1)  # type: ignore[arg-type]
    for node in range(len(tree.parents)):
        for ancestor in way_to(tree, node):
            assert (blocks[ancestor].all(dim=1) | ~blocks[node].any(dim=1)).all()


@given(trees(), st.data())
def test_two_subsets_of_a_tree_share_their_common_ancestors(tree: Tree, data: st.DataObject) -> None:
    masks, nodes = tree.masks(width_of(tree)), st.integers(0, len(tree.parents) - 1)
    one, other = data.draw(nodes), data.draw(nodes)
    common = next(node for node in way_to(tree, one) if node in way_to(tree, other))
    assert torch.equal(masks[one] & masks[other], masks[common])


def test_siblings_of_a_binary_tree_are_equally_likely() -> None:
    lengths, depth = Geometric(0.6), 4
    tree = Tree.binary(depth, lengths)
    levels = tree.probabilities(15).split([1, 2, 4, 8])
    np.testing.assert_allclose([level.sum() for level in levels], lengths.pmf(depth))
    for level in levels:
        assert level.unique().numel() == 1
    assert tree.masks(15).sum(dim=1).tolist() == [1] + [2] * 2 + [3] * 4 + [4] * 8


def test_a_root_without_units_makes_its_children_disjoint() -> None:
    forest = Tree([-1, 0, 0], weights=[0, 1, 1], units=[0, 2, 3])
    assert forest.masks(5).int().tolist() == [[0, 0, 0, 0, 0], [1, 1, 0, 0, 0], [0, 0, 1, 1, 1]]
    assert forest.sample(100, 5, generator=torch.Generator().manual_seed(0)).any(dim=1).all()


@EACH_FAMILY
def test_nestings_are_values(nesting: Nesting, width: int) -> None:
    assert pickle.loads(pickle.dumps(nesting)) == nesting
    assert len({nesting, pickle.loads(pickle.dumps(nesting))}) == 1
    nesting.masks(width).fill_(False)  # the caller's own copy
    assert nesting.masks(width).any()
    with pytest.raises(AttributeError):
        nesting.lengths = Uniform()


def test_a_new_nesting_is_one_small_class() -> None:
    @dataclass(frozen=True)
    class Any2(Nesting):
        lengths: Lengths = Uniform()  # noqa: RUF009

        def _masks(self, width: int) -> NDArray[np.bool_]:
            pairs = [(i, j) for j in range(width) for i in range(j)]
            return np.array([[k in pair for k in range(width)] for pair in pairs])

    assert (Any2().sample(50, 5).sum(dim=1) == 2).all()
    assert torch.allclose(Any2().survival(5), torch.full((5,), 0.4, dtype=torch.double))


MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "groups of another width": (
        lambda: Groups([2, 3], Uniform()).sample(3, 6),
        "the width must be the 5 units of the 2 groups, got 6",
    ),
    "tree of another width": (
        lambda: Tree([-1, 0], units=4).masks(7),
        "the width must be the 8 units of the 2 nodes, got 7",
    ),
    "width 0": (lambda: Chain(Uniform()).masks(0), "width must be an integer of at least 1, got 0"),
    "a number for lengths": (lambda: Chain(0.9), "must be a distribution from nestcode.lengths, got 0.9"),  # type: ignore[arg-type]
    "a number for lengths of groups": (lambda: Groups([1], 0.9), "a distribution from nestcode.lengths, got 0.9"),  # type: ignore[arg-type]
    "no groups": (lambda: Groups([], Uniform()), "sizes must be a list of at least one integer, got none"),
    "an empty group": (lambda: Groups([2, 0], Uniform()), "sizes must be an integer of at least 1, got 0"),
    "one size": (lambda: Groups(4, Uniform()), "sizes must be a list of integers, got 4"),  # type: ignore[arg-type]
    "no root": (lambda: Tree([0, 0]), "parents must begin with the root's -1, and each later parent"),
    "two roots": (lambda: Tree([-1, -1]), "parents must begin with the root's -1, and each later parent"),
    "child before parent": (lambda: Tree([-1, 2, 0]), "got [-1, 2, 0]: number the nodes from the root down"),
    "units of too few": (lambda: Tree([-1, 0], units=[1]), "units must be one for each of the 2 nodes, got 1"),
    "weights of too many": (lambda: Tree([-1], weights=[1, 2]), "weights must be one for each of the 1 nodes, got 2"),
    "no weight": (lambda: Tree([-1, 0], weights=[0, 0]), "weights must be finite, also in sum, not negative"),
    "half a unit": (lambda: Tree([-1, 0], units=0.5), "units must be an integer of at least 0, got 0.5"),  # type: ignore[arg-type]
    "too deep": (lambda: Tree.binary(13, Uniform()), "depth must be at most 12, 4095 nodes, got 13"),
    "no levels": (lambda: Tree.binary(0, Uniform()), "depth must be an integer of at least 1, got 0"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_named(mistake: str) -> None:
    call, message = MISTAKES[mistake]
    with pytest.raises(InvalidInput, match=re.escape(message)):
        call()
