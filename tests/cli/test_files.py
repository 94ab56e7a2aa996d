"""Input and output files of the commands: checks before any work, pipes, links, interrupts, full disks."""

import io
import json
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

import nestcode
import nestcode.cli
from nestcode.cli import app as commands
from nestcode.data import images as image_files
from nestcode.images import ImageCodec, compress_images
from tests.cli.test_streams import fine, misused, photos, read, refused, run, vectors
from tests.images.samples import crop, stream_info

__all__ = ["photos"]  # the fixture


def stop(*_: object, **__: object) -> Any:
    raise AssertionError("the command worked before it refused its input")


@pytest.fixture
def no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if anything is fitted, encoded or decoded."""
    for name in ("fit", "_encode", "decode"):
        monkeypatch.setattr(ImageCodec, name, stop)
    monkeypatch.setattr(nestcode, "fit", stop)
    for name in ("encode", "decode"):
        monkeypatch.setattr(nestcode.LinearCoder, name, stop)


def album(path: Path, *names: str) -> Path:
    """Write a stream of small images with these names."""
    path.write_bytes(compress_images([crop((8, 9), seed=3)] * len(names), names=names, bpp=0.02))
    return path


@pytest.mark.usefixtures("no_work")
@pytest.mark.parametrize("force", [[], ["--force"]])
def test_special_files_are_refused_before_any_work(force: list[str], photos: Path, tmp_path: Path) -> None:
    path, coder, _ = vectors(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    for out in (tmp_path / "photos", tmp_path / "pipe", tmp_path / "link", "/dev/null", "/dev/stdout"):
        for words in (["images", "compress", photos, "--fit"], ["compress", path], ["compress", path, "-c", coder]):
            assert f"{out} must be a file or not exist" in refused(*words, "-o", out, *force)
    assert (tmp_path / "pipe").is_fifo()


def test_force_does_not_overwrite_inputs(photos: Path, tmp_path: Path) -> None:
    path, coder, _ = vectors(tmp_path)
    items, own, folder = tmp_path / "stream.npy", tmp_path / "coder.npy", tmp_path / "out"
    fine("compress", path, "-c", coder, "-o", items)
    coder.rename(own)
    folder.mkdir()
    images = album(folder / "a.png", "a.png")
    before = {entry: entry.read_bytes() for entry in tmp_path.rglob("*.*")}
    for *command, out in (
        ("compress", path, path),
        ("compress", path, "-c", own, own),
        ("images", "compress", photos, photos / "color.png"),
        ("images", "compress", photos, photos / "below" / "gray.png"),
        ("images", "compress", photos / "color.png", photos / "color.png"),
        ("decompress", items, "-c", own, items),
        ("decompress", items, "-c", own, own),
        ("images", "decompress", images, folder),
        ("encode", path, "-c", own, own),
        ("encode", path, "-c", own, path),
        ("decode", items, "-c", own, own),
        ("images", "view", images, images),
        ("images", "view", photos / "below" / "gray.png", photos / "below" / "gray.png"),
    ):
        assert "the output must not overwrite an input, got " in refused(*command, "-o", out, "--force")
    assert {entry: entry.read_bytes() for entry in before} == before
    fine("images", "compress", photos, "-o", photos / "album.nest", "--bpp", 0.01)
    fine("images", "compress", photos, "-o", photos / "album.nest", "--bpp", 0.01, "--force")  # not an image


def test_a_link_is_written_through(photos: Path, tmp_path: Path) -> None:
    stream, link = tmp_path / "far.nest", tmp_path / "link.nest"
    link.symlink_to(stream)
    assert "exists already" in refused("images", "compress", photos, "-o", link)
    fine("images", "compress", photos / "color.png", "-o", link, "--bpp", 0.01, "--force")
    assert link.is_symlink()
    assert stream_info(stream.read_bytes()).names == ("color.png",)


def test_all_paths_are_checked_before_the_first_write(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for names, said in [
        (["a", "x.png", "x.png/y"], "x.png/y would be inside of x.png"),
        (["a", "y" * 252], "more than 255 bytes"),
        (["a", "b/" + "é" * 128], "more than 255 bytes"),
    ]:
        assert said in refused("images", "decompress", album(tmp_path / "a.nest", *names), "-o", out, "--force")
        assert not out.exists()
    (out / "taken.png").mkdir(parents=True)
    (out / "file").write_text("mine")
    for name, said in [("taken.jpg", "it is a folder"), ("file/below", f"{out / 'file'} is a file")]:
        assert said in refused("images", "decompress", album(tmp_path / "a.nest", "a", name), "-o", out, "--force")
    os.mkfifo(tmp_path / "pipe")
    assert "images need a folder" in refused("images", "decompress", tmp_path / "a.nest", "-o", tmp_path / "pipe")
    assert sorted(path.name for path in out.iterdir()) == ["file", "taken.png"]
    long = "y" * 251
    fine("images", "decompress", album(tmp_path / "a.nest", f"{long}.jpeg"), "-o", out)
    assert (out / f"{long}.png").is_file()


def test_only_equal_stems_are_renamed(tmp_path: Path) -> None:
    stream = album(tmp_path / "a.nest", "a/same.png", "a/same.jpg", "other.jpg")
    facts = json.loads(fine("images", "decompress", stream, "-o", tmp_path / "out", "--json"))
    assert facts["files"] == [
        str(tmp_path / "out" / name) for name in ("a/same.png.png", "a/same.jpg.png", "other.png")
    ]
    assert "name.jpg.png" in fine("images", "decompress", "--help").replace("\n", "")


def test_skipped_files_are_reported(photos: Path, tmp_path: Path) -> None:
    def notes() -> str:
        result = run("images", "compress", photos, "-o", tmp_path / "a.nest", "--bpp", 0.004, "--force")
        assert result.exception is None
        return result.stderr

    assert "skipped 1 file that is not in a supported image format: notes.txt\n" in notes()
    for name in ("[scan].tga", "one.txt", "two.txt", ".hidden"):
        (photos / name).write_text("no image")
    assert "skipped 4 files that are not in a supported image format: [scan].tga, notes.txt, one.txt, …\n" in notes()
    for path in photos.glob("*.t*"):
        path.unlink()
    assert "skipped" not in notes()


def from_input(data: bytes, *arguments: object) -> Result:
    return CliRunner().invoke(commands.app, [str(argument) for argument in arguments], input=data)


def test_streams_are_read_from_standard_input_and_pipes(photos: Path, tmp_path: Path) -> None:
    stream, items = tmp_path / "a.nest", tmp_path / "v.nest"
    fine("images", "compress", photos, "-o", stream, "--bpp", 0.06)
    fine("compress", vectors(tmp_path)[0], "-o", items, "--length", 16)
    fine("images", "decompress", stream, "-o", tmp_path / "whole")
    fine("decompress", items, "-o", tmp_path / "whole.npy")
    for path in (stream, items):
        assert from_input(path.read_bytes(), "info", "-").stdout == fine("info", path)
    assert from_input(stream.read_bytes(), "images", "decompress", "-", "-o", tmp_path / "out").exception is None
    assert from_input(items.read_bytes(), "decompress", "-", "-o", tmp_path / "out.npy").exception is None
    for path in (tmp_path / "whole").rglob("*.png"):
        assert path.read_bytes() == (tmp_path / "out" / path.relative_to(tmp_path / "whole")).read_bytes()
    assert (tmp_path / "whole.npy").read_bytes() == (tmp_path / "out.npy").read_bytes()
    for data in (b"", b"not a stream " * 1000):
        assert "standard input is not a file of Nestcode" in str(from_input(data, "info", "-").exception)
    reading, writing = os.pipe()
    os.write(writing, items.read_bytes()[:60_000])
    os.close(writing)
    assert fine("info", f"/dev/fd/{reading}").startswith("400 items")
    os.close(reading)
    assert "/dev/zero is not a file of Nestcode" in refused("info", "/dev/zero")
    assert "there is no index in" in refused("info", tmp_path)
    assert "which is a folder" in refused("images", "decompress", tmp_path, "-o", tmp_path / "none")
    assert "give -o a name" in misused("images", "decompress", stream, "-o", "-")


def test_streams_are_written_to_standard_output(photos: Path, tmp_path: Path) -> None:
    stream, (path, coder, _) = tmp_path / "a.nest", vectors(tmp_path)
    images = ["images", "compress", photos / "color.png", "--bpp", 0.06]
    for words in (images, ["compress", path, "--coder", coder]):
        fine(*words, "-o", stream, "--force")
        result = run(*words, "-o", "-")
        assert result.exception is None
        assert result.stdout_bytes == stream.read_bytes()
        assert " in files, " in result.stderr
    assert "leave out --json, or give -o a name" in misused("images", "compress", photos, "-o", "-", "--json")
    assert run("images", "compress", photos / "notes.txt", "-o", "-").stdout_bytes == b""


def save_index(folder: Path, rows: int) -> None:
    """Write v.npy and v.index, its index."""
    items = np.random.default_rng(0).standard_normal((rows, 12))
    np.save(folder / "v.npy", items)
    index = nestcode.Index(nestcode.LinearCoder(16).fit(items))
    index.add(items)
    index.save(folder / "v.index")


def test_the_reader_of_a_pipe_may_stop_early(tmp_path: Path) -> None:
    save_index(tmp_path, 4000)
    for arguments, start in (
        (f"compress '{tmp_path}/v.npy' --length 1000 -o -", b"\x89NEST"),
        (f"search '{tmp_path}/v.index' '{tmp_path}/v.npy' --json", b'{"que'),
        ("info", b""),  # less than a buffer
    ):
        command = f"'{sys.executable}' -m nestcode {arguments} | head -c {len(start)}"
        ended = subprocess.run(["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, check=False)
        assert (ended.returncode, ended.stdout) == (0, start), arguments
        assert b"error" not in ended.stderr.lower()


def test_output_outlives_the_reader_of_the_notes(tmp_path: Path) -> None:
    save_index(tmp_path, 40)
    (tmp_path / "names.txt").write_text("one\n")  # which is worth a note
    command = [sys.executable, "-m", "nestcode", "search", "v.index", "v.npy", "--json", "--names"]
    hits = subprocess.run([*command, "names.txt"], cwd=tmp_path, capture_output=True, check=True)
    assert hits.stderr.startswith(b"names.txt has 1 items")
    reading, closed = os.pipe()
    os.close(reading)
    where: dict[str, Any] = {"cwd": tmp_path, "stdout": subprocess.PIPE, "stderr": closed}
    assert subprocess.run([*command, "names.txt"], check=True, **where).stdout == hits.stdout
    assert subprocess.run([*command, "nowhere.txt"], check=False, **where).returncode == 1
    os.close(closed)


def test_a_connection_that_breaks_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr("nestcode.cli.info.gather", broken)
    assert refused("info") == "the other end closed a connection ([Errno 32] Broken pipe): try again"


@pytest.mark.parametrize("threads", [1, 2])
def test_decompress_goes_on_where_it_was_interrupted(
    threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, out, whole = album(tmp_path / "a.nest", "a", "b", "c", "d"), tmp_path / "out", tmp_path / "whole"
    fine("images", "decompress", stream, "-o", whole)
    assert sorted(path.name for path in whole.iterdir()) == ["a.png", "b.png", "c.png", "d.png"]
    write, stopped = image_files.write_image, ["c.png"]
    written: list[str] = []

    def interrupted(path: Path, image: Any, profile: bytes = b"") -> None:
        if path.name in stopped:
            raise KeyboardInterrupt
        write(path, image, profile)
        written.append(path.name)

    monkeypatch.setattr(image_files, "write_image", interrupted)
    assert run("images", "decompress", stream, "-o", out, "--threads", threads).exit_code == 130
    other = album(tmp_path / "b.nest", "b", "a")
    for given in ([other], [stream, "--bpp", 0.01], [stream, "--scale", "1/2"]):  # not what the folder holds a part of
        assert "exists already" in refused("images", "decompress", *given, "-o", out)
    stopped.clear()
    (out / "a.png").unlink()
    written.clear()
    result = run("images", "decompress", stream, "-o", out, "--threads", threads)
    assert (result.exit_code, result.stdout) == (0, f"{out}\n")
    assert "1 of 4 images were written before" in result.stderr
    assert written == ["a.png", "c.png", "d.png"]
    assert {path.name: path.read_bytes() for path in out.iterdir()} == {
        path.name: path.read_bytes() for path in whole.iterdir()
    }
    assert "exists already" in refused("images", "decompress", stream, "-o", out)


@pytest.mark.parametrize("how", ["decompress", "view", "copy"])
def test_decompress_takes_no_image_of_others_for_its_own(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, out = album(tmp_path / "a.nest", "a", "b", "c"), tmp_path / "out"
    other = tmp_path / "b.nest"
    other.write_bytes(compress_images([crop((9, 8), seed=4)], names=["a"], bpp=0.02))
    fine("images", "decompress", other, "-o", tmp_path / "other")
    theirs = tmp_path / "other" / "a.png"
    write = image_files.write_image

    def interrupted(path: Path, image: Any, profile: bytes = b"") -> None:
        if path.name == "c.png":
            raise KeyboardInterrupt
        write(path, image, profile)

    with monkeypatch.context() as context:
        context.setattr(image_files, "write_image", interrupted)
        assert run("images", "decompress", stream, "-o", out).exit_code == 130
    (marker,) = out.glob(".*.incomplete")
    while (out / "a.png").stat().st_ctime_ns <= marker.stat().st_ctime_ns:  # until the clock of files has ticked
        if how == "decompress":
            fine("images", "decompress", other, "-o", out, "--force")
        elif how == "view":
            fine("images", "view", other, "-o", out / "a.png", "--force")
        else:
            os.utime(theirs, (0, 0))
            shutil.copy2(theirs, out / "a.png")
    assert (out / "a.png").read_bytes() == theirs.read_bytes()
    assert "a.png exists already" in refused("images", "decompress", stream, "-o", out)
    fine("images", "decompress", stream, "-o", out, "--force")
    assert (out / "a.png").read_bytes() != theirs.read_bytes()
    assert sorted(path.name for path in out.iterdir()) == ["a.png", "b.png", "c.png"]


def test_an_interrupt_is_one_line_and_a_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream, out = album(tmp_path / "a.nest", "a", "b", "c"), tmp_path / "out"
    write = image_files.write_image

    def interrupted(path: Path, image: Any, profile: bytes = b"") -> None:
        if path.name == "c.png":
            raise KeyboardInterrupt
        write(path, image, profile)

    monkeypatch.setattr(image_files, "write_image", interrupted)
    result = run("images", "decompress", stream, "-o", out)
    assert (result.exit_code, result.stdout) == (130, "")
    line = "interrupted: 2 of 3 images were written"
    assert result.stderr.splitlines()[-1] == f"{line}: run the command again to write the others"
    assert sorted(path.name for path in out.glob("[!.]*")) == ["a.png", "b.png"]
    assert run("images", "decompress", stream, "-o", out, "--force").stderr.splitlines()[-1] == line
    monkeypatch.setattr("nestcode.cli.info.gather", lambda: interrupted(Path("c.png"), None))
    result = run("info")
    assert (result.exit_code, result.output) == (130, "interrupted\n")


def main(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: object) -> tuple[Any, str]:
    """Return the exit status and the standard error of a whole command."""
    monkeypatch.setattr(sys, "argv", ["nestcode", *map(str, arguments)])
    with warnings.catch_warnings(), pytest.raises(SystemExit) as ended:
        commands.main()
    return ended.value.code, capsys.readouterr().err


def test_out_of_memory_is_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for error in (MemoryError(), MemoryError("Unable to allocate 9 EiB")):

        def fail(error: BaseException = error) -> None:
            raise error

        monkeypatch.setattr("nestcode.cli.info.gather", fail)
        status, said = main(capsys, monkeypatch, "info")
        assert status == 1
        assert said.startswith("error: there is not enough memory")
        assert str(error) in said
        assert len(said.splitlines()) == 1


def test_a_warning_is_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def warn() -> dict[str, int]:
        warnings.simplefilter("default")
        warnings.warn("few\nrows", stacklevel=1)
        return {}

    monkeypatch.setattr("nestcode.cli.info.gather", warn)
    assert main(capsys, monkeypatch, "info") == (0, "warning: few rows\n")


@pytest.mark.usefixtures("no_work")
def test_invalid_vectors_are_refused_before_any_work(tmp_path: Path) -> None:
    path, coder, items = vectors(tmp_path)
    for dtype in (complex, "S3", [("a", "f4")]):
        np.save(tmp_path / "bad.npy", np.zeros((5, 3), dtype))
        assert "items must be uint8" in refused("compress", tmp_path / "bad.npy", "-o", tmp_path / "out")
    for bad in ("nan", "inf", "0", "-1"):
        for given in ([path], [path, "--coder", coder], [tmp_path / "a.png"]):
            said = misused("compress", *given, "-o", tmp_path / "out", "--max-error", bad)
            assert f"'--max-error': it must be a positive number, got {bad}" in said
    assert "must leave room" in refused("compress", path, "-o", tmp_path / "out", "--budget", "1kB")
    np.savez(tmp_path / "several.npz", items, items)
    (tmp_path / "several.npz").rename(tmp_path / "several.npy")
    assert "holds several arrays" in refused("compress", tmp_path / "several.npy", "-o", tmp_path / "out")
    for data in (b"oops", b"\x80\x04K\x01."):
        (tmp_path / "bad.npy").write_bytes(data)
        said = refused("compress", tmp_path / "bad.npy", "-o", tmp_path / "out")
        assert "is not an array of numbers" in said
        assert "pickle" not in said


def test_a_coder_larger_than_the_budget_is_refused(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = vectors(tmp_path)[0]
    said = refused("compress", path, "-o", tmp_path / "out", "--length", 64, "--budget", "1100")
    assert "a --length below 64, or a --coder that receivers have" in said
    monkeypatch.setattr(ImageCodec, "encode_passes", stop)
    for option in ("--fit", "--embed"):
        said = refused("images", "compress", photos, "-o", tmp_path / "out", option, "--budget", "10kB")
        assert f"leave out {option}" in said


def test_streams_larger_than_their_inputs_are_reported(photos: Path, tmp_path: Path) -> None:
    def notes(*words: object) -> str:
        result = run(*words, "-o", tmp_path / "a", "--force")
        assert result.exception is None
        return result.stderr

    images = ("images", "compress")

    path, coder, items = vectors(tmp_path)
    np.save(path, items[:5])
    nestcode.LinearCoder(width=64).fit(items).save(coder)
    said = notes("compress", path, "--coder", coder, "--embed")
    assert ", most of it the embedded coder (" in said
    assert "that is more than the files, as is the header alone (" in said
    assert "embed no coder" in said
    assert "embed no coder" in notes(*images, photos / "color.png", "--fit", "--bpp", 0.01)
    Image.new("L", (2, 2)).save(tmp_path / "tiny.png")
    assert "keep them, or put more into one stream" in notes(*images, tmp_path / "tiny.png")
    Image.fromarray(read(photos / "color.png")).save(tmp_path / "coarse.jpg", quality=5)
    assert "that is more than the files: keep fewer bytes, as by --budget" in notes(*images, tmp_path / "coarse.jpg")
    pixels, file = read(photos / "color.png").nbytes, (photos / "color.png").stat().st_size
    assert f"{pixels:,} bytes raw, {file:,} in files, " in notes(*images, photos / "color.png", "--bpp", 0.01)
    assert "more than" not in notes(*images, photos / "color.png", "--bpp", 0.01)
    facts = json.loads(fine("compress", path, "--coder", coder, "--embed", "-o", tmp_path / "a", "-f", "--json"))
    assert 0 < facts["coder_bytes"] < facts["bytes"]


def test_a_full_disk_is_detected_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photo, items = album(tmp_path / "a.nest", "a"), tmp_path / "v.nest"
    fine("compress", vectors(tmp_path)[0], "-o", items, "--length", 16)
    for words, out, needed in (
        (("images", "decompress", photo), "out", 8 * 9 // 4),
        (("decompress", items), "out.npy", 400 * 12 * 4),
    ):
        for free in (needed - 1, needed):
            usage = SimpleNamespace(free=free)
            monkeypatch.setattr(shutil, "disk_usage", lambda _, usage=usage: usage)
            if free < needed:
                said = refused(*words, "-o", tmp_path / out)
                assert f"takes about {needed:,} bytes, but the disk of {tmp_path} has {free:,} free" in said
                assert not (tmp_path / out).exists()
            else:
                fine(*words, "-o", tmp_path / out)


@pytest.mark.usefixtures("no_work")
def test_a_read_only_folder_is_detected_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, coder, _ = vectors(tmp_path)
    monkeypatch.setattr(os, "access", lambda place, _: Path(place) != tmp_path)
    for command in (("fit", path), ("encode", path, "-c", coder), ("index", "build", path, "-c", coder)):
        assert f"as {tmp_path} is not writable" in refused(*command, "-o", tmp_path / "new.npy")


def test_no_output_makes_the_folders_above_it(photos: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", np.zeros((9, 4), dtype=np.float32))
    (tmp_path / "all.nest").write_bytes(compress_images([np.zeros((8, 8), np.uint8)]))
    missing = tmp_path / "no/such"
    for command in (
        ("fit", tmp_path / "v.npy", "-o", missing / "x.coder"),
        ("images", "compress", photos, "-o", missing / "x.nest"),
        ("images", "decompress", tmp_path / "all.nest", "-o", missing / "x"),
        ("index", "build", tmp_path / "v.npy", "-o", missing / "x"),
    ):
        assert f"{missing}/x" in refused(*command)
        assert f"must be in a folder that exists, {missing} does not: create it first" in refused(*command)
        assert not missing.parent.exists()
    # Only the folder of its images is made.
    assert run("images", "decompress", tmp_path / "all.nest", "-o", tmp_path / "out").exit_code == 0


def test_a_misspelled_option_is_answered_by_the_most_similar_one() -> None:
    assert "No such option: --widht (Possible options: --width)" in misused("fit", "x.npy", "-o", "y", "--widht", "3")


def test_standard_input_and_output_may_be_closed(tmp_path: Path) -> None:
    path, coder, _ = vectors(tmp_path)
    command = f"'{sys.executable}' -m nestcode"
    for line in ("info - <&-", f"encode '{path}' -c '{coder}' -o - >&-"):
        ended = subprocess.run(f"{command} {line}", shell=True, capture_output=True, text=True, check=False)
        assert (ended.returncode, ended.stderr.startswith("error: standard ")) == (1, True)
        assert " is closed: " in ended.stderr


def test_file_names_of_arbitrary_bytes(tmp_path: Path) -> None:
    path, coder, _ = vectors(tmp_path)
    out = os.fsencode(tmp_path) + b"/\xff.npy"
    for encoding in ("utf-8", "ascii"):
        environment = {**os.environ, "PYTHONIOENCODING": encoding}
        command = [sys.executable, "-m", "nestcode"]
        ended = subprocess.run([*command, "info", coder], capture_output=True, check=True, env=environment)
        assert ("█" if encoding == "utf-8" else "?").encode() * 40 in ended.stdout
        command += ["encode", str(path), "-c", str(coder), "-f", "-o", os.fsdecode(out)]
        ended = subprocess.run(command, capture_output=True, check=True, env=environment)
        assert ended.stdout == (out if encoding == "utf-8" else out.replace(b"\xff", b"?")) + b"\n"


def test_a_coder_of_the_other_kind_is_named(photos: Path, tmp_path: Path) -> None:
    path, coder, _ = vectors(tmp_path)
    ImageCodec.load().save(tmp_path / "images.coder")
    for words, said in [
        (("images", "compress", photos, "--codec", coder), "must hold an image codec, got a LinearCoder"),
        (("compress", path, "--coder", tmp_path / "images.coder"), "holds an image codec, not a coder of items"),
    ]:
        assert said in refused(*words, "-o", tmp_path / "out")
    stream = album(tmp_path / "a.nest", "a")
    assert "must hold an image codec" in refused(
        "images", "decompress", stream, "-o", tmp_path / "out", "--codec", coder
    )


def test_an_unsupported_image_format_is_named(tmp_path: Path) -> None:
    memory = io.BytesIO()
    Image.new("RGB", (4, 3)).save(memory, "TGA")
    (tmp_path / "a.tga").write_bytes(memory.getvalue())
    assert "JPEG, PNG, PPM, TIFF, WEBP: repair, convert" in refused(
        "images", "compress", tmp_path / "a.tga", "-o", tmp_path / "out"
    )


STARTING = """
import os, signal, sys
from importlib.abc import MetaPathFinder

class Interrupt(MetaPathFinder):
    def find_spec(self, name, *_):
        if name == wanted:
            os.kill(os.getpid(), signal.SIGINT)

wanted, sys.argv[1] = sys.argv[1], "info"
sys.meta_path.insert(0, Interrupt())
from nestcode.cli import main
main()
"""


@pytest.mark.parametrize("module", ["typer", "nestcode.cli.fit", "nestcode._core"])
def test_an_interrupt_while_the_command_starts(module: str) -> None:
    ended = subprocess.run([sys.executable, "-c", STARTING, module], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "interrupted\n")


def test_an_interrupt_wrapped_in_another_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        try:
            raise KeyboardInterrupt("in the middle")
        except KeyboardInterrupt as error:
            raise RuntimeError("Error calling __set_name__") from error

    monkeypatch.setattr("nestcode.cli.info.gather", fail)
    result = run("info")
    assert (result.exit_code, result.output) == (130, "interrupted: in the middle\n")
