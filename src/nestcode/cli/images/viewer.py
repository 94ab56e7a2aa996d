"""A page that shows a stream of images and contains its decoder: browsers open it as a file, without a server."""

import json
import re
from base64 import b64encode
from html import escape
from pathlib import Path

STATIC = Path(__file__).parents[2] / "serve" / "static"
SCRIPTS = ("nest/decoder.js", "nest/stream.js", "viewer.js")  # each imports from those before it only
FILES = ("nest.wasm", "photos.coder.z", "photos-1.coder.z")  # that decoder.js loads


def viewer_page(stream: bytes, title: str) -> str:
    """Return the page of a stream, whole or truncated.

    >>> import nestcode as nc
    >>> page = viewer_page(nc.compress_images([nc.data.sample_images()["china"]], bpp=0.1), "china")
    >>> page.startswith("<!doctype html>"), "<title>china</title>" in page
    (True, True)
    """
    from nestcode.images.format import parse_image_header  # not where all commands are listed

    parse_image_header(memoryview(stream))  # what is no stream of images is refused
    encoded = {name: b64encode((STATIC / "nest" / name).read_bytes()).decode() for name in FILES}
    scripts = [_without_modules((STATIC / name).read_text(encoding="utf-8")) for name in SCRIPTS]
    data = json.dumps({"files": encoded, "stream": b64encode(stream).decode()})
    page = (STATIC / "viewer.html").read_text(encoding="utf-8")
    script = f"const page = {data};\n" + "\n".join(scripts)
    return page.replace("SCRIPT", script, 1).replace("TITLE", escape(title), 2)


def _without_modules(script: str) -> str:
    """Return a module as part of a script: browsers import no modules from files.

    >>> _without_modules("export const b = a;")
    'const b = a;'
    """
    return re.sub(r"^export ", "", re.sub(r"^(import|export \{|export \*) .*$", "", script, flags=re.M), flags=re.M)
