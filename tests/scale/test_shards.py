"""An index that was encoded in shards and merged by key ranges answers as one index, whatever the shards were."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from nestcode import Codes, Index, LinearCoder
from nestcode.errors import DamagedFile, InvalidInput
from nestcode.scale import encode_shard, find_splitters, merge_range, merge_shards
from nestcode.storage import Mapped

RNG = np.random.default_rng(0)
X = (RNG.standard_normal((2000, 12)) * np.linspace(3, 0.3, 12)).astype(np.float32)
IDS = RNG.permutation(9000)[:2000]
CODER = LinearCoder(width=40).fit(X)
QUERIES = X[:15] + RNG.standard_normal((15, 12)).astype(np.float32) / 4


def encoded(folder: Path, divided: list[np.ndarray], **settings: object) -> list[Path]:
    """Encode shards, one for each array of positions."""
    return [
        encode_shard(X[rows], IDS[rows], folder / str(place), CODER, **settings)  # type: ignore[arg-type]
        for place, rows in enumerate(divided)
    ]


def contents(parts: list[Path]) -> dict[str, bytes]:
    """Return all files of some folders by name."""
    return {f"{part.name}/{file.name}": file.read_bytes() for part in parts for file in sorted(part.iterdir())}


@pytest.mark.parametrize("vectors", [None, "float16", "int8"])
def test_merged_parts_answer_as_one_index(vectors: str | None, tmp_path: Path) -> None:
    shards = encoded(tmp_path, np.array_split(RNG.permutation(2000), 5), vectors=vectors)
    parts = merge_shards(shards, tmp_path / "whole", parts=3)
    index, whole = Index.open(parts), Index(CODER, vectors=vectors)  # type: ignore[arg-type]
    whole.add(X, IDS)
    assert index.ids.tolist() == whole.ids.tolist()
    assert index.codes(IDS) == whole.codes(IDS)
    if vectors:
        assert index.vectors(IDS).tolist() == whole.vectors(IDS).tolist()
    own, other = index.search(QUERIES), whole.search(QUERIES)
    assert (own.ids.tolist(), own.distances.tolist()) == (other.ids.tolist(), other.distances.tolist())
    for mine, theirs in zip(index.neighborhood(QUERIES, size=30), whole.neighborhood(QUERIES, size=30), strict=True):
        assert (mine.length, sorted(mine.ids)) == (theirs.length, sorted(theirs.ids))


def test_a_folder_of_parts_is_their_index_and_a_link_may_lead_to_another(tmp_path: Path) -> None:
    shards = encoded(tmp_path / "shards", [np.arange(50), np.arange(50, 90)])
    for name, some in (("one", shards[:1]), ("two", shards)):
        merge_shards(some, tmp_path / name, parts=2)
    (tmp_path / "link").symlink_to("one")
    index = Index.open(tmp_path / "link")
    assert index.ids.tolist() == Index.open(sorted((tmp_path / "one").glob("part-*"))).ids.tolist()
    assert not index.refresh()
    (tmp_path / "new").symlink_to("two")
    (tmp_path / "new").replace(tmp_path / "link")
    assert (len(index), index.refresh(), len(index), index.refresh()) == (50, True, 90, False)
    with pytest.raises(InvalidInput, match="several folders are opened to read"):
        Index.open(tmp_path / "link", mode="a")
    other = Index(width=8)
    other.add(Codes.from_bits([[0] * 8]))
    other.save(tmp_path / "three" / "part-0000")
    (tmp_path / "new").symlink_to("three")
    (tmp_path / "new").replace(tmp_path / "link")
    with pytest.raises(InvalidInput, match=r"is of another index, .*: open it again"):
        index.refresh()
    assert len(index.ids) == 90
    with pytest.raises(InvalidInput, match=r"opened from a folder, got s3://.*PartCache"):
        Index.open("s3://bucket/index")


def test_parts_are_ranges_of_about_equal_size(tmp_path: Path) -> None:
    parts = merge_shards(encoded(tmp_path, np.array_split(np.arange(2000), 4)), tmp_path / "whole", parts=4)
    indexes = [Index.open(part) for part in parts]
    assert all(400 < len(index) < 600 for index in indexes)
    keys = [sorted(map(bytes, index.codes(index.ids).packed)) for index in indexes]
    assert all(before[-1] < after[0] for before, after in itertools.pairwise(keys))


def test_parts_do_not_depend_on_the_shards(tmp_path: Path) -> None:
    one = encoded(tmp_path / "one", np.array_split(np.arange(2000), 7), vectors="float16")
    other = encoded(tmp_path / "other", np.array_split(RNG.permutation(2000), 3), vectors="float16")
    assert contents(merge_shards(one, tmp_path / "a", 3)) == contents(merge_shards(other[::-1], tmp_path / "b", 3))


def test_attributes_stay_with_their_items_whatever_the_shards(tmp_path: Path) -> None:
    table = pa.table(
        {
            "lang": pa.array([["en", "de", "fr", None][i % 4] for i in range(2000)]).dictionary_encode(),
            "title": [f"item {i}" for i in range(2000)],
        }
    )

    def shards(name: str, divided: list[np.ndarray]) -> list[Path]:
        return [
            encode_shard(X[rows], IDS[rows], tmp_path / name / str(place), CODER, attributes=table.take(rows))
            for place, rows in enumerate(divided)
        ]

    one = shards("one", np.array_split(np.arange(2000), 5))
    with Index.open(one[0], mode="a") as index:
        index.remove(IDS[:100])
        index.commit()
    other = shards("other", np.array_split(RNG.permutation(np.arange(100, 2000)), 2))
    parts = merge_shards(one, tmp_path / "a", 3)
    assert contents(parts) == contents(merge_shards(other, tmp_path / "b", 3))
    merged, rest = Index.open(parts), np.arange(100, 2000)
    assert merged.attributes(IDS[rest]).to_pylist() == table.take(rest).to_pylist()
    wanted = [i for i in rest if i % 4 == 1]
    assert merged.matching("lang = 'de'").tolist() == sorted(IDS[wanted])
    with pytest.raises(InvalidInput, match="is not the shard of these items"):
        encode_shard(X[:1000], IDS[:1000], tmp_path / "other" / "0", CODER, attributes=table.slice(0, 1000))
    bare = encode_shard(X[:5], IDS[:5] + 10_000, tmp_path / "bare", CODER)
    with pytest.raises(InvalidInput, match="differ in attributes"):
        merge_shards([*one, bare], tmp_path / "c", 2)


def test_removed_items_stay_out(tmp_path: Path) -> None:
    shards = encoded(tmp_path, np.array_split(np.arange(2000), 2))
    with Index.open(shards[0], mode="a") as index:
        index.remove(IDS[:300])
        index.commit()
    merged = Index.open(merge_shards(shards, tmp_path / "whole", parts=3))
    assert merged.ids.tolist() == sorted(IDS[300:])


def test_equal_codes_are_not_divided(tmp_path: Path) -> None:
    codes = Codes.from_bits(np.repeat([[0, 0, 1], [1, 0, 0]], 500, axis=0))
    parts = merge_shards([encode_shard(codes, range(1000), tmp_path / "0")], tmp_path / "whole", parts=8)
    assert [len(Index.open(part)) for part in parts] in ([0, 500, 500], [500, 500])


def test_what_is_there_is_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shards = encoded(tmp_path, np.array_split(np.arange(2000), 2))
    splitters = find_splitters(shards, 2)
    before = contents(shards) | contents([merge_range(shards, splitters, 0, tmp_path / "part")])
    monkeypatch.setattr(Index, "add", None)
    monkeypatch.setattr(Mapped, "touch", None)
    assert (
        contents(encoded(tmp_path, np.array_split(np.arange(2000), 2)))
        | contents([merge_range(shards, splitters, 0, tmp_path / "part")])
        == before
    )


def test_a_shard_of_something_else_is_refused(tmp_path: Path) -> None:
    out, other = tmp_path / "shard", LinearCoder(width=40).fit(X[:100])
    before = contents([encode_shard(X[:50], IDS[:50], out, CODER)])
    calls: list[tuple[Any, Any, Any, dict[str, Any]]] = [
        (X[1:51], IDS[:50], CODER, {}),
        (X[:49], IDS[:49], CODER, {}),
        (X[:50], IDS[50:100], CODER, {}),
        (X[:50], IDS[:50], other, {}),
        (X[:50], IDS[:50], CODER, {"width": 32}),
        (X[:50], IDS[:50], CODER, {"vectors": "int8"}),
        (CODER.encode(X[:50]), IDS[:50], None, {}),
    ]
    for items, ids, coder, settings in calls:
        with pytest.raises(InvalidInput, match="not the shard of these items"):
            encode_shard(items, ids, out, coder, **settings)
    same: list[Any] = [X[:50], X[:50].astype(float), X[:50].tolist(), X[:50].astype(">f4"), np.asfortranarray(X[:50])]
    for items in same:
        assert contents([encode_shard(items, IDS[:50], out, CODER, width=40)]) == before
    with pytest.raises(InvalidInput, match="not the shard of these items"):  # that float32 would not tell apart
        encode_shard(X[:50].astype(float) * (1 + 1e-12), IDS[:50], out, CODER)
    with Index.open(out, mode="a") as index:
        index.remove(IDS[:10])
        index.commit()
    with pytest.raises(InvalidInput, match=r"not the shard of these items, .* or was changed"):
        encode_shard(X[:50], IDS[:50], out, CODER)
    Index(CODER).save(tmp_path / "index")
    with pytest.raises(InvalidInput, match="not the shard of these items"):
        encode_shard(X[:50], IDS[:50], tmp_path / "index", CODER)


def test_one_shard_is_one_path(tmp_path: Path) -> None:
    shard = encoded(tmp_path, [np.arange(50)])[0]
    one, many = merge_shards(str(shard), tmp_path / "one", 1), merge_shards([shard], tmp_path / "many", 1)
    assert contents(one) == contents(many)


def test_parts_of_other_items_are_not_mixed(tmp_path: Path) -> None:
    shards, out = encoded(tmp_path, np.array_split(np.arange(2000), 2)), tmp_path / "whole"
    parts = merge_shards(shards, out, parts=2)
    before = contents(parts)
    for others, count in ((shards, 4), (shards, 1), (shards[:1], 2)):
        with pytest.raises(InvalidInput, match="other items or settings: give a new folder"):
            merge_shards(others, out, count)
    other = encode_shard(X[::-1], IDS, tmp_path / "other", CODER)
    with pytest.raises(InvalidInput, match="other items or settings"):
        merge_shards([other], out, parts=2)
    assert contents(merge_shards(shards[::-1], out, parts=2)) == before


def test_an_error_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="distinct"):
        encode_shard(X[:2], [1, 1], tmp_path / "0", CODER)
    with pytest.raises(InvalidInput, match="features"):
        encode_shard(X[:2, :5], [1, 2], tmp_path / "0", CODER)
    assert list(tmp_path.iterdir()) == []
    twice = [encode_shard(X[:50], IDS[:50], tmp_path / str(place), CODER) for place in range(2)]
    with pytest.raises(InvalidInput, match="distinct among all shards"):
        merge_shards(twice, tmp_path / "whole", parts=1)
    assert not list((tmp_path / "whole").glob("*part-*"))
    merge_shards(twice[:1], tmp_path / "whole", parts=1)
    with pytest.raises(InvalidInput, match="ranges 0 to 1, got part 2"):
        merge_range(twice, find_splitters(twice, 2), 2, tmp_path / "part")


def test_damage_of_a_shard_is_not_copied(tmp_path: Path) -> None:
    (shard,) = encoded(tmp_path, [np.arange(2000)])
    file = next(shard.glob("*.codes.npy"))
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(DamagedFile, match="damaged"):
        merge_shards([shard], tmp_path / "whole", parts=2)
