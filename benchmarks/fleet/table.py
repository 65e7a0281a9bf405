"""The rows of the table, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.fleet import commits, restores, savers, shared_store, shipped_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.fleet.setting import FleetSetting
    from benchmarks.result import Result

    Row = Callable[[FleetSetting], Result]

ROWS: dict[str, Row] = {
    "remote": commits.measure_remote,
    "local": commits.measure_local,
    "bytes": shipped_bytes.measure_bytes,
    "restore": restores.measure_restore,
    "fetch": restores.measure_fetch,
    "base": shipped_bytes.measure_base,
    "langgraph": savers.measure_langgraph,
    "share": shared_store.measure_share,
    "requests": commits.measure_requests,
}
"""The rows, keyed by their names for `--row`."""
