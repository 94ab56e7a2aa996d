"""Programs and files that the tests of the decoder for browsers share."""

import shutil
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import nestcode

HERE = Path(__file__).parent
NEST = Path(nestcode.__file__).parent / "serve/static/nest"


@pytest.fixture(scope="session")
def node() -> str:
    found = shutil.which("node")
    if found is None:
        pytest.skip("Node is needed: apt-get install nodejs")
    return found


def run_node(node: str, script: str, *args: str, stdin: str = "") -> str:
    command = [node, str(HERE / script), str(NEST), *args]
    ended = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


class Handler(SimpleHTTPRequestHandler):
    """As `python -m http.server`, which ignores Range; paths below /range/ honor it."""

    extensions_map = {**SimpleHTTPRequestHandler.extensions_map, ".js": "text/javascript", ".wasm": "application/wasm"}  # noqa: RUF012

    def do_GET(self) -> None:
        if not self.path.startswith("/range/"):
            return super().do_GET()
        data = Path(self.translate_path(self.path.removeprefix("/range"))).read_bytes()
        first, last = self.headers["Range"].removeprefix("bytes=").split("-")
        part = data[int(first) : int(last) + 1 if last else None]
        self.send_response(206 if part else 416)
        self.send_header("Content-Range", f"bytes {first}-{int(first) + len(part) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        self.wfile.write(part)
        return None

    def log_message(self, *_: Any) -> None:
        """Keep quiet."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A folder that is served, with the decoder in nest/, and its address."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "nest").symlink_to(NEST)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()
