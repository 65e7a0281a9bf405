"""Shell completion of threads, branches, keys, runs and names of checkpoints."""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from statelog.cli.opened_stores import open_for_reading
from statelog.errors import StatelogError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import click

    from statelog import Store

    _Names = Callable[[Store, str], Iterable[str]]

_OFFERED_MAX = 200
_THREADS_READ_MAX = 10_000


def complete_thread(context: click.Context, _parameter: click.Parameter, start: str) -> list[str]:
    """Return the ids of threads that begin with `start`."""
    return _offer(context, start, _thread_ids)


def _thread_ids(store: Store, _thread: str) -> Iterator[str]:
    return (info.id for info in islice(store.threads(), _THREADS_READ_MAX))


def complete_branch(context: click.Context, _parameter: click.Parameter, start: str) -> list[str]:
    """Return the branches of the command line's thread that begin with `start`."""
    return _offer(context, start, lambda store, thread: (info.name for info in store.thread(thread).branches()))


def complete_target(context: click.Context, _parameter: click.Parameter, start: str) -> list[str]:
    """Return the tags of the command line's thread that begin with `start`."""
    return _offer(context, start, lambda store, thread: store.thread(thread).tags())


def complete_side(context: click.Context, parameter: click.Parameter, start: str) -> list[str]:
    """Return the tags and branches of the command line's thread that begin with `start`."""
    return complete_target(context, parameter, start) + complete_branch(context, parameter, start)


def complete_key(context: click.Context, _parameter: click.Parameter, start: str) -> list[str]:
    """Return the keys of the board that begin with `start`."""
    return _offer(context, start, lambda store, _thread: _keys(store, start))


def _keys(store: Store, start: str) -> Iterator[str]:
    board = store.board()
    found = [board.list(pattern, limit=_OFFERED_MAX) for pattern in (f"{start}*", f"{start}*/**")]
    return iter(sorted(entry.key for entries in found for entry in entries))


def complete_run(context: click.Context, _parameter: click.Parameter, start: str) -> list[str]:
    """Return the ids of runs that begin with `start`."""
    from statelog import durable

    return _offer(context, start, lambda store, _run: (info.id for info in durable.runs(store)))


def complete_place(context: click.Context, _parameter: click.Parameter, start: str) -> list[str]:
    """Return the recorded places of the command line's run that begin with `start`."""
    from statelog import durable

    return _offer(
        context,
        start,
        lambda store, run: (each.place for each in durable.steps(store, run) if not each.is_compensation),
    )


def complete_schedule(context: click.Context, _parameter: click.Parameter, start: str) -> list[str]:
    """Return the names of schedules that begin with `start`."""
    from statelog import durable

    return _offer(context, start, lambda store, _name: (each.name for each in durable.schedules(store)))


def complete_gate(context: click.Context, _parameter: click.Parameter, start: str) -> list[str]:
    """Return the ids of waiting gates that begin with `start`."""
    from statelog import durable

    return _offer(context, start, lambda store, _gate: (gate.id for gate in durable.gates(store, pending=True)))


def _offer(context: click.Context, start: str, names: _Names) -> list[str]:
    """Return the names that begin with `start` from the command line's store, or [] if the store cannot be read."""
    # If the command line ends with an option, click leaves the arguments unparsed in `context.args`.
    named = [context.params[name] for name in ("store", "thread", "run") if context.params.get(name) is not None]
    path, thread = [*named, *context.args, None, ""][:2]
    found: list[str] = []
    with suppress(StatelogError, OSError):
        if path is not None:
            with open_for_reading(Path(path)) as store:
                found = _fitting(names(store, thread or ""), start)
    return found


def _fitting(names: Iterable[str], start: str) -> list[str]:
    fitting: Iterator[str] = (name for name in names if name.startswith(start) and name.isprintable())
    return list(islice(fitting, _OFFERED_MAX))
