"""`<nest-image>` on a static page, in a real browser, served as `python -m http.server` serves it."""

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nestcode.images import compress_images, decompress_images
from tests.images.samples import crop

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PAGE = """<!doctype html><title>Images</title>
<script>
  window.frames_ = [];
  document.addEventListener("frame", (event) => window.frames_.push(event.detail.bytes), true);
</script>
<script type="module" src="nest/nest-image.js"></script>
<nest-image id="a" src="two.nest" budget="BUDGET" alt="A crop"></nest-image>
<nest-image id="b" src="two.nest" name="gray" alt="In gray"></nest-image>
<nest-image id="c" src="damaged.nest"></nest-image>
<nest-image id="d" src="missing.nest"></nest-image>
"""
IMAGES = {"color": crop((150, 170, 3)), "gray": crop((90, 60))}
DATA = compress_images(list(IMAGES.values()), names=list(IMAGES))
BUDGET = 3000
# The pixels that a canvas shows, as RGBA.
SHOWN = """async (id) => {
  const canvas = document.getElementById(id).shadowRoot.querySelector("canvas");
  if (!canvas.width) return "";
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const digest = await crypto.subtle.digest("SHA-256", data);
  return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, "0")).join("");
}"""


@pytest.fixture(scope="module")
def page(site: tuple[Path, str]) -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("a browser is needed: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    folder, address = site
    damaged = bytearray(DATA)
    damaged[len(DATA) - 2000] ^= 1
    (folder / "two.nest").write_bytes(DATA)
    (folder / "damaged.nest").write_bytes(damaged)
    (folder / "index.html").write_text(PAGE.replace("BUDGET", str(BUDGET)))
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        tab = started.new_page(viewport={"width": 400, "height": 900})
        tab.set_default_timeout(120_000)
        tab.on("pageerror", lambda error: pytest.fail(str(error)))
        tab.goto(f"{address}/index.html")
        yield tab
        started.close()


def rgba(image: str, size: int) -> str:
    """A checksum of an image decoded by Python, as a canvas has it."""
    decoded = decompress_images(DATA[:size])[list(IMAGES).index(image)]
    colors = decoded if decoded.ndim == 3 else np.stack([decoded] * 3, axis=2)
    return hashlib.sha256(np.pad(colors, [(0, 0), (0, 0), (0, 1)], constant_values=255).tobytes()).hexdigest()


def wait_for(page: Any, element: str, image: str, size: int) -> None:
    due = rgba(image, size)
    for _ in range(1200):  # two minutes, as of the browser
        if page.evaluate(SHOWN, element) == due:
            return
        page.wait_for_timeout(100)
    pytest.fail(f"{element} does not show the first {size} bytes of {image}")


def test_elements_show_what_python_decodes(page: Any) -> None:
    wait_for(page, "a", "color", BUDGET)
    wait_for(page, "b", "gray", len(DATA))
    assert BUDGET in page.evaluate("window.frames_")
    assert page.get_by_role("img", name="A crop").count() == 1


def test_a_budget_may_grow_and_shrink(page: Any) -> None:
    for budget in (6000, 1200):
        page.evaluate(f"document.getElementById('a').setAttribute('budget', {budget})")
        wait_for(page, "a", "color", budget)


def test_what_precedes_damage_is_shown_and_the_error_is_reported(page: Any) -> None:
    page.wait_for_function("document.getElementById('c').error !== null && document.getElementById('d').error !== null")
    error = page.evaluate("document.getElementById('c').error.message")
    assert "does not match its checksum" in error
    assert page.evaluate("document.getElementById('c').shadowRoot.querySelector('canvas').width") == 170
    assert "got status 404" in page.evaluate("document.getElementById('d').error.message")
