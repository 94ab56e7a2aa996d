"""`nestcode serve`: an index and its streams over HTTP, and a page to explore them."""

import os
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nestcode.cli.files import item_coder
from nestcode.cli.options import CoderIfAny, check_positive, messages
from nestcode.cli.search import note_count
from nestcode.errors import InvalidInput, Unavailable, import_extra

if TYPE_CHECKING:
    from nestcode.serve.service import Embed

TOKEN = "NESTCODE_TOKEN"


def serve(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="INDEX", help="The folder of an index, or the folders of its parts, read as one."),
    ] = None,
    coder: CoderIfAny = None,
    items: Annotated[
        Path | None,
        typer.Option(help="Images or texts of the items: a folder, a .npy file of images, or a line of text each."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="A model of sentence-transformers, so that texts can be queries.")
    ] = None,
    streams: Annotated[Path | None, typer.Option(help="A folder of streams (.nest) to serve.")] = None,
    host: Annotated[str, typer.Option(help="Address to bind to; only loopback needs no token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8808,
    writable: Annotated[bool, typer.Option("--writable", help="Let clients add and remove items.")] = False,
    memory: Annotated[
        str | None,
        typer.Option(help="What to read into memory at once: all, or codes.", show_default="as used"),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(help=f"A file with the bearer token of clients, of 16 or more characters; or set {TOKEN}."),
    ] = None,
    cors: Annotated[
        list[str] | None, typer.Option(help="A web site whose pages may read answers and write; may be repeated.")
    ] = None,
    max_body: Annotated[int, typer.Option(min=1024, help="Most bytes of a request.")] = 64 << 20,
    max_rows: Annotated[int, typer.Option(min=1, help="Most queries or items of a request.")] = 4096,
    max_k: Annotated[int, typer.Option(min=1, help="Neighbors per query.")] = 1000,
    max_seconds: Annotated[
        float, typer.Option(callback=check_positive, help="Most seconds of a request, from arrival to answer.")
    ] = 30,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Number of concurrent searches.", show_default="the cores")
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Search --parts on this Ray cluster: auto, local, or host:port."),
    ] = None,
    parts: Annotated[
        str | None,
        typer.Option(
            metavar="DIR|URL",
            help="With --ray: the folder of a sharded index, or a link to it, which all nodes can open; or its URL in "
            "object storage.",
        ),
    ] = None,
    replicas: Annotated[int, typer.Option(min=1, help="With --ray: number of processes that open each part.")] = 2,
) -> None:
    """Serve an index and streams over HTTP, with an explorer page at /.

    The server shows commits of other processes within a second. On Ctrl-C or SIGTERM it finishes running requests.
    With --ray, replicas on a cluster search the parts of a sharded index. If --parts is a link, point it to a new
    generation of parts: requests go there once its replicas answer.
    """
    if (ray is None) != (parts is None):
        raise typer.BadParameter("--ray and --parts belong together: give the address of a cluster and a folder")
    if parts is not None and paths:
        raise typer.BadParameter("--parts is the index that is served: leave out INDEX")
    if parts is not None and writable:
        raise typer.BadParameter(
            "--writable is for one machine: leave it out, build another generation of parts, and let --parts lead to it"
        )
    for module in ("fastapi", "msgspec", "prometheus_client", "uvicorn"):
        import_extra(module, extra="serve", purpose="nestcode serve")
    from nestcode.serve import Items, Limits, Service, create_app
    from nestcode.serve.guard import check_origins, is_loopback
    from nestcode.serve.server import address_of, check_token, listen, run

    token = token_of(token_file)
    check_token(host, token)
    check_origins(cors or ())
    limits = Limits(body=max_body, rows=max_rows, k=max_k, seconds=max_seconds)
    with listen(host, port) as listening, ExitStack() as stack:
        index: Any = paths[0] if paths and len(paths) == 1 else paths or None
        if ray is not None and parts is not None:
            from nestcode.cli.ray import cluster_of

            index = stack.enter_context(cluster_of(ray, parts, replicas, memory, max_seconds / 2))
        service = Service(
            index,
            coder=None if coder is None else item_coder(coder),
            items=None if items is None else Items.open(items),
            embed=None if model is None else _embedding(model),
            streams=streams,
            writable=writable,
            memory=memory,
            threads=threads,
            limits=limits,
        )
        if items is not None and index is not None and service.items is not None:
            note_count(items, len(service.items), len(service.index))
        app = create_app(service, token=token, local=is_loopback(host), origins=tuple(cors or ()))
        if host in ("0.0.0.0", "::"):
            messages().print("Other machines reach this server under the name of this one.")
        messages().print("Open this address to explore; Ctrl-C ends the server.")
        print(address_of(listening), flush=True)
        run(app, limits, listening)


def token_of(path: Path | None) -> str | None:
    """Return the token of a file or of the environment; arguments of a command can be seen by everyone."""
    if path is None:
        return os.environ.get(TOKEN) or None
    if not path.exists() or path.is_dir():  # a pipe will do
        raise FileNotFoundError(f"there is no file {path}: write the token into it")
    token = path.read_text().strip()
    if not token:
        raise InvalidInput(f"{path} must hold a token, got an empty file: write one into it")
    return token


def _embedding(name: str) -> "Embed":
    transformers = import_extra("sentence_transformers", extra="text", purpose="--model")
    try:
        model = transformers.SentenceTransformer(name, local_files_only=True)
    except OSError:  # neither a folder nor downloaded before
        _check_hub(name)
        model = transformers.SentenceTransformer(name)
    return partial(model.encode, convert_to_numpy=True, show_progress_bar=False)


def _check_hub(name: str) -> None:
    """Raise if models cannot be downloaded, which would be tried for minutes."""
    from huggingface_hub import constants, get_session

    try:
        get_session().head(constants.ENDPOINT, timeout=10)
    except Exception as error:  # of whichever library it uses
        raise Unavailable(
            f"--model must be a folder or a model that was downloaded before, as {constants.ENDPOINT} does not answer "
            f"({error}), got {name!r}: give its folder, or connect to the internet"
        ) from error
