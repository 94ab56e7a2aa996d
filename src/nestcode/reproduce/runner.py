"""Run experiments, store their results as JSON, and write one report on all of them."""

import json
import os
import platform
import subprocess
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

import nestcode
from nestcode.errors import InvalidInput
from nestcode.report import Link, Page
from nestcode.reproduce.lab import Experiment, Finding, Lab
from nestcode.storage import write_atomic

NAMES = (
    "pca", "filters", "pinwheel", "speeds", "complexity", "neighborhoods",
    "reconstructions", "rates", "information", "regularization", "knn", "infinite", "nesting",
)  # fmt: skip
VERDICTS = {True: "holds", False: "differs", None: ""}
COLORS = {True: "green", False: "red", None: "none"}  # of verdicts on the console
SHOWN = {"scale", "data", "seconds", "machine", "seeds", "commit", "departures"}  # keys that the report shows


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
    lab.folder.mkdir(parents=True, exist_ok=True)  # fail before the work if the folder cannot be written
    for number, experiment in enumerate(chosen, start=1):
        lab.console.print(f"[bold]{number}/{len(chosen)}[/] {experiment.name}: {experiment.title}")
        if not lab.fresh and _is_done(experiment.name, lab):
            lab.console.print("  already done; --fresh runs it again")
            continue
        try:
            _run(experiment, Lab(lab.folder, lab.data, lab.scale, lab.seeds, lab.fresh, lab.console))
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
    page.table(
        ["in the paper", "experiment", "hold", "differ"],
        [_overview(experiment, results[experiment.name]) for experiment in done],
        caption="How many findings hold, and which differ. Findings are claims of the paper and checks of our own.",
        words=True,
    )
    for experiment in done:
        _add_section(page, experiment, results[experiment.name], folder)
    page.footer(f"Written by nestcode reproduce, version {nestcode.__version__}.")
    console.print("Open this page in a browser:")
    return page.write(folder)


def _run(experiment: Experiment, lab: Lab) -> None:
    """Run one experiment, store its figures and its results, and print its findings."""
    start = time.perf_counter()
    experiment.run(lab)
    seconds = time.perf_counter() - start + lab.cached_seconds  # as without a cache
    for name, figure in lab.files.items():
        write_atomic(lab.folder / name, figure)
    result = {"experiment": experiment.name, "where": experiment.where, **_settings(lab), "seconds": round(seconds, 1)}
    write_atomic(
        lab.folder / f"{experiment.name}.json",
        json.dumps({**result, **lab.to_json()}, indent=1, ensure_ascii=False).encode(),
    )
    for finding in lab.findings:
        verdict = f"[{COLORS[finding.holds]}]{VERDICTS[finding.holds]}[/]"
        lab.console.print(f"  {finding.claim}: {finding.ours} (paper: {finding.paper}) {verdict}", highlight=False)


def _heading(experiment: Experiment) -> str:
    return f"{experiment.title} ({experiment.where})"


def _overview(experiment: Experiment, result: dict[str, Any]) -> list[object]:
    holds = [finding["holds"] for finding in result["findings"]]
    differ = "; ".join(finding["claim"] for finding in result["findings"] if finding["holds"] is False)
    return [experiment.where, Link(experiment.title, _heading(experiment)), str(holds.count(True)), differ or "none"]


def _add_section(page: Page, experiment: Experiment, result: dict[str, Any], folder: Path) -> None:
    page.section(_heading(experiment), f"The paper: {experiment.claim}")
    page.table(
        ["claim", "paper", "here", ""],
        [[f["claim"], f["paper"], f["ours"], VERDICTS[f["holds"]]] for f in result["findings"]],
        caption=f"nestcode reproduce {experiment.name} --{result['scale']}{' --data DIR' if result['data'] else ''}: "
        f"{result['seconds']:.0f} s on {result['machine']}, seeds {', '.join(map(str, result['seeds']))}, "
        f"commit {result['commit'] or 'unknown'}.",
        words=True,
    )
    for block in result["blocks"]:
        if "figure" in block:
            page.image(block["figure"], (folder / f"{block['figure']}.png").read_bytes(), block["caption"])
        else:
            page.table(block["headers"], block["rows"], caption=block["caption"])
    if result["departures"]:
        page.text("Departures from the paper, and why:")
        page.list(result["departures"])


def _settings(lab: Lab) -> dict[str, Any]:
    """Return what results depend on."""
    return {
        "version": nestcode.__version__, "commit": _commit(), "scale": lab.scale, "seeds": list(lab.seeds),
        "data": lab.data is not None, "machine": _machine(),
    }  # fmt: skip


def _read_result(folder: Path, name: str) -> dict[str, Any] | None:
    """Return the results of an experiment, or None if anything that the report shows is missing or damaged."""
    try:
        result = json.loads((folder / f"{name}.json").read_text())
        for finding in result["findings"]:
            Finding(**finding)
        figures = [block["figure"] for block in result["blocks"] if "figure" in block]
        whole = all(Path(figure).name == figure and _is_png(folder / f"{figure}.png") for figure in figures)
        complete = result.keys() >= SHOWN
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return result if whole and complete else None


def _is_png(path: Path) -> bool:
    return path.read_bytes().startswith(b"\x89PNG")


def _is_done(name: str, lab: Lab) -> bool:
    """Return whether this version ran the experiment with these settings before."""
    result = _read_result(lab.folder, name)
    same = {key: value for key, value in _settings(lab).items() if key not in ("commit", "machine")}
    return result is not None and all(result.get(key) == value for key, value in same.items())


def _machine() -> str:
    """Describe the machine that times were measured on."""
    gpu = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    return f"{os.cpu_count()} cores, {platform.machine()}{gpu}"


def _commit() -> str | None:
    here = Path(__file__).parent
    run = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False, cwd=here)
    return run.stdout.strip() or None if run.returncode == 0 else None
