"""Write the golden stores of a format version: once, when the format is settled, and never again.

    python tests/compat/make_golden.py

What is in them is told by `HISTORY`, so a model can be asked; what they digest to is pinned in
the JSON beside them. A later release that cannot read them, or digests differently, has broken
the promise of FORMAT.md.
"""

from __future__ import annotations

import gzip
import io
import json
import tempfile
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from uuid import UUID

from golden_runs import make_runs

import statelog
from statelog import reducers, versioned
from statelog.testing import Commit, Fork, Rollback, Tag, Together, Untag, perform_all

FORMAT = 7
HERE = Path(__file__).parent
NAMES = {
    1: ("whole", "retained", "policies"),
    2: ("copied",),
    3: ("begun_anew",),
    4: ("board", "runs"),
    5: ("removed",),
    6: (),  # format 5 with a key: see test_golden_key.py
    7: ("named", "versions"),
}
"""By the format they are the first of."""
SCHEMA = {
    "any": reducers.replace,
    "total": reducers.add,
    "findings": reducers.add,
    "steps": reducers.append,
    "more": reducers.extend,
    "seen": reducers.union,
    "notes": reducers.merge,
    "deep": reducers.deep_merge,
    "best": reducers.max,
    "least": reducers.min,
    "messages": reducers.upsert("id"),
}
OFFSET = timezone(timedelta(hours=5, minutes=30))
EVERY_TYPE = [
    None,
    True,
    *(0, -1, 23, 24, 2**32, 2**64, -(2**64) - 1, 2**600),
    *(0.0, -0.0, 1.5, 1.1, 1e300, float("inf"), float("nan")),
    *("", "é𝄞", "x" * 100, b"", b"\x00\xff" * 40),
    *((), (1, (2,)), {1, "a"}, frozenset({(1, 2)})),
    *(datetime(2024, 2, 29, 12, 30, 15, 250, tzinfo=UTC), datetime(2024, 2, 29, tzinfo=OFFSET)),
    *(UUID(int=5), Decimal("1.10"), Decimal("-0E+3")),
]


def message(number):
    return {"id": f"m{number}", "text": f"message {number} " * (number % 9)}


HISTORY = (
    Commit("small", ({"any": EVERY_TYPE},), metadata={"node": "plan", "cost": 0.25}),
    Commit("small", ({"total": 1, "best": 3}, {"total": 2, "least": "b"}), id="second"),
    Commit("small", ({"seen": {"a", "b"}, "notes": {"k": {"nested": [1, 2]}}, "deep": {"a": {"b": 1}}},)),
    Commit("small", ({"deep": {"a": {"c": [1] * 40}}, "steps": ["step", 1], "more": (1, 2)},)),
    Tag("small", "here", 1),
    Rollback("small", 1),
    Commit("small", ({"total": 4},)),
    Fork("small", "other", at=2, update={"any": "what if"}),
    Commit("small", ({"any": "goes on"},), branch="other"),
    Fork("small", "third", at=3, branch="other"),
    Tag("small", "gone"),
    Untag("small", "gone"),
    Commit("large", ({"findings": list(range(12_000))},)),
    Commit("large", ({"findings": ["one more"]},)),
    Commit("large", ({"messages": [message(number) for number in range(600)]},)),
    Commit("large", ({"messages": [{"id": "m300", "text": "changed"}, reducers.Remove("m7"), {"id": "new"}]},)),
    Commit("large", ({"notes": {f"file {number}": f"line {number}\n" * 500 for number in range(12)}},)),
    Commit("large", ({"notes": {"file 5": "changed"}, "seen": {f"element {number}" for number in range(700)}},)),
    Commit("large", ({"any": "".join(f"{number:x} " for number in range(16_000))},)),
    Together(tuple(Commit(name, ({"total": 1, "steps": name},)) for name in ("small", "large", "new"))),
    *(Commit("many", ({"total": 1},)) for _ in range(70)),
)


def make(path, name):
    """Make a store."""
    with statelog.open(path) as store:
        if (make_alone := ALONE.get(name)) is not None:
            make_alone(store)
            return
        if name == "policies":
            store.set_retention(keep_last=70)
            store.set_retention(max_age=10**9, threads="l*")
            store.set_retention(threads="small")
            store.set_retention(keep_last=5, threads="to come")
        perform_all(HISTORY, store, schema=SCHEMA)
        if name == "copied":
            store.copy_thread("small", "copy")
            store.copy_thread("copy", "copy of the copy").commit({"total": 1})
            store.copy_thread("large", "large, copied").commit({"total": 1})
            store.thread("copy").rollback("second")
            store.prune(keep_last=2, threads="copy")
            store.delete_thread("small")
            store.delete_thread("large, copied")
        if name == "named":
            name_removed(store)
        if name == "board":
            board = store.board(agent="golden")
            for number in range(40):
                board.set(f"tasks/{number % 7}/{number}", EVERY_TYPE[number % len(EVERY_TYPE)], ttl_s=1e9)
            board.set("large", {f"file {number}": f"line {number}\n" * 500 for number in range(12)})
            board.update("total", reducers.add, 5)
            before = store.last_lsn
            board.delete("tasks/0/7")
            board.create("tasks/0/7", "again")
            board.delete("tasks/0/14")
            with store.transaction() as tx:
                tx.board().cas("total", 6, expected_version=before)
                tx.thread("small", schema=SCHEMA).commit({"total": 1})
            board.set("large", "now small")
            board.rollback("tasks/", to=before)
            claim_some(board)
        if name == "begun_anew":
            for life in range(2, 4):
                store.delete_thread("small")
                store.thread("small", recreate=True).commit({"life": life})
            store.delete_thread("new")
        if name == "retained":
            thread = store.thread("many")
            thread.tag("kept", 10)
            store.prune(keep_last=5, threads="*")
            store.delete_thread("small")
            store.set_retention(keep_last=50, threads="large")
            thread.commit({"total": 1})


