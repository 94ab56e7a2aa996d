"""Hostile arrays at every public door: a right answer, or an error of ours that says what to mend.

Right means: finite values, the shapes that were promised, and what was saved opens again with the same codes.
"""

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

import nestcode as nc
from nestcode import metrics
from nestcode.errors import NestcodeError
from nestcode.stores import SqliteStore
from tests.torture.files import CODER, ITEMS
from tests.torture.run import Outcome, Trial

VALUES = [0.0, 1.0, -1.0, 1e-45, 1e-38, 1e38, 3.4e38, -3.4e38, 1e308, np.nan, np.inf, -np.inf]
TYPES = ["<f4", ">f4", "<f8", ">f8", "<f2", "<i8", ">i4", "|u1", "|b1", "<c8", "|O", "<U3", "<M8[s]"]
SHAPES = [(), (0,), (8,), (0, 8), (1, 8), (40, 8), (40, 0), (3, 7), (40, 9), (40, 2, 4), (2, 1, 8, 1), (300, 8)]
SLOW = ("fit", "index add", "store")
CHEAP = 8  # trials of every other door for one of these
MAKERS: list[Callable[[], Any]] = [
    lambda: nc.LinearCoder(16),
    lambda: nc.ResidualCoder(16),
    lambda: nc.CellCoder(16),
    lambda: nc.AdaptiveCoder(16),
]


def trials(random: Random, folder: Path) -> Iterator[Trial]:
    """Every door with one hostile array after the other."""
    warnings.simplefilter("ignore")
    doors = {name: door for name, door in globals().items() if name.startswith("give_")}
    while True:
        for name, door in doors.items():
            row = name.removeprefix("give_").replace("_", " ")
            for _ in range(1 if row in SLOW else CHEAP):
                yield row, partial(knock, partial(door, hostile(random), random, folder))


def knock(call: Callable[[], None]) -> Outcome:
    """Make a call; any other error than ours is wrong."""
    try:
        call()
    except NestcodeError:
        return "refused"
    return "intact"


def hostile(random: Random) -> Any:
    """Return something that stands in the place of an array."""
    rng = np.random.default_rng(random.randrange(2**32))
    shape = random.choice(SHAPES if random.random() < 0.5 else [(1, 8), (40, 8), (300, 8)])
    array: NDArray[Any] = np.asarray(rng.standard_normal(shape))
    if random.random() < 0.5:
        array = np.where(rng.random(shape) < random.choice([0.01, 0.3, 1]), rng.choice(VALUES, shape), array)
    if random.random() < 0.2:
        array = np.asarray(array) * random.choice([1e-40, 1e-20, 1e19, 1e30])
    with np.errstate(all="ignore"):
        kind = random.choice(TYPES[:4] if random.random() < 0.6 else TYPES)
        array = np.asarray(array).astype("<i8").astype(kind) if kind == "<M8[s]" else np.asarray(array).astype(kind)
    views: list[Callable[[NDArray[Any]], Any]] = [
        lambda a: a,
        lambda a: a[::-1] if a.ndim else a,
        lambda a: np.asfortranarray(a),
        lambda a: np.repeat(a, 2, axis=-1)[..., ::2] if a.ndim else a,
        lambda a: a.tolist(),
        lambda a: np.broadcast_to(a[:1], a.shape) if a.ndim and len(a) else a,
        lambda a: np.ma.masked_invalid(a) if a.dtype.kind == "f" else a,
        lambda a: np.ascontiguousarray(a).data if a.dtype.kind in "fiu" else a,
        lambda a: _locked(a),
    ]
    return random.choice(views)(array)


