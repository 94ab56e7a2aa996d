"""Mutation testing: change one operator, number or keyword of a room at a time, and see whether its tests fail.

    python tools/mutants.py                                 which `make mutants` runs
    python tools/mutants.py --rooms codes --mutants 300     more of one room

Cosmic Ray makes the mutants (`pip install cosmic-ray`); a seed chooses the same ones each time. A mutant that no test
of its room fails for has survived: its change is printed. Nothing is written to the source: each mutant is imported
from memory in a process of its own. One that takes more than `SECONDS` of CPU time hangs, and is killed too.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import os
import random
import resource
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

from cosmic_ray import plugins
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code

ROOT = Path(__file__).parents[1]
ROOMS = {  # what is mutated, and the tests that have to notice
    "codes": ("codes.py", ["tests/test_codes.py", "tests/laws/test_codes.py"]),
    "lengths": ("lengths.py", ["tests/test_lengths.py"]),
    "storage": ("storage.py", ["tests/test_storage.py", "tests/index/test_damage.py"]),
    "index": ("index/*.py", ["tests/index/test_index.py", "tests/index/test_store.py", "tests/index"]),
    "search": ("search/*.py", ["tests/search", "tests/laws/test_search.py", "tests/index/test_index.py"]),
}
SECONDS = 300  # of CPU time
JOBS = os.cpu_count() or 1
LEFT_OUT = ("core/ReplaceBinaryOperator_BitOr_", "core/Variable")  # unions of types; changes that take arguments
UNCHANGED = ""
PRELOADED = ("numpy", "pytest")


@dataclass(frozen=True)
class Mutant:
    """The source of a module with one change."""

    room: str
    path: Path
    operator: str
    occurrence: int

    @cached_property
    def source(self) -> str:
        """What the module is now."""
        if self.operator == UNCHANGED:
            return self.path.read_text()
        return str(mutate_code(self.path.read_text(), plugins.get_operator(self.operator)(), self.occurrence))

    @property
    def module(self) -> str:
        """The name that it is imported by."""
        name = ".".join(self.path.relative_to(ROOT / "src").with_suffix("").parts)
        return name.removesuffix(".__init__")

    def diff(self) -> str:
        """Return the lines that differ."""
        old, new = self.path.read_text().splitlines(), self.source.splitlines()
        lines = list(difflib.unified_diff(old, new, str(self.path.relative_to(ROOT)), lineterm="", n=0))
        return "\n".join([lines[0], *lines[2:]])


class Import(MetaPathFinder, Loader):
    """Imports a mutant in the place of its module."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:  # noqa: ARG002
        """Return what imports the mutant, if its name is given."""
        if name != self._mutant.module:
            return None
        package = self._mutant.path.name == "__init__.py"
        spec = spec_from_loader(name, self, origin=str(self._mutant.path), is_package=package)
        if spec is not None and package:
            spec.submodule_search_locations = [str(self._mutant.path.parent)]
        return spec

    def exec_module(self, module: ModuleType) -> None:
        """Run the source of the mutant."""
        module.__file__ = str(self._mutant.path)
        exec(compile(self._mutant.source, str(self._mutant.path), "exec"), module.__dict__)


def main() -> None:
    """Test a sample of mutants of each room, print those that survive, and the rates."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutants", type=int, default=200, help="of all rooms together")
    parser.add_argument("--rooms", nargs="+", choices=ROOMS, default=list(ROOMS))
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    for name in PRELOADED:
        importlib.import_module(name)
    chosen = random.Random(given.seed)
    lines = ["| | mutants | killed | survived | killed, % |", "|---|--:|--:|--:|--:|"]
    total = survived = 0
    for room in given.rooms:
        every = list(mutants_of(room))
        if not survivors([Mutant(room, every[0].path, UNCHANGED, 0)]):
            sys.exit(f"the tests of {room} must pass without a mutant: run {' '.join(ROOMS[room][1])}")
        sample = chosen.sample(every, min(given.mutants // len(given.rooms), len(every)))
        alive = survivors(sample)
        print(*(mutant.diff() for mutant in alive), sep="\n\n", flush=True)
        lines.append(row(f"`{room}`, of {len(every):,}", len(sample), len(alive)))
        total, survived = total + len(sample), survived + len(alive)
    print(*lines, row("together", total, survived), sep="\n")


def row(name: str, tested: int, alive: int) -> str:
    """Return one line of the table."""
    return f"| {name} | {tested} | {tested - alive} | {alive} | {100 * (1 - alive / tested):.0f} |"


def mutants_of(room: str) -> Iterator[Mutant]:
    """Yield every mutant of a room."""
    for path in sorted((ROOT / "src" / "nestcode").glob(ROOMS[room][0])):
        nodes = list(ast_nodes(get_ast(path.read_text())))
        for name in plugins.operator_names():
            if not name.startswith(LEFT_OUT):
                operator = plugins.get_operator(name)()
                count = sum(len(list(operator.mutation_positions(node))) for node in nodes)
                yield from (Mutant(room, path, name, occurrence) for occurrence in range(count))


def survivors(sample: Sequence[Mutant]) -> list[Mutant]:
    """Return the mutants that no test of their room fails for; each runs in a child of this process."""
    running: dict[int, Mutant] = {}
    alive = set()
    for mutant in [*sample, *[None] * JOBS]:
        if len(running) == JOBS or (mutant is None and running):
            child, status = os.wait()
            tested = running.pop(child)
            if os.waitstatus_to_exitcode(status) == 0:
                alive.add(tested)
        if mutant is not None:
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    code = run_tests(mutant, ROOMS[mutant.room][1])
                finally:
                    os._exit(code)
            running[child] = mutant
    return [mutant for mutant in sample if mutant in alive]


def run_tests(mutant: Mutant, tests: Sequence[str]) -> int:
    """Run tests with a mutant in the place of its module; return 0 if they pass."""
    import pytest

    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)
    os.chdir(ROOT)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    sys.meta_path.insert(0, Import(mutant))
    sys.dont_write_bytecode = True
    return int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *dict.fromkeys(tests)]))


if __name__ == "__main__":
    main()
