"""CIFAR-10 is verified before it is read or written."""

import hashlib
import io
import tarfile
from pathlib import Path

import numpy as np
import pytest

from nestcode.data import cifar10, fetch_cifar10
from nestcode.data.cifar10 import FOLDER, SHA256
from nestcode.errors import DamagedFile


def small_files() -> dict[str, bytes]:
    """Write the official format with 100 synthetic images per file."""
    rng = np.random.default_rng(0)
    files = {}
    for name in SHA256:
        pixels = rng.integers(0, 256, (100, 3072)).cumsum(axis=1) // 40 % 256  # neighbors are correlated
        files[name] = np.concatenate([rng.integers(0, 10, (100, 1)), pixels], axis=1).astype(np.uint8).tobytes()
    return files


def small_sums() -> dict[str, str]:
    return {name: hashlib.sha256(data).hexdigest() for name, data in small_files().items()}


def write_small_cifar10(folder: Path) -> None:
    (folder / FOLDER).mkdir(parents=True)
    for name, data in small_files().items():
        (folder / FOLDER / name).write_bytes(data)


def write_archive(path: Path, files: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz") as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(f"{FOLDER}/{name}")
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, total in small_sums().items():
        monkeypatch.setitem(SHA256, name, total)


@pytest.mark.usefixtures("_small")
def test_an_archive_is_unpacked_and_read(tmp_path: Path) -> None:
    write_archive(tmp_path / "archive.tar.gz", small_files())
    place = fetch_cifar10(tmp_path / "data", tmp_path / "archive.tar.gz")
    assert place == tmp_path / "data" / FOLDER
    images = cifar10(tmp_path / "data")
    assert images.train.shape == (500, 3072)
    assert images.test_labels.shape == (100,)
    first = np.frombuffer(small_files()["data_batch_1.bin"], dtype=np.uint8)
    assert images.train_labels[0] == first[0]
    assert np.array_equal(images.train[0], first[1:3073])
    (tmp_path / "archive.tar.gz").unlink()
    assert fetch_cifar10(tmp_path / "data", tmp_path / "archive.tar.gz") == place  # nothing is downloaded twice
    assert np.array_equal(cifar10(place).train, images.train)


@pytest.mark.usefixtures("_small")
def test_wrong_archives_are_named_and_leave_nothing(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not an archive")
    with pytest.raises(DamagedFile, match="not a complete CIFAR-10 archive"):
        fetch_cifar10(tmp_path / "data", tmp_path / "text")
    files = small_files()
    files["data_batch_1.bin"] = bytes(reversed(files["data_batch_1.bin"]))
    write_archive(tmp_path / "changed", files)
    with pytest.raises(DamagedFile, match=r"data_batch_1.bin in .*changed is not CIFAR-10's"):
        fetch_cifar10(tmp_path / "data", tmp_path / "changed")
    write_archive(tmp_path / "short", dict(list(small_files().items())[:3]))
    with pytest.raises(DamagedFile, match="not a complete CIFAR-10 archive"):
        fetch_cifar10(tmp_path / "other", tmp_path / "short")
    assert not list(tmp_path.glob("data/**/data_batch_1.bin"))


def test_a_changed_file_is_not_read(tmp_path: Path) -> None:
    write_small_cifar10(tmp_path)  # the official names with other contents
    with pytest.raises(DamagedFile, match="checksum does not match: download it again"):
        cifar10(tmp_path)
    with pytest.raises(FileNotFoundError, match="run `nestcode data cifar10"):
        cifar10(tmp_path / "elsewhere")
