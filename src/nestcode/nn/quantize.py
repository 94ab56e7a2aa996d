"""Quantizers with straight-through gradients whose codes are nested: FSQ, LFQ, BSQ, residual vector quantization.

    z ──forward──▶ quantized z, with a gradient               in training, before the decoder
    z ──codes──▶ nestcode.Codes ──prefix──▶ ──decode──▶ z     any number of leading bits, for an index or a stream

An item is one vector, (n, features), or a sequence of `tokens` vectors, (n, tokens, features). Its code lists the
symbols of its tokens in order, the bits of each symbol from the most significant down, so prefixes of whole tokens
decode to what nested dropout over tokens keeps. Not here: bits at quantiles of their units (`binarize.py`).
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import log2, sqrt

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from nestcode.arrays import check_int
from nestcode.codes import MAX_WIDTH, Codes
from nestcode.errors import InvalidInput
from nestcode.nn.dropout import Kept, check_factor, check_tensor, keep_prefix

LLOYD = 10  # iterations of k-means that initialize a codebook


class Quantizer(nn.Module, ABC):
    """A quantizer of vectors or tokens into symbols of a few bits each: the base of `FSQ`, `LFQ`, `BSQ`, `ResidualVQ`.

    >>> quantizer = FSQ([8, 4])
    >>> quantizer.width
    5

    Subclasses quantize, number their symbols, and decode ranges of numbers, because leading bits leave a range open.
    """

    _symbol: Tensor  # (width,): which of the tokens * symbols a bit belongs to
    _shift: Tensor  # (width,): its place in the symbol's number

    def __init__(self, features: int, bits: Sequence[int], tokens: int | None, *, symbols_first: bool = False) -> None:
        super().__init__()
        self.features, self.bits = check_int(features, "features", least=1), tuple(bits)
        most = MAX_WIDTH // max(sum(self.bits), 1)
        self.tokens = None if tokens is None else check_int(tokens, "tokens", least=1, most=most)
        count = self.tokens or 1
        numbers = np.arange(count * len(self.bits)).reshape(count, len(self.bits))
        sizes = np.broadcast_to(self.bits, numbers.shape)
        if symbols_first:  # the first symbol of every token, then the second
            numbers, sizes = numbers.T, sizes.T
        symbol = np.repeat(numbers.ravel(), sizes.ravel())
        shift = np.concatenate([np.arange(size)[::-1] for size in sizes.ravel()])
        self.register_buffer("_symbol", torch.from_numpy(symbol), persistent=False)
        self.register_buffer("_shift", torch.from_numpy(shift), persistent=False)

    @property
    def width(self) -> int:
        """The number of bits of an item's code."""
        return len(self._symbol)

    @torch.no_grad()
    def codes(self, z: Tensor) -> Codes:
        """Return the codes of items, (n, features) or (n, tokens, features)."""
        if not self._check(z).isfinite().all():
            raise InvalidInput("z must be finite, but some of it is NaN or infinite: drop these items")
        numbers = self._numbers(z).reshape(len(z), (self.tokens or 1) * len(self.bits))
        return Codes.from_bits((numbers[:, self._symbol] >> self._shift & 1).bool().cpu().numpy())

    @torch.no_grad()
    def decode(self, codes: Codes) -> Tensor:
        """Decode any prefix of codes: (n, features) or (n, tokens, features).

        A symbol of which only some leading bits are known decodes to the mean of the possible values; an unknown symbol
        decodes to 0.
        """
        if not isinstance(codes, Codes) or codes.width > self.width:
            got = f"{codes.width} bits" if isinstance(codes, Codes) else type(codes).__name__
            raise InvalidInput(f"codes must be Codes of at most {self.width} bits, got {got}")
        symbol, shift = self._symbol[: codes.width], self._shift[: codes.width]
        bits = torch.from_numpy(codes.bits()).to(symbol.device).long()
        count = (self.tokens or 1) * len(self.bits)
        first = bits.new_zeros(len(bits), count).index_add_(1, symbol, bits << shift)
        known = torch.bincount(symbol, minlength=count).view(-1, len(self.bits))
        left = 1 << (torch.tensor(self.bits, device=symbol.device) - known)  # numbers that share the known bits
        out = self._decode(first.view(len(bits), self.tokens or 1, len(self.bits)), left, known > 0)
        return out if self.tokens is not None else out[:, 0]

    @abstractmethod
    def _numbers(self, z: Tensor) -> Tensor:
        """Return the number of each symbol, (…, features) -> (…, symbols)."""

    @abstractmethod
    def _decode(self, first: Tensor, left: Tensor, known: Tensor) -> Tensor:
        """Decode numbers from `first`, (n, tokens, symbols), of which `left`, (tokens, symbols), are possible."""

    def _check(self, z: Tensor) -> Tensor:
        check_tensor(z, "z")
        shape = (self.features,) if self.tokens is None else (self.tokens, self.features)
        if z.shape[1:] != shape:
            raise InvalidInput(f"z must be (n, {', '.join(map(str, shape))}), got shape {tuple(z.shape)}")
        return z


