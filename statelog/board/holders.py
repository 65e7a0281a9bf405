"""Finds and stages claims of entries, and leases: the holder, the deadline, and the next entry to claim.

A claim is a commit, so only one claimer wins. The token of a claim is the LSN of its first record.
Only a record ends a claim. A holder that is past its deadline may continue until another process
takes over the entry.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from statelog.board import writes
from statelog.board.entry_writer import NOTHING, EntryFields, EntryWriter, Value, kept_of, place_of, stage
from statelog.board.names import RESERVED, compile_pattern
from statelog.board.reads import EntryRecord, read_entry, records_kept
from statelog.board.waiters import call_holder
from statelog.errors import ExpiredError, LeaseLostError
from statelog.format import board_keys, keys
from statelog.format.board_keys import Queued
from statelog.limits import ENTRY_KEY_SIZE_BYTES_MAX
from statelog.log.kinds.entries import BOARD_ID, LEASES_ID, NO_ROW, Claimed, EntryAct, is_lease, last_row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from statelog.board.clocks import ProcessClocks
    from statelog.board.names import KeyPattern
    from statelog.format.board_keys import EntryRow
    from statelog.log.batch import Batch
    from statelog.log.view import View

ReadRow: TypeAlias = "Callable[[str], tuple[EntryRow, bool]]"
"""A function that returns the index row of a key, and whether the entry exists."""

_FORGOTTEN_US = 86_400_000_000
"""When a lease has been past its deadline for this time, the next process that acquires any lease records its end."""

_FORGOTTEN_MAX = 8

_DEAD_MAX = 16
"""The maximum number of entries that one commit moves away because they were claimed too often."""


class ClaimFilter(NamedTuple):
    """A filter of the entries that a claimer accepts."""

    patterns: tuple[KeyPattern, ...]
    may: Callable[[str], bool]
    """Returns True if the rules allow the claim of a key."""
    attempts_max: int | None
    dead: str | None
    """The prefix to which entries move after `attempts_max` claims. If it is None, these entries stay and are skipped.
    """
    check_write: Callable[[str], None] = lambda _key: None
    """Raises AccessError if the handle may not write the key to which an entry moves."""
    unless: tuple[str, ...] = ()
    """Prefixes of keys that the claimer does not accept, even if a pattern matches."""

    def is_spent(self, found: EntryRecord) -> bool:
        """Return True if an entry has reached the maximum number of claims."""
        return self.attempts_max is not None and found.attempts >= self.attempts_max

    def grave(self, key: str) -> str | None:
        """Return the key to which an entry moves after too many claims, or None if the entry stays at its key.

        An entry also stays if the new key would be too long.
        """
        target = None if self.dead is None else moved_to(key, self.dead)
        return None if target is None or len(target.encode()) > ENTRY_KEY_SIZE_BYTES_MAX else target

    def includes(self, key: str) -> bool:
        """Return True if the claimer accepts an entry with this key. Entries below `dead` are not accepted."""
        fits = any(pattern.fits(key) for pattern in self.patterns)
        return fits and self.may(key) and not (self.dead and key.startswith(self.dead)) and not self.shuns(key)

    def shuns(self, key: str) -> bool:
        """Return True if `unless` excludes the key."""
        return key.startswith(self.unless)


class ClaimChoice(NamedTuple):
    """The result of a search for an entry to claim."""

    found: EntryRecord | None
    """The next entry to claim, or None."""
    lapsed: list[EntryRecord]
    """The accepted entries whose claims are past their deadlines."""
    wait_us: int | None
    """The microseconds until one more entry becomes available without a commit; None if no such time is known."""
    snapshot_id: int | None = None
    """The number of the last commit that the search could see; None if it could also see uncommitted changes."""


# --- the next entry to claim -------------------------------------------------------------


def choose(
    view: View, board: int, wanted: ClaimFilter, clock: ProcessClocks, row: ReadRow | None = None
) -> ClaimChoice:
    """Return the next entry to claim: the entry with the highest priority; among equals, the oldest.

    Args:
        view: a view of the store.
        board: the LSN of the board's thread.
        wanted: the entries that the claimer accepts.
        clock: the clock that deadlines are compared with.
        row: a function that reads index rows. A commit passes `EntryWriter.row`, which remembers them.
    """
    row = row or partial(last_row, view, board)
    now_us = clock.wall_us()
    waits: list[int] = []
    lapsed: list[EntryRecord] = []
    for key, left_us in deadlines(view, board, clock):
        if left_us > 0:
            waits.append(left_us)
        elif wanted.includes(key):
            lapsed.append(read_entry(view, row(key)[0].lsn))
    literal = (each.text for each in wanted.patterns if each.is_key)
    wild = {at for each in wanted.patterns if not each.is_key for at in _directories(view, board, each)}
    firsts = [_first_of(view, row, key, wanted, now_us, waits) for key in literal]
    firsts += [_first_in(view, board, row, at, wanted, now_us, waits) for at in wild if not wanted.shuns(f"{at}/")]
    best = min(((each.rank, each.order_us, each.key) for each in firsts if each is not None), default=None)
    entry = None if best is None else read_entry(view, row(best[2])[0].lsn)
    return ClaimChoice(entry, lapsed, min(waits, default=None), view.snapshot_id())


def deadlines(view: View, board: int, clock: ProcessClocks) -> Iterator[tuple[str, int]]:
    """Yield (key, microseconds until the deadline) of claims and leases.

    Of the deadlines with this clock's tag, yield those in the past and the first one in the future. Yield every
    deadline with a different tag, because the index does not sort these deadlines by this clock.
    """
    prefix, start = keys.encode_thread_prefix(b"Q", board), b""
    own, boot_us = clock.tag, clock.boot_us()
    while True:
        for place, payload in view.transaction.scan_index(prefix, start=start):
            tag, deadline_us = board_keys.decode_deadline(place)
            key = payload.decode()
            if tag == own:
                yield key, deadline_us - boot_us
                if deadline_us > boot_us:
                    start = prefix + own + b"\xff" * 17  # Skip the later deadlines with this tag.
                    break
            else:
                claim = read_entry(view, last_row(view, board, key)[0].lsn).claim
                assert claim is not None
                yield key, clock.left_us(claim)
        else:
            return


def _directories(view: View, board: int, pattern: KeyPattern) -> Iterator[str]:
    """Yield the directories that may contain keys that match a pattern."""
    above, _slash, name = pattern.text.rpartition("/")
    if name != "**" and "*" not in above and "?" not in above:
        yield above
        return
    top = pattern.prefix.rpartition("/")[0]
    yield top
    fits = compile_pattern(above).fits if above and "**" not in pattern.text else None
    below = board_keys.encode_directory(board, f"{top}/" if top else "")[:-1]
    start = b"" if top else below + b"\1"
    while True:
        place = next((place for place, _payload in view.transaction.scan_index(below, start=start)), None)
        if place is None:
            return
        directory = board_keys.decode_queue_key(place).directory
        is_reserved = f"{directory}/".startswith(RESERVED)
        if directory != top and is_reserved <= pattern.text.startswith(RESERVED) and (fits is None or fits(directory)):
            yield directory
        start = board_keys.encode_directory(board, directory)[:-1] + b"\1"


def _first_in(
    view: View, board: int, row: ReadRow, directory: str, wanted: ClaimFilter, now_us: int, waits: list[int]
) -> Queued | None:
    """Return the next entry to claim in a directory. Add to `waits` the times until delayed entries may be claimed."""
    prefix, start = board_keys.encode_directory(board, directory), b""
    while True:
        for place, is_delayed in view.transaction.scan_index(prefix, start=start):
            queued = board_keys.decode_queue_key(place)
            if not wanted.includes(queued.key):
                continue
            if is_delayed and queued.order_us > now_us:  # All further entries with this rank are also delayed.
                waits.append(queued.order_us - now_us)
                if queued.rank == 255:
                    return None
                start = board_keys.encode_rank(board, directory, queued.rank + 1)
                break
            if _may_claim(view, row(queued.key)[0], queued.key, wanted, now_us):
                return queued
        else:
            return None


def _first_of(
    view: View, read_row: ReadRow, key: str, wanted: ClaimFilter, now_us: int, waits: list[int]
) -> Queued | None:
    """Return the entry of one key if it may be claimed. Otherwise add to `waits` the time until it may be claimed."""
    row, is_there = read_row(key)
    if not is_there or row.tag != board_keys.NO_TAG or not wanted.includes(key):
        return None
    ready_us = read_entry(view, row.lsn).ready_us
    if ready_us > now_us:
        waits.append(ready_us - now_us)
        return None
    if not _may_claim(view, row, key, wanted, now_us):
        return None
    return Queued(key.rpartition("/")[0], row.rank, row.order_us, key)


def _may_claim(view: View, row: EntryRow, key: str, wanted: ClaimFilter, now_us: int) -> bool:
    """Return True unless an entry has expired, or was claimed too often and cannot move to a key below `dead`."""
    if 0 < row.expires_us <= now_us:
        return False
    may_stay = wanted.attempts_max is not None and wanted.grave(key) is None
    return not (may_stay and wanted.is_spent(read_entry(view, row.lsn)))


# --- claims --------------------------------------------------------------------------------


def claim(
    writer: EntryWriter, wanted: ClaimFilter, lease_us: int, clock: ProcessClocks, seen: ClaimChoice | None = None
) -> EntryRecord | None:
    """Stage a claim of the next entry, and return the entry, or None if there is nothing to claim.

    This also stages the end of claims that are past their deadlines, and the move of entries that
    were claimed too often. `seen` is the result of an earlier search. It is used if nothing was
    committed since that search.
    """
    view, board = writer.view, writer.board
    if seen is not None and seen.found is not None and not seen.lapsed and writer.batch.follows(seen.snapshot_id):
        choice = seen if seen.found.is_there(writer.now_us) else choose(view, board, wanted, clock, writer.row)
    else:
        choice = choose(view, board, wanted, clock, writer.row)
    for each in choice.lapsed:
        end(writer, each, EntryAct.RELEASE, agent=None)
    for number in range(_DEAD_MAX):
        if number or choice.lapsed:
            choice = choose(view, board, wanted, clock, writer.row)
        found = choice.found
        if found is None:
            return None
        if not wanted.is_spent(found):
            kept = kept_of(found)._replace(claim=_begin(lease_us, clock), attempts=found.attempts + 1)
            return stage(writer, EntryAct.CLAIM, found.event.key, kept, place_of(found))
        bury(writer, found, wanted)
    return None


def held(writer: EntryWriter, key: str, token: int) -> EntryRecord:
    """Return the entry or lease that a token holds. Raises LeaseLostError, also if the entry has expired."""
    found = _check_holder(writer, key, token)
    if 0 < found.event.expires_us <= writer.now_us:
        message = f"the entry {key!r} has expired, which ended the claim with token {token}"
        raise LeaseLostError(message, key=key, token=token)
    return found


def check_held(view: View, key: str, token: int) -> EntryRecord:
    """Return the entry or lease that a token holds.

    Raises:
        LeaseLostError: the claim or lease has ended. Facts: key or name, token.
    """
    board = view.thread_lsn(LEASES_ID if is_lease(key) else BOARD_ID)
    row = NO_ROW if board is None else last_row(view, board, key)[0]
    return _check_token(read_entry(view, row.lsn) if row.tag != board_keys.NO_TAG else None, key, token)


def check_held_in(batch: Batch, key: str, token: int) -> None:
    """Raise LeaseLostError if a claim or lease has ended. Include the changes that `batch` has staged."""
    board = batch.find_owner(LEASES_ID if is_lease(key) else BOARD_ID)
    if board is None:
        raise lost(key, token)
    _check_holder(EntryWriter(batch, board, None, 0), key, token)


def _check_holder(writer: EntryWriter, key: str, token: int) -> EntryRecord:
    is_claimed = writer.row(key)[0].tag != board_keys.NO_TAG
    return _check_token(writer.last_record(key) if is_claimed else None, key, token)


def _check_token(found: EntryRecord | None, key: str, token: int) -> EntryRecord:
    if found is None or found.claim is None or found.claim.token != token:
        raise lost(key, token)
    return found


def lost(key: str, token: int) -> LeaseLostError:
    """Return the LeaseLostError for a claim or lease that has ended."""
    if is_lease(key):
        message = (
            f"the lease {key[1:]!r} with token {token} has ended: it was released, or taken over by another process"
        )
        return LeaseLostError(message, name=key[1:], token=token)
    message = (
        f"the claim of {key!r} with token {token} has ended: the entry was released, claimed by another process, or"
        " removed"
    )
    return LeaseLostError(message, key=key, token=token)


def claimer_record(view: View, found: EntryRecord) -> EntryRecord | None:
    """Return the record that names the agent that claimed an entry.

    This is the first record of the claim. If retention has removed the first record, return the oldest renewal that
    still exists, or None if there is none.
    """
    claim = found.claim
    assert claim is not None
    with suppress(ExpiredError):
        return read_entry(view, claim.token)
    record = None
    for each in records_kept(view, found.event.thread, found.event.key):
        if each.claim is None or each.claim.token != claim.token:
            break
        record = each if each.event.act == EntryAct.RENEW else record
    return record


def renew(writer: EntryWriter, found: EntryRecord, lease_us: int, clock: ProcessClocks) -> EntryRecord:
    """Stage a new deadline for a claim or lease."""
    assert found.claim is not None
    claim = _begin(lease_us, clock)._replace(token=found.claim.token)
    return stage(writer, EntryAct.RENEW, found.event.key, kept_of(found)._replace(claim=claim), place_of(found))


def end(
    writer: EntryWriter,
    found: EntryRecord,
    act: EntryAct,
    *,
    ready_us: int = 0,
    error: str | None = None,
    agent: str | None = "",
    counts: bool = True,
) -> EntryRecord:
    """Stage the end of a claim. The entry may be claimed again, now or from `ready_us` on."""
    kept = kept_of(found)._replace(claim=None)
    kept = kept._replace(ready_us=ready_us or kept.ready_us, attempts=kept.attempts - (not counts))
    return stage(writer, act, found.event.key, kept, place_of(found), agent=agent, error=error)


def complete(
    writer: EntryWriter, found: EntryRecord, value: Value | None, target: str | None, schema: list[Any] | None = None
) -> EntryRecord:
    """Stage the completion of a claimed entry: delete the entry, and store its result at `target`.

    `schema` is the name and version of the result's schema, or None for version 1.
    """
    key = found.event.key
    made = stage(writer, EntryAct.COMPLETE, key, NOTHING, place_of(found), value)
    if target is not None:
        stage(writer, EntryAct.SET, target, _moved_in(writer, target, 0)._replace(schema=schema), place_of(made))
    return made


def bury(writer: EntryWriter, found: EntryRecord, wanted: ClaimFilter, error: str | None = None) -> EntryRecord:
    """Stage the move of an entry that must no longer be claimed."""
    key = found.event.key
    target = wanted.grave(key)
    assert target is not None
    wanted.check_write(target)
    made = stage(writer, EntryAct.DEAD, key, error=error)
    kept = _moved_in(writer, target, found.attempts)._replace(schema=found.event.schema)
    stage(writer, EntryAct.SET, target, kept, place_of(found), error=error)
    return made


def _moved_in(writer: EntryWriter, target: str, attempts: int) -> EntryFields:
    """Return the fields of an entry after it moves to `target`.

    If `target` already has a claimed entry, keep its claim.
    """
    there = writes.find(writer, target)
    if there is None or there.claim is None:
        return EntryFields(attempts=attempts)
    return EntryFields(created_us=there.event.created_us, attempts=there.attempts, claim=there.claim)


def moved_to(key: str, prefix: str) -> str:
    """Return `prefix` followed by the last segment of `key`."""
    return prefix + key.rpartition("/")[2]


def _begin(lease_us: int, clock: ProcessClocks) -> Claimed:
    return Claimed(0, clock.tag, clock.boot_us() + lease_us, clock.wall_us() + lease_us, lease_us)


# --- leases -----------------------------------------------------------------------------------


def holder(view: View, name: str) -> EntryRecord | None:
    """Return the last record of the lease called `name`, or None if nobody has acquired it since its last release."""
    board = view.thread_lsn(LEASES_ID)
    row = NO_ROW if board is None else last_row(view, board, f"/{name}")[0]
    return read_entry(view, row.lsn) if row.lsn else None


def acquire(writer: EntryWriter, name: str, ttl_us: int, clock: ProcessClocks) -> EntryRecord | None:
    """Stage the acquisition of a lease. Return None if another holder has the lease."""
    found = writer.last_record(f"/{name}") if writer.row(f"/{name}")[0].lsn else None
    if found is not None and found.claim is not None and clock.left_us(found.claim) > 0:
        return None
    for key, left_us in list(islice(deadlines(writer.view, writer.board, clock), _FORGOTTEN_MAX)):
        if left_us < -_FORGOTTEN_US and key != f"/{name}":
            stage(writer, EntryAct.RELEASE, key, agent=None)
    return stage(writer, EntryAct.CLAIM, f"/{name}", EntryFields(claim=_begin(ttl_us, clock)))


def release(writer: EntryWriter, found: EntryRecord) -> EntryRecord:
    """Stage the release of a lease."""
    name = found.event.key[1:]
    writer.batch.calls += (lambda wake: call_holder(name, wake),)
    return stage(writer, EntryAct.RELEASE, found.event.key)


def claimed(view: View) -> Iterator[EntryRecord]:
    """Yield the claimed entries in no particular order, including those past their deadlines."""
    board = view.thread_lsn(BOARD_ID)
    if board is not None:
        for _place, payload in view.transaction.scan_index(keys.encode_thread_prefix(b"Q", board)):
            yield read_entry(view, last_row(view, board, payload.decode())[0].lsn)


def leases(view: View) -> Iterator[EntryRecord]:
    """Yield the leases that were not released, by name."""
    board = view.thread_lsn(LEASES_ID)
    if board is not None:
        for _place, payload in view.transaction.scan_index(board_keys.encode_gone_key(board, "/")):
            yield read_entry(view, board_keys.decode_row(payload).lsn)
