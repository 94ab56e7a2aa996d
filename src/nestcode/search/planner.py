"""The planner: how a search is executed, a pure function of counts and of one table of costs.

    scan    compares all allowed items exactly
    lists   probes inverted lists until they hold `candidates` allowed items, and reranks the best estimates
    walk    visits the nearest nodes of graphs; runs without a graph are searched by lists

No other file compares a size with a constant. Where the planner cannot know how much a search will do, because a
filter excludes a query's surroundings or because codes estimate distances badly, the plan bounds the work of a query. A
query that reaches the bound is scanned instead, and a scan of up to twice what lists begin with is chosen at once. So a
search costs at most about twice the better of both.

The costs are rounded CPU nanoseconds of one query on x86-64 processors with AVX-512. Plans depend on their ratios only.
`python benchmarks/cost_model.py` prints those of a machine; docs/benchmarks.md compares both.
"""

from dataclasses import dataclass
from math import inf, log
from operator import itemgetter
from typing import Literal

from nestcode import _core
from nestcode.arrays import check_budget, check_int
from nestcode.fork import lazy_property

NS_PER_SCANNED_VALUE = {"float32": 0.2, "float16": 0.12, "int8": 0.2}  # of a stored vector
NS_PER_SCANNED_ITEM = 8.0  # beside its values or bytes
NS_PER_SCANNED_CODE_BYTE = 0.6  # by tables of levels, or of codebook entries
NS_PER_FASTSCAN_ITEM = 0.5  # beside its bytes
NS_PER_FASTSCAN_BYTE = 0.05  # of an item's 4-bit groups
NS_PER_ADC_BYTE = 1.5  # of an item's code, that a table is looked up for
NS_PER_HAMMING_BYTE = 0.1  # of an item's code, which is compared whole
NS_PER_LIST = 2.5  # that is ranked
NS_PER_VISITED_NODE = 400.0  # with the estimates of its neighbors
NS_PER_RERANKED_ITEM = 50.0  # a row anywhere in memory
NS_PER_RERANKED_VALUE = 0.6  # of such a row
NS_PER_SCANNED_HIT = 80.0  # of a scan: an item that is among the k best so far, when it is met
NS_PER_CANDIDATE = 30.0  # the same of an estimate in lists that is kept
NS_PER_NETWORK_PARAMETER = 0.02  # of an item that a network decodes
NS_PER_LISTS = 27000.0  # fixed, of a query
NS_PER_WALK = 25000.0  # the same
NS_PER_SCAN = 12000.0  # the same
SCANNED_TOGETHER = 0.3  # of the cost of scanned items, for each of several queries: they multiply matrices
COMPETITIVE_RATIO = 2.0  # times the cost that lists begin with: a scan of up to this cost is chosen at once

LIST_CANDIDATES = 10_000  # items that lists estimate by default,
LIST_CANDIDATES_SHARE = 50  # and one more for each of this number of items
GRAPH_CANDIDATES_PER_HIT, GRAPH_CANDIDATES = 4, 100  # that a walk keeps by default (ef): for each hit, and at least
RERANKED_PER_HIT, RERANKED = 10, 100  # candidates that are reranked by default: for each hit, and at least
RERANKED_FIRST_PER_HIT = 4  # candidates that are reranked first, where the search decides whether to rerank more
QUERIES_TOGETHER = 8  # from which on a scan multiplies matrices, whatever the items are stored as
RERANKED_AHEAD, RERANKED_SAMPLE = 8, 8  # estimates kept for each of them; one in so many others is reranked too
EXPANDED_BYTES = 8 << 20  # of stored integers that are kept as float32, which one query scans in half the time
DECODED_BYTES = 64 << 20  # of codes that are kept as vectors: those of bit planes are scanned as they are

Operator = Literal["scan", "lists", "walk"]


@dataclass(frozen=True)
class Effort:
    """How much work a search does: the settings that `Index.tune` measured, scaled as the index grows.

    >>> effort = Effort(candidates=500, items=10_000, rerank=40, k=10)
    >>> effort.candidates_of(30_000), effort.rerank_for(20)  # three times the items, twice the hits
    (1500, 80)

    Args:
        candidates: the candidate budget at `items` items. A larger index gets the same share of its items, a smaller
            index the same number. On a graph it is the beam width (ef) at any size.
        items: the size of the index on which it was measured.
        rerank: the number of candidates to rerank; it grows in proportion to a larger k.
        k: the number of hits of the measured searches.

    """

    candidates: int
    items: int
    rerank: int
    k: int

    def __post_init__(self) -> None:
        for name, value in list(vars(self).items()):
            object.__setattr__(self, name, check_int(value, name, least=1))

    def candidates_of(self, count: int) -> int:
        """Return the candidate budget for `count` items."""
        return self.candidates * max(check_int(count, "count", least=0), self.items) // self.items

    def ef_for(self, k: int) -> int:
        """Return the candidates of a walk for k hits."""
        return self.candidates * max(check_int(k, "k", least=1), self.k) // self.k

    def rerank_for(self, k: int) -> int:
        """Return how many candidates to rerank for k hits."""
        return self.rerank * max(check_int(k, "k", least=1), self.k) // self.k


