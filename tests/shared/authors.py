"""A random history of everything that retention can remove, and the part of the index that users see."""

from __future__ import annotations

import random
from contextlib import suppress

from statelog import reducers
from statelog.errors import AlreadyExistsError, ExpiredError
from statelog.log.kinds import removals
from statelog.portable.overlay import Overlay

ABOUT_NODES = (b"r", b"d", b"o", b"O")
"""Keys that follow from which records are whole and which nodes are there: copies may differ in them."""

SCHEMA = {"log": reducers.extend, "n": reducers.add, "text": reducers.replace}


class Author:
    """Writes a random history into a store."""

    def __init__(self, store, seed):
        self.store = store
        self.random = random.Random(seed)
        self.held = {}
        self.deleted = set()
        self.turn = 0

    def act(self):
        self.turn += 1
        acts = [self.commit] * 6 + [self.entry] * 8 + [self.lease] * 4 + [self.retain] * 2
        acts += [self.branch, self.tag, self.delete, self.copy, self.store.compact, self.claim]
        self.random.choice(acts)()

    def thread(self):
        id = self.random.choice("abc")
        return self.store.thread(id, schema=SCHEMA, recreate=id in self.deleted)

    def key(self):
        return f"{self.random.choice(['tasks', 'notes'])}/{self.random.randrange(3)}"

    def commit(self):
        thread = self.thread()
        text = "text " * self.random.choice([1, 10, 2000, 5000]) + self.random.choice(["", "more"])
        id = f"id {self.random.randrange(6)}" if self.random.random() < 0.3 else None
        try:
            thread.commit({"log": [f"item {self.turn}"], "n": 1, "text": text}, id=id)
        except AlreadyExistsError:
            thread.commit({"n": 1})
        self.deleted.discard(thread.id)

    def branch(self):
        thread = self.thread()
        if thread.version >= 0:
            thread.fork(f"branch {self.turn}", at=thread.version).commit({"n": 1})

    def tag(self):
        thread = self.thread()
        if thread.version >= 0:
            thread.tag(f"tag {self.random.randrange(2)}", thread.version)
            if self.random.random() < 0.5:
                thread.rollback(thread.version)

    def mine(self):
        return [info.id for info in self.store.threads() if info.id in "abc" or info.id.startswith("copy")]

    def delete(self):
        found = self.mine()
        if found:
            id = self.random.choice(found)
            self.store.delete_thread(id)
            self.deleted.add(id)

    def copy(self):
        found = self.mine()
        if found:
            self.store.copy_thread(self.random.choice(found), f"copy {self.turn}")

    def entry(self):
        board, key = self.store.board(agent="a"), self.key()
        how = {"ttl_s": 1e6} if self.random.random() < 0.3 else {}
        act = self.random.randrange(4)
        if act == 0:
            board.set(key, "value " * self.random.choice([1, 2000]), priority=self.random.randrange(2), **how)
        elif act == 1:
            board.update(key, reducers.replace, self.turn)
        elif act == 2:
            board.delete(key)
        elif self.turn % 7 == 0:
            with suppress(ExpiredError):
                board.rollback("notes/", to=self.random.randrange(self.store.last_lsn + 1))

    def claim(self):
        claim = self.store.board(agent="a").claim("tasks/*", lease_s=1e6)
        if claim is not None:
            self.random.choice([claim.complete, claim.release, claim.renew, lambda: claim.fail("no")])()

    def lease(self):
        name = self.random.choice("xy")
        if name not in self.held:
            self.held[name] = self.store.board(agent="a").lease(name, ttl_s=1e6, auto_renew=False)
        elif self.random.random() < 0.4:
            self.held[name].renew()
        else:
            self.held.pop(name).release()

    def retain(self):
        how = self.random.randrange(4)
        if how == 0:
            remove = self.store.set_retention if self.random.random() < 0.3 else self.store.prune
            remove(keep_last=self.random.randrange(1, 4))
        elif how == 1:
            board = self.store.board()
            remove = board.set_retention if self.random.random() < 0.3 else board.prune
            remove("**", keep_last=self.random.randrange(1, 3))
        elif how == 2:
            self.store.board().prune("notes/**", max_age=0)
        else:
            thread = self.thread()
            if thread.version >= 1:
                self.store.expire(list(thread.history())[1:3])


def index_of(store):
    with store._engine.read() as view:
        transaction = view.transaction
        found = {key: transaction.get_index(key) for key in transaction.index_keys()}
    return {key: payload for key, payload in found.items() if key[:1] not in ABOUT_NODES}


def check_whole(store):
    assert store.verify(deep=True).problems == [], store.verify(deep=True).problems
    before = index_of(store)
    store.rebuild_index()
    assert index_of(store) == before


def ignore_removals_in_imports(monkeypatch):
    """Make imports accept removals without removing anything, which a harness must notice."""
    whole_records = removals._whole_records

    def none_in_imports(view, event):
        return () if isinstance(view.transaction, Overlay) else whole_records(view, event)

    monkeypatch.setattr(removals, "_whole_records", none_in_imports)
    monkeypatch.setattr("statelog.portable.log_import.redact_removed", lambda *_arguments: None)
