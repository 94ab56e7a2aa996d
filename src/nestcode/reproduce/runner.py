"""Run experiments, store their results as JSON, and write one report on all of them."""

import json
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.console import Console

import nestcode
from nestcode.errors import InvalidInput
from nestcode.report import Link, Page
from nestcode.reproduce.lab import Experiment, Finding, Lab
from nestcode.reproduce.lab.provenance import Provenance, find_machine
from nestcode.storage import make_folder, write_atomic

Result = dict[str, Any]  # of an experiment, as in its JSON file

NAMES = (
    "pca", "filters", "pinwheel", "speeds", "complexity", "neighborhoods",
    "reconstructions", "rates", "information", "regularization", "knn", "infinite", "nesting",
)  # fmt: skip
COLORS = {"holds": "green", "differs": "red", "inconclusive": "yellow"}  # of verdicts on the console
SHOWN = {"scale", "data", "seconds", "machine", "seeds", "commit", "clean", "departures"}  # keys that the report shows

FIELDS = [field.name for field in fields(Finding)]


def find_experiments(names: Sequence[str]) -> list[Experiment]:
    """Return the experiments with these names in the order of NAMES, or all of them."""
    wanted = list(dict.fromkeys(names)) or ["all"]
    unknown = [name for name in wanted if name not in (*NAMES, "all")]
    if unknown:
        raise InvalidInput(f"an experiment must be one of all, {', '.join(NAMES)}, got {unknown[0]!r}")
    chosen = NAMES if "all" in wanted else [name for name in NAMES if name in wanted]
    return [import_module(f"nestcode.reproduce.{name}").EXPERIMENT for name in chosen]


def reproduce(names: Sequence[str], lab: Lab) -> Path:
    """Run experiments one after the other, write the report and return its path.

    Results that are in the folder already are not computed again.

    Args:
        names: of experiments, or "all".
        lab: settings; each experiment gets a fresh lab with the same ones.

    """
    chosen = find_experiments(names)
    if lab.folder.exists() and not lab.folder.is_dir():
        raise InvalidInput(f"the report goes into a folder, but {lab.folder} is a file: give another name")
    make_folder(lab.folder)  # fail before the work if the folder cannot be written
    for number, experiment in enumerate(chosen, start=1):
        lab.console.print(f"[bold]{number}/{len(chosen)}[/] {experiment.name}: {experiment.title}")
        if not lab.fresh and _is_done(experiment.name, lab):
            lab.console.print("  already done; --fresh runs it again")
            continue
        try:
            _run(experiment, replace(lab, where=experiment.where, findings=[], departures=[], blocks=[], measured={},
                                     files={}, cached_seconds=0.0, sources=set()))  # fmt: skip
        except KeyboardInterrupt:
            raise KeyboardInterrupt("finished experiments are stored; the same command continues from there") from None
    return write_report(lab.folder, lab.console)


def write_report(folder: Path, console: Console) -> Path:
    """Write one page on all experiments whose results are in the folder, and return its path."""
    page = Page(
        "The paper, reproduced",
        "Learning Ordered Representations with Nested Dropout (Rippel, Gelbart and Adams, ICML 2014): every figure and "
        "claim of the paper beside what Nestcode measures.",
    )
    results = {name: result for name in NAMES if (result := _read_result(folder, name)) is not None}
    done = [experiment for experiment in find_experiments([]) if experiment.name in results]
    score = (
        f"Claims of the paper: {_score(results.values(), 'paper')}. Our own checks: {_score(results.values(), 'ours')}."
    )
    page.text(score)
    sources = sorted({str(Provenance(result["commit"], result["clean"])) for result in results.values()})
    page.text(f"All of it is of {sources[0]}." if len(sources) == 1 else f"It is of {' and '.join(sources)}.")
    page.table(
        ["in the paper", "experiment", "claims of the paper that hold", "differ", "are inconclusive"],
        [_overview(experiment, results[experiment.name]) for experiment in done],
        caption="The claims of the paper by experiment.",
        words=True,
    )
    for experiment in done:
        _add_section(page, experiment, results[experiment.name], folder)
    page.footer(f"Written by nestcode reproduce, version {nestcode.__version__}.")
    console.print(score, highlight=False)
    console.print("Open this page in a browser:")
    return page.write(folder)


