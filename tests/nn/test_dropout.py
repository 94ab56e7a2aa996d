"""Nested dropout: what is kept, on which devices and dtypes, and its gradients."""

import copy
import pickle
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chi2
from torch import Tensor, nn

from nestcode.errors import InvalidInput
from nestcode.lengths import Beyond, Empirical, Full, Geometric, Lengths, LogUniform, Mixture, Uniform
from nestcode.nn import FSQ, LengthSchedule, NestedDropout, ResidualVQ, keep_prefix, prefix_mask, sample_lengths
from nestcode.nn.dropout import keep_units
from nestcode.nn.nesting import Chain, Groups, Nesting, Tree


def keep_prefix_twin(x: Tensor, kept: list[int], dim: int) -> Tensor:
    """Example by example, entry by entry."""
    out = x.clone()
    for example, length in zip(out, kept, strict=True):
        for place in range(length, example.shape[dim - 1]):
            example.select(dim - 1, place).zero_()
    return out


@pytest.mark.parametrize(("shape", "dim"), [((4, 6), 1), ((4, 6, 3), 1), ((4, 5, 6), 2), ((4, 3, 2, 2), 1)])
def test_each_example_keeps_its_own_prefix(shape: tuple[int, ...], dim: int) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    kept = [0, 1, 2, shape[dim]]
    expected = keep_prefix_twin(x, kept, dim)
    assert torch.equal(keep_prefix(x, torch.tensor(kept), dim), expected)
    assert torch.equal(keep_prefix(x, torch.tensor(kept), dim - len(shape)), expected)


def test_one_length_serves_all_and_beyond_the_width_keeps_all() -> None:
    x = torch.ones(2, 5)
    assert keep_prefix(x, 2).sum(dim=1).tolist() == [2, 2]
    assert torch.equal(keep_prefix(x, [5, 9]), x)
    assert torch.equal(keep_prefix(x, torch.tensor([5, 900])), x)


@pytest.mark.parametrize("kept", [[1, 3], np.array([1, 3]), torch.tensor([1, 3], dtype=torch.uint8), (1, np.int64(3))])
def test_lengths_may_be_lists_and_arrays(kept: Any) -> None:
    assert keep_prefix(torch.ones(2, 5), kept).sum(dim=1).tolist() == [1, 3]


def test_lengths_may_belong_to_more_than_one_dimension() -> None:
    kept = torch.tensor([[0, 1, 2], [3, 4, 4]])
    assert torch.equal(keep_prefix(torch.ones(2, 3, 4), kept).sum(dim=2).long(), kept)


def test_dropped_entries_are_zero_and_pass_no_gradient() -> None:
    x = torch.tensor([[1.0, float("nan"), float("inf")]], requires_grad=True)
    out = keep_prefix(x, torch.tensor([1]))
    out.sum().backward()
    assert out.tolist() == [[1, 0, 0]]
    assert x.grad is not None
    assert x.grad.tolist() == [[1, 0, 0]]


@pytest.mark.parametrize(("shape", "dim"), [((4, 6), 1), ((4, 6, 3), 1), ((4, 5, 6), -1), ((4, 3, 2, 2), 1)])
def test_each_example_keeps_its_own_units(shape: tuple[int, ...], dim: int) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    mask = torch.rand(4, shape[dim], generator=torch.Generator().manual_seed(1)) > 0.5
    out = keep_units(x, mask, dim)
    for example, kept, marks in zip(x, out, mask, strict=True):
        for place, mark in enumerate(marks):  # entry by entry
            expected = example.select(dim - (dim > 0), place) * mark
            assert torch.equal(kept.select(dim - (dim > 0), place), expected)
    assert torch.equal(keep_units(x, mask[1], dim), keep_units(x, mask[1].expand(4, -1), dim))


def test_a_prefix_equals_its_mask() -> None:
    x = torch.tensor([[1.0, float("nan"), float("inf")]] * 4, requires_grad=True)
    mask = Chain(Uniform()).masks(3)
    for kept, row in enumerate(mask, start=1):
        assert torch.equal(keep_units(x, row).nan_to_num(7), keep_prefix(x, kept).nan_to_num(7))
    keep_units(x, mask[0]).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[1, 0, 0]] * 4
    drop = NestedDropout(Uniform())
    assert torch.equal(drop(torch.ones(3, 3), kept=mask), drop(torch.ones(3, 3), kept=[1, 2, 3]))


