"""Codes: what is shared, what is refused, what it looks like."""

import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nestcode import Codes, _core
from nestcode.codes import Code, is_single
from nestcode.errors import InvalidInput, NestcodeError
from tests.twins import random_codes


def test_prefix_and_slices_share_memory_at_whole_bytes() -> None:
    codes = random_codes(10, 64)
    for view in (codes.prefix(16), codes[2:8], codes[::-2], codes.prefix(64), codes[3:5].prefix(8)):
        assert np.shares_memory(view.packed, codes.packed)
    assert not np.shares_memory(codes.prefix(13).packed, codes.packed)


def test_a_prefix_inside_a_byte_shares_memory_when_the_rest_of_the_byte_is_zero() -> None:
    codes = Codes.from_bits(np.eye(4, 16, dtype=bool))
    assert np.shares_memory(codes.prefix(6).packed, codes.packed)


def test_codes_are_immutable() -> None:
    source = np.zeros((2, 2), dtype=np.uint8)
    codes = Codes(source, 16)
    source[:] = 255  # the codes took a copy
    assert not codes.bits().any()
    for array in (codes.packed, np.asarray(codes), codes[:1].packed, codes.prefix(3).packed):
        with pytest.raises(ValueError, match="read-only"):
            array[0, 0] = 1
        with pytest.raises(ValueError, match="cannot set WRITEABLE flag"):
            array.flags.writeable = True


def test_a_read_only_view_of_writable_memory_is_copied() -> None:
    source = np.zeros((2, 2), dtype=np.uint8)
    view = source[:]
    view.flags.writeable = False
    codes = Codes(view, 16)
    source[:] = 255
    assert not codes.bits().any()


def test_an_array_whose_flag_can_be_switched_back_is_copied() -> None:
    source = np.zeros((1, 1), dtype=np.uint8)
    source.flags.writeable = False
    codes = Codes(source, 4)
    source.flags.writeable = True
    source[:] = 255
    assert not codes.bits().any()
    buffer = bytearray(2)
    view = np.frombuffer(buffer, dtype=np.uint8).reshape(1, 2)
    view.flags.writeable = False
    codes = Codes(view, 16)
    buffer[0] = 255
    assert not codes.bits().any()


def test_read_only_memory_is_shared(tmp_path: Path) -> None:
    np.save(tmp_path / "codes.npy", random_codes(5, 24).packed)
    mapped = np.load(tmp_path / "codes.npy", mmap_mode="r")
    assert np.shares_memory(Codes(mapped, 24).packed, mapped)
    frozen = np.frombuffer(bytes(6), dtype=np.uint8).reshape(2, 3)
    assert np.shares_memory(Codes(frozen, 24).packed, frozen)


def test_strided_columns_are_copied_to_contiguous_rows() -> None:
    wide = np.frombuffer(bytes(range(24)), dtype=np.uint8).reshape(3, 8)
    every_other = wide[:, ::2]
    codes = Codes(every_other, 32)
    assert np.array_equal(codes.packed, every_other)
    assert codes.hamming(codes)[0, 0] == 0


def test_array_protocol() -> None:
    codes = random_codes(4, 20)
    assert np.shares_memory(np.asarray(codes), codes.packed)
    assert np.array(codes).flags.writeable
    assert np.asarray(codes, dtype=np.int64).dtype == np.int64
    with pytest.raises(ValueError, match="copy"):
        np.asarray(codes, dtype=np.int64, copy=False)


def test_integers_0_and_1_count_as_bits() -> None:
    bits = np.array([[1, 0, 1]])
    assert Codes.from_bits(bits) == Codes.from_bits(bits.astype(bool)) == Codes.from_bits(bits.astype(np.uint8))


def test_the_widest_codes() -> None:
    assert Codes(np.zeros((0, 2**28), np.uint8), 2**31 - 1).width == 2**31 - 1


