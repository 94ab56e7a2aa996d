"""From trials on samples to forecasts for all rows, and from these to the choice: pure functions.

The candidates of lists and the beam width of graphs, beyond the k hits that every search compares, grow as a power of
the number of items. Two trials of a candidate measure the exponent; after one trial it is that of `GROWTH`. The
planner's cost model turns the counts into nanoseconds.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf, log
from typing import Literal

from nestcode.coders.base import Metric
from nestcode.index.autotune.candidates import Candidate, Structure
from nestcode.search.planner import (
    NS_PER_CANDIDATE,
    NS_PER_LISTS,
    NS_PER_RERANKED_ITEM,
    NS_PER_RERANKED_VALUE,
    NS_PER_SCANNED_VALUE,
    NS_PER_VISITED_NODE,
    NS_PER_WALK,
    Work,
    make_plan,
    scan_ns,
)

Preference = Literal["latency", "memory", "build"]

# Rounds of trials. On a 32nd of the rows the trials of three rounds together cost less than a fifth of a build.
ITEMS_PER_TRIAL_ROW = 32  # in the last round
ROUND_FACTOR = 4  # by which each round has more rows and fewer candidates than the round before
FINALISTS = 2  # candidates of the last round: lists and a graph, where nothing bounds the memory
LEAST_TRIAL_ROWS, LEAST_TRIAL_ROWS_PER_HIT = 500, 15  # with fewer, most rows are hits and every search looks alike

SPEEDUP_WORTH_A_TRIAL = 1.25  # a choice that is not tried for less still has 80 % of the best speed

# Exponents of the candidates and of `rerank` beyond k, where all trials are of one size: about the medians of 1,500 to
# 12,000 words, patches, clusters and normal noise, of 10 and 100 hits.
GROWTH: dict[Structure, tuple[float, float]] = {"scan": (1.0, 0.0), "lists": (0.7, 0.4), "graph": (0.6, 0.0)}
# CPU nanoseconds of building, of an item: rounded from 16,000 word vectors. Only prefer="build" reads them.
NS_PER_ENCODED_VALUE, NS_PER_CELL_VALUE, NS_PER_LINKED_ITEM = 100.0, 400.0, 250_000.0


@dataclass(frozen=True)
class Trial:
    """The result of a candidate on a sample: the least effort that reaches the target, or the one with the best recall.

    Args:
        candidate: the index that was built.
        items: the number of rows of the sample.
        recall: the recall of held-out queries.
        standard_error: the standard error of the recall over the queries.
        reached: whether recall exceeds the target by its standard error.
        candidates: the candidate budget.
        rerank: the number of reranked candidates.
        compared: the number of items or nodes that a query was compared with, on average.
        work: what items cost.
        nbytes: the bytes of the index.

    """

    candidate: Candidate
    items: int
    recall: float
    standard_error: float
    reached: bool
    candidates: int
    rerank: int
    compared: float
    work: Work
    nbytes: int


@dataclass(frozen=True)
class Forecast:
    """The expected cost of a candidate with all rows.

    Args:
        candidate: the index that would be built.
        recall: the recall of its largest trial.
        reached: whether this trial reached the target.
        candidates: the candidate budget.
        rerank: the number of candidates to rerank.
        ns: the nanoseconds of a query.
        bytes_per_item: the bytes of an item.
        build_ns: the nanoseconds of the build.
        trials: the numbers of rows of its trials.

    """

    candidate: Candidate
    recall: float
    reached: bool
    candidates: int
    rerank: int
    ns: float
    bytes_per_item: float
    build_ns: float
    trials: tuple[int, ...]

    @property
    def is_guess(self) -> bool:
        """Whether no trial supports it. The cost of a scan is known without one."""
        return not self.trials and self.candidate.structure != "scan"

    def __str__(self) -> str:
        recall = f"recall {self.recall:.3f}" + ("" if self.reached else ", short of the target")
        return f"{self.candidate}: {recall}, {self.ns / 1e3:,.0f} us a query, {self.bytes_per_item:,.0f} bytes an item"


@dataclass(frozen=True)
class Choice:
    """How `Index.build` chose an index: the trials, what they forecast, and the reason.

    Args:
        chosen: the index that was built.
        reason: why it was chosen.
        tried: the forecast of each candidate, the best first.
        metric: the metric of the coder.
        recall: the target.
        k: the number of hits that recall counts.
        max_bytes: the bound on the bytes of an item; None is no bound.
        items: the number of items of the index.
        reached: the recall of held-out queries in the whole index; None if it was not measured.
        standard_error: the standard error of this recall over the queries.
        ns: the nanoseconds of a query, by counted work.

    """

    chosen: Candidate
    reason: str
    tried: tuple[Forecast, ...]
    metric: Metric
    recall: float
    k: int
    max_bytes: float | None
    items: int
    reached: float | None = None
    standard_error: float = 0.0
    ns: float | None = None

    def __str__(self) -> str:
        found = ""
        if self.reached is not None:
            found = f"; recall@{self.k} {self.reached:.3f} ± {self.standard_error:.3f} of {self.items:,} items"
        lines = [f"{self.chosen}: {self.reason}{found}", *(f"  {one}" for one in self.tried)]
        return "\n".join(lines)


def trial_rows(items: int, candidates: int, k: int) -> list[int]:
    """Return how many rows the trials of each round have: successive halving (Jamieson and Talwalkar 2016).

    Each round has four times the rows of the round before and a quarter of its candidates, the best. A second round is
    held even for few candidates, because trials of two sizes measure how the cost grows.

    >>> trial_rows(10_000, candidates=2, k=10), trial_rows(1_000_000, candidates=2, k=10)
    ([500], [7812, 31250])
    >>> trial_rows(1_000_000, candidates=20, k=10)  # 20, then 8, then 2 candidates
    [1953, 7812, 31250]

    Args:
        items: all rows that trials may have.
        candidates: of the first round.
        k: hits of a search.

    """
    least = max(LEAST_TRIAL_ROWS, LEAST_TRIAL_ROWS_PER_HIT * k)
    rows = [min(max(items // ITEMS_PER_TRIAL_ROW, least), items)]
    while rows[0] // ROUND_FACTOR >= least and (len(rows) == 1 or finalists(len(rows)) < candidates):
        rows.insert(0, rows[0] // ROUND_FACTOR)
    return rows


def finalists(rounds_left: int) -> int:
    """Return how many candidates have a trial in a round, of which this number follows with the last one.

    >>> [finalists(rounds_left) for rounds_left in (1, 2, 3)]
    [2, 8, 32]
    """
    return int(FINALISTS * ROUND_FACTOR ** (rounds_left - 1))


def forecast(trials: Sequence[Trial], items: int, features: int, k: int) -> Forecast:
    """Return what a candidate is expected to be with all rows, from its trials on samples.

    Args:
        trials: of one candidate, at least one.
        items: all rows.
        features: of each.
        k: hits of a search.

    """
    smallest, largest = (pick(trials, key=lambda trial: trial.items) for pick in (min, max))
    candidate, growth = largest.candidate, items / largest.items
    times, (budget_power, rerank_power) = largest.items / smallest.items, GROWTH[candidate.structure]
    budget_power = _exponent(budget_power, smallest.candidates - k, largest.candidates - k, times)
    rerank_power = _exponent(rerank_power, smallest.rerank - k, largest.rerank - k, times)
    budget = k + (largest.candidates - k) * growth**budget_power
    reranked = k + int((largest.rerank - k) * growth**rerank_power)
    exhaustive = candidate.structure == "scan" or largest.candidates >= largest.items
    budget = items if exhaustive else min(max(int(budget), k), items)
    work = _scaled(largest.work, items, growth)
    reranked = min(max(reranked, k), items)
    plan = make_plan(work, items, min(k, items), budget, reranked)
    ns = plan.ns["scan"]
    if candidate.structure != "scan" and plan.operator != "scan":
        ns = plan.executed_ns(plan.compared * largest.compared / max(largest.candidates, 1))
    return Forecast(
        candidate,
        largest.recall,
        largest.reached,
        budget,
        reranked,
        ns,
        _bytes_per_item(smallest, largest, items),
        build_ns(candidate, items, features),
        tuple(sorted({trial.items for trial in trials})),
    )


def choose(
    forecasts: Iterable[Forecast], prefer: Preference, items: int, max_bytes: float | None = None
) -> tuple[list[Forecast], str]:
    """Return the forecasts, the best first, and why it is the best.

    Those that fit the bound and reach the target come first. Among these "latency" prefers the least work of a query,
    "memory" the fewest bytes of an item, and "build" the least work of the build and of one query for each item. Among
    those that miss the target, the one of the highest recall is the best.
    """
    costs = {
        "latency": lambda one: (one.ns, one.bytes_per_item),
        "memory": lambda one: (one.bytes_per_item, one.ns),
        "build": lambda one: (one.build_ns + items * one.ns, one.bytes_per_item),
    }

    def key(one: Forecast) -> tuple[bool, bool, float, float, str]:
        fits = max_bytes is None or one.bytes_per_item <= max_bytes
        first, second = costs[prefer](one) if one.reached else (-one.recall, one.ns)
        return not fits, not one.reached, first, second, str(one.candidate)

    ranked = sorted(forecasts, key=key)
    best = ranked[0]
    why = {
        "latency": f"the fastest that reaches the target, {best.ns / 1e3:,.0f} us a query",
        "memory": f"the smallest that reaches the target, {best.bytes_per_item:,.0f} bytes an item",
        "build": "the least work to build it and to search it once for each item",
    }
    reason = why[prefer] if best.reached else f"none reaches the target, it has the highest recall, {best.recall:.3f}"
    return ranked, reason


def scan_forecast(candidate: Candidate, items: int, features: int, k: int) -> Forecast:
    """Return what a scan costs: the planner's table says it without a trial."""
    ns = vector_scan_ns(items, features, candidate, k)
    return Forecast(candidate, 1.0, True, items, k, ns, *_least_costs(candidate, items, features), trials=())