class FSQ(Quantizer):
    """Finite scalar quantization (Mentzer et al., 2023): each feature is bounded by tanh and rounded to a few levels.

    >>> quantizer = FSQ([3, 2])
    >>> z = torch.tensor([[-2.0, 0.3], [0.1, -0.1]])
    >>> quantizer(z)
    tensor([[-1.,  1.],
            [ 0., -1.]])
    >>> quantizer.codes(z)
    Codes(2 items of 3 bits: 001, 010)
    >>> quantizer.decode(quantizer.codes(z).prefix(1))       # the first bit: below or at the top level
    tensor([[-0.5000,  0.0000],
            [-0.5000,  0.0000]])

    The levels are evenly spaced from -1 to 1. The gradient is the gradient of tanh.

    Args:
        levels: the number of levels of each feature, 2 or more; powers of 2 waste no bits.
        tokens: the number of tokens of an item; None if an item is one vector.

    """

    levels: Tensor  # (features,)

    def __init__(self, levels: Sequence[int], tokens: int | None = None) -> None:
        checked = [check_int(level, "a number of levels", least=2) for level in levels]
        super().__init__(len(checked), [(level - 1).bit_length() for level in checked], tokens)
        self.register_buffer("levels", torch.tensor(checked), persistent=False)

    def forward(self, z: Tensor) -> Tensor:
        """Return the nearest levels, in the shape of z."""
        return copy_gradient(self._level(self._numbers(self._check(z)).to(z.dtype)), z.tanh())

    def _numbers(self, z: Tensor) -> Tensor:
        return ((z.tanh() + 1) / 2 * (self.levels - 1) + 0.5).floor().long()

    def _decode(self, first: Tensor, left: Tensor, known: Tensor) -> Tensor:  # noqa: ARG002
        top = self.levels - 1
        last = torch.minimum(first + left - 1, top)  # forged codes may exceed it
        return self._level((torch.minimum(first, top) + last) / 2)

    def _level(self, number: Tensor) -> Tensor:
        return (2 * number / (self.levels - 1) - 1).to(number.dtype)

    def extra_repr(self) -> str:
        """Return what `print(model)` shows."""
        return f"{self.levels.tolist()}, tokens={self.tokens}"


