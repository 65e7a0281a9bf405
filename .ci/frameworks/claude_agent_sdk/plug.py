"""Put our session store into the place of InMemorySessionStore, in the SDK's own tests."""

import tempfile
from pathlib import Path

import claude_agent_sdk
import claude_agent_sdk._internal.session_store as module
from counting import counted

import statelog
from statelog.adapters.claude_agent_sdk import StatelogSessionStore
from statelog.adapters.claude_agent_sdk.sessions import thread_of
from statelog.adapters.kit.ordered import read_list


class Plugged(StatelogSessionStore):
    """What the SDK's tests look at in the store in memory, besides."""

    def __init__(self):
        super().__init__(statelog.open(Path(tempfile.mkdtemp()) / "memory.state", durability="interval"))

    def _threads(self):
        return [info.id for info in self.store.threads() if info.id.startswith("claude:") and "/" in info.id]

    def get_entries(self, key):
        return read_list(self.store.thread(thread_of(key)).state, "entries")

    @property
    def size(self):
        return sum(id.count("/") == 1 for id in self._threads())

    def clear(self):
        self.__init__()


counted(StatelogSessionStore, "append", "load", "list_sessions", "list_session_summaries", "delete", "list_subkeys")
claude_agent_sdk.InMemorySessionStore = module.InMemorySessionStore = Plugged
