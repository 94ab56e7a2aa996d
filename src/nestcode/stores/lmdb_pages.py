"""Whether an LMDB file holds all pages that its trees use.

LMDB maps its file and trusts it: of an incomplete copy, reading a page beyond the end is a SIGBUS, and reading a hole
may end the process too. A complete file may have holes, and be shorter than its last page number says, as pages that
one transaction allocated and freed are not written. So where pages are missing, the branch pages of all trees are read:
they name the pages below them.
"""

import errno
import os
import struct
from bisect import bisect
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from struct import Struct

from nestcode.errors import DamagedFile

MAGIC, VERSION, NO_ROOT, DEEPEST = 0xBEEFC0DE, 1, 2**64 - 1, 32
HEADER = Struct("=QHHHH")  # of a page: number, unused, flags, ends of the offsets and of the free space
TREE = Struct("=IHH5Q")  # page size (of the tree of free pages) or unused, flags, depth, four counts, root
META = Struct(f"=IIQQ{2 * TREE.size}sQQ")  # magic, version, address, map size, two trees, last page, transaction
OFFSET, NUMBER = Struct("=H"), Struct("=Q")  # of a node in its page, of a page
NODE = Struct("=HHHH")  # of a leaf: size of its value in two halves, flags, size of its key
BIG, SUBTREE = 1, 2  # flags of nodes whose value is on pages of its own, or a tree
SMALL = (b"codes", b"ids")  # trees whose values are all in their leaves

Read = Callable[[int], bytes]
Node = tuple[int, int, bytes, bytes]  # number or size, flags, key, value


def check_complete(path: Path) -> None:
    """Raise if an LMDB file lacks pages that its trees use; LMDB itself reports a file of another kind."""
    with path.open("rb") as file:
        handle = file.fileno()
        while (meta := _meta(handle)) is not None:
            size, last, trees, transaction = meta
            there = _pages_there(handle, size)
            if sum(map(len, there)) > last:
                return
            try:
                missing = _missing_page(_reader(handle, size), there, trees, size)
            except (struct.error, IndexError, ValueError):  # a page that holds something else
                missing = last
            if missing is None:
                return
            if (again := _meta(handle)) is None or again[3] == transaction:  # no other process wrote meanwhile
                pages = f"{sum(map(len, there))} of {last + 1} pages of {size} bytes"
                raise DamagedFile(f"{path} has {pages}, and lacks page {missing}: restore a complete copy")


def _meta(handle: int) -> tuple[int, int, tuple[bytes, bytes], int] | None:
    """Return the page size, the last page, the trees of free pages and of names, and the number of the last commit."""
    found, size, start = None, 0, 0
    for _ in range(2):
        data = os.pread(handle, META.size, start + HEADER.size)
        if len(data) < META.size:
            break
        magic, version, _, _, trees, last, transaction = META.unpack(data)
        if (magic, version) != (MAGIC, VERSION):
            return None
        size = start = start or TREE.unpack_from(trees)[0]
        if found is None or transaction > found[3]:
            found = size, max(last, 1), (trees[: TREE.size], trees[TREE.size :]), transaction
    return found if size else None


def _pages_there(handle: int, size: int) -> list[range]:
    """Return the pages of a file that do not lie in its holes, where the file system tells."""
    found, end, bytes_there = [], 0, os.fstat(handle).st_size
    while end < bytes_there:
        try:
            start = os.lseek(handle, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # all the rest is a hole
                break
            return [range(bytes_there // size)]
        end = os.lseek(handle, start, os.SEEK_HOLE)
        found.append(range(-(-start // size), end // size))
    return found


def _reader(handle: int, size: int) -> Read:
    return lambda number: os.pread(handle, size, number * size)


def _missing_page(read: Read, there: list[range], trees: Iterable[bytes], size: int) -> int | None:
    """Return a page that trees or their subtrees use and a file lacks; raise if a page is in them twice."""
    seen, left = set[int](), [(tree, b"") for tree in trees]
    starts = [part.start for part in there]

    def lacking(pages: Iterable[int]) -> int | None:
        return next((page for page in pages if page not in there[bisect(starts, page) - 1]), None)

    while left:
        tree, name = left.pop()
        _, _, depth, *_, root = TREE.unpack(tree)
        if root == NO_ROOT:
            continue
        if not 1 <= depth <= DEEPEST:
            raise ValueError(depth)
        level = [root]
        for below in range(depth - 1, -1, -1):
            if len(level) > len(unseen := set(level) - seen):
                raise ValueError(level)
            seen |= unseen
            if (page := lacking(level)) is not None:
                return page
            if below:
                level = [number | flags << 32 for page in level for number, flags, _, _ in _nodes(read(page))]
                if not level:
                    raise ValueError(name)
        for page in [] if name in SMALL else level:
            for length, flags, key, value in _nodes(read(page)):
                if flags & BIG:
                    first = NUMBER.unpack_from(value)[0]
                    last = first + (HEADER.size - 1 + length) // size
                    if (page := lacking((first, last))) is not None:
                        return page
                elif flags & SUBTREE:
                    left.append((value[: TREE.size], key))
    return None


def _nodes(page: bytes) -> Iterator[Node]:
    for place in range(HEADER.size, HEADER.unpack_from(page)[3], 2):
        (start,) = OFFSET.unpack_from(page, place)
        low, high, flags, key = NODE.unpack_from(page, start)
        start += NODE.size
        yield low | high << 16, flags, page[start : start + key], page[start + key : start + key + TREE.size]
