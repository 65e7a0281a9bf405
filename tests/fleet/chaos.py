"""Hosts that own one store in turn while its storage fails, and the conditions for the final log."""

from __future__ import annotations

import random
import time
from contextlib import suppress
from dataclasses import dataclass, field

from statelog.errors import FencedError, RemoteError, RemoteLagError

_TRIES_S_MAX = 60


@dataclass
class Ledger:
    """The commits of the hosts and what they promised about them.

    Attributes:
        tried: all tokens that a host tried to commit.
        acknowledged: tokens that must survive their machine, in order.
        served: tokens that a new owner or a follower has seen.
    """

    tried: list[str] = field(default_factory=list)
    acknowledged: list[str] = field(default_factory=list)
    served: list[list[str]] = field(default_factory=list)

    def faults(self, final):
        """Return descriptions of the faults of a log."""
        found = []
        positions = {token: number for number, token in enumerate(final)}
        if len(positions) < len(final):
            found.append("twice")
        if missing := [token for token in self.acknowledged if token not in positions]:
            found.append(f"acknowledged, and lost: {missing}")
        places = [positions[token] for token in self.acknowledged if token in positions]
        if places != sorted(places):
            found.append("in another order")
        if not set(final) <= set(self.tried):
            found.append("never committed")
        if any(final[: len(each)] != each for each in self.served):
            found.append("served, and not what is there")
        return ", ".join(found)


def said(store):
    """Return the tokens of a store, oldest first."""
    return [checkpoint.state["token"] for checkpoint in store.thread("chat").history()][::-1]


def persist(attempt, until_s=_TRIES_S_MAX):
    """Try again while the storage is unavailable."""
    deadline = time.monotonic() + until_s
    while True:
        try:
            return attempt()
        except (RemoteError, RemoteLagError):
            assert time.monotonic() < deadline, "the storage is away for too long"


def _followed(fleet, name):
    with fleet.follow(name, poll_s=60) as copy:
        return said(copy)


class Hosts:
    """Hosts with one disk each. One at a time owns the store.

    Args:
        fleets: one for each host.
        name: the name of the store.
        ledger: the ledger to fill.
        seed: the seed of the acts.
    """

    def __init__(self, fleets, name, ledger, seed):
        self._fleets = fleets
        self._name = name
        self._ledger = ledger
        self._chosen = random.Random(seed)
        self._count = 0
        self._left = []
        """Stores of hosts that seemed dead, with their commits that were not acknowledged."""

    def turn(self):
        """Let a host own the store, commit, and end in some way."""
        chosen = self._chosen
        at = chosen.randrange(len(self._fleets))
        if any(host == at for host, _store in self._left):
            self._come_back(at)
        others_are_left = bool(self._left)
        how = "now" if others_are_left or chosen.random() < 0.5 else "wait"
        kept = {"keep_s": 0, "grace_s": 0} if chosen.random() < 0.5 else {}
        store = persist(lambda: self._fleets[at].open(self._name, takeover=how, ttl_s=0.6, ship_ms=5, **kept))
        self._ledger.served.append(said(store))
        self._work(store)
        if chosen.random() < 0.3:
            reader = chosen.choice(self._fleets)
            self._ledger.served.append(persist(lambda: _followed(reader, self._name)))
        if chosen.random() < 0.3:
            self._left.append((at, store))
            return
        self._end(store)

    def _work(self, store):
        ledger, chosen, pending = self._ledger, self._chosen, []
        for _commit in range(chosen.randrange(1, 6)):
            self._count += 1
            token = f"{self._count}"
            ledger.tried.append(token)
            how = chosen.choice(["remote", None, None])
            pending.append(token)
            store.thread("chat").commit({"token": token}, durable=how)
            if how == "remote":
                ledger.acknowledged += pending
                pending.clear()
        what = chosen.random()
        if what < 0.3 and store.remote.wait(timeout_s=_TRIES_S_MAX):
            ledger.acknowledged += pending
        elif what < 0.5:
            store.remote.base()  # The host ships every record before.
            ledger.acknowledged += pending
            pending.clear()

    def _end(self, store):
        """Close a store. If the storage does not take the rest, it stays on the disk of the host."""
        with suppress(RemoteError):
            store.close()

    def _come_back(self, at):
        """Let an owner continue that seemed dead."""
        [store] = [store for host, store in self._left if host == at]
        self._left = [(host, store) for host, store in self._left if host != at]
        self._count += 1
        token = f"{self._count} of the past"
        is_taken = self._is_taken(store)
        self._ledger.tried.append(token)
        if is_taken:
            self._expect_fenced(lambda: store.thread("chat").commit({"token": token}, durable="remote"))
            self._expect_fenced(store.close)
        else:
            store.thread("chat").commit({"token": token}, durable="remote")
            self._ledger.acknowledged.append(token)
            self._end(store)

    def _is_taken(self, store):
        head = persist(lambda: self._fleets[0].status(self._name))
        return head.epoch != store._engine.remote._owned.head.epoch

    @staticmethod
    def _expect_fenced(work):
        try:
            persist(work)
        except FencedError:
            return
        raise AssertionError("an owner that was taken over goes on")

    def end(self):
        """Let all remaining owners continue."""
        for at in sorted({host for host, _store in self._left}):
            self._come_back(at)
