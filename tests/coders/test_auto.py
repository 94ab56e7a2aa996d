"""nestcode.fit: the goal decides, on held-out rows, and the choice is reported, kept and saved."""

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import nestcode as nc
from nestcode import AdaptiveCoder, CellCoder, LinearCoder, ResidualCoder
from nestcode.coders.auto import CANDIDATES, Goal, least_distortion
from nestcode.data import digits
from nestcode.errors import InvalidInput
from nestcode.metrics import distortion, exact_neighbors, recall

Rows = NDArray[np.float32]


def steep(n: int = 4000) -> Rows:
    rows: Rows = (np.random.default_rng(0).standard_normal((n, 30)) / np.arange(1, 31)).astype(np.float32)
    return rows


def clustered(n: int = 4000, seed: int = 0) -> Rows:
    """A flat spectrum with structure that no single direction shows."""
    centers = np.random.default_rng(7).standard_normal((60, 20))
    rng = np.random.default_rng(seed)
    rows: Rows = (5 + centers[rng.integers(0, 60, n)] + 0.3 * rng.standard_normal((n, 20))).astype(np.float32)
    return rows


@cache
def chosen(goal: Goal) -> Any:
    return nc.fit(clustered(), width=24, goal=goal)


def test_distortion_prefers_directions_for_steep_spectra_and_codebooks_for_clusters() -> None:
    assert isinstance(nc.fit(steep(), width=24, goal="distortion"), LinearCoder)
    assert isinstance(chosen("distortion"), ResidualCoder)


def test_search_prefers_the_coarse_quantizer_unless_another_recalls_clearly_more() -> None:
    """`ResidualCoder` may recall more, but takes far longer to fit and to search: it is for codes alone."""
    assert isinstance(nc.fit(steep(), width=64), CellCoder)
    assert isinstance(chosen("search"), CellCoder)


def test_codes_alone_have_the_highest_recall_of_all_candidates() -> None:
    scores = chosen("codes").selection_.scores
    assert scores[type(chosen("codes")).__name__] >= 0.95 * max(scores.values())
    assert "ResidualCoder" in scores


@pytest.mark.parametrize("goal", ["search", "codes", "distortion"])
def test_every_candidate_is_measured(goal: Goal) -> None:
    selection = chosen(goal).selection_
    assert list(selection.scores) == [kind.__name__ for kind in CANDIDATES[goal]]
    assert selection.goal == goal
    assert str(selection).startswith(f"{type(chosen(goal)).__name__}: ")


def test_the_reason_names_the_width_of_shorter_trials() -> None:
    assert "bits" not in chosen("search").selection_.reason
    assert str(nc.fit(steep(600), width=136).selection_).endswith(" (trials at 128 bits)")


def test_squared_errors_are_those_of_fresh_rows() -> None:
    rows, fresh = clustered(), clustered(2000, seed=1)
    coders = LinearCoder(24), CellCoder(24), ResidualCoder(24, beams=1), AdaptiveCoder(24, beams=1)
    for coder in coders:
        expected = distortion(fresh, coder.fit(rows).decode(coder.encode(fresh)))
        assert chosen("distortion").selection_.scores[type(coder).__name__] == pytest.approx(expected, rel=0.1)


def test_recalls_are_those_of_fresh_rows() -> None:
    rows, fresh = clustered(), clustered(800, seed=1)
    queries, items = fresh[:160], fresh[160:]
    exact = exact_neighbors(queries, items, 10)
    for coder in (LinearCoder(24), CellCoder(24)):
        decoded = coder.fit(rows).decode(coder.encode(items))
        expected = recall(exact_neighbors(queries, decoded, 10), exact)
        assert chosen("search").selection_.scores[type(coder).__name__] == pytest.approx(expected, abs=0.04)


def test_the_fit_is_the_chosen_coders_own() -> None:
    coder = chosen("search")
    assert coder.fingerprint == type(coder)(24).fit(clustered()).fingerprint
    assert nc.fit(clustered(), 24, seed=0).selection_ == coder.selection_


