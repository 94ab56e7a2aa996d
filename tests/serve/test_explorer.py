"""The explorer page in a real browser: clicks, drags, keys, errors, and no request to elsewhere."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import expect, sync_playwright

import nestcode as nc
from nestcode.data import patches, sample_images
from nestcode.serve import Items, Service, create_app, in_thread
from tests.serve.conftest import PATIENCE

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
SIDE, COUNT, TOKEN = 16, 400, "a token of many letters"
expect.set_options(timeout=1000 * PATIENCE)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an index of patches, their images and a stream."""
    place = tmp_path_factory.mktemp("explorer")
    cut = patches(list(sample_images().values()), size=SIDE, n=COUNT, rng=np.random.default_rng(0))
    np.save(place / "items.npy", cut)
    rows = cut.reshape(COUNT, -1).astype(np.float32) / 255
    index = nc.Index(nc.LinearCoder(32).fit(rows))
    index.add(rows, attributes={"even": np.arange(COUNT) % 2 == 0, "<b>": [f"<i>{i}" for i in range(COUNT)]})
    index.save(place / "index")
    (place / "streams").mkdir()
    (place / "streams" / "china.nest").write_bytes(nc.compress_images([sample_images()["china"][:64, :96]]))
    return place


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("a browser is needed: apt-get install chromium")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def url(place: Path) -> Iterator[str]:
    service = Service(place / "index", items=Items.open(place / "items.npy"), streams=place / "streams")
    with in_thread(create_app(service)) as address:
        yield address


@pytest.fixture
def page(browser: Any, url: str) -> Iterator[Any]:
    opened = browser.new_page(viewport={"width": 390, "height": 900})
    opened.set_default_timeout(1000 * PATIENCE)
    asked: list[str] = []
    opened.on("pageerror", lambda error: pytest.fail(str(error)))
    opened.on("request", lambda request: asked.append(request.url))
    yield opened
    assert opened.evaluate("document.documentElement.scrollWidth") <= 390  # nothing is wider than a phone
    assert [one for one in asked if not one.startswith((url, "blob:", "data:"))] == []  # nothing from elsewhere
    opened.close()


def test_the_slider_shrinks_a_neighborhood_to_the_query(page: Any, url: str, place: Path) -> None:
    page.goto(url)
    page.locator("#found img").first.wait_for()
    index = nc.Index.open(place / "index")
    counts = index.nested(index.reconstruct(3 * COUNT // 4)).count
    slider = page.locator("#slider")
    for length in (0, 1, int(slider.get_attribute("max"))):
        slider.fill(str(length))
        expect(page.locator("#size")).to_have_text(re.compile(f"^{counts[length]} of {COUNT} "))
        assert page.locator("#bits i.kept").count() == length
    slider.focus()
    page.keyboard.press("ArrowLeft")
    assert page.locator("#length").inner_text() == f"{int(slider.get_attribute('max')) - 1} of 32 bits"
    assert page.locator("#found-title").inner_text().endswith("µs")


def test_a_click_on_a_result_makes_it_the_query(page: Any, url: str) -> None:
    page.goto(url)
    second = page.locator("#found button").nth(1)
    second.wait_for()
    item = second.get_attribute("title").removeprefix("Item ")
    second.click()
    expect(page.locator("#found button").first).to_have_attribute("title", f"Item {item}")
    assert page.locator("#item").input_value() == item
    page.locator("#item").fill("99999")
    page.keyboard.press("Enter")
    page.locator("#status.error").wait_for()
    assert "99999" in page.locator("#status").inner_text()


def test_a_condition_limits_what_is_found_and_hits_have_their_columns(page: Any, url: str) -> None:
    page.goto(url)
    page.locator("#found img").first.wait_for()
    assert "even (bool), <b> (string)" in page.locator("#known-columns").inner_text()
    for condition, rest in (("even = TRUE", 0), ("NOT even", 1)):
        page.locator("#condition").fill(condition)
        with page.expect_response(re.compile("/v1/search$")):
            page.keyboard.press("Enter")
        expect(page.locator("#found .attributes b").first).to_have_text("even")
        expect(page.locator("#found .attributes > span").first).to_have_text(f"even {str(not rest).lower()}")
        for button in page.locator("#found button").all():
            item = int(button.get_attribute("title").removeprefix("Item "))
            assert item % 2 == rest
            assert f"<b> <i>{item}" in button.inner_text()
    page.locator("#condition").fill("odd = TRUE")
    page.keyboard.press("Enter")
    page.locator("#status.error").wait_for()
    assert "got 'odd' at character 1" in page.locator("#status").inner_text()


def test_show_asks_again_for_an_image_that_was_chosen(page: Any, url: str, tmp_path: Path) -> None:
    Image.fromarray(sample_images()["flower"]).save(tmp_path / "mine.png")
    page.goto(url)
    page.locator("#found img").first.wait_for()
    page.locator("#file").set_input_files(tmp_path / "mine.png")
    mine = page.locator("#query img[alt='Your image']")
    mine.wait_for()
    for _ in range(2):
        with page.expect_response(re.compile("/v1/search$")):
            page.get_by_role("button", name="Show").click()
        assert mine.is_visible()
    page.locator("#item").fill("3")
    page.get_by_role("button", name="Show").click()
    page.locator("#query img[alt='Item 3']").wait_for()


def test_the_coder_is_drawn(page: Any, url: str) -> None:
    page.goto(f"{url}/#coder")
    page.locator("#directions canvas").first.wait_for()
    assert page.locator("#errors path").get_attribute("d").count("L") == 32
    page.get_by_role("link", name="Neighborhoods").click()
    page.locator("#neighborhoods").wait_for()
    assert not page.locator("#coder").is_visible()


def test_an_image_sharpens_with_its_bytes(page: Any, url: str, place: Path) -> None:
    page.goto(f"{url}/#progressive")
    expect(page.locator("#webp-caption")).to_have_text(re.compile("bytes"))
    page.locator("#budget").fill("1000")
    expect(page.locator("#ours-caption")).to_have_text(re.compile("identical$"))
    pixels = "document.querySelector('#ours').getContext('2d').getImageData(0, 0, 96, 64).data"
    drawn = page.evaluate(f"[...{pixels}].filter((_, i) => i % 4 < 3)")
    decoded = nc.decompress_images((place / "streams" / "china.nest").read_bytes())[0]
    assert drawn == decoded.ravel().tolist()
    page.locator("#link").select_option("125000")
    page.locator("#play").click()
    size = f"{(place / 'streams' / 'china.nest').stat().st_size:,}"
    expect(page.locator("#bytes")).to_have_text(f"{size} of {size}")


def test_a_token_is_asked_for_and_what_is_missing_is_said(browser: Any, place: Path) -> None:
    with in_thread(create_app(Service(place / "index"), token=TOKEN)) as url:
        page = browser.new_page()
        page.goto(url)
        page.locator("#token").fill(TOKEN)
        page.keyboard.press("Enter")
        page.locator("#found .text").first.wait_for()
        assert not page.locator("#login").is_visible()
        page.get_by_role("link", name="Progressive").click()
        page.get_by_text("This server has no streams").wait_for()
        page.close()
