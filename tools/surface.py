"""List the public names and who uses them: files of docs, examples, benchmarks, commands and tests.

    python tools/surface.py            # the names that nobody needs
    python tools/surface.py --all

A name is public if a module exports it that the reference (docs/api) documents. Somebody needs a name that stands as a
whole word on a page, in an example, a benchmark or a command; an error that is raised; and a class that a public
function returns or a public class extends, as annotations and subclasses name it. Lists of members on pages of the
reference do not count.
"""

import argparse
import ast
import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "nestcode"
PLACES = {
    "docs": ("README.md", "docs/**/*.md"),
    "examples": ("examples/**/*.py",),
    "benchmarks": ("benchmarks/**/*.py", "docs/*.py"),
    "cli": ("src/nestcode/cli/**/*.py", "src/nestcode/serve/**/*.py", "src/nestcode/demo/**/*.py"),
    "tests": ("tests/**/*.py",),
}
WHOLE = ("nestcode.lengths", "nestcode.metrics")  # modules without `__all__`
USERS = ("docs", "examples", "benchmarks", "cli", "code")  # what shows that somebody needs a name
LISTING = re.compile(r"^:::.*|^ +(options|members|heading_level|show_\w+):.*", flags=re.MULTILINE)


def documented(module: str) -> bool:
    """Return whether a page of the reference documents a module or a name of it."""
    pages = " ".join(path.read_text() for path in (ROOT / "docs" / "api").glob("*.md"))
    return re.search(rf"^::: {re.escape(module)}(\.[A-Z]\w*)?$", pages, flags=re.MULTILINE) is not None


def public_names() -> dict[str, list[str]]:
    """Return the modules that export each name, by `__all__` or, without it, as a public module of functions.

    >>> "nestcode.lengths" in public_names()["Geometric"]
    True
    """
    names: dict[str, list[str]] = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        module = ".".join(["nestcode", *path.relative_to(SOURCE).with_suffix("").parts]).removesuffix(".__init__")
        if not documented(module):
            continue
        for statement in ast.parse(path.read_text()).body:
            if module in WHOLE and isinstance(statement, ast.ClassDef | ast.FunctionDef):
                if not statement.name.startswith("_"):
                    names[statement.name].append(module)
                continue
            if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.List):
                continue
            if [target.id for target in statement.targets if isinstance(target, ast.Name)] == ["__all__"]:
                for element in statement.value.elts:
                    if isinstance(element, ast.Constant):
                        names[str(element.value)].append(module)
    return dict(names)


def uses() -> dict[str, dict[str, int]]:
    """Return how many files of each place use each word."""
    counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for place, patterns in PLACES.items():
        for path in {path for pattern in patterns for path in ROOT.glob(pattern)}:
            for word in set(re.findall(r"\w+", LISTING.sub("", path.read_text()))):
                counts[word][place] += 1
    for path in SOURCE.rglob("*.py"):
        for word in needed(path.read_text()):
            counts[word]["code"] += 1
    return counts


def needed(source: str) -> set[str]:
    """Return the classes that public functions return, that classes extend, and the errors that are raised.

    >>> sorted(needed("class A(B): f: int; g = lambda: 1") | needed("def f() -> C: raise D(1)"))
    ['B', 'C', 'D']
    """
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        parts: list[ast.expr | None] = []
        if isinstance(node, ast.ClassDef):
            parts = [*node.bases]
        elif isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            parts = [node.returns]
        elif isinstance(node, ast.Raise):
            parts = [node.exc.func if isinstance(node.exc, ast.Call) else node.exc]
        for part in filter(None, parts):
            found |= {name.id for name in ast.walk(part) if isinstance(name, ast.Name)}
    return found


def main() -> None:
    """Print a line for each name."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="also list the names that are used")
    options = parser.parse_args()
    names, counts = public_names(), uses()
    for name, modules in sorted(names.items()):
        used = counts[name]
        if options.all or not any(used[place] for place in USERS):
            places = ", ".join(f"{place} {used[place]}" for place in [*PLACES, "code"] if used[place])
            print(f"{name:<32} {', '.join(modules):<48} {places}")
    print(f"{len(names)} public names")


if __name__ == "__main__":
    main()
