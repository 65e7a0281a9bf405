"""Storages of a fleet for tests: a bucket server and a Postgres cluster, both on loopback."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path

_SERVER = Path(__file__).with_name("bucket_server.py")
_MEMORY = Path("/dev/shm")
_USER, _PASSWORD = "agent", "open sesame"


@contextmanager
def serving_buckets():
    """Serve buckets, and return the options of `open_archive` for them."""
    with tempfile.TemporaryFile() as told:
        server = subprocess.Popen(
            [sys.executable, str(_SERVER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=told
        )
        try:
            port = server.stdout.readline().decode().strip()
            told.seek(0)
            assert port, told.read().decode()
            yield {
                "endpoint": f"http://127.0.0.1:{port}",
                "region": "us-east-1",
                "access_key_id": "key",
                "secret_access_key": "secret",
            }
        finally:
            server.kill()
            server.communicate()


def has_postgres():
    return all(shutil.which(name) for name in ("initdb", "postgres")) and (
        os.getuid() != 0 or shutil.which("setpriv") is not None
    )


@contextmanager
def serving_postgres():
    """Serve a new cluster, and return the URL of its database."""
    as_user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"] if os.getuid() == 0 else []
    folder = Path(tempfile.mkdtemp(prefix="statelog-postgres-", dir=_MEMORY if os.access(_MEMORY, os.W_OK) else None))
    try:
        password = folder / "password"
        password.write_text(_PASSWORD)
        if as_user:
            os.chown(folder, 65534, 65534)
            os.chown(password, 65534, 65534)
        data = folder / "data"
        make = ["initdb", "-D", str(data), "-U", _USER, "-A", "scram-sha-256", f"--pwfile={password}", "--no-sync"]
        subprocess.run([*as_user, *make, "-E", "UTF8", "--locale=C"], check=True, capture_output=True, cwd=folder)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        settings = {"listen_addresses": "127.0.0.1", "port": port, "unix_socket_directories": folder, "fsync": "off"}
        serve = ["postgres", "-D", str(data), *(f"--{name}={value}" for name, value in settings.items())]
        with (folder / "log").open("wb") as log:
            server = subprocess.Popen([*as_user, *serve], stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=folder)
        try:
            url = f"postgresql://{_USER}:{_PASSWORD.replace(' ', '%20')}@127.0.0.1:{port}/postgres"
            _wait_for(url, server, folder / "log")
            yield url
        finally:
            server.terminate()  # as "smart" asks: with connections left it waits
            with suppress(subprocess.TimeoutExpired):
                server.wait(timeout=1)
            server.send_signal(3)
            server.wait(timeout=20)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _wait_for(url, server, log):
    import psycopg

    for _try in range(200):
        assert server.poll() is None, log.read_text()
        with suppress(psycopg.OperationalError), psycopg.connect(url, connect_timeout=2):
            return
        with suppress(subprocess.TimeoutExpired):
            server.wait(timeout=0.1)
    raise AssertionError(log.read_text())