def _locked(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array


# The doors


def give_fit(array: Any, random: Random, folder: Path) -> None:
    coder = random.choice(MAKERS)().set_params(metric=random.choice(["l2", "cosine"])).fit(array)
    codes = coder.encode(array)
    assert np.isfinite(coder.decode(codes)).all()
    coder.save(folder / "a.coder")
    assert nc.load_coder(folder / "a.coder").encode(array) == codes


def give_encode(array: Any, random: Random, folder: Path) -> None:  # noqa: ARG001
    assert len(CODER.encode(array)) == (1 if np.ndim(array) == 1 else len(array))


def give_codes(array: Any, random: Random, folder: Path) -> None:  # noqa: ARG001
    width = random.choice([0, 1, 8, 60, 64, 2**40])
    codes = nc.Codes.from_bits(array) if random.random() < 0.5 else nc.Codes(array, width)
    assert codes.prefix(codes.width // 2).prefix(1 if codes.width > 3 else 0).width <= 1


def give_index_add(array: Any, random: Random, folder: Path) -> None:
    index = nc.Index(CODER, vectors=random.choice([None, "float32", "float16", "int8"]))
    try:
        index.add(array)
    finally:
        assert len(index) in (0, 1 if np.ndim(array) == 1 else len(array) if np.ndim(array) else 0)
    index.save(folder / "added.index", overwrite=True)
    with nc.Index.open(folder / "added.index") as opened:
        opened.verify()
        assert opened.codes(index.ids) == index.codes(index.ids)


def give_ids(array: Any, random: Random, folder: Path) -> None:  # noqa: ARG001
    index = small_index()
    count = len(index)
    doors: list[Callable[[Any], Any]] = [index.remove, index.codes, index.vectors]
    doors.append(lambda ids: index.add(ITEMS[: np.size(ids)], ids))
    try:
        random.choice(doors)(array)
    except NestcodeError:
        assert len(index) == count
        raise


def give_search(array: Any, random: Random, folder: Path) -> None:  # noqa: ARG001
    options: dict[str, Any] = {
        "k": random.choice([1, 3, 50, 10**6]),
        "candidates": random.choice([None, 1, 40, 10**9]),
        "metric": random.choice([None, "l2", "cosine", "inner"]),
        "rank": random.choice([None, "asymmetric", "hamming"]),
    }
    hits = small_index().search(array, **options)
    assert np.isfinite(hits.distances[hits.ids >= 0]).all()


def give_search_filter(array: Any, random: Random, folder: Path) -> None:  # noqa: ARG001
    allowed = np.asarray(array)
    hits = small_index().search(ITEMS[:2], k=3, filter=array)
    if allowed.dtype.kind == "i":
        assert np.isin(hits.ids[hits.ids >= 0], allowed).all()


def give_neighborhood(array: Any, random: Random, folder: Path) -> None:  # noqa: ARG001
    small_index().neighborhood(array, size=random.choice([1, 10, 10**9]))


def give_compress(array: Any, random: Random, folder: Path) -> None:  # noqa: ARG001
    data = nc.compress(array, CODER, entropy=random.random() < 0.5)
    found = nc.decompress(data, CODER)
    assert found.shape == np.shape(array)
    assert found.dtype.kind != "f" or np.isfinite(found).all()


def give_compress_images(array: Any, random: Random, folder: Path) -> None:  # noqa: ARG001
    (found,) = nc.decompress_images(nc.compress_images([array]))
    assert found.shape == np.shape(array)
    (found,) = nc.decompress_images(nc.compress_images([array], lossless=True))
    assert np.array_equal(found, array)


def give_decompress(array: Any, random: Random, folder: Path) -> None:  # noqa: ARG001
    doors: list[Callable[[Any], Any]] = [nc.decompress_images, nc.stream_info, partial(nc.decompress, coder=CODER)]
    random.choice(doors)(array)


def give_metrics(array: Any, random: Random, folder: Path) -> None:  # noqa: ARG001
    doors: list[Callable[[Any], Any]] = [
        lambda a: metrics.exact_neighbors(a, ITEMS, 3),
        lambda a: metrics.exact_neighbors(ITEMS, a, 3),
        lambda a: metrics.distortion(a, a),
        lambda a: metrics.psnr(a, a),
        lambda a: metrics.recall(a, a),
    ]
    random.choice(doors)(array)


def give_store(array: Any, random: Random, folder: Path) -> None:  # noqa: ARG001
    with SqliteStore.create(":memory:", CODER) as store:
        store.add(ITEMS[:50], np.arange(50))
        try:
            if random.random() < 0.5:
                store.add(array, np.arange(100, 100 + np.size(array) // 8))
            else:
                store.search(array, k=3)
        finally:
            assert len(store) >= 50


def small_index() -> nc.Index:
    """An index with vectors."""
    index = nc.Index(CODER, vectors="float16")
    index.add(ITEMS)
    return index
