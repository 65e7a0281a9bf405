"""Functions that change items. They edit the state inside a commit (`Thread.edit`).

The channels of the store's thread are listed below. A namespace is one string, `users.123`. Numbers count puts from 1,
so a later put has a greater number whatever the clocks say. Times are microseconds since 1970 UTC.

    items        namespace -> key -> {"value", "number", "created", "updated"}, plus "ttl" and "expires" if the item has
                 a time to live, and "schema": {name: version} if the value has a later schema version than 1
    recent       namespace -> number, counted down, in hexadecimal -> key: iterates from the last put to the first
    namespaces   namespace -> labels of the namespaces one level below it that have items in or below them
    expiring     expires and number in hexadecimal -> [namespace, key]
    vectors      namespace -> key -> field -> float32, little endian
    last         the number of the last put
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from statelog.adapters.langgraph.memory.items.namespaces import from_text, to_text
from statelog.adapters.langgraph.memory.items.versions import label_entry, stored_label
from statelog.schema.value_versions import check_replaced, stored_version

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, MutableMapping

    from statelog import Encoded, Versioned

    State = MutableMapping[str, Any]

_NUMBER_MAX = (1 << 48) - 1

SWEPT_WITH_PUTS = 16
"""The number of expired items that each put deletes, so that a store in use needs no sweeper."""


class ItemFacts(NamedTuple):
    """The facts about an item, without its value."""

    number: int
    created_us: int
    updated_us: int
    ttl_us: int | None = None
    expires_us: int | None = None

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> ItemFacts:
        """Return the facts that an entry of `items` has."""
        return cls(entry["number"], entry["created"], entry["updated"], entry.get("ttl"), entry.get("expires"))

    def to_entry(self, value: Any) -> dict[str, Any]:
        """Return an entry of `items` with these facts and a value."""
        entry = {"value": value, "number": self.number, "created": self.created_us, "updated": self.updated_us}
        if self.expires_us is not None:
            entry |= {"ttl": self.ttl_us, "expires": self.expires_us}
        return entry

    def is_alive(self, now_us: int) -> bool:
        """Return True if the item has not expired."""
        return self.expires_us is None or now_us < self.expires_us

    def is_worth_refreshing(self, now_us: int) -> bool:
        """Return True if a read now extends the item's life by at least a hundredth of its time to live."""
        if self.ttl_us is None or self.expires_us is None:
            return False
        return (now_us + self.ttl_us - self.expires_us) * 100 >= max(self.ttl_us, 1)


class Put(NamedTuple):
    """An item to store."""

    value: Encoded
    ttl_us: int | None
    vectors: Mapping[str, bytes]
    schema: Versioned[Any, Any] | None = None
    """The declared schema of the value, if there is one."""


def recent_key(number: int) -> str:
    """Return the key in `recent` of the put with this number. These keys sort the last put first."""
    return f"{_NUMBER_MAX - number:012x}"


def _expiring_key(expires_us: int, number: int) -> str:
    return f"{expires_us:016x}{number:012x}"


def expiring_bound(now_us: int) -> str:
    """Return the greatest key in `expiring` that an item expired by `now_us` can have."""
    return f"{now_us:016x}{_NUMBER_MAX:012x}"


def change_items(state: State, changes: Mapping[tuple[str, str], Put | None], now_us: int) -> None:
    """Put items, and delete those whose change is None, in order. Also delete some expired items."""
    for (namespace, key), put in changes.items():
        if put is None:
            _delete(state, namespace, key)
        else:
            _put(state, namespace, key, put, now_us)
    sweep(state, now_us, SWEPT_WITH_PUTS)


def refresh(state: State, read: Iterable[tuple[str, str, int]], now_us: int) -> None:
    """Extend the lives of the items in `read`, given as (namespace, key, number), except items put again since."""
    for namespace, key, number in read:
        about = about_of(state, namespace, key)
        if about is None or about.number != number or not about.is_alive(now_us):
            continue
        if about.is_worth_refreshing(now_us):
            assert about.ttl_us is not None
            _forget_expiry(state, about)
            about = about._replace(expires_us=now_us + about.ttl_us)
            state["items"][namespace][key]["expires"] = about.expires_us
            _remember_expiry(state, namespace, key, about)