def take_in_removals(store):
    """Import two exports in a row of a store whose retention removed records between them, and before the first."""
    source_path = Path(store.path).with_name("source.state")
    with statelog.open(source_path) as source:
        thread = source.thread("chat", schema=SCHEMA)
        board = source.board(agent="golden")
        for turn in range(3):
            for number in range(6):
                thread.commit({"steps": [f"step {number} of turn {turn}"], "total": 1}, id=f"{turn}-{number}")
                board.set(f"notes/{number % 2}", f"note {number} of turn {turn} " * 200)
            board.lease("once", auto_renew=False).release()
            board.delete("notes/1")
            if turn != 1:
                source.prune(keep_last=3)
                board.prune("notes/*", keep_last=1)
            if turn:
                stream = io.BytesIO()
                source.export(stream, since=store.last_lsn)
                stream.seek(0)
                store.import_(stream)
    source_path.unlink()


def name_removed(store):
    """Remove records in every way."""
    for thread in ("small", "large"):
        store.delete_thread(thread)
    store.copy_thread("many", "copy")
    store.prune(keep_last=3, threads="many")
    store.delete_thread("copy")
    lease = store.board(agent="golden").lease("once", auto_renew=False)
    lease.renew()
    lease.release()
    for number in range(4):
        store.board().set("notes/1", f"note {number} " * 200)
    store.board().prune("notes/*", keep_last=1)
    store.compact()


def claim_some(board):
    """Claim entries, hold leases, and let some of a history go."""
    board.set("queue/1", "one", priority=3, delay_s=0)
    board.set("queue/2", "two", delay_s=1e9)
    board.claim("queue/*", lease_s=1e9).complete("done", to="ready/")
    board.set("queue/3", "three")
    board.claim("queue/*", lease_s=1e9).renew()
    board.set("queue/4", "four")
    board.claim("queue/4").fail("an error", retry_in_s=1e9)
    board.lease("given back", auto_renew=False).release()
    board.lease("held", ttl_s=1e9, auto_renew=False)
    for number in range(5):
        board.set("short", f"text {number} " * 100)
    board.set_retention("short", keep_last=2)


def write_versions(store):
    """Write entries of three versions of a schema, and do with them what leaves a value as it is."""
    store.thread("plain", schema=SCHEMA).commit({"total": 1})
    board = store.board(agent="golden")
    for number in range(6):
        board.set(f"tasks/{number}", {"notes": [f"note {number}"] * (1 + 200 * (number % 2))})
    for version in (2, 3):
        schema = versioned({"memories": list, "count": int}, name="golden", version=version)
        schema.rename(1, "notes", "memories")
        if version == 3:
            schema.add(2, "count", 0)
        board.schema("tasks/**", schema)
        board.migrate(f"tasks/{version}")
    board.update("tasks/4", reducers.merge, {"count": 4})
    before = store.last_lsn
    board.delete("tasks/4")
    board.rollback("tasks/", to=before)
    board.set("tasks/5", {"memories": ["a memory"], "count": 5}, ttl_s=1e9, priority=3)
    board.claim("tasks/5", lease_s=1e9).renew()
    board.claim("tasks/4", max_attempts=1, dead="dead/").fail("an error")
    board.claim("tasks/3", lease_s=1e9).complete(to="done/")


ALONE = {"removed": take_in_removals, "runs": make_runs, "versions": write_versions}
"""What makes the stores that do not have the common history."""


def describe(store):
    """Return what a release must find again: every version's digests, the tags, the chain."""
    threads = {}
    for info in store.threads():
        thread = store.thread(info.id)
        threads[info.id] = {
            "channels": info.channels,
            **({"policy": info.policy} if info.policy else {}),
            "branches": [[each.name, each.parent, each.base_version, each.head_version] for each in thread.branches()],
            "versions": {
                branch.name: [
                    [each.version, each.kind, each.id, each.digest, each.state_digest, each.time.isoformat()]
                    for each in thread.checkout(branch.name).history()
                ]
                for branch in thread.branches()
            },
            "tags": {name: each.id for name, each in thread.tags().items()},
        }
    log = [[record.lsn, record.type, record.digest] for record in store.log()]
    entries = {
        each.key: [
            [e.version, e.kind, e.agent, e.created.isoformat(), e.expires and e.expires.isoformat()]
            + ([e.schema_version, e.value] if e.schema_version > 1 else [])
            for e in past
        ]
        for each in store.board().list()
        for past in [store.board().history(each.key)]
    }
    return {"threads": threads, "log": log, **({"board": entries} if entries else {})}


def main():
    """Write those that are not there."""
    for name in NAMES[FORMAT]:
        target = HERE / f"format_{FORMAT}_{name}.state.gz"
        if target.exists():  # a golden store is written once
            continue
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "golden.state"
            make(path, name)
            with statelog.open(path, read_only=True) as store:
                told = describe(store)
            target.write_bytes(gzip.compress(path.read_bytes(), mtime=0))
        told = {"format": FORMAT, **told}
        target.with_suffix("").with_suffix(".json").write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