class LFQ(Quantizer):
    """Lookup-free quantization (Yu et al., 2023): each feature becomes its sign.

    >>> quantizer = LFQ(3)
    >>> z = torch.tensor([[0.2, -0.7, 0.0]])
    >>> quantizer(z), quantizer.codes(z)
    (tensor([[ 1., -1., -1.]]), Codes(1 item of 3 bits: 100))
    >>> quantizer.decode(quantizer.codes(z).prefix(2))
    tensor([[ 1., -1.,  0.]])

    The gradient is straight-through. Add `entropy_loss`, which keeps bits both decided and balanced.

    Args:
        features: bits of each token.
        tokens: the number of tokens of an item; None if an item is one vector.

    """

    def __init__(self, features: int, tokens: int | None = None) -> None:
        features = check_int(features, "features", least=1, most=MAX_WIDTH)
        super().__init__(features, [1] * features, tokens)
        self.scale = 1.0  # of the quantized values

    def forward(self, z: Tensor) -> Tensor:
        """Return the signs, in the shape of z."""
        z = self._bounded(self._check(z))
        return copy_gradient((2 * self._numbers(z) - 1).to(z.dtype) * self.scale, z)

    def entropy_loss(self, z: Tensor, temperature: float = 0.5) -> Tensor:
        """Return the mean entropy of a bit given its item, less the entropy of the mean bit: from 0 down to -ln 2.

        A bit is 1 with probability sigmoid(z / temperature), of z in units of the quantized values.
        """
        softness = check_factor(temperature, "temperature", above=0)
        z = self._bounded(self._check(z)).flatten(0, -2) / (self.scale * softness)
        given = functional.binary_cross_entropy_with_logits(z, z.sigmoid())
        mean = z.sigmoid().mean(dim=0)
        return given - functional.binary_cross_entropy(mean, mean)

    def _bounded(self, z: Tensor) -> Tensor:
        return z

    def _numbers(self, z: Tensor) -> Tensor:
        return (z > 0).long()

    def _decode(self, first: Tensor, left: Tensor, known: Tensor) -> Tensor:  # noqa: ARG002
        return (2 * first - 1) * known * self.scale

    def extra_repr(self) -> str:
        """Return what `print(model)` shows."""
        return f"{self.features}, tokens={self.tokens}"


class BSQ(LFQ):
    """Binary spherical quantization (Zhao et al., 2024): vectors on the unit sphere move to its nearest corner.

    >>> quantizer = BSQ(4)
    >>> quantizer(torch.tensor([[3.0, -1.0, 2.0, 0.1]]))
    tensor([[ 0.5000, -0.5000,  0.5000,  0.5000]])

    The gradient is the gradient of the normalization, and the quantization error of a token is bounded.

    Args:
        features: bits of each token.
        tokens: the number of tokens of an item; None if an item is one vector.

    """

    def __init__(self, features: int, tokens: int | None = None) -> None:
        super().__init__(features, tokens)
        self.scale = 1 / sqrt(features)

    def _bounded(self, z: Tensor) -> Tensor:
        return functional.normalize(z, dim=-1)


