"""Incomplete copies of LMDB files are refused, and complete ones open, however short they are."""

import random
from pathlib import Path

import numpy as np
import pytest

from nestcode import Codes, LinearCoder
from nestcode.errors import DamagedFile
from nestcode.stores import LmdbStore

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
            with LmdbStore(tmp_path / "copy") as copy:
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