def test_an_integer_gives_one_code_and_any_other_index_a_batch() -> None:
    codes = random_codes(3, 10)
    assert codes[1] == codes[1:2] == codes[np.int64(-2)] == next(iter(codes[1:]))
    for one in (codes[1], codes[np.int64(1)], codes[1].prefix(7), codes[1][0], *codes):
        assert is_single(one)
        assert is_single(pickle.loads(pickle.dumps(one)))
    for batch in (codes, codes[1:2], codes[[1]], codes[1][:], codes[1].concat(codes[2]), Codes.from_bits([[1]])):
        assert not is_single(batch)
    with pytest.raises(IndexError):
        codes[3]
    assert len(codes[[]]) == 0


def test_equality_with_other_things_is_false() -> None:
    assert random_codes(1, 8) != "codes"
    assert random_codes(1, 8) != random_codes(1, 9)


@pytest.mark.parametrize(
    ("codes", "text"),
    [
        (Codes.from_bits(np.zeros((0, 5), dtype=bool)), "Codes(0 items of 5 bits)"),
        (Codes.from_bits(np.ones((1, 1), dtype=bool)), "Codes(1 item of 1 bit: 1)"),
        (Codes.from_bits(np.ones((5, 2), dtype=bool)), "Codes(5 items of 2 bits: 11, 11, 11, …)"),
        (Codes.from_bits(np.zeros((1, 40), dtype=bool)), f"Codes(1 item of 40 bits: {'0' * 32}…)"),
    ],
)
def test_repr(codes: Codes, text: str) -> None:
    assert repr(codes) == text