class ResidualVQ(Quantizer):
    """Residual vector quantization: each stage quantizes the residual of the earlier stages with its own codebook.

    >>> _ = torch.manual_seed(0)
    >>> quantizer, z = ResidualVQ(8, stages=4, codewords=16), torch.randn(200, 8)
    >>> quantizer.initialize(z)
    >>> codes = quantizer.codes(z)
    >>> errors = [float((z - quantizer.decode(codes.prefix(b))).square().mean()) for b in (0, 4, 8, 16)]
    >>> codes.width, errors == sorted(errors, reverse=True)
    (16, True)
    >>> torch.equal(quantizer.decode(codes.prefix(8)), quantizer(z, kept=2))
    True

    Nested dropout over stages, the "quantizer dropout" of SoundStream, is `kept=sample_lengths(Uniform(), n, stages)`.
    The gradient of the output is straight-through; add `loss`, which trains the codebooks. Codes are coarse to fine:
    the first stage of all tokens, then the second.

    Args:
        features: of a vector.
        stages: how many codebooks.
        codewords: the size of each codebook, a power of 2.
        tokens: the number of tokens of an item; None if an item is one vector.

    """

    def __init__(self, features: int, stages: int, codewords: int = 256, tokens: int | None = None) -> None:
        stages = check_int(stages, "stages", least=1, most=MAX_WIDTH)
        codewords = check_int(codewords, "codewords", least=2, most=MAX_WIDTH)
        features = check_int(features, "features", least=1, most=MAX_WIDTH)
        if codewords & (codewords - 1):
            raise InvalidInput(f"codewords must be a power of 2, got {codewords}: their numbers are bits of a code")
        super().__init__(features, [int(log2(codewords))] * stages, tokens, symbols_first=True)
        self.codebooks = nn.Parameter(torch.randn(stages, codewords, features) / sqrt(features))

    def forward(self, z: Tensor, kept: Kept | None = None) -> Tensor:
        """Return the sum of the first `kept` stages, or of all, in the shape of z; `kept` is one number or (n,)."""
        parts = torch.stack([word for _, word, _ in self._stages(self._check(z).detach())], dim=-2)
        if kept is not None:
            parts = keep_prefix(parts, kept, dim=-2)
        return copy_gradient(parts.sum(dim=-2), z)

    def loss(self, z: Tensor, commitment: float = 0.25) -> Tensor:
        """Return the mean squared error of the codewords plus `commitment` times the residuals' error.

        The first part trains the codebooks, the second part trains the layers before the quantizer.
        """
        weight = check_factor(commitment, "commitment")
        parts = [
            (residual.detach() - word).square().mean() + weight * (residual - word.detach()).square().mean()
            for residual, word, _ in self._stages(self._check(z))
        ]
        return torch.stack(parts).mean()

    @torch.no_grad()
    def initialize(self, z: Tensor, generator: torch.Generator | None = None) -> None:
        """Set the codebooks by k-means of the residuals of these items; pass at least one vector per codeword."""
        rest = self._check(z).flatten(0, -2)
        if len(rest) < self.codebooks.shape[1]:
            raise InvalidInput(f"initialize needs at least {self.codebooks.shape[1]} vectors, got {len(rest)}")
        for book in self.codebooks:
            book.copy_(rest[torch.randperm(len(rest), generator=generator).to(rest.device)[: len(book)]])
            for _ in range(LLOYD):
                nearest = _nearest(rest, book)
                sums = torch.zeros_like(book).index_add_(0, nearest, rest)
                counts = torch.bincount(nearest, minlength=len(book))[:, None]
                book.copy_(torch.where(counts > 0, sums / counts, book))
            rest = rest - book[_nearest(rest, book)]

    def _stages(self, z: Tensor) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Return the residual, codeword and number of each stage; residuals have gradients for z only."""
        found, rest = [], z
        for book in self.codebooks:
            number = _nearest(rest.detach().flatten(0, -2), book.detach()).view(rest.shape[:-1])
            word = book[number]
            found.append((rest, word, number))
            rest = rest - word.detach()
        return found

    def _numbers(self, z: Tensor) -> Tensor:
        return torch.stack([number for _, _, number in self._stages(z)], dim=-1)

    def _decode(self, first: Tensor, left: Tensor, known: Tensor) -> Tensor:
        out = torch.zeros(*first.shape[:2], self.features, device=first.device, dtype=self.codebooks.dtype)
        for token, stage in known.nonzero().tolist():
            book = self.codebooks[stage].view(-1, int(left[token, stage]), self.features).mean(dim=1)
            out[:, token] += book[first[:, token, stage] // left[token, stage]]
        return out

    def extra_repr(self) -> str:
        """Return what `print(model)` shows."""
        stages, codewords, features = self.codebooks.shape
        return f"{features}, stages={stages}, codewords={codewords}, tokens={self.tokens}"


def copy_gradient(quantized: Tensor, z: Tensor) -> Tensor:
    """Return the quantized values exactly, with the gradient of z: the straight-through estimator of VQ-VAE.

    >>> z = torch.tensor([0.3], requires_grad=True)
    >>> out = copy_gradient(z.round(), z)
    >>> out.backward()
    >>> out.item(), z.grad.item()
    (0.0, 1.0)
    """
    return quantized.detach() + (z - z.detach())


def _nearest(rows: Tensor, book: Tensor) -> Tensor:
    """Return the nearest codeword of each row, (n, features), (codewords, features) -> (n,)."""
    dtype = torch.promote_types(book.dtype, torch.float32)  # CPUs have no distances in half precision
    return torch.cdist(rows.to(dtype), book.to(dtype)).argmin(dim=1)