@dataclass(frozen=True)
class Work:
    """What the items of a snapshot cost a search.

    Args:
        listed: items of runs that are searched by lists, including excluded items.
        nodes: items of runs that are searched by their graphs, including excluded items.
        walks: whether the index builds graphs: then a candidate budget is a beam width (ef), even before one is built.
        lists: the number of inverted lists.
        ns_per_estimated: nanoseconds of an item that lists estimate.
        ns_per_scanned: nanoseconds of an item that a scan compares.
        ns_per_reranked: nanoseconds of a candidate that is reranked.

    """

    listed: int
    nodes: int
    walks: bool
    lists: int
    ns_per_estimated: float
    ns_per_scanned: float
    ns_per_reranked: float


@dataclass(frozen=True)
class Plan:
    """The execution of a search and its expected cost: `Index.explain` returns it.

    >>> work = Work(20_000, 0, walks=False, lists=256, ns_per_estimated=2.0, ns_per_scanned=40.0, ns_per_reranked=250.0)
    >>> plan = make_plan(work, allowed=20_000, k=10)
    >>> plan.operator, plan.compared, plan.reranked
    ('lists', 10400, 100)
    >>> print(make_plan(work, allowed=50, k=10))  # of a filter
    scan of 50 items (scan 16 us, lists 94 us)

    Args:
        operator: "scan", "lists" or "walk".
        items: the number of items in the index, including the items that the filter excludes.
        allowed: the number of items that the filter allows and nobody deleted.
        compared: the number of items that a scan compares or that lists estimate; the beam width (ef) of a walk.
        reranked: the number of candidates that are reranked first.
        ns: the nanoseconds per query of each operator.
        work: the costs of an item.
        most_ns: the bound on the cost of all work of a query; beyond it, the query is scanned instead.
        reranks_more: whether more candidates are reranked if the next ones may be nearer.
        widens: whether walks go on, and more lists are probed, if many hits come late.
        listed: the number of allowed items that lists estimate first, also beside graphs.
        most_listed: the bound on these items if many hits lie in the lists that were probed last.

    """

    operator: Operator
    items: int
    allowed: int
    compared: int
    reranked: int
    ns: dict[Operator, float]
    work: Work
    listed: int = 0
    most_listed: int = 0
    widens: bool = False
    reranks_more: bool = False
    most_ns: float = inf

    @lazy_property
    def budget(self) -> _core.RowBudget:
        """The same as the core takes it."""
        return _core.RowBudget(
            listed=self.listed,
            most_listed=self.most_listed,
            ef=self.compared,
            widens=self.widens,
            reranked=min(self.reranked, self.allowed),
            reranks_more=self.reranks_more,
            most_ns=self.most_ns,
            ns_per_estimated=self.work.ns_per_estimated,
            ns_per_candidate=NS_PER_CANDIDATE,
            ns_per_visited=NS_PER_VISITED_NODE,
            ns_per_reranked=self.work.ns_per_reranked,
        )

    def executed_ns(self, compared: float) -> float:
        """Return the nanoseconds that a query took which compared this number of items: by lists, not quite the plan's.

        >>> work = Work(20_000, 0, walks=False, lists=9, ns_per_estimated=2, ns_per_scanned=40, ns_per_reranked=250)
        >>> plan = make_plan(work, allowed=20_000, k=10, candidates=500, rerank=100)
        >>> plan.executed_ns(600) - plan.ns["lists"]
        200.0
        """
        if self.operator == "scan":
            return self.ns["scan"]
        return self.ns[self.operator] + (compared - self.compared) * self.ns_per_compared

    @property
    def ns_per_compared(self) -> float:
        """The nanoseconds of an item that is estimated, or of a node that is visited."""
        return NS_PER_VISITED_NODE if self.operator == "walk" else self.work.ns_per_estimated

    def __str__(self) -> str:
        costs = ", ".join(f"{name} {cost / 1e3:,.0f} us" for name, cost in sorted(self.ns.items(), key=itemgetter(1)))
        if self.operator == "scan":
            return f"scan of {self.allowed:,} items ({costs})"
        unit = "nodes kept" if self.operator == "walk" else "items estimated"
        return f"{self.operator}: {self.compared:,} {unit} of {self.allowed:,}, {self.reranked:,} reranked ({costs})"


