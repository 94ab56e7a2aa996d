"""Which units may be kept together, and how often: the chain of the paper, groups of units, a tree of subsets.

Nested dropout keeps a random prefix, so the subsets of units form a chain. "The nesting idea can be generalized to
more complicated dependency structures", the paper ends: here such a structure is an object that gives masks.

    Chain      1 ⊂ 12 ⊂ 123 ⊂ …          each unit relies on all before it
    Groups     12 ⊂ 12345 ⊂ …            units of one group come and go together
    Tree       12 ⊂ 123, 12 ⊂ 124        siblings share what lies above them and are alternatives

Not here: what becomes of the dropped units (`dropout.py`).
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
from nestcode.nn._tables import length_table

Device = torch.device | str | None
DEEPEST = 12  # levels of a full binary tree; its masks grow fourfold with each


def sample_lengths(
    lengths: Lengths,
    n: int,
    width: int,
    *,
    device: Device = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Draw `n` lengths as a tensor of integers, (n,).

    >>> from nestcode.lengths import Uniform
    >>> sample_lengths(Uniform(), 5, width=100, generator=torch.Generator().manual_seed(0))
    tensor([98, 71, 46, 93, 65])
    """
    check_lengths(lengths)
    device = torch.device(device or "cpu")
    precision = torch.float32 if device.type == "mps" else torch.float64  # Apple's GPUs have no float64
    return draw_lengths(length_table("cdf", lengths, width, device, precision), n, generator)


def draw_lengths(cdf: Tensor, n: int, generator: torch.Generator | None = None) -> Tensor:
    """Draw `n` lengths, given P(length ≤ k) for k = 1, …, width.

    >>> draw_lengths(torch.tensor([0.0, 1.0]), 3)
    tensor([2, 2, 2])
    """
    if generator is None:  # torch.compile takes the default generator only, and only unnamed
        draws = torch.rand(n, device=cdf.device, dtype=cdf.dtype)
    else:
        draws = torch.rand(n, device=cdf.device, dtype=cdf.dtype, generator=generator)
    return 1 + torch.searchsorted(cdf, draws, right=True)


class Nesting(ABC):
    """A family of subsets of the units, and a distribution over it; subclasses are frozen dataclasses.

    >>> from nestcode.lengths import Uniform
    >>> @dataclass(frozen=True)
    ... class Suffixes(Nesting):
    ...     '''The paper's chain, from the far end.'''
    ...     lengths: Lengths
    ...     def _masks(self, width):
    ...         return np.tri(width, dtype=bool)[:, ::-1]
    >>> Suffixes(Uniform()).masks(3).int()
    tensor([[0, 0, 1],
            [0, 1, 1],
            [1, 1, 1]], dtype=torch.int32)

    `lengths` is the distribution of the subset's number 1, 2, …: in a chain that is its length.
    """

    lengths: Lengths

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} cannot change: make a new one (and subclasses frozen dataclasses)")

    @abstractmethod
    def _masks(self, width: int) -> NDArray[np.bool_]:
        """The subsets of `width` units, (subsets, width)."""

    def masks(self, width: int) -> Tensor:
        """All subsets, (subsets, width): true where a unit is kept.

        >>> from nestcode.lengths import Uniform
        >>> Groups([1, 2], Uniform()).masks(3)
        tensor([[ True, False, False],
                [ True,  True,  True]])
        """
        kept = _kept_masks(self, len(range(width)))  # which makes a symbolic width a number
        return torch.as_tensor(kept).clone()  # the caller's own

    def probabilities(self, width: int) -> Tensor:
        """How often each subset is drawn, (subsets,).

        >>> from nestcode.lengths import Uniform
        >>> Groups([1, 2], Uniform()).probabilities(3)
        tensor([0.5000, 0.5000], dtype=torch.float64)
        """
        return torch.from_numpy(self.lengths.pmf(len(self.masks(width))))

    def survival(self, width: int) -> Tensor:
        """How often each unit is kept, (width,).

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
def _made_masks(nesting: Nesting, width: int) -> NDArray[np.bool_]:
    return np.ascontiguousarray(nesting._masks(check_int(width, "width", least=1)))


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _kept_masks(nesting: Nesting, width: int) -> NDArray[np.bool_]:
    """The masks as numbers that are made once, and for a compiled graph are part of it."""
    return _made_masks(nesting, width)


@dataclass(frozen=True)
class Chain(Nesting):
    """Prefixes: each unit is kept only with all before it. What the paper does, and `NestedDropout(lengths)`.

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
        """Draw `n` prefixes, (n, width), by their lengths alone: width² masks are never made."""
        lengths = sample_lengths(self.lengths, n, width, device=device, generator=generator)
        return torch.arange(width, device=lengths.device) < lengths[:, None]


