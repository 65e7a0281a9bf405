"""Searches a store: the index finds candidates, and the store confirms them.

A row of the index is a hit only if the store has the same text at the row's place now: in the head of a branch, at the
given time, or in a version that still exists. So a text that was deleted, expired, purged or rolled back is never
shown.
"""

from __future__ import annotations

from datetime import datetime
from fnmatch import fnmatchcase
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from statelog import kernels
from statelog.board import reads
from statelog.errors import CheckError, CorruptionError, ExpiredError, UsageError
from statelog.format import cbor, keys
from statelog.guard.verdicts import Where
from statelog.limits import THREAD_ID_SIZE_BYTES_MAX
from statelog.log.events import MAIN
from statelog.log.names import check_name
from statelog.log.times import now_us, to_datetime, to_time_us
from statelog.search.hits import Hit, Hits
from statelog.search.index import Filter
from statelog.search.log_texts import ENTRY, ITEM, KIND_NAMES, RUN, RUNS, THREAD, names_of
from statelog.search.places import parse_place
from statelog.search.query import parse_query
from statelog.search.snippets import snippet_maker
from statelog.tree.tree import LISTS, Tree
from statelog.tree.value import container_kind, is_tree, open_root, read_item, split

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from statelog.log.engine import Engine
    from statelog.log.view import ThreadRow, View
    from statelog.search.changes import Taken, TextFinder
    from statelog.search.index import Index, Match
    from statelog.search.log_texts import TextSource
    from statelog.search.places import PlacePattern
    from statelog.search.texts import Path, Text
    from statelog.search.versions import Versions
    from statelog.tree.node import Workspace


LIMIT_MAX = 10_000

_SPARE = 2
"""The number of additional rows to read, so that a few stale rows do not need a second read."""


class Conditions(NamedTuple):
    """The conditions for a hit. None means no condition."""

    threads: str | None
    where: PlacePattern | None
    role: str | None
    since_us: int | None
    until_us: int | None
    branch: str | None
    at_version: int | None
    at_us: int | None
    history: bool
    limit: int


def parse_conditions(
    *,
    threads: str | None,
    where: str | None,
    role: str | None,
    since: str | datetime | None,
    until: str | datetime | None,
    branch: str | None,
    at: int | datetime | None,
    history: bool,
    limit: int,
) -> Conditions:
    """Check the arguments of a search, and return its conditions. Raises UsageError. Facts: argument, value."""
    if threads is not None:
        check_name("pattern of thread ids", threads, size_bytes_max=THREAD_ID_SIZE_BYTES_MAX)
    for argument, value in (("role", role), ("branch", branch)):
        if value is not None and not isinstance(value, str):
            message = f"{argument} must be a str, not {value!r}"
            raise UsageError(message, argument=argument, value=value)
    if not isinstance(history, bool):
        message = f"history must be True or False, not {history!r}"
        raise UsageError(message, argument="history", value=history)
    if isinstance(limit, bool) or not isinstance(limit, int) or not 0 < limit <= LIMIT_MAX:
        message = f"limit must be an int from 1 to {LIMIT_MAX}, not {limit!r}"
        raise UsageError(message, argument="limit", value=limit)
    at_version, at_us = None, None
    if isinstance(at, datetime):
        at_us = to_time_us(at)
    elif at is not None:
        if isinstance(at, bool) or not isinstance(at, int) or at < 0:
            message = f"at must be a version or a datetime, not {at!r}"
            raise UsageError(message, argument="at", value=at)
        at_version = at
    if at is not None and history:
        message = "at= and history=True cannot be combined: a search covers one moment or the whole history"
        raise UsageError(message, argument="at", value=at)
    place = None if where is None else parse_place("where", where)
    times = _time_us("since", since), _time_us("until", until)
    is_main = at_version is not None and branch is None
    return Conditions(
        threads,
        place,
        role,
        *times,
        MAIN if is_main else branch,
        at_version,
        at_us,
        history,
        limit,
    )