@pytest.mark.parametrize("block", [1, 2, (2, 3), (5, 1)])
def test_spatial_blocks_count_in_raster_order(block: int | tuple[int, int]) -> None:
    x = torch.randn(3, 2, 4, 6, generator=torch.Generator().manual_seed(0))
    high, wide = block if isinstance(block, tuple) else (block, block)
    across = -(-6 // wide)
    for kept in (0, 1, 3, 24):
        out = keep_prefix(x, torch.tensor([kept] * 3), dim=(2, 3), block=block)
        for row in range(4):
            for column in range(6):  # pixel by pixel
                number = row // high * across + column // wide
                assert torch.equal(out[:, :, row, column], x[:, :, row, column] * (number < kept))
    mask = torch.arange(-(-4 // high) * across) < 2
    expected = keep_prefix(x, 2, dim=(2, 3), block=block)
    assert torch.equal(keep_units(x, mask, dim=(2, 3), block=block), expected)
    assert torch.equal(keep_units(x, mask.expand(3, -1), dim=(-2, -1), block=block), expected)


def test_a_mask_token_replaces_dropped_tokens_and_is_trained() -> None:
    token = nn.Parameter(torch.tensor([2.0, 3.0]))
    drop = NestedDropout(Uniform(), dim=1, fill=token)
    x, kept = torch.ones(2, 3, 2), torch.tensor([1, 2])
    out = drop(x, kept)
    assert torch.equal(out, torch.where(prefix_mask(kept, 3)[:, :, None], x, token))
    out.sum().backward()
    assert token.grad is not None
    assert token.grad.tolist() == [3, 3]  # three tokens were dropped
    assert list(drop.parameters()) == [token]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert drop(x.bfloat16(), kept).dtype == torch.bfloat16
    assert NestedDropout(Uniform(), fill=torch.ones(3)).state_dict()["fill"].tolist() == [1, 1, 1]
    assert keep_prefix(torch.ones(1, 2), 1, fill=float("-inf")).tolist() == [[1, float("-inf")]]


def test_one_draw_for_the_batch_and_one_for_several_layers() -> None:
    drop, x = NestedDropout(Uniform(), together=True), torch.ones(50, 20)
    assert len(drop(x).sum(dim=1).unique()) == 1
    assert len({int(drop.sample(x)) for _ in range(50)}) > 5
    nested = NestedDropout(Groups([10, 10], Uniform()), together=True)
    assert nested.sample(x).shape == (20,)
    wide, deep = NestedDropout(Uniform(), dim=1), NestedDropout(Uniform(), dim=2)
    kept = wide.sample(torch.ones(4, 6, 3))
    assert torch.equal(wide(torch.ones(4, 6, 3), kept).sum(dim=(1, 2)) / 3, kept.float())
    assert torch.equal(deep(torch.ones(4, 2, 6), kept).sum(dim=(1, 2)) / 2, kept.float())
    assert wide.eval().sample(torch.ones(4, 6, 3)).tolist() == [6] * 4


def test_everything_is_kept_with_a_given_probability() -> None:
    lengths = Mixture([Full(), Empirical([1])], weights=[1, 3])
    kept = sample_lengths(lengths, 4000, 10, generator=torch.Generator().manual_seed(0))
    assert set(kept.tolist()) == {1, 10}
    assert 900 < int((kept == 10).sum()) < 1100


def test_a_schedule_moves_from_one_distribution_to_the_other() -> None:
    schedule = LengthSchedule(Full(), Empirical([1]), steps=4, after=2)
    drop, x = NestedDropout(schedule), torch.ones(400, 8)
    shares = []
    for _ in range(8):
        kept = drop.sample(x, torch.Generator().manual_seed(0))
        twin = sample_lengths(schedule.lengths, 400, 8, generator=torch.Generator().manual_seed(0))
        assert torch.equal(kept, twin)
        shares.append(round(float((kept == 1).float().mean()), 1))
        schedule.step()
    assert shares[:3] == [0, 0, 0]
    assert shares == sorted(shares)
    assert shares[6:] == [1, 1]
    again = NestedDropout(LengthSchedule(Full(), Empirical([1]), steps=4, after=2))
    again.load_state_dict(drop.state_dict())  # a run that resumes
    assert torch.equal(again.sample(x), drop.sample(x))


def test_truncations_nest() -> None:
    x = torch.randn(3, 8)
    assert torch.equal(keep_prefix(keep_prefix(x, 5), 3), keep_prefix(x, 3))


@pytest.mark.parametrize("lengths", [Geometric(0.8), Uniform(), LogUniform(), Empirical([1, 0, 2])], ids=repr)
def test_draws_follow_the_distribution(lengths: Lengths) -> None:
    n, width = 20_000, 10
    pmf = lengths.pmf(width)
    drawn = sample_lengths(lengths, n, width, generator=torch.Generator().manual_seed(1)).numpy()
    seen = np.bincount(drawn, minlength=width + 1)[1:]
    assert (seen[pmf == 0] == 0).all()
    statistic = ((seen - n * pmf) ** 2 / np.where(pmf > 0, n * pmf, 1)).sum()
    assert chi2.sf(statistic, df=(pmf > 0).sum() - 1) > 1e-4


def test_training_truncates_and_evaluation_does_not() -> None:
    drop, x = NestedDropout(Uniform()), torch.ones(50, 20)
    assert len(drop(x).sum(dim=1).unique()) > 5
    assert torch.equal(drop.eval()(x), x)
    assert drop(x, kept=3).sum() == 150  # given lengths count in evaluation mode too


def test_a_generator_makes_draws_repeatable_and_the_default_is_torchs() -> None:
    drop, x = NestedDropout(Uniform()), torch.ones(50, 20)
    first, second = (drop(x, generator=torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(first, second)
    torch.manual_seed(0)
    first = drop(x)
    torch.manual_seed(0)
    assert torch.equal(first, drop(x))


def test_a_chain_is_the_distribution_of_its_lengths() -> None:
    x = torch.randn(50, 20)
    for lengths in (Geometric(0.9), LogUniform()):
        chain, plain = (
            NestedDropout(nesting)(x, generator=torch.Generator().manual_seed(5))
            for nesting in (Chain(lengths), lengths)
        )
        assert torch.equal(chain, plain)


@pytest.mark.parametrize("nesting", [Groups([3, 1, 2], Uniform()), Tree([-1, 0, 0], units=[2, 2, 2])], ids=repr)
def test_a_nesting_draws_the_masks(nesting: Nesting) -> None:
    drop, x = NestedDropout(nesting, dim=1), torch.ones(60, 6, 2)
    out = drop(x, generator=torch.Generator().manual_seed(2))
    mask = nesting.sample(60, 6, generator=torch.Generator().manual_seed(2))
    assert torch.equal(out, mask[:, :, None].expand(60, 6, 2).float())
    assert torch.equal(drop(x, kept=nesting.masks(6)[2]), keep_units(x, nesting.masks(6)[2], dim=1))
    assert torch.equal(drop.eval()(x), x)
    assert pickle.loads(pickle.dumps(drop)).lengths == nesting
    with pytest.raises(InvalidInput, match=re.escape("the width must be the 6 units of the 3")):
        drop.train()(torch.ones(60, 7, 2))


def test_any_dimension_of_a_module() -> None:
    kept = torch.tensor([1, 2])
    channels = NestedDropout(Uniform(), dim=1)(torch.ones(2, 3, 4, 4), kept)
    assert channels.sum(dim=(2, 3)).tolist() == [[16, 0, 0], [16, 16, 0]]
    assert NestedDropout(Uniform(), dim=-2)(torch.ones(2, 3, 4), kept).sum(dim=2).tolist() == [[4, 0, 0], [4, 4, 0]]


def test_modules_print_pickle_and_copy() -> None:
    drop = NestedDropout(Geometric(0.9), dim=1)
    assert str(drop) == "NestedDropout(Geometric(decay=0.9), dim=1)"
    assert str(NestedDropout(Uniform(), (2, 3), block=4, together=True)).endswith("dim=(2, 3), block=4, together=True)")
    for other in (pickle.loads(pickle.dumps(drop)), copy.deepcopy(drop)):
        assert (other.lengths, other.dim) == (drop.lengths, drop.dim)
    assert not drop.state_dict()


def test_autocast_keeps_bfloat16() -> None:
    model = nn.Sequential(nn.Linear(6, 8), NestedDropout(Uniform()), nn.Linear(8, 2))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = model(torch.randn(4, 6))
        out.sum().backward()
    assert out.dtype == torch.bfloat16


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch's compiler warns of PyTorch
@pytest.mark.parametrize(
    "backend",
    [
        "aot_eager",
        pytest.param(
            "inductor",
            marks=pytest.mark.skipif(
                " " in torch.__file__, reason="PyTorch's C++ backend cannot link where its path has a space"
            ),
        ),
    ],
)
def test_it_compiles_without_graph_breaks(backend: str) -> None:
    from torch._inductor import config as inductor  # only here: the import takes a second

    torch._dynamo.reset()
    drop = NestedDropout(Geometric(0.9))

    def both(x: Tensor, kept: Tensor, ones: Tensor) -> tuple[Tensor, Tensor]:
        return drop(x, kept), drop(ones)

    # One graph, as the C++ compiler takes seconds for each, and for each instruction set that it tries.
    together = torch.compile(both, fullgraph=True, backend=backend)
    x, kept, ones = torch.randn(6, 12), torch.tensor([0, 1, 5, 6, 12, 30]), torch.ones(500, 12)
    with inductor.patch({"cpp.vec_isa_ok": True}):
        given, drawn = together(x, kept, ones)
    assert torch.equal(given, drop(x, kept))
    assert 3 < drawn.sum(dim=1).mean() < 12
    assert not torch.equal(drawn, ones)
    if backend == "aot_eager":  # a second and a third width: the compiler then tries to leave it open
        compiled = torch.compile(drop, fullgraph=True, backend=backend)
        for width in (12, 20, 31):
            assert compiled(torch.ones(500, width)).sum(dim=1).max() > width // 2


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch's compiler warns of PyTorch
@pytest.mark.parametrize(
    "lengths",
    [Beyond(Geometric(0.9), 4), Chain(Uniform()), Groups([3, 5, 4], Uniform()), Tree([-1, 0, 0], units=4)],
    ids=repr,
)
def test_every_nesting_compiles_without_graph_breaks(lengths: Lengths | Nesting) -> None:
    torch._dynamo.reset()
    drop = NestedDropout(lengths)
    compiled = torch.compile(drop, fullgraph=True, backend="eager")
    nesting = Chain(lengths) if isinstance(lengths, Lengths) else lengths
    rows = {tuple(row) for row in compiled(torch.ones(400, 12)).tolist()}
    assert rows == {tuple(row) for row in nesting.masks(12)[nesting.probabilities(12) > 0].float().tolist()}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_schedule_and_a_mask_token_compile_once() -> None:
    torch._dynamo.reset()
    schedule = LengthSchedule(Full(), Empirical([1]), steps=2)
    drop = NestedDropout(schedule, dim=(1, 2), block=2, fill=nn.Parameter(torch.tensor(5.0)))
    compiled = torch.compile(drop, fullgraph=True, backend="aot_eager")
    with torch._dynamo.config.patch(error_on_recompile=True):
        for expected in (1.0, None, (4 + 12 * 5) / 16):
            mean = compiled(torch.ones(3, 4, 4)).mean().item()
            assert expected is None or mean == pytest.approx(expected)
            schedule.step()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_quantizers_compile_without_graph_breaks() -> None:
    torch._dynamo.reset()
    z = torch.randn(9, 3, 4, generator=torch.Generator().manual_seed(0))
    for quantizer in (FSQ([8, 5, 3, 2], tokens=3), ResidualVQ(4, stages=2, codewords=4, tokens=3)):
        compiled = torch.compile(quantizer, fullgraph=True, backend="eager")
        assert torch.equal(compiled(z), quantizer(z))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_exported_models_take_lengths() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.drop = NestedDropout(Uniform(), dim=1, fill=nn.Parameter(torch.ones(3)))

        def forward(self, x: Tensor, kept: Tensor) -> Tensor:
            out: Tensor = self.drop(x, kept) * 2
            return out

    model, x = Model().eval(), torch.randn(4, 5, 3)
    exported = torch.export.export(model, (x, torch.tensor([5, 5, 5, 5])))
    for kept in (torch.tensor([1, 2, 3, 5]), torch.tensor([0, 0, 4, 1])):
        assert torch.equal(exported.module()(x, kept), model(x, kept))


def test_tables_cached_in_inference_mode_work_in_training() -> None:
    lengths = Geometric(0.123)  # not seen before, so that its table is made here
    with torch.inference_mode():
        NestedDropout(lengths)(torch.ones(3, 4))
    x = torch.ones(3, 4, requires_grad=True)
    NestedDropout(lengths)(x).sum().backward()
    assert x.grad is not None


def test_fake_tensors_are_not_cached() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    for lengths in (Geometric(0.777), Groups([1, 3], Geometric(0.776)), Tree([-1, 0, 1, 2], [1, 7, 7, 6])):
        drop = NestedDropout(lengths)
        with FakeTensorMode():
            drop(torch.ones(3, 4))
        assert drop(torch.ones(3, 4)).shape == (3, 4)


X = torch.ones(2, 5)
MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "float kept": (lambda: keep_prefix(X, torch.ones(2)), "kept must hold integers, got torch.float32"),
    "mask as kept": (lambda: keep_prefix(X, torch.ones(2).bool()), "kept must hold integers, got torch.bool"),
    "kept for 3 of 2": (lambda: keep_prefix(X, torch.tensor([1, 2, 3])), "x has shape (2, 5), kept (3,)"),
    "kept for each unit": (lambda: keep_prefix(X, torch.ones(2, 5).long()), "x has shape (2, 5), kept (2, 5)"),
    "kept beyond the width": (lambda: keep_prefix(X, 9), "at most the 5 entries along dim -1, got 9: keep fewer"),
    "negative kept": (lambda: keep_prefix(X, -1), "kept must be integers of at least 0, got -1"),
    "fraction kept": (lambda: keep_prefix(X, 2.0), "kept must be integers of at least 0, got 2.0"),  # type: ignore[arg-type]
    "nothing kept": (lambda: keep_prefix(X, None), "kept must be integers of at least 0, got None"),  # type: ignore[arg-type]
    "ragged kept": (lambda: keep_prefix(X, [[1], [2, 3]]), "kept must be integers of at least 0"),  # type: ignore[list-item]
    "examples as units": (lambda: NestedDropout(Uniform(), dim=0)(X), "dim must not be the batch dimension 0"),
    "no such dim": (lambda: keep_prefix(X, 1, dim=2), "dim must be a dimension of x, which has 2, got 2"),
    "no such dim in a module": (lambda: NestedDropout(Uniform(), dim=3)(X), "dim must be a dimension of x"),
    "descending dims": (lambda: keep_prefix(X, 1, dim=(1, 0)), "dim must be ascending dimensions of x"),
    "block of another rank": (lambda: keep_prefix(X, 1, block=(2, 2)), "block a number for each, got dim=-1"),
    "no block": (lambda: keep_prefix(X, 1, block=0), "block must be an integer of at least 1, got 0"),
    "a schedule from nothing": (lambda: LengthSchedule(None, Uniform(), 3), "start and end must be distributions"),  # type: ignore[arg-type]
    "mask of numbers": (lambda: keep_units(X, torch.ones(2, 5)), "the mask (2, 5) of torch.float32"),
    "mask of another width": (lambda: keep_units(X, torch.ones(2, 4).bool()), "x has shape (2, 5), the mask (2, 4)"),
    "mask of one number": (lambda: keep_units(X, torch.tensor(True)), "x has shape (2, 5), the mask ()"),
    "mask of examples": (lambda: keep_units(X, torch.ones(2, 2).bool(), dim=0), "(2, 5), the mask (2, 2)"),
    "fill of more dimensions": (
        lambda: keep_prefix(X, 1, fill=torch.ones(3, 2, 5)),
        "fill must broadcast to x of shape (2, 5), got shape (3, 2, 5)",
    ),
    "a number for lengths": (lambda: NestedDropout(0.9), "must be a distribution from nestcode.lengths, got 0.9"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_named(mistake: str) -> None:
    call, message = MISTAKES[mistake]
    with pytest.raises(InvalidInput, match=re.escape(message)):
        call()


@pytest.mark.parametrize("shape", [(3,), (5, 8), (1, 4, 8)])
def test_a_fill_of_another_shape_is_named(shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidInput, match=r"fill must broadcast to x of shape \(4, 8\)"):
        NestedDropout(Uniform(), fill=torch.zeros(shape))(torch.ones(4, 8))
    with pytest.raises(InvalidInput, match="must be a tensor, got ndarray: convert an array with"):
        NestedDropout(Uniform(), fill=np.zeros(8))  # type: ignore[arg-type]
