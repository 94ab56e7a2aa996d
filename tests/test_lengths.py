"""Length distributions: the paper's probabilities, exact sampling, refused arguments."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import chi2

from nestcode.errors import InvalidInput
from nestcode.lengths import Beyond, Empirical, Full, Geometric, Lengths, LogUniform, Mixture, Uniform

CHOICES: list[Lengths] = [
    Full(),
    Geometric(0.9),
    Geometric(0.5),
    Uniform(),
    LogUniform(),
    Empirical([3, 0, 1, 1]),
    Empirical([0, 0, 0, 0, 0, 0, 0, 1]),
    Mixture([Geometric(0.8), Uniform()], weights=[1, 2]),
    Mixture([Empirical([1]), LogUniform()]),
    Empirical([2, 1, 1], lengths=[5, 1, 40]),
    Beyond(Geometric(0.9), 3),
    Beyond(Uniform(), 7),
    Mixture([Beyond(LogUniform(), 1), Uniform()]),
]
WIDTHS = [1, 2, 7, 8, 100]


@pytest.mark.parametrize("lengths", CHOICES, ids=repr)
@pytest.mark.parametrize("width", WIDTHS)
def test_survival_pmf_cdf_and_mean_agree(lengths: Lengths, width: int) -> None:
    pmf, survival = lengths.pmf(width), lengths.survival(width)
    assert pmf.shape == survival.shape == (width,)
    assert (pmf >= 0).all()
    assert survival[0] == 1
    np.testing.assert_allclose(pmf.sum(), 1)
    np.testing.assert_allclose(survival, pmf[::-1].cumsum()[::-1], atol=1e-15)
    np.testing.assert_allclose(lengths.cdf(width), pmf.cumsum(), atol=1e-12)
    np.testing.assert_allclose(lengths.mean(width), pmf @ np.arange(1, width + 1))


@pytest.mark.parametrize("lengths", CHOICES, ids=repr)
@pytest.mark.parametrize("width", WIDTHS)
def test_sampling_is_exact(lengths: Lengths, width: int) -> None:
    """A chi-square test with a fixed seed; lengths expected too rarely for it are pooled."""
    n, pmf = 40_000, lengths.pmf(width)
    draws = lengths.sample(n, width, np.random.default_rng(0))
    assert draws.min() >= 1
    assert draws.max() <= width
    seen = np.bincount(draws, minlength=width + 1)[1:]
    assert (seen[pmf == 0] == 0).all()
    often = n * pmf >= 5
    observed = np.append(seen[often], seen[~often].sum())
    expected = np.append(n * pmf[often], n * pmf[~often].sum())
    observed, expected = observed[expected >= 5], expected[expected >= 5]
    statistic = ((observed - expected) ** 2 / expected).sum()
    assert len(expected) == 1 or chi2.sf(statistic, df=len(expected) - 1) > 1e-4


def test_probabilities_printed_in_the_paper() -> None:
    """Figure 1 of the paper: Geom(0.9) and 100 units."""
    survival = Geometric(0.9).survival(100)
    assert round(float(survival[50]), 3) == 0.005  # an index greater than 50
    assert round(float(survival[99]), 5) == 0.00003  # the 100th unit
    assert Geometric(0.9).pmf(100)[99] == survival[99]  # draws beyond the width keep everything


@given(st.floats(0.05, 0.99), st.integers(1, 30), st.integers(1, 30))
def test_geometric_lengths_are_memoryless(decay: float, i: int, j: int) -> None:
    survival = Geometric(decay).survival(60)
    np.testing.assert_allclose(survival[i + j - 1] / survival[i - 1], decay**j, rtol=1e-9)


def test_octaves_of_log_uniform_lengths_are_equally_likely() -> None:
    octaves = np.split(LogUniform().pmf(1023), [1, 3, 7, 15, 31, 63, 127, 255, 511])
    np.testing.assert_allclose([octave.sum() for octave in octaves], 0.1)


def test_empirical_lengths_have_the_observed_frequencies() -> None:
    log = np.array([2, 2, 5, 9])
    assert Empirical.from_samples(log).pmf(9).tolist() == [0, 0.5, 0, 0, 0.25, 0, 0, 0, 0.25]
    assert Empirical.from_samples(log).pmf(5).tolist() == [0, 0.5, 0, 0, 0.5]  # faster receivers get everything
    assert Empirical.from_samples(log).pmf(11).tolist() == [0, 0.5, 0, 0, 0.25, 0, 0, 0, 0.25, 0, 0]


@pytest.mark.parametrize(
    ("lengths", "width", "covered"),
    [
        (Geometric(0.5), 5000, True),  # also where 0.5 to the 5,000 is no longer a number
        (Uniform(), 1000, True),
        (LogUniform(), 1000, True),
        (Empirical([1, 1, 1]), 3, True),
        (Empirical([1, 1, 1]), 2, True),
        (Empirical([1, 1, 1]), 4, False),
        (Empirical([1, 0, 1]), 3, False),
        (Empirical([1, 0, 1]), 2, True),  # a draw beyond the width keeps everything
        (Empirical([0, 0, 1]), 3, False),
        (Empirical([1, 1e-300]), 2, True),
        (Mixture([Empirical([1, 0]), Empirical([0, 1])]), 2, True),
        (Mixture([Empirical([1, 0]), Uniform()], weights=[1, 0]), 2, False),
        (Beyond(Geometric(0.5), 0), 5000, True),
        (Beyond(Geometric(0.5), 1), 5000, False),
        (Mixture([Beyond(Geometric(0.5), 2), Empirical([1, 1])]), 5000, True),
    ],
)
def test_covers(lengths: Lengths, width: int, covered: bool) -> None:
    assert lengths.covers(width) is covered


def test_large_observed_lengths_take_little_memory() -> None:
    log = Empirical.from_samples([5_000_000_000, 3, 5_000_000_000])
    assert repr(log) == "Empirical(weights=(1.0, 2.0), lengths=(3, 5000000000))"
    np.testing.assert_allclose(log.pmf(4), [0, 0, 1 / 3, 2 / 3])


UNCONDITIONAL = [lengths for lengths in CHOICES if not isinstance(lengths, Beyond)]


@pytest.mark.parametrize("lengths", UNCONDITIONAL, ids=repr)
def test_beyond_equals_rejection_sampling(lengths: Lengths) -> None:
    """Dropping the draws that are too short and counting the others gives the same probabilities."""
    width, rng = 12, np.random.default_rng(5)
    draws = lengths.sample(60_000, width, rng)
    for first in (1, 4, 6):
        kept = draws[draws > first]
        if len(kept) == 0:
            with pytest.raises(InvalidInput, match=f"must go beyond the first {first} of {width}"):
                Beyond(lengths, first).pmf(width)
            continue
        pmf = Beyond(lengths, first).pmf(width)
        seen = np.bincount(kept, minlength=width + 1)[1:] / len(kept)
        assert (seen[pmf == 0] == 0).all()
        assert (np.abs(seen - pmf) <= 5 * np.sqrt(pmf * (1 - pmf) / len(kept))).all()


@pytest.mark.parametrize("lengths", UNCONDITIONAL, ids=repr)
@pytest.mark.parametrize("width", WIDTHS)
def test_beyond_nothing_changes_nothing_and_beyond_the_width_keeps_everything(lengths: Lengths, width: int) -> None:
    assert np.array_equal(Beyond(lengths, 0).survival(width), lengths.survival(width))
    assert np.array_equal(Beyond(lengths, 0).pmf(width), lengths.pmf(width))
    for first in (width, width + 9):
        assert Beyond(lengths, first).survival(width).tolist() == [1] * width


@given(st.integers(0, 40), st.integers(0, 40))
def test_beyond_twice_is_beyond_the_larger(a: int, b: int) -> None:
    assert Beyond(Beyond(LogUniform(), a), b) == Beyond(LogUniform(), max(a, b))
    mixed = Mixture([Beyond(LogUniform(), a)])  # which hides the inner one
    np.testing.assert_allclose(Beyond(mixed, b).pmf(50), Beyond(LogUniform(), max(a, b)).pmf(50), atol=1e-15)


@given(st.floats(0.05, 0.99), st.integers(0, 10**6))
def test_beyond_geometric_is_geometric_again(decay: float, first: int) -> None:
    """Also far out, where the probability of getting there is no longer a number."""
    survival = Beyond(Geometric(decay), first).survival(first + 50)
    assert (survival[:first] == 1).all()
    assert np.array_equal(survival[first:], Geometric(decay).survival(50))


def test_distributions_are_frozen() -> None:
    class Annealed(Lengths):
        def _survival(self, k: NDArray[np.int64], width: int) -> NDArray[np.float64]:  # noqa: ARG002
            return np.ones(len(k))

    with pytest.raises(AttributeError, match="Annealed is frozen"):
        Annealed().length = 3


def test_distributions_compare_by_value() -> None:
    assert len({*CHOICES, *CHOICES}) == len(CHOICES)
    assert Empirical(np.array([1, 2])) == Empirical([1.0, 2.0])  # type: ignore[arg-type]
    assert len({Geometric(0.9), Geometric(0.9), Uniform(), Uniform(), Mixture([Uniform()])}) == 3


RNG = np.random.default_rng(0)
MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "decay above 1": (lambda: Geometric(1.5), "decay must lie strictly between 0 and 1, got 1.5"),
    "decay 0": (lambda: Geometric(0), "decay must lie strictly between 0 and 1, got 0"),
    "decay below 0": (lambda: Geometric(-0.5), "decay must lie strictly between 0 and 1, got -0.5"),
    "decay 1": (lambda: Geometric(1), "decay must lie strictly between 0 and 1, got 1"),
    "decay NaN": (lambda: Geometric(float("nan")), "decay must lie strictly between 0 and 1, got nan"),
    "width 0": (lambda: Uniform().pmf(0), "width must be an integer of at least 1, got 0"),
    "width 2.5": (lambda: Uniform().pmf(2.5), "width must be an integer of at least 1, got 2.5"),  # type: ignore[arg-type]
    "NaN weight": (lambda: Empirical([1, float("nan")]), "must be finite, also in sum, not negative and not all 0"),
    "infinite weight": (
        lambda: Empirical([1, float("inf")]),
        "must be finite, also in sum, not negative and not all 0",
    ),
    "negative weight": (lambda: Empirical([1, -1]), "must be finite, also in sum, not negative and not all 0"),
    "no weight": (lambda: Empirical([0, 0]), "must be finite, also in sum, not negative and not all 0"),
    "empty weights": (lambda: Empirical([]), "a list of at least one number, got an array of shape (0,)"),
    "nested weights": (lambda: Empirical([[1]]), "a list of at least one number, got an array of shape (1, 1)"),  # type: ignore[list-item]
    "overflowing weights": (lambda: Empirical([1e308, 1e308]), "must be finite, also in sum"),
    "words for weights": (lambda: Empirical(["a"]), "weights must be a list of numbers, got ['a']"),  # type: ignore[list-item]
    "word for decay": (lambda: Geometric("x"), "strictly between 0 and 1, got 'x'"),  # type: ignore[arg-type]
    "lengths twice": (lambda: Empirical([1, 1], lengths=[4, 4]), "lengths must be different"),
    "lengths too few": (lambda: Empirical([1, 1], lengths=[4]), "one for each of the 2 weights"),
    "no samples": (lambda: Empirical.from_samples([]), "a list of at least one, got an array of shape (0,)"),
    "sample 0": (lambda: Empirical.from_samples([4, 0]), "must be at least 1 and below 2^62, got 0"),
    "sample 2^63": (lambda: Empirical.from_samples([2**63]), "below 2^62, got 9223372036854775808"),
    "fractional sample": (lambda: Empirical.from_samples([1.5]), "must be integers, got float64"),
    "no components": (lambda: Mixture([]), "one or more distributions of lengths, got []"),
    "number for components": (lambda: Mixture(5), "one or more distributions of lengths, got 5"),  # type: ignore[arg-type]
    "fractional draws": (lambda: Uniform().sample(2.5, 5, RNG), "n must be an integer"),  # type: ignore[arg-type]
    "wrong component": (lambda: Mixture([0.9]), "one or more distributions of lengths, got [0.9]"),  # type: ignore[list-item]
    "odd weights": (lambda: Mixture([Uniform()], weights=[1, 2]), "one for each of the 1 components, got 2"),
    "negative draws": (lambda: Uniform().sample(-1, 5, RNG), "n must be an integer of at least 0, got -1"),
    "nothing beyond": (
        lambda: Beyond(Empirical([1, 1]), 2).survival(5),
        "must go beyond the first 2 of 5, got P(length > 2) = 0.0 for Empirical(",
    ),
    "too rarely beyond": (lambda: Beyond(Empirical([1, 1e-320]), 1).pmf(2), "must go beyond the first 1 of 2"),
    "beyond a number": (lambda: Beyond(0.9, 2), "lengths must be a distribution of lengths, got 0.9"),  # type: ignore[arg-type]
    "beyond -1": (lambda: Beyond(Uniform(), -1), "first must be an integer of at least 0, got -1"),
    "seed for rng": (lambda: Uniform().sample(1, 5, 0), "rng must be a numpy.random.Generator, got 0"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_named(mistake: str) -> None:
    call, message = MISTAKES[mistake]
    with pytest.raises(InvalidInput, match=re.escape(message)):
        call()


def test_the_same_seed_draws_the_same_lengths() -> None:
    first, second = (Geometric(0.9).sample(50, 30, np.random.default_rng(7)) for _ in range(2))
    assert np.array_equal(first, second)


def test_a_new_distribution_is_one_small_class() -> None:
    class Steps(Lengths):
        def _survival(self, k: NDArray[np.int64], width: int) -> NDArray[np.float64]:
            return np.where(k <= max(width // 2, 1), 1.0, 0.5)

    assert Steps().pmf(4).tolist() == [0, 0.5, 0, 0.5]
    assert set(Steps().sample(100, 4, np.random.default_rng(0)).tolist()) == {2, 4}
