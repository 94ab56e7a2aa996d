"""The binary bodies of HTTP requests and answers, which the server and the client share.

All values are little-endian, without a header: the media type names their kind, and the server's index the length of a
row.
"""

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, unquote

import numpy as np

from nestcode.arrays import Ids
from nestcode.errors import import_extra
from nestcode.search.hits import Hits

FLOAT32 = "application/vnd.nestcode.float32"  # rows of float32, (n, features)
CODES = "application/vnd.nestcode.codes"  # packed codes, (n, bytes)
HITS = "application/vnd.nestcode.hits"  # ids int64 (n, k), distances float32 (n, k), compared int64 (n,)
ARROW = "application/vnd.apache.arrow.stream"  # attributes, whose first column is the ids

MISSING = "Nestcode-Missing"  # a header beside hits: the names of the parts that are not in them


def pack_names(names: Sequence[str]) -> str:
    """Return names as a header.

    >>> pack_names(["part-0001", "näher"]), unpack_names(pack_names(["part-0001", "näher"]))
    ('part-0001,n%C3%A4her', ['part-0001', 'näher'])
    """
    return ",".join(quote(name, safe="") for name in names)


def unpack_names(text: str) -> list[str]:
    """Return the names in a header."""
    return [unquote(name) for name in text.split(",") if name]


def pack_hits(hits: Hits) -> bytes:
    """Return the hits of n queries as one body.

    >>> hits = Hits(np.array([[4, 2]]), np.array([[1, 3]], dtype=np.float32), np.array([2]))
    >>> body = pack_hits(hits)
    >>> len(body), unpack_hits(body, queries=1, k=2).distances.tolist()
    (32, [[1.0, 3.0]])
    """
    arrays = (hits.ids.astype("<i8"), hits.distances.astype("<f4"), np.asarray(hits.compared).astype("<i8"))
    return b"".join(array.tobytes() for array in arrays)


def unpack_hits(body: bytes, queries: int, k: int) -> Hits:
    """Return the hits of a body; raise ValueError if it has another size."""
    if len(body) != queries * (12 * k + 8):
        raise ValueError(f"hits of {queries} queries and k = {k} must have {queries * (12 * k + 8)} bytes")
    ids = np.frombuffer(body, "<i8", queries * k).reshape(queries, k)
    distances = np.frombuffer(body, "<f4", queries * k, offset=ids.nbytes).reshape(queries, k)
    compared = np.frombuffer(body, "<i8", queries, offset=ids.nbytes + distances.nbytes)
    return Hits(ids.astype(np.int64), distances.astype(np.float32), compared.astype(np.int64))


def pack_items(ids: Ids, rows: bytes) -> bytes:
    """Return items to add as one body: each row after its id, an int64.

    >>> unpack_items(pack_items(np.array([7, 9]), b"abcd"), row=2)
    (array([7, 9]), b'abcd')
    """
    items = np.empty((len(ids), 8 + len(rows) // max(len(ids), 1)), dtype=np.uint8)
    items[:, :8] = ids.astype("<i8").view(np.uint8).reshape(-1, 8)
    items[:, 8:] = np.frombuffer(rows, np.uint8).reshape(len(ids), -1)
    return items.tobytes()


def unpack_items(body: bytes, row: int) -> tuple[Ids, bytes]:
    """Return the ids and the rows, of `row` bytes each; raise ValueError if the body has another size."""
    if len(body) % (8 + row):
        raise ValueError(f"items must have {8 + row} bytes each, an id of 8 and a row of {row}, got {len(body)} in all")
    items = np.frombuffer(body, np.uint8).reshape(-1, 8 + row)
    return np.ascontiguousarray(items[:, :8]).view("<i8").ravel().astype(np.int64), items[:, 8:].tobytes()


def pack_table(ids: Ids, table: Any) -> bytes:
    """Return attributes of items as one body."""
    pa = import_extra("pyarrow", extra="arrow", purpose="attributes of items")
    out, whole = pa.BufferOutputStream(), table.add_column(0, "", pa.array(ids))
    with pa.ipc.new_stream(out, whole.schema) as stream:
        stream.write_table(whole)
    return bytes(out.getvalue())


def unpack_table(body: bytes) -> tuple[Ids, Any]:
    """Return the ids and the attributes of a body; raise ValueError if it is none."""
    pa = import_extra("pyarrow", extra="arrow", purpose="attributes of items")
    try:
        whole = pa.ipc.open_stream(body).read_all()
        whole.validate(full=True)
        return whole.column(0).to_numpy().astype(np.int64, casting="safe"), whole.remove_column(0)
    except (pa.ArrowException, TypeError, OSError) as error:
        raise ValueError(f"it is no table of Arrow: {error}") from error