def _run(experiment: Experiment, lab: Lab) -> None:
    """Run one experiment, store its figures and its results, and print its findings."""
    start = time.perf_counter()
    experiment.run(lab)
    seconds = time.perf_counter() - start + lab.cached_seconds  # as without a cache
    for name, figure in lab.files.items():
        write_atomic(lab.folder / name, figure)
    source = {"seconds": round(seconds, 1), **asdict(lab.provenance)}
    result = {"experiment": experiment.name, "where": experiment.where, **_settings(lab), **source, **lab.to_json()}
    result["findings"] = [{**finding, **source} for finding in result["findings"]]
    write_atomic(lab.folder / f"{experiment.name}.json", json.dumps(result, indent=1, ensure_ascii=False).encode())
    for finding in lab.findings:
        states = f" (paper: {finding.paper})" if finding.of == "paper" else ""
        verdict = f"[{COLORS[finding.verdict]}]{finding.verdict}[/]"
        lab.console.print(f"  {finding.claim}: {finding.ours}{states} {verdict}", highlight=False)


def _heading(experiment: Experiment) -> str:
    return f"{experiment.title} ({experiment.where})"


def _of(result: Result, whose: str) -> list[dict[str, Any]]:
    return [finding for finding in result["findings"] if finding["of"] == whose]


def _score(results: Iterable[Result], whose: str) -> str:
    """Count verdicts: "3 hold, 1 differs, 0 are inconclusive"."""
    count = Counter(finding["verdict"] for result in results for finding in _of(result, whose))
    return f"{count['holds']} hold, {count['differs']} differ, {count['inconclusive']} are inconclusive"


def _overview(experiment: Experiment, result: Result) -> list[object]:
    by_verdict: dict[str, list[str]] = {verdict: [] for verdict in COLORS}
    for finding in _of(result, "paper"):
        by_verdict[finding["verdict"]].append(finding["claim"])
    holds, *others = by_verdict.values()
    return [experiment.where, Link(experiment.title, _heading(experiment)), str(len(holds)),
            *("; ".join(claims) or "none" for claims in others)]  # fmt: skip


def _add_section(page: Page, experiment: Experiment, result: Result, folder: Path) -> None:
    page.section(_heading(experiment), f"The paper: {experiment.claim}")
    page.table(
        ["claim of the paper", "where", "paper", "here", "seeds", ""],
        [[f["claim"], f["where"], f["paper"], f["ours"], _seeds(f), f["verdict"]] for f in _of(result, "paper")],
        caption=f"nestcode reproduce {experiment.name} --{result['scale']}{' --data DIR' if result['data'] else ''}: "
        f"{result['seconds']:.0f} s on {result['machine']}, {Provenance(result['commit'], result['clean'])}.",
        words=True,
    )
    if checks := _of(result, "ours"):
        page.table(["check of our own", "here", "seeds", ""],
                   [[f["claim"], f["ours"], _seeds(f), f["verdict"]] for f in checks],
                   caption="Statements that the paper does not make.", words=True)  # fmt: skip
    for block in result["blocks"]:
        if "figure" in block:
            page.image(block["figure"], (folder / f"{block['figure']}.png").read_bytes(), block["caption"])
        else:
            page.table(block["headers"], block["rows"], caption=block["caption"])
    if result["departures"]:
        page.text("Departures from the paper, and why:")
        page.list(result["departures"])


def _seeds(finding: dict[str, Any]) -> str:
    return ", ".join(map(str, finding["seeds"])) or "none"


def _settings(lab: Lab) -> dict[str, Any]:
    """Return what results depend on."""
    return {
        "version": nestcode.__version__, "scale": lab.scale, "seeds": list(lab.seeds),
        "data": lab.data is not None, "machine": find_machine(),
    }  # fmt: skip


def _read_result(folder: Path, name: str) -> Result | None:
    """Return the results of an experiment, or None if anything that the report shows is missing or damaged."""
    try:
        result = json.loads((folder / f"{name}.json").read_text())
        for finding in result["findings"]:
            Finding(**{name: finding[name] for name in FIELDS})
        figures = [block["figure"] for block in result["blocks"] if "figure" in block]
        whole = all(Path(figure).name == figure and _is_png(folder / f"{figure}.png") for figure in figures)
        complete = result.keys() >= SHOWN
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return result if whole and complete else None


def _is_png(path: Path) -> bool:
    return path.read_bytes().startswith(b"\x89PNG")


def _is_done(name: str, lab: Lab) -> bool:
    """Return whether this commit ran the experiment with these settings before."""
    result = _read_result(lab.folder, name)
    same = {key: value for key, value in _settings(lab).items() if key != "machine"} | asdict(lab.provenance)
    return result is not None and all(result.get(key) == value for key, value in same.items())
