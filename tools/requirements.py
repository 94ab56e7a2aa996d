"""Print what pip installs for the build and the extras that are named, or for all that developers need.

    python tools/requirements.py demo
    python tools/requirements.py

CMake and ninja are among them, since some machines have none.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

NOT_NEEDED = ("peers", "wheels")  # by any test


def requirements(project: dict[str, dict[str, list[str]]], names: list[str]) -> list[str]:
    """Return the requirements of extras, and of the extras that they name.

    >>> requirements({"optional-dependencies": {"a": ["x>=1", "nestcode[b,c]"], "b": ["y"], "c": []}}, ["a"])
    ['x>=1', 'y']
    """
    extras = project["optional-dependencies"]
    found = []
    for requirement in (each for name in names for each in extras[name]):
        inner = re.fullmatch(r"nestcode\[(.*)\]", requirement)
        found += requirements(project, inner[1].split(",")) if inner else [requirement]
    return found


def main() -> None:
    """Print the requirements, one per line."""
    settings = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
    project = settings["project"]
    names = sys.argv[1:] or [name for name in project["optional-dependencies"] if name not in NOT_NEEDED]
    needed = [*settings["build-system"]["requires"], "cmake", "ninja", *project["dependencies"]]
    print(*needed, *requirements(project, names), sep="\n")


if __name__ == "__main__":
    main()
