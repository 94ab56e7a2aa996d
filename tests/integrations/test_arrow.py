"""Codes through Arrow and Parquet: round trips, prefixes as ranges in other tools, damage and errors."""

from itertools import pairwise
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nestcode as nc
from nestcode.errors import DamagedFile, InvalidInput
from nestcode.integrations import arrow
from nestcode.integrations.arrow import from_arrow, prefix_range, read_parquet, to_arrow, write_parquet


def random_codes(count: int, width: int, seed: int = 0) -> nc.Codes:
    return nc.Codes.from_bits(np.random.default_rng(seed).random((count, width)) < 0.5)


def sharing(codes: nc.Codes, prefix: nc.Codes) -> set[int]:
    """Return the items that share a prefix, by brute force."""
    same = (codes.prefix(prefix.width).bits() == prefix.bits()).all(axis=1)
    return set(np.flatnonzero(same).tolist())


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 30), st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_a_table_holds_all_codes_in_ascending_order(count: int, width: int, seed: int) -> None:
    codes = random_codes(count, width, seed)
    ids = np.random.default_rng(seed).permutation(10 * count)[:count]
    found = from_arrow(to_arrow(codes, ids))
    order = codes.sort_order()
    assert found.codes == codes[order]
    assert np.array_equal(found.ids, ids[order])
    assert found.coder is None
    assert to_arrow(codes)["id"].to_pylist() == order.tolist()


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 40), st.data())
def test_a_prefix_is_the_range_between_its_bounds(width: int, data: st.DataObject) -> None:
    codes = random_codes(200, width, seed=width)
    prefix = codes[0].prefix(data.draw(st.integers(0, width)))
    low, high = prefix_range(prefix, width)
    between = {i for i, row in enumerate(codes.packed) if low <= row.tobytes() <= high}
    assert between == sharing(codes, prefix)
    ends = nc.Codes(np.frombuffer(low + high, dtype=np.uint8).reshape(2, -1), width)  # both bounds are codes
    assert (ends.prefix(prefix.width).bits() == prefix.bits()).all()


def test_every_reader_finds_the_items_of_a_prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "GROUP", 100)
    codes, path = random_codes(1000, 44), tmp_path / "codes.parquet"
    write_parquet(path, codes)
    assert pq.ParquetFile(path).num_row_groups == 10
    for length in (0, 3, 11, 44):
        prefix = codes[17].prefix(length)
        true, (low, high) = sharing(codes, prefix), prefix_range(prefix, 44)
        by_arrow = pq.read_table(path, filters=[("code", ">=", low), ("code", "<=", high)])
        by_polars = pl.scan_parquet(path).filter(pl.col("code").is_between(low, high)).collect()
        query = f"SELECT id FROM '{path}' WHERE code BETWEEN ? AND ?"
        by_duckdb = [row[0] for row in duckdb.execute(query, [low, high]).fetchall()]
        ours = read_parquet(path, prefix)
        for found in (by_arrow["id"].to_pylist(), by_polars["id"].to_list(), by_duckdb, ours.ids.tolist()):
            assert len(found) == len(true)
            assert set(found) == true
        assert ours.codes == codes[ours.ids]
        # Other tools drop the metadata and return bytes of variable size.
        assert from_arrow(by_polars.to_arrow(), width=44).codes == codes[by_polars["id"].to_numpy()]


def test_row_groups_have_disjoint_statistics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "GROUP", 100)
    write_parquet(tmp_path / "codes.parquet", random_codes(1000, 64))
    metadata = pq.ParquetFile(tmp_path / "codes.parquet").metadata
    ends = [metadata.row_group(i).column(0).statistics for i in range(10)]
    assert all(a.max < b.min for a, b in pairwise(ends))


def test_a_file_stores_width_and_fingerprint(tmp_path: Path) -> None:
    X = np.random.default_rng(0).standard_normal((100, 4))
    coder, path = nc.LinearCoder(width=13).fit(X), tmp_path / "codes.parquet"
    write_parquet(path, coder.encode(X), ids=np.arange(100, 200), coder=coder)
    found = read_parquet(path)
    assert (found.codes.width, found.coder) == (13, coder.fingerprint)
    assert coder.encode(X)[found.ids - 100] == found.codes


def test_reading_a_prefix_needs_the_width(tmp_path: Path) -> None:
    codes, path = random_codes(20, 12), tmp_path / "codes.parquet"
    pq.write_table(to_arrow(codes).replace_schema_metadata(None), path)
    assert read_parquet(path).codes.width == 16
    with pytest.raises(DamagedFile, match="has no width in its metadata"):
        read_parquet(path, prefix=codes[0].prefix(3))


def test_damage_is_detected(tmp_path: Path) -> None:
    path = tmp_path / "codes.parquet"
    write_parquet(path, random_codes(500, 64))
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for place in [*rng.integers(200, 4000, 20), len(whole) - 2]:  # in the codes' pages, and in the footer
        data = bytearray(whole)
        data[place] ^= 4
        path.write_bytes(data)
        with pytest.raises(DamagedFile):
            read_parquet(path)
    for cut in (0, 10, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(DamagedFile):
            read_parquet(path)
    with pytest.raises(FileNotFoundError):
        read_parquet(tmp_path / "nowhere.parquet")


def test_a_refused_write_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "codes.parquet"
    write_parquet(path, random_codes(3, 8))
    with pytest.raises(InvalidInput):
        write_parquet(path, random_codes(3, 8), ids=[1, 2])
    assert len(read_parquet(path).ids) == 3
    assert [entry.name for entry in tmp_path.iterdir()] == ["codes.parquet"]


def test_tables_without_codes_are_refused() -> None:
    table = to_arrow(random_codes(3, 12))
    plain = table.replace_schema_metadata(None)
    with pytest.raises(InvalidInput, match="12 bits, got width 16"):
        from_arrow(table, width=16)
    with pytest.raises(InvalidInput, match="bytes"):
        from_arrow(plain, width=20)
    with pytest.raises(InvalidInput, match="columns code and id"):
        from_arrow(plain.drop_columns(["id"]))
    with pytest.raises(InvalidInput, match="must hold integers"):
        from_arrow(pa.table({"code": plain["code"], "id": [0.5, 1.0, 2.0]}))
    with pytest.raises(InvalidInput, match="null"):
        from_arrow(pa.table({"code": pa.array([b"a", None]), "id": [1, 2]}))
    with pytest.raises(InvalidInput, match="hold bytes"):
        from_arrow(pa.table({"code": ["a", "b"], "id": [1, 2]}))
    with pytest.raises(InvalidInput, match="bytes"):
        from_arrow(pa.table({"code": pa.array([b"a", b"bc"]), "id": [1, 2]}))
    for text in (b"{}", b"nonsense", b'{"version": 9, "width": 12, "coder": null}'):
        with pytest.raises(DamagedFile):
            from_arrow(table.replace_schema_metadata({b"nestcode": text}))
    with pytest.raises(InvalidInput, match="at least 1 bit"):
        to_arrow(random_codes(3, 12).prefix(0))
    with pytest.raises(InvalidInput, match="prefix must be one code"):
        prefix_range(random_codes(2, 12), 12)
    with pytest.raises(InvalidInput, match="at most 8 bits"):
        prefix_range(random_codes(1, 12), 8)
    assert from_arrow(plain).codes.width == 16  # 8 per byte
