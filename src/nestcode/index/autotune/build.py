"""`Index.build`: trials on samples, the choice, and an index of all rows whose recall is verified."""

import signal
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nestcode.arrays import Ids, check_ids, check_int, check_rows, check_seed, is_number, shown
from nestcode.coders import Coder, LinearCoder, ResidualCoder
from nestcode.coders.base import Metric, Selection, check_settings
from nestcode.errors import InvalidInput
from nestcode.index.autotune.candidates import Candidate, Kind, list_candidates, representatives
from nestcode.index.autotune.choice import Choice, Forecast, Preference, Trial, build_ns, choose, forecast, least_ns
from nestcode.index.autotune.trials import Sample, run_trials
from nestcode.index.compaction import MIN_GRAPH
from nestcode.search.planner import NS_PER_SCANNED_VALUE, RERANKED_FIRST_PER_HIT, Effort, scan_ns
from nestcode.search.vectors import VectorFormat, VectorType

if TYPE_CHECKING:
    from nestcode.index.index import Index

Report = Callable[[str], None]
FIRST_TRIAL_SHARE, FIRST_TRIAL_ROWS = 16, (500, 1500)  # one row in this number, but at least and at most these numbers
LATER_TRIAL_ROWS = (6000, 24_000)  # of the best
TRIAL_HITS, LEAST_TRIAL_QUERIES = 1280, 40  # true neighbors of the queries of a trial, and so at most 1,280 queries
WORTH_A_TRIAL = 1.25  # times as fast as the best so far: what a candidate must be, were the data as easy as can be
NS_PER_TRIAL = 1e8  # beside the build: to tune it
QUERIES = 1000  # that the whole index is tuned with, at most;
TUNING_HITS, LEAST_TUNING_QUERIES = 1000, 40  # and the least: true neighbors, and queries
CONFIDENCE = 1.645  # standard errors: recall of other queries is below the target in one of twenty cases
LEAST_ROWS_PER_HIT = 15  # of a trial: fewer rows would nearly all be hits
FIRST_BUDGET_SHARE = 4  # of the items, one in this number are estimated first where no trial says how many
HELD_OUT_SHARE = 10  # one row in this number is a query at most
MIN_TRIAL_ROWS = 50  # fewer tell nothing about recall
BUDGET_SHARE = 1 / 10  # of the build's counted work, that trials may take; and the last queries half as much
SCANS_AT_ONCE = 4  # queries whose exhaustive search takes as long as that of one alone
SEARCHES = 6  # of each of the last queries
FINALISTS = 2  # structures and coders of later trials
PIECE_VALUES = 1 << 22


@dataclass(frozen=True)
class Wish:
    """What the caller of `Index.build` asked for, checked."""

    metric: Metric
    recall: float
    k: int
    max_bytes: float | None
    prefer: Preference
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
        if self.seconds is not None and (not is_number(self.seconds) or not self.seconds >= 0):
            raise InvalidInput(f"seconds must be a number of at least 0, got {shown(self.seconds)}")