def optimistic_forecast(candidate: Candidate, items: int, features: int, k: int) -> Forecast:
    """Return a guess for a candidate without a trial: as fast as the easiest data allow."""
    ns = least_ns(candidate, features, k)
    return Forecast(candidate, 1.0, True, k, k, ns, *_least_costs(candidate, items, features), trials=())


def vector_scan_ns(items: int, features: int, candidate: Candidate, k: int) -> float:
    """Return the nanoseconds of comparing a query with all vectors that a candidate stores."""
    return scan_ns(items, NS_PER_SCANNED_VALUE[candidate.vectors or "int8"] * features, k)


def may_be_faster(candidate: Candidate, known: Iterable[Forecast], features: int, k: int) -> bool:
    """Return whether a candidate would be faster by a quarter than all known ones, were the data as easy as can be."""
    return SPEEDUP_WORTH_A_TRIAL * least_ns(candidate, features, k) < min((one.ns for one in known), default=inf)


def _least_costs(candidate: Candidate, items: int, features: int) -> tuple[float, float]:
    """Return the least bytes of an item, and the nanoseconds of the build."""
    return float(candidate.least_bytes(features)), build_ns(candidate, items, features)


def least_ns(candidate: Candidate, features: int, k: int) -> float:
    """Return the nanoseconds that a query takes at least, however easy the data are."""
    reranked = NS_PER_RERANKED_ITEM + NS_PER_RERANKED_VALUE * features
    if candidate.structure == "graph":
        return NS_PER_WALK + k * (NS_PER_VISITED_NODE + reranked)
    return NS_PER_LISTS + k * (NS_PER_CANDIDATE + reranked)


