"""Strands' storage of bytes."""

from __future__ import annotations

import json

from adapter_driver import Driver
from strands.types.exceptions import StorageError

from statelog.adapters.strands import StatelogStorage


class Snapshots(Driver):
    kills = ("add", "delete")
    keeps_all = False
    full, closed, read_only = (StorageError, r"room|quota|full"), (StorageError, "closed"), (StorageError, "read")
    unstorable = ()  # all are bytes
    names = ("~", " ", "a/b", "x" * 4000, "漢" * 900, "🙂" * 500)
    no_names = ()  # test_storage.py compares them with the framework's own storage

    def key(self, name):
        return f"session/{name}/scopes/agent/a/snapshots/snapshot_latest.json"

    async def add(self, name, *values):
        await StatelogStorage(self.store).write(self.key(name), json.dumps({"z": [*values]}).encode())

    async def read(self, name):
        data = await StatelogStorage(self.store).read(self.key(name))
        return [] if data is None else json.loads(data)["z"]

    async def delete(self, name):
        await StatelogStorage(self.store).delete(self.key(name))

    def thread_ids(self, name):
        return [f"strands:{self.key(name).rpartition('/')[0].replace('/', '%2F')}", "strands-keys"]

    async def everything(self, names=("s", "t", "new")):
        listed = await StatelogStorage(self.store).list()
        found = {name: await self.read(name) for name in names}
        assert [name for name in names if self.key(name) in listed] == [name for name in names if found[name]]
        return found, listed


class History(Snapshots):
    kills = ()

    def key(self, name):
        return f"session/s/scopes/agent/a/snapshots/immutable_history/{name}.json"

    names = ("~", " ", "x" * 4000, "漢" * 900, "🙂" * 500)  # one part of a path

    def thread_ids(self, name):  # noqa: ARG002 - one thread has the whole history
        return ["strands:session%2Fs%2Fscopes%2Fagent%2Fa%2Fsnapshots", "strands-keys"]


class Items(Snapshots):
    kills = ()

    def key(self, name):
        return f"plain/{name}"

    def thread_ids(self, name):  # noqa: ARG002 - one thread has all items
        return ["strands-keys"]
