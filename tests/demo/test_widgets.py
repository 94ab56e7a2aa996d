"""The scripts of the page, run in a real browser."""

import re
import shutil
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from nestcode.demo.widgets import GAP, Frame, lookup, slider
from nestcode.report import Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
SIDE, STEP, ROWS, COLUMNS = 8, 4, 5, 7
RNG = np.random.default_rng(0)
FOUND = RNG.integers(0, [2, 20, 20], (2, ROWS, COLUMNS, 3, 3))  # image, y and x


def markup() -> str:
    gray = [np.full((24, 32, 3), 40 * shade, dtype=np.uint8) for shade in range(6)]
    frames = [Frame(f"<{place}>", {f"left {place}": gray[place], "right": gray[0]}) for place in range(4)]
    page = Page("Widgets", "Two of them.")
    page.html_block(slider("arrival", "bytes", frames, start=2))
    page.html_block(lookup("alike", "squares", gray[:2], FOUND, side=SIDE, step=STEP, start=(1, 2, 3)))
    return page.html()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("a browser is needed: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    path = tmp_path_factory.mktemp("page") / "index.html"
    path.write_text(markup())
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        tab = started.new_page(viewport={"width": 400, "height": 900})
        tab.on("pageerror", lambda error: pytest.fail(str(error)))
        tab.goto(path.as_uri())
        yield tab
        started.close()


def shown(browser: Any) -> list[str]:
    return [str(text) for text in browser.locator("#arrival .text:visible").all_inner_texts()]


def squares(browser: Any) -> list[list[int]]:
    rects = browser.locator("#alike rect").all()
    places = [[int(rect.get_attribute(side)) for side in "xy"] for rect in rects]
    tiles = [tile.get_attribute("viewBox") for tile in browser.locator("#alike .tiles svg").all()]
    assert tiles == [f"{x} {y} {SIDE} {SIDE}" for x, y in places]
    return places


def expected(image: int, row: int, column: int) -> list[list[int]]:
    return [[x + (32 + GAP) * number, y] for number, y, x in FOUND[image, row, column].tolist()]


def test_without_scripts_the_start_state_is_shown() -> None:
    html = markup()
    assert re.findall(r'class="frame"( hidden)?><div class="text">([^<]+)<', html) == [
        (" hidden", "&lt;0&gt;"), (" hidden", "&lt;1&gt;"), ("", "&lt;2&gt;"), (" hidden", "&lt;3&gt;"),
    ]  # fmt: skip
    rects = re.findall(r'<rect x="(\d+)" y="(\d+)"', html)
    assert [[int(x), int(y)] for x, y in rects] == expected(1, 2, 3)
    assert "[[" not in html


def test_the_slider_shows_one_frame_and_plays_to_the_end(browser: Any) -> None:
    assert shown(browser) == ["<2>"]
    browser.locator("#arrival input").focus()
    browser.keyboard.press("ArrowLeft")
    assert shown(browser) == ["<1>"]
    browser.locator("#arrival button").click()
    assert shown(browser) == ["<0>"]
    browser.wait_for_function("document.querySelector('#arrival button').textContent === 'Play'")
    assert shown(browser) == ["<3>"]


def test_pointing_and_arrow_keys_show_the_squares_found(browser: Any) -> None:
    assert squares(browser) == expected(1, 2, 3)
    stage = browser.locator("#alike .stage")
    stage.scroll_into_view_if_needed()
    box = stage.bounding_box()
    scale = box["width"] / (2 * 32 + GAP)
    for image, row, column in ((0, 0, 0), (0, 3, 6), (1, 4, 0), (1, 1, 5)):
        x, y = image * (32 + GAP) + column * STEP + SIDE / 2, row * STEP + SIDE / 2
        browser.mouse.move(box["x"] + scale * x, box["y"] + scale * y)
        assert squares(browser) == expected(image, row, column)
    stage.focus()
    browser.keyboard.press("ArrowDown")
    browser.keyboard.press("ArrowRight")
    assert squares(browser) == expected(1, 2, 6)
    for _ in range(3 + COLUMNS):
        browser.keyboard.press("ArrowLeft")
    assert squares(browser) == expected(0, 2, 3)


def test_nothing_is_wider_than_a_small_screen(browser: Any) -> None:
    assert browser.evaluate("document.documentElement.scrollWidth") <= 400