def build_ns(candidate: Candidate, items: int, features: int) -> float:
    """Return the nanoseconds that it takes to fit, encode and link the items."""
    each = NS_PER_ENCODED_VALUE * features
    if candidate.structure == "lists":
        each += NS_PER_CELL_VALUE * features
    if candidate.structure == "graph":
        each += NS_PER_LINKED_ITEM
    return items * each


def _exponent(usual: float, fewer: int, more: int, growth: float) -> float:
    """Return the power by which what a search takes grows with the items, of two trials or as is usual."""
    if growth == 1:
        return usual
    exponent = log(max(more, 1) / max(fewer, 1)) / log(growth)
    return min(max(exponent, 0.0), 1.0)  # no search needs a larger share of more items


def _scaled(work: Work, items: int, growth: float) -> Work:
    """Return what a larger index costs: its lists have as many items each."""
    if work.nodes:
        return replace(work, nodes=items, listed=0)
    return replace(work, listed=items, lists=max(int(work.lists * growth), 1))


def _bytes_per_item(smallest: Trial, largest: Trial, items: int) -> float:
    """Return the bytes of an item, where a part of the index is the same for any number of items."""
    if smallest.items == largest.items:
        return largest.nbytes / largest.items
    each = (largest.nbytes - smallest.nbytes) / (largest.items - smallest.items)
    return each + max(largest.nbytes - each * largest.items, 0.0) / items
