"""The decoder for browsers, run in Node: the pixels of the Python decoder bit for bit, and its errors."""

import hashlib
import json
import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nestcode as nc
from nestcode.errors import DamagedFile, InvalidInput
from nestcode.images import ImageCodec, ImageStreamDecoder, compress_images
from nestcode.images.image import Image
from tests.golden.make_stream import HERE as GOLDEN
from tests.golden.make_stream import blank
from tests.images.samples import codec, crop, crops, forged, header_of, stream, table_of
from tests.web.conftest import NEST, run_node

ROOT = Path(__file__).parents[2]


def digest(images: list[Image]) -> str:
    return hashlib.sha256(b"".join(image.tobytes() for image in images)).hexdigest()


def python_result(data: bytes, own: ImageCodec | None = None) -> str:
    """The twin of `decode` in decode.mjs."""
    decoder = ImageStreamDecoder(own, limit=1 << 31)
    try:
        decoder.feed(data)
        return digest(decoder.images())
    except (DamagedFile, InvalidInput) as error:
        text = f"{type(error).__name__}: {error}"
    try:
        return f"{text}|{digest(decoder.images())}"
    except (DamagedFile, InvalidInput):
        return text


class Tasks:
    """Streams to decode in Node, all in one process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tasks: list[dict[str, Any]] = []
        self.expected: list[list[str]] = []

    def add(self, data: bytes, cuts: list[int], own: ImageCodec | None = None, chunk: int = 1 << 30) -> None:
        path = self.folder / f"{len(self.tasks)}.nest"
        path.write_bytes(data)
        if own is not None:
            own.save(self.folder / f"{own.fingerprint}.coder")
        given = None if own is None else str(self.folder / f"{own.fingerprint}.coder")
        self.tasks.append({"stream": str(path), "codec": given, "cuts": cuts, "chunk": chunk})
        self.expected.append([python_result(data[:cut], own) for cut in cuts])

    def results(self, node: str) -> list[list[str]]:
        found: list[list[str]] = json.loads(run_node(node, "decode.mjs", stdin=json.dumps(self.tasks)))
        return found


def test_golden_pixels_are_those_of_every_machine(node: str, tmp_path: Path) -> None:
    """Those of version 1, the last one without 16 bits."""
    blank(1).save(tmp_path / "blank.coder")
    expected = json.loads((GOLDEN / "images-v1-pixels.json").read_text())
    task = {"stream": str(GOLDEN / "images-v1.nest"), "codec": str(tmp_path / "blank.coder")}
    tasks = [{**task, "cuts": list(map(int, expected)), "chunk": chunk} for chunk in (1 << 30, 700)]
    for found in json.loads(run_node(node, "decode.mjs", stdin=json.dumps(tasks))):
        assert found == list(expected.values())


def test_every_cut_decodes_as_in_python(node: str, tmp_path: Path) -> None:
    rng, tasks = np.random.default_rng(0), Tasks(tmp_path)
    small = stream(((1, 1, 4), (2, 9)))
    tasks.add(small, list(range(len(small) + 1)), codec())
    tasks.add(small, [len(small)], codec(), chunk=1)
    data = stream()
    tasks.add(data, rng.integers(header_of(data).size, len(data), 40).tolist(), codec(), chunk=900)
    embedded = compress_images(crops(), codec(), embed=True)
    start = header_of(embedded).size
    tasks.add(embedded, [100, start - 1, start, start + 300, len(embedded)])
    photo = compress_images([crop((200, 300, 3))], bpp=1, tune="ssim")
    tasks.add(photo, [len(photo) // 2, len(photo)], chunk=2000)
    earlier = compress_images([crop((60, 70, 3))], ImageCodec.load("photos-1"))
    tasks.add(earlier, [len(earlier)])  # both find the codec by its fingerprint
    for found, expected in zip(tasks.results(node), tasks.expected, strict=True):
        assert found == expected


def test_images_of_16_bits_decode_to_8(node: str, tmp_path: Path) -> None:
    """Values are divided by 257, so the bitstream is that of the image of 8 bits."""
    image, tasks = crop((40, 50, 3)), Tasks(tmp_path)
    deep = compress_images([image.astype(np.uint16) * 257], codec())
    tasks.add(deep, [len(deep)], codec())
    plain = compress_images([image], codec())
    assert tasks.results(node) == [[python_result(plain, codec())]]


def test_damaged_streams_are_refused_with_the_same_error(node: str, tmp_path: Path) -> None:
    rng, tasks = np.random.default_rng(1), Tasks(tmp_path)
    data = stream()
    size = header_of(data).size
    for at in [*range(0, 60, 5), *rng.integers(60, size, 6).tolist(), *rng.integers(size, len(data), 25).tolist()]:
        changed = bytearray(data)
        changed[at] ^= 1 << int(rng.integers(8))
        tasks.add(bytes(changed), [len(data)], codec())
    tasks.add(data + b"more", [len(data) + 4], codec())
    tasks.add(data, [len(data)])  # without its codec
    tasks.add(data, [len(data)], blank())
    tasks.add(nc.compress(np.eye(3), nc.LinearCoder(4).fit(np.random.default_rng(0).normal(size=(20, 3)))), [500])
    tasks.add(b"\x89PNG\r\n\x1a\n", [3, 8])
    many_planes = bytes([0x7F]) + bytes(99)
    table = [[["a", [20, 20], [100, *[0] * 44]]], [0] * 45]
    small = forged(stream(((2, 9),)), table, payload=100)
    header = header_of(small)
    tasks.add(small[: header.size] + b"".join(header.seal([many_planes])), [300], codec())
    for found, expected in zip(tasks.results(node), tasks.expected, strict=True):
        assert found == expected
    assert sum("does not match its checksum" in one for some in tasks.expected for one in some) > 20


def test_a_codec_of_no_version_is_refused_with_the_same_error(
    node: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks, record = Tasks(tmp_path), codec().to_record()
    for version in (-1, 0, 3):
        monkeypatch.setattr(ImageCodec, "to_record", lambda _, version=version: replace(record, version=version))
        data = compress_images([crop((2, 9))], ImageCodec.load("photos"), embed=True)
        tasks.add(data, [len(data)])
    for (found,), (expected,) in zip(tasks.results(node), tasks.expected, strict=True):
        assert found.split(" be: ")[0] == expected.split(" be: ")[0]  # Python adds the version
        assert found.startswith("DamagedFile: the codec in the stream ")


SIZES = [0] * 45
TABLES: list[Any] = [
    7, [], [[], []], [[], [0] * 44], [[], [0.5] * 45], [[], [10000] * 45], [[["a", [2, 2], SIZES[1:]]], SIZES],
    [[["a", [2, 2], [1.0, *SIZES[1:]]]], SIZES], [[["a", [0, 2], SIZES]], SIZES], [[["a", [2, 2, 5], SIZES]], SIZES],
    [[["a", [2], SIZES]], SIZES], [[["../a", [2, 2], SIZES]], SIZES], [[["a", [2, 2], SIZES]] * 2, SIZES],
    [[["a", [2**31, 2], SIZES]], SIZES], [[[7, [2, 2], SIZES]], SIZES], [[["a", "bc", SIZES]], SIZES],
    [[["a", [2**30, 2**30, 4], SIZES]], SIZES],
]  # fmt: skip


def test_forged_tables_are_refused(node: str, tmp_path: Path) -> None:
    tasks = Tasks(tmp_path)
    for table in TABLES:
        tasks.add(forged(stream(((2, 9),)), table, payload=0), [10**6], codec())
    for text in (b"[", b"\xff\xfe", b"", b"[" * 10**5):
        tasks.add(forged(stream(((2, 9),)), text=text), [10**6], codec())
    tasks.add(forged(stream(((2, 9),)), table_of(stream(((2, 9),))), payload=1), [10**6], codec())
    for (found,), (expected,), task in zip(tasks.results(node), tasks.expected, tasks.tasks, strict=True):
        assert found.split(" (")[0] == expected.split(" (")[0], task
        assert found.startswith(("DamagedFile: the stream's table", "InvalidInput: the stream's 1 images take"))


def test_streams_are_read_from_servers_with_and_without_ranges(node: str, site: tuple[Path, str]) -> None:
    folder, address = site
    data = compress_images([crop((160, 200, 3))])
    (folder / "one.nest").write_bytes(data)
    budgets = [900, 5000, 300, len(data)]  # more, fewer, all
    for path in ("one.nest", "range/one.nest"):
        lines = run_node(node, "stream.mjs", f"{address}/{path}", *map(str, budgets)).split("\n")
        frames = [json.loads(line) for line in lines if line]
        assert [frame["bytes"] for frame in frames] == budgets
        assert [frame["complete"] for frame in frames] == [False, False, False, True]
        assert {frame["total"] for frame in frames} == {len(data)}
        assert [frame["pixels"] for frame in frames] == [python_result(data[:budget]) for budget in budgets]


def test_a_width_needs_the_bytes_that_it_needs_in_python(node: str, tmp_path: Path) -> None:
    path, data = tmp_path / "some.nest", compress_images([crop((160, 200, 3)), crop((90, 300))])
    path.write_bytes(data)
    widths = [10.5, 30, 64, 150, 299, 1000]
    lines = run_node(node, "widths.mjs", str(path), *map(str, widths)).split()
    header = header_of(data)
    assert [int(line) for line in lines] == [header.bytes_for_width(width) for width in widths]


def test_what_is_committed_was_built_from_these_sources() -> None:
    built = runpy.run_path(str(ROOT / "web/build.py"))
    assert (NEST / "sources.sha256").read_text().strip() == built["digest"](), "run make web and commit what it writes"


def test_the_npm_package_has_the_version_of_the_library() -> None:
    package = json.loads((ROOT / "web/package.json").read_text())
    assert package["version"].replace("-rc.", "rc") == nc.__version__
    for entry in package["exports"].values():
        assert all((NEST / Path(path).name).is_file() for path in entry.values())


def test_the_download_is_small() -> None:
    """But for the codec of earlier streams, which only these load, and files that no page loads."""
    others = {"photos-1.coder.z", "sources.sha256", "nest.d.ts", "nest-image.d.ts"}
    assert sum(path.stat().st_size for path in NEST.iterdir() if path.name not in others) < 250_000
