"""Forged files: hostile values under valid checksums. They are refused, or read within the limits of time and memory.

A few kilobytes may cost `SECONDS` of CPU time and `ROOM` bytes of memory, whatever their headers claim.
"""

import json
import resource
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

import nestcode as nc
from nestcode.coders import coder_from_record
from nestcode.errors import NestcodeError, OutOfMemory
from nestcode.index.store import OURS
from nestcode.storage import Record, parse_record, record_bytes
from nestcode.streams.format import parse_header
from tests.images.samples import codec, crops, forged, table_of
from tests.index.test_damage import arrays_of, craft, craft_array, noise
from tests.streams.collections import with_json
from tests.torture.files import CHEAP, CODER, CODERS, ITEMS, TIERS, ask, make_index, put
from tests.torture.run import Outcome, Trial

LIMIT = 1 << 24  # bytes that streams may decode to
ROOM = 1 << 29  # bytes of memory beyond what the process has at the start
SECONDS = 3.0
OTHER = nc.CellCoder(32, metric="cosine").fit(ITEMS)
KINDS = set(OURS.pattern.partition("(")[2].partition(")")[0].split("|")) - {
    "sums"
}  # of arrays, by their names in files
STRANGE: list[Any] = [-1, 0, 1, 7, 255, 65536, 2**31, 2**40, 2**62, 10**30, 1.5, -0.0, 1e38, 1e308]
STRANGE += [float("inf"), float("nan")]
STRANGE += [None, True, "", "a", "../x", "\x1b[2J", "9" * 5000, [], {}, [[]], [2**40, 2**40], {"a": 1}]


def trials(random: Random, folder: Path) -> Iterator[Trial]:
    """Each format with forged values."""
    indexes = [make_index(folder / "index", seed=0), make_index(folder / "other", seed=1, coder=OTHER)]
    files = [{path.name: path.read_bytes() for path in index.iterdir()} for index in indexes]
    arrays = [arrays_of(index) for index in indexes]
    found = {name.split(".")[1] for names in arrays for name in names}
    assert found == KINDS, f"{found ^ KINDS} are forgotten"
    streams = [nc.compress(ITEMS[:60], CODER, entropy=entropy) for entropy in (False, True)]
    images = [
        nc.compress_images(crops(((12, 20, 3), (9, 9))), codec(), lossless=lossless) for lossless in (False, True)
    ]
    records = [coder.fit(ITEMS).to_record() for coder in CODERS] + [codec().to_record()]
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    room = pages * resource.getpagesize() + ROOM
    resource.setrlimit(resource.RLIMIT_AS, (room, room))
    while True:
        edit = partial(forge_manifest, random=random)
        for index, there, names in zip(indexes, files, arrays, strict=True):
            for memory in TIERS.values():
                change_manifest = partial(craft, index, edit)
                yield (
                    "manifest of an index",
                    partial(bounded, partial(use_index, index, there, change_manifest, memory)),
                )
                edit_array = partial(craft_array, index, random.choice(names), partial(noise, random=random))
                yield "arrays of an index", partial(bounded, partial(use_index, index, there, edit_array, memory))
        for _ in range(CHEAP):
            data = forge_stream(random.choice(streams), random)
            yield "stream", partial(bounded, partial(nc.decompress, data, CODER, limit=LIMIT))
            yield "stream", partial(bounded, partial(nc.stream_info, data, CODER))
            data = random.choice(images)
            data = forged(data, change(table_of(data), random))
            yield "image stream", partial(bounded, partial(nc.decompress_images, data, codec(), limit=LIMIT))
            data = record_bytes(forge_record(random.choice(records), random))
            yield "coder", partial(bounded, partial(use_coder, data))


def bounded(read: Callable[[], Any]) -> Outcome:
    """Read a forged file; raise if that takes too much."""
    start = time.process_time()
    try:
        read()
        outcome: Outcome = "intact"
    except OutOfMemory:
        raise
    except NestcodeError:
        outcome = "refused"
    spent = time.process_time() - start
    assert spent < SECONDS, f"it took {spent:.1f} s of CPU time"
    return outcome


def change(value: Any, random: Random) -> Any:
    """Return a JSON value in which a few values are others."""
    text = json.loads(json.dumps(value))
    for _ in range(random.randint(1, 2)):
        place, keys = text, list(_keys(text))
        while keys:
            key = random.choice(keys)
            if random.random() < 0.6 and list(_keys(place[key])):
                place, keys = place[key], list(_keys(place[key]))
                continue
            old = place[key]
            near = [old * 2, old + 1, old * 1000, -old] if type(old) in (int, float) else []
            place[key] = deepcopy(random.choice([*STRANGE, *near, *near]))  # which may be changed next
            break
    return text


def _keys(value: Any) -> Any:
    return range(len(value)) if isinstance(value, list) else value if isinstance(value, dict) else ()


def forge_stream(data: bytes, random: Random) -> bytes:
    header = parse_header(memoryview(data))
    text = json.dumps(change(asdict(header), random), sort_keys=True, separators=(",", ":")).encode()
    return with_json(text, data[header.size :])


def forge_record(record: Record, random: Random) -> Record:
    """Return a coder's record with other settings or arrays."""
    if random.random() < 0.5:
        settings = change(record.settings, random)
        return replace(record, settings=settings if isinstance(settings, dict) else {})
    arrays = dict(record.arrays)
    name = random.choice(sorted(arrays))
    arrays[name] = reshaped(arrays[name], random) if random.random() < 0.5 else noise(arrays[name], random)
    return replace(record, arrays=arrays)


def reshaped(array: NDArray[Any], random: Random) -> NDArray[Any]:
    """Return an array of another shape or type."""
    flat = np.resize(array, max(1, array.size // random.choice([1, 2, 3])))
    shapes = [flat, flat[:0], flat[None], flat[:, None, None], np.broadcast_to(flat[:1], (2, 3)), flat[:1].reshape(())]
    types = [array.dtype, np.dtype(np.float64), np.dtype(np.int64), np.dtype(np.uint8), np.dtype(np.bool_)]
    with np.errstate(all="ignore"):
        return np.ascontiguousarray(random.choice(shapes)).astype(random.choice(types))


def use_coder(data: bytes) -> None:
    """Load a coder or an image codec, and encode and decode with it."""
    record = parse_record(data, "a forged coder")
    if record.kind == "ImageCodec":
        images = crops(((12, 20, 3),))
        loaded = nc.ImageCodec.from_record(record, "a forged codec")
        nc.decompress_images(nc.compress_images(images, loaded), loaded)
        return
    coder = coder_from_record(record, "a forged coder")
    rows = np.resize(ITEMS, (20, coder.n_features_in_)) if coder.n_features_in_ < 10_000 else ITEMS
    assert np.isfinite(coder.decode(coder.encode(rows))).all()


def forge_manifest(manifest: dict[str, Any], random: Random) -> None:
    """Change a few values of a manifest."""
    other = change(manifest, random)
    manifest.clear()
    manifest.update(other)


def use_index(folder: Path, files: dict[str, bytes], edit: Callable[[], None], memory: str | None) -> None:
    """Open an index with forged files, and ask it everything."""
    try:
        edit()
        with nc.Index.open(folder, memory=memory) as index:
            ask(index)
    finally:
        put(files, folder)
