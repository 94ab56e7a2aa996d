"""A sharded index answers as one index with all items does."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nestcode import CellCoder, Codes, Index, LinearCoder, load_coder
from nestcode.errors import InvalidInput

RNG = np.random.default_rng(0)
X = (RNG.standard_normal((1500, 12)) * np.linspace(3, 0.3, 12)).astype(np.float32)
QUERIES = X[:20] + RNG.standard_normal((20, 12)).astype(np.float32) / 4
IDS = RNG.permutation(9000)[:1500]
CODERS = {"linear": LinearCoder(width=40).fit(X), "cell": CellCoder(width=64, metric="cosine").fit(X)}


def sharded(folder: Path, whole: Index, by_range: bool, **settings: Any) -> list[Path]:
    """Write three indexes with the items of one: key ranges, or every third item."""
    codes = whole.codes(IDS)
    order = codes.sort_order() if by_range else np.arange(len(IDS))
    parts = np.array_split(order, 3) if by_range else [order[first::3] for first in range(3)]
    paths = [folder / str(place) for place in range(3)]
    for path, part in zip(paths, parts, strict=True):
        shard = Index(whole.coder, **settings) if whole.coder else Index(width=whole.width)
        shard.add(X[part] if whole.coder else codes[part], IDS[part])
        shard.save(path)
    return paths


@pytest.mark.parametrize("by_range", [True, False], ids=["ranges", "strides"])
@pytest.mark.parametrize("kind", list(CODERS))
def test_shards_answer_as_one_index(kind: str, by_range: bool, tmp_path: Path) -> None:
    whole = Index(CODERS[kind], vectors="float16")
    whole.add(X, IDS)
    shards = Index.open(sharded(tmp_path, whole, by_range, vectors="float16"))
    assert (len(shards), shards.ids.tolist()) == (1500, sorted(IDS.tolist()))
    assert shards.codes(IDS) == whole.codes(IDS)
    for size in (1, 30, 1501):
        for own, other in zip(
            shards.neighborhood(QUERIES, size=size), whole.neighborhood(QUERIES, size=size), strict=True
        ):
            assert (own.length, sorted(own.ids)) == (other.length, sorted(other.ids))
    for settings in ({"candidates": 90}, {"candidates": 1500}, {"rank": "hamming"}, {"filter": IDS[:99]}):
        own, other = (index.search(QUERIES, **settings) for index in (shards, whole))
        assert own.distances.tolist() == other.distances.tolist()
        if "rank" not in settings:  # ties of Hamming distances are of any items
            assert own.ids.tolist() == other.ids.tolist()


def test_shards_are_read_only_and_show_later_commits(tmp_path: Path) -> None:
    whole = Index(width=13)
    whole.add(Codes.from_bits(RNG.random((1500, 13)) < 0.5), IDS)
    paths = sharded(tmp_path, whole, by_range=True)
    shards = Index.open(tuple(paths))
    with pytest.raises(InvalidInput, match="opened to read"):
        shards.remove(IDS[:1])
    with Index.open(paths[1], mode="a") as writer:
        gone = writer.ids[:7]
        writer.remove(gone)
        writer.commit()
    assert (len(shards), shards.refresh(), len(shards), shards.refresh()) == (1500, True, 1493, False)
    assert not np.isin(gone, shards.ids).any()
    shards.save(tmp_path / "one")
    assert Index.open(tmp_path / "one").ids.tolist() == shards.ids.tolist()


def test_the_effort_of_all_folders_is_that_of_the_sharded_index(tmp_path: Path) -> None:
    whole = Index(CODERS["linear"])
    whole.add(X, IDS)
    paths = sharded(tmp_path, whole, by_range=False)
    shards = Index.open(paths)
    found = shards.tune(QUERIES, target_recall=0.8, exact=dict(zip(IDS.tolist(), X, strict=True)))
    for path in paths:
        assert Index.open(paths).effort is None  # until all have it
        with Index.open(path, mode="a") as one:
            one.effort = shards.effort
            one.commit()
    again = Index.open(paths)
    assert again.effort == shards.effort
    assert again.search(QUERIES).ids.tolist() == shards.search(QUERIES, candidates=found.candidates).ids.tolist()


def test_folders_that_do_not_belong_together(tmp_path: Path) -> None:
    for name, index in (("a", Index(CODERS["linear"])), ("b", Index(CODERS["cell"])), ("c", Index(width=40))):
        index.save(tmp_path / name)
    a, b, c = (tmp_path / name for name in "abc")
    for paths, message in [
        ([], "at least one folder"),
        ([a, a], "must be distinct"),
        (
            [a, b],
            "must have the same width, coder, vectors and attributes, but .*b and .*a differ in width and coder: build",
        ),
        ([a, c], "but .*c and .*a differ in .*coder: build"),
    ]:
        with pytest.raises(InvalidInput, match=message):
            Index.open(paths)
    with pytest.raises(InvalidInput, match="several folders are opened to read, got mode 'a'"):
        Index.open([a], mode="a")
    with pytest.raises(FileNotFoundError, match="there is no index"):
        Index.open([a, tmp_path / "none"])


@pytest.mark.parametrize("path", ["", "a\0b", "\ud800", None, 5, b"a"])
def test_a_path_that_no_folder_has_is_refused_by_name(
    path: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    index = Index(width=2)
    index.add(Codes.from_bits([[0, 1]]))
    doors: list[Callable[[Any], object]] = [
        index.save, Index.open, lambda path: Index.open(path, mode="a"), lambda path: Index.open([path]),
        CODERS["linear"].save, load_coder,
    ]  # fmt: skip
    for door in doors:
        with pytest.raises(InvalidInput, match=r"a path must be a text or a pathlib\.Path, not empty and without null"):
            door(path)
    assert not list(tmp_path.iterdir())
    index.save(".")
    assert len(Index.open(".")) == 1


def test_verify_refuses_an_id_of_two_folders(tmp_path: Path) -> None:
    codes = Codes.from_bits(RNG.random((6, 13)) < 0.5)
    for name, ids in (("a", [0, 1, 4]), ("b", [2, 3, 5]), ("c", [1, 6, 7])):
        index = Index(width=13)
        index.add(codes[:3], ids)
        index.save(tmp_path / name)
    Index.open([tmp_path / "a", tmp_path / "b"]).verify()
    with pytest.raises(InvalidInput, match="ids must be distinct among all folders, but 1 is not"):
        Index.open([tmp_path / "a", tmp_path / "c"]).verify()
