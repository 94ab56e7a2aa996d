"""`Index.build`: trials on samples, the choice, and an index of all rows whose recall is measured."""

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nestcode.arrays import PIECE, Ids, check_ids, check_int, check_rows, check_seed, is_number, shown
from nestcode.coders import Coder, ResidualCoder
from nestcode.coders.base import Metric, Selection, check_settings
from nestcode.errors import InvalidInput
from nestcode.fork import lazy_property
from nestcode.index.autotune.candidates import Candidate, list_candidates
from nestcode.index.autotune.choice import (
    Choice,
    Forecast,
    Preference,
    Trial,
    choose,
    finalists,
    forecast,
    may_be_faster,
    optimistic_forecast,
    scan_forecast,
    trial_rows,
)
from nestcode.index.autotune.interruption import Interruption
from nestcode.index.autotune.trials import Sample, run_trials
from nestcode.index.compaction import MIN_GRAPH
from nestcode.search.planner import Effort
from nestcode.search.vectors import VectorFormat, VectorType

if TYPE_CHECKING:
    from nestcode.index.index import Index

Report = Callable[[str], None]

MIN_TRIAL_ROWS = 50  # with fewer, recall has too few queries to be measured, and a scan takes no time
ROWS_PER_QUERY = 10  # at most one row in this number is held out as a query
# True neighbors that recall counts: of a trial, and of the whole index. Recall .95 of 400 queries for ten hits each has
# a standard error of .004. Hits of one query are not independent, so there are at least 40 queries.
TRIAL_HITS, TUNING_HITS, LEAST_QUERIES = 1000, 4000, 40
CONFIDENCE = 1.645  # standard errors: recall of other queries is below the target in one of twenty cases


@dataclass(frozen=True)
class Requirements:
    """What the caller of `Index.build` asked for, checked."""

    metric: Metric
    recall: float
    k: int
    max_bytes: float | None
    prefer: Preference
    graph: bool
    seed: int
    seconds: float | None

    def __post_init__(self) -> None:
        check_settings(1, self.metric)
        for name, value in (("seed", check_seed(self.seed)), ("k", check_int(self.k, "k", least=1))):
            object.__setattr__(self, name, value)
        if not is_number(self.recall) or not 0 < self.recall <= 1:
            raise InvalidInput(f"recall must be above 0 and at most 1, got {shown(self.recall)}: 0.95 is 95 %")
        if self.max_bytes is not None and (not is_number(self.max_bytes) or not self.max_bytes > 0):
            raise InvalidInput(f"max_bytes must be a positive number of bytes an item, got {shown(self.max_bytes)}")
        if self.prefer not in get_args(Preference):
            raise InvalidInput(f"prefer must be one of {', '.join(get_args(Preference))}, got {self.prefer!r}")
        if not isinstance(self.graph, bool):
            raise InvalidInput(f"graph must be True or False, got {shown(self.graph)}: False leaves graphs out")
        if self.seconds is not None and (not is_number(self.seconds) or not self.seconds >= 0):
            raise InvalidInput(f"seconds must be a number of at least 0, got {shown(self.seconds)}")


