"""Damaged files of every format, and files that are cut while they are open: refused, or read as if nothing happened.

Streams may be truncated anywhere by design; what is left of one is read, coarser.
"""

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import nestcode as nc
from nestcode.arrays import Ids
from nestcode.errors import DamagedFile, InvalidInput
from nestcode.index import compaction, live
from tests.damage import DAMAGE, Files, flipped, foreign, overwritten, resized
from tests.images.samples import codec, crops
from tests.torture.run import Outcome, Trial

Read = Callable[[Path], Any]  # what a file or folder holds, to compare
ITEMS = np.random.default_rng(0).standard_normal((300, 8)).astype(np.float32)
TIERS: dict[str, str | None] = {"index": None, "index whose nodes stay in their file": "codes"}
FEW = 20  # candidates, which a walk or lists find
CHEAP = 20  # trials of every other format for one of an index, which takes that many times as long
CODERS = [nc.LinearCoder(32), nc.ResidualCoder(32), nc.CellCoder(32), nc.AdaptiveCoder(32)]
CODER = nc.LinearCoder(64).fit(ITEMS)
REFUSED = (DamagedFile, InvalidInput, FileNotFoundError, IsADirectoryError)


def trials(random: Random, folder: Path) -> Iterator[Trial]:
    """Each format, damaged in each way."""
    formats = make_formats(folder)
    for name, (files, _) in formats.items():
        (folder / name).mkdir(exist_ok=True)
        put(files, folder / name)
    answers = {name: read(folder / name) for name, (_, read) in formats.items()}
    answers |= {name: read_index(folder / "index", memory) for name, memory in TIERS.items()}
    # Another index of the same kind, to mistake its files for those of this one.
    other = {path.name: path.read_bytes() for path in make_index(folder / "other", seed=1).iterdir()}
    index = formats["index"][0]
    while True:
        changed = random.choice(DAMAGE)(index, random)
        if random.random() < 0.1:
            changed = {one: other[one] for one in random.sample(sorted(index.keys() & other.keys()), 2)}
        for name, memory in TIERS.items():
            read_tier = partial(read_index, memory=memory)
            yield f"{name}: damaged", partial(judge, read_tier, folder / "index", index, changed, answers[name])
            yield f"{name}: truncated while open", partial(truncate_open, random, folder / "index", index, memory)
        yield "stream: truncated while open", partial(truncate_stream, random, folder / "stream", formats["stream"][0])
        for name in CHEAP * [name for name in formats if name != "index"]:
            files, read = formats[name]
            changed = random.choice([flipped, resized, overwritten, foreign])(files, random)
            yield f"{name}: damaged", partial(judge, read, folder / name, files, changed, answers[name])


def make_formats(folder: Path) -> dict[str, tuple[Files, Read]]:
    """Return the files of each format, and what reads them."""
    index = {path.name: path.read_bytes() for path in make_index(folder / "index", seed=0).iterdir()}
    formats: dict[str, tuple[Files, Read]] = {"index": (index, read_index)}
    for coder in CODERS:
        path = folder / "a.coder"
        coder.fit(ITEMS).save(path)
        formats[type(coder).__name__] = {"file": path.read_bytes()}, read_coder
    formats["stream"] = {"file": nc.compress(ITEMS[:60], CODER)}, read_stream
    formats["entropy-coded stream"] = {"file": nc.compress(ITEMS[:60], CODER, entropy=True)}, read_stream
    formats["stream with its coder"] = {"file": nc.compress(ITEMS[:60], CODER, embed=True)}, read_stream
    images = crops(((12, 20, 3), (9, 9)))
    formats["image stream"] = {"file": nc.compress_images(images, codec())}, read_images
    formats["lossless image stream"] = {"file": nc.compress_images(images, codec(), lossless=True)}, read_images
    return formats


