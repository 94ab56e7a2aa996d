"""Put the commands together, and turn errors into one line and an exit status."""

import sys
import warnings
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from typer.core import TyperGroup

import nestcode
from nestcode.cli import compress, data, decompress, demo, info, reproduce
from nestcode.cli.simulate_bandwidth import simulate_bandwidth
from nestcode.errors import NestcodeError


class Commands(TyperGroup):
    """Commands that Ctrl-C ends with one line and the status 130."""

    def invoke(self, ctx: Any) -> Any:
        """Run one."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            said = f"interrupted: {error}" if str(error) else "interrupted"
        _print(said)  # out here the command's progress bars are gone
        raise typer.Exit(130)


app = typer.Typer(
    name="nestcode",
    cls=Commands,
    help="Nested codes: bit strings whose every prefix is the best code of that length.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(epilog="Example: nestcode compress photos/ -o photos.nest --budget 2MB")(compress.compress)
app.command(epilog="Example: nestcode decompress photos.nest --length 256 -o out/")(decompress.decompress)
app.command(epilog="Example: nestcode simulate-bandwidth link.csv --unit kbit --items 1000")(simulate_bandwidth)
app.command(epilog="Example: nestcode reproduce pca --data DIR --out report")(reproduce.reproduce)
app.command(epilog="Example: nestcode data cifar10 --to data")(data.data)
app.command(epilog="Example: nestcode demo --out report")(demo.demo)
app.command(epilog="Example: nestcode info photos.nest --json")(info.info)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"nestcode {nestcode.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop."),
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line; errors of Nestcode's own end it with status 1 and one line."""
    warnings.showwarning = _print_warning
    try:
        app()
        return
    except (NestcodeError, OSError) as error:
        said = str(error)
    except MemoryError as error:
        said = f"there is not enough memory for this{f' ({error})' if str(error) else ''}: give less, or smaller ones"
    _print(f"[bold red]error:[/] {escape(said)}")
    sys.exit(1)


def _print_warning(message: Warning | str, *_: object, **__: object) -> None:
    """A warning as one line, without where in the source it came from."""
    _print(f"[bold yellow]warning:[/] {escape(' '.join(str(message).split()))}")


def _print(line: str) -> None:
    Console(stderr=True).print(line, soft_wrap=True)
