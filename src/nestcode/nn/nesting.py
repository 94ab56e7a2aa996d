"""Nestings: families of subsets of the units, and distributions over them (the chain of the paper, groups, trees).

Nested dropout keeps a random prefix, so the subsets of units form a chain. "The nesting idea can be generalized to
more complicated dependency structures", the paper concludes: here such a structure is an object that draws masks.

    Chain      1 ⊂ 12 ⊂ 123 ⊂ …          each unit relies on all before it
    Groups     12 ⊂ 12345 ⊂ …            units of one group come and go together
    Tree       12 ⊂ 123, 12 ⊂ 124        siblings share their ancestors and are alternatives

Not here: how dropped units are zeroed (`dropout.py`), how lengths are drawn (`sampling.py`).
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nestcode.arrays import check_int
from nestcode.errors import InvalidInput
from nestcode.lengths import Empirical, Lengths
from nestcode.nn.sampling import Device, check_lengths, constant_in_graphs, sample_lengths

DEEPEST = 12  # levels of a full binary tree: its masks quadruple with each


class Nesting(ABC):
    """A family of subsets of the units and a distribution over it; subclasses are frozen dataclasses.

    >>> from nestcode.lengths import Uniform
    >>> @dataclass(frozen=True)
    ... class Suffixes(Nesting):
    ...     '''The paper's chain, from the last unit.'''
    ...     lengths: Lengths
    ...     def _masks(self, width):
    ...         return np.tri(width, dtype=bool)[:, ::-1]
    >>> Suffixes(Uniform()).masks(3).int()
    tensor([[0, 0, 1],
            [0, 1, 1],
            [1, 1, 1]], dtype=torch.int32)

    `lengths` is the distribution of the subset's index 1, 2, …: in a chain that is its length.
    """

    lengths: Lengths

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen: make a new one (subclasses must be frozen dataclasses)")

    @abstractmethod
    def _masks(self, width: int) -> NDArray[np.bool_]:
        """Return the subsets of `width` units, (subsets, width)."""

    def masks(self, width: int) -> Tensor:
        """Return all subsets, (subsets, width): true where a unit is kept.

        >>> from nestcode.lengths import Uniform
        >>> Groups([1, 2], Uniform()).masks(3)
        tensor([[ True, False, False],
                [ True,  True,  True]])
        """
        if torch.compiler.is_compiling():
            width = len(range(width))  # an int, where the width is symbolic
        kept = _constant_masks(self, check_int(width, "width", least=1))
        return torch.as_tensor(kept).clone()  # callers may write to it

    def probabilities(self, width: int) -> Tensor:
        """Return the probability of each subset, (subsets,).

        >>> from nestcode.lengths import Uniform
        >>> Groups([1, 2], Uniform()).probabilities(3)
        tensor([0.5000, 0.5000], dtype=torch.float64)
        """
        return torch.from_numpy(self.lengths.pmf(len(self.masks(width))))

    def survival(self, width: int) -> Tensor:
        """Return the probability that each unit is kept, (width,).

        >>> from nestcode.lengths import Uniform
        >>> Groups([1, 2], Uniform()).survival(3)
        tensor([1.0000, 0.5000, 0.5000], dtype=torch.float64)
        """
        return self.probabilities(width) @ self.masks(width).double()

    def sample(self, n: int, width: int, *, device: Device = None, generator: torch.Generator | None = None) -> Tensor:
        """Draw `n` subsets, (n, width): true where a unit is kept.

        >>> from nestcode.lengths import Uniform
        >>> Groups([1, 2], Uniform()).sample(2, width=3, generator=torch.Generator().manual_seed(0))
        tensor([[True, True, True],
                [True, True, True]])
        """
        masks = self.masks(width).to(device or "cpu")
        return masks[sample_lengths(self.lengths, n, len(masks), device=device, generator=generator) - 1]


@lru_cache(maxsize=16)
def _cached_masks(nesting: Nesting, width: int) -> NDArray[np.bool_]:
    return np.ascontiguousarray(nesting._masks(width))


@constant_in_graphs
def _constant_masks(nesting: Nesting, width: int) -> NDArray[np.bool_]:
    """Return the cached masks, as a constant of a compiled graph."""
    return _cached_masks(nesting, width)


@dataclass(frozen=True)
class Chain(Nesting):
    """Prefixes: a unit is kept only together with all earlier units, as in the paper and in `NestedDropout(lengths)`.

    >>> from nestcode.lengths import Geometric
    >>> chain = Chain(Geometric(0.9))
    >>> chain.sample(3, width=9, generator=torch.Generator().manual_seed(0)).sum(dim=1)
    tensor([9, 9, 6])
    >>> chain.survival(3)
    tensor([1.0000, 0.9000, 0.8100], dtype=torch.float64)
    """

    lengths: Lengths

    def __post_init__(self) -> None:
        check_lengths(self.lengths)

    def _masks(self, width: int) -> NDArray[np.bool_]:
        return np.tri(width, dtype=np.bool_)

    def sample(self, n: int, width: int, *, device: Device = None, generator: torch.Generator | None = None) -> Tensor:
        """Draw `n` prefixes, (n, width), from their lengths: the (width, width) masks are never formed."""
        lengths = sample_lengths(self.lengths, n, width, device=device, generator=generator)
        return torch.arange(width, device=lengths.device) < lengths[:, None]


@dataclass(frozen=True)
class Groups(Nesting):
    """Consecutive groups of units, each kept only with all groups before it.

    >>> from nestcode.lengths import Uniform
    >>> groups = Groups([2, 3, 3], Uniform())     # keeps 2, 5 or 8 units
    >>> groups.masks(8).sum(dim=1)
    tensor([2, 5, 8])

    Units of one group are exchangeable; only the groups are ordered. Groups suit coefficients that belong together:
    the bits of one value, the channels of one level.

    Args:
        sizes: the number of units in each group; their sum is the width.
        lengths: the distribution of the number of kept groups.

    """

    sizes: Sequence[int]
    lengths: Lengths

    def __post_init__(self) -> None:
        check_lengths(self.lengths)
        object.__setattr__(self, "sizes", _integers(self.sizes, "sizes", least=1))

    def _masks(self, width: int) -> NDArray[np.bool_]:
        _check_width(width, self.sizes, "groups")
        return np.tri(len(self.sizes), dtype=np.bool_).repeat(self.sizes, axis=1)


@dataclass(frozen=True)
class Tree(Nesting):
    """Blocks of units on the nodes of a rooted tree: a draw picks a node and keeps the blocks on its path.

    >>> tree = Tree([-1, 0, 0, 1])                # 0 is the root, 1 and 2 its children, 3 a child of 1
    >>> tree.masks(4).int()
    tensor([[1, 0, 0, 0],
            [1, 1, 0, 0],
            [1, 0, 1, 0],
            [1, 1, 0, 1]], dtype=torch.int32)

    A unit can rely on its ancestors and never occurs with its siblings: they are alternative refinements. A tree
    without branches is a chain of groups.

    Args:
        parents: the parent of each node, which comes before it; -1 for the root, the first.
        weights: the relative probability of each node; equal by default.
        units: the number of units each node owns, or one number for all, laid out in the nodes' order; their sum is the
            width. With no unit at the root, its children share nothing.

    """

    parents: Sequence[int]
    weights: Sequence[float] | None = None
    units: int | Sequence[int] = 1
    lengths: Lengths = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        parents = _integers(self.parents, "parents", least=-1)
        if parents[0] != -1 or any(not 0 <= parent < node for node, parent in enumerate(parents) if node):
            raise InvalidInput(
                f"parents must begin with the root's -1, and each later parent must come before its child, got "
                f"{list(parents)}: number the nodes from the root down"
            )
        n = len(parents)
        owned: Any = self.units
        units = _integers(owned if np.ndim(owned) else [owned] * n, "units", least=0)
        lengths = Empirical(np.ones(n).tolist() if self.weights is None else self.weights)
        for name, values in (("units", units), ("weights", lengths.weights)):
            if len(values) != n:
                raise InvalidInput(f"{name} must be one for each of the {n} nodes, got {len(values)}")
        fields = {"parents": parents, "weights": lengths.weights, "units": units, "lengths": lengths}
        for name, value in fields.items():  # hashable, whatever sequences came in
            object.__setattr__(self, name, value)

    @classmethod
    def binary(cls, depth: int, lengths: Lengths, units: int = 1) -> Self:
        """Return a full binary tree: `lengths` draws one of `depth` levels, whose nodes are equally likely.

        >>> from nestcode.lengths import Uniform
        >>> tree = Tree.binary(3, Uniform(), units=4)     # 7 nodes of 4 units
        >>> tree.survival(28)[::4]
        tensor([1.0000, 0.3333, 0.3333, 0.0833, 0.0833, 0.0833, 0.0833],
               dtype=torch.float64)
        """
        check_lengths(lengths)
        depth = check_int(depth, "depth", least=1)
        if depth > DEEPEST:
            raise InvalidInput(f"depth must be at most {DEEPEST}, {2**DEEPEST - 1} nodes, got {depth}")
        levels = np.arange(depth).repeat(2 ** np.arange(depth))  # of each node
        parents = (np.arange(len(levels)) - 1) // 2
        return cls(parents.tolist(), (lengths.pmf(depth)[levels] / 2.0**levels).tolist(), units)

    def _masks(self, width: int) -> NDArray[np.bool_]:
        assert not isinstance(self.units, int)
        _check_width(width, self.units, "nodes")
        above = np.eye(len(self.parents), dtype=np.bool_)
        for node, parent in enumerate(self.parents[1:], start=1):
            above[node] |= above[parent]
        return above.repeat(self.units, axis=1)


def _integers(values: Sequence[int], name: str, least: int) -> tuple[int, ...]:
    try:
        integers = tuple(check_int(value, name, least) for value in values)
    except TypeError:
        raise InvalidInput(f"{name} must be a list of integers, got {values!r}") from None
    if not integers:
        raise InvalidInput(f"{name} must be a list of at least one integer, got none")
    return integers


def _check_width(width: int, sizes: Sequence[int], what: str) -> None:
    if width != sum(sizes):
        raise InvalidInput(
            f"the width must be the {sum(sizes)} units of the {len(sizes)} {what}, got {width}: change one of them"
        )