def replace_older(
    state: State, namespace: str, key: str, about: ItemFacts, value: Encoded, schema: Versioned[Any, Any]
) -> bool:
    """Store an item's value, converted to the declared version. Return False if the item has changed since it was read.

    `about` has the facts about the item when it was read. The item changes if it is put, deleted or migrated.
    """
    held = about_of(state, namespace, key)
    if held is None or (held.number, held.updated_us) != (about.number, about.updated_us):
        return False
    entries = state["items"][namespace]
    if stored_version(schema, key, stored_label(entries[key]), namespace) == schema.version:
        return False
    entries[key] = held.to_entry(value) | label_entry(schema)
    return True


def sweep(state: State, now_us: int, count_max: int) -> int:
    """Delete expired items, the earliest expired first. Return their number."""
    expiring = state.get("expiring")
    if not expiring:
        return 0
    bound = expiring_bound(now_us)
    found: list[tuple[str, str]] = []
    for at in expiring:
        if at > bound or len(found) == count_max:
            break
        namespace, key = expiring[at]
        found.append((namespace, key))
    for namespace, key in found:
        _delete(state, namespace, key)
    return len(found)


def about_of(state: Mapping[str, Any], namespace: str, key: str) -> ItemFacts | None:
    """Return the facts about an item, or None if it does not exist."""
    entry = state.get("items", {}).get(namespace, {}).get(key)
    return None if entry is None else ItemFacts.of(entry)


def _below(state: State, channel: str, namespace: str) -> State:
    """Return the dict of a namespace in a channel, for changes. Create it if it does not exist."""
    namespaces = state.setdefault(channel, {})
    below: State | None = namespaces.get(namespace)
    if below is None:
        namespaces[namespace] = {}
        below = namespaces[namespace]
    return below


def _put(state: State, namespace: str, key: str, put: Put, now_us: int) -> None:
    held = about_of(state, namespace, key)
    created_us = now_us
    if held is None:
        if namespace not in state.get("items", {}):
            _add_namespace(state, namespace)
    else:
        # An expired item counts as missing, so the item that replaces it is new.
        created_us = held.created_us if held.is_alive(now_us) else now_us
        check_replaced(put.schema, key, stored_label(state["items"][namespace][key]), namespace)
        del state["recent"][namespace][recent_key(held.number)]
        _forget_expiry(state, held)
    number = state.get("last", 0) + 1
    state["last"] = number
    _below(state, "recent", namespace)[recent_key(number)] = key
    expires_us = None if put.ttl_us is None else now_us + put.ttl_us
    about = ItemFacts(number, created_us, now_us, put.ttl_us, expires_us)
    _below(state, "items", namespace)[key] = about.to_entry(put.value) | label_entry(put.schema)
    _remember_expiry(state, namespace, key, about)
    if put.vectors:
        _below(state, "vectors", namespace)[key] = dict(put.vectors)
    else:
        _forget_vectors(state, namespace, key)


def _remember_expiry(state: State, namespace: str, key: str, about: ItemFacts) -> None:
    if about.expires_us is not None:
        state.setdefault("expiring", {})[_expiring_key(about.expires_us, about.number)] = [namespace, key]


def _forget_expiry(state: State, about: ItemFacts) -> None:
    if about.expires_us is not None:
        del state["expiring"][_expiring_key(about.expires_us, about.number)]


def _forget_vectors(state: State, namespace: str, key: str) -> None:
    vectors = state.get("vectors")
    if vectors is not None and key in vectors.get(namespace, ()):
        del vectors[namespace][key]
        if not vectors[namespace]:
            del vectors[namespace]


def _delete(state: State, namespace: str, key: str) -> None:
    held = about_of(state, namespace, key)
    if held is None:
        return
    del state["items"][namespace][key]
    del state["recent"][namespace][recent_key(held.number)]
    _forget_expiry(state, held)
    _forget_vectors(state, namespace, key)
    if not state["items"][namespace]:
        for channel in ("items", "recent"):
            del state[channel][namespace]
        _remove_namespace(state, namespace)


def _add_namespace(state: State, namespace: str) -> None:
    path = from_text(namespace)
    while path:
        labels = _below(state, "namespaces", to_text(path[:-1]))
        if path[-1] in labels:
            return
        labels[path[-1]] = True
        path = path[:-1]


def _remove_namespace(state: State, namespace: str) -> None:
    """Remove a namespace without items, and the namespaces above it that become empty."""
    path = from_text(namespace)
    namespaces = state.get("namespaces", {})
    while path and to_text(path) not in state["items"] and to_text(path) not in namespaces:
        above = to_text(path[:-1])
        del namespaces[above][path[-1]]
        if namespaces[above]:
            return
        del namespaces[above]
        path = path[:-1]
