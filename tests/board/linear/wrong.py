"""Boards that break a guarantee, which the checkers must detect."""

from __future__ import annotations

import dataclasses
import time

from models import ATTEMPTS_MAX

from statelog.board import holders
from statelog.errors import AlreadyExistsError, ConflictError, LeaseLostError
from statelog.log.batch import Batch

GAP_S = 0.002
"""Between two steps that ought to be one, for others to come in between."""

NO_VERSION = 1
"""LSN of a record that is of no entry."""


class Wrong:
    """A board. Each class below changes one thing."""

    def __init__(self, board):
        self.board = board

    def __getattr__(self, name):
        return getattr(self.board, name)


class Restarting(Wrong):
    """Versions are counted from the creation of the entry, so they restart when it is created again."""

    def counted(self, key, version):
        count = 0
        for entry in self.board.history(key):
            if entry.version <= version:
                if entry.kind == "delete":
                    break
                count += 1
        return count

    def shown(self, entry):
        return entry and dataclasses.replace(entry, version=self.counted(entry.key, entry.version))

    def get(self, key):
        return self.shown(self.board.get(key))

    def set(self, key, value):
        return self.shown(self.board.set(key, value))

    def update(self, key, reducer, value):
        return self.shown(self.board.update(key, reducer, value))

    def create(self, key, value):
        try:
            return self.shown(self.board.create(key, value))
        except AlreadyExistsError as error:
            version = self.counted(key, error.version)
            raise AlreadyExistsError("it is there", key=key, version=version) from error

    def cas(self, key, value, *, expected_version):
        now = self.board.get(key)
        version = now.version if now else 0
        if (self.counted(key, version) if version else 0) != expected_version:
            version = NO_VERSION
        try:
            return self.shown(self.board.cas(key, value, expected_version=version))
        except ConflictError as error:
            actual = error.actual_version and self.counted(key, error.actual_version)
            facts = {"key": key, "expected_version": expected_version, "actual_version": actual}
            raise ConflictError("another", **facts) from error


class Forgetful(Wrong):
    """Some deletes are dropped."""

    def delete(self, key):
        now = self.board.get(key)
        is_dropped = now is not None and now.version % 2
        return True if is_dropped else self.board.delete(key)


class CheckedBefore(Wrong):
    """Checks a fence before the commit instead of within it."""

    def set(self, key, value, *, fence=None):
        if fence is not None:
            if fence.token not in [info.token for info in self.board.leases()]:
                raise LeaseLostError("it has ended", name=fence.name, token=fence.token)
            time.sleep(GAP_S)
        return self.board.set(key, value)


def claim_by_reading_and_writing(board):
    """Make a claim in two steps: search a free entry, and write the claim."""
    choose = holders.choose
    seen = []

    def look(view, *about):
        choice = choose(view, *about)
        if not isinstance(view.transaction, Batch):
            seen[:] = [choice.found]
            time.sleep(GAP_S)
        elif seen[0] is not None and seen[0].attempts < ATTEMPTS_MAX:
            return choice._replace(found=seen[0])
        return choice

    if choose.__name__ != look.__name__:
        holders.choose = look
    return board


BOARDS = {
    "right": lambda board: board,
    "claims by reading and writing": claim_by_reading_and_writing,
    "versions begin anew": Restarting,
    "deletes are dropped": Forgetful,
    "fences are checked before": CheckedBefore,
}
