"""A private PostgreSQL server in a temporary folder, as an unprivileged user."""

import glob
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

PROGRAMS = next(iter(sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True)), None)  # noqa: PTH207


def programs() -> Path | None:
    """Return the folder of the server's programs, or None where it is not installed."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).resolve().parent
    return None if PROGRAMS is None else Path(PROGRAMS)


@contextmanager
def running_server(folder: Path) -> Iterator[str]:
    """Make a cluster in a folder, start its server, and yield its connection string."""
    make_cluster(folder)
    with started(folder) as (dsn, _):
        yield dsn


def make_cluster(folder: Path) -> None:
    """Make the files of a server in a folder."""
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        os.chown(folder, nobody.pw_uid, nobody.pw_gid)
    init = ["--no-sync", "--auth=trust", "--username=nestcode", "--encoding=UTF8", "--locale=C"]
    subprocess.run([_programs() / "initdb", "-D", folder / "data", *init], check=True, **_options(folder))


@contextmanager
def started(folder: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Start the server of a cluster, with its socket in the folder, and yield its connection string and its process."""
    settings = ["listen_addresses=", "fsync=off", "full_page_writes=off", "autovacuum=off", "shared_buffers=16MB"]
    command = [f"{_programs()}/postgres", "-D", f"{folder}/data", "-k", str(folder), *(f"-c{one}" for one in settings)]
    dsn = f"host={folder} user=nestcode dbname=postgres"
    server = _answering(command, dsn, folder)
    try:
        yield dsn, server
    finally:
        server.send_signal(signal.SIGQUIT)
        server.wait()


def _programs() -> Path:
    found = programs()
    assert found is not None
    return found


def _options(folder: Path) -> dict[str, Any]:
    """Return how programs of PostgreSQL are started, which refuses to run as root."""
    options: dict[str, Any] = {"cwd": folder, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        options |= {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
    return options


def _answering(command: list[str], dsn: str, folder: Path) -> subprocess.Popen[bytes]:
    """Start a server until one answers: it ends at once while processes of a killed one still have its memory."""
    server: subprocess.Popen[bytes] = subprocess.Popen(command, **_options(folder))
    for _ in range(6000):
        try:
            psycopg.connect(dsn).close()
            return server
        except psycopg.OperationalError:
            if server.poll() is not None:
                server = subprocess.Popen(command, **_options(folder))
            time.sleep(0.05)
    server.kill()
    raise TimeoutError("the server does not answer")


@contextmanager
def private_folder() -> Iterator[Path]:
    """Yield a temporary folder with a short path, as that of a socket must be."""
    folder = Path(tempfile.mkdtemp(prefix="nestcode-pg-", dir="/tmp"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
