"""The environment of the fleet's rows: settings, folders, and servers that start when a row first needs them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.fleet.servers import Buckets, serving_buckets, serving_postgres

if TYPE_CHECKING:
    from contextlib import ExitStack
    from pathlib import Path

    from benchmarks.workload import Bench
    from statelog.fleet import Fleet


class FleetSetting:
    """The settings of a run, its servers and its folders."""

    def __init__(self, bench: Bench, stack: ExitStack) -> None:
        self.bench = bench
        self._stack = stack
        self._buckets: Buckets | None = None
        self._postgres: str | None = None
        self._folders = 0

    def folder(self) -> Path:
        """Create a folder that no row has used."""
        self._folders += 1
        made = self.bench.directory / f"{self._folders}"
        made.mkdir()
        return made

    def buckets(self) -> Buckets:
        """Return the bucket server. Raises SkipError."""
        if self._buckets is None:
            self._buckets = self._stack.enter_context(serving_buckets())
        return self._buckets

    def postgres(self) -> str:
        """Return the URL of a database with a fleet's tables. Raises SkipError."""
        if self._postgres is None:
            self._postgres = self._stack.enter_context(serving_postgres())
            from statelog.fleet.storage_urls import set_up

            set_up(self._postgres)
        return self._postgres

    def fleet(self, bucket: str, cache: Path | None = None) -> Fleet:
        """Connect a new machine to a bucket."""
        from statelog import fleet

        return fleet.connect(f"s3://{bucket}", cache=cache or self.folder(), **self.buckets().options)
