"""Experiments at toy scale, for tests."""

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

from rich.console import Console

from nestcode.data.cifar10 import SHA256
from nestcode.reproduce import Lab, reproduce
from tests.data.test_cifar10 import small_sums, write_small_cifar10


def run(
    name: str, folder: Path, *, cifar: bool = False, seeds: tuple[int, ...] = (0,), states: Path | None = None
) -> dict[str, Any]:
    """Return the results of an experiment on patches of two sample images, or on noise in the format of CIFAR-10."""
    data = None
    if cifar:
        data = folder / "data"
        write_small_cifar10(data)
    with patch.dict(SHA256, small_sums() if cifar else {}):
        page = reproduce([name], Lab(folder, data, "toy", seeds, console=Console(quiet=True), states=states))
    assert page.read_text().count("<h2 ") == 1
    result: dict[str, Any] = json.loads((folder / f"{name}.json").read_text())
    assert result["seeds"] == list(seeds)
    return result
