"""The examples run, and their tables show what they claim."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec
    assert spec.loader
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    return example


def test_only_nested_dropout_orders_the_autoencoder() -> None:
    example = load("autoencoder")
    nested, ordinary = (
        dict(zip(example.SHOWN, example.errors_by_length(nested=nested, epochs=30), strict=True))
        for nested in (True, False)
    )
    components = dict(zip(example.SHOWN, example.errors_of_components(), strict=True))
    assert all(nested[k] < ordinary[k] / 1.2 for k in (1, 2, 4, 8, 16))
    assert nested[8] < components[8]  # a network beats a linear model
    assert ordinary[32] < ordinary[16] / 2  # the ordinary model is trained well


def test_text_search_has_higher_recall_in_fewer_bytes() -> None:
    command = [sys.executable, str(ROOT / "examples" / "text_search.py"), "--texts", "200"]
    environment = {**os.environ, "COLUMNS": "120"}
    run = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert run.returncode == 0, run.stderr
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in run.stdout.splitlines() if "│" in line]
    recall = {row[0]: [float(cell.replace("–", "nan").partition("/")[0]) for cell in row[1:]] for row in rows}
    nested, signs, bytes_each = recall["nested codes"], recall["ubinary, rescored"], recall["int8"]
    assert all(ours > theirs for ours, theirs in zip(nested[:3], signs[:3], strict=True))
    assert all(ours > theirs for ours, theirs in zip(nested[:4], bytes_each[:4], strict=True))
    assert bytes_each[4] > 0.97
    assert nested[:4] == sorted(nested[:4])
    assert all(f"{question}?" in run.stdout for question in ("copy a whole folder", "make data smaller"))
