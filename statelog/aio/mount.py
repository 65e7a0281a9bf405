"""The dict that a mount gives on the loop, and its way back into a mount."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

from statelog.format.cbor import encode
from statelog.store.mount import Mount, commit_mount, open_mount
from statelog.store.mutable import plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    import statelog


class MountedState(dict[str, Any]):
    """A thread's whole state. A declared list, dict or set channel never written is an empty one when asked for."""

    # Those of a dict would pass `__missing__` by; these ask as `[]` does, as those of `Mount` are.
    get = MutableMapping.get  # type: ignore[assignment]  # the types of a dict's are narrower
    pop = MutableMapping.pop
    setdefault = MutableMapping.setdefault

    def __init__(self, thread: statelog.Thread) -> None:
        """Read the head's state; called on the pool."""
        self._thread = thread
        self._mount: Mount = open_mount(thread)
        super().__init__({channel: plain(self._mount[channel]) for channel in self._mount})
        self._stored = frozenset(self)
        self._empty: dict[str, object] = {}

    def __missing__(self, channel: str) -> object:
        empty = None if channel in self._stored else self._thread.empty_value(channel)
        if empty is None:
            raise KeyError(channel)
        self[channel] = self._empty[channel] = empty
        return empty

    def __reduce__(self) -> tuple[type, tuple[dict[str, Any]]]:
        """Copy and pickle as what it holds."""
        return dict, (dict(self),)

    def commit(self, metadata: Mapping[str, Any] | None) -> None:
        """Write what changed; called on the pool."""
        mount = self._mount
        for channel in self._stored - self.keys():
            del mount[channel]
        for channel, value in self.items():
            if self._thread.is_typed(channel):
                is_untouched = False  # the mount compares what it comes to
            elif channel not in self._stored:
                is_untouched = channel in self._empty and value is self._empty[channel] and not value
            else:
                # Of a large value only what is new is written: its nodes are found again by digest.
                is_untouched = encode(value, path=channel) == encode(plain(mount[channel]))
            if not is_untouched:
                mount[channel] = value
        commit_mount(self._thread, mount, metadata)