def default_candidates(count: int) -> int:
    """Return how many of `count` items lists estimate by default: the number never falls as items are added.

    >>> [default_candidates(count) for count in (50, 10_000, 20_000, 1_000_000)]
    [50, 10000, 10400, 30000]
    """
    return min(count, LIST_CANDIDATES + count // LIST_CANDIDATES_SHARE)


def choose_candidates(chosen: int | None, count: int, effort: Effort | None = None) -> int:
    """Return the candidate budget of `count` items in lists: what the caller chose, if that is valid."""
    if chosen is not None:
        return check_budget(chosen, "candidates", least=min(count, 1))
    return default_candidates(count) if effort is None else effort.candidates_of(count)


def choose_rerank(chosen: int | None, k: int, effort: Effort | None = None) -> int:
    """Return how many candidates to rerank at first: what the caller chose, if that is valid, but k at least."""
    if chosen is not None:
        return max(k, check_budget(chosen, "rerank"))
    return max(RERANKED_PER_HIT * k, RERANKED) if effort is None else max(k, effort.rerank_for(k))


def scan_ns(count: int, ns_per_scanned: float, k: int, queries: int = 1) -> float:
    """Return the nanoseconds of comparing all of `count` items for the k nearest, for each of some queries."""
    each = NS_PER_SCANNED_ITEM + ns_per_scanned
    if queries >= QUERIES_TOGETHER:
        each *= SCANNED_TOGETHER
    return NS_PER_SCAN + count * each + NS_PER_SCANNED_HIT * expected_best(count, k)


def expected_best(count: int, k: int) -> float:
    """Return how many items in random order are among the k best of those before them, on average.

    >>> expected_best(3, 10), round(expected_best(10_000, 100))
    (3.0, 561)
    """
    return float(count) if count <= k else k * (1 + log(count / k))


def make_plan(
    work: Work,
    allowed: int,
    k: int,
    candidates: int | None = None,
    rerank: int | None = None,
    effort: Effort | None = None,
    *,
    fetched: bool = False,
    queries: int = 1,
) -> Plan:
    """Return the plan of a search for the k nearest of `allowed` items.

    Args:
        work: the costs of an item.
        allowed: the number of items that the filter allows and nobody deleted.
        k: hits.
        candidates: the caller's choice; it is spent whatever it costs.
        rerank: the caller's choice.
        effort: what `Index.tune` chose, for what the caller did not.
        fetched: whether the caller fetches vectors one by one: then a search fetches `rerank` vectors, or all if a scan
            is cheaper.
        queries: how many there are: several are scanned together, in less time each.

    """
    items = work.listed + work.nodes
    passed_for_each = items / max(allowed, 1)  # items that lists and walks pass for each allowed item
    reranked = choose_rerank(rerank, k, effort)
    if rerank is None and effort is None and not fetched:
        reranked = max(RERANKED_FIRST_PER_HIT * k, RERANKED)
    ef = max(k, _choose_ef(candidates, k, effort))
    listed = default_candidates(work.listed) if work.walks else choose_candidates(candidates, allowed, effort)
    listed = min(max(listed, k), allowed)
    way: Operator = "walk" if work.nodes else "lists"
    compared = ef if work.nodes else listed
    ns: dict[Operator, float] = {"scan": scan_ns(allowed, work.ns_per_scanned, k, queries)}
    ns[way] = reranked * work.ns_per_reranked
    if work.nodes:
        ns[way] += NS_PER_WALK + min(ef * passed_for_each, work.nodes) * NS_PER_VISITED_NODE
    chosen = candidates is not None or fetched
    widens, reranks_more = not chosen and effort is None, rerank is None and effort is None and not fetched
    if work.listed:
        passed = min(listed * passed_for_each, work.listed)
        kept = max(reranked, min(RERANKED_AHEAD * reranked, listed)) if reranks_more else reranked
        ns[way] += NS_PER_LISTS + work.lists * NS_PER_LIST + passed * work.ns_per_estimated
        ns[way] += NS_PER_CANDIDATE * expected_best(listed, kept)
        ns[way] += (kept - reranked) / RERANKED_SAMPLE * work.ns_per_reranked
    covered = max(compared, ef if work.walks else 0) >= allowed
    least = ns[way] * (COMPETITIVE_RATIO if way == "lists" and (widens or covered) else 1)
    if covered:
        scans = candidates is not None or ns["scan"] <= least
    else:  # what the caller chose is spent, whatever a filter excludes
        scans = not chosen and allowed < items and ns["scan"] <= least
    if scans:
        return Plan("scan", items, allowed, allowed, 0, ns, work)
    return Plan(
        way,
        items,
        allowed,
        compared,
        reranked,
        ns,
        work,
        listed=listed,
        most_listed=allowed if widens else listed,
        widens=widens,
        reranks_more=reranks_more,
        # Of a batch, few queries at a time are given up.
        most_ns=scan_ns(allowed, work.ns_per_scanned, k) if widens or (not chosen and allowed < items) else inf,
    )


def _choose_ef(chosen: int | None, k: int, effort: Effort | None) -> int:
    """Return the candidates of a walk: what the caller chose, if that is valid."""
    if chosen is not None:
        return check_budget(chosen, "candidates")
    return max(GRAPH_CANDIDATES_PER_HIT * k, GRAPH_CANDIDATES) if effort is None else effort.ef_for(k)
