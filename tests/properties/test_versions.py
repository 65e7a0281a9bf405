"""Migrating by a read, by a commit, and by `migrate` has the same result as for plain dicts."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import statelog
from statelog import reducers, versioned
from statelog.errors import MigrationError

NAMES = "abcde"
FUNCTIONS = {
    "count": lambda state: {**state, "e": len(state)},
    "reverse": lambda state: {
        name: [*value][::-1] if hasattr(value, "append") or _is_view(value) else value for name, value in state.items()
    },
    "turn": lambda state: {NAMES[(NAMES.index(name) + 1) % len(NAMES)]: value for name, value in state.items()},
    "first": lambda state: dict(sorted(state.items())[:2]),
}


def _is_view(value):
    return isinstance(value, statelog.store.views.ListView)


names = st.sampled_from(NAMES)
values = st.one_of(
    st.integers(0, 5),
    st.text("xy", max_size=3),
    st.sampled_from(["x" * 200, "y" * 20_000]),
    st.lists(st.sampled_from([1, "x" * 90, {"k": "v"}]), max_size=30),
    st.dictionaries(st.text("kl", min_size=1, max_size=2), st.integers(), max_size=4),
)
steps = st.one_of(
    st.tuples(st.just("rename"), names, names).filter(lambda step: step[1] != step[2]),
    st.tuples(st.just("add"), names, values),
    st.tuples(st.just("drop"), names),
    st.tuples(st.just("step"), st.sampled_from(sorted(FUNCTIONS))),
)
states = st.dictionaries(names, values, max_size=4)


def schema_of(chain):
    """Return a schema with a chain of steps."""
    schema = versioned(dict.fromkeys(NAMES), name="s", version=len(chain) + 1)
    for version, (kind, *arguments) in enumerate(chain, 1):
        if kind == "step":
            schema.step(version)(FUNCTIONS[arguments[0]])
        else:
            getattr(schema, kind)(version, *arguments)
    return schema


def plain(chain, state, stored):
    """Return the result of the steps for a plain dict, or None if they fail."""
    try:
        return schema_of(chain).upgraded(state, stored)
    except MigrationError:
        return None


@pytest.mark.slow
@given(
    chain=st.lists(steps, min_size=1, max_size=5),
    older=st.integers(0, 4),
    first=states,
    second=states,
    goes_back=st.booleans(),
)
def test_every_way_comes_to_the_same_state(chain, older, first, second, goes_back):
    older = min(older, len(chain))  # the steps that the program knew that wrote the second state
    with tempfile.TemporaryDirectory() as folder, statelog.open(Path(folder) / "a.state") as store:
        store.thread("t").commit(first)
        if plain(chain[:older], first, 1) is None:
            return
        thread = store.thread("t", schema=schema_of(chain[:older]))
        thread.commit(second)
        if goes_back:
            thread.rollback(0)
        thread.fork("f", at=0)
        for way in ("read", "commit", "migrate"):
            store.copy_thread("t", way)
        for branch, version in (("main", 0 if goes_back else 1), ("f", 0)):
            before = first if version == 0 else {**plain(chain[:older], first, 1), **second}
            expected = plain(chain, before, 1 if version == 0 else older + 1)
            check(store, schema_of(chain), branch, expected)
        assert store.verify().ok


def check(store, schema, branch, expected):
    """Compare the three ways, and the earlier versions in the copies."""
    read = store.thread("read", schema=schema, branch=branch)
    committed = store.thread("commit", schema=schema, branch=branch)
    if expected is None:
        with pytest.raises(MigrationError):
            read.state  # noqa: B018 - it is made when it is asked for
        with pytest.raises(MigrationError):
            committed.commit({})
        return
    history = [each.stored.to_python() for each in committed.history()]
    assert read.state.to_python() == expected
    made = committed.commit({})
    assert made.stored.to_python() == expected
    assert made.schema_version == schema.version
    assert [each.stored.to_python() for each in committed.history()][1:] == history
    report = store.migrate(schema, threads="migrate")
    if not report.failed:  # The other branch may not fit.
        migrated = store.thread("migrate", branch=branch).head
        assert (migrated.state_digest, migrated.schema_version) == (made.state_digest, schema.version)


WAYS = [f"tasks/{way}" for way in ("read", "update", "migrate", "claim", "rollback")]


@pytest.mark.slow
@given(st.lists(steps, max_size=5), st.integers(0, 5), states)
def test_every_way_comes_to_the_same_value_of_an_entry(chain, older, value):
    first = schema_of(chain[: min(older, len(chain))])
    schema = schema_of(chain)
    expected = plain(chain, value, first.version)
    with (
        tempfile.TemporaryDirectory() as folder,
        statelog.open(Path(folder) / "a.state", durability="interval") as store,
    ):
        writer = store.board()
        writer.schema("tasks/*", first)
        for key in WAYS:
            writer.set(key, value)
        before = store.last_lsn
        with statelog.open(store.path, durability="interval") as newer:
            board = newer.board()
            board.schema("tasks/*", schema)
            if expected is None:
                report = board.migrate()
                assert {each.kind for each in report.failed} == {MigrationError.__name__}
                assert (report.migrated, newer.last_lsn) == (0, before)
                return
            assert board.migrate("tasks/migrate").failed == []
            board.update("tasks/update", reducers.merge, {})
            board.claim("tasks/claim").release()
            board.delete("tasks/rollback")
            board.rollback("tasks/rollback", to=before)
            assert [entry.value for entry in board.list("tasks/*")] == [expected] * len(WAYS)
            assert [entry.value for entry in (board.history(key)[-1] for key in WAYS)] == [expected] * len(WAYS)
            assert newer.verify().problems == []
        with statelog.open(store.path, durability="interval") as without:  # shows what is stored
            entries = {entry.key: entry for entry in without.board().list("tasks/*")}
        for way, entry in entries.items():
            is_new = way in ("tasks/update", "tasks/migrate")
            assert (entry.value, entry.schema_version) == (
                (expected, schema.version) if is_new else (value, first.version)
            )
