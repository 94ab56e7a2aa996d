"""What the recall curves show: sizes of low recall, and sizes at which fewer items are compared."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

Row = dict[str, Any]
K = 10
TARGET = 0.95  # recall
NOISE = 0.999  # a smaller ratio of `compared` counts as a fall


def findings(rows: Sequence[Row]) -> Iterator[Row]:
    """Yield where each curve is low, and where it compares fewer of more items.

    >>> point = {"data": "digits", "index": "lists", "recall@10": 1.0, "us": 9.0}
    >>> list(findings([{**point, "items": 4, "compared": 4}, {**point, "items": 6, "compared": 3}]))
    [{'data': 'digits', 'index': 'lists', 'lowest': 1.0, 'low': 'nowhere', 'falls': '4 to 6: 4 to 3'}]
    """
    curves: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        curves.setdefault((row["data"], row["index"]), []).append(row)
    for (data, kind), points in curves.items():
        low = [f"{row['items']:,}: {row[f'recall@{K}']:.3f}" for row in points if row[f"recall@{K}"] < TARGET]
        falls = [
            f"{a['items']:,} to {b['items']:,}: {a['compared']:,} to {b['compared']:,}"
            for a, b in pairwise(points)
            if b["compared"] < NOISE * a["compared"]
        ]
        lowest = min(row[f"recall@{K}"] for row in points)
        texts = ("; ".join(found) or "nowhere" for found in (low, falls))
        yield {"data": data, "index": kind, "lowest": lowest, **dict(zip(("low", "falls"), texts, strict=True))}
