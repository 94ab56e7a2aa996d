"""Laws of Codes, each against a plain twin in NumPy or Python."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nestcode import Codes, _core
from tests import twins


@given(twins.bit_arrays())
def test_packing_is_numpys_and_unpacks_to_the_same_bits(bits: twins.Bits) -> None:
    codes = Codes.from_bits(bits)
    assert np.array_equal(codes.packed, np.packbits(bits, axis=1))
    assert np.array_equal(codes.bits(), bits)
    assert (len(codes), codes.width) == bits.shape
    assert Codes(codes.packed, codes.width) == codes


@given(twins.bit_arrays(), st.data())
def test_prefix_of_a_prefix_is_the_shorter_prefix(bits: twins.Bits, data: st.DataObject) -> None:
    codes = Codes.from_bits(bits)
    a, b = (data.draw(st.integers(0, codes.width)) for _ in range(2))
    assert np.array_equal(codes.prefix(a).bits(), bits[:, :a])
    assert codes.prefix(a).prefix(min(a, b)) == codes.prefix(min(a, b))
    assert codes.prefix(a) == Codes(codes.prefix(a).packed, a)  # the padding is clean


@given(twins.bit_arrays(), st.data())
def test_leading_bits_are_the_prefix_as_an_integer(bits: twins.Bits, data: st.DataObject) -> None:
    codes = Codes.from_bits(bits)
    length = data.draw(st.integers(0, min(codes.width, 56)))
    expected = [int("".join("01"[bit] for bit in row) or "0", 2) for row in bits[:, :length].astype(int)]
    assert codes.leading_bits(length).tolist() == expected


@given(twins.code_pairs())
def test_hamming_is_a_metric(pair: tuple[Codes, Codes]) -> None:
    a, b = pair
    distance = a.hamming(b)
    assert np.array_equal(distance, twins.hamming(a.bits(), b.bits()))
    assert np.array_equal(distance, b.hamming(a).T)
    assert np.array_equal(distance == 0, twins.common_prefix(a.bits(), b.bits()) == a.width)
    detour = a.hamming(a)[:, :, None] + distance[None, :, :]
    assert (distance[:, None, :] <= detour).all()


@pytest.mark.parametrize("simd", _core.simd_names())
def test_hamming_equals_its_twin_at_every_width_on_every_path(simd: str) -> None:
    rng = np.random.default_rng(0)
    for width in [*range(1, 301), 2048, 5003]:
        a, b = (rng.random((items, width)) < 0.5 for items in (3, 9))
        out = np.full((3, 9), -1, dtype=np.int32)
        _core.hamming(Codes.from_bits(a).packed, Codes.from_bits(b).packed, out, simd=simd)
        assert np.array_equal(out, twins.hamming(a, b)), width


@pytest.mark.parametrize("threads", [1, 2, None])
def test_threads_change_nothing(threads: int | None) -> None:
    a, b = twins.random_codes(5, 500), twins.random_codes(20_000, 500, seed=1)
    assert np.array_equal(a.hamming(b, threads=threads), a.hamming(b))
    assert np.array_equal(b.hamming(a, threads=threads), a.hamming(b).T)
    assert np.array_equal(a.common_prefix(b, threads=threads), a.common_prefix(b))
    assert np.array_equal(b.common_prefix(a, threads=threads), a.common_prefix(b).T)


@given(twins.code_pairs())
def test_common_prefix_equals_its_twin_and_is_symmetric(pair: tuple[Codes, Codes]) -> None:
    a, b = pair
    shared = a.common_prefix(b)
    assert np.array_equal(shared, twins.common_prefix(a.bits(), b.bits()))
    assert np.array_equal(shared, b.common_prefix(a).T)
    for i, j in np.ndindex(*shared.shape):
        assert a[i].prefix(int(shared[i, j])) == b[j].prefix(int(shared[i, j]))


@given(twins.bit_arrays(max_items=40, max_width=150), st.integers(0, 150))
def test_sort_order_is_pythons_order_on_bytes(bits: twins.Bits, agree: int) -> None:
    bits = bits.copy()
    bits[:, :agree] = True  # long shared prefixes are where sorting by words can go wrong
    codes = Codes.from_bits(bits)
    rows = [row.tobytes() for row in codes.packed]
    assert codes.sort_order().tolist() == sorted(range(len(rows)), key=rows.__getitem__)


@given(twins.code_pairs())
def test_concat_follows_the_items(pair: tuple[Codes, Codes]) -> None:
    a, b = pair
    both = a.concat(b)
    assert np.array_equal(both.bits(), np.concatenate([a.bits(), b.bits()]))
    assert both[: len(a)] == a
    assert both[len(a) :] == b


@given(twins.bit_arrays(), st.data())
def test_indexing_is_numpys(bits: twins.Bits, data: st.DataObject) -> None:
    codes = Codes.from_bits(bits)
    part = data.draw(st.slices(len(codes)))
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(codes), max_size=len(codes))), dtype=bool)
    assert np.array_equal(codes[part].bits(), bits[part])
    assert np.array_equal(codes[mask].bits(), bits[mask])
    assert np.array_equal(codes[mask.nonzero()[0]].bits(), bits[mask])
    assert [code.bits().tolist() for code in codes] == bits[:, None].tolist()


@given(twins.bit_arrays())
def test_pickle_and_hash_keep_equality(bits: twins.Bits) -> None:
    codes = Codes.from_bits(bits)
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        copy = pickle.loads(pickle.dumps(codes, protocol))
        assert copy == codes
        assert hash(copy) == hash(codes)


@given(twins.bit_arrays(), twins.bit_arrays())
def test_codes_are_equal_where_their_bits_are(a: twins.Bits, b: twins.Bits) -> None:
    assert (Codes.from_bits(a) == Codes.from_bits(b)) == (a.shape == b.shape and bool((a == b).all()))


@given(twins.bit_arrays(), st.slices(6))
def test_views_behave_like_copies(bits: twins.Bits, part: slice) -> None:
    wide = Codes.from_bits(np.concatenate([bits, ~bits], axis=1))
    view = wide[part].prefix(bits.shape[1])
    copy = Codes.from_bits(bits[part])
    assert view == copy
    assert np.array_equal(view.hamming(view), copy.hamming(copy))
    assert np.array_equal(view.common_prefix(copy), copy.common_prefix(view))
    assert np.array_equal(view.sort_order(), copy.sort_order())