def build(
    X: ArrayLike,
    wish: Wish,
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
    given = None if queries is None else check_rows(queries, features)
    if given is not None and not len(given):
        raise InvalidInput("queries must have at least one row, got none: leave them out to take held-out rows")
    names = np.arange(count) if ids is None else check_ids(ids, count)
    wish = replace(wish, k=min(wish.k, max(count - 1, 1)))
    rng = np.random.default_rng(wish.seed)
    order = rng.permutation(count)
    held = order[: min(QUERIES, max(count // HELD_OUT_SHARE, 1))]
    columns = None if attributes is None else _checked_attributes(attributes, count)
    few = count < MIN_TRIAL_ROWS
    bounded = _bounded_by_memory(wish, count, features)
    if bounded is not wish:
        report(f"memory allows {bounded.max_bytes:,.0f} bytes an item")
    if few:
        ranked, reason = _without_trials(rows, bounded, "float32", f"{count} rows are too few for trials")
        coders = Coders(rows, wish)
    else:
        # Codes are better of rows that a coder was fitted on: queries among them would need less effort than others.
        coders = Coders(rows if given is not None else np.delete(rows, held, axis=0), wish)
        ranked, reason = _compare(rows, coders, bounded, given, held, order, report)
    sizes = []  # of what was built, in bytes an item
    for chosen in ranked:
        report(f"building {chosen.candidate} of {count:,} rows")
        index = chosen.candidate.index(coders.fitted(chosen.candidate, _selection(chosen, ranked, reason, wish)))
        index.add(rows, ids=names, attributes=columns)
        index.compact()
        choice = Choice(
            chosen.candidate, reason, tuple(ranked), wish.metric, wish.recall, wish.k, wish.max_bytes, count
        )
        index.choice = choice if few else _verify(index, choice, chosen, rows, given, held, names, report)
        if chosen.untried and not few:
            ranked, reason = choose([_measured(index, chosen), *ranked[1:]], wish.prefer, count)
            index.choice = replace(index.choice, reason=reason, tried=tuple(ranked))
            if ranked[0].candidate != chosen.candidate:
                continue
        index.search(rows[:1], wish.k)  # which prepares what the index keeps for searches
        if wish.max_bytes is None or index.nbytes <= wish.max_bytes * count:
            break
        sizes.append(index.nbytes / count)
        report(f"it takes {sizes[-1]:,.0f} bytes an item")
    else:
        raise InvalidInput(
            f"max_bytes must be at least {min(sizes):,.0f} for {count:,} rows of {features} features"
            f"{'' if columns is None else ' and their attributes'}, got {wish.max_bytes:g}: allow more, or index less"
        )
    choice = index.choice
    if choice.reached is not None and choice.reached - choice.standard_error < wish.recall:
        remedy = "give more queries" if wish.max_bytes is None else "raise max_bytes"
        warnings.warn(
            f"no index that was tried reaches recall@{wish.k} {wish.recall:g} by a standard error, this one has "
            f"{choice.reached:.3f} ± {choice.standard_error:.3f}: {remedy}, or lower recall",
            stacklevel=3,
        )
    return index


class Coders:
    """The coders of all rows but the queries: each is fitted when it is first needed, and once.

    Args:
        rows: to fit them to.
        wish: the metric and the seed.

    """

    def __init__(self, rows: NDArray[Any], wish: Wish) -> None:
        self._rows, self._wish = rows, wish
        self._known: dict[Kind, Coder] = {}

    def fit(self, kind: Kind, width: int) -> Coder:
        """Return a coder of this kind, whose codes are at least this wide."""
        known = self._known.get(kind)
        if known is None or known.width_ < width:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of unallocated bits: trials compared what the others are worth
                known = kind(width, self._wish.metric, seed=self._wish.seed).fit(self._rows)
            self._known[kind] = known
        return known

    def fitted(self, candidate: Candidate, selection: Selection) -> Coder:
        """Return the coder of a candidate, with why it was chosen."""
        coder = self.fit(candidate.kind, candidate.width)
        coder.selection_ = selection
        return coder


def _compare(
    rows: NDArray[Any],
    coders: Coders,
    wish: Wish,
    given: NDArray[Any] | None,
    held: Ids,
    order: Ids,
    report: Report,
) -> tuple[list[Forecast], str]:
    """Return the forecasts of all candidates, the best first, and why it is.

    Where one search alone competes with the scan, its trial is the build.
    """
    count, features = rows.shape
    items = order[len(held) :] if given is None else order
    many = max(TRIAL_HITS // wish.k, LEAST_TRIAL_QUERIES)
    queries = (rows[np.sort(held[:many])] if given is None else given)[:many]
    least, most = FIRST_TRIAL_ROWS
    size = min(max(count // FIRST_TRIAL_SHARE, LEAST_ROWS_PER_HIT * wish.k, least), most, len(items))
    sample = _sample(rows, items[:size], queries, wish)
    precise = _precise(rows, sample, wish)
    small = wish.prefer in ("memory", "build")
    candidates = [
        one
        for one in list_candidates(features, precise, wish.max_bytes, small=small)
        if one.structure != "graph" or count >= MIN_GRAPH
    ]
    if not candidates:
        raise _too_small(wish, list_candidates(features, precise, None, small=True), features)
    scans = [_scan_forecast(one, count, features, wish.k) for one in candidates if one.structure == "scan"]
    searched = [one for one in candidates if one.structure != "scan"]
    trials: dict[Candidate, list[Trial]] = {}
    quick = wish.prefer == "latency" and wish.max_bytes is None
    if quick:
        searched = [one for one in searched if _may_be_faster(one, scans, features, wish.k)]
        if not searched:
            reason = "no other search can be faster by a quarter than to scan all items"
            return _without_trials(rows, wish, precise, reason)
        if len(searched) == 1:
            return [_untried(searched[0], count, features, wish.k), *scans], "its trial is the build"
    graphs = [one.width for one in searched if one.structure == "graph"]
    fitted: dict[Kind, Coder] = {LinearCoder: coders.fit(LinearCoder, max(graphs))} if graphs and quick else {}

    def ranked() -> tuple[list[Forecast], str]:
        forecasts = [forecast(own, count, features, wish.k) for own in trials.values()]
        return choose([*forecasts, *scans], wish.prefer, count, wish.max_bytes)

    def worth_trying(one: Candidate) -> bool:
        known = ranked()[0] if trials or scans else []
        return _worth_trying(one, [trial for own in trials.values() for trial in own], known, wish, features)

    budget = BUDGET_SHARE * max(build_ns(one, count, features) for one in candidates)
    started = time.monotonic()
    reason, chosen = "", representatives(searched)
    with Interruption() as interruption:
        for size in (len(sample.rows), *LATER_TRIAL_ROWS):
            if size > len(sample.rows):
                if size > len(items):
                    break
                chosen = _finalists(ranked()[0], searched)
                sample = _sample(rows, items[:size], queries, wish)
            budget -= sum(build_ns(one, size, features) + NS_PER_TRIAL for one in chosen)
            if budget < 0 and trials:
                break
            for trial in run_trials(sample, chosen, worth_trying, wish.recall, wish.seed, report, fitted):
                trials.setdefault(trial.candidate, []).append(trial)
                if wish.seconds is not None and time.monotonic() - started > wish.seconds:
                    reason = f", of what {wish.seconds:g} seconds allowed to try"
                if reason or interruption.came:
                    break
            if reason or interruption.came:
                break
    if interruption.came:
        if not trials:
            raise KeyboardInterrupt
        reason = ", of what was tried before the interruption"
        report("interrupted: the best so far is built")
    forecasts, why = ranked()
    return forecasts, why + reason


def _finalists(ranked: list[Forecast], candidates: list[Candidate]) -> list[Candidate]:
    """Return the candidates of the best structures and coders, of all widths."""
    families = dict.fromkeys((one.candidate.structure, one.candidate.kind) for one in ranked)
    best = [family for family in families if family[0] != "scan"][:FINALISTS]
    return [one for one in candidates if (one.structure, one.kind) in best]


def _worth_trying(one: Candidate, trials: list[Trial], known: list[Forecast], wish: Wish, features: int) -> bool:
    """Return whether a candidate may be the best.

    A `ResidualCoder` takes longer to fit than all others together: it is tried where memory is to be saved, or where
    nothing else reaches the target.
    """
    reached = [trial.candidate for trial in trials if trial.reached]
    if one.kind is ResidualCoder:
        return wish.prefer == "memory" or not reached
    if wish.prefer != "latency" or wish.max_bytes is not None or any(trial.candidate == one for trial in trials):
        return True
    return _may_be_faster(one, [other for other in known if other.reached], features, wish.k)


def _may_be_faster(candidate: Candidate, known: list[Forecast], features: int, k: int) -> bool:
    """Return whether a candidate may be faster by a quarter than all that is known."""
    return WORTH_A_TRIAL * least_ns(candidate, features, k) < min((one.ns for one in known), default=inf)


def _sample(rows: NDArray[Any], items: Ids, queries: NDArray[Any], wish: Wish) -> Sample:
    return Sample(rows[np.sort(items)], queries, None, wish.metric, min(wish.k, len(items)))


def _precise(rows: NDArray[Any], sample: Sample, wish: Wish) -> VectorType:
    """Return "float16" where its rounding takes at most half of the misses that the target allows, else "float32"."""
    count, features = rows.shape
    step = max(PIECE_VALUES // features, 1)
    try:
        for start in range(0, count, step):
            piece = rows[start : start + step]
            rounded = VectorFormat("float16", features).round(piece)
            if wish.metric == "cosine" and piece[~rounded.rows.any(axis=1)].any():
                return "float32"
    except InvalidInput:
        return "float32"
    misses = 1 - sample.recall_of_rounding(VectorFormat("float16", features).round(sample.rows))
    return "float16" if misses <= (1 - wish.recall) / 2 else "float32"


def _without_trials(rows: NDArray[Any], wish: Wish, precise: VectorType, reason: str) -> tuple[list[Forecast], str]:
    """Return candidates that compare all items, by the most precise vectors first."""
    count, features = rows.shape
    fits = [one for one in list_candidates(features, precise, wish.max_bytes, small=False) if one.structure != "graph"]
    if not fits:
        raise _too_small(wish, list_candidates(features, precise, None, small=True), features)
    fits.sort(key=lambda one: one.structure != "scan")
    fits = fits[:1] if wish.max_bytes is None else fits
    return [_scan_forecast(one, count, features, wish.k) for one in fits], reason


def _too_small(wish: Wish, candidates: list[Candidate], features: int) -> InvalidInput:
    least = min(one.least_bytes(features) for one in candidates)
    return InvalidInput(
        f"max_bytes must be more than {least} for rows of {features} features, got {wish.max_bytes:g}: allow more, or "
        "index fewer features"
    )


def _scan_forecast(candidate: Candidate, count: int, features: int, k: int) -> Forecast:
    """Return what a scan costs. It takes no trial: `_precise` has found the type of vectors that ranks well enough."""
    return Forecast(
        candidate,
        recall=1.0,
        reached=True,
        candidates=count,
        rerank=k,
        ns=_scan_ns(count, features, candidate.vectors or "int8", k),
        bytes_per_item=float(candidate.least_bytes(features)),
        build_ns=build_ns(candidate, count, features),
        trials=(),
    )


def _untried(candidate: Candidate, count: int, features: int, k: int) -> Forecast:
    """Return what a candidate may be that has no trial: as fast as the easiest data allow."""
    return Forecast(
        candidate,
        recall=1.0,
        reached=True,
        candidates=max(count // FIRST_BUDGET_SHARE, k),
        rerank=RERANKED_FIRST_PER_HIT * k,
        ns=least_ns(candidate, features, k),
        bytes_per_item=float(candidate.least_bytes(features)),
        build_ns=build_ns(candidate, count, features),
        trials=(),
    )


def _measured(index: "Index", forecast: Forecast) -> Forecast:
    """Return the forecast with what the index was measured to be."""
    choice, effort = index.choice, index.effort
    assert isinstance(choice, Choice)
    assert choice.reached is not None
    assert choice.ns is not None
    return replace(
        forecast,
        recall=choice.reached,
        reached=choice.reached - choice.standard_error >= choice.recall,
        candidates=forecast.candidates if effort is None else effort.candidates,
        rerank=forecast.rerank if effort is None else effort.rerank,
        ns=choice.ns,
        bytes_per_item=index.nbytes / len(index),
        trials=(len(index),),
    )


def _scan_ns(count: int, features: int, vectors: VectorType, k: int) -> float:
    return scan_ns(count, NS_PER_SCANNED_VALUE[vectors] * features, k)


def _checked_attributes(attributes: Any, count: int) -> Any:
    """Return attributes as the index takes them; wrong ones raise before the trials."""
    from nestcode.search.attributes import Attributes

    return Attributes.read(attributes, count).batch


def _selection(chosen: Forecast, ranked: list[Forecast], reason: str, wish: Wish) -> Selection:
    """Return the choice as it is saved with the coder."""
    measure = f"expected ns of a query at recall@{wish.k} {wish.recall:g}"
    return Selection("search", measure, {str(one.candidate): one.ns for one in ranked}, str(chosen.candidate), reason)


def _verify(
    index: "Index",
    choice: Choice,
    expected: Forecast,
    rows: NDArray[Any],
    given: NDArray[Any] | None,
    held: Ids,
    names: Ids,
    report: Report,
) -> Choice:
    """Set the effort that reaches the target in the whole index, and return the choice with the recall measured."""
    exact_ns = _scan_ns(len(rows), rows.shape[1], "float32", choice.k) / SCANS_AT_ONCE
    budget = BUDGET_SHARE / 2 * max(one.build_ns for one in choice.tried)
    least = max(TUNING_HITS // choice.k, LEAST_TUNING_QUERIES)
    most = max(int(budget / (SEARCHES * expected.ns + exact_ns)), least)
    own = None if given is not None else np.sort(held[:most])
    queries = rows[own] if given is None else given[:most]
    report(f"measuring recall of {len(queries):,} queries")
    hidden = own is not None and choice.chosen.structure == "graph"
    measured = index._blind_to(names[own]) if hidden else index
    sample = Sample(rows, queries, own, choice.metric, choice.k, hidden)
    trials = sample.searches(measured, names)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the warning below says more
        if expected.candidates >= len(rows) and measured.explain(queries[:1], choice.k).operator == "scan":
            found = trials.run(None, None)
        else:
            near = Effort(expected.candidates, len(rows), expected.rerank, choice.k)
            found = trials.fastest(choice.recall, near, CONFIDENCE)
            index.effort = trials.effort(found)
    return replace(choice, reached=found.recall, standard_error=found.standard_error, ns=found.ns)


def _bounded_by_memory(wish: Wish, count: int, features: int) -> Wish:
    """Return the wish with the bound that the machine's memory sets, where an index of float32 might exceed it."""
    largest = max(one.least_bytes(features) for one in list_candidates(features, "float32", None, small=False))
    available = available_memory()
    if wish.max_bytes is not None or available is None or largest * count <= available:
        return wish
    return replace(wish, max_bytes=available / count)


def available_memory() -> int | None:
    """Return the bytes that programs can take without swapping, or None where the system does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        found = dict(line.split(":", 1) for line in lines)
        return int(found["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None


class Interruption:
    """Notices Ctrl-C inside a `with` block, once; a second one is raised as usual.

    Python drops a KeyboardInterrupt that is raised inside a callback of a weak reference, and trials have many.
    """

    def __init__(self) -> None:
        self.came = False
        self._before: Any = None

    def __enter__(self) -> Self:
        main = threading.current_thread() is threading.main_thread()
        if main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._before = signal.signal(signal.SIGINT, self._notice)
        return self

    def _notice(self, *_: object) -> None:
        self.came = True
        signal.signal(signal.SIGINT, self._before)
        raise KeyboardInterrupt

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
        self.came |= kind is KeyboardInterrupt
        return kind is KeyboardInterrupt
