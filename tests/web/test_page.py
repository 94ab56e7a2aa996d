"""`<nest-image>` on a static page, in a real browser, served as `python -m http.server` serves it."""

import base64
import hashlib
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nestcode.cli.images.viewer import viewer_page
from nestcode.images import compress_images, decompress_images
from tests.images.samples import crop

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PAGE = """<!doctype html><title>Images</title>
<script>
  window.frames_ = [];
  window.errors_ = [];
  document.addEventListener("frame", (event) => window.frames_.push(event.detail.bytes), true);
  document.addEventListener("error", (event) => window.errors_.push(event.target.id), true);
</script>
<script type="module" src="nest/nest-image.js"></script>
<nest-image id="a" src="two.nest" budget="BUDGET" alt="A crop"></nest-image>
<nest-image id="b" src="two.nest" name="gray" alt="In gray"></nest-image>
<nest-image id="c" src="damaged.nest"></nest-image>
<nest-image id="d" src="missing.nest" alt="A file that is missing"></nest-image>
<nest-image id="e" src="two.nest" name="other" alt="A name that is missing"></nest-image>
<nest-image id="f" src="range/large.nest" budget="auto" width="75" height="52" alt="Small on the screen"></nest-image>
<div style="height: 3000px"></div>
<nest-image id="g" src="lazy.nest" poster="POSTER" loading="lazy" alt="Below the page"></nest-image>
<nest-image id="h" src="two.nest" poster="STALE" alt="A file that changed"></nest-image>
"""
IMAGES = {"color": crop((150, 170, 3)), "gray": crop((90, 60))}
DATA = compress_images(list(IMAGES.values()), names=list(IMAGES))
LARGE = compress_images([crop((420, 600, 3))])
BUDGET, POSTER = 3000, 1000  # bytes
REQUESTED: list[tuple[str, str | None]] = []  # addresses and ranges of bytes
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
    (folder / "lazy.nest").write_bytes(DATA)
    (folder / "large.nest").write_bytes(LARGE)
    (folder / "damaged.nest").write_bytes(damaged)
    starts = {"POSTER": DATA[:POSTER], "STALE": LARGE[:POSTER]}
    text = PAGE.replace("BUDGET", str(BUDGET))
    for name, start in starts.items():
        text = text.replace(name, "data:;base64," + base64.b64encode(start).decode())
    (folder / "index.html").write_text(text)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        tab = started.new_page(viewport={"width": 400, "height": 900})
        tab.set_default_timeout(120_000)
        tab.on("pageerror", lambda error: pytest.fail(str(error)))
        tab.on("request", lambda request: REQUESTED.append((request.url, request.headers.get("range"))))
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


def test_alt_is_shown_where_an_image_is_missing(page: Any) -> None:
    """And an event is dispatched once; an image that is shown hides it."""
    page.wait_for_function("['c', 'd', 'e'].every((id) => window.errors_.includes(id))")
    for element in ("d", "e"):
        assert page.locator(f"#{element} span").is_visible()
        assert page.locator(f"#{element}").bounding_box()["height"] > 10
    assert page.locator("#d span").inner_text() == "A file that is missing"
    assert "there is no image other among 2" in page.evaluate("document.getElementById('e').error.message")
    assert not page.locator("#a span").is_visible()
    assert sorted(page.evaluate("window.errors_")) == ["c", "d", "e"]
    page.evaluate("document.getElementById('e').setAttribute('name', 'gray')")
    wait_for(page, "e", "gray", len(DATA))
    assert not page.locator("#e span").is_visible()


def test_an_automatic_budget_is_what_the_size_on_the_screen_needs(page: Any) -> None:
    """An image of 600 x 420 pixels, shown 75 wide and later twice as wide."""

    def last() -> int:
        ranges = [re.fullmatch(r"bytes=\d+-(\d+)", given or "") for url, given in REQUESTED if "large" in url]
        return max(int(found[1]) for found in ranges if found)

    page.wait_for_function("document.getElementById('f').shadowRoot.querySelector('canvas').width === 600")
    assert page.locator("#f").bounding_box()["width"] == 75
    small = last()
    page.evaluate("document.getElementById('f').setAttribute('width', 300)")
    for _ in range(100):
        if last() > small:
            break
        page.wait_for_timeout(50)
    assert small < last() < len(LARGE) - 1
    assert last() > 300 * 210 / 8


def test_a_lazy_image_shows_its_poster_and_loads_when_it_is_near(page: Any) -> None:
    wait_for(page, "g", "color", POSTER)
    assert not any("lazy" in url for url, _ in REQUESTED)
    page.evaluate("document.getElementById('g').scrollIntoView()")
    wait_for(page, "g", "color", len(DATA))
    assert [given for url, given in REQUESTED if "lazy" in url] == [f"bytes={POSTER}-"]


def test_a_poster_of_another_file_gives_way_to_the_file(page: Any) -> None:
    wait_for(page, "h", "color", len(DATA))
    assert page.evaluate("document.getElementById('h').error") is None


def test_a_page_of_a_stream_opens_as_a_file(page: Any, tmp_path: Path) -> None:
    """With its decoder; the slider shows fewer bytes, and another file can be opened."""
    (tmp_path / "page.html").write_text(viewer_page(DATA, "<Two> & TITLE SCRIPT"))
    (tmp_path / "other.nest").write_bytes(LARGE)
    tab = page.context.browser.new_page(viewport={"width": 360, "height": 640})
    tab.set_default_timeout(120_000)
    tab.on("pageerror", lambda error: pytest.fail(str(error)))
    tab.goto((tmp_path / "page.html").as_uri())
    assert tab.title() == "<Two> & TITLE SCRIPT"
    tab.wait_for_function("document.getElementById('canvas').width === 170")
    tab.get_by_label("Image").select_option("gray")
    tab.wait_for_function("document.getElementById('canvas').width === 60")
    assert f"{len(DATA):,} of {len(DATA):,} bytes" in tab.locator("output").inner_text()
    tab.get_by_label("Bytes").fill("0")
    tab.wait_for_function(f"!document.querySelector('output').textContent.startsWith('{len(DATA):,} of')")
    assert not tab.get_by_role("alert").is_visible()
    tab.get_by_label("Open").set_input_files(tmp_path / "other.nest")
    tab.wait_for_function("document.getElementById('canvas').width === 600")
    assert tab.evaluate("document.documentElement.scrollWidth") <= 360
    tab.close()
