"""The application: registers the commands, and turns errors into one line and an exit status."""

import inspect
import io
import os
import select
import signal
import sys
import warnings
from difflib import get_close_matches
from typing import Annotated, Any, TypeVar

import typer
from rich.markup import escape
from typer.core import TyperGroup

import nestcode
from nestcode import cli
from nestcode.cli import (
    bench,
    compress,
    data,
    decode,
    decompress,
    demo,
    encode,
    evaluate,
    fit,
    images,
    index,
    info,
    reproduce,
    search,
    serve,
    tune,
)
from nestcode.cli.options import Notes, messages, printable, set_quiet
from nestcode.cli.simulate_bandwidth import simulate_bandwidth
from nestcode.errors import NestcodeError

Cause = TypeVar("Cause", bound=BaseException)
GLOBAL = ("--quiet", "--debug")  # options that may stand before or after the command


class Commands(TyperGroup):
    """The command group; Ctrl-C ends a command with one line and status 130."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Move the global options to the front, then parse."""
        end = args.index("--") if "--" in args else len(args)
        first = [arg for arg in args[:end] if arg in GLOBAL]
        return super().parse_args(ctx, [*first, *(arg for arg in args[:end] if arg not in GLOBAL), *args[end:]])

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        if signal.getsignal(signal.SIGINT) is cli.end:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            result = super().invoke(ctx)
            if sys.stdout is not None:
                sys.stdout.flush()  # here, where a broken pipe is handled, not at exit
            return result
        except BaseException as error:
            _keep_nearest(error)
            if (broken := _cause(error, BrokenPipeError)) is not None:
                if _reader_stopped(error):
                    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes at exit
                    raise typer.Exit from None
                if error is broken:  # Typer would print nothing
                    raise ConnectionError(f"the other end closed a connection ({error}): try again") from error
            interrupt = _cause(error, KeyboardInterrupt)
            if interrupt is None:
                raise
            line = f"interrupted: {interrupt}" if str(interrupt) else "interrupted"
        _print(line)  # outside of the handler, where progress bars are closed
        raise typer.Exit(130)


app = typer.Typer(
    name="nestcode",
    cls=Commands,
    help="Learn, search and compress with nested codes: bit strings whose every prefix is a good code.",
    epilog="The --help of each command has an example; --quiet and --debug may stand before or after the command. Exit "
    "status: 0 on success, 1 after an error, 2 for an invalid command line, 130 when interrupted by Ctrl-C.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
# Commands as the help lists them: panel, function, example.
for panel, command, example in (
    ("Codes", fit.fit, "fit data.npy -o my.coder --width 512 --goal search"),
    ("Codes", encode.encode, "encode data.npy --coder my.coder -o codes.npy"),
    ("Codes", decode.decode, "decode codes.npy --coder my.coder --length 64 -o back.npy"),
    ("Search", search.search, "search my.index queries.npy --k 10"),
    ("Search", tune.tune, "tune my.index queries.npy --target-recall 0.95 --vectors data.npy"),
    ("Search", evaluate.evaluate, "evaluate my.index queries.npy --vectors data.npy"),
    ("Search", serve.serve, "serve my.index --items photos/ --streams streams/"),
    ("Streams", compress.compress, "compress data.npy -o data.nest --budget 2MB"),
    ("Streams", decompress.decompress, "decompress data.nest --length 64 -o back.npy"),
    ("Streams", simulate_bandwidth, "simulate-bandwidth link.csv --unit kbit --items 1000"),
    ("Data, reports and files", demo.demo, "demo --out report"),
    ("Data, reports and files", info.info, "info photos.nest --json"),
    ("Data, reports and files", bench.bench, "bench data.npy --width 128"),
    ("Data, reports and files", data.data, "data cifar10 --to data"),
    ("Data, reports and files", reproduce.reproduce, "reproduce pca --data DIR --out report"),
):
    app.command(epilog=f"Example: nestcode {example}", rich_help_panel=panel)(command)
app.add_typer(index.index, name="index", rich_help_panel="Search")
app.add_typer(images.images, name="images", rich_help_panel="Streams")
for group in (app, index.index, images.images):
    for registered in group.registered_commands:  # Typer keeps the line breaks of docstrings
        paragraphs = inspect.cleandoc(registered.callback.__doc__ or "").split("\n\n")
        registered.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"nestcode {nestcode.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", callback=set_quiet, help="Print only results and errors.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line; an error ends it with one line and status 1."""
    warnings.showwarning = _print_warning
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # file names are arbitrary bytes, and a terminal may lack characters
            stream.reconfigure(errors="surrogateescape" if stream.encoding == "utf-8" else "replace")
    try:
        app()
        return
    except Exception as error:
        if "--debug" in sys.argv:
            raise
        message = _message(error)
    _print(f"[bold red]error:[/] {escape(printable(' '.join(message.split())))}")
    sys.exit(1)


def _keep_nearest(error: BaseException) -> None:
    """Let the error of a misspelled option suggest the most similar one; Typer lists several by the alphabet."""
    options = getattr(error, "possibilities", None)
    if options:
        error.possibilities = get_close_matches(getattr(error, "option_name", ""), options, n=1) or options  # type: ignore[attr-defined]


def _cause(error: BaseException | None, kind: type[Cause]) -> Cause | None:
    """Return what caused an error, if it is of this kind; imports wrap interrupts, Rich broken pipes."""
    while error is not None and not isinstance(error, kind):
        error = error.__cause__ or error.__context__
    return error


def _reader_stopped(error: BaseException) -> bool:
    """Return whether a broken pipe is that of standard output, whose reader may stop early, as head does."""
    if isinstance(error, SystemExit):  # by Rich, which has redirected standard output
        return True
    output = select.poll()
    output.register(1, 0)  # which reports errors alone
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in output.poll(0))


def _message(error: Exception) -> str:
    if isinstance(error, NestcodeError | OSError):
        return str(error).replace('on_damage="keep"', "decompress --on-damage keep")
    detail = f" ({error})" if str(error) else ""
    if isinstance(error, MemoryError):
        return f"there is not enough memory{detail}: process fewer or smaller items"
    return f"{type(error).__name__}{detail} is a bug in nestcode: please report the output of --debug"


def _print_warning(message: Warning | str, *_: object, **__: object) -> None:
    """Print a warning as one line without its source location."""
    messages().print(f"[bold yellow]warning:[/] {escape(printable(' '.join(str(message).split())))}", soft_wrap=True)


def _print(line: str) -> None:
    Notes(stderr=True).print(line, soft_wrap=True)
