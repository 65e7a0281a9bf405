"""`StatelogStore(migrations=)`: newer code with items of older versions, and older code with newer items."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("langgraph")

from langgraph.store.base import PutOp

import statelog
from statelog import versioned
from statelog.adapters.langgraph import StatelogStore
from statelog.errors import (
    ChannelError,
    MigrationError,
    MissingMigrationError,
    SchemaError,
    SchemaVersionError,
    UsageError,
)

PLACE = ("users", "42"), "profile"
OLD, NEW = {"food": ["soup"]}, {"likes": ["soup"], "count": 1}


def profile(version=3, name="profile", step=lambda value: {**value, "count": len(value["likes"])}):
    schema = versioned({"likes": list, "count": int} if version > 2 else {"likes": list}, name=name, version=version)
    schema.rename(1, "food", "likes")
    if version > 2:
        schema.step(2)(step)
    return schema


@pytest.fixture
def opened(path):
    """Put two items without a schema. Return a function that opens the same file with other migrations."""
    with statelog.open(path, durability="interval") as store:
        StatelogStore(store).put(*PLACE, OLD)
        StatelogStore(store).put(("teams", "1"), "profile", OLD)

        def make(schema=None, prefix=("users", "*")):
            return StatelogStore(store, migrations=None if schema is None else {prefix: schema})

        yield make
        assert store.verify().problems == []


def test_every_read_shows_the_declared_version(opened):
    store = opened(profile())
    assert store.get(*PLACE).value == NEW
    assert [item.value for item in store.search(("users",), filter={"count": 1})] == [NEW]
    assert [item.value for item in store.search(("users",), query="soup")] == [NEW]
    assert asyncio.run(store.aget(*PLACE)).value == NEW
    assert store.get(("teams", "1"), "profile").value == OLD
    assert opened().get(*PLACE).value == OLD


def test_a_put_stores_the_declared_version(opened):
    store = opened(profile())
    created = store.get(*PLACE).created_at
    store.put(*PLACE, {"likes": ["tea"], "count": 5}, ttl=None)
    assert store.get(*PLACE).created_at == created
    assert opened().get(*PLACE).value == store.get(*PLACE).value == {"likes": ["tea"], "count": 5}
    assert [hit.text for hit in store.store.search("profile")] == []  # The name of a schema is not indexed as a text.


def test_the_schema_of_the_longest_namespace_applies(opened):
    store = opened().store
    both = StatelogStore(store, migrations={(): profile(), ("users",): profile(2)})
    assert both.get(*PLACE).value == {"likes": ["soup"]}
    assert both.get(("teams", "1"), "profile").value == NEW


def refused(store, error, *calls):
    lsn = store.store.last_lsn
    for call in calls:
        with pytest.raises(error) as caught:
            call(store)
    assert store.store.last_lsn == lsn
    return caught.value


def test_older_code_cannot_replace_a_newer_item(opened):
    opened(profile()).put(*PLACE, NEW)
    error = refused(opened(), SchemaVersionError, lambda store: store.put(*PLACE, OLD))
    assert (error.namespace, error.key, error.stored, error.declared) == ("users.42", "profile", 3, 1)
    error = refused(
        opened(profile(2)),
        SchemaVersionError,
        lambda store: store.get(*PLACE),
        lambda store: store.search(("users",)),
        lambda store: store.batch([PutOp(("users", "1"), "new", {"likes": []}), PutOp(*PLACE, {"likes": []})]),
    )
    assert (error.stored, error.declared) == (3, 2)
    refused(opened(profile(name="other")), SchemaError, lambda store: store.get(*PLACE))
    opened().delete(*PLACE)
    opened().put(*PLACE, OLD)
    assert opened(profile()).get(*PLACE).value == NEW


def test_values_that_cannot_be_migrated_or_are_not_declared_are_refused(opened):
    def raising(_value):
        raise ZeroDivisionError

    gap = versioned({"likes": list}, name="profile", version=2)
    assert refused(opened(gap), MissingMigrationError, lambda store: store.get(*PLACE)).namespace == "users.42"
    refused(opened(profile(step=raising)), MigrationError, lambda store: store.get(*PLACE))
    refused(opened(profile()), ChannelError, lambda store: store.put(*PLACE, OLD))


def test_a_read_that_extends_the_ttl_keeps_the_version(path):
    now = [0.0]
    with statelog.open(path, durability="interval") as store:
        ttl = {"default_ttl": 10, "refresh_on_read": True}
        memory = StatelogStore(store, ttl=ttl, migrations={("users",): profile()}, clock=lambda: now[0])
        memory.put(*PLACE, NEW)
        now[0] = 500.0
        assert memory.get(*PLACE, refresh_ttl=True).value == NEW
        now[0] = 1000.0
        assert memory.get(*PLACE).value == NEW
        refused(StatelogStore(store, clock=lambda: now[0]), SchemaVersionError, lambda each: each.put(*PLACE, OLD))


def test_migrate_changes_only_the_values(opened):
    store = opened(profile())
    for number in range(70):
        opened().put(("users", str(number), "more"), "profile", OLD)
    before = {item.namespace: item for item in store.search((), limit=100)}
    order = list(before)
    assert store.migrate(("users",)) == 71
    assert store.migrate(("users",)) == 0
    assert opened().migrate() == 0
    after = {item.namespace: item for item in store.search((), limit=100)}
    assert list(after) == order
    assert after == before
    assert opened().get(*PLACE).value == NEW
    assert [item.value for item in opened().search(("users", "1"))] == [NEW]
    assert opened().get(("teams", "1"), "profile").value == OLD


def test_an_item_put_during_its_migration_keeps_the_put_value(opened):
    def step(value):
        if "soup" in value["likes"]:
            opened().put(*PLACE, {"food": ["tea"]})
        return {**value, "count": 0}

    store = opened(profile(step=step))
    assert store.migrate(("users",)) == 0
    assert opened().get(*PLACE).value == {"food": ["tea"]}
    assert store.migrate(("users",)) == 1
    assert opened().get(*PLACE).value == {"likes": ["tea"], "count": 0}


@pytest.mark.parametrize("migrations", [[], {"users": profile()}, {("users",): dict}, {(1,): profile()}])
def test_migrations_are_checked(path, migrations):
    with statelog.open(path) as store, pytest.raises(UsageError):
        StatelogStore(store, migrations=migrations)
