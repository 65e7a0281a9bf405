"""Starts storages on loopback: buckets with moto, and a cluster of Postgres."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.children import ChildProcess, started
from benchmarks.workload import SkipError, is_installed

if TYPE_CHECKING:
    from collections.abc import Iterator

_USER, _PASSWORD = "agent", "secret"
_NOBODY = 65534
_START_S = 30.0

KEY, SECRET, REGION = "key", "secret", "us-east-1"


class Asked(NamedTuple):
    """A request to the bucket server."""

    method: str
    path: str
    """The bucket and the object's name."""
    sent_bytes: int
    """The bytes that the client sent."""
    answered_bytes: int


class Buckets:
    """A server of buckets."""

    def __init__(self, child: ChildProcess) -> None:
        self._child = child
        port = child.hear().strip()
        if not port:
            message = "moto does not serve buckets here"
            raise SkipError(message)
        self.endpoint = f"http://127.0.0.1:{port}"

    @property
    def options(self) -> dict[str, str]:
        """The options of `statelog.fleet.connect`."""
        return {"endpoint": self.endpoint, "region": REGION, "access_key_id": KEY, "secret_access_key": SECRET}

    def told(self) -> list[Asked]:
        """Return the requests since the last call."""
        self._child.say("")
        return [Asked(*each) for each in json.loads(self._child.hear())]


@contextmanager
def serving_buckets() -> Iterator[Buckets]:
    """Serve buckets. Raises SkipError if moto is not installed."""
    if not is_installed("moto.moto_server"):
        message = "moto is not installed (pip install 'moto[server]')"
        raise SkipError(message)
    with started("benchmarks.fleet.bucket_server", 1) as (child,):
        yield Buckets(child)


@contextmanager
def serving_postgres() -> Iterator[str]:
    """Serve a new Postgres cluster with default flushes. Yield the URL of its database.

    Raises:
        SkipError: the programs of a Postgres server, or psycopg, are missing.
    """
    is_root = os.getuid() == 0  # Postgres refuses to run as root.
    programs = ("initdb", "postgres", *(["setpriv"] if is_root else []))
    missing = [name for name in programs if not shutil.which(name)]
    missing += [] if is_installed("psycopg") else ["psycopg"]
    if missing:
        message = f"there is no Postgres to start: {', '.join(missing)} missing"
        raise SkipError(message)
    folder = Path(tempfile.mkdtemp(prefix="statelog-bench-postgres-"))
    prefix = ["setpriv", f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups", "--"] if is_root else []
    try:
        password = folder / "password"
        password.write_text(_PASSWORD, encoding="ascii")
        if is_root:
            os.chown(folder, _NOBODY, _NOBODY)
            os.chown(password, _NOBODY, _NOBODY)
        with _serving(folder, prefix, password) as url:
            yield url
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _serving(folder: Path, prefix: list[str], password: Path) -> Iterator[str]:
    data = folder / "data"
    make = ["initdb", "-D", str(data), "-U", _USER, "-A", "scram-sha-256", f"--pwfile={password}"]
    subprocess.run([*prefix, *make, "-E", "UTF8", "--locale=C"], check=True, capture_output=True, cwd=folder)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = {"listen_addresses": "127.0.0.1", "port": port, "unix_socket_directories": folder}
    serve = ["postgres", "-D", str(data), *(f"--{name}={value}" for name, value in settings.items())]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen([*prefix, *serve], stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=folder)
    try:
        url = f"postgresql://{_USER}:{_PASSWORD}@127.0.0.1:{port}/postgres"
        _wait_for(url, server)
        yield url
    finally:
        server.send_signal(signal.SIGINT)  # Postgres then closes the remaining connections.
        server.wait(timeout=_START_S)


def _wait_for(url: str, server: subprocess.Popen[bytes]) -> None:
    import psycopg

    ends_s = time.monotonic() + _START_S
    while server.poll() is None and time.monotonic() < ends_s:
        with suppress(psycopg.OperationalError), psycopg.connect(url, connect_timeout=2):
            return
        time.sleep(0.1)
    message = "Postgres does not start here"
    raise SkipError(message)
