"""List the public names and who uses them: files of docs, examples, benchmarks, tests, and modules of other packages.

    python tools/surface.py            # the names that neither a page, an example, a command nor a benchmark uses
    python tools/surface.py --all

A name counts as used where it stands as a whole word; pages of the reference, which list all names, do not count.
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
WHOLE = ("nestcode.errors", "nestcode.lengths", "nestcode.metrics")  # modules without `__all__`
USERS = ("docs", "examples", "benchmarks", "cli")  # what shows that somebody needs a name


def public_names() -> dict[str, list[str]]:
    """Return the modules that export each name, by `__all__` or, without it, as a public module of functions.

    >>> "nestcode.lengths" in public_names()["Geometric"]
    True
    """
    names: dict[str, list[str]] = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        module = ".".join(["nestcode", *path.relative_to(SOURCE).with_suffix("").parts]).removesuffix(".__init__")
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
            if "docs/api" not in path.as_posix():
                for word in set(re.findall(r"\w+", path.read_text())):
                    counts[word][place] += 1
    return counts


def main() -> None:
    """Print a line for each name."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="also list the names that are used")
    options = parser.parse_args()
    names, counts = public_names(), uses()
    for name, modules in sorted(names.items()):
        used = counts[name]
        if options.all or not any(used[place] for place in USERS):
            places = ", ".join(f"{place} {used[place]}" for place in PLACES if used[place])
            print(f"{name:<32} {', '.join(modules):<48} {places}")
    print(f"{len(names)} public names")


if __name__ == "__main__":
    main()