def _time_us(argument: str, moment: object) -> int | None:
    if moment is None:
        return None
    try:
        parsed = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    except ValueError:
        parsed = None
    if not isinstance(parsed, datetime):
        message = (
            f"{argument} must be a datetime, or a str such as 2026-10-01 or 2026-10-01T12:00:00+00:00, not {moment!r}"
        )
        raise UsageError(message, argument=argument, value=moment)
    return to_time_us(parsed)


def search(engine: Engine, index: Index, text: str, conditions: Conditions, *, match: str) -> Hits:
    """Return the hits of a query; see `Store.search`."""
    configuration = index.configuration()
    query = parse_query(text, configuration.tokenizer, match=match)
    if not query.expression:
        return Hits([])

    def find() -> list[Hit]:
        finder = RowConfirmer(engine, conditions, index.versions)
        make_snippet = snippet_maker(query.words)
        hits: list[Hit] = []
        rows = index.matches(query.expression, finder.filter(), first=conditions.limit + _SPARE)
        while page := list(islice(rows, conditions.limit - len(hits) + _SPARE)):
            found = finder.confirm(page)
            hits += [_hit(each, make_snippet) for each in islice(found, conditions.limit - len(hits))]
            if len(hits) == conditions.limit:
                break
        return hits

    return Hits(index.read(configuration, find), index.take_notes())


class Confirmed(NamedTuple):
    """A row that the store has confirmed."""

    match: Match
    thread_id: str | None
    branch: str | None
    version: int
    time_us: int
    text: Text
    part: bytes
    """The encoded part of the value that the guard's read checks examine."""
    agent: str | None


def _hit(found: Confirmed, make_snippet: Callable[[str], str]) -> Hit:
    match, thread, branch, version, time_us, (path, role, text), _part, _agent = found
    kind = match.source.kind
    key, namespace, run = None, None, None
    if kind != THREAD:
        key, namespace, run, path = names_of(match.source._replace(path=path))
    snippet, moment = make_snippet(text), to_datetime(time_us)
    return Hit(
        KIND_NAMES[kind], thread, branch, version, path, key, namespace, run, role, moment, text, snippet, match.score
    )


