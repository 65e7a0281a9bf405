"""The sizes of states and channels, as users get them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from statelog.store.state_sizes import StateSizer

if TYPE_CHECKING:
    from statelog.log.events import CheckpointEvent
    from statelog.store.session import AnySession


@dataclass(frozen=True, slots=True)
class ChannelSize:
    """The size of a channel.

    Attributes:
        items: the number of items of a list, a dict or a set; 1 for any other value.
        size_bytes: the bytes of the value, as one CBOR item.
        shared_size_bytes: the part of `size_bytes` in records of other branches and threads. This branch does not
            store that part again.
    """

    items: int
    size_bytes: int
    shared_size_bytes: int


@dataclass(frozen=True, slots=True)
class StateSize:
    """The size of a state.

    Attributes:
        channels: the size of each channel, the largest first.
        size_bytes: the bytes of all channels with their names, as one CBOR item.
        shared_size_bytes: the part of `size_bytes` in records of other branches and threads.
    """

    channels: dict[str, ChannelSize]
    size_bytes: int
    shared_size_bytes: int


EMPTY = StateSize({}, 0, 0)
"""The size of a thread without a checkpoint."""


def measure(session: AnySession, event: CheckpointEvent) -> StateSize:
    """Return the size of a checkpoint's state, without reading its values."""
    sizer = StateSizer(session.workspace().read, session.read)
    channels: dict[str, ChannelSize] = {}
    whole = sizer.measure(event)
    for name, items, sizes in sizer.channels(event):
        own = sum(size for writer, size in sizes.items() if writer.is_of(event.thread, event.branch))
        channels[name] = ChannelSize(items, sizes.total(), sizes.total() - own)
    own = sum(size for writer, size in whole.items() if writer.is_of(event.thread, event.branch))
    ordered = sorted(channels.items(), key=lambda each: -each[1].size_bytes)
    return StateSize(dict(ordered), whole.total(), whole.total() - own)
