"""Run tests as other processors would: under QEMU, with the kernels of older instruction sets, and without oneDNN.

    make test-processors
    python tools/processors.py emulated simd onednn  # or some of them

- emulated: the C++ tests of x86-64 and ARM under QEMU, on processors that have, or lack, what kernels are chosen by.
  QEMU has no AVX-512; a machine that has it runs these kernels in `make test-native`.
- simd: the tests of search, coders, index and images with each instruction set of this machine but the fastest, which
  `make test` used.
- onednn: PyTorch's tests without oneDNN.
"""

import argparse
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PROGRAMS = Path(sys.executable).parent  # cmake, ctest and ninja
SIMD_TESTS = [  # but not those of files and processes, nor of networks, which run the same kernels
    "tests/test_codes.py", "tests/test_core.py", "tests/laws", "tests/search", "tests/images",
    *(f"tests/index/test_{name}.py" for name in ("folders", "golden", "graph", "index", "life", "memory", "vectors")),
    *(f"tests/coders/test_{name}.py" for name in ("adaptive", "cell", "linear", "residual", "rotation")),
]  # fmt: skip
TORCH_TESTS = [
    "tests/nn", "tests/training",
    *(f"tests/coders/test_{name}.py" for name in ("autoencoder", "implicit", "refined", "supervised")),
]  # fmt: skip


class Processor(NamedTuple):
    """A processor that QEMU emulates."""

    name: str
    kernels: str  # what the core finds there


class Architecture(NamedTuple):
    """What compiles for an architecture, and what runs that."""

    machine: str  # as QEMU and the kernel call it
    triplet: str
    package: str  # of Debian's cross compiler
    processors: tuple[Processor, ...]


ARCHITECTURES = (
    Architecture(
        "x86_64",
        "x86_64-linux-gnu",
        "g++-x86-64-linux-gnu",
        (Processor("Nehalem", "portable"), Processor("Haswell", "portable avx2")),
    ),
    Architecture(
        "aarch64",
        "aarch64-linux-gnu",
        "g++-aarch64-linux-gnu",
        (Processor("cortex-a53", "portable neon"), Processor("max", "portable neon dot_products")),
    ),
)


def main() -> None:
    """Run the parts that are named, print how long each took, and fail if one fails."""
    parts: dict[str, Callable[[], bool]] = {"emulated": run_emulated, "simd": run_simd, "onednn": run_onednn}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[[], *parts], help="what to run (all)")
    chosen = parser.parse_args().parts or list(parts)
    failed = [name for name in chosen if not parts[name]()]
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def timed(title: str, command: list[str | Path], **environment: str) -> bool:
    """Run a command, print its title and how long it took, and return whether it succeeded."""
    print(f"== {title}", flush=True)
    start = perf_counter()
    ended = subprocess.run(command, cwd=ROOT, env={**os.environ, **environment}, check=False)
    print(f"   {'passed' if ended.returncode == 0 else 'FAILED'} in {perf_counter() - start:.0f} s", flush=True)
    return ended.returncode == 0


def run_emulated() -> bool:
    """Run the C++ tests of each architecture on each of its processors."""
    return all(run_architecture(one) for one in ARCHITECTURES)


