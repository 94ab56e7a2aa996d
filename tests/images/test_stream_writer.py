"""Streams of images written to files: as in memory, complete or not there."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nestcode.errors import InvalidInput, NotFitted
from nestcode.images import (
    ImageCodec,
    ImageStreamWriter,
    compress_images,
)
from tests.images.samples import SHAPES, codec, crop, header_of
from tests.streams.collections import some_coder

LONG = ((90, 70, 3), (64, 64), (1, 1, 4))  # several blocks of payload


@settings(max_examples=12)
@given(
    st.lists(st.sampled_from(SHAPES), max_size=3),
    st.sampled_from([{}, {"bpp": 0.1}, {"budget": 700}, {"psnr": 23}, {"embed": True}]),
)
def test_a_writer_writes_what_compress_images_makes(
    tmp_path_factory: pytest.TempPathFactory, shapes: list[tuple[int, ...]], options: dict[str, int]
) -> None:
    folder, images = tmp_path_factory.mktemp("streams"), [crop(shape, k) for k, shape in enumerate(shapes)]
    names = [f"{k}/a" for k in range(len(shapes))]
    with ImageStreamWriter(folder / "a.nest", codec(), **options) as writer:  # type: ignore[arg-type]
        for name, image in zip(names, images, strict=True):
            writer.add(name, image)
        assert not any(folder.iterdir())  # nothing before it is complete
    written, data = (folder / "a.nest").read_bytes(), compress_images(images, codec(), names=names, **options)  # type: ignore[arg-type]
    if "bpp" in options or "budget" in options:  # the error at the end is measured here, and interpolated there
        assert abs(len(written) - len(data)) < 20
        assert np.abs(np.subtract(header_of(written).quality, header_of(data).quality)).max(initial=0) <= 3
        sizes = [header_of(some).sizes for some in (written, data)]
        assert np.abs(sizes[0] - sizes[1]).max(initial=0) < (20 if "budget" in options else 1)
    else:
        assert written == data
    assert [path.name for path in folder.iterdir()] == ["a.nest"]


def test_an_error_or_an_interrupt_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    path = tmp_path / "a.nest"
    path.write_bytes(b"the old one")
    with pytest.raises(InvalidInput, match="an image must be"), ImageStreamWriter(path, codec()) as writer:
        writer.add("1", np.zeros((3, 3)))  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="is closed"):
        writer.add("1", crop((9, 9)))
    with (
        pytest.raises(InvalidInput, match="budget must be at least"),
        ImageStreamWriter(path, codec(), budget=9) as writer,
    ):
        writer.add("0", crop((9, 9)))
    for owner, name in ((ImageCodec, "encode_passes"), (os, "fsync")):
        monkeypatch.setattr(owner, name, interrupted)
        with pytest.raises(KeyboardInterrupt), ImageStreamWriter(path, codec()) as writer:
            writer.add("0", crop((9, 9)))
        monkeypatch.undo()
    assert path.read_bytes() == b"the old one"
    assert [one.name for one in tmp_path.iterdir()] == ["a.nest"]


def test_a_refused_image_does_not_count(tmp_path: Path) -> None:
    with ImageStreamWriter(tmp_path / "a.nest", codec()) as writer:
        writer.add("0", crop((9, 9)))
        for name, image in (
            ("0", crop((9, 9))),
            ("../1", crop((9, 9))),
            ("1", np.zeros((0, 4), np.uint8)),
        ):
            with pytest.raises(InvalidInput):
                writer.add(name, image)
        writer.add("1", crop((5, 5)))
    writer.close()  # closing twice does nothing
    expected = compress_images([crop((9, 9)), crop((5, 5))], codec())
    assert (tmp_path / "a.nest").read_bytes() == expected


def test_a_process_that_is_killed_leaves_nothing(tmp_path: Path) -> None:
    source = """
import os, signal, sys
from nestcode.images import ImageStreamWriter
from tests.images.samples import codec, crop
with ImageStreamWriter(sys.argv[1], codec()) as writer:
    writer.add("0", crop((40, 40)))
    os.kill(os.getpid(), signal.SIGKILL)
"""
    command = [sys.executable, "-c", source, str(tmp_path / "a.nest")]
    run = subprocess.run(command, cwd=Path(__file__).parents[2], check=False)
    assert run.returncode == -signal.SIGKILL
    assert not any(tmp_path.iterdir())


def test_a_writer_needs_a_fitted_codec(tmp_path: Path) -> None:
    with pytest.raises(NotFitted):
        ImageStreamWriter(tmp_path / "a.nest", ImageCodec())
    with pytest.raises(InvalidInput, match="must be an ImageCodec"):
        ImageStreamWriter(tmp_path / "a.nest", some_coder())  # type: ignore[arg-type]
    assert not any(tmp_path.iterdir())
