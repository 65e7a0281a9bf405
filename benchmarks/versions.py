"""Measures what schema versions cost: a rename in a large state, reads through steps, a migration of many threads."""

from __future__ import annotations

import time
from itertools import cycle
from typing import TYPE_CHECKING, Any

import statelog
from benchmarks.measure import Samples, interleave
from benchmarks.result import Result, at_most, exactly
from benchmarks.workload import Bench, BenchWorkload
from statelog import reducers, versioned
from statelog.errors import SchemaError, SchemaVersionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from statelog import Versioned

_TEXT_BYTES = 2048
_TEXTS = 50_000
_TEXTS_PER_COMMIT = 1000
_COMMITS = 24
_READ_VERSIONS = 400
_STEPS = 5
_THREADS = 10_000
_THREADS_PER_COMMIT = 500
_SINGLE_COMMITS = 1000


def _measure(bench: Bench) -> Result:
    parts = [
        _measure_rename(bench),
        _measure_reads(bench),
        _measure_migrate(bench),
        _measure_entries(bench),
        _count_losses(bench),
    ]
    return Result.joined(parts)


def _measure_rename(bench: Bench) -> Result:
    """Measure the commit that renames a channel of 100 MB, alternating with a commit that sets an int."""
    older = versioned({"texts": reducers.extend, "n": int}, name="texts", version=1)
    newer = versioned({"pages": reducers.extend, "n": int}, name="texts", version=2)
    newer.rename(1, "texts", "pages")
    texts = bench.size(_TEXTS, at_least=_TEXTS_PER_COMMIT)
    setting, renaming = Samples(), Samples()
    with statelog.open(bench.directory / "rename.state") as store:
        thread = store.thread("t", schema=older)
        for at in range(0, texts, _TEXTS_PER_COMMIT):
            thread.commit({"texts": [f"{at + each} " + "x" * _TEXT_BYTES for each in range(_TEXTS_PER_COMMIT)]})
        base = thread.version
        for number in range(bench.size(_COMMITS, at_least=8) + 1):
            thread.commit({"n": number})
            setting.time(lambda number=number: thread.commit({"n": -number}))  # type: ignore[misc]
            renamed = store.thread("t", schema=newer)
            renaming.time(lambda renamed=renamed, number=number: renamed.commit({"n": number}))  # type: ignore[misc]
            assert renamed.state["n"] == number
            assert len(renamed.state["pages"]) == texts
            thread.rollback(base)
            if number == 0:  # The first rename also records the schema.
                setting, renaming = Samples(), Samples()
        size = thread.at(base).state_size_bytes
    what = f"a rename in a state of {size / 1e6:.0f} MB: time, relative to a commit"
    return Result(
        checks=(at_most(what, renaming.p50_us / setting.p50_us, 1.5),),
        sides=(setting.side("a commit that sets an int"), renaming.side("a commit that renames a channel")),
    )


def _measure_reads(bench: Bench) -> Result:
    """Measure reads of versions through five steps, first and repeated, alternating with reads without steps."""
    schema = _schema_of_five_steps()
    versions = bench.size(_READ_VERSIONS, at_least=40)
    with statelog.open(bench.directory / "reads.state", durability="interval") as store:
        plain, stepped = store.thread("t"), store.thread("t", schema=schema)
        for number in range(versions):
            plain.commit({"name_0": number, "texts": ["a text"] * 20, "about": "x" * 200})
        samples = interleave(
            {
                "bare": _read(plain, range(versions), "name_0"),
                "first": _read(stepped, range(versions), f"name_{_STEPS}"),
            },
            count=versions - 8,
        )
        again = interleave(
            {"bare": _read(plain, range(1), "name_0"), "again": _read(stepped, range(1), f"name_{_STEPS}")},
            count=versions,
        )
    return Result(
        checks=(
            at_most("a read through five steps: time, relative to one without", _ratio(samples, "first"), 3),
            at_most("the same read again: time", _ratio(again, "again"), 1.05),
        ),
        sides=(
            samples["bare"].side("a read without steps"),
            samples["first"].side("a read through five steps"),
            again["again"].side("the same read again"),
        ),
    )


def _read(thread: statelog.Thread[Any, Any], versions: range, channel: str) -> Callable[[], object]:
    """Return an operation that reads two channels of one of `versions`, each time of the next one."""
    numbers = cycle(versions)

    def read() -> object:
        state = thread.at(next(numbers)).state
        return state[channel], state["texts"].to_python()

    return read


def _schema_of_five_steps() -> Versioned[Any, Any]:
    declared = {f"name_{_STEPS}": int, "texts": list, "about": str, "size": int}
    schema = versioned(declared, name="read", version=_STEPS + 1)
    for version in range(1, _STEPS):
        schema.rename(version, f"name_{version - 1}", f"name_{version}")
    last, name = f"name_{_STEPS - 1}", f"name_{_STEPS}"
    schema.step(_STEPS)(lambda state: {"texts": state["texts"], "about": state["about"], "size": 0, name: state[last]})
    return schema


def _ratio(samples: dict[str, Samples], name: str) -> float:
    return samples[name].p50_us / samples["bare"].p50_us


