"""Run experiments, keep what they find, and write one page about all of them."""

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


def find(names: Sequence[str]) -> list[Experiment]:
    """The experiments of these names, or all of them."""
    wanted = list(dict.fromkeys(names)) or ["all"]
    unknown = [name for name in wanted if name not in (*NAMES, "all")]
    if unknown:
        raise InvalidInput(f"an experiment must be one of all, {', '.join(NAMES)}, got {unknown[0]!r}")
    chosen = NAMES if "all" in wanted else [name for name in NAMES if name in wanted]
    return [import_module(f"nestcode.reproduce.{name}").EXPERIMENT for name in chosen]


def reproduce(names: Sequence[str], lab: Lab) -> Path:
    """Run experiments one after the other and write the page; what is there already is not run again.

    Args:
        names: of experiments, or "all".
        lab: settings; each experiment gets a fresh one like it.

    """
    chosen = find(names)
    if lab.folder.exists() and not lab.folder.is_dir():
        raise InvalidInput(f"the report goes into a folder, but {lab.folder} is a file: give another name")
    lab.folder.mkdir(parents=True, exist_ok=True)  # where it cannot be written is better known before the work
    for number, experiment in enumerate(chosen, start=1):
        path = lab.folder / f"{experiment.name}.json"
        lab.console.print(f"[bold]{number}/{len(chosen)}[/] {experiment.name}: {experiment.title}")
        if not lab.fresh and _is_done(experiment.name, lab):
            lab.console.print("  done before; --fresh computes it again")
            continue
        own = Lab(lab.folder, lab.data, lab.scale, lab.seeds, lab.fresh, lab.console)
        start = time.perf_counter()
        try:
            experiment.run(own)
        except KeyboardInterrupt:
            raise KeyboardInterrupt("what is finished is kept, and the same command goes on from there") from None
        seconds = time.perf_counter() - start + own.spared  # as if nothing had been kept
        found = {"experiment": experiment.name, "where": experiment.where, **_made(lab), "seconds": round(seconds, 1)}
        for name, picture in own.pictures.items():
            write_atomic(lab.folder / name, picture)
        write_atomic(path, json.dumps({**found, **own.to_json()}, indent=1, ensure_ascii=False).encode())
        for finding in own.findings:
            mark = {True: "[green]holds[/]", False: "[red]differs[/]", None: ""}[finding.holds]
            lab.console.print(f"  {finding.claim}: {finding.ours} (paper: {finding.paper}) {mark}", highlight=False)
    return write_page(lab.folder, lab.console)


def write_page(folder: Path, console: Console) -> Path:
    """One page about all experiments that are done."""
    page = Page(
        "The paper, reproduced",
        "Learning Ordered Representations with Nested Dropout (Rippel, Gelbart and Adams, ICML 2014): each of its "
        "figures and claims, and what Nestcode measures today.",
    )
    done = {name: found for name in NAMES if (found := _found(folder, name)) is not None}
    page.table(
        ["in the paper", "experiment", "hold", "differ"],
        [_overview(experiment, done[experiment.name]) for experiment in find([]) if experiment.name in done],
        caption="How many findings hold, and which differ: claims of the paper, and checks of our own.",
        words=True,
    )
    for experiment in find([]):
        if experiment.name in done:
            _add(page, experiment, done[experiment.name], folder)
    page.footer(f"Made by nestcode reproduce, version {nestcode.__version__}.")
    console.print("Open this page in a browser:")
    return page.write(folder)


def _heading(experiment: Experiment) -> str:
    return f"{experiment.title} ({experiment.where})"


def _overview(experiment: Experiment, found: dict[str, Any]) -> list[object]:
    holds = [finding["holds"] for finding in found["findings"]]
    differ = "; ".join(finding["claim"] for finding in found["findings"] if finding["holds"] is False)
    return [experiment.where, Link(experiment.title, _heading(experiment)), str(holds.count(True)), differ or "none"]


def _add(page: Page, experiment: Experiment, found: dict[str, Any], folder: Path) -> None:
    page.section(_heading(experiment), f"The paper: {experiment.says}")
    page.table(
        ["claim", "paper", "here", ""],
        [[f["claim"], f["paper"], f["ours"], _told(f["holds"])] for f in found["findings"]],
        caption=f"nestcode reproduce {experiment.name} --{found['scale']}{' --data DIR' if found['data'] else ''}: "
        f"{found['seconds']:.0f} s on {found['machine']}, seeds {', '.join(map(str, found['seeds']))}, "
        f"commit {found['commit'] or 'unknown'}.",
        words=True,
    )
    for block in found["blocks"]:
        if "figure" in block:
            page.picture(block["figure"], (folder / f"{block['figure']}.png").read_bytes(), block["caption"])
        else:
            page.table(block["headers"], block["rows"], caption=block["caption"])
    if found["departures"]:
        page.text("Departures from the paper, and why:")
        page.list(found["departures"])


def _told(holds: bool | None) -> str:
    return {True: "holds", False: "differs", None: ""}[holds]


def _made(lab: Lab) -> dict[str, Any]:
    """What findings depend on."""
    return {
        "version": nestcode.__version__, "commit": _commit(), "scale": lab.scale, "seeds": list(lab.seeds),
        "data": lab.data is not None, "machine": _machine(),
    }  # fmt: skip


def _found(folder: Path, name: str) -> dict[str, Any] | None:
    """What an experiment left in a folder, if all that the page shows of it is there."""
    try:
        found = json.loads((folder / f"{name}.json").read_text())
        for finding in found["findings"]:
            Finding(**finding)
        figures = [block["figure"] for block in found["blocks"] if "figure" in block]
        whole = all(Path(figure).name == figure and _is_png(folder / f"{figure}.png") for figure in figures)
        shown = {"scale", "data", "seconds", "machine", "seeds", "commit", "departures"} <= found.keys()
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return found if whole and shown else None


def _is_png(path: Path) -> bool:
    return path.read_bytes().startswith(b"\x89PNG")


def _is_done(name: str, lab: Lab) -> bool:
    """Whether it was run before with these settings; what another version found is found again."""
    found = _found(lab.folder, name)
    same = {key: value for key, value in _made(lab).items() if key not in ("commit", "machine")}
    return found is not None and all(found.get(key) == value for key, value in same.items())


def _machine() -> str:
    """Where times were measured, in words."""
    gpu = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    return f"{os.cpu_count()} cores, {platform.machine()}{gpu}"


def _commit() -> str | None:
    here = Path(__file__).parent
    run = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False, cwd=here)
    return run.stdout.strip() or None if run.returncode == 0 else None
