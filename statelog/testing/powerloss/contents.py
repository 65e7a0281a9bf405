"""The contents of a store as facts by name, which can be kept, sent and compared.

A fact is a digest of something that a user can read. Two stores with equal facts are equal to their users, including
times and ids. The facts also distinguish two states of one store.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

import xxhash

from statelog.errors import ExpiredError
from statelog.store.session import session_of
from statelog.testing.identity import exact_form

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from statelog.store.store import Store
    from statelog.store.thread import Thread
    from statelog.store.thread_info import ThreadInfo

Contents = dict[str, bytes]


def read_contents(store: Store, *, threads: Collection[str] | None = None) -> Contents:
    """Return the facts of a store.

    Args:
        store: the store.
        threads: the ids of the threads to read. By default, all threads.
    """
    facts: Contents = {}
    for info in store.threads():
        if threads is None or info.id in threads:
            facts.update(_thread_facts(store, info))
    return facts


def _thread_facts(store: Store, info: ThreadInfo) -> Iterator[tuple[str, bytes]]:
    thread = store.thread(info.id)
    name = f"thread {info.id!r}"
    yield name, _digest(info.created, sorted(info.channels.items()))
    for branch in thread.branches():
        here = f"{name} branch {branch.name!r}"
        yield here, _digest(branch.parent, branch.base_version, branch.head_version)
        yield from _branch_facts(thread.checkout(branch.name), here)
    for tag, checkpoint in thread.tags().items():
        yield f"{name} tag {tag!r}", _digest(checkpoint.id)


def _branch_facts(thread: Thread, here: str) -> Iterator[tuple[str, bytes]]:
    is_head = True
    for each in thread.history():
        version = f"{here} version {each.version}"
        metadata = _ordered(exact_form(each.metadata))
        yield version, _digest(each.id, each.kind, each.time, each.digest, each.state_digest, metadata)
        try:
            parent = each.parent
        except ExpiredError:
            parent = None
        if parent is not None:
            yield f"{version} parent", _digest(parent.id)
        if is_head:  # Read the head's state, which decodes it and checks its digest.
            yield f"{here} state", _digest(_ordered(exact_form(each.state)))
        is_head = False


def _digest(*values: object) -> bytes:
    return blake2b(repr(values).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _ordered(form: object) -> object:
    """Return an exact form with sorted sets, so that its repr is always the same."""
    if isinstance(form, frozenset):
        return ["set", *sorted((_ordered(each) for each in form), key=repr)]
    if isinstance(form, tuple):
        return tuple(_ordered(each) for each in form)
    return form


def raw_digest(store: Store) -> bytes:
    """Return a digest of every record and every entry of the index, as stored in the file.

    The result of `verify` and the contents of a store depend only on these bytes. So of several stores with equal
    digests, only one has to be examined closely.
    """
    state = xxhash.xxh3_128()
    with session_of(store).read() as view:
        transaction = view.transaction
        last = transaction.last_lsn()
        state.update(last.to_bytes(8))
        for lsn in range(1, last + 1):
            record = transaction.get_log(lsn)
            if record is not None:
                state.update(len(record).to_bytes(8))
                state.update(record)
        for key in transaction.index_keys():  # type: ignore[attr-defined]  # of a storage transaction
            value = transaction.get_index(key)
            state.update(f"{len(key)} {len(value or b'')}".encode())
            state.update(key)
            state.update(value or b"")
    return state.digest()


def is_between(found: Mapping[str, bytes], before: Mapping[str, bytes], after: Mapping[str, bytes]) -> bool:
    """Return True if the facts `found` may result from a part of the change from `before` to `after`.

    Facts that both share must be found, and no facts with new names. Each version must be as in `before` or `after`.
    """
    names = before.keys() | after.keys()
    versions = {(name, fact) for name, fact in found.items() if " version " in name}
    return (
        before.items() & after.items() <= found.items()
        and found.keys() <= names
        and versions <= before.items() | after.items()
    )


def describe_difference(found: Mapping[str, bytes], expected: Mapping[str, bytes]) -> str:
    """Return the first fact in which two stores differ."""
    for name in sorted(found.keys() | expected.keys()):
        if found.get(name) != expected.get(name):
            how = "is missing" if name not in found else "should not be there" if name not in expected else "differs"
            return f"{name} {how}"
    return "no difference"
