"""Packed prefixes against masked ones: the same tokens, the same layers, the same gradients."""

import re

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from nestcode.errors import InvalidInput
from nestcode.nn import PackedPrefixes, keep_prefix, pack_prefix, prefix_mask

KEPT = torch.tensor([1, 5, 0, 3])


def tokens(*rest: int) -> Tensor:
    return torch.randn(4, 5, *rest, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("rest", [(), (3,), (2, 3)])
def test_masking_is_dropping_then_padding(rest: tuple[int, ...]) -> None:
    x = tokens(*rest)
    packed = pack_prefix(x, KEPT)
    assert packed.lengths.tolist() == KEPT.tolist()
    assert torch.equal(packed.values, torch.cat([row[:kept] for row, kept in zip(x, KEPT, strict=True)]))
    assert torch.equal(packed.unpack(5), keep_prefix(x, KEPT, dim=1))
    token = torch.full(rest, 7.0)
    assert torch.equal(packed.unpack(5, fill=token), keep_prefix(x, KEPT, dim=1, fill=token))


def test_one_length_for_all_and_beyond_the_width() -> None:
    x = tokens(3)
    assert torch.equal(pack_prefix(x, 2).unpack(2), x[:, :2])
    assert torch.equal(pack_prefix(x, [9, 9, 9, 9]).unpack(5), x)


def test_a_layer_of_packed_tokens_equals_the_masked_layer() -> None:
    x, layer = tokens(3).requires_grad_(), nn.Sequential(nn.LayerNorm(3), nn.Linear(3, 2))
    packed = pack_prefix(x, KEPT)
    dropped = PackedPrefixes(layer(packed.values), packed.offsets).unpack(5)
    masked = keep_prefix(layer(x), KEPT, dim=1)
    torch.testing.assert_close(dropped, masked)
    gradients = [torch.autograd.grad(out.square().sum(), x)[0] for out in (dropped, masked)]
    torch.testing.assert_close(*gradients)


def test_the_attention_mask_hides_dropped_tokens() -> None:
    x, kept = tokens(8), torch.tensor([1, 5, 2, 3])
    mask = prefix_mask(kept, 5)
    masked = scaled_dot_product_attention(x[:, None], x[:, None], x[:, None], mask[:, None, None, :])[:, 0]
    packed = pack_prefix(x, kept)
    apart = [scaled_dot_product_attention(*[part[None]] * 3)[0] for part in packed.values.split(kept.tolist())]
    torch.testing.assert_close(masked[mask], torch.cat(apart))
    heads = nn.MultiheadAttention(8, 2, batch_first=True)
    out, _ = heads(x, x, x, key_padding_mask=~mask)
    alone, _ = heads(*[x[2:3, :2]] * 3)
    torch.testing.assert_close(out[2, :2], alone[0])


def test_mistakes_are_named() -> None:
    for call, message in (
        (lambda: pack_prefix(torch.ones(3), 1), "x must be (n, tokens, …), got shape (3,)"),
        (lambda: pack_prefix(tokens(), [1, 2]), "one length for each of the 4 examples, got 2"),
        (lambda: pack_prefix(tokens(), KEPT).unpack(4), "width must be at least the longest of the packed prefixes, 5"),
    ):
        with pytest.raises(InvalidInput, match=re.escape(message)):
            call()
