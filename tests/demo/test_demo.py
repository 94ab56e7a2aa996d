"""The demo runs from start to end and shows what its captions say."""

import re
from pathlib import Path

import pytest
from rich.console import Console

from nestcode import demo


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("demo") / "report"
    return demo.run(out, steps=600, console=Console(quiet=True))


def table_row(html: str, name: str) -> list[float]:
    cells = re.search(rf"<td>{re.escape(name)}</td>(.*?)</tr>", html)
    assert cells
    return [float(cell) for cell in re.findall(r"<td>([\d.]+)</td>", cells[1])]


def test_the_page_and_its_pictures_are_written(page: Path) -> None:
    assert sorted(path.name for path in page.parent.iterdir()) == [
        "error.png", "filters.png", "index.html", "neighbours.png", "photograph.png",
    ]  # fmt: skip


def test_nested_prefixes_are_near_the_best_and_ordinary_ones_are_not(page: Path) -> None:
    html = page.read_text()
    best = table_row(html, "best possible (principal components)")
    nested = table_row(html, "nested dropout")
    ordinary = table_row(html, "ordinary autoencoder, cut short")
    assert all(error < 1.2 * bound for error, bound in zip(nested[:3], best[:3], strict=True))
    assert all(error > 5 * bound for error, bound in zip(ordinary[:3], best[:3], strict=True))
    assert nested == sorted(nested, reverse=True)


def test_longer_codes_find_more_of_the_same_digit(page: Path) -> None:
    shares = [table_row(page.read_text(), str(length))[0] for length in (4, 8, 16, 32)]
    assert shares == sorted(shares)
    assert shares[-1] > 0.65
