"""`nestcode images`: compress, decompress and view images."""

import typer

from nestcode.cli.images.compress import compress
from nestcode.cli.images.decompress import decompress
from nestcode.cli.images.view import view

images = typer.Typer(
    help="Compress, decompress and view images.",
    epilog="Example: nestcode images compress photos/ -o photos.nest --budget 2MB",
    no_args_is_help=True,
)
for command, example in (
    (compress, "compress photos/ -o photos.nest --budget 2MB"),
    (decompress, "decompress photos.nest --bpp 0.25 -o out/"),
    (view, "view photos.nest --image beach.jpg --bpp 0.25 -o beach.png --open"),
):
    images.command(epilog=f"Example: nestcode images {example}")(command)