def test_the_choice_is_saved_outside_the_fingerprint(tmp_path: Path) -> None:
    coder = chosen("distortion")
    coder.save(tmp_path / "chosen.coder", dtype="float16")
    coder.save(tmp_path / "chosen.coder")
    loaded = nc.load_coder(tmp_path / "chosen.coder")
    assert loaded.selection_ == coder.selection_
    assert loaded.fingerprint == coder.fingerprint
    assert loaded.fit(clustered(500)).selection_ is None


def test_verbose_prints_a_line_per_candidate_and_the_choice(capsys: pytest.CaptureFixture[str]) -> None:
    nc.fit(steep(1000), width=8, verbose=True)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[0] for line in lines] == ["CellCoder", "LinearCoder", "CellCoder:", "fitting"]
    assert all("recall@10 0." in line for line in lines[:-1])
    nc.fit(steep(1000), width=8)
    assert capsys.readouterr() == ("", "")


def test_a_graph_takes_the_coder_for_it() -> None:
    coder = nc.fit(clustered(), width=24, goal="graph")
    assert nc.Index(coder, graph=True).coder is not None
    assert str(coder.selection_) == "LinearCoder: its codes navigate the graphs of an index"


@pytest.mark.parametrize(("goal", "count"), [("search", 400), ("distortion", 40)])
def test_few_rows_get_the_linear_coder(goal: Goal, count: int) -> None:
    coder = nc.fit(clustered(count), width=8, goal=goal)
    assert isinstance(coder, LinearCoder)
    assert coder.selection_ is not None
    assert coder.selection_.scores == {}
    assert "too few" in coder.selection_.reason


@pytest.mark.filterwarnings("ignore:the data fills 0 of")
def test_equal_candidates_are_not_called_worse() -> None:
    coder = nc.fit(np.ones((1000, 4), np.float32), width=8)
    assert coder.selection_ is not None
    assert re.search("recall@10 1, at least as good as .* 1$", coder.selection_.reason)


def test_cosine_compares_by_angle() -> None:
    rows = clustered(1000) * np.random.default_rng(0).uniform(0.1, 10, (1000, 1)).astype(np.float32)
    coder = nc.fit(rows, 16, metric="cosine")
    assert coder.metric_ == "cosine"
    assert coder.selection_ == nc.fit(3 * rows, 16, metric="cosine").selection_


def test_the_least_distortion_of_given_coders() -> None:
    rows = np.random.default_rng(0).permutation(digits()[0].astype(np.float32))[:1000]
    assert least_distortion(rows, [LinearCoder(16), AdaptiveCoder(16)]) == 1
    assert least_distortion(rows, [AdaptiveCoder(16), LinearCoder(16)]) == 0
    assert least_distortion(rows[:40], [LinearCoder(16), AdaptiveCoder(16)]) == 0  # too few to compare


MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "an iterator": (lambda: nc.fit(iter([np.eye(3)]), width=8), "an iterator ends: give an array"),
    "too wide": (lambda: nc.fit(np.eye(3), width=2**40), "width must be at most 1048576 bits, got 1099511627776"),
    "masked": (lambda: nc.fit(np.ma.masked_equal(np.eye(3), 1), width=8), "data must have no masked values: fill them"),
    "width": (lambda: nc.fit(np.eye(3), width=0), "width must be an integer of at least 1, got 0"),
    "metric": (lambda: nc.fit(np.eye(3), 8, metric="l1"), 'metric must be "l2" or "cosine", got \'l1\''),  # type: ignore[arg-type]
    "goal": (lambda: nc.fit(np.eye(3), 8, goal="speed"), '"distortion" or "graph", got'),  # type: ignore[arg-type]
    "no items": (lambda: nc.fit(np.zeros((0, 3)), 8), "fit needs at least 1 item, got none"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_named(mistake: str) -> None:
    call, message = MISTAKES[mistake]
    with pytest.raises(InvalidInput, match=re.escape(message)):
        call()


@pytest.mark.parametrize(
    ("goal", "features", "width"), [("search", 4, 32), ("graph", 64, 384), ("distortion", 40, 256)]
)
def test_width_by_default(goal: Any, features: int, width: int) -> None:
    rows = np.random.default_rng(0).standard_normal((45, features))
    assert nc.fit(rows, goal=goal).width_ == width
