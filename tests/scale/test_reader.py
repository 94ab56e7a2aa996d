"""What a cluster makes of the answers of parts is what one index over all of them answers, bit for bit."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from nestcode import Codes, Index, LinearCoder
from nestcode.errors import InvalidInput
from nestcode.scale import merge_shards
from nestcode.scale.ray.part import Part
from nestcode.scale.ray.reader import Neighborhoods, PartsReader
from nestcode.search.hits import PartialHits
from tests.scale.test_shards import CODER, IDS, QUERIES, RNG, X, encoded

YEARS = RNG.integers(1990, 2030, 2000)
TABLE = pa.table({"year": YEARS, "lang": [["en", "de", None][year % 3] for year in YEARS]})


def reader(paths: Sequence[Path], missing: Sequence[int] = ()) -> PartsReader:
    """Return what reads parts in this process."""
    parts = [Part(path) for path in paths]
    asked: list[int] = []

    def ask(method: str, arguments: Mapping[int, tuple[Any, ...]], allow_missing: bool) -> Any:
        asked.append(len(arguments))
        absent = dict.fromkeys(missing, "gone") if allow_missing else {}
        return {p: getattr(parts[p], method)(*own) for p, own in arguments.items() if p not in absent}, absent

    found = PartsReader([part.facts() for part in parts], parts[0].coder(), ask)
    found.asked = asked  # type: ignore[attr-defined]
    return found


def saved(folder: Path, divided: Sequence[np.ndarray], **settings: Any) -> list[Path]:
    """Save an index of each array of positions, whatever their codes."""
    paths = []
    for place, rows in enumerate(divided):
        index = Index(settings.get("coder", CODER), vectors=settings.get("vectors"))
        columns = settings.get("attributes")
        index.add(X[rows], IDS[rows], attributes=None if columns is None else columns.take(pa.array(rows)))
        paths.append(folder / f"part-{place}")
        index.save(paths[-1])
    return paths


def same(own: Any, other: Any) -> None:
    """Raise unless two answers are equal, bit for bit."""
    assert own.ids.tobytes() == other.ids.tobytes()
    assert own.distances.tobytes() == other.distances.tobytes()
    assert np.array_equal(own.compared, other.compared)


@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize("vectors", [None, "float16", "int8"])
def test_answers_are_those_of_one_index(ranges: bool, vectors: str | None, tmp_path: Path) -> None:
    divided = np.array_split(RNG.permutation(2000), 3)
    paths = merge_shards(encoded(tmp_path, divided, vectors=vectors), tmp_path / "whole", parts=4)
    if not ranges:
        paths = saved(tmp_path, [*divided, np.empty(0, np.int64)], vectors=vectors)
    index, cluster = Index.open(paths), reader(paths)
    options: list[dict[str, Any]]
    options = [{}, {"candidates": 2000}, {"rank": "hamming"}, {"metric": "inner"}, {"filter": IDS[::3], "k": 30}]
    for how in [*options, {"metric": "cosine", "rank": "asymmetric"}]:
        same(cluster.search(QUERIES, **how), index.search(QUERIES, **how))
        same(cluster.search(QUERIES[0], **how), index.search(QUERIES[0], **how))
    codes = CODER.encode(QUERIES)
    same(cluster.search(codes), index.search(codes))
    same(cluster.search(codes[0], k=2500), index.search(codes[0], k=2500))
    within: Any = cluster.range_search(QUERIES, 9.0)
    for own, other in zip(within, index.range_search(QUERIES, 9.0), strict=True):
        same(own, other)
    same(cluster.range_search(QUERIES[0], 9.0), index.range_search(QUERIES[0], 9.0))
    for metric in ("l2", "cosine"):
        measured = [vars(at.evaluate(QUERIES, metric=metric)) for at in (cluster, index)]
        for name in ("recall", "standard_error", "compared", "share", "candidates"):
            assert measured[0][name] == measured[1][name]
    assert cluster.codes(IDS[:9]) == index.codes(IDS[:9])
    assert cluster.codes(IDS[5]) == index.codes(IDS[5])
    assert cluster.contains(np.array([IDS[4], 9001])).tolist() == [True, False]
    if vectors:
        assert cluster.vectors(IDS[:9]).tolist() == index.vectors(IDS[:9]).tolist()


@pytest.mark.parametrize("ranges", [True, False])
def test_neighborhoods_are_those_of_one_index(ranges: bool, tmp_path: Path) -> None:
    divided = np.array_split(RNG.permutation(2000), 2)
    paths = merge_shards(encoded(tmp_path, divided), tmp_path / "whole", parts=5)
    paths = paths if ranges else saved(tmp_path, [np.empty(0, np.int64), *divided])
    index, cluster = Index.open(paths), reader(paths)
    codes = Codes.from_bits(RNG.random((40, 40)) < 0.5)  # most of them far from all items
    for queries in (QUERIES, codes, index.codes(IDS[:40]), index.bounds()):
        for size in (1, 2, 30, 395, 405, 900, 2000, 3000):
            own, other = cluster.neighborhood(queries, size=size), index.neighborhood(queries, size=size)
            assert isinstance(own, Neighborhoods)
            assert (own.length.tolist(), own.count.tolist()) == (other.length.tolist(), other.count.tolist())
            assert own.ids.tolist() == other.ids.tolist()
            assert own.offsets.tolist() == other.offsets.tolist()
    for query in (QUERIES[0], codes[0]):
        assert cluster.neighborhood(query, fraction=0.1).ids.tolist() == (
            index.neighborhood(query, fraction=0.1).ids.tolist()
        )
        nested, other = cluster.nested(query), index.nested(query)
        assert nested.count.tolist() == other.count.tolist()
        assert [nested[length].ids.tolist() for length in nested.length] == [hood.ids.tolist() for hood in other]


def test_a_neighborhood_asks_the_part_of_its_key_and_a_search_all(tmp_path: Path) -> None:
    paths = merge_shards(encoded(tmp_path, [np.arange(2000)]), tmp_path / "whole", parts=8)
    cluster, index = reader(paths), Index.open(paths)
    asked: list[int] = cluster.asked  # type: ignore[attr-defined]
    for code in index.codes(IDS[:100]):
        cluster.neighborhood(code, size=8)
    assert asked.count(1) >= 100  # the first question
    assert sum(count > 2 for count in asked) == 0
    assert len(asked) < 130  # few go on
    cluster.search(QUERIES)
    assert asked[-1] == 8


def test_filters_and_attributes_are_those_of_one_index(tmp_path: Path) -> None:
    paths = saved(tmp_path, np.array_split(RNG.permutation(2000), 3), attributes=TABLE)
    index, cluster = Index.open(paths), reader(paths)
    wanted: Any
    for wanted in ("year > 2015 AND lang = 'en'", ("year > ? OR lang IS NULL", [2020]), IDS[:70], [], "year > 3000"):
        same(cluster.search(QUERIES, filter=wanted), index.search(QUERIES, filter=wanted))
        assert cluster.matching(wanted).tolist() == index.matching(wanted).tolist()
    own, other = (at.evaluate(QUERIES, filter="year > 2015", candidates=2000) for at in (cluster, index))
    assert (own.recall, own.compared, own.share) == (other.recall, other.compared, other.share)
    ids = [*IDS[:50].tolist(), -1, int(IDS[0])]
    assert cluster.attributes(ids).equals(index.attributes(ids))
    assert cluster.attributes(ids, "lang").equals(index.attributes(ids, "lang"))
    assert cluster.attributes([-1]).equals(index.attributes([-1]))
    assert cluster.columns == index.columns


def test_equal_distances_come_by_id(tmp_path: Path) -> None:
    bits = RNG.random((60, 6)) < 0.5
    paths = []
    for place, rows in enumerate(np.array_split(RNG.permutation(60), 3)):
        index = Index(width=6)
        index.add(Codes.from_bits(bits[rows]), ids=rows)
        index.save(tmp_path / str(place))
        paths.append(tmp_path / str(place))
    queries = Codes.from_bits(RNG.random((20, 6)) < 0.5)
    same(reader(paths).search(queries, k=25), Index.open(paths).search(queries, k=25))


def test_a_budget_is_spent_in_each_part(tmp_path: Path) -> None:
    paths = merge_shards(encoded(tmp_path, [np.arange(2000)]), tmp_path / "whole", parts=3)
    hits, one = (at.search(QUERIES, k=5, candidates=100) for at in (reader(paths), Index.open(paths)))
    assert (hits.compared > one.compared).all()


def test_missing_parts_are_named_where_they_may_be_missing(tmp_path: Path) -> None:
    paths = saved(tmp_path, np.array_split(np.arange(2000), 3))
    hits = reader(paths, missing=[1]).search(QUERIES, allow_partial=True)
    assert isinstance(hits, PartialHits)
    assert hits.missing == {str(paths[1]): "gone"}
    same(hits, Index.open([paths[0], paths[2]]).search(QUERIES))
    assert vars(reader(paths).search(QUERIES, allow_partial=True))["missing"] == {}
    none = reader(paths, missing=[0, 1, 2]).search(QUERIES[0], k=3, allow_partial=True)
    assert (none.ids.tolist(), none.compared) == ([-1, -1, -1], 0)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda at: at.search(QUERIES, filter=np.ones(9000, bool)), "got a mask: give np.flatnonzero"),
        (lambda at: at.search(QUERIES, k=10**6), "k must be at most 65,536"),
        (lambda at: at.search(QUERIES[:, :3]), "features"),
        (lambda at: at.search(QUERIES, filter="year > 3"), "this index has none"),
        (lambda at: at.search(QUERIES, rank="exact"), "give vectors=, or make the index with"),
        (lambda at: at.neighborhood(QUERIES), "give either size"),
        (lambda at: at.nested(QUERIES), "nested takes one query, got 15"),
        (lambda at: at.codes([1, 9001, 9002]), "9001, 9002 are not"),
        (lambda at: at.vectors([1]), "stores no vectors"),
        (lambda at: at.attributes([1]), "this index has no attributes"),
    ],
)
def test_mistakes_are_told_as_by_an_index(ask: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=message):
        ask(reader(saved(tmp_path, np.array_split(np.arange(2000), 2))))


def test_parts_of_other_settings_are_refused(tmp_path: Path) -> None:
    paths = saved(tmp_path, np.array_split(np.arange(2000), 2))
    other = saved(tmp_path / "other", [np.arange(9)], coder=LinearCoder(width=16).fit(X))
    with pytest.raises(InvalidInput, match="differ in width and coder"):
        reader([*paths, *other])
    with pytest.raises(InvalidInput, match="twice"):
        reader([paths[0], paths[0]])
