"""Make the golden index of the present version: a coder, vectors, attributes, removed items, two segments, a graph.

    python -m tests.golden.make_index

Made once when a version of the layout is new, and never again: every later Nestcode must read these very bytes. Beside
the folder, `index-v1.json` says what it holds. The data follows from arithmetic, so that it can be had again anywhere.
"""

import json
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from nestcode import Index, LinearCoder
from nestcode.index import compaction
from nestcode.index.manifest import VERSION

HERE = Path(__file__).parent
REMOVED = [7, 37, 196]  # of which one is the largest


def vectors() -> NDArray[np.float32]:
    """66 items of 5 features."""
    i, j = np.arange(66)[:, None], np.arange(5)
    whole: NDArray[np.int64] = (i * 37 + j * 91 + i * i * (j + 1)) % 101
    return (whole / 2**j).astype(np.float32)


def ids() -> NDArray[np.int64]:
    """Ids that are neither positions nor in order."""
    return (np.arange(66) * 3 + 7) % 199


def attributes() -> list[dict[str, Any]]:
    """A row of every type for each item; some values are null."""
    rows: list[dict[str, Any]] = [
        {
            "year": 2000 + i,
            "price": i / 4,
            "open": i % 2 == 0,
            "lang": ["en", "de"][i % 2],
            "title": f"item {i}",
            "tags": [f"t{j}" for j in range(i % 3)],
            "raw": bytes([i]),
            "day": date(2000, 1, 1 + i % 28),
            "at": datetime(2000, 1, 1 + i % 28, tzinfo=UTC),
        }
        for i in range(66)
    ]
    return [
        {name: None if i % 7 == j else cell for j, (name, cell) in enumerate(one.items())} for i, one in enumerate(rows)
    ]


def table() -> Any:
    """The same as a table; `lang` is a category."""
    found = pa.Table.from_pylist(attributes())
    return found.set_column(3, "lang", found["lang"].dictionary_encode())


def main() -> None:
    """Write the folder and what it holds."""
    folder = HERE / f"index-v{VERSION}"
    if folder.exists():
        raise SystemExit(f"{folder} is there: a golden index is made once, and kept as long as it must be readable")
    X = vectors()
    compaction.MIN_GRAPH = 64
    built = Index(LinearCoder(width=20).fit(X), width=18, vectors="int8", graph=True)
    built.add(X[:64], ids=ids()[:64], attributes=table().slice(0, 64))
    built.save(folder)
    with Index.open(folder, mode="a") as index:
        index.add(X[64:], ids=ids()[64:], attributes=table().slice(64))  # so few that they stay a segment of their own
        index.remove(REMOVED)
        index.commit()
        codes = [row.tobytes().hex() for row in index.codes(index.ids).packed]
        held = {
            "codes": dict(zip(index.ids.tolist(), codes, strict=True)),
            "reconstructions": index.reconstruct(index.ids).round(4).tolist(),
            "vectors": index.vectors(index.ids).round(4).tolist(),
        }
    (folder / "lock").unlink()
    (HERE / f"{folder.name}.json").write_text(json.dumps(held, indent=1) + "\n")


if __name__ == "__main__":
    main()
