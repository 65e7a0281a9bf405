"""The rows of the table, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from statelog.bench.fleet import commits, restoring, saving, sharing, shipping

if TYPE_CHECKING:
    from collections.abc import Callable

    from statelog.bench.fleet.place import Place
    from statelog.bench.result import Result

    Row = Callable[[Place], Result]

ROWS: dict[str, Row] = {
    "remote": commits.measure_remote,
    "local": commits.measure_local,
    "bytes": shipping.measure_bytes,
    "restore": restoring.measure_restore,
    "fetch": restoring.measure_fetch,
    "base": shipping.measure_base,
    "langgraph": saving.measure_langgraph,
    "share": sharing.measure_share,
    "requests": commits.measure_requests,
}
"""The rows by their names for `--row`."""
