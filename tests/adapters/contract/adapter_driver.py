"""The calls that the contract of all adapters makes to one service: add values under a name, read and delete them."""

from __future__ import annotations

import math
import time
from itertools import count

from statelog.errors import ClosedError, ReadOnlyError, StoreFullError, UsageError, ValueTypeError

NESTED = {"z": 1, "a": {"y": [{"q": 1, "b": 2}], "b": 3}, "m": None}
"""A value whose keys are not sorted."""


def holding_itself():
    value = {}
    value["self"] = value
    return value


_NUMBERS = count()


def new_id():
    """Return an id that sorts after all earlier ids, also those of other processes."""
    return f"{time.time_ns():020d}-{next(_NUMBERS):06d}"


class Driver:
    """A service of an adapter, on a store. Each adapter has one subclass for each of its services."""

    keeps_all = True
    """Whether a later call of `add` keeps the values of earlier calls."""

    reads_all = True
    """Whether `read` returns all values, not only some of them."""

    kills = ("add",)
    """The works during which a process is killed: of test_contract.py, or methods of the driver."""

    full, closed, read_only = (StoreFullError, None), (ClosedError, None), (ReadOnlyError, None)
    """The errors of stores that refuse a call, and a pattern of their messages."""

    unstorable = math.nan, b"x", {1}, object(), holding_itself()
    unstorable_error = ValueTypeError, "JSON"
    names = ("~", " ", "a/b", "a\0b", "x" * 4000, "漢" * 900, "🙂" * 500)
    """Names that must not be confused with each other."""

    no_names = ("", None, 7, "\ud800")
    no_name_error = UsageError, "name"
    reads_any_name = False
    """Whether reading and deleting such a name is not an error."""

    def __init__(self, store):
        self.store = store

    async def add(self, name, *values):
        """Add values, which JSON can represent, under a name: in one call and one commit."""
        raise NotImplementedError

    async def read(self, name):
        """Return the values under a name."""
        raise NotImplementedError

    delete = None
    """`async def delete(self, name)`: delete all values under a name. None if the service has no such call."""

    def further_calls(self):
        """Return calls that write in other ways than `add` and `delete`."""
        return []

    def thread_ids(self, name):  # noqa: ARG002 - drivers use it
        """Return the ids of the threads without which the values of a name are gone."""
        return []

    async def everything(self, names=("s", "t", "new")):
        """Return all that the service shows: the values of these names, and lists."""
        return {name: await self.read(name) for name in names}
