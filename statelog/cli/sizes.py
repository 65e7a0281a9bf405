"""`statelog stat --sizes`: the sizes of states and of their channels."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from statelog.cli.targets import find_thread
from statelog.cli.text import format_size

if TYPE_CHECKING:
    from statelog import Store
    from statelog.cli.output import Output
    from statelog.store.sizes import StateSize

_THREADS_SHOWN = 20


def print_sizes(output: Output, store: Store, thread: str | None, *, as_json: bool) -> None:
    """Print the sizes of the channels of one thread, or the sizes of all threads, the largest first."""
    if thread is not None:
        size = find_thread(store, thread, None).size()
        if as_json:
            output.emit(_document(thread, size))
        else:
            _print_channels(output, size)
        return
    sizes = {id: store.thread(id).size() for id in store.thread_ids()}
    if as_json:
        for id, size in sizes.items():
            output.emit(_document(id, size))
    elif sizes:
        _print_threads(output, sizes)
    else:
        output.line("no threads")


def _document(thread: str, size: StateSize) -> dict[str, Any]:
    return {"thread": thread, **asdict(size)}


def _print_channels(output: Output, size: StateSize) -> None:
    rows = [
        (name, f"{each.items:,}", format_size(each.size_bytes), _shared(each.shared_size_bytes))
        for name, each in size.channels.items()
    ]
    rows.append(("all", f"{len(size.channels):,}", format_size(size.size_bytes), _shared(size.shared_size_bytes)))
    output.table(("channel", "items", "bytes", "shared"), rows, right=("items", "bytes", "shared"), name="channel")


def _print_threads(output: Output, sizes: dict[str, StateSize]) -> None:
    largest = sorted(sizes.items(), key=lambda each: -each[1].size_bytes)
    rows = [
        (
            id,
            f"{len(size.channels):,}",
            format_size(size.size_bytes),
            _shared(size.shared_size_bytes),
            next(iter(size.channels), ""),
        )
        for id, size in largest[:_THREADS_SHOWN]
    ]
    columns = ("thread", "channels", "bytes", "shared", "largest channel")
    output.table(columns, rows, right=("channels", "bytes", "shared"), name="thread")
    if len(largest) > _THREADS_SHOWN:
        output.hint(f"the {_THREADS_SHOWN} largest of {len(largest):,} threads")


def _shared(size_bytes: int) -> str:
    return format_size(size_bytes) if size_bytes else ""
