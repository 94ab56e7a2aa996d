"""The expected loss over truncations of the code: exact for linear decoders, otherwise sampled."""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, Literal

import torch
from torch import Tensor, nn

from nestcode.arrays import check_int
from nestcode.errors import InvalidInput
from nestcode.lengths import Empirical, Lengths
from nestcode.nn.dropout import check_dim, keep_prefix
from nestcode.nn.sampling import LengthSchedule, check_lengths, length_table, sample_lengths

Reduction = Literal["mean", "sum", "none"]
REDUCTIONS = ("mean", "sum", "none")


def expected_loss(
    code: Tensor,
    decoder: nn.Linear | Tensor,
    target: Tensor,
    lengths: Lengths | LengthSchedule,
    bias: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return the exact expectation of |target − (weight · code↓b + bias)|² over the kept length b.

    >>> from nestcode.lengths import Uniform
    >>> code, decoder = torch.tensor([[1.0, 2.0]]), torch.eye(2)
    >>> expected_loss(code, decoder, target=code, lengths=Uniform())   # (2² + 0) / 2
    tensor(2.)

    With S_k = P(b ≥ k) and γ_k the columns of the weight it is |y|² − 2 Σ_k S_k x_k γ_k·y + Σ_kl S_max(k,l) x_k x_l
    γ_k·γ_l, so no truncation is ever formed. The loss has no sampling noise, which line searches require, and costs
    about as much as one squared error.

    Args:
        code: (…, width), the full codes: (n, width), or (batch, tokens, width).
        decoder: a `torch.nn.Linear` from the code to the target, or a weight laid out like its own, (features, width).
        target: (…, features).
        lengths: the distribution of the kept length, or a `LengthSchedule`.
        bias: (features,), added at every length; by default the bias of the `nn.Linear`.
        reduction: "mean", "sum" or "none" over the examples, as in PyTorch's losses. The error of an example is the sum
            over its features; divide by their number to compare with `mse_loss`.

    Returns:
        The squared error, in float32 at least, also under autocast. The terms cancel: the absolute error is about 1e-6
        of the mean |target − bias|² in float32, so use a bias or centered data, and float64 where the loss itself gets
        that small.

    """
    check_lengths(lengths)
    weight = decoder
    if isinstance(decoder, nn.Linear):
        if bias is not None:
            raise InvalidInput("bias must be left out where the decoder is an nn.Linear, which has its own")
        weight, bias = decoder.weight, decoder.bias
    if not isinstance(weight, Tensor):
        raise InvalidInput(
            f"decoder must be an nn.Linear or its weight, got {type(decoder).__name__}: NestedLoss takes any decoder"
        )
    _check_shapes(code, weight, target, bias, reduction)
    dtype = reduce(torch.promote_types, (code.dtype, weight.dtype, target.dtype), torch.float32)
    with torch.autocast(code.device.type, enabled=False):
        code, weight, target = code.to(dtype), weight.to(dtype), target.to(dtype)
        if bias is not None:
            target = target - bias.to(dtype)
        survival = length_table("survival", lengths, code.shape[-1], code.device, dtype)  # (width,)
        both_kept = torch.minimum(survival[:, None], survival)  # S_max(k, l), as survival never rises
        energy = code @ (both_kept * _gram(weight))
        error = target.square().sum(dim=-1) + ((energy - 2 * (target @ weight) * survival) * code).sum(dim=-1)
    if reduction == "none":
        return error
    return error.sum() if reduction == "sum" else error.mean()


def _gram(a: Tensor) -> Tensor:
    """Return the Gram matrix aᵀa: (n, width) -> (width, width)."""
    product: Tensor = _Gram.apply(a)  # type: ignore[no-untyped-call]
    return product


class _Gram(torch.autograd.Function):
    """The Gram matrix with one matrix product in the backward pass, where autograd takes two.

    Both products are of the form b · cᵀ: some BLAS libraries compute these nearly twice as fast.
    """

    @staticmethod
    def forward(a: Tensor) -> Tensor:
        columns = a.T.contiguous()
        return columns @ columns.T

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:  # noqa: ARG004
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        a: Tensor = ctx.saved_tensors[0]
        grad = grads[0]
        return a @ (grad + grad.T).T


class NestedLoss(nn.Module):
    """Any loss of a code, averaged over prefixes of the code.

    It adds nested dropout to a model in two lines: wrap the loss, and pass it the code. Put everything between the code
    and the loss (a classifier head, a decoder) inside the wrapped function:

    >>> from torch.nn.functional import cross_entropy
    >>> from nestcode.lengths import LogUniform
    >>> encoder, head = nn.Linear(8, 16), nn.Linear(16, 3)
    >>> loss = NestedLoss(lambda code, label: cross_entropy(head(code), label), LogUniform())
    >>> x, label = torch.randn(5, 8), torch.tensor([0, 1, 2, 1, 0])
    >>> loss(encoder(x), label).shape
    torch.Size([])

    The probability of a length is its weight. It draws lengths in evaluation mode too; to evaluate one prefix, use
    `keep_prefix`.

    Args:
        loss: a function `loss(code, …)` of the truncated code and any further arguments. If its attribute
            `takes_length` is true, as for `InfoNCE`, it also gets the kept length as `length=`.
        lengths: the distribution of the kept length, or a `LengthSchedule`.
        dim: the dimension of the code to truncate.
        draws: the number of draws to average in each step. None computes the exact expectation: one loss for every
            possible length, weighted by its probability (not for `torch.compile(fullgraph=True)`).
        together: draw one length for the whole batch instead of one for each example; for losses that compare examples
            with each other.

    """

    def __init__(
        self,
        loss: Callable[..., Tensor],
        lengths: Lengths | LengthSchedule,
        *,
        dim: int = -1,
        draws: int | None = 1,
        together: bool = False,
    ) -> None:
        super().__init__()
        check_lengths(lengths)
        if not callable(loss):
            raise InvalidInput(f"loss must be called as loss(code, …), got {loss!r}: give a function or a module")
        if draws is not None:
            draws = check_int(draws, "draws", least=1)
        self.loss = loss
        self.lengths = lengths
        self.dim = dim
        self.draws = draws
        self.together = together

    def forward(self, code: Tensor, *others: Any, generator: torch.Generator | None = None, **options: Any) -> Tensor:
        """Return the mean of `loss(truncated code, *others, **options)`; `generator` draws the lengths."""
        width = code.shape[check_dim(code, self.dim)]
        total = None
        for share, kept in self._truncations(code, width, generator):
            given = {"length": kept, **options} if getattr(self.loss, "takes_length", False) else options
            loss = self.loss(keep_prefix(code, kept, self.dim), *others, **given)
            if not isinstance(loss, Tensor):
                raise InvalidInput(f"loss must return a tensor, got {type(loss).__name__}: return the loss to minimize")
            total = share * loss if total is None else total + share * loss
        assert total is not None
        return total

    def _truncations(
        self, code: Tensor, width: int, generator: torch.Generator | None
    ) -> list[tuple[float, Tensor | int]]:
        """Return weights that add up to 1, each with its lengths."""
        if self.draws is None:
            lengths = self.lengths.lengths if isinstance(self.lengths, LengthSchedule) else self.lengths
            pmf = lengths.pmf(width)
            return [(float(pmf[k]), int(k) + 1) for k in pmf.nonzero()[0]]
        n = 1 if self.together else code.shape[0]
        kept = [
            sample_lengths(self.lengths, n, width, device=code.device, generator=generator) for _ in range(self.draws)
        ]
        return [(1 / self.draws, k[0] if self.together else k) for k in kept]

    def extra_repr(self) -> str:
        """Return what `print(model)` shows."""
        return f"{self.lengths}, dim={self.dim}, draws={self.draws}, together={self.together}"


class MatryoshkaLoss(NestedLoss):
    """Matryoshka representation learning (Kusupati et al., 2022): the weighted sum of a loss over fixed lengths.

    >>> loss = MatryoshkaLoss(lambda code: code.sum(), lengths=[1, 3])
    >>> loss(torch.tensor([[1.0, 10.0, 100.0]]))                      # 1 + 111
    tensor(112.)

    Every step takes all lengths. It is `NestedLoss` with `Empirical` weights and `draws=None`, which averages where
    this one sums.

    Args:
        loss: called as `loss(code, …)` with the truncated code and whatever else came in.
        lengths: to keep, at most the width of the code.
        weights: of the lengths; 1 by default.
        dim: the dimension of the code to truncate.

    """

    def __init__(
        self, loss: Callable[..., Tensor], lengths: Sequence[int], weights: Sequence[float] | None = None, dim: int = -1
    ) -> None:
        if not len(lengths):
            raise InvalidInput("lengths must be at least one length to keep, got none: give some, as in [8, 16, 32]")
        for length in lengths:
            check_int(length, "a length to keep", least=1)
        fixed = Empirical([1.0] * len(lengths) if weights is None else weights, lengths)
        super().__init__(loss, fixed, dim=dim, draws=None, together=True)
        self.total, self.kept = sum(fixed.weights), tuple(lengths)

    def forward(self, code: Tensor, *others: Any, generator: torch.Generator | None = None, **options: Any) -> Tensor:
        """Return the sum of `weight * loss(truncated code, *others, **options)`."""
        width, longest = code.shape[check_dim(code, self.dim)], max(self.kept)
        if longest > width:
            raise InvalidInput(
                f"lengths must be at most the code's width {width}, got {longest}: leave it out, or give wider codes"
            )
        return self.total * super().forward(code, *others, generator=generator, **options)


def _check_shapes(code: Tensor, weight: Tensor, target: Tensor, bias: Tensor | None, reduction: str) -> None:
    fits = (
        code.ndim >= 2
        and weight.ndim == 2
        and code.shape[-1] == weight.shape[1]
        and target.shape == (*code.shape[:-1], weight.shape[0])
        and (bias is None or bias.shape == weight.shape[:1])
    )
    if not fits:
        got = [tuple(tensor.shape) for tensor in (code, weight, target, bias) if tensor is not None]
        raise InvalidInput(
            "code must be (…, width), weight (features, width), target (…, features) and bias (features,), "
            f"got {', '.join(map(str, got))}: weight is laid out as in torch.nn.Linear"
        )
    if reduction not in REDUCTIONS:
        raise InvalidInput(f"reduction must be one of {', '.join(REDUCTIONS)}, got {reduction!r}")
    if reduction == "mean" and code.numel() == 0:
        raise InvalidInput("the mean over a batch needs at least one example, got an empty code")
