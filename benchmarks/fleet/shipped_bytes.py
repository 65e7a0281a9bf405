"""Counts the bytes that are sent to the bucket for commits and for bases."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from benchmarks import sqlite_peer
from benchmarks.fleet import litestream
from benchmarks.fleet.commits import MESSAGE_BYTES, SCHEMA
from benchmarks.fleet.texts import PROSE, RANDOM, messages
from benchmarks.result import Result, TargetCheck, at_most

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from benchmarks.fleet.servers import Asked
    from benchmarks.fleet.setting import FleetSetting

_BYTES_MAX = {RANDOM: 1.05, PROSE: 0.8}
_COMMITS, _PAUSE_S = 800, 0.05
"""The commits and the pause between two. They last more than 30 s, so that Litestream makes its first compaction."""

_DELAY_MS = 100
"""The time until a commit begins to be shipped, on both sides. Litestream's default is also measured."""

_DEFAULT_DELAY_MS = 1000

_BASE_MESSAGES, _BASE_MESSAGE_BYTES = 20_000, 500
_GROWTH, _BASE_MAX = 0.05, 0.25


def measure_bytes(setting: FleetSetting) -> Result:
    """Count the bytes that both sides send for the same messages at the same time."""
    count = setting.bench.size(_COMMITS, at_least=20)
    sent = {name: _sent(asked) for name, asked in _shipped(setting, count).items()}
    checks, notes = [], [f"bytes: {count:,} commits of {MESSAGE_BYTES} bytes of text, 50 ms apart"]
    for kind, bound in _BYTES_MAX.items():
        ours, theirs, slow = (sent[f"{side}, {kind}"] for side in ("statelog", litestream.NAME, _slow()))
        ratio = sum(ours.values()) / sum(theirs.values())
        checks.append(at_most(f"bytes shipped a commit, relative to {litestream.NAME}'s: {kind}", ratio, bound))
        for name, by_part in (("statelog", ours), (litestream.NAME, theirs), (_slow(), slow)):
            parts = ", ".join(f"{part} {size / count:,.0f}" for part, size in sorted(by_part.items()))
            notes.append(f"{name}, {kind}: {sum(by_part.values()) / count:,.0f} bytes a commit ({parts})")
    notes.append(f"{litestream.NAME} {litestream.version()}")
    return Result(checks=tuple(checks), sides=(), notes=tuple(notes))


def _slow() -> str:
    return f"{litestream.NAME} as shipped, each second"


def _shipped(setting: FleetSetting, count: int) -> dict[str, list[Asked]]:
    """Return the requests to each side's bucket."""
    buckets = setting.buckets()
    litestream.program()
    writers: list[Callable[[dict[str, Any]], object]] = []
    kinds: list[str] = []
    of_bucket: dict[str, str] = {}
    with ExitStack() as stack:
        for number, kind in enumerate(_BYTES_MAX):
            fleet = stack.enter_context(setting.fleet(f"bytes-{number}"))
            store = stack.enter_context(fleet.open("bytes", ship_ms=_DELAY_MS))
            thread = store.thread("chat", schema=SCHEMA)
            writers.append(lambda message, thread=thread: thread.commit({"messages": [message]}))  # type: ignore[misc]
            kinds.append(kind)
            of_bucket[f"bytes-{number}"] = f"statelog, {kind}"
            for name, delay_ms in ((litestream.NAME, _DELAY_MS), (_slow(), _DEFAULT_DELAY_MS)):
                bucket = f"bytes-{number}-peer-{delay_ms}"
                path = setting.folder() / "bytes.sqlite"
                peer = stack.enter_context(sqlite_peer.connected(path))
                stack.enter_context(litestream.Replica(path, bucket, buckets.endpoint, delay_ms).shipping())
                writers.append(peer.append)
                kinds.append(kind)
                of_bucket[bucket] = f"{name}, {kind}"
        buckets.told()
        _write(writers, kinds, count)
    found: dict[str, list[Asked]] = {name: [] for name in of_bucket.values()}
    for each in buckets.told():
        bucket = each.path.partition("/")[0]
        if bucket in of_bucket:
            found[of_bucket[bucket]].append(each)
    return found


def _write(writers: list[Callable[[dict[str, Any]], object]], kinds: list[str], count: int) -> None:
    texts = {kind: messages(kind, MESSAGE_BYTES) for kind in _BYTES_MAX}
    for _ in range(count):
        made = {kind: next(each) for kind, each in texts.items()}
        ends_s = time.monotonic() + _PAUSE_S
        for write, kind in zip(writers, kinds, strict=True):
            write(made[kind])
        time.sleep(max(ends_s - time.monotonic(), 0))
    time.sleep(2 * _DEFAULT_DELAY_MS / 1000)


def _sent(asked: Iterable[Asked]) -> dict[str, int]:
    """Return the sent bytes, keyed by kind of object, which is the second part of an object's name."""
    found: dict[str, int] = {}
    for each in asked:
        part = "/".join(each.path.split("/")[2:3])
        if each.sent_bytes:
            found[part] = found.get(part, 0) + each.sent_bytes
    return found


# --- bases ------------------------------------------------------------------------------------------


def measure_base(setting: FleetSetting) -> Result:
    """Measure the bytes of further images after a little growth, relative to the first image."""
    count = setting.bench.size(_BASE_MESSAGES, at_least=500)
    more = max(int(count * _GROWTH), 1)
    texts = messages(RANDOM, _BASE_MESSAGE_BYTES)
    checks: list[TargetCheck] = []
    notes: list[str] = []
    for threads in (1, 50):
        with setting.fleet(f"base-{threads}") as fleet, fleet.open("grown") as store:
            chats = [store.thread(f"chat {number}", schema=SCHEMA) for number in range(threads)]
            sizes = []
            for start, stop in ((0, count), (count, count + more)):
                for number in range(start, stop):
                    chats[number % threads].commit({"messages": [next(texts)]})
                if not start:
                    store.remote.base()  # Exclude what was due before.
                    setting.buckets().told()
                store.remote.base(is_fresh=not start)
                sizes.append(_sent(each for each in setting.buckets().told() if each.path.rpartition("/")[2].isdigit()))
        first, second = (size["base"] / 1e6 for size in sizes)
        notes.append(f"images of {threads} threads: {first:.2f} MB, then {second:.2f} MB")
        if threads == 1:
            what = f"second base after {_GROWTH:.0%} growth, relative to the first"
            checks.append(at_most(what, second / first, _BASE_MAX))
        else:
            notes[-1] += f" ({second / first:.2f}x)"
    return Result(checks=tuple(checks), sides=(), notes=tuple(notes))
