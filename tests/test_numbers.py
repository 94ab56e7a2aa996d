"""Every number that a public name takes: an answer, or an error of ours that names the rule, the value and the remedy.

The signatures say which parameters these are, so a new one is tried as soon as it has an annotation. What else a call
needs is found by the name of the parameter in `GIVEN`, or of the call in `OTHERWISE`.
"""

import inspect
import io
import re
import warnings
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import nestcode as nc
from nestcode import lengths
from nestcode.arrays import shown
from nestcode.data.png import png_bytes
from nestcode.errors import NestcodeError
from nestcode.index import PrefixTree
from nestcode.integrations.faiss import NestedIndex
from nestcode.integrations.sklearn import NestedNeighborsClassifier, NestedNeighborsRegressor
from nestcode.search import Effort
from nestcode.stores import LmdbStore, SqliteStore
from tests.test_public import public_objects

HUGE, VAST = 10**400, 10**5000  # no float holds the first, and Python does not write the second in decimal
NUMBERS: list[Any] = [
    HUGE, -HUGE, VAST, 2**64, 2**63, 2**63 - 1, -(2**63) - 1, 2**40, -1, 0, 1, float("nan"), float("inf"),
    -float("inf"), 1e300, 1e-320, 2.5, Fraction(1, 3), 2j, np.int64(3), np.uint8(3), np.int8(-1),
    np.uint64(2**64 - 1), np.float16(0.5), np.float32(3), np.float64("nan"), np.array(3), np.array([3, 4]),
]  # fmt: skip
OTHERS: list[Any] = [True, np.bool_(True), "3", "", np.str_("3"), b"3", None, [], [3], {}, object()]
NUMERIC = re.compile(r"\b(int|float|SupportsIndex)\b")
PLURAL = re.compile(r"\b(Sequence|Iterable)\[")
X = np.random.default_rng(0).standard_normal((60, 8)).astype(np.float32)
CODER = nc.LinearCoder(8).fit(X)
CODES = CODER.encode(X)
IMAGES = [np.random.default_rng(seed).integers(0, 256, (16, 16, 3), dtype=np.uint8) for seed in range(2)]
GIVEN: dict[str, Any] = {
    "X": X, "x": X[:3], "items": X, "queries": X[:3], "original": X, "decoded": X, "ids": np.arange(60), "coder": CODER,
    "codes": CODES, "code": CODES[:1], "other": CODES, "packed": CODES.packed, "prefix": CODES[:1].prefix(4),
    "data": nc.compress(X, CODER), "image": IMAGES[0], "images": IMAGES, "rng": np.random.default_rng(1),
    "lengths": lengths.Uniform(), "components": [lengths.Uniform(), lengths.Geometric(0.9)], "weights": [1, 1],
    "trace": np.full(9, 20.0), "rungs": [4, 8], "decay": 0.9, "radius": 1.0, "thresh": 1.0, "mean": 10.0,
    "width": 8, "length": 4, "bits": 8, "count": 10, "k": 3, "n": 3, "size": 8, "arms": 2, "limit": 3, "step": 1,
    "key": 3, "d": 8, "first": 2, "parts": 2, "periods": 5, "candidates": 50, "rerank": 10, "compared": 10,
    "rankings": [[1, 2], [2, 3]],
}  # fmt: skip
OTHERWISE: dict[str, dict[str, Any]] = {
    "ImageStreamDecoder.read": {"file": io.BytesIO(nc.compress_images(IMAGES))},
    "ImageCodec.decode": {"data": nc.ImageCodec.load().encode(IMAGES[0]), "shape": (16, 16, 3)},
    "Index": {"coder": CODER},
    "Index.neighborhood": {"size": 3},
    "PrefixTree.neighborhoods": {"queries": CODES[:2], "size": 3},
    "SqliteStore.create": {"database": ":memory:", "coder": CODER},
    "LmdbStore.create": {"coder": CODER},
    "encode_shard": {"coder": CODER},
    "decompress": {"coder": CODER},
    "decompress_images": {"data": nc.compress_images(IMAGES)},
    "play_truncated": {"bits": [100] * 9},
    "play_ladder": {"bits": [100] * 9},
    "Effort": {"items": 60},
}
CHANGING = ("Index.truncate",)
LONG = {"Index.build": ("seconds",)}  # what may take as long as it says
TORCH = ("nn", "training", "autoencoder", "refined", "supervised")
RESULTS = {  # which Nestcode makes, and methods of which its planner calls
    "ImageStreamInfo", "ItemStreamInfo", "Health", "Neighborhood", "Neighborhoods", "Evaluation", "Plan", "Playback",
    "Quality",
}  # fmt: skip
OTHER_TYPES = {  # records of the server, and what needs a server or another package
    "Limits", "Items", "Refiner", "CodeStore", "SqliteStore", "LmdbStore", "Client", "RemoteStream",
}  # fmt: skip
OTHER_CALLS = {
    "Codes.unchecked", "Items.image_of", "Items.show", "Service.items_as_queries", "by_length",
    "plot_by_length", "from_arrow", "from_faiss", "merge", "merge_range", "play_whole", "ImageFiles.profile",
    "ImageStreamReader.decode_some", "Client.range_search",
    "ImageStreamWriter.add_all", "Client.decode", "Client.search", "RemoteStream.read", "Refiner.refine",
}  # fmt: skip


