"""Damage to files: each function returns those of some files that it changed, with their new contents."""

from collections.abc import Callable
from random import Random

Files = dict[str, bytes]  # by name


def flipped(files: Files, random: Random) -> Files:
    """A few bytes changed."""
    name = random.choice([name for name in files if files[name]])
    data = bytearray(files[name])
    for _ in range(random.randint(1, 3)):
        data[random.randrange(len(data))] ^= random.randint(1, 255)
    return {name: bytes(data)}


def resized(files: Files, random: Random) -> Files:
    """Cut short, emptied or made longer."""
    name = random.choice(sorted(files))
    data = files[name]
    cut, more = random.randrange(len(data) + 1), random.randint(1, 100)
    choices = [b"", data[:cut], data[:-more], data + random.randbytes(more), data + bytes(1 << 16), data * 2]
    return {name: random.choice(choices)}


def overwritten(files: Files, random: Random) -> Files:
    """A range of zeros, or of what another place of the file holds."""
    name = random.choice([name for name in files if files[name]])
    data = files[name]
    start, source, length = random.randrange(len(data)), random.randrange(len(data)), random.randint(1, 1 << 17)
    piece = random.choice([bytes(length), data[source : source + length]])[: len(data) - start]
    return {name: data[:start] + piece + data[start + len(piece) :]}


def swapped(files: Files, random: Random) -> Files:
    """Files in each other's place, or one in two places."""
    a, b = random.sample(sorted(files), 2)
    return random.choice([{a: files[b]}, {a: files[b], b: files[a]}])


def foreign(files: Files, random: Random) -> Files:
    """Something else under the name of a file of ours."""
    strange = [b"{}", b"[]", b"null", b"1e999", b"[" * 100_000, b"\x89PNG\r\n\x1a\n" + bytes(200)]
    header = next((data for name, data in files.items() if name.endswith(".codes.npy")), b"\x93NUMPY\x01\x00")[:128]
    strange += [header, header + random.randbytes(200), random.randbytes(300), (8).to_bytes(8, "little") + b"{}      "]
    for version in ("1", "2", "1e999", "null", '"1"', "[]", "9" * 5000):
        strange.append(b'{"format": "nestcode index", "sha256": "", "version": %s}' % version.encode())
    return {random.choice(sorted(files)): random.choice(strange)}


Damage = Callable[[Files, Random], Files]
DAMAGE: list[Damage] = [flipped, resized, overwritten, swapped, foreign]
