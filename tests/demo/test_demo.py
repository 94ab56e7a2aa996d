"""The demo runs from start to end and shows what its captions say."""

import re
from pathlib import Path

import numpy as np
import pytest
import typer
from rich.console import Console

from nestcode import demo
from nestcode.cli.app import app
from nestcode.demo import search


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("demo") / "report"
    return demo.run(out, steps=100, console=Console(quiet=True)).page


def table_row(html: str, name: str) -> list[float]:
    cells = re.search(rf"<td>{re.escape(name)}</td>(.*?)</tr>", html)
    assert cells
    return [float(cell) for cell in re.findall(r"<td>([\d.]+)</td>", cells[1])]


def test_the_page_and_its_pictures_are_written(page: Path) -> None:
    assert sorted(path.name for path in page.parent.iterdir()) == [
        "bits-error.png", "bits.png", "deep.png", "error.png", "filters.png", "index.html", "neighbours.png",
        "photograph.png",
    ]  # fmt: skip


def test_nested_prefixes_are_near_the_best_and_ordinary_ones_are_not(page: Path) -> None:
    html = page.read_text()
    best = table_row(html, "best possible (principal components)")
    nested = table_row(html, "nested dropout")
    ordinary = table_row(html, "ordinary autoencoder, cut short")
    assert all(error < 1.001 * bound for error, bound in zip(nested, best, strict=True))
    assert all(error > 5 * bound for error, bound in zip(ordinary[:3], best[:3], strict=True))
    assert nested == sorted(nested, reverse=True)


def test_longer_codes_are_nearer_and_find_more_of_the_same_digit(page: Path) -> None:
    html = page.read_text()
    bits = html.index('<h2 id="from-units')
    errors = [table_row(html[bits:], str(length))[0] for length in (0, 16, 64, 256, 1024)]
    assert errors == sorted(errors, reverse=True)
    start = html.index('<h2 id="as-many-bits')
    asymmetric, hamming = zip(*(table_row(html[start:], str(length)) for length in (8, 16, 32, 64)), strict=True)
    assert list(asymmetric) == sorted(asymmetric)
    assert asymmetric[-1] > 0.9
    assert all(ours > theirs for ours, theirs in zip(asymmetric, hamming, strict=True))


def test_more_effort_finds_more_until_all_is_found(page: Path) -> None:
    html = page.read_text()
    rows = re.findall(r"<td>([\d.]+) %</td><td>([\d.]+)</td><td>[\d,]+</td>", html)
    shares, found = zip(*(map(float, row) for row in rows), strict=True)
    assert len(rows) == 6
    assert list(shares) == sorted(shares)
    assert list(found) == sorted(found)
    assert found[-1] == 1
    assert found[3] > 0.9


def test_a_cut_stream_is_better_than_a_cut_file(page: Path) -> None:
    rows = re.findall(r"<td>[\d,]+</td><td>([\d.]+)</td><td>([\d.]+)</td><td>([\d.]+)</td>", page.read_text())
    ours, theirs = ([float(row[column]) for row in rows] for column in (1, 2))
    assert len(rows) == 5
    assert ours == sorted(ours)
    assert all(a > b for a, b in zip(ours, theirs, strict=True))


def test_a_square_is_found_beside_others_that_do_not_overlap() -> None:
    query = np.array([0, 100, 100])
    near = np.array([[0, 103, 97], [1, 100, 100], [0, 100, 124], [1, 90, 110], [0, 0, 0], [0, 90, 124]])
    found = search._apart(query, near)
    assert found[:4].tolist() == [[0, 100, 100], [1, 100, 100], [0, 100, 124], [0, 0, 0]]
    assert (found[4:] == query).all()
    assert len(found) == search.SHOWN + 1


def test_squares_are_means_of_pixels_at_their_places() -> None:
    photos = [np.random.default_rng(0).integers(0, 256, (50, 64, 3), dtype=np.uint8) for _ in range(2)]
    rows, places = search.squares(photos)
    assert len(rows) == len(places) == 2 * 9 * 14
    for row, (photo, y, x) in zip(rows[::50], places[::50], strict=True):
        square = photos[photo][y : y + search.SIDE, x : x + search.SIDE].astype(float) / 255
        small = [[square[i : i + 3, j : j + 3].mean(axis=(0, 1)) for j in range(0, 24, 3)] for i in range(0, 24, 3)]
        np.testing.assert_allclose(row.reshape(8, 8, 3), small, rtol=1e-5)


def test_what_to_try_next_are_commands() -> None:
    commands = typer.main.get_group(app).commands
    for _, line in demo.NEXT:
        program, command, *_ = line.split()
        assert program == "nestcode"
        assert command in commands
    assert len(demo.NEXT) == 3