@dataclass(frozen=True, eq=False)
class Data:
    """The rows to index, and the queries that measure recall.

    Args:
        rows: (n, features), all of them.
        given: the caller's queries, (q, features); None holds out rows instead.
        seed: of the samples.

    """

    rows: NDArray[Any]
    given: NDArray[Any] | None
    seed: int

    @lazy_property
    def _order(self) -> Ids:
        return np.random.default_rng(self.seed).permutation(len(self.rows))

    def held_out(self, k: int, hits: int) -> Ids:
        """Return the numbers of the rows whose true neighbors are about this number of hits, ascending."""
        most = min(_query_count(k, hits), max(len(self.rows) // ROWS_PER_QUERY, 1))
        return np.sort(self._order[:most])

    def queries(self, k: int, hits: int) -> NDArray[Any]:
        """Return queries that have about this number of hits together."""
        return self.rows[self.held_out(k, hits)] if self.given is None else self.given[: _query_count(k, hits)]

    def others(self, k: int) -> Ids:
        """Return the numbers of the rows that are no queries, in random order.

        Coders are fitted to these rows. Codes describe such rows better than others, so queries among them would need
        less effort than others.
        """
        return self._order if self.given is not None else self._order[len(self.held_out(k, TUNING_HITS)) :]


def build(
    X: ArrayLike,
    required: Requirements,
    queries: ArrayLike | None,
    ids: ArrayLike | None,
    attributes: Any,
    report: Report,
) -> "Index":
    """Return an index of the rows that was chosen by trials."""
    rows = check_rows(X)
    count, features = rows.shape
    if not count:
        raise InvalidInput(
            "an index is chosen by its items, got none: give rows, or make an Index(coder) and add later"
        )
    given = None if queries is None else check_rows(queries)
    if given is not None and given.shape[1] != features:
        raise InvalidInput(
            f"queries must have the {features} features of the rows, got {given.shape[1]}: "
            "give queries of the same kind as the rows"
        )
    if given is not None and not len(given):
        raise InvalidInput("queries must have at least one row, got none: leave them out to take held-out rows")
    names = np.arange(count) if ids is None else check_ids(ids, count)
    columns = None if attributes is None else _checked_attributes(attributes, count)
    required = replace(required, k=min(required.k, max(count - 1, 1)))
    data = Data(rows, given, required.seed)
    bounded = _bounded_by_memory(required, count, features)
    if bounded is not required:
        report(f"memory allows {bounded.max_bytes:,.0f} bytes an item")
    if count < MIN_TRIAL_ROWS:
        ranked, reason = _scan(data, bounded, "float32", f"fewer than {MIN_TRIAL_ROWS} rows are scanned without trials")
    else:
        ranked, reason = _compare(data, bounded, report)
    index, sizes = None, []
    for chosen in list(ranked):
        report(f"building {chosen.candidate} of {count:,} rows")
        coder = fit_coder(chosen.candidate, data, required)
        coder.selection_ = _selection(chosen, ranked, reason, required)
        index = chosen.candidate.index(coder)
        index.add(rows, ids=names, attributes=columns)
        index.compact()
        index.choice = Choice(
            chosen.candidate,
            reason,
            tuple(ranked),
            required.metric,
            required.recall,
            required.k,
            required.max_bytes,
            count,
        )
        if count >= MIN_TRIAL_ROWS:
            index.choice = _tune(index, index.choice, chosen, data, names, report)
        if chosen.is_guess and count >= MIN_TRIAL_ROWS:
            ranked, reason = choose([_measured(index, chosen), *ranked[1:]], required.prefer, count)
            index.choice = replace(index.choice, reason=reason, tried=tuple(ranked))
            if ranked[0].candidate != chosen.candidate:
                continue
        index.search(rows[:1], required.k)  # which prepares what the index keeps for searches
        if required.max_bytes is None or index.nbytes <= required.max_bytes * count:
            break
        sizes.append(index.nbytes / count)
        report(f"it takes {sizes[-1]:,.0f} bytes an item")
    else:
        raise InvalidInput(
            f"max_bytes must be at least {min(sizes):,.0f} for {count:,} rows of {features} features"
            f"{'' if columns is None else ' and their attributes'}, got {required.max_bytes:g}: allow more, or index "
            "less"
        )
    choice = index.choice
    if choice.reached is not None and choice.reached - choice.standard_error < required.recall:
        remedy = "give more queries" if required.max_bytes is None else "raise max_bytes"
        if choice.chosen.structure == "scan" and choice.chosen.vectors == "float32":  # which is exact
            remedy = "subtract the mean of the rows in float64, as float32 rounds them"
        warnings.warn(
            f"no index that was tried reaches recall@{required.k} {required.recall:g} by a standard error, this one "
            f"has {choice.reached:.3f} ± {choice.standard_error:.3f}: {remedy}, or lower recall",
            stacklevel=3,
        )
    return index


def fit_coder(candidate: Candidate, data: Data, required: Requirements) -> Coder:
    """Return the coder of a candidate, fitted to the rows that are no queries."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of unallocated bits: trials measured whether they pay
        rows = data.rows if len(data.rows) < MIN_TRIAL_ROWS else data.rows[np.sort(data.others(required.k))]
        return candidate.coder(required.metric, required.seed).fit(rows)


def _compare(data: Data, required: Requirements, report: Report) -> tuple[list[Forecast], str]:
    """Return the forecasts of all candidates, the best first, and why it is.

    Where one search alone competes with the scan, the index of all rows is its trial.
    """
    (count, features), k = data.rows.shape, required.k
    others = data.others(k)
    sample = _sample(data, others[: trial_rows(len(others), 1, k)[0]], required)
    precise = _precise(data.rows, sample, required)
    small = required.prefer in ("memory", "build")
    candidates = [
        one
        for one in list_candidates(features, precise, required.max_bytes, small=small)
        if one.structure != "graph" or (required.graph and count >= MIN_GRAPH)
    ]
    if not candidates:
        raise _too_small(required, list_candidates(features, precise, None, small=True), features)
    scans = [scan_forecast(one, count, features, k) for one in candidates if one.structure == "scan"]
    searched = [one for one in candidates if one.structure != "scan"]
    if required.prefer == "latency" and required.max_bytes is None:
        searched = [one for one in searched if may_be_faster(one, scans, features, k)]
        if not searched:
            reason = "no other search can be faster by a quarter than to scan all items"
            return _scan(data, required, precise, reason)
        if len(searched) == 1:
            return [optimistic_forecast(searched[0], count, features, k), *scans], "the index itself is its trial"
    trials: dict[Candidate, list[Trial]] = {}

    def ranked() -> tuple[list[Forecast], str]:
        forecasts = [forecast(rounds, count, features, k) for rounds in trials.values()]
        return choose([*forecasts, *scans], required.prefer, count, required.max_bytes)

    def worth_a_trial(one: Candidate) -> bool:
        return _worth_a_trial(one, ranked()[0] if trials or scans else [], required, features)

    sizes, started, limit = trial_rows(len(others), len(searched), k), time.monotonic(), ""
    with Interruption() as interruption:
        for number, size in enumerate(sizes):
            if number:
                best = [one.candidate for one in ranked()[0] if one.candidate.structure != "scan"]
                searched = best[: finalists(len(sizes) - number)]
            if size != len(sample.rows):
                sample = _sample(data, others[:size], required)
            for trial in run_trials(sample, searched, worth_a_trial, required.recall, required.seed, report):
                trials.setdefault(trial.candidate, []).append(trial)
                if required.seconds is not None and time.monotonic() - started > required.seconds:
                    limit = f", of the trials that {required.seconds:g} seconds allowed"
                if limit or interruption.came:
                    break
            if limit or interruption.came:
                break
    if interruption.came:
        if not trials:
            raise KeyboardInterrupt
        limit = ", of the trials before the interruption"
        report("interrupted: the best so far is built")
    forecasts, why = ranked()
    return forecasts, why + limit


def _worth_a_trial(one: Candidate, known: Sequence[Forecast], required: Requirements, features: int) -> bool:
    """Return whether a candidate may be the best, given the forecasts of others.

    A `ResidualCoder` takes longer to fit than all others together: it is tried where memory is to be saved, or where
    nothing else reaches the target.
    """
    tried = [other for other in known if other.trials]
    if any(other.candidate == one for other in tried):
        return True  # it is among the best of the last round
    if one.kind is ResidualCoder:
        return required.prefer == "memory" or not any(other.reached for other in tried)
    if required.prefer != "latency" or required.max_bytes is not None:
        return True
    return may_be_faster(one, [other for other in known if other.reached], features, required.k)


def _query_count(k: int, hits: int) -> int:
    return max(hits // k, LEAST_QUERIES)


def _sample(data: Data, numbers: Ids, required: Requirements) -> Sample:
    queries = data.queries(required.k, TRIAL_HITS)
    return Sample(data.rows[np.sort(numbers)], queries, None, required.metric, min(required.k, len(numbers)))


def _precise(rows: NDArray[Any], sample: Sample, required: Requirements) -> VectorType:
    """Return "float16" where its rounding takes at most half of the misses that the target allows, else "float32".

    A target of 1 allows no misses, and a sample without any does not tell that all rows have none.
    """
    if required.recall == 1:
        return "float32"
    for start in range(0, len(rows), PIECE):
        piece = rows[start : start + PIECE]
        largest = max(float(piece.max()), -float(piece.min()))
        if not largest < float(np.finfo(np.float16).max):
            return "float32"
        if required.metric == "cosine":
            longest = np.abs(piece).max(axis=1)
            if ((longest > 0) & (longest < float(np.finfo(np.float16).smallest_subnormal))).any():  # may round to 0
                return "float32"
    float16 = VectorFormat("float16", rows.shape[1])
    misses = 1 - sample.recall_of_rounding(float16.round(sample.rows))
    return "float16" if misses <= (1 - required.recall) / 2 else "float32"


def _scan(data: Data, required: Requirements, precise: VectorType, reason: str) -> tuple[list[Forecast], str]:
    """Return candidates that compare all items, by the most precise vectors first."""
    count, features = data.rows.shape
    fits = [
        one for one in list_candidates(features, precise, required.max_bytes, small=False) if one.structure != "graph"
    ]
    if not fits:
        raise _too_small(required, list_candidates(features, precise, None, small=True), features)
    fits.sort(key=lambda one: one.structure != "scan")
    fits = fits[:1] if required.max_bytes is None else fits
    return [scan_forecast(one, count, features, required.k) for one in fits], reason


def _too_small(required: Requirements, candidates: list[Candidate], features: int) -> InvalidInput:
    least = min(one.least_bytes(features) for one in candidates)
    return InvalidInput(
        f"max_bytes must be more than {least} for rows of {features} features, got {required.max_bytes:g}: allow more, "
        "or index fewer features"
    )


def _measured(index: "Index", guess: Forecast) -> Forecast:
    """Return the forecast with what the index was measured to be."""
    choice, effort = index.choice, index.effort
    assert isinstance(choice, Choice)
    assert choice.reached is not None
    assert choice.ns is not None
    return replace(
        guess,
        recall=choice.reached,
        reached=choice.reached - choice.standard_error >= choice.recall,
        candidates=guess.candidates if effort is None else effort.candidates,
        rerank=guess.rerank if effort is None else effort.rerank,
        ns=choice.ns,
        bytes_per_item=index.nbytes / len(index),
        trials=(len(index),),
    )


def _checked_attributes(attributes: Any, count: int) -> Any:
    """Return attributes as the index takes them; wrong ones raise before the trials."""
    from nestcode.search.attributes import Attributes

    return Attributes.read(attributes, count).batch


def _selection(chosen: Forecast, ranked: list[Forecast], reason: str, required: Requirements) -> Selection:
    """Return the choice as it is saved with the coder."""
    measure = f"expected ns of a query at recall@{required.k} {required.recall:g}"
    return Selection("search", measure, {str(one.candidate): one.ns for one in ranked}, str(chosen.candidate), reason)


def _tune(index: "Index", choice: Choice, expected: Forecast, data: Data, names: Ids, report: Report) -> Choice:
    """Set the effort that reaches the target in the whole index, and return the choice with the recall measured."""
    k, count = choice.k, len(data.rows)
    query_rows = data.held_out(k, TUNING_HITS) if data.given is None else None
    queries = data.queries(k, TUNING_HITS)
    report(f"measuring recall of {len(queries):,} queries")
    hidden = query_rows is not None and choice.chosen.structure == "graph"
    measured = index._blind_to(names[query_rows]) if hidden else index
    sample = Sample(data.rows, queries, query_rows, choice.metric, k, hidden)
    trials = sample.searches(measured, names)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `build` warns of a missed target
        if expected.candidates >= count and measured.explain(queries[:1], k).operator == "scan":
            found = trials.run(None, None)
        else:
            near = None if expected.is_guess else Effort(expected.candidates, count, expected.rerank, k)
            found = trials.fastest(choice.recall, near, CONFIDENCE)
            index.effort = trials.effort(found)
    return replace(choice, reached=found.recall, standard_error=found.standard_error, ns=found.ns)


def _bounded_by_memory(required: Requirements, count: int, features: int) -> Requirements:
    """Return the requirements with the bound that the machine's memory sets, where float32 vectors might exceed it."""
    largest = max(one.least_bytes(features) for one in list_candidates(features, "float32", None, small=False))
    available = available_memory()
    if required.max_bytes is not None or available is None or largest * count <= available:
        return required
    return replace(required, max_bytes=available / count)


def available_memory() -> int | None:
    """Return the bytes that programs can take without swapping, or None where the system does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        found = dict(line.split(":", 1) for line in lines)
        return int(found["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None