CODES = random_codes(3, 12)
MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "float packed": (lambda: Codes(np.zeros((2, 2)), 16), "packed codes must be uint8, got float64: pack bits with"),
    "one dimension": (
        lambda: Codes(np.zeros(2, np.uint8), 16),
        "must have 2 dimensions (items, bytes), got shape (2,)",
    ),
    "wrong width": (lambda: Codes(np.zeros((5, 2), np.uint8), 17), "codes of 17 bits take 3 bytes each, got 2"),
    "negative width": (
        lambda: Codes(np.zeros((2, 0), np.uint8), -1),
        "width must be an integer of at least 0, got -1",
    ),
    "fractional width": (
        lambda: Codes(np.zeros((2, 2), np.uint8), 16.0),  # type: ignore[arg-type]
        "width must be an integer of at least 0, got 16.0",
    ),
    "dirty padding": (lambda: Codes(np.full((2, 2), 255, np.uint8), 12), "bits past the width 12 must be 0"),
    "too wide": (
        lambda: Codes(np.zeros((0, 2**28), np.uint8), 2**31),
        "width must be at most 2147483647, got 2147483648",
    ),
    "truth for width": (lambda: CODES.prefix(True), "length must be an integer of at least 0, got True"),
    "array for length": (lambda: CODES.prefix(np.array([3])), "length must be an integer"),  # type: ignore[arg-type]
    "float bits": (lambda: Codes.from_bits(np.zeros((2, 2))), "bits must be booleans, got float64: threshold"),
    "integers beyond 1": (lambda: Codes.from_bits(np.array([[0, 2]])), "must be 0 or 1, got values from 0 to 2"),
    "flat bits": (lambda: Codes.from_bits(np.zeros(3, bool)), "must have 2 dimensions (items, width), got shape (3,)"),
    "long prefix": (lambda: CODES.prefix(13), "length must be between 0 and the code's width 12, got 13"),
    "negative prefix": (lambda: CODES.prefix(-1), "length must be an integer of at least 0, got -1"),
    "fractional prefix": (lambda: CODES.prefix(2.5), "length must be an integer of at least 0, got 2.5"),  # type: ignore[arg-type]
    "leading bits past the width": (lambda: CODES.leading_bits(13), "at most the code's width 12, got 13"),
    "other width": (lambda: CODES.hamming(CODES.prefix(5)), "must have the same width, got 12 and 5: compare prefixes"),
    "not codes": (lambda: CODES.hamming(CODES.packed), "expected Codes, got ndarray"),  # type: ignore[arg-type]
    "other width in concat": (lambda: CODES.concat(CODES.prefix(5)), "must have the same width, got 12 and 5"),
    "no threads": (lambda: CODES.hamming(CODES, threads=0), "threads must be an integer of at least 1, got 0"),
    "bits by index": (lambda: CODES[0, 1], "codes are indexed by item only, got (0, 1)"),
    "truth for position": (lambda: CODES[False], "an item's position must be an integer, got False"),
    "NumPy's truth for position": (lambda: CODES[np.array(True)], "position must be an integer, got True"),
    "two items as one": (lambda: Code(CODES.packed[:2], 12), "a Code is one item, got 2"),
    "index of two dimensions": (lambda: CODES[np.array([[0, 1]])], "an index of shape (1, 2)"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_named(mistake: str) -> None:
    call, message = MISTAKES[mistake]
    with pytest.raises(InvalidInput, match=re.escape(message)):
        call()


def test_errors_are_value_errors_and_nestcode_errors() -> None:
    assert issubclass(InvalidInput, ValueError)
    assert issubclass(InvalidInput, NestcodeError)


def test_the_core_refuses_out_of_bounds_accesses() -> None:
    packed = CODES.packed
    for out in (np.empty((3, 2), np.int32), np.empty((2, 3), np.int32)):
        with pytest.raises(ValueError, match="out must have"):
            _core.hamming(packed, packed, out)
        with pytest.raises(ValueError, match="out must have"):
            _core.common_prefix(packed, packed, 12, out)
    with pytest.raises(ValueError, match="same number of bytes"):
        _core.hamming(packed, packed[:, :1], np.empty((3, 3), np.int32))
    with pytest.raises(ValueError, match="one entry per row"):
        _core.argsort_rows(packed, np.empty(2, np.int64))
    with pytest.raises(ValueError, match="must be contiguous"):
        _core.argsort_rows(np.zeros((2, 4), np.uint8)[:, ::2], np.empty(2, np.int64))
    numbers, bits = np.zeros((2, 3), np.float32), np.zeros(16, np.int32)
    for depth, columns in ((9, 512), (3, 4)):
        thresholds = np.zeros((3, columns), np.float32)
        with pytest.raises(ValueError, match="2\\^depth thresholds"):
            _core.quantize_scalars(numbers, thresholds, np.full(3, depth, np.uint8), np.empty((2, 3), np.uint8))
    with pytest.raises(ValueError, match="same number of directions"):
        _core.quantize_scalars(numbers, np.zeros((2, 8), np.float32), np.ones(2, np.uint8), np.empty((2, 2), np.uint8))
    with pytest.raises(ValueError, match="intervals must have the shape"):
        _core.quantize_scalars(numbers, np.zeros((3, 8), np.float32), np.ones(3, np.uint8), np.empty((1, 3), np.uint8))
    with pytest.raises(ValueError, match="must be bits of the row"):
        _core.permute_bits(packed, bits + 16, np.empty((3, 2), np.uint8))
    with pytest.raises(ValueError, match="a byte for each 8 sources"):
        _core.permute_bits(packed, bits, np.empty((3, 3), np.uint8))
    with pytest.raises(ValueError, match="simd must be one of portable"):
        _core.hamming(packed, packed, np.empty((3, 3), np.int32), simd="mmx")


def test_a_pinned_process_starts_no_more_threads_than_it_has_cores() -> None:
    pin = "import os; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])"
    subprocess.run([sys.executable, "-c", f"{pin}; from nestcode.arrays import CORES; assert CORES == 1"], check=True)


def test_bits_of_a_transposed_array_are_packed_as_rows() -> None:
    bits = np.random.default_rng(0).random((40, 30)) < 0.5
    assert np.array_equal(Codes.from_bits(bits.T).hamming(Codes.from_bits(bits.T.copy())).diagonal(), np.zeros(30))


def test_the_stub_lists_the_names_of_the_core() -> None:
    stub = Path(__file__).parents[1] / "src/nestcode/_core.pyi"
    named = set(re.findall(r"^(?:def |class |(?=[A-Z_]+: ))(\w+)", stub.read_text(), flags=re.MULTILINE))
    assert named == {name for name in vars(_core) if not name.startswith("_")}
