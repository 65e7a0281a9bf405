"""Compares StatelogSaver, on a store that is shipped to Postgres, with PostgresSaver on a long thread of LangGraph."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from benchmarks.measure import interleave
from benchmarks.result import Result, at_most
from benchmarks.workload import SkipError, is_installed

if TYPE_CHECKING:
    from benchmarks.fleet.setting import FleetSetting

_PUT_MAX, _KEPT_MAX = 0.25, 0.02
_MESSAGES, _PUTS_PER_REPEAT = 1000, 8
_NEEDED = {
    "langgraph.graph": "langgraph",
    "langgraph.checkpoint.sqlite": "langgraph-checkpoint-sqlite",
    "langgraph.checkpoint.postgres": "langgraph-checkpoint-postgres",
}
"""For each needed module, the package that provides it."""

_OURS = "statelog_fleet_heads", "statelog_fleet_objects"
_THEIRS = "checkpoints", "checkpoint_blobs", "checkpoint_writes"


def measure_langgraph(setting: FleetSetting) -> Result:
    """Measure a `put` at the end of a chat, and the size of the chat in the database."""
    missing = [package for module, package in _NEEDED.items() if not is_installed(module)]
    if missing:
        message = f"{', '.join(missing)} not installed (pip install 'statelog[bench-fleet]')"
        raise SkipError(message)
    url = setting.postgres()
    from langgraph.checkpoint.postgres import PostgresSaver

    from benchmarks.langgraph.chat import puts, run_chat
    from benchmarks.langgraph.savers import OURS, POSTGRES, SaverPeer
    from statelog import fleet
    from statelog.adapters.langgraph import StatelogSaver

    count = setting.bench.size(_MESSAGES, at_least=20)
    runs = setting.bench.repeats * _PUTS_PER_REPEAT
    sides = []
    with ExitStack() as stack:
        connected = stack.enter_context(fleet.connect(url, cache=setting.folder()))
        before_bytes = _size_bytes(url, _OURS)
        store = stack.enter_context(connected.open("graph", acknowledge="remote"))
        theirs = stack.enter_context(PostgresSaver.from_conn_string(url))
        theirs.setup()
        peers = {OURS: SaverPeer(OURS, StatelogSaver(store)), POSTGRES: SaverPeer(POSTGRES, theirs)}
        configs = {name: peer.new_config() for name, peer in peers.items()}
        for name, peer in peers.items():
            sides.append(run_chat(peer.saver, configs[name], count=count).side(f"{name}: chat, a superstep"))
        kept = _size_bytes(url, _OURS) - before_bytes, _size_bytes(url, _THEIRS)
        operations = {name: puts(peer, configs[name], count=runs + 8, length=count) for name, peer in peers.items()}
        taken = interleave(operations, count=runs)
        sides += [samples.side(f"{name}: put at message {count:,}") for name, samples in taken.items()]
    checks = (
        at_most(
            f"put at message {count:,}, stored remotely when it returns, relative to {POSTGRES}'s",
            taken[OURS].p50_us / taken[POSTGRES].p50_us,
            _PUT_MAX,
        ),
        at_most(f"the same chat: bytes kept in Postgres, relative to {POSTGRES}'s", kept[0] / kept[1], _KEPT_MAX),
    )
    note = f"langgraph: {kept[0] / 1e6:.1f} MB and {kept[1] / 1e6:.1f} MB kept in Postgres, with indexes"
    return Result(checks=checks, sides=tuple(sides), notes=(note,))


def _size_bytes(url: str, tables: tuple[str, ...]) -> int:
    import psycopg

    with psycopg.connect(url) as connection:
        rows = [
            connection.execute("SELECT pg_total_relation_size(%s::regclass)", (each,)).fetchone() for each in tables
        ]
    return sum(int(row[0]) for row in rows if row is not None)
