"""Audit the service: fuzz its routes with schemathesis, and check the explorer with axe-core in a real browser.

    make audit
    python tools/audit.py build/audit --seconds 600

`make audit` installs both beside, in build/audit: schemathesis is a plugin of pytest, which would load it in every run.
The server is small and writable, and its items are such that the examples of the OpenAPI document are valid requests.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path

import numpy as np
from playwright.sync_api import Page, sync_playwright

import nestcode as nc
from nestcode.data import sample_images
from nestcode.serve import Items, Service, create_app, in_thread

SIDE, COUNT, FEATURES, WIDTH = 1, 50, 3, 16  # of the examples
VIEWS = {"neighborhoods": "#found img", "progressive": "#webp-caption:has-text('bytes')", "coder": "#directions canvas"}
EXCLUDED = "positive_data_acceptance"  # how many features a row must have depends on the index


def main() -> None:
    """Run both audits, and fail if one finds a fault."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", type=Path, help="a virtual environment with schemathesis and axe-playwright-python")
    parser.add_argument("--seconds", type=int, default=120, help="of fuzzing (120)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, in_thread(create_app(service(Path(folder)))) as url:
        broken = fuzz(url, options.programs, options.seconds, options.seed, Path(folder))
        faults = look(url, next(options.programs.glob("lib/*/site-packages/axe_playwright_python/axe.min.js")))
    print(*faults or ["axe-core: no faults"], sep="\n")
    sys.exit(broken or any(fault.startswith(("serious", "critical")) for fault in faults))


def service(folder: Path) -> Service:
    """Return a service of everything there is: an index that is written, items, texts and a stream."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (COUNT, SIDE, SIDE, 3), dtype=np.uint8)
    rows = images.reshape(COUNT, FEATURES).astype(np.float32) / 255
    index = nc.Index(nc.LinearCoder(WIDTH).fit(rows), vectors="float32")
    index.add(rows)
    index.save(folder / "index")
    (folder / "streams").mkdir()
    (folder / "streams" / "china.nest").write_bytes(nc.compress_images([sample_images()["china"][:96, :144]]))
    return Service(
        folder / "index", items=Items("images", list(images)), streams=folder / "streams", writable=True,
        embed=lambda texts: np.array([[len(text), 0, 1] for text in texts], np.float32),
    )  # fmt: skip


def fuzz(url: str, programs: Path, seconds: int, seed: int, folder: Path) -> bool:
    """Return whether schemathesis finds a fault: a 5xx, or what the OpenAPI document does not say."""
    settings = folder / "schemathesis.toml"
    settings.write_text('[parameters]\nname = "china.nest"\n')
    command = [programs.absolute() / "bin/schemathesis", "--config-file", settings, "run", f"{url}/openapi.json"]
    options = ["--max-time", seconds, "--seed", seed, "--exclude-checks", EXCLUDED, "--warnings", "off"]
    return subprocess.run([*map(str, command + options)], cwd=folder).returncode != 0


def look(url: str, axe: Path) -> list[str]:
    """Return what axe-core finds in each view: light and dark, on a phone and on a desk."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        sys.exit("a browser is needed: apt-get install chromium")
    found = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for (view, ready), colors, width in product(VIEWS.items(), ("light", "dark"), (390, 1200)):
            page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=colors)  # type: ignore[arg-type]
            page.goto(f"{url}/#{view}")
            page.locator(ready).first.wait_for()
            found += [f"{fault} ({view}, {colors}, {width} pixels)" for fault in faults_of(page, axe)]
            page.close()
        browser.close()
    return found


def faults_of(page: Page, axe: Path) -> list[str]:
    """Return the faults of a page, with the first element that has each."""
    page.evaluate(axe.read_text())
    violations = page.evaluate("async () => (await axe.run()).violations")
    return [f"{one['impact']}: {one['help']}: {one['nodes'][0]['target'][0]}" for one in violations]


if __name__ == "__main__":
    main()
