"""Storages of a fleet for tests, on loopback: a bucket server, a Postgres cluster, and Azure's emulator."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from contextlib import contextmanager, suppress
from email.utils import formatdate
from pathlib import Path
from urllib.request import Request, urlopen

_SERVER = Path(__file__).with_name("bucket_server.py")
_MEMORY = Path("/dev/shm")
_USER, _PASSWORD = "agent", "open sesame"
_ACCOUNT = "devstoreaccount1"
_ACCOUNT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Of every emulator; they are in its documentation."""


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


def has_azurite():
    return shutil.which("azurite-blob") is not None


@contextmanager
def serving_azure():
    """Serve the container `tests`, by what `npm install azurite` installs; return the options of `open_archive`."""
    port = _free_port()
    serve = ["azurite-blob", "--silent", "--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry"]
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as told:
        where = ["--blobHost", "127.0.0.1", "--blobPort", str(port)]
        server = subprocess.Popen([*serve, *where], cwd=folder, stdin=subprocess.DEVNULL, stdout=told, stderr=told)
        try:
            endpoint = f"http://127.0.0.1:{port}/{_ACCOUNT}"
            for _try in range(200):
                assert server.poll() is None, told.seek(0) or told.read().decode()
                with suppress(OSError):
                    _make_container(endpoint, "tests")
                    break
                with suppress(subprocess.TimeoutExpired):
                    server.wait(timeout=0.1)
            yield {"endpoint": endpoint, "account_name": _ACCOUNT, "account_key": _ACCOUNT_KEY}
        finally:
            server.kill()
            server.wait()


def _make_container(endpoint, name):
    told = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-10-04"}
    lines = ["PUT", *[""] * 11, *(f"{key}:{value}" for key, value in told.items())]
    signed = "\n".join([*lines, f"/{_ACCOUNT}/{_ACCOUNT}/{name}", "restype:container"])
    digest = hmac.new(base64.b64decode(_ACCOUNT_KEY), signed.encode(), hashlib.sha256).digest()
    headers = {**told, "Authorization": f"SharedKey {_ACCOUNT}:{base64.b64encode(digest).decode()}", "Content-Type": ""}
    urlopen(Request(f"{endpoint}/{name}?restype=container", method="PUT", data=b"", headers=headers)).close()


def _free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


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
        port = _free_port()
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
