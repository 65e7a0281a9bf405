"""Text search of a store, and the configuration of its index."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any, TypeVar

from statelog import reducers
from statelog.board import entry_writer, reads, writes
from statelog.log.kinds.entries import EntryAct
from statelog.search.configuration import CONFIGURATION_KEY, Configuration, read_configuration
from statelog.search.index import Index
from statelog.search.query import parse_query
from statelog.search.search import parse_conditions
from statelog.search.search import search as search_index
from statelog.store.graph_threads import GraphThreadsInView

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from statelog.board.entry_writer import EntryWriter
    from statelog.log.engine import Engine
    from statelog.search.hits import Hits
    from statelog.store.session import StoreSession

T = TypeVar("T")

_KEPT = "search"

_RARE_MAX = 100
"""Words of a query count as rare if at most this many texts contain one of them."""


def _index_of(session: StoreSession) -> Index:
    """Return the index of an open store."""
    index: Index = session.kept.get(_KEPT) or session.kept.setdefault(_KEPT, _make_index(session.engine))
    return index


def _make_index(engine: Engine) -> Index:
    return Index(engine, GraphThreadsInView(engine))


def search(session: StoreSession, text: str, *, match: str, **conditions: Any) -> Hits:
    """See `Store.search`."""
    asked = parse_conditions(**conditions)
    engine = session.engine
    index = _index_of(session)
    return search_index(engine, index, text, asked, match=match)


def search_items(
    session: StoreSession,
    text: str,
    prefix: str,
    choose: Callable[[Iterator[tuple[str, int]]], list[T]],
    *,
    enough: int,
    first: int,
) -> list[T]:
    """Search the entries below a prefix in the index. Return the result of `choose` for the texts that were found.

    `choose` gets an iterator of (key, hash) of all matching texts, best first, and takes as many as it needs. It
    compares the hashes with the hashes of the stored texts (`hash_of`). The rarest words of the query come first.
    The other words hardly change the result but cost most, so they are searched only if fewer than `enough` texts were
    chosen. `first` is the number of texts to read at first; `choose` may take more.
    """
    index = _index_of(session)
    configuration = index.configuration()
    parts = dict.fromkeys(parse_query(text, configuration.tokenizer, match="any").parts)

    def find() -> list[T]:
        counted = sorted((index.count(part, at_most=_RARE_MAX), part) for part in parts)
        counted = [each for each in counted if each[0]]
        sums = accumulate(count for count, _part in counted)
        every = [part for _count, part in counted]
        rare = [part for part, total in zip(every, sums, strict=True) if total <= _RARE_MAX] or every[:1]
        chosen: list[T] = []
        for some in (rare, every):
            if some and len(chosen) < enough:
                chosen = choose(index.items_below(" OR ".join(some), prefix, first=first))
        return chosen

    return index.read(configuration, find) if parts else []


def close_search(session: StoreSession) -> None:
    """Close the index when its store is closed."""
    index: Index | None = session.kept.pop(_KEPT, None)
    if index is not None:
        index.close()


def configure(session: StoreSession, configuration: Configuration) -> None:
    """Store a configuration of the index, if it differs from the stored one."""
    engine = session.engine
    engine.store_file.lmdb_file.check_writable()
    if engine.guard is not None:
        for pattern in (*configuration.include, *configuration.exclude):
            engine.guard.check_name(pattern)  # Refuse a secret, because a redacted pattern would match other places.
    if read_configuration(engine) == configuration:
        return
    value = entry_writer.prepare(reducers.replace.prepare(reads.VALUE, configuration.fields, path=CONFIGURATION_KEY))

    def work(writer: EntryWriter) -> None:
        there = writes.find(writer, CONFIGURATION_KEY)
        place = entry_writer.NO_PLACE if there is None else entry_writer.place_of(there)
        entry_writer.stage(writer, EntryAct.SET, CONFIGURATION_KEY, place=place, value=value)

    session.act(lambda batch: work(writes.begin(batch, None)))