@cache
def calls() -> dict[str, tuple[type | None, Any]]:
    """Return all functions, constructors and methods that take numbers, by name, with the class of a method."""
    found: dict[str, tuple[type | None, Any]] = {}
    known = set()
    for name, value in public_objects():
        *modules, own = name.split(".")
        if isinstance(value, ModuleType) or not callable(value) or set(modules) & {*TORCH, "postgres", "langchain"}:
            continue
        if set(modules) & {"haystack", "llama_index"} or (inspect.isclass(value) and issubclass(value, Exception)):
            continue
        members: dict[str, tuple[type | None, Any]] = {own: (None, value)}
        if inspect.isclass(value):
            functions = {member: inspect.getattr_static(value, member) for member in dir(value) if member[0] != "_"}
            members |= {f"{own}.{member}": (value, function) for member, function in functions.items()}
        for call, (owner, function) in members.items():
            plain = getattr(function, "__func__", function)
            if call.partition(".")[0] in RESULTS:
                continue
            if (call in OTHER_TYPES | OTHER_CALLS) or not (inspect.isclass(plain) or inspect.isfunction(plain)):
                continue
            if plain not in known and plain.__module__.startswith("nestcode") and numeric(plain):
                known.add(plain)
                found[call] = owner, function
    return found


def numeric(function: Any) -> dict[str, bool]:
    """Return the parameters that are numbers, and whether each takes several."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # of C++
        return {}
    kinds = {one.name: str(one.annotation) for one in parameters}
    return {name: bool(PLURAL.search(kind)) for name, kind in kinds.items() if NUMERIC.search(kind)}


def make_owner(kind: type, folder: Path) -> Any:
    """Return an object whose method is called."""

    def filled(empty: Any) -> Any:
        if isinstance(empty, SqliteStore):
            empty.add(X, np.arange(60))
        else:
            empty.add(X)
        return empty

    makers: dict[str, Callable[[], Any]] = {
        "Index": lambda: filled(nc.Index(CODER, vectors="float32")),
        "CodeStore": lambda: filled(SqliteStore.create(":memory:", CODER)),
        "Codes": lambda: CODES,
        "Coder": lambda: CODER,
        "AdaptiveCoder": lambda: nc.AdaptiveCoder(16).fit(X),
        "RotationCoder": lambda: nc.RotationCoder(16).fit(X),
        "Lengths": lambda: lengths.Geometric(0.9),
        "Effort": lambda: Effort(100, 60, 20, 10),
        "PrefixTree": lambda: PrefixTree(CODES),
        "ImageCodec": nc.ImageCodec.load,
        "ImageStreamReader": lambda: nc.ImageStreamReader(folder / "images.nest"),
        "ImageStreamDecoder": nc.ImageStreamDecoder,
        "StreamReader": lambda: nc.StreamReader(folder / "items.nest", CODER),
        "NestedIndex": lambda: filled(NestedIndex(8, coder=CODER)),
        "NestedNeighborsClassifier": lambda: NestedNeighborsClassifier(CODER).fit(X, np.arange(60) % 3),
    }
    return makers[kind.__name__]()


def use(made: Any) -> None:
    """Use what a call returned: settings are checked when a coder is fitted, an iterator when it is read."""
    if isinstance(made, nc.Coder):
        made.fit(X[:15])
    elif isinstance(made, NestedNeighborsClassifier | NestedNeighborsRegressor):
        made.set_params(coder=CODER).fit(X, np.arange(60)).predict(X[:3])
    elif isinstance(made, lengths.Lengths):
        made.survival(8)
    elif isinstance(made, Iterator):
        next(made, None)
    elif isinstance(made, Effort):
        index = nc.Index(CODER)
        index.add(X)
        index.effort = made
        index.search(X[:2], 3)
    elif hasattr(made, "close"):
        made.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("numbers")
    (place / "items.nest").write_bytes(nc.compress(X, CODER))
    (place / "images.nest").write_bytes(nc.compress_images(IMAGES))
    (place / "images").mkdir()
    (place / "images" / "a.png").write_bytes(png_bytes(IMAGES[0]))
    (place / "trace.csv").write_text("1\n2\n3\n")
    index = nc.Index(CODER)
    index.add(X)
    index.save(place / "an.index")
    return place


@pytest.mark.parametrize("call", calls())
def test_numbers_are_answered_or_refused(call: str, folder: Path, tmp_path: Path) -> None:
    owner, function = calls()[call]
    paths: dict[str, Any] = {
        "StreamReader": {"path": folder / "items.nest", "coder": CODER},
        "ImageStreamReader": {"path": folder / "images.nest"},
        "ImageFolder": {"path": folder / "images"},
        "read_trace": {"path": folder / "trace.csv"},
        "Service": {"index": folder / "an.index"},
        "find_splitters": {"shards": [folder / "an.index"]},
        "merge_shards": {"shards": [folder / "an.index"]},
        "LmdbStore.open": {"path": tmp_path / "lmdb"},
    }
    plain = getattr(function, "__func__", function)
    required = [one.name for one in inspect.signature(plain).parameters.values() if one.default is one.empty]
    given = {name: GIVEN[name] for name in required if name in GIVEN} | OTHERWISE.get(call, {}) | paths.get(call, {})
    made = make_owner(owner, folder) if owner is not None and "self" in required else owner
    taken = iter(range(10**6))

    def attempt(**changed: Any) -> None:
        new = {name: tmp_path / str(next(taken)) for name in ("path", "out") if name in required and name not in given}
        target = make_owner(owner, folder) if owner is not None and call in CHANGING else made
        called = function if target is None else getattr(target, call.partition(".")[2])
        use(called(**(given | new | changed)))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if call == "LmdbStore.open":
            LmdbStore.create(tmp_path / "lmdb", CODER).close()
        attempt()
        for name, several in numeric(plain).items():
            for value in NUMBERS + OTHERS if name not in LONG.get(call, ()) else OTHERS:
                try:
                    attempt(**{name: [value] if several else value})
                except NestcodeError as error:
                    if len(str(error)) > 600:
                        pytest.fail(f"{call}({name}={shown(value)}) raised an error of {len(str(error))} characters")
                except Exception as error:
                    pytest.fail(f"{call}({name}={shown(value)}) raised {error!r:.200}")
