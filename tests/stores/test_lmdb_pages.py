"""Incomplete copies of LMDB files are refused, and complete ones open, however short they are."""

import random
from pathlib import Path

import numpy as np
import pytest

from nestcode import Codes, LinearCoder
from nestcode.errors import DamagedFile
from nestcode.stores import LmdbStore
from nestcode.stores.lmdb_pages import HEADER, META, NODE, NUMBER, OFFSET, TREE, _meta, check_complete

PAGE = 4096
RNG = np.random.default_rng(0)


def codes_of(count: int) -> Codes:
    return Codes(RNG.integers(0, 256, (count, 8), dtype=np.uint8), 64)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_truncated_copy_is_whole_or_refused(seed: int, tmp_path: Path) -> None:
    """A copy that lacks pages which are read would end this process."""
    choose, live, last = random.Random(seed), list[int](), 0
    coder = LinearCoder(64).fit(RNG.standard_normal((300, 64)))  # so large that its value has pages of its own
    with LmdbStore.create(tmp_path / "store", coder) as store:
        for _ in range(7):
            if live and choose.random() < 0.45:
                choose.shuffle(live)
                gone = choose.randrange(1, len(live) + 1)
                store.remove(live[:gone])
                live = live[gone:]
            else:
                added = range(last, last := last + choose.choice([1, 3, 50, 700]))
                store.add(codes_of(len(added)), ids=list(added))
                live += added
        held = store.codes(sorted(live))
    data, opened = (tmp_path / "store" / "data.mdb").read_bytes(), []
    (tmp_path / "copy").mkdir()
    for size in range(100, len(data) + 1, PAGE // 2):
        (tmp_path / "copy" / "data.mdb").write_bytes(data[:size])
        try:
            with LmdbStore.open(tmp_path / "copy") as copy:
                assert copy.codes(sorted(live)) == held
                assert copy.neighborhood(held[0], size=len(live)).count == len(live)
                copy.add(codes_of(3), ids=[last, last + 1, last + 2])
                copy.remove([last])
                opened.append(True)
        except DamagedFile:
            opened.append(False)
    assert opened == sorted(opened)
    assert not opened[0]
    assert opened[-1]


def test_a_sparse_copy_is_whole_or_refused(tmp_path: Path) -> None:
    """A copy of full size with a hole in place of a page, as tools leave that reserve the size first."""
    (tmp_path / "copy").mkdir()
    with LmdbStore.create(tmp_path / "store", width=64) as store:
        store.add(codes_of(2000), ids=range(2000))
        store.remove(range(0, 2000, 3))
        store.add(codes_of(300), ids=range(5000, 5300))
        ids = [*(one for one in range(2000) if one % 3), *range(5000, 5300)]
        held = store.codes(ids)
    data, opened = (tmp_path / "store" / "data.mdb").read_bytes(), 0
    pages = len(data) // PAGE
    for first, last in [*((page, page + 1) for page in range(pages)), *((page, pages) for page in range(2, pages, 7))]:
        with (tmp_path / "copy" / "data.mdb").open("wb") as file:
            file.write(data[: first * PAGE])
            file.seek(last * PAGE)
            file.write(data[last * PAGE :])
            file.truncate(len(data))
        try:
            with LmdbStore.open(tmp_path / "copy") as copy:
                assert first < 2 or copy.codes(ids) == held  # of two pages that name a commit, the earlier may be left
                copy.add(codes_of(3), ids=[9000, 9001, 9002])
                copy.remove([9000])
            opened += 1
        except DamagedFile:
            pass
    assert 0 < opened < pages


def test_pages_that_name_nothing_or_themselves_are_refused(tmp_path: Path) -> None:
    with LmdbStore.create(tmp_path / "store", width=64) as store:
        store.add(codes_of(3000), ids=range(3000))
    data, path = bytearray((tmp_path / "store" / "data.mdb").read_bytes()), tmp_path / "data.mdb"
    for meta in (0, PAGE):
        NUMBER.pack_into(data, meta + HEADER.size + META.size - 16, len(data) // PAGE)  # a page that is not there
    path.write_bytes(data)
    check_complete(path)  # as no tree uses it
    with path.open("rb") as file:
        found = _meta(file.fileno())
    assert found is not None
    names = TREE.unpack(found[2][1])[-1] * PAGE
    nodes = [
        names + OFFSET.unpack_from(data, names + at)[0]
        for at in range(HEADER.size, HEADER.unpack_from(data, names)[3], 2)
    ]
    (codes,) = (at + NODE.size + 5 for at in nodes if data[at + NODE.size :][:5] == b"codes")
    _, _, depth, *_, root = TREE.unpack_from(data, codes)
    assert depth > 1
    empty, itself, copies = bytearray(data), bytearray(data), bytearray(data)
    empty[root * PAGE : root * PAGE + PAGE] = bytes(PAGE)
    itself[codes - 5 : codes] = b"other"  # a tree whose leaves are read
    TREE.pack_into(itself, codes, 0, 0, 1, 0, 1, 0, 1, names // PAGE)
    TREE.pack_into(copies, codes, 0, 0, 30, 0, 1, 0, 1, root)
    for at in range(root * PAGE + HEADER.size, root * PAGE + HEADER.unpack_from(data, root * PAGE)[3], 2):
        NODE.pack_into(copies, root * PAGE + OFFSET.unpack_from(data, at)[0], root & 0xFFFF, root >> 16, 0, 8)
    for damaged in (empty, itself, copies):
        path.write_bytes(damaged)
        with pytest.raises(DamagedFile, match="restore a complete copy"):
            check_complete(path)
