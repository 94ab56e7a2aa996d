"""The log of a run: a progress bar, one JSON line per report, TensorBoard."""

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Column

from nestcode.errors import import_extra
from nestcode.storage import make_folder, naming_file
from nestcode.training.config import Run


class RunLogger:
    """Writes a run's reports; only the process of rank 0 writes."""

    def __init__(self, run: Run, total: int, *, writes: bool) -> None:
        self._total, self._started, self._examples = total, time.perf_counter(), 0
        wanted = sys.stderr.isatty() if run.progress is None else run.progress
        self._bar: Progress | None = _bar() if wanted and writes else None
        self._task = TaskID(0)
        self._log: TextIO | None = None
        self._board: Any = None
        if writes and run.log is not None:
            make_folder(Path(run.log).parent)
            with naming_file(Path(run.log)):
                self._log = Path(run.log).open("w", encoding="utf-8")  # noqa: SIM115
        if writes and run.tensorboard is not None:
            import_extra("tensorboard", extra="tensorboard", purpose="Run(tensorboard=…)")
            from torch.utils.tensorboard import SummaryWriter

            self._board = SummaryWriter(str(run.tensorboard))

    @contextmanager
    def open(self) -> Iterator[None]:
        """Show the progress bar, and close all outputs at the end."""
        try:
            if self._bar is not None:
                self._bar.start()
                self._task = self._bar.add_task("training", total=self._total, note="")
            yield
        finally:
            for part, end in ((self._bar, "stop"), (self._log, "close"), (self._board, "close")):
                if part is not None:
                    getattr(part, end)()

    def replay(self, reports: list[dict[str, Any]]) -> None:
        """Begin the log with the reports of a checkpoint; later ones will be reported again."""
        for report in reports:
            self._write(report)

    def advance(self, step: int, examples: int) -> None:
        """Count a step."""
        self._examples += examples
        if self._bar is not None:
            self._bar.update(self._task, completed=step)

    def report(self, values: dict[str, Any]) -> dict[str, Any]:
        """Write a report: values by name, `errors` by length."""
        elapsed = time.perf_counter() - self._started
        report = {**values, "examples_per_second": round(self._examples / elapsed), "seconds": round(elapsed, 2)}
        self._write(report)
        if self._board is not None:
            if values["loss"] is not None:
                self._board.add_scalar("loss", values["loss"], values["step"])
            for length, error in values["errors"].items():
                self._board.add_scalar(f"error/{length}", error, values["step"])
        if self._bar is not None:
            self._bar.update(self._task, note=_note(report))
        return report

    def _write(self, report: dict[str, Any]) -> None:
        if self._log is not None:
            with naming_file(Path(self._log.name)):
                self._log.write(json.dumps(report) + "\n")
                self._log.flush()


def _note(report: dict[str, Any]) -> str:
    """Return a report in one line: the loss, the error at half the lengths and at the last, the speed."""
    parts = [] if report["loss"] is None else [f"loss {report['loss']:.3g}"]
    errors = list(report["errors"].items())
    if errors:
        shown = "  ".join(f"{length}: {error:.3g}" for length, error in (errors[len(errors) // 2], errors[-1]))
        parts.append(f"error at {shown}")
    return "  ".join([*parts, f"{report['examples_per_second']:,}/s"])


def _bar() -> Progress:
    columns = (
        TextColumn("{task.description}", table_column=Column(no_wrap=True, min_width=8)),
        BarColumn(bar_width=20),
        TimeRemainingColumn(table_column=Column(no_wrap=True, min_width=8)),
        TextColumn("{task.fields[note]}"),
    )
    return Progress(*columns, console=Console(stderr=True))