@dataclass(frozen=True)
class Groups(Nesting):
    """Consecutive groups of units, each kept only with all groups before it.

    >>> from nestcode.lengths import Uniform
    >>> groups = Groups([2, 3, 3], Uniform())     # keeps 2, 5 or 8 units
    >>> groups.masks(8).sum(dim=1)
    tensor([2, 5, 8])

    Units of one group are exchangeable; the order is that of the groups. Groups suit coefficients that make sense
    together: the bits of one number, the channels of one level.

    Args:
        sizes: the number of units in each group; their sum is the width.
        lengths: the distribution of the number of kept groups.

    """

    sizes: Sequence[int]
    lengths: Lengths

    def __post_init__(self) -> None:
        check_lengths(self.lengths)
        object.__setattr__(self, "sizes", _whole_numbers(self.sizes, "sizes", least=1))

    def _masks(self, width: int) -> NDArray[np.bool_]:
        _check_width(width, self.sizes, "groups")
        return np.tri(len(self.sizes), dtype=np.bool_).repeat(self.sizes, axis=1)


@dataclass(frozen=True)
class Tree(Nesting):
    """Blocks of units on the nodes of a rooted tree: a draw picks a node and keeps the blocks on the way to it.

    >>> tree = Tree([-1, 0, 0, 1])                # 0 is the root, 1 and 2 its children, 3 a child of 1
    >>> tree.masks(4).int()
    tensor([[1, 0, 0, 0],
            [1, 1, 0, 0],
            [1, 0, 1, 0],
            [1, 1, 0, 1]], dtype=torch.int32)

    A unit can rely on those above it and never meets those beside it: siblings refine what they share in alternative
    ways. A tree without branches is a chain of groups.

    Args:
        parents: the parent of each node, which comes before it; -1 for the root, the first.
        weights: how often each node is picked, in proportion; equally often by default.
        units: the number of units each node owns, or one number for all. They are laid out in the nodes' order, and
            their sum is the width. With no unit at the root, its children share nothing.

    """

    parents: Sequence[int]
    weights: Sequence[float] | None = None
    units: int | Sequence[int] = 1
    lengths: Lengths = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        parents = _whole_numbers(self.parents, "parents", least=-1)
        if parents[0] != -1 or any(not 0 <= parent < node for node, parent in enumerate(parents) if node):
            raise InvalidInput(
                f"parents must begin with the root's -1 and go on with nodes that come before their children, got "
                f"{list(parents)}: number the nodes from the root down"
            )
        n = len(parents)
        owned: Any = self.units
        units = _whole_numbers(owned if np.ndim(owned) else [owned] * n, "units", least=0)
        lengths = Empirical(np.ones(n).tolist() if self.weights is None else self.weights)
        for name, values in (("units", units), ("weights", lengths.weights)):
            if len(values) != n:
                raise InvalidInput(f"{name} must be one for each of the {n} nodes, got {len(values)}")
        fields = {"parents": parents, "weights": lengths.weights, "units": units, "lengths": lengths}
        for name, value in fields.items():  # frozen and hashable, whatever came in
            object.__setattr__(self, name, value)

    @classmethod
    def binary(cls, depth: int, lengths: Lengths, units: int = 1) -> Self:
        """A full binary tree of `depth` levels: `lengths` gives the level of a draw, the nodes on it are equal.

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


def check_lengths(lengths: object) -> None:
    """Refuse what is not a distribution before training starts."""
    if not isinstance(lengths, Lengths):
        raise InvalidInput(
            f"lengths must be a distribution from nestcode.lengths, got {lengths!r}: for example LogUniform()"
        )


def _whole_numbers(values: Sequence[int], name: str, least: int) -> tuple[int, ...]:
    try:
        numbers = tuple(check_int(value, name, least) for value in values)
    except TypeError:
        raise InvalidInput(f"{name} must be a list of whole numbers, got {values!r}") from None
    if not numbers:
        raise InvalidInput(f"{name} must be a list of at least one whole number, got none")
    return numbers


def _check_width(width: int, sizes: Sequence[int], what: str) -> None:
    if width != sum(sizes):
        raise InvalidInput(
            f"the width must be the {sum(sizes)} units of the {len(sizes)} {what}, got {width}: change one of them"
        )
