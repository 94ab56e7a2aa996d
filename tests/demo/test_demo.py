"""The demo runs from start to end, and its tables support its captions."""

import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
import typer
from rich.console import Console

from nestcode import demo
from nestcode.cli.app import app
from nestcode.demo import bits, ordering, search
from nestcode.serve import Items, Service


@pytest.fixture(scope="module")
def tour(tmp_path_factory: pytest.TempPathFactory) -> demo.Tour:
    out = tmp_path_factory.mktemp("demo") / "report"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "torch", None)  # the demo must not import it
        patch.setattr(search, "STEP", 3 * search.STEP)  # a ninth of the queries
        patch.setattr(search, "START", (0, 10, 7))
        patch.setattr(ordering, "PATCHES", 4_000)
        patch.setattr(bits, "TRAIN", 2_500)
        patch.setattr(bits, "TEST", 500)
        return demo.run(out, steps=100, console=Console(quiet=True))


@pytest.fixture(scope="module")
def page(tour: demo.Tour) -> Path:
    return tour.page


def table_row(html: str, name: str) -> list[float]:
    cells = re.search(rf"<td>{re.escape(name)}</td>(.*?)</tr>", html)
    assert cells
    return [float(cell) for cell in re.findall(r"<td>([\d.]+)</td>", cells[1])]


def test_the_page_and_its_images_are_written(page: Path) -> None:
    assert sorted(path.name for path in page.parent.iterdir()) == [
        "bits-error.png", "bits.png", "error.png", "explorer", "filters.png", "index.html", "neighbors.png",
        "ordering.png", "refined.png",
    ]  # fmt: skip


def test_the_explorer_is_offered_on_the_data_of_the_tour(tour: demo.Tour) -> None:
    """The command has the options of `nestcode serve`, and what it names is served."""
    program, command, index, items_option, items, streams_option, streams = shlex.split(tour.explore)
    assert (program, command, items_option, streams_option) == ("nestcode", "serve", "--items", "--streams")
    service = Service(index, items=Items.open(Path(items)), streams=streams)
    served = service.describe()
    assert service.items is not None
    assert served["count"] == len(service.items) > 10_000
    assert served["image"] == {"shape": [8, 8], "layout": "channels last"}
    assert list(served["streams"]) == ["china.nest"]
    service.close()


def test_nested_prefixes_reach_the_optimum_and_truncated_ones_do_not(page: Path) -> None:
    html = page.read_text()
    best = table_row(html, "optimum (PCA)")
    nested = table_row(html, "nested dropout")
    truncated = table_row(html, "standard autoencoder, truncated")
    assert all(error < 1.001 * bound for error, bound in zip(nested, best, strict=True))
    assert all(error > 5 * bound for error, bound in zip(truncated[:3], best[:3], strict=True))
    assert nested == sorted(nested, reverse=True)


def test_longer_prefixes_have_lower_errors_and_a_higher_precision(page: Path) -> None:
    html = page.read_text()
    bits = html.index('<h2 id="from-units')
    errors = [table_row(html[bits:], str(length))[0] for length in (0, 16, 64, 256, 1024)]
    assert errors == sorted(errors, reverse=True)
    start = html.index('<h2 id="search-with-prefixes')
    asymmetric, hamming = zip(*(table_row(html[start:], str(length)) for length in (8, 16, 32, 64)), strict=True)
    assert list(asymmetric) == sorted(asymmetric)
    assert asymmetric[-1] > 0.9
    assert all(ours > theirs for ours, theirs in zip(asymmetric, hamming, strict=True))


def test_recall_rises_with_the_candidate_budget_up_to_1(page: Path) -> None:
    html = page.read_text()
    rows = re.findall(r"<td>([\d.]+) %</td><td>([\d.]+)</td><td>[\d,]+</td>", html)
    shares, recalls = zip(*(map(float, row) for row in rows), strict=True)
    assert len(rows) == 6
    assert list(shares) == sorted(shares)
    assert list(recalls) == sorted(recalls)
    assert recalls[-1] == 1
    assert recalls[3] > 0.9


def test_a_truncated_stream_has_a_higher_psnr_than_a_truncated_jpeg(page: Path) -> None:
    rows = re.findall(r"<td>[\d,]+</td><td>([\d.]+)</td><td>([\d.]+)</td><td>([\d.]+)</td>", page.read_text())
    ours, theirs = ([float(row[column]) for row in rows] for column in (1, 2))
    assert len(rows) == 5
    assert ours == sorted(ours)
    assert all(a > b for a, b in zip(ours, theirs, strict=True))


def test_the_learned_decoder_has_a_higher_psnr_at_every_length(page: Path) -> None:
    html = page.read_text()
    html = html[html.index('<h2 id="a-learned-decoder') :]
    plain, refined = table_row(html, "plain"), table_row(html, "refined")
    assert plain == sorted(plain)
    assert all(ours > theirs for ours, theirs in zip(refined, plain, strict=True))


def test_the_loss_of_whole_codes_and_its_gradient_are_those_of_autograd() -> None:
    import torch

    rng = np.random.default_rng(0)
    X, weights = rng.standard_normal((40, 6)), rng.standard_normal((2, 6, 3))
    rows, encoder, decoder = (torch.from_numpy(part) for part in (X, *weights))
    for part in (encoder, decoder):
        part.requires_grad_()
    expected = (rows - rows @ encoder @ decoder.T).square().sum() / len(rows)
    expected.backward()
    loss, gradient = ordering.whole_code_loss(weights.ravel(), X.T @ X / len(X))
    assert loss == pytest.approx(expected.item())
    assert encoder.grad is not None
    assert decoder.grad is not None
    np.testing.assert_allclose(gradient.reshape(weights.shape), [encoder.grad.numpy(), decoder.grad.numpy()])


def test_patches_shown_do_not_overlap() -> None:
    query = np.array([0, 100, 100])
    near = np.array([[0, 103, 97], [1, 100, 100], [0, 100, 124], [1, 90, 110], [0, 0, 0], [0, 90, 124]])
    found = search.without_overlap(query, near)
    assert found[:4].tolist() == [[0, 100, 100], [1, 100, 100], [0, 100, 124], [0, 0, 0]]
    assert (found[4:] == query).all()
    assert len(found) == search.SHOWN + 1


def test_patches_are_means_of_pixels_at_their_places() -> None:
    images = [np.random.default_rng(0).integers(0, 256, (50, 64, 3), dtype=np.uint8) for _ in range(2)]
    rows, places = search.all_patches(images)
    assert len(rows) == len(places) == 2 * 9 * 14
    for row, (image, y, x) in zip(rows[::50], places[::50], strict=True):
        square = images[image][y : y + search.SIDE, x : x + search.SIDE].astype(float) / 255
        small = [[square[i : i + 3, j : j + 3].mean(axis=(0, 1)) for j in range(0, 24, 3)] for i in range(0, 24, 3)]
        np.testing.assert_allclose(row.reshape(8, 8, 3), small, rtol=1e-5)


def test_next_steps_are_commands() -> None:
    commands = typer.main.get_group(app).commands
    for _, line in demo.NEXT:
        program, command, *_ = line.split()
        assert program == "nestcode"
        assert command in commands
    assert len(demo.NEXT) == 3
