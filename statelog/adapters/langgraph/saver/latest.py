"""The latest checkpoints of namespaces, from memory, for as long as nobody else changes the thread.

A graph asks for the latest checkpoint whenever it runs. Looking for it asks for every line of the thread; mostly it is
the one that this saver has put last.

Invariants:
    1. What is known of a namespace held when a certain record was the last one of the thread.
    2. It is used where all records of the thread behind that are pending writes of this saver's, and what it has put in
       the namespace since, each with an id above those before. Whatever else is committed to the thread, by whomever,
       ends it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from statelog.adapters.langgraph.saver.reading import Row, greatest_prefix, is_hidden, read_writes
from statelog.adapters.langgraph.values.names import Place, writes_prefix
from statelog.errors import StatelogError

if TYPE_CHECKING:
    from statelog import Store
    from statelog.adapters.kit.lineage import Lineage
    from statelog.adapters.langgraph.saver.putting import Base
    from statelog.adapters.langgraph.saver.reading import WriteRow
    from statelog.adapters.langgraph.values.codec import Parts
    from statelog.store.views import MapView

_KNOWN_MAX = 256
_PUTS_MAX = 64
_EARLY_THREADS_MAX = 1024
_EARLY_MAX, _EARLY_KEPT = 16, 4

_new = tuple.__new__
"""Makes a named tuple without a call of Python's."""


class _Known(NamedTuple):
    """The latest checkpoint of a namespace."""

    lsn: int
    """Of a record up to which the thread has been looked at."""
    id: str
    """Its id, empty if there is none."""
    base: Base | None
    """What was put, if this saver did."""
    aside: int
    """LSN of the last pending writes up to `lsn` that this saver has made, 0 if there are none."""
    greatest: str
    """Greatest prefix of names in the branch of pending writes when the thread was looked for."""
    puts: tuple[int, ...] = ()
    """LSNs of what was put behind `lsn`, the last one with `id`."""


class Latest:
    """Remembers them; for several OS threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[tuple[str, str], _Known] = {}
        self._early: dict[str, dict[str, None]] = {}
        """By thread, prefixes of pending writes to what may be put yet, of which the greatest counts; those of threads
        that are too many stand together, under no name."""

    def read(self, lsn: int, asked: Place, id: str, pending: MapView | None) -> None:
        """Note what was read: the latest id of a namespace, and pending writes, where the last record was `lsn`."""
        self._keep(asked, _Known(lsn, id, None, 0, greatest_prefix(pending)))

    def note_writes(self, place: Place, base: Base | None) -> None:
        """Note before it is written where something will be: what this saver has not put, or may put once more."""
        known = self._known.get(place[:2])
        if base is not None and known is not None and place.id <= known.id:
            return
        of = place.thread_id
        if len(self._early) >= _EARLY_THREADS_MAX and of not in self._early:
            of = ""
        early = self._early.setdefault(of, {})
        early[writes_prefix(place)] = None
        if len(early) > _EARLY_MAX:  # one by one, below others that are there: several OS threads may be here
            for each in sorted([*early])[:-_EARLY_KEPT]:
                early.pop(each, None)

    def put(self, place: Place, base: Base, lineage: Lineage) -> None:
        """Note what was put."""
        of = place[:2]
        known, made = self._known.get(of), base.checkpoint
        if known is None or made is None:
            return
        if place[2] <= known.id or len(known.puts) >= _PUTS_MAX:
            return
        lsn, aside = _go_on(known, lineage)
        puts: tuple[int, ...] = (*known.puts, made.event.lsn)
        if puts == (lsn + 1,):
            lsn, puts = lsn + 1, ()
        self._known[of] = _new(_Known, (lsn, place[2], base, aside, known.greatest, puts))  # in place of another

    def _look(self, known: _Known, thread: int, lineage: Lineage) -> _Known | None:
        """Return what is known as of now; None if anybody else has changed the thread."""
        lsn, aside = _go_on(known, lineage)
        records = self._store.records_of(thread, lsn)
        if records is None:
            return None
        for at in records[1]:
            if at in lineage.made_aside:
                aside = at
            elif at not in known.puts:
                return None
        return _new(_Known, (records[0], known.id, known.base, aside, known.greatest, ()))

    def _keep(self, place: Place, known: _Known) -> None:
        if len(self._known) >= _KNOWN_MAX:
            self._known.clear()
        self._known[place[:2]] = known

    def row(self, parts: Parts, asked: Place, lineage: Lineage) -> Row | None:
        """Return what is stored of a namespace's latest checkpoint; None if that is to be looked for."""
        known = self._known.get(asked[:2])
        base = None if known is None else known.base
        if known is None or base is None or base.checkpoint is None:
            return None
        lsn, aside = _go_on(known, lineage)
        if known.puts or not self._store.is_last(lsn):
            looked = self._look(known, base.checkpoint.event.thread, lineage)
            if looked is None:
                return None
            self._known[asked[:2]] = known = looked
            aside = known.aside
        place = _new(Place, (asked.thread_id, asked.namespace, known.id))
        try:
            writes: list[WriteRow] = []
            if aside > base.checkpoint.event.lsn or not self._is_bare(known, place):
                last = lineage.last_aside
                if last is None or last.event.lsn != aside:  # another OS thread has noted one since
                    return None
                state = last.state
                if is_hidden(state, place):
                    return None
                writes = read_writes(state, place)
            channels = {name: parts.read(stored) for name, stored in base.channels.items()}
            return _new(Row, (place, base.checkpoint, base.kept, base.checkpoint.metadata, channels, writes, base.own))
        except StatelogError:  # gone meanwhile, or closed: who looks for it meets that, too
            return None

    def _is_bare(self, known: _Known, place: Place) -> bool:
        """Tell whether nothing was written to a checkpoint before it was put, and it is not hidden, without a look.

        When the thread was looked for all names of pending writes stood before its own; what this saver has written
        since was to checkpoints up to the latest one, or is noted.
        """
        prefix = writes_prefix(place)
        for early in (self._early.get(place.thread_id), self._early.get("")):
            if early and prefix <= max([*early]):
                return False
        return prefix > known.greatest


def _go_on(known: _Known, lineage: Lineage) -> tuple[int, int]:
    """Return how far behind what is known there are pending writes alone, and which of these is the last."""
    lsn, made = known.lsn, lineage.made_aside
    while lsn + 1 in made:
        lsn += 1
    return lsn, known.aside if lsn == known.lsn else lsn
