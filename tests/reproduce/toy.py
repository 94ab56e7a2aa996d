"""Experiments at toy size, for tests."""

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

from rich.console import Console

from nestcode.data.cifar10 import SHA256
from nestcode.reproduce import Lab, reproduce
from tests.data.test_cifar10 import small_sums, write_small_cifar10


def run(name: str, folder: Path, *, cifar: bool = False, seeds: tuple[int, ...] = (0,)) -> dict[str, Any]:
    """What an experiment finds, out of few images: those of two photographs, or noise laid out as CIFAR-10."""
    data = None
    if cifar:
        data = folder / "data"
        write_small_cifar10(data)
    with patch.dict(SHA256, small_sums() if cifar else {}):
        page = reproduce([name], Lab(folder, data, "toy", seeds, console=Console(quiet=True)))
    assert page.read_text().count("<h2 ") == 1
    found: dict[str, Any] = json.loads((folder / f"{name}.json").read_text())
    assert found["seeds"] == list(seeds)
    return found