class RowConfirmer:
    """Confirms rows of the index for one search."""

    def __init__(self, engine: Engine, conditions: Conditions, versions: Versions) -> None:
        self._engine = engine
        self._checks = None if engine.guard is None else engine.guard.on_read
        self._conditions = conditions
        self._read = versions
        self._seen: set[tuple[Any, ...]] = set()
        self._taken: Taken = set()
        self._now_us = now_us()

    def filter(self) -> Filter:
        """Return the conditions for rows of the index."""
        asked = self._conditions
        fits: Callable[[TextSource], bool] | None = None
        if asked.threads is not None or asked.where is not None or asked.branch is not None:
            fits = partial(self._fits, ids=self._thread_ids())
        return Filter(fits, asked.role, asked.since_us, asked.until_us)

    def _thread_ids(self) -> dict[int, str]:
        """Return the ids of the threads that meet the conditions, keyed by LSN."""
        pattern = self._conditions.threads
        with self._engine.read() as view:
            if pattern is not None and not any(sign in pattern for sign in "*?["):
                lsn = view.thread_lsn(pattern)
                return {} if lsn is None else {lsn: pattern}
            return {row.lsn: row.id for row in view.threads() if pattern is None or fnmatchcase(row.id, pattern)}

    def _fits(self, source: TextSource, *, ids: dict[int, str]) -> bool:
        asked = self._conditions
        if source.kind in (THREAD, ITEM):
            if source.thread not in ids or (source.kind == ITEM and asked.threads is not None):
                return False
        elif asked.threads is not None or asked.branch is not None:
            return False
        if asked.where is None:
            return True
        return asked.where.fits(source.kind, ids.get(source.thread, ""), source.path)

    # --- confirmation ---------------------------------------------------------------------

    def confirm(self, matches: list[Match]) -> Iterable[Confirmed]:
        """Return the rows that the store confirms and the read checks allow. The checks run outside of any view."""
        found: list[Confirmed] = []
        with self._engine.read() as view:
            self._read.begin(view)
            for match in matches:
                try:
                    one = (
                        self._of_board(view, match)
                        if match.source.kind in (ENTRY, RUN)
                        else self._of_thread(view, match)
                    )
                except (CorruptionError, ExpiredError):  # A read of the value itself reports the damage.
                    continue
                if one is not None:
                    found.append(one)
        return found if self._checks is None else filter(self._is_allowed, found)

    def _is_allowed(self, found: Confirmed) -> bool:
        assert self._checks is not None
        if found.match.source.kind in (ENTRY, RUN):
            key = _key_of(found.match.source)
            where = Where("read", "board", key, key=key, agent=found.agent)
        else:
            where = Where("read", "thread", str(found.match.source.path[0]), found.thread_id)
        if where.is_own:
            return True
        value = cbor.decode(found.part, loosely=True)
        try:
            return self._checks.value(value, where) is value
        except CheckError:
            return False

    def _part(self, state: TextFinder, text: Text) -> bytes:
        """Return the encoded member or list item of a channel that has a text, or else the whole channel.

        For a delta channel, return only the text. Return empty bytes if the guard has no read checks.
        """
        if self._checks is None:
            return b""
        path = text.path[:2]
        workspace, slot = state.tree.workspace, state.tree.find(cbor.encode(path[0]))[1]
        if slot is None:
            return cbor.encode(text.text)
        if len(path) > 1 and is_tree(slot):
            channel = open_root(workspace, slot)
            if channel.kind in LISTS and type(path[1]) is int:
                return read_item(workspace, channel.at(path[1]))
            found = channel.find(cbor.encode(path[1]))[1] if channel.kind == kernels.KIND_DICT else None
            return read_item(workspace, slot if found is None else found)
        item = read_item(workspace, slot)
        if len(path) > 1 and container_kind(item) == kernels.KIND_LIST and type(path[1]) is int:
            return split(item)[path[1]]
        span = None
        if len(path) > 1 and container_kind(item) == kernels.KIND_DICT:
            span = kernels.cbor_map_get(item, cbor.encode(path[1]))
        return item if span is None else item[span[0] : span[1]]

    def _of_board(self, view: View, match: Match) -> Confirmed | None:
        asked, board, key = self._conditions, reads.board_of(view), _key_of(match.source)
        if board is None or asked.at_version is not None:
            return None
        if asked.history:
            found: reads.EntryRecord | None = reads.read_entry(view, match.version)
        elif asked.at_us is not None:
            found = reads.find_at(view, board, key, time_us=asked.at_us)
        else:
            found = reads.find(view, board, key, self._now_us)
        if found is None or found.event.key != key or found.event.root_digest is None:
            return None
        time_us = view.record(match.version).time_us
        if not self._is_in_time(time_us):
            return None
        event = found.event
        assert event.root_digest is not None
        state = self._read.state(event.root_digest, event.root_lsn, event.root_node)
        path = (reads.VALUE, *match.source.path[1:], *(() if match.item is None else (match.item,)))
        text = state.find(path, match.hash, self._taken)
        if text is None or self._is_seen(match.source.kind, key, found.lsn, text.path):
            return None
        part = self._part(state, text._replace(path=text.path[:1]))
        named = text._replace(path=(match.source.path[0], *text.path[1:]))
        return Confirmed(match, None, None, found.lsn, time_us, named, part, event.agent)

    def _is_in_time(self, time_us: int) -> bool:
        since_us, until_us = self._conditions.since_us, self._conditions.until_us
        return (since_us is None or time_us >= since_us) and (until_us is None or time_us < until_us)

    def _is_seen(self, *place: Any) -> bool:
        """Return True if a place was found earlier in this search. Otherwise remember the place."""
        if place in self._seen:
            return True
        self._seen.add(place)
        return False

    # --- threads ------------------------------------------------------------------------------

    def _of_thread(self, view: View, match: Match) -> Confirmed | None:
        source = match.source
        row = self._read.thread(source.thread)
        if row is None:
            return None
        path = source.path if match.item is None else (*source.path, match.item)
        entry = self._read.entry(source.thread, source.branch, match.version)
        if entry is not None and not self._is_in_time(entry.time_us):
            return None
        for branch, name, version, state in self._versions(view, row, match, path):
            if state is None:
                continue
            text = state.find(path, match.hash, self._taken)
            if text is None or (source.kind == ITEM and self._is_expired(state.tree, path)):
                continue
            if not self._conditions.history:
                version = match.version if text.path == path and entry is not None else version
            place = (source.thread, branch, text.path, version if self._conditions.history else -1)
            if self._is_seen(source.kind, *place):
                return None
            time_us = match.time_us if entry is None else entry.time_us
            return Confirmed(match, row.id, name, version, time_us, text, self._part(state, text), None)
        return None

    def _versions(
        self, view: View, row: ThreadRow, match: Match, path: Path
    ) -> Iterator[tuple[int, str, int, TextFinder | None]]:
        """Yield (branch, its name, version, state) of versions that may have a text, the row's own branch first.

        The state is None if the version has expired or was removed through LangGraph.
        """
        asked, thread, own = self._conditions, row.lsn, match.source.branch
        branches = self._read.branches(row)
        for branch, name in sorted(branches, key=lambda each: each[0] != own) if len(branches) > 1 else branches:
            if asked.branch not in (None, name) or (asked.history and branch != own):
                continue
            wanted = asked.at_version
            if asked.history:
                wanted = _kept_from(view, thread, own, match.version)
            elif asked.at_us is not None:
                wanted = view.version_at_time(thread, branch, asked.at_us)
            version, state = self._read.version(row, branch, wanted, path)
            is_there = match.version <= version and (branch == 0 or view.owner(thread, branch, match.version) == own)
            if is_there and (branch or not own):
                yield branch, name, version, state

    def _is_expired(self, tree: Tree, path: Path) -> bool:
        """Return True if an item of LangGraph's store has reached the end of its time to live."""
        slot = tree.find(cbor.encode(path[0]))[1]
        for name in path[1:3]:
            slot = None if slot is None else _member(tree.workspace, slot, str(name))
        entry = None if slot is None else cbor.decode(read_item(tree.workspace, slot), as_stored=True)
        expires_us = entry.get("expires") if isinstance(entry, dict) else None
        return isinstance(expires_us, int) and expires_us <= self._now_us


def _key_of(source: TextSource) -> str:
    return str(source.path[0]) if source.kind == ENTRY else f"{RUNS}{source.path[0]}"


def _kept_from(view: View, thread: int, branch: int, version: int) -> int:
    """Return the first version of a branch from `version` on that still exists, or -1."""
    entry = view.entry(thread, branch, version)
    if entry is not None:
        return version
    for _key, payload in view.transaction.scan_index(
        keys.encode_page_prefix(thread, branch), start=keys.encode_page_key(thread, branch, version)
    ):
        first, last = kernels.page_range(payload)
        for each in range(max(first, version), last + 1):
            if kernels.page_read(payload, each).lsn:
                return each
    return -1


def _member(workspace: Workspace, slot: Any, name: str) -> Any:
    """Return the slot of a member of a dict.

    Return None if the value is not a dict, or if one node has all its members.
    """
    if is_tree(slot):
        tree = open_root(workspace, slot)
        return tree.find(cbor.encode(name))[1] if tree.kind == kernels.KIND_DICT else None
    span = kernels.cbor_map_get(read_item(workspace, slot), cbor.encode(name))
    return None if span is None else slot._replace(data=read_item(workspace, slot)[span[0] : span[1]], lsn=0, number=0)
