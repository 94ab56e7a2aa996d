"""Put the commands together, and turn errors into one line and an exit status."""

import io
import signal
import sys
import warnings
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from typer.core import TyperGroup

import nestcode
from nestcode import cli
from nestcode.cli import bench, compress, data, decode, decompress, demo, encode, fit, index, info, reproduce, search
from nestcode.cli.options import be_quiet, messages
from nestcode.cli.simulate_bandwidth import simulate_bandwidth
from nestcode.errors import NestcodeError

ANYWHERE = ("--quiet", "--debug")  # options of all commands, before the command or after it


class Commands(TyperGroup):
    """Commands that Ctrl-C ends with one line and the status 130."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options; some of them may stand anywhere."""
        end = args.index("--") if "--" in args else len(args)
        first = [arg for arg in args[:end] if arg in ANYWHERE]
        return super().parse_args(ctx, [*first, *(arg for arg in args[:end] if arg not in ANYWHERE), *args[end:]])

    def invoke(self, ctx: Any) -> Any:
        """Run one."""
        if signal.getsignal(signal.SIGINT) is cli.end:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            return super().invoke(ctx)
        except BaseException as error:
            interrupt = _interrupt(error)
            if interrupt is None:
                raise
            said = f"interrupted: {interrupt}" if str(interrupt) else "interrupted"
        _print(said)  # out here the command's progress bars are gone
        raise typer.Exit(130)


app = typer.Typer(
    name="nestcode",
    cls=Commands,
    help="Nested codes: bit strings that can be cut anywhere, as every prefix is itself a code.",
    epilog="Every command has --help with an example; --quiet and --debug may stand anywhere. Exit status: 0 if all is "
    "well, 1 after an error, 2 if the command line itself is wrong, 130 when interrupted by Ctrl-C.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(epilog="Example: nestcode fit data.npy -o my.coder --width 512")(fit.fit)
app.command(epilog="Example: nestcode encode data.npy --coder my.coder -o codes.npy")(encode.encode)
app.command(epilog="Example: nestcode decode codes.npy --coder my.coder --length 64 -o back.npy")(decode.decode)
app.add_typer(index.index, name="index")
app.command(epilog="Example: nestcode search my.index queries.npy --k 10")(search.search)
app.command(epilog="Example: nestcode compress photos/ -o photos.nest --budget 2MB")(compress.compress)
app.command(epilog="Example: nestcode decompress photos.nest --length 256 -o out/")(decompress.decompress)
app.command(epilog="Example: nestcode simulate-bandwidth link.csv --unit kbit --items 1000")(simulate_bandwidth)
app.command(epilog="Example: nestcode reproduce pca --data DIR --out report")(reproduce.reproduce)
app.command(epilog="Example: nestcode bench data.npy --width 128")(bench.bench)
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
    quiet: Annotated[bool, typer.Option("--quiet", callback=be_quiet, help="Print results and errors only.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show where in the source an error comes from.")] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line; errors of Nestcode's own end it with status 1 and one line."""
    warnings.showwarning = _print_warning
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # names of files are any bytes, and not everything knows all letters
            stream.reconfigure(errors="surrogateescape" if stream.encoding == "utf-8" else "replace")
    try:
        app()
        return
    except Exception as error:
        if "--debug" in sys.argv:
            raise
        said = _said(error)
    _print(f"[bold red]error:[/] {escape(' '.join(said.split()))}")
    sys.exit(1)


def _interrupt(error: BaseException | None) -> KeyboardInterrupt | None:
    """The Ctrl-C behind an error; imports make others of it."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error


def _said(error: Exception) -> str:
    if isinstance(error, NestcodeError | OSError):
        return str(error)
    told = f" ({error})" if str(error) else ""
    if isinstance(error, MemoryError):
        return f"there is not enough memory for this{told}: give less, or smaller ones"
    return f"{type(error).__name__}{told}, which should not happen: please report what --debug shows"


def _print_warning(message: Warning | str, *_: object, **__: object) -> None:
    """A warning as one line, without where in the source it came from."""
    messages().print(f"[bold yellow]warning:[/] {escape(' '.join(str(message).split()))}", soft_wrap=True)


def _print(line: str) -> None:
    Console(stderr=True).print(line, soft_wrap=True)
