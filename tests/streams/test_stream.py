"""Streams of items: shapes and types come back, every truncation decodes, and more bits never hurt."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from nestcode import AdaptiveCoder, Codes, LinearCoder, ResidualCoder, compress, decompress
from nestcode.coders import Coder
from nestcode.errors import DamagedFile, InvalidInput, NotFitted
from nestcode.storage import Record
from nestcode.streams import StreamDecoder, StreamReader
from nestcode.streams.entropy import entropy_encode
from nestcode.streams.format import parse_header
from nestcode.streams.stream import lay_out
from tests.streams.collections import (
    FEATURES,
    decoded_info,
    few_items,
    skewed,
    some_coder,
    some_items,
    stream,
    stream_info,
    with_header,
)

counts = st.integers(0, 40)
widths = st.sampled_from([0, 1, 7, 8, 63, 64, 65, 100, 128, 150])


def plain_decode(items: NDArray[Any], width: int, got: int) -> NDArray[np.float32]:
    """The twin: go through the bytes of the payload that arrived one by one."""
    coder, size = some_coder(), -(-width // 8)
    packed = coder.encode(items).prefix(width).packed
    lengths = [0] * len(items)
    order = [(item, at) for group in range(0, size, 8) for item in range(len(items)) for at in range(group, group + 8)]
    for item, at in [place for place in order if place[1] < size][:got]:
        lengths[item] = min(8 * at + 8, width)
    rows = [coder.decode(Codes(packed[i : i + 1], width).prefix(length))[0] for i, length in enumerate(lengths)]
    return np.array(rows, dtype=np.float32).reshape(-1, FEATURES)


@given(counts, widths, st.data())
def test_every_truncation_decodes_to_what_arrived(count: int, width: int, draw: st.DataObject) -> None:
    items = some_items(count)
    data = stream(items, width=width)
    known = stream_info(data)
    assert len(data) == known.total_bytes
    cut = draw.draw(st.integers(known.header_bytes, len(data)))
    blocks, left = divmod(cut - known.header_bytes, 68)
    got = min(64 * blocks + min(left, 64), count * -(-width // 8))
    decoded = decompress(data[:cut], some_coder())
    np.testing.assert_allclose(decoded, plain_decode(items, width, got), atol=1e-5)
    seen = stream_info(data[:cut])
    assert seen.verified + seen.unverified == got
    assert (seen.damaged, seen.trailing, seen.header_bytes) == (None, 0, known.header_bytes)


@pytest.mark.parametrize("entropy", [False, True])
def test_the_error_never_rises_with_the_rate(entropy: bool) -> None:
    items = few_items(400) if entropy else some_items(60)
    data = stream(items, entropy=entropy)
    assert stream_info(data).entropy == entropy
    start = stream_info(data).header_bytes
    errors = [np.mean((decompress(data[:cut], some_coder()) - items) ** 2) for cut in range(start, len(data), 60)]
    assert all(later <= earlier * 1.02 for earlier, later in pairwise(errors))
    assert errors[-1] < errors[0] / 50
    np.testing.assert_allclose(decompress(data[:start], some_coder()), [some_coder().decode(Codes.from_bits(
        np.zeros((1, 0), bool)))[0]] * len(items), rtol=1e-6)  # fmt: skip


@given(st.integers(1, 40), widths.filter(bool), st.data())
def test_length_equals_decoding_a_prefix(count: int, width: int, draw: st.DataObject) -> None:
    items, length = some_items(count), draw.draw(st.integers(0, width))
    expected = some_coder().decode(some_coder().encode(items).prefix(length))
    np.testing.assert_allclose(decompress(stream(items, width=width), some_coder(), length=length), expected, atol=1e-5)
    kept = compress(items, some_coder(), length=length)
    np.testing.assert_allclose(decompress(kept, some_coder()), expected, atol=1e-5)
    assert stream_info(kept).width == length


@given(
    st.sampled_from(["u1", "u2", "i1", "i2", "<f2", ">f2", "<f4", ">f4", "<f8", ">f8", ">u2"]),
    st.sampled_from([(24,), (4, 6), (1, 24, 1), (3, 4, 2)]),
    st.integers(0, 5),
    st.booleans(),
)
def test_shape_and_type_come_back(name: str, shape: tuple[int, ...], count: int, fortran: bool) -> None:
    items = (some_items(count) * 3).astype(name).reshape(count, *shape)
    items = np.asfortranarray(items) if fortran else np.repeat(items, 2, axis=-1)[..., ::2]
    decoded = decompress(compress(items, some_coder(), embed=True))
    assert (decoded.shape, decoded.dtype) == (items.shape, np.dtype(name))
    expected = some_coder().decode(some_coder().encode(items.reshape(count, FEATURES))).reshape(items.shape)
    np.testing.assert_allclose(decoded.astype(float), expected, atol=0.51 if items.dtype.kind in "iu" else 0.05)


def test_integers_are_rounded_and_clipped() -> None:
    coder = LinearCoder(width=6).fit(np.random.default_rng(0).normal([-99, 350, 10.6], [90, 80, 0.01], (300, 3)))
    items = np.array([[0, 255, 10], [9, 240, 10], [200, 100, 10]], dtype=np.uint8)
    raw = coder.decode(coder.encode(items).prefix(0))
    assert raw.min() < 0
    assert raw.max() > 255
    decoded = decompress(compress(items, coder), coder, length=0)
    assert decoded.tolist() == np.clip(np.rint(raw), 0, 255).tolist()
    assert (decoded[:, 2] == 11).all()


@pytest.mark.parametrize("kind", [LinearCoder, AdaptiveCoder, ResidualCoder])
@pytest.mark.parametrize("entropy", [False, True])
def test_every_coder_makes_streams(kind: Any, entropy: bool) -> None:
    coder: Coder = kind(width=64).fit(some_items(300, seed=1))
    items = few_items(300)
    data = compress(items.reshape(300, 4, 6), coder, entropy=entropy, embed=True)
    assert stream_info(data).entropy == entropy
    expected = coder.decode(coder.encode(items)).reshape(300, 4, 6)
    np.testing.assert_allclose(decompress(data), expected, atol=1e-5)
    np.testing.assert_allclose(decompress(data, coder), expected, atol=1e-5)


def test_scale_divides_before_and_multiplies_after() -> None:
    items = some_items(20)
    data = compress(items * 1000, some_coder(), scale=1000)
    np.testing.assert_allclose(
        decompress(data, some_coder()), 1000 * decompress(stream(items), some_coder()), rtol=1e-4
    )
    assert stream_info(data).expected_error == pytest.approx(1e6 * some_coder().expected_error(150), rel=1e-3)


def test_info_reports_the_coders_expected_error() -> None:
    items = some_items(1)
    data = stream(items)
    start = stream_info(data).header_bytes
    for cut, length in [(start, 0), (start + 3, 24), (start + 8, 64), (start + 11, 88), (len(data), 150)]:
        known, exact = stream_info(data[:cut]), stream_info(data[:cut], some_coder())
        assert known.length == exact.length == known.bits == length
        assert known.expected_error >= exact.expected_error * 0.999
        assert exact.expected_error == some_coder().expected_error(length)
        assert json.loads(known.to_json())["length"] == length
        assert f"{length} of 150 bits per item arrived" in str(known)
    assert stream_info(data[:start]).expected_error == pytest.approx(some_coder().expected_error(0), rel=1e-4)


def test_the_expected_error_is_the_mean_over_items_that_a_group_has_reached_or_not() -> None:
    items = some_items(2000)
    coder = LinearCoder(width=150).fit(items)
    data = compress(items, coder)
    start = stream_info(data).header_bytes
    for cut in np.linspace(start, len(data), 23).astype(int).tolist():
        decoder = StreamDecoder(coder)
        decoder.feed(data[:cut])
        expected = np.mean([coder.expected_error(length) for length in decoder.lengths.tolist()])
        assert stream_info(data[:cut], coder).expected_error == pytest.approx(expected, rel=1e-6)
        error = np.mean((decompress(data[:cut], coder) - items) ** 2)
        assert stream_info(data[:cut]).expected_error == pytest.approx(error, rel=0.1), cut


def test_entropy_coding_is_skipped_where_it_does_not_pay() -> None:
    noise = stream(some_items(3), entropy=True)
    assert not stream_info(noise).entropy
    assert stream_info(skewed(500)).entropy


def test_no_byte_of_an_entropy_coded_payload_stands_for_hours_of_work() -> None:
    """Constant codes would be 40,000 times their payload: writers pad it, readers hold bits back till it comes."""
    codes, dtype = np.zeros((3000, 19), np.uint8), np.dtype(np.float32)
    data = b"".join(lay_out(codes, some_coder(), (FEATURES,), dtype, 1.0, 150, embed=False, entropy=True))
    header = parse_header(memoryview(data))
    assert (header.entropy, header.payload) == (True, -(-codes.size // 256))
    assert stream_info(data).bits == decoded_info(data).bits == 3000 * 150
    assert (decompress(data, some_coder()) == decompress(data, some_coder(), limit=1 << 20)).all()
    for cut in (1, 10, 100):
        assert decoded_info(data[: header.size + cut]).bits <= 8 * 256 * cut


def test_codes_far_larger_than_their_payload_are_refused_unless_a_limit_is_given(tmp_path: Path) -> None:
    header = parse_header(memoryview(skewed(2000)))
    small = entropy_encode(np.zeros((2000, 19), np.uint8), 150)
    forged = parse_header(memoryview(with_header(header, b"", payload=len(small))))
    data = forged.data + b"".join(forged.seal([small]))
    (tmp_path / "a.nest").write_bytes(data)
    assert stream_info(data).bits == 2000 * 150
    with pytest.raises(InvalidInput, match=rf"at most 256 times .* got 38000 bytes in {len(small)}: give a limit"):
        decompress(data, some_coder())
    with pytest.raises(InvalidInput, match="at most 256 times"):
        StreamDecoder(some_coder()).feed(data)
    with pytest.raises(InvalidInput, match="at most 256 times"):
        StreamReader(tmp_path / "a.nest", some_coder())
    assert len(decompress(data, some_coder(), limit=1 << 20)) == 2000


def test_the_limit_covers_the_embedded_coder(tmp_path: Path) -> None:
    data = stream(some_items(3), embed=True)
    (tmp_path / "a.nest").write_bytes(data)
    assert len(decompress(data, limit=10 * len(data))) == 3
    with pytest.raises(InvalidInput, match="items and its coder take"):
        decompress(data, limit=2 * len(data))
    with pytest.raises(InvalidInput, match="items and its coder take"):
        StreamReader(tmp_path / "a.nest", limit=2 * len(data))


@settings(max_examples=30)
@given(st.integers(30, 60), st.sampled_from([64, 100, 130]), st.data())
def test_a_truncated_entropy_coded_stream_holds_a_prefix_of_its_bits(
    count: int, width: int, draw: st.DataObject
) -> None:
    data = skewed(count, width=width)
    known = stream_info(data)
    assert (known.entropy, known.length, known.bits) == (True, width, count * width)
    cut = draw.draw(st.integers(known.header_bytes, len(data)))
    seen, more = decoded_info(data[:cut]), decoded_info(data[: cut + 8])
    assert seen.bits <= more.bits
    assert 0 <= stream_info(data[:cut]).bits <= stream_info(data[: cut + 8]).bits <= known.bits  # estimated
    expected = decompress(data, some_coder(), length=seen.length)
    np.testing.assert_allclose(
        decompress(data[:cut], some_coder(), length=seen.length), expected, atol=1e-5
    )  # fmt: skip


def test_the_coder_must_be_the_one_that_made_the_stream() -> None:
    items = some_items(10)
    data, other = stream(items), some_coder(140)
    with pytest.raises(InvalidInput, match=f"{some_coder().fingerprint}.*{other.fingerprint}"):
        decompress(data, other)
    with pytest.raises(InvalidInput, match="which is not embedded: give the coder"):
        decompress(data)
    with pytest.raises(NotFitted):
        compress(items, LinearCoder(width=8))
    with pytest.raises(InvalidInput, match="must be a fitted coder"):
        compress(items, "my.coder")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("items", "message"),
    [
        (np.zeros(24), "at least 2 dimensions"),
        (np.float32(1), "at least 2 dimensions"),
        (np.zeros((3, 24), dtype=bool), "got bool: convert them"),
        (np.zeros((3, 24), dtype=np.int64), "got int64: convert them"),
        (np.zeros((3, 7)), "the 24 values the coder was fitted on, got 7"),
        (np.full((3, 24), np.nan), "must be finite"),
    ],
)
def test_items_that_cannot_be_encoded_are_refused(items: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        compress(items, some_coder())


@pytest.mark.parametrize("scale", [0, -1, float("nan"), float("inf"), True, "255"])
def test_a_scale_is_a_positive_number(scale: Any) -> None:
    with pytest.raises(InvalidInput, match="scale must be"):
        compress(some_items(2), some_coder(), scale=scale)


def test_wrong_arguments_are_named() -> None:
    data = stream(some_items(3))
    for length in (-1, 151, 1.5, True):
        with pytest.raises(InvalidInput, match="length must be between 0 and the stream's width 150"):
            decompress(data, some_coder(), length=length)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="on_damage must be"):
        decompress(data, some_coder(), on_damage="ignore")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="must come as bytes, got str"):
        decompress("faces.nest", some_coder())  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=r"more than the limit of 287: give a larger limit.*StreamReader"):
        decompress(data, some_coder(), limit=287)
    assert decompress(data, some_coder(), limit=369).nbytes == 288  # and codes and lengths


def test_what_a_stream_cannot_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    wide: dict[str, Any] = {"scale": 1.0, "width": 2**20 + 1, "embed": False, "entropy": False}
    with pytest.raises(InvalidInput, match="at most 1048576 bits of an item, got 1048577"):
        next(lay_out(np.zeros((0, 2**17 + 1), np.uint8), some_coder(), (24,), np.dtype(np.float32), **wide))
    record = Record("DeepCoder", 1, {"modules": True}, {})
    monkeypatch.setattr(LinearCoder, "to_record", lambda _: record)
    with pytest.raises(InvalidInput, match="custom modules cannot be embedded"):
        compress(some_items(2), some_coder(), embed=True)


def test_a_truncated_header_is_not_reported_as_damaged() -> None:
    data = stream(some_items(3), embed=True)
    for cut in (0, 5, 8, 15, 16, 200, parse_header(memoryview(data)).size - 1):
        with pytest.raises(InvalidInput, match="must have its whole header"):
            stream_info(data[:cut])
    with pytest.raises(DamagedFile, match="not a stream"):
        stream_info(b"\x89PNG\r\n\x1a\n")