def _measure_migrate(bench: Bench) -> Result:
    """Measure a migration of many threads, and a commit to each of some of them."""
    schema = versioned({"memories": reducers.append, "n": int}, name="chat", version=2)
    schema.rename(1, "notes", "memories")
    threads = bench.size(_THREADS, at_least=_THREADS_PER_COMMIT)
    with statelog.open(bench.directory / "migrate.state") as store:
        for at in range(0, threads, _THREADS_PER_COMMIT):
            with store.transaction() as tx:
                for number in range(at, at + _THREADS_PER_COMMIT):
                    tx.thread(f"chat-{number}").commit({"notes": ["a note of a chat"] * 20, "n": number})
        single = Samples()
        for number in range(bench.size(_SINGLE_COMMITS, at_least=100)):
            thread = store.thread(f"chat-{number}")
            single.time(lambda thread=thread: thread.commit({"n": 0}))  # type: ignore[misc]
        mean_us = sum(single.durations_ns) / len(single.durations_ns) / 1000
        began_s = time.perf_counter()
        report = store.migrate(schema, threads="chat-*")
        each_us = (time.perf_counter() - began_s) * 1e6 / threads
        skipping_s = time.perf_counter()
        skipped = store.migrate(schema, threads="chat-*").skipped
        skip_us = (time.perf_counter() - skipping_s) * 1e6 / threads
        assert (report.migrated, report.failed, skipped) == (threads, [], threads)
    return Result(
        checks=(
            at_most(f"migrate of {threads} threads: mean time, relative to a commit each", each_us / mean_us, 1.3),
        ),
        sides=(single.side("a commit to a thread"),),
        notes=(f"migrate: {each_us:.0f} us a thread; {skip_us:.0f} us a thread that has the version",),
    )


def _measure_entries(bench: Bench) -> Result:
    """Measure reads of entries through five steps and without steps, alternately, and a migration of many entries."""
    entries = bench.size(_THREADS, at_least=_THREADS_PER_COMMIT)
    with statelog.open(bench.directory / "entries.state") as store:
        board = store.board()
        for at in range(0, entries, _THREADS_PER_COMMIT):
            with store.transaction() as tx:
                for number in range(at, at + _THREADS_PER_COMMIT):
                    tx.board().set(f"old/{number}", {"name_0": number, "texts": ["a text"] * 20, "about": "x" * 200})
        board.set("bare/0", board.list("old/*", limit=1)[0].value)
        board.schema("old/*", _schema_of_five_steps())
        samples = interleave(
            {"bare": lambda: board.get("bare/0"), "first": lambda: board.get("old/0")},
            count=bench.size(_READ_VERSIONS, at_least=40),
        )
        single = Samples()
        for number in range(bench.size(_SINGLE_COMMITS, at_least=100)):
            single.time(lambda number=number: board.set("bare/0", {"n": number}))  # type: ignore[misc]
        mean_us = sum(single.durations_ns) / len(single.durations_ns) / 1000
        began_s = time.perf_counter()
        report = board.migrate("old/*")
        each_us = (time.perf_counter() - began_s) * 1e6 / entries
        assert (report.migrated, report.failed) == (entries, [])
    return Result(
        checks=(
            at_most(
                "a read of an entry through five steps: time, relative to one without", _ratio(samples, "first"), 3
            ),
            at_most(f"migrate of {entries} entries: mean time, relative to a set each", each_us / mean_us, 1.3),
        ),
        sides=(
            samples["bare"].side("a read of an entry without steps"),
            samples["first"].side("a read of an entry through five steps"),
        ),
        notes=(f"migrate: {each_us:.0f} us an entry",),
    )


def _count_losses(bench: Bench) -> Result:
    """Count the values that code with a different or faulty schema version loses without an error."""
    declared = {"memories": reducers.append, "n": int}
    schema = versioned(declared, name="chat", version=2)
    schema.rename(1, "notes", "memories")
    forgetful = versioned(declared, name="chat", version=2)
    forgetful.add(1, "n", 0)
    changed = versioned({"memories": reducers.replace, "n": int}, name="chat", version=2)
    lost = 0
    with statelog.open(bench.directory / "losses.state") as store:
        old = store.thread("t", schema={"notes": reducers.append})
        old.commit({"notes": "kept"})
        lost += store.thread("t", schema=schema).state.get("memories") != ["kept"]
        lost += _is_silent(lambda: store.thread("t", schema=forgetful).state.get("memories"))
        lost += _is_silent(lambda: store.thread("t", schema={"notes": reducers.replace}).commit({"notes": "lost"}))
        store.thread("t", schema=schema).commit({"memories": "more"})
        lost += _is_silent(lambda: old.commit({"notes": "lost"}))
        lost += _is_silent(lambda: old.state.get("notes"))
        lost += _is_silent(lambda: store.thread("t").commit({"notes": "lost"}))
        lost += _is_silent(lambda: store.thread("t", schema=changed).commit({"memories": "lost"}))
        lost += store.thread("t", schema=schema).state["memories"] != ["kept", "more"]
    lost += _count_lost_entries(bench, schema, forgetful)
    return Result(checks=(exactly("values lost silently, in 12 cases", lost, 0, ""),), sides=())


def _count_lost_entries(bench: Bench, schema: Versioned[Any, Any], forgetful: Versioned[Any, Any]) -> int:
    """Count the same losses for entries of the board, over 4 cases."""
    path = bench.directory / "losses of entries.state"
    with statelog.open(path) as store, statelog.open(path) as other:
        old, new = other.board(), store.board()
        old.set("t", {"notes": ["kept"]})
        new.schema("t", forgetful)
        lost = int(_is_silent(lambda: new.get("t")))
        new.schema("t", schema)
        new.update("t", reducers.merge, {"n": 1})
        lost += _is_silent(lambda: old.set("t", {"notes": ["lost"]}))
        lost += _is_silent(lambda: old.update("t", reducers.merge, {"notes": ["lost"]}))
        entry = new.get("t")
        return lost + (entry is None or entry.value != {"memories": ["kept"], "n": 1})


def _is_silent(act: Callable[[], object]) -> bool:
    try:
        act()
    except (SchemaError, SchemaVersionError):
        return False
    return True


VERSIONS = BenchWorkload("versions", "Schema versions: renames, reads through steps, migrations", "commit", _measure)
