"""Mutation testing: change one operator, number or keyword of a package at a time, and see whether its tests fail.

    python tools/mutants.py                                 which `make mutants` runs
    python tools/mutants.py --packages codes --mutants 300     more of one package

Cosmic Ray makes the mutants (`pip install cosmic-ray`); a seed chooses the same ones each time. A mutant runs the
tests of its package that reach the statement it changes, quickest first, up to `SECONDS` of processor time. One that no
test fails for has survived: its change is printed. Nothing is written to the source: each mutant is imported from
memory in a process of its own. One that takes several times the time of its tests hangs, and is killed too.

No mutants are made of what no test can notice here: annotations, protocols and overloads, the messages of errors, code
of other systems, and the constants in `TUNING`, which decide how fast an answer comes and not which.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import importlib
import json
import math
import os
import random
import resource
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from cosmic_ray import plugins
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code

ROOT = Path(__file__).parents[1]
PACKAGES = {  # what is mutated, and the tests that have to notice
    "codes": ("codes.py", ["tests/test_codes.py", "tests/laws/test_codes.py", "src/nestcode/codes.py"]),
    "lengths": ("lengths.py", ["tests/test_lengths.py", "src/nestcode/lengths.py"]),
    "storage": (
        "storage/*.py",
        ["tests/test_storage.py", "tests/index/test_store.py", "tests/index/test_golden.py", "src/nestcode/storage"],
    ),
    "index": ("index/*.py", ["tests/index", "tests/laws/test_tree.py", "src/nestcode/index"]),
    "search": (
        "search/*.py",
        [
            "tests/search",
            "tests/laws/test_search.py",
            "tests/laws/test_extremes.py",
            "tests/index/test_index.py",
            "tests/index/test_graph.py",
            "tests/index/test_memory.py",
            "tests/index/test_vectors.py",
            "src/nestcode/search",
        ],
    ),
}
SLOW = ("test_durability", "test_life", "test_crafted_arrays", "test_any_manifest")  # crashes by the hundred; fuzzing
SECONDS = 30  # of tests for a mutant
MEMORY = 8 << 30  # bytes
JOBS = os.cpu_count() or 1
LEFT_OUT = (
    "core/Variable",  # changes that take arguments
    "core/ReplaceBinaryOperator_BitOr_Add",  # the same for distinct flags
    "core/ReplaceBinaryOperator_BitOr_BitXor",
)
TUNING = frozenset({"PIECE"})
PRELOADED = (
    "numpy",
    "safetensors.numpy",
    "hypothesis",
    "coverage",
    "pytest_asyncio.plugin",
    "pytest_cov.plugin",
    "xdist.plugin",
)
QUIET = ("-q", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning")  # of what is preloaded
Reached = dict[str, dict[int, list[str]]]  # the tests that reach each line of a file


@dataclass(frozen=True)
class Mutant:
    """The source of a module with one change."""

    package: str
    path: Path
    operator: str
    occurrence: int
    line: int

    @cached_property
    def source(self) -> str:
        """What the module is now."""
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
    """Test a sample of mutants of each package, print those that survive, and the rates."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutants", type=int, default=200, help="of all packages together")
    parser.add_argument("--packages", nargs="+", choices=PACKAGES, default=list(PACKAGES))
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    for name in PRELOADED:
        importlib.import_module(name)
    chosen = random.Random(given.seed)
    lines = ["| | mutants | killed | survived | killed, % |", "|---|--:|--:|--:|--:|"]
    total = survived = 0
    for package in given.packages:
        tests = Tests.watched(package)
        every = list(mutants_of(package))
        sample = chosen.sample(every, min(given.mutants // len(given.packages), len(every)))
        alive = survivors(sample, tests)
        print(*(mutant.diff() for mutant in alive), sep="\n\n", flush=True)
        lines.append(row(f"`{package}`, of {len(every):,}", len(sample), len(alive)))
        total, survived = total + len(sample), survived + len(alive)
    print(*lines, row("together", total, survived), sep="\n")


def row(name: str, tested: int, alive: int) -> str:
    """Return one line of the table."""
    return f"| {name} | {tested} | {tested - alive} | {alive} | {100 * (1 - alive / tested):.0f} |"


def mutants_of(package: str) -> Iterator[Mutant]:
    """Yield every mutant of a package that a test can notice."""
    for path in sorted((ROOT / "src" / "nestcode").glob(PACKAGES[package][0])):
        nodes = list(ast_nodes(get_ast(path.read_text())))
        unseen = list(unnoticeable(ast.parse(path.read_text())))
        for name in plugins.operator_names():
            if not name.startswith(LEFT_OUT):
                operator = plugins.get_operator(name)()
                places = [place for node in nodes for place, _ in operator.mutation_positions(node)]
                for occurrence, place in enumerate(places):
                    if not any(begin <= place < end for begin, end in unseen):
                        yield Mutant(package, path, name, occurrence, place[0])


def unnoticeable(module: ast.Module) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Yield where the source has what no test can notice, as begins and ends."""
    for node in ast.walk(module):
        parts: list[ast.expr | ast.stmt | None] = []
        decorators: list[ast.expr] = []
        if isinstance(node, ast.FunctionDef):
            arguments = node.args
            every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
            parts += [node.returns, *(argument.annotation for argument in every if argument is not None)]
            if any(ast.unparse(decorator) in ("overload", "abstractmethod") for decorator in node.decorator_list):
                parts += node.body
                decorators = node.decorator_list
        elif isinstance(node, ast.AnnAssign):
            parts.append(node.annotation)
        elif isinstance(node, ast.ClassDef) and any(ast.unparse(base) == "Protocol" for base in node.bases):
            parts += node.body
            decorators = [one for member in node.body for one in getattr(member, "decorator_list", [])]
        elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            parts += node.exc.args
        elif isinstance(node, ast.Compare) and ast.unparse(node.left) == "sys.platform":
            parts.append(node)
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            parts += node.body
        elif isinstance(node, ast.Assign) and {ast.unparse(target) for target in node.targets} & TUNING:
            parts.append(node)
        for part in (*decorators, *parts):
            if part is not None:
                begin = 0 if part in decorators else part.col_offset  # of the line: the @ counts
                yield (part.lineno, begin), (part.end_lineno or 0, part.end_col_offset or 0)


@dataclass(frozen=True)
class Tests:
    """The tests of a package: how long each takes, and which lines it reaches."""

    seconds: dict[str, float]
    reached: Reached

    @classmethod
    def watched(cls, package: str) -> Tests:
        """Run the tests of a package once, and watch them."""
        with tempfile.TemporaryDirectory() as folder:
            seen = Path(folder) / "seen"
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    watch = Watch(package)
                    code = run(PACKAGES[package][1], [watch])
                    seen.write_text(json.dumps([watch.seconds, watch.reached()]))
                finally:
                    os._exit(code)
            if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0:
                sys.exit(
                    f"the tests of {package} must pass without a mutant: run pytest {' '.join(PACKAGES[package][1])}"
                )
            seconds, reached = json.loads(seen.read_text())
        return cls(
            seconds,
            {path: {int(line): names for line, names in lines.items()} for path, lines in reached.items()},
        )

    def of(self, mutant: Mutant) -> list[str]:
        """Return the tests that reach the statement of a mutant, quickest first."""
        lines = self.reached.get(str(mutant.path), {})
        begin, end = statement_at(mutant.path.read_text(), mutant.line)
        names = {name for line in range(begin, end + 1) for name in lines.get(line, []) if name}
        if any("" in lines.get(line, []) for line in range(begin, end + 1)):  # run at import
            names |= {name for line in lines for name in lines[line] if name}
        chosen: list[str] = []
        left = float(SECONDS)
        for name in sorted(names, key=self.seconds.__getitem__):
            left -= self.seconds[name]
            if left > 0 or not chosen:
                chosen.append(name)
        return chosen


def statement_at(source: str, line: int) -> tuple[int, int]:
    """Return the first and the last line of the statement around a line, without the statements in it."""
    best = (line, line)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0):
            body = getattr(node, "body", None)
            end = body[0].lineno - 1 if body else node.end_lineno or 0
            if line <= max(end, node.lineno):
                best = (node.lineno, max(end, node.lineno))
    return best


class Watch:
    """A pytest plugin that measures which lines of a package each test reaches, and for how long it runs."""

    def __init__(self, package: str) -> None:
        import coverage

        self._paths = [str(path) for path in (ROOT / "src" / "nestcode").glob(PACKAGES[package][0])]
        self._coverage = coverage.Coverage(data_file=None, include=self._paths, config_file=False)
        self._coverage.start()
        self.seconds: dict[str, float] = {}

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Leave out the slow ones."""
        items[:] = [item for item in items if not any(name in item.nodeid for name in SLOW)]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Generator[None, object, object]:
        """Run a test."""
        self._coverage.switch_context(item.nodeid)
        begin = sum(os.times()[:4])  # of the processor, with children: other programs do not count
        result = yield
        self.seconds[item.nodeid] = sum(os.times()[:4]) - begin
        self._coverage.switch_context("")
        return result

    def reached(self) -> Reached:
        """Return which tests reached each line."""
        self._coverage.stop()
        data = self._coverage.get_data()
        return {path: data.contexts_by_lineno(path) for path in self._paths}


def survivors(sample: Sequence[Mutant], tests: Tests) -> list[Mutant]:
    """Return the mutants that no test of their package fails for; each runs in a child of this process."""
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
                    names = tests.of(mutant)
                    limit = math.ceil(20 + 5 * sum(tests.seconds[name] for name in names))
                    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
                    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
                    signal.signal(signal.SIGXCPU, signal.SIG_DFL)
                    sys.meta_path.insert(0, Import(mutant))
                    importlib.import_module(mutant.module)  # before pytest's own hook, which takes paths of doctests
                    code = run(["-x", "-o", f"timeout={4 * limit}", *names]) if names else 0
                finally:
                    os._exit(code)
            running[child] = mutant
    return [mutant for mutant in sample if mutant in alive]


def run(arguments: Sequence[str], watching: Sequence[Watch] = ()) -> int:
    """Run pytest silently; return 0 if all tests pass."""
    os.chdir(ROOT)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    sys.dont_write_bytecode = True
    return int(pytest.main([*QUIET, *arguments], plugins=list(watching)))


if __name__ == "__main__":
    main()
