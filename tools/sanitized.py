"""Compile the core under sanitizers, and run tests or a program of Python on it.

    python tools/sanitized.py address                  tests of all that the core does
    python tools/sanitized.py address tests/search     files or folders of tests, and options of pytest
    python tools/sanitized.py thread                   threads that share indexes and coders (tests/torture/races.py)

`address` is AddressSanitizer with UndefinedBehaviorSanitizer, `thread` is ThreadSanitizer. The first report ends a
process; what AddressSanitizer says is in `build/address/report.*`, as processes of tests keep it to themselves, and the
other prints to stderr, which tests do not capture here. The interpreter and NumPy are not instrumented, but their
allocations are, and so are their locks.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
FLAGS = {
    "address": "-fsanitize=address,undefined,float-cast-overflow -fno-sanitize-recover=all",
    "thread": "-fsanitize=thread",
}
RUNTIMES = {"address": "libasan.so", "thread": "libtsan.so"}
COMPILER = [os.environ.get("CXX", "c++")]
OPTIONS = {
    # Python keeps memory to the end, and tests request more than there is: such an allocation returns null.
    "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:max_allocation_size_mb=8192:"
    "alloc_dealloc_mismatch=0:verify_asan_link_order=0:log_path={build}/report",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    # A forked child may not start threads under ThreadSanitizer, unless it is allowed to die of it.
    "TSAN_OPTIONS": "halt_on_error=1:die_after_fork=0:second_deadlock_stack=1:suppressions={build}/suppressions",
    "PYTHONMALLOC": "malloc",  # so that small objects have bounds too
}
# An editable install finds its own package before any path does.
FIRST = "import sys\nsys.meta_path[:] = [one for one in sys.meta_path if 'ScikitBuild' not in type(one).__name__]\n"
# AddressSanitizer's own `operator new` ends the process where memory is refused. This one throws, as it should.
NEW = """#include <cstdlib>
#include <new>
namespace {
void* checked(void* memory) { return memory ? memory : throw std::bad_alloc(); }
}  // namespace
void* operator new(std::size_t size) { return checked(std::malloc(size)); }
void* operator new[](std::size_t size) { return checked(std::malloc(size)); }
void* operator new(std::size_t size, std::align_val_t to) {
  const auto unit = static_cast<std::size_t>(to);
  return checked(std::aligned_alloc(unit, (size + unit - 1) / unit * unit));
}
void* operator new[](std::size_t size, std::align_val_t to) { return operator new(size, to); }
"""
SUPPRESSED = "race:libarrow\ncalled_from_lib:libarrow.so\n"  # Arrow's allocator, which is not instrumented
FOLDERS = "search", "index", "laws", "images", "streams", "test_core.py", "test_codes.py"
TESTED = [f"tests/{name}" for name in FOLDERS]
LIMITED = "not memory"  # tests that limit the memory of a process, of which a sanitizer reserves terabytes


def main() -> None:
    """Compile, run, and end as what was run."""
    if len(sys.argv) < 2 or sys.argv[1] not in FLAGS:
        sys.exit(__doc__)
    kind, given = sys.argv[1], sys.argv[2:]
    package = build(kind)
    if kind == "thread":
        command = [sys.executable, "-m", "tests.torture.races", *given]
    else:
        files = [] if any((ROOT / one).exists() for one in given) else TESTED
        command = [sys.executable, "-m", "pytest", "-s", "-k", LIMITED, *given, *files]
    run = subprocess.run([*without_randomization(), *command], cwd=ROOT, env=environment(kind, package), check=False)
    sys.exit(run.returncode)


def build(kind: str) -> Path:
    """Compile the core, and return a folder with the package that has it."""
    build, package = ROOT / "build" / kind, ROOT / "build" / kind / "package"
    places = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    cmake, ninja = (shutil.which(name, path=places) or name for name in ("cmake", "ninja"))
    settings = {
        "CMAKE_MAKE_PROGRAM": ninja,
        "CMAKE_BUILD_TYPE": "Debug",
        "CMAKE_CXX_FLAGS": f"-O1 -g1 -fno-omit-frame-pointer {FLAGS[kind]}",  # -O3 would take minutes
        "Python_EXECUTABLE": sys.executable,
    }
    options = [f"-D{name}={value}" for name, value in settings.items()]
    for command in (["-S", str(ROOT), "-B", str(build), "-G", "Ninja", *options], ["--build", str(build)]):
        subprocess.run([cmake, *command], check=True, stdout=subprocess.DEVNULL)
    (package / "nestcode").mkdir(parents=True, exist_ok=True)
    sources = [path for path in (ROOT / "src" / "nestcode").iterdir() if path.suffix != ".so"]
    for path in [*sources, *build.glob("_core*.so")]:
        link = package / "nestcode" / path.name
        link.unlink(missing_ok=True)
        link.symlink_to(path)
    (package / "sitecustomize.py").write_text(FIRST)
    (build / "suppressions").write_text(SUPPRESSED)
    source, library = build / "new.cpp", build / "new.so"
    source.write_text(NEW)
    flags = ["-shared", "-fPIC", "-O1", "-fno-omit-frame-pointer"]
    subprocess.run([*COMPILER, *flags, "-o", str(library), str(source)], check=True)
    return package


def environment(kind: str, package: Path) -> dict[str, str]:
    """Return the environment of processes that load the runtime before all else, and this package."""
    command = [*COMPILER, f"-print-file-name={RUNTIMES[kind]}"]
    runtime = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    preloaded = [str(package.parent / "new.so"), runtime] if kind == "address" else [runtime]
    options = {name: value.format(build=package.parent) for name, value in OPTIONS.items()}
    paths = [str(package), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, **options, "LD_PRELOAD": " ".join(preloaded), "PYTHONPATH": os.pathsep.join(paths)}


def without_randomization() -> list[str]:
    """Return what keeps addresses where ThreadSanitizer of older compilers expects them, if the system allows it."""
    prefix = ["setarch", "-R"]
    if shutil.which("setarch") is None or subprocess.run([*prefix, "true"], check=False).returncode != 0:
        return []
    return prefix


if __name__ == "__main__":
    main()
