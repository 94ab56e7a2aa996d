"""Check what a release needs, in a clean clone (`make release-check`): a line for each check.

    tree      nothing is uncommitted
    links     files that the README, CHANGELOG and other pages of the root link to exist
    docs      the documentation builds in strict mode
    sdist     the sdist builds a wheel from nothing but its own contents
    wheel     is small enough, holds all modules and nothing that is not released, and has all licenses
    import    `import nestcode` loads few modules, of the standard library alone
    network   fit, search, compress and decompress open no connection

The wheel is that of this machine, compiled with its own compiler; `make wheels` makes those that are published.
"""

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
MAX_WHEEL = 6_000_000  # bytes; 2 million are the refiner of images
MAX_MODULES = 50  # that `import nestcode` may add to those of a bare interpreter
LICENSES = ("LICENSE", "THIRD_PARTY_LICENSES")
RELEASED = {
    ".py",
    ".pyi",
    ".typed",
    ".so",
    ".coder",
    ".refiner",
    ".html",
    ".css",
    ".js",
    ".ts",
    ".wasm",
    ".z",
    ".sha256",
}
OFFLINE = """
import socket


def refuse(*arguments, **named):
    raise SystemExit(f"a connection to {arguments[1:]} was opened")


socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = refuse
import os
import numpy as np
import nestcode as nc

assert os.path.dirname(nc.__path__[0]) == os.getcwd(), nc.__path__

X = np.random.default_rng(0).standard_normal((600, 16)).astype(np.float32)
coder = nc.fit(X, width=32)
index = nc.Index(coder)
index.add(X)
index.search(X[:2], k=3)
nc.decompress(nc.compress(X, coder), coder)
nc.decompress_images(nc.compress_images([np.zeros((32, 32, 3), np.uint8)]))
nc.images.Refiner.load()
"""


def broken_links(text: str, folder: Path) -> list[str]:
    """Return the links of a page to files that do not exist.

    >>> broken_links("[a](docs/none.md#part) [b](https://example.org) [c](tools)", ROOT)
    ['docs/none.md']
    """
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    files = [link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", prose) if "://" not in link]
    return [file for file in files if file and not (folder / file).exists()]


def unreleased(names: list[str]) -> list[str]:
    """Return the files of a wheel that have no business there.

    >>> unreleased(["nestcode/codes.py", "nestcode/notes.txt", "tests/test_codes.py", "nestcode-1.dist-info/WHEEL"])
    ['nestcode/notes.txt', 'tests/test_codes.py']
    """
    released = re.compile(r"nestcode/.*|nestcode-[^/]*\.dist-info/.*")
    return [
        name
        for name in names
        if not released.fullmatch(name) or (name.startswith("nestcode/") and Path(name).suffix not in RELEASED)
    ]


def run(*command: str, cwd: Path = ROOT, env: dict[str, str] | None = None) -> str:
    """Run a command and return its output, or raise with the end of what it wrote."""
    ended = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, env=env)
    if ended.returncode:
        raise ValueError(f"{command[:4]} failed: {(ended.stdout + ended.stderr).strip()[-500:]}")
    return ended.stdout


def check_tree() -> str:
    """Raise where something is uncommitted."""
    if changed := run("git", "status", "--porcelain").splitlines():
        raise ValueError(
            f"{len(changed)} files are not committed, {changed[0].split()[-1]} for one: commit or stash them"
        )
    return run("git", "rev-parse", "--short", "HEAD").strip()


def check_links() -> str:
    """Raise where a page of the root links to a file that is not there."""
    for page in PAGES:
        if broken := broken_links((ROOT / page).read_text(), ROOT):
            raise ValueError(f"{page} links to {broken[0]}, which does not exist: correct the link")
    return f"{len(PAGES)} pages"


def check_docs() -> str:
    """Build the documentation, into a folder that is thrown away."""
    with tempfile.TemporaryDirectory() as folder:
        run(sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder)
        return f"{sum(1 for _ in Path(folder).rglob('*.html'))} pages"


def build_from_sdist(folder: Path) -> Path:
    """Return the wheel that the sdist builds outside of the repository."""
    run(sys.executable, "-c", f"from scikit_build_core.build import build_sdist; build_sdist({str(folder)!r})")
    (sdist,) = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--disable-pip-version-check", "--no-build-isolation"]
    run(*command, "--no-deps", "-w", str(folder), str(folder / sdist.name.removesuffix(".tar.gz")), cwd=folder)
    (wheel,) = folder.glob("*.whl")
    return wheel


def check_wheel(wheel: Path) -> str:
    """Raise where a wheel is too large, or has too little or too much in it."""
    names = zipfile.ZipFile(wheel).namelist()
    if wheel.stat().st_size > MAX_WHEEL:
        raise ValueError(f"the wheel has {wheel.stat().st_size:,} bytes, and {MAX_WHEEL:,} are allowed: ship less")
    if surplus := unreleased(names):
        raise ValueError(f"the wheel holds {surplus[0]}: leave it out in pyproject.toml")
    shipped = (name.removeprefix("src/") for name in run("git", "ls-files", "src/nestcode").splitlines())
    if missing := sorted({*shipped} - {*names}):
        raise ValueError(f"the wheel lacks {missing[0]}: include it in pyproject.toml")
    if lacking := [one for one in LICENSES if not any(name.endswith(f".dist-info/licenses/{one}") for name in names)]:
        raise ValueError(f"the wheel lacks {lacking[0]}: name it in license-files of pyproject.toml")
    return f"{wheel.stat().st_size / 1e6:.1f} MB, {len(names)} files"


def run_installed(folder: Path, program: str) -> str:
    """Run a program with the package of this folder; -S keeps the editable installation of the repository out."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), sysconfig.get_path("platlib")])}
    return run(sys.executable, "-S", "-c", program, env=environment, cwd=folder)


def check_import(installed: Path) -> str:
    """Raise where importing the package loads more than it needs."""
    count = "import sys; before = {*sys.modules}; import nestcode; print(*sorted({*sys.modules} - before))"
    loaded = run_installed(installed, count).split()
    if foreign := {name.partition(".")[0] for name in loaded} - {*sys.stdlib_module_names, "nestcode"}:
        raise ValueError(f"import nestcode loads {', '.join(sorted(foreign))}: import them where they are used")
    if len(loaded) > MAX_MODULES:
        raise ValueError(f"import nestcode loads {len(loaded)} modules, {MAX_MODULES} are allowed: {', '.join(loaded)}")
    return f"{len(loaded)} modules"


def check_network(installed: Path) -> str:
    """Raise where what needs no network opens a connection."""
    run_installed(installed, OFFLINE)
    return "none was opened"


def main() -> None:
    """Run all checks, and exit with status 1 if one fails."""
    failed = False

    def check(name: str, function: Callable[[], str]) -> None:
        nonlocal failed
        try:
            said = function()
        except ValueError as error:
            failed, said = True, f"FAILED: {error}"
        print(f"{name:<8} {said}", flush=True)

    check("tree", check_tree)
    check("links", check_links)
    check("docs", check_docs)
    with tempfile.TemporaryDirectory() as name:
        folder, wheels = Path(name), list[Path]()

        def sdist() -> str:
            wheels.append(build_from_sdist(folder))
            return wheels[0].name

        check("sdist", sdist)
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(folder / "installed")
            check("wheel", lambda wheel=wheel: check_wheel(wheel))  # type: ignore[misc]
            check("import", lambda: check_import(folder / "installed"))
            check("network", lambda: check_network(folder / "installed"))
    sys.exit(failed)


if __name__ == "__main__":
    main()
