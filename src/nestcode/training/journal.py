"""What a run says while it goes: a progress bar, a log of one JSON line a report, TensorBoard."""

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Column

from nestcode.arrays import check_int
from nestcode.errors import InvalidInput, import_extra
from nestcode.training.checkpoint import check_path


@dataclass(frozen=True, kw_only=True)
class Run:
    """Where a run leaves its traces. None of it changes what is learnt.

    >>> Run(checkpoint="run.ckpt", resume=True, log="run.jsonl").report_every
    100

    Args:
        checkpoint: a file to go on from after a crash, written every `checkpoint_every` steps and at the end.
        resume: go on from it, if it is there.
        log: a file of one JSON object a line, of the whole run also where it was resumed.
        tensorboard: a folder for TensorBoard (extra `tensorboard`).
        progress: a bar on the terminal; None shows it if there is one.
        report_every: steps between reports.

    """

    checkpoint: str | os.PathLike[str] | None = None
    checkpoint_every: int = 500
    resume: bool = False
    log: str | os.PathLike[str] | None = None
    tensorboard: str | os.PathLike[str] | None = None
    progress: bool | None = None
    report_every: int = 100

    def __post_init__(self) -> None:
        for name in ("checkpoint_every", "report_every"):
            check_int(getattr(self, name), name, least=1)
        if self.checkpoint is not None:
            check_path(self.checkpoint)
        if not isinstance(self.resume, bool) or (self.resume and self.checkpoint is None):
            raise InvalidInput(
                f"resume is True or False, and goes on from a checkpoint, got resume={self.resume!r}, "
                f"checkpoint={self.checkpoint!r}"
            )
        if self.progress not in (None, True, False):
            raise InvalidInput(f"progress must be True, False or None, got {self.progress!r}")


def run_of(options: dict[str, Any]) -> Run:
    """The settings that came as keywords.

    >>> run_of({"log": "run.jsonl"}).log
    'run.jsonl'
    """
    known = [field.name for field in fields(Run)]
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise InvalidInput(f"fit takes {', '.join(known)}, got {', '.join(unknown)}: training= takes the others")
    return Run(**options)


class Journal:
    """Writes a run's reports."""

    def __init__(self, run: Run, total: int, speaks: bool) -> None:
        self._total, self._started, self._examples = total, time.perf_counter(), 0
        wanted = sys.stderr.isatty() if run.progress is None else run.progress
        self._bar: Progress | None = _bar() if wanted and speaks else None
        self._task = TaskID(0)
        self._log: TextIO | None = None
        self._board: Any = None
        if speaks and run.log is not None:
            Path(run.log).parent.mkdir(parents=True, exist_ok=True)
            self._log = Path(run.log).open("w", encoding="utf-8")  # noqa: SIM115
        if speaks and run.tensorboard is not None:
            import_extra("tensorboard", extra="tensorboard", purpose="Run(tensorboard=…)")
            from torch.utils.tensorboard import SummaryWriter

            self._board = SummaryWriter(str(run.tensorboard))

    @contextmanager
    def open(self) -> Iterator[None]:
        """Show the bar, and close all at the end."""
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
        """Begin the log with what was reported up to a checkpoint; what came after it will be reported again."""
        for report in reports:
            self._write(report)

    def advance(self, step: int, examples: int) -> None:
        """One more step is done."""
        self._examples += examples
        if self._bar is not None:
            self._bar.update(self._task, completed=step)

    def report(self, values: dict[str, Any]) -> dict[str, Any]:
        """Write a report: numbers by name, `errors` by length."""
        elapsed = time.perf_counter() - self._started
        report = {**values, "examples_per_second": round(self._examples / elapsed), "seconds": round(elapsed, 2)}
        self._write(report)
        if self._board is not None:
            if values["loss"] is not None:
                self._board.add_scalar("loss", values["loss"], values["step"])
            for length, error in values["errors"].items():
                self._board.add_scalar(f"error/{length}", error, values["step"])
        if self._bar is not None:
            errors = list(values["errors"].items())
            shown = "  ".join(f"{length}: {error:.3g}" for length, error in (errors[len(errors) // 2], errors[-1]))
            loss = "" if values["loss"] is None else f"loss {values['loss']:.3g}  "
            speed = f"{report['examples_per_second']:,}/s"
            self._bar.update(self._task, note=f"{loss}error at {shown}  {speed}")
        return report

    def _write(self, report: dict[str, Any]) -> None:
        if self._log is not None:
            self._log.write(json.dumps(report) + "\n")
            self._log.flush()


def _bar() -> Progress:
    columns = (
        TextColumn("{task.description}", table_column=Column(no_wrap=True, min_width=8)),
        BarColumn(bar_width=20),
        TimeRemainingColumn(table_column=Column(no_wrap=True, min_width=8)),
        TextColumn("{task.fields[note]}"),
    )
    return Progress(*columns, console=Console(stderr=True))
