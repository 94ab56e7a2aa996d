"""CIFAR-10: 60,000 color images of 32 x 32 pixels in the official binary format, verified by SHA-256."""

import hashlib
import io
import tarfile
import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nestcode.errors import DamagedFile
from nestcode.storage import write_atomic

URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
FOLDER = "cifar-10-batches-bin"
SHA256 = {
    "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
}


@dataclass(frozen=True)
class Cifar10:
    """Pixels as rows of 3,072 bytes (red, then green, then blue) and class labels."""

    train: NDArray[np.uint8]  # (50000, 3072)
    train_labels: NDArray[np.uint8]
    test: NDArray[np.uint8]  # (10000, 3072)
    test_labels: NDArray[np.uint8]


def cifar10(folder: str | Path) -> Cifar10:
    """Return CIFAR-10 from the folder that `fetch_cifar10` or the official archive filled.

    >>> cifar10("nowhere")
    Traceback (most recent call last):
    FileNotFoundError: CIFAR-10 is not in nowhere: run `nestcode data cifar10 --to nowhere`
    """
    folder = Path(folder)
    inner = folder / FOLDER if (folder / FOLDER).is_dir() else folder
    if not all((inner / name).is_file() for name in SHA256):
        raise FileNotFoundError(f"CIFAR-10 is not in {folder}: run `nestcode data cifar10 --to {folder}`")
    records = {name: _verified(name, (inner / name).read_bytes(), inner) for name in SHA256}
    train = np.concatenate([records[name] for name in SHA256 if name.startswith("data")])
    test = records["test_batch.bin"]
    return Cifar10(train[:, 1:], train[:, 0], test[:, 1:], test[:, 0])


def fetch_cifar10(folder: str | Path, source: str | Path | None = None) -> Path:
    """Download CIFAR-10 into `folder`, or unpack a local copy of its archive; return the folder of its files.

    Files are verified before they are written; valid existing files are kept.

    >>> fetch_cifar10("somewhere", source="no-such-archive.tar.gz")
    Traceback (most recent call last):
    FileNotFoundError: there is no archive no-such-archive.tar.gz: give the path of cifar-10-binary.tar.gz
    """
    inner = Path(folder) / FOLDER
    missing = {name for name in SHA256 if not _is_valid(inner / name)}
    if not missing:
        return inner
    if source is None:
        try:
            with urllib.request.urlopen(URL, timeout=60) as response:
                archive = response.read()
        except OSError as error:
            raise OSError(f"{URL} cannot be downloaded ({error}): download it elsewhere and give its path") from error
    elif Path(source).is_file():
        archive = Path(source).read_bytes()
    else:
        raise FileNotFoundError(f"there is no archive {source}: give the path of cifar-10-binary.tar.gz")
    for name, data in _members(archive, missing, source or URL):
        _verified(name, data, source or URL)
        write_atomic(inner / name, data)
    return inner


def _members(archive: bytes, wanted: set[str], source: object) -> Iterable[tuple[str, bytes]]:
    """Yield the wanted files of a tar archive, by name only: nothing else is unpacked."""
    try:
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            found = {Path(member.name).name: member for member in tar if member.isfile()}
            for name in sorted(wanted):
                file = tar.extractfile(found[name])
                assert file is not None
                yield name, file.read()
    except (tarfile.TarError, EOFError, OSError, KeyError) as error:
        raise DamagedFile(f"{source} is not a complete CIFAR-10 archive ({error}): download it again") from error


def _is_valid(path: Path) -> bool:
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == SHA256[path.name]


def _verified(name: str, data: bytes, source: object) -> NDArray[np.uint8]:
    if hashlib.sha256(data).hexdigest() != SHA256[name]:
        raise DamagedFile(f"{name} in {source} is not CIFAR-10's, its checksum does not match: download it again")
    return np.frombuffer(data, dtype=np.uint8).reshape(-1, 3073)