def make_index(folder: Path, seed: int, coder: nc.Coder = CODER) -> Path:
    """Save an index of two segments, one with a graph, with tombstones and vectors."""
    compaction.MIN_GRAPH = 200
    order = np.random.default_rng(seed).permutation(len(ITEMS))
    index = nc.Index(coder, vectors="int8", graph=isinstance(coder, nc.LinearCoder))
    index.add(ITEMS[order[:280]], attributes=attributes_of(order[:280]))
    index.compact()
    index.save(folder, memory="codes")  # with the nodes of its graph
    with nc.Index.open(folder, mode="a") as writer:
        writer.add(ITEMS[order[280:]], attributes=attributes_of(order[280:]))
        writer.remove([3, 290])
        writer.commit()
    return folder


def attributes_of(order: Ids) -> dict[str, list[Any]]:
    """Return a number and a name for each item."""
    return {"year": (1900 + order).tolist(), "name": [f"item {one}" for one in order]}


def read_index(folder: Path, memory: str | None = None) -> Any:
    with nc.Index.open(folder, memory=memory) as index:
        return ask(index)


def ask(index: nc.Index) -> Any:
    """All that an index answers, by walks or lists and by scans."""
    ids, near = index.ids, []
    for candidates in (FEW, len(ids)):
        for wanted in (None, "year > 1950"):
            hits = index.search(ITEMS[:4], k=3, candidates=candidates, filter=wanted)
            near.append((hits.ids.tolist(), hits.distances.tolist()))
    hood = index.neighborhood(ITEMS[5], size=9)
    contents = index.codes(ids).packed.tobytes(), index.vectors(ids).tobytes()
    return ids.tolist(), contents, near, hood.length, sorted(hood.ids.tolist())


def read_coder(folder: Path) -> Any:
    return nc.load_coder(folder / "file").encode(ITEMS).packed.tobytes()


def read_stream(folder: Path) -> Any:
    return nc.decompress((folder / "file").read_bytes(), CODER)


def read_images(folder: Path) -> Any:
    return nc.decompress_images((folder / "file").read_bytes(), codec())


def judge(read: Read, folder: Path, files: Files, changed: Files, answer: Any) -> Outcome:
    """Read damaged files, and mend them again."""
    put(changed, folder)
    try:
        found = read(folder)
    except REFUSED:
        return "refused"
    finally:
        put({name: files[name] for name in changed}, folder)
    truncated = len(files) == 1 and files["file"].startswith(changed["file"])
    if truncated and len(found) == len(answer):
        return "intact"
    same = found == answer if isinstance(found, tuple | bytes) else all(map(np.array_equal, found, answer))
    return "intact" if same else "wrong"


def truncate_open(random: Random, folder: Path, files: Files, memory: str | None) -> Outcome:
    """Truncate a file of an index that is open, before or after it was read."""
    live.SIZES_EVERY = -1  # look at each read, not 200 times a second
    name = random.choice([name for name in files if name.endswith(".npy")])
    with nc.Index.open(folder, memory=memory) as index:
        answer = ask(index) if random.random() < 0.5 else None
        os.truncate(folder / name, random.choice([0, random.randrange(len(files[name]))]))
        try:
            found = ask(index)
        except DamagedFile:
            return "refused"
        finally:
            put({name: files[name]}, folder)
    return "intact" if answer is None or found == answer else "wrong"


def truncate_stream(random: Random, folder: Path, files: Files) -> Outcome:
    """Truncate a stream that is open."""
    with nc.StreamReader(folder / "file", CODER) as reader:
        answer = reader[:]
        os.truncate(folder / "file", random.randrange(len(files["file"])))
        try:
            found = reader[:]
        except DamagedFile:
            return "refused"
        finally:
            put(files, folder)
    return "intact" if np.array_equal(found, answer) else "wrong"


def put(files: Files, folder: Path) -> None:
    """Write files into a folder, each as a new file: an open one keeps what it has."""
    for name, data in files.items():
        (folder / name).unlink(missing_ok=True)
        (folder / name).write_bytes(data)
