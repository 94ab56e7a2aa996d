"""Compare two runs of the engine's benchmark, setting by setting."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from _report import show

Row = dict[str, Any]
SETTING = ("index", "batch", "k", "filter")
SLOWER = 1.03  # a ratio of times that counts as slower
LOWER = -0.005  # a difference of recall that counts as lower


def read_runs(names: str) -> list[Row]:
    """Return the rows of one JSON file, or of several joined by commas: the least time and recall of each setting."""
    best: dict[tuple[Any, ...], Row] = {}
    for name in names.split(","):
        for row in json.loads(Path(name).read_text())["rows"]:
            own = best.setdefault(key(row), row)
            own |= {name: min(own[name], row[name]) for name in ("us", "recall@10", "recall@k")}
    return list(best.values())


def key(row: Row) -> tuple[Any, ...]:
    """Return what identifies a setting."""
    return tuple(row[name] for name in ("data", *SETTING))


def compared(old: Sequence[Row], new: Sequence[Row]) -> list[Row]:
    """Return the settings that both runs have, the largest ratio of times first.

    >>> row = {"data": "digits", "index": "scan", "batch": 1, "k": 10, "filter": "none", "recall@10": 1.0}
    >>> a, b = {**row, "us": 10.0, "recall@k": 1.0, "compared": 9}, {**row, "us": 12.0, "recall@k": 0.9, "compared": 7}
    >>> [(found["ratio"], found["recall@k"]) for found in compared([a], [b])]
    [(1.2, -0.1)]
    """
    before = {key(row): row for row in old}
    rows = [
        {name: row[name] for name in SETTING}
        | {"us": then["us"], "new us": row["us"], "ratio": round(row["us"] / then["us"], 3)}
        | {name: round(row[name] - then[name], 4) for name in ("recall@10", "recall@k")}
        | {"compared": then["compared"], "new compared": row["compared"]}
        for row in new
        if (then := before.get(key(row))) is not None
    ]
    return sorted(rows, key=lambda row: -row["ratio"])


def print_comparison(rows: Sequence[Row]) -> None:
    """Print all settings, those that lose recall, and the geometric mean of the ratios by group."""
    show("New over old", rows, "Recall is the new one less the old one.")
    lost = sorted((row for row in rows if row["recall@k"] < LOWER), key=lambda row: row["recall@k"])
    if lost:
        show(f"Recall fell by more than {-LOWER}", lost, "")
    groups: dict[str, list[Row]] = {}
    for row in rows:
        kind = "no filter" if row["filter"] == "none" else "filters"
        for name in (f"{row['index']}, {kind}", f"batch {row['batch']}, {kind}", f"all, {kind}", "all"):
            groups.setdefault(name, []).append(row)
    show("Groups", [summary(name, groups[name]) for name in sorted(groups)], "ratio: geometric mean, new over old time")


def summary(name: str, rows: Sequence[Row]) -> Row:
    """Return the figures of a group of settings."""
    ratios = np.array([row["ratio"] for row in rows])
    return {
        "group": name,
        "settings": len(rows),
        "ratio": float(np.exp(np.log(ratios).mean())),
        "worst": float(ratios.max()),
        f"> {SLOWER}": int((ratios > SLOWER).sum()),
        "recall@k, mean": float(np.mean([row["recall@k"] for row in rows])),
        "recall@k, worst": min(row["recall@k"] for row in rows),
    }
