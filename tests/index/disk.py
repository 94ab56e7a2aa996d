"""A simulated disk: record every system call of a program, and replay them up to a crash.

The program runs once to its end. Its steps are replayed on a disk in memory up to any point, and `Disk.crashes` lists
what a crash there may leave. The strictest disk that the system's guarantees allow keeps what was synced and no more.
"""

import errno
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Self

import pytest

Files = dict[str, bytes | None]  # by path; None is a folder


@dataclass(frozen=True)
class Step:
    """One change of the disk, or one sync."""

    kind: str
    path: str  # below the recorder's root
    data: bytes = b""  # what a write adds
    to: str = ""  # where a rename or a link leads


class Recorder:
    """Records every step below `root`; step `fail_at` fails as on a full disk, or with `failure`."""

    def __init__(self, root: Path, fail_at: int = -1, failure: BaseException | None = None) -> None:
        self.root = root.resolve()
        self.steps: list[Step] = []
        self.failed = False
        self._fail_at, self._failure = fail_at, failure or OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._patch = pytest.MonkeyPatch()

    def __enter__(self) -> Self:
        self._real_open, self._real_fsync = Path.open, os.fsync
        self._patch.setattr(Path, "open", lambda path, *args, **options: self._open(path, *args, **options))
        self._patch.setattr(os, "fsync", self._fsync)
        kinds = {"replace": "rename", "rename": "rename", "link": "link", "unlink": "unlink", "mkdir": "make folder"}
        for name, kind in kinds.items():
            self._patch.setattr(os, name, self._noted(kind, getattr(os, name)))
        return self

    def __exit__(self, *_: object) -> None:
        self._patch.undo()

    def note(self, kind: str, path: Any, data: bytes = b"", to: Any = None) -> None:
        """Record a step, before it is made."""
        below = [str(Path(one).absolute().relative_to(self.root)) if one is not None else "" for one in (path, to)]
        if len(self.steps) == self._fail_at and not self.failed:
            self.failed = True
            raise self._failure
        self.steps.append(Step(kind, below[0], data, below[1]))

    def _noted(self, kind: str, real: Callable[..., None]) -> Callable[..., None]:
        def call(path: Any, *args: Any, **options: Any) -> None:
            if kind == "make folder" and (Path(path).exists() or not Path(path).parent.exists()):
                real(path, *args, **options)  # raises, and is no step
            if kind == "unlink" and not Path(path).exists():
                return real(path, *args, **options)
            self.note(kind, path, to=args[0] if kind in ("rename", "link") else None)
            return real(path, *args, **options)

        return call

    def _fsync(self, handle: int) -> None:
        path = Path(f"/proc/self/fd/{handle}").readlink()
        self.note("sync folder" if path.is_dir() else "sync", path)
        self._real_fsync(handle)

    def _open(self, path: Path, mode: str = "r", *args: Any, **options: Any) -> Any:
        if mode == "rb":
            return self._real_open(path, mode, *args, **options)
        assert mode in ("wb", "xb", "ab"), mode
        if mode != "ab" or not path.exists():
            self.note("create", path)
        return Written(self, path, self._real_open(path, mode, *args, **options))


class Written:
    """An open file whose writes are recorded; one that fails has written half."""

    def __init__(self, recorder: Recorder, path: Path, file: Any) -> None:
        self._recorder, self._path, self._file = recorder, path, file
        self.fileno, self.close = file.fileno, file.close

    def write(self, data: bytes | memoryview) -> int:
        whole = bytes(data)
        try:
            self._recorder.note("write", self._path, whole)
        except BaseException:
            self._file.write(whole[: len(whole) // 2])
            raise
        written: int = self._file.write(data)
        assert written == len(whole)
        return written

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass
class File:
    """The data of a file, and how much of it was synced."""

    data: bytes = b""
    synced: bytes = b""


@dataclass
class Disk:
    """Files as a program sees them, and as a power failure would leave them."""

    seen: dict[str, File | None] = field(default_factory=dict)
    synced: dict[str, File | None] = field(default_factory=dict)

    @classmethod
    def of(cls, root: Path) -> Self:
        """The files of a folder, all of them synced."""
        files = {path: None if data is None else File(data, data) for path, data in files_in(root).items()}
        return cls(files, dict(files))

    def make(self, step: Step) -> None:
        """Apply a step."""
        match step.kind:
            case "create":
                self.seen[step.path] = File()
            case "make folder":
                self.seen[step.path] = None
            case "write":
                self._file(step).data += step.data
            case "sync":
                self._file(step).synced = self._file(step).data
            case "rename":
                if self.seen[step.path] is not self.seen.get(step.to):  # of two names of one file, both stay
                    self.seen[step.to] = self.seen.pop(step.path)
            case "link":
                self.seen[step.to] = self.seen[step.path]
            case "unlink":
                del self.seen[step.path]
            case "sync folder":
                for path in {*self.seen, *self.synced}:
                    if str(Path(path).parent) == step.path:
                        _put(self.synced, path, self.seen)
            case _:
                raise AssertionError(step)

    def _file(self, step: Step) -> File:
        file = self.seen[step.path]
        assert file is not None
        return file

    def left(self, keeps_name: Callable[[], bool], keeps_data: Callable[[File], bytes]) -> Files:
        """What a crash leaves, given what happens to names and data that no sync covers."""
        entries: dict[str, File | None] = {}
        for path in sorted({*self.seen, *self.synced}):
            _put(entries, path, self.seen if keeps_name() else self.synced)
        files = {
            path: None if file is None else file.data if file.data == file.synced else keeps_data(file)
            for path, file in entries.items()
        }
        return {
            path: data
            for path, data in files.items()
            if all(str(folder) in files for folder in Path(path).parents if folder.name)
        }

    def crashes(self, random: Random) -> Iterator[tuple[str, Files]]:
        """Yield what a crash leaves on disks that keep more or less of what was not synced."""
        yield "keeps everything", self.left(lambda: True, lambda file: file.data)
        yield "keeps what was synced", self.left(lambda: False, lambda file: file.synced)
        yield "keeps names", self.left(lambda: True, lambda file: bytes(len(file.data)))
        yield "keeps data", self.left(lambda: False, lambda file: file.data)
        yield "keeps some", self.left(lambda: random.random() < 0.5, lambda file: _some(file, random))


def _put(entries: dict[str, File | None], path: str, source: dict[str, File | None]) -> None:
    if path in source:
        entries[path] = source[path]
    else:
        entries.pop(path, None)


def _some(file: File, random: Random) -> bytes:
    """Anything between what was synced and what was written, or noise."""
    kept = file.data[: random.randint(0, len(file.data))]
    return random.choice([file.data, file.synced, kept, kept + random.randbytes(len(file.data) - len(kept))])


def torn(steps: list[Step]) -> Iterator[Step]:
    """The same steps with every write in two, as a crash may come in the middle of one."""
    for step in steps:
        half = len(step.data) // 2
        if step.kind == "write" and half:
            yield Step("write", step.path, step.data[:half])
            yield Step("write", step.path, step.data[half:])
        else:
            yield step


def files_in(root: Path) -> Files:
    """All that lies below a folder."""
    return {str(path.relative_to(root)): None if path.is_dir() else path.read_bytes() for path in root.rglob("*")}


def lay_out(files: Files, root: Path) -> None:
    """Write files to a real disk."""
    root.mkdir(exist_ok=True)
    for path in sorted(files):
        data = files[path]
        if data is None:
            (root / path).mkdir()
        else:
            (root / path).write_bytes(data)