def run_architecture(target: Architecture) -> bool:
    """Compile the C++ tests, and run them on each processor."""
    native = platform.machine() == target.machine
    compiler, emulator = "g++" if native else f"{target.triplet}-g++", f"qemu-{target.machine}"
    if not installed((compiler, emulator), ("g++" if native else target.package, "qemu-user")):
        return "NESTCODE_CI" not in os.environ
    build = ROOT / "build" / "processors" / target.machine
    configure: list[str | Path] = [
        PROGRAMS / "cmake", "-S", ROOT, "-B", build, "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={PROGRAMS / 'ninja'}",
        "-DCMAKE_SYSTEM_NAME=Linux", f"-DCMAKE_SYSTEM_PROCESSOR={target.machine}", f"-DCMAKE_CXX_COMPILER={compiler}",
        f"-DCMAKE_CROSSCOMPILING_EMULATOR={emulator}", "-DNESTCODE_TESTS=ON", "-DNESTCODE_SANITIZE=OFF",
        "-DCMAKE_BUILD_TYPE=None", "-DCMAKE_CXX_FLAGS=-O1 -w -Wno-psabi",  # -O3 would take minutes
    ]  # fmt: skip
    compile_all: list[str | Path] = [PROGRAMS / "cmake", "--build", build, "--", "--quiet"]
    if not timed(f"configuring the C++ tests of {target.machine}", configure):
        return False
    if not timed(f"compiling the C++ tests of {target.machine}", compile_all):
        return False
    prefix = {} if native else {"QEMU_LD_PREFIX": f"/usr/{target.triplet}"}
    return all(run_processor(build, emulator, one, prefix) for one in target.processors)


def installed(programs: tuple[str, ...], packages: tuple[str, ...]) -> bool:
    """Return whether programs are there, after installing their packages where that is possible."""
    if all(map(shutil.which, programs)):
        return True
    apt: list[str | Path] = ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=600"]
    if shutil.which("apt-get") and os.geteuid() == 0:
        timed("reading the list of packages", [*apt, "update"])
        install = [*apt, "install", "-y", "--no-install-recommends", "-o", "Dpkg::Use-Pty=0", *packages]
        timed(f"installing {' '.join(packages)}", install, DEBIAN_FRONTEND="noninteractive")
    missing = [name for name in programs if not shutil.which(name)]
    if missing:
        print(f"== skipped what needs {' and '.join(missing)}: apt-get install {' '.join(packages)}")
    return not missing


def run_processor(build: Path, emulator: str, processor: Processor, prefix: dict[str, str]) -> bool:
    """Run compiled C++ tests on one processor, and check that the core finds the kernels of that one."""
    environment = {**prefix, "QEMU_CPU": processor.name, "NESTCODE_SIMD": ""}
    shown = subprocess.run(
        [emulator, build / "simd"], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    expected = f"simd: {processor.kernels} ok\n"
    if shown.stdout != expected:
        print(f"{emulator} -cpu {processor.name} must print {expected!r}, got {shown.stdout + shown.stderr!r}")
        return False
    ctest: list[str | Path] = [PROGRAMS / "ctest", "--test-dir", build, "--output-on-failure", "--quiet"]
    title = f"the C++ tests on {emulator} -cpu {processor.name}: {processor.kernels}"
    return timed(title, [*ctest, "--parallel", str(os.cpu_count())], **environment)


def run_simd() -> bool:
    """Run tests with each instruction set of this machine but the fastest."""
    show = [sys.executable, "-c", "from nestcode import _core; print(*_core.simd_names())"]
    names = subprocess.check_output(show, env={**os.environ, "NESTCODE_SIMD": ""}, text=True).split()
    return all(timed(f"NESTCODE_SIMD={name}", pytest(*SIMD_TESTS), NESTCODE_SIMD=name) for name in names[:-1])


def run_onednn() -> bool:
    """Run PyTorch's tests without oneDNN in any process."""
    path = os.pathsep.join(filter(None, (str(ROOT / "tools" / "without_onednn"), os.environ.get("PYTHONPATH"))))
    early = "ignore:Module already imported:pytest.PytestAssertRewriteWarning"  # with PyTorch, before pytest
    command = pytest("-W", early, "--ignore", "tests/training/test_distributed.py", *TORCH_TESTS)  # it tests processes
    return timed("PyTorch without oneDNN", command, PYTHONPATH=path)


def pytest(*arguments: str) -> list[str | Path]:
    """Return the command that runs tests as `make test` does."""
    options = ("-n", "auto", "--maxprocesses", "4", "--dist", "loadfile", "--no-loadscope-reorder")
    return [sys.executable, "-m", "pytest", *options, *arguments]


if __name__ == "__main__":
    main()
