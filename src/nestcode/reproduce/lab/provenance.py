"""The commit that results come from, and whether its tree was clean."""

import hashlib
import os
import platform
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

import nestcode
from nestcode.errors import InvalidInput

CACHED_CODE = ("training", "nn", "coders")  # the rooms whose code cached results depend on


@dataclass(frozen=True)
class Provenance:
    """The commit of the code that runs; None where it is unknown."""

    commit: str | None
    clean: bool | None  # no uncommitted changes

    def __str__(self) -> str:
        if self.commit is None:
            return "unknown commit"
        return (
            f"commit {self.commit[:12]}"
            + {True: "", False: ", uncommitted changes", None: ", tree unknown"}[self.clean]
        )


def find_provenance(
    commit: str | None = None, *, clean: bool = False, allow_dirty: bool = False, package: Path | None = None
) -> Provenance:
    """Return where this code comes from: by git, or for a copy without a repository by what the caller states.

    >>> find_provenance("1a2b3c", clean=True, package=Path("/"))
    Provenance(commit='1a2b3c', clean=True)

    Args:
        commit: of a copy without a repository.
        clean: whether that copy is the commit without changes.
        allow_dirty: accept uncommitted changes, and say so.
        package: a folder of the code, this package by default.

    """
    here = Path(__file__).parent if package is None else package
    found = _git(here, "ls-files", "--error-unmatch", ".") and _git(here, "rev-parse", "HEAD")
    if not found:  # installed, or a copy
        if clean and commit is None:
            raise InvalidInput("a clean tree is that of a commit, got none: give the commit too")
        return Provenance(commit, clean if commit is not None else None)
    if commit is not None and not found.startswith(commit):
        raise InvalidInput(f"the repository is at commit {found[:12]}, got {commit}: leave the commit out")
    # Untracked files count where the code is; a report may lie elsewhere in the repository.
    dirty = [*_git(here, "status", "--porcelain", "--untracked-files=no").splitlines(),
             *_git(here, "ls-files", "--others", "--exclude-standard", ".").splitlines()]  # fmt: skip
    if dirty and not allow_dirty:
        raise InvalidInput(
            f"results must come from a commit, but {len(dirty)} files differ from it, such as "
            f"{dirty[0].split(maxsplit=1)[-1]}: commit them, or give --allow-dirty, and the report says so"
        )
    return Provenance(found, not dirty)


def find_machine() -> str:
    """Describe the machine that measures."""
    gpu = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    return f"{os.cpu_count()} cores, {platform.machine()}{gpu}"


@cache
def checksum_of_code() -> str:
    """Return a checksum of the source of what cached results depend on: equal for equal code, whatever the commit.

    >>> len(checksum_of_code())
    16
    """
    digest, package = hashlib.sha256(), Path(nestcode.__file__).parent
    for path in sorted(path for room in CACHED_CODE for path in (package / room).rglob("*.py")):
        digest.update(f"{path.relative_to(package)}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _git(folder: Path, *arguments: str) -> str:
    """Return what git prints; nothing if it fails or is not installed."""
    try:
        run = subprocess.run(["git", *arguments], capture_output=True, text=True, check=False, cwd=folder)
    except OSError:
        return ""
    return run.stdout.strip() if run.returncode == 0 else ""
