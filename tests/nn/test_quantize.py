"""Quantizers: prefixes decode to what is known, forward equals decoding, gradients by hand."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from nestcode import Codes
from nestcode.errors import InvalidInput
from nestcode.nn import BSQ, FSQ, LFQ, Quantizer, ResidualVQ, keep_prefix

TOKENS = 3
QUANTIZERS: dict[str, Callable[[int | None], Quantizer]] = {
    "FSQ": lambda tokens: FSQ([8, 5, 3, 2], tokens),
    "LFQ": lambda tokens: LFQ(4, tokens),
    "BSQ": lambda tokens: BSQ(4, tokens),
    "ResidualVQ": lambda tokens: ResidualVQ(4, stages=3, codewords=8, tokens=tokens),
}


def inputs(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(params=QUANTIZERS)
def pair(request: pytest.FixtureRequest) -> tuple[Quantizer, Quantizer]:
    """The same quantizer of one vector and of three tokens."""
    torch.manual_seed(0)
    one, several = QUANTIZERS[request.param](None), QUANTIZERS[request.param](TOKENS)
    if isinstance(one, ResidualVQ):
        one.initialize(inputs(100, 4), torch.Generator().manual_seed(0))
        several.load_state_dict(one.state_dict())
    return one, several


def test_forward_equals_decoding_all_bits(pair: tuple[Quantizer, Quantizer]) -> None:
    for quantizer, z in zip(pair, (inputs(9, 4), inputs(9, TOKENS, 4)), strict=True):
        codes = quantizer.codes(z)
        assert (len(codes), codes.width) == (9, quantizer.width)
        torch.testing.assert_close(quantizer.decode(codes), quantizer(z), rtol=1e-6, atol=1e-6)


def test_no_items_and_half_precision(pair: tuple[Quantizer, Quantizer]) -> None:
    for quantizer, shape in zip(pair, ((4,), (TOKENS, 4)), strict=True):
        assert quantizer.decode(quantizer.codes(inputs(0, *shape))).shape == (0, *shape)
        assert quantizer.half()(inputs(9, *shape).half()).dtype == torch.float16


def test_tokens_are_quantized_alike(pair: tuple[Quantizer, Quantizer]) -> None:
    one, several = pair
    z = inputs(9, TOKENS, 4)
    assert several.width == TOKENS * one.width
    apart = torch.stack([one(z[:, token]) for token in range(TOKENS)], dim=1)
    torch.testing.assert_close(several(z), apart)


@pytest.mark.parametrize("kind", ["FSQ", "LFQ", "BSQ"])
def test_prefixes_of_whole_tokens_are_what_nested_dropout_keeps(kind: str) -> None:
    quantizer, z = QUANTIZERS[kind](TOKENS), inputs(9, TOKENS, 4)
    codes, each = quantizer.codes(z), quantizer.width // TOKENS
    for kept in range(TOKENS + 1):
        assert torch.equal(quantizer.decode(codes.prefix(kept * each)), keep_prefix(quantizer(z), kept, dim=1))


@pytest.mark.parametrize("tokens", [None, TOKENS])
def test_prefixes_of_whole_stages_are_the_first_stages(tokens: int | None) -> None:
    torch.manual_seed(0)
    quantizer, z = ResidualVQ(4, 3, 8, tokens), inputs(9, *([] if tokens is None else [tokens]), 4)
    codes = quantizer.codes(z)
    for kept in range(4):
        prefix = codes.prefix(kept * 3 * (tokens or 1))
        torch.testing.assert_close(quantizer.decode(prefix), quantizer(z, kept=kept))
    kept_each = torch.tensor([0, 1, 2, 3, 3, 2, 1, 0, 1])
    rows = [quantizer(z[i : i + 1], kept=int(k)) for i, k in enumerate(kept_each)]
    torch.testing.assert_close(quantizer(z, kept=kept_each), torch.cat(rows))


def test_partly_known_symbols_decode_to_the_mean_of_what_is_open() -> None:
    quantizer = FSQ([4, 3])
    levels = [torch.linspace(-1, 1, count) for count in (4, 3)]
    for number in range(4):
        for second in range(3):
            codes = Codes.from_bits(np.array([[int(bit) for bit in f"{number:02b}{second:02b}"]]))
            for length in range(5):  # every prefix, by listing all numbers that share it
                known = [f"{number:02b}"[:length], f"{second:02b}"[: max(0, length - 2)]]
                expected = [
                    torch.stack([level for i, level in enumerate(grid) if f"{i:02b}".startswith(start)]).mean()
                    for grid, start in zip(levels, known, strict=True)
                ]
                torch.testing.assert_close(quantizer.decode(codes.prefix(length))[0], torch.stack(expected))


def test_partly_known_codewords_decode_to_their_mean() -> None:
    torch.manual_seed(0)
    quantizer = ResidualVQ(2, stages=1, codewords=8)
    codes = quantizer.codes(inputs(20, 2))
    numbers = codes.leading_bits(3)
    for length in (1, 2):
        block = 1 << (3 - length)
        expected = torch.stack([quantizer.codebooks[0, i // block * block :][:block].mean(dim=0) for i in numbers])
        torch.testing.assert_close(quantizer.decode(codes.prefix(length)), expected.detach())


def test_forged_codes_decode_to_the_top_level() -> None:
    codes = Codes.from_bits([[True, True, True]])
    assert FSQ([5]).decode(codes).tolist() == [[1.0]]
    assert FSQ([5]).decode(codes.prefix(2)).tolist() == [[1.0]]


def test_straight_through_gradients_by_hand() -> None:
    z, weight = inputs(5, 4).requires_grad_(), inputs(5, 4, seed=1)
    expected = {
        "FSQ": weight * (1 - z.detach().tanh() ** 2),
        "LFQ": weight,
        "BSQ": torch.autograd.grad((torch.nn.functional.normalize(z, dim=1) * weight).sum(), z)[0],
        "ResidualVQ": weight,
    }
    for kind, make in QUANTIZERS.items():
        grad = torch.autograd.grad((make(None)(z) * weight).sum(), z)[0]
        torch.testing.assert_close(grad, expected[kind])


def test_quantized_values() -> None:
    z = inputs(200, 4) * 3
    assert [len(column.unique()) for column in FSQ([8, 5, 3, 2])(z).T] == [8, 5, 3, 2]
    assert set(LFQ(4)(z).flatten().tolist()) == {-1.0, 1.0}
    torch.testing.assert_close(BSQ(4)(z).norm(dim=1), torch.ones(200))


def test_the_loss_of_residual_vq_trains_codebooks_and_encoder() -> None:
    torch.manual_seed(0)
    quantizer, z = ResidualVQ(4, 2, 8), inputs(64, 4).requires_grad_()
    loss = quantizer.loss(z, commitment=0.5)
    words = [word.detach() for _, word, _ in quantizer._stages(z)]
    expected = ((z - words[0]).square().mean() + (z - words[0] - words[1]).square().mean()) * 1.5 / 2
    torch.testing.assert_close(loss, expected)
    by_hand = 0.5 / 2 * 2 / z.numel() * ((z - words[0]) + (z - words[0] - words[1]))
    torch.testing.assert_close(torch.autograd.grad(loss, z, retain_graph=True)[0], by_hand.detach())
    optimizer = torch.optim.Adam(quantizer.parameters(), lr=0.05)
    for _ in range(30):
        optimizer.zero_grad()
        quantizer.loss(z.detach()).backward()
        optimizer.step()
    assert quantizer.loss(z) < 0.7 * loss


def test_entropy_is_least_for_decided_and_balanced_bits() -> None:
    quantizer = LFQ(1)
    decided, same, open_ = torch.tensor([[9.0], [-9.0]]), torch.tensor([[9.0], [9.0]]), torch.tensor([[0.0], [0.0]])
    assert float(quantizer.entropy_loss(decided)) == pytest.approx(-np.log(2), abs=1e-5)
    assert float(quantizer.entropy_loss(same)) == pytest.approx(0, abs=1e-5)
    assert float(quantizer.entropy_loss(open_)) == pytest.approx(0, abs=1e-5)


MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "one level": (lambda: FSQ([4, 1]), "a number of levels must be an integer of at least 2, got 1"),
    "other tokens": (lambda: FSQ([4, 4], 3)(inputs(5, 2, 2)), "z must be (n, 3, 2), got shape (5, 2, 2)"),
    "tokens of a vector": (lambda: BSQ(4).codes(inputs(5, 3, 4)), "z must be (n, 4), got shape (5, 3, 4)"),
    "no codes": (lambda: LFQ(4).decode(inputs(5, 4)), "codes must be Codes of at most 4 bits, got Tensor"),  # type: ignore[arg-type]
    "too long": (lambda: LFQ(1).decode(Codes.from_bits([[True] * 3])), "at most 1 bits, got 3 bits"),
    "odd codebook": (lambda: ResidualVQ(4, 2, 6), "codewords must be a power of 2, got 6"),
    "few vectors": (lambda: ResidualVQ(4, 2, 8).initialize(inputs(5, 4)), "needs at least 8 vectors, got 5"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_named(mistake: str) -> None:
    call, message = MISTAKES[mistake]
    with pytest.raises(InvalidInput, match=re.escape(message)):
        call()


@pytest.mark.parametrize("quantizer", [FSQ([8] * 4), LFQ(4), BSQ(4), ResidualVQ(4, stages=2, codewords=16)])
def test_only_finite_tensors_have_codes(quantizer: Quantizer) -> None:
    for value in (np.nan, np.inf):
        with pytest.raises(InvalidInput, match="z must be finite"):
            quantizer.codes(torch.tensor([[0.0] * 4, [0.0, 0.0, value, 0.0]]))
    with pytest.raises(InvalidInput, match="z must be a tensor, got ndarray"):
        quantizer.codes(np.zeros((2, 4)))  # type: ignore[arg-type]
