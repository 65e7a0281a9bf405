"""Checks answers against the log: a replay must give every answer, in an order that real time permits.

Each call has its own agent, so each record names its call. Calls without a record were reads: their answers must be
true at some time between their beginning and their end.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from operator import attrgetter
from typing import Any, NamedTuple

from models import ATTEMPTS_MAX, DEAD, DIRECTORY, DONE, GUARD, SLACK_NS

import statelog

PROBLEMS_MAX = 20
THREAD = "a thread"
"""Stands for the key in records of commits to the thread that a lease guards."""


class Record(NamedTuple):
    """A record of the board."""

    lsn: int
    act: str
    key: str
    agent: str | None
    value: Any = None
    token: int | None = None
    ends_commit: bool = True


class Held(NamedTuple):
    """An entry in the model."""

    version: int
    value: Any
    created: int
    attempts: int = 0
    token: int | None = None


NO_ENTRY = Held(0, None, 0)


def read_records(path):
    """Return the records of a store's board, with the values of entries."""
    with statelog.open(path) as store:
        board, values, made = store.board(), {}, []
        for record in store.log():
            if record.type == "entry" and record.body:
                body = record.body
                key = body.get("key") or f"/{body['lease']}"
                if key not in values:
                    entries = [] if key[0] == "/" else board.history(key)
                    values[key] = {entry.version: entry.value for entry in entries}
                token = record.lsn if body["act"] in ("claim", "lease") else body.get("token")
                value = values[key].get(record.lsn)
                about = body["act"], key, body.get("agent"), value, token
                made.append(Record(record.lsn, *about, not record.continues))
            elif record.type == "checkpoint":
                made.append(Record(record.lsn, "commit", THREAD, record.body["metadata"]["agent"]))
    return made


def check_witness(records, calls):
    """Return the answers that the log contradicts, or contradicts at that time."""
    replay = Replay(records, calls)
    replay.run()
    problems = replay.problems + Moments(replay, calls).check()
    return problems[:PROBLEMS_MAX]


class Replay:
    """Replays the records in order through a model, and finds the record of each call that has written."""

    def __init__(self, records, calls):
        self.records = records
        self.calls = {call.caller: call for call in calls}
        self.of_token = {}
        for call in sorted(calls, key=attrgetter("invoked")):
            if "token" in call.about:
                self.of_token.setdefault((call.about["token"], call.name), []).append(call)
        self.problems = []
        self.placed = {}
        """LSNs by call."""
        self.states = {}
        """By key, and by DIRECTORY for all claimable entries: LSNs, and the state from that record on."""
        self.entries = {}
        self.agents = {}
        """By token, the agent that has claimed it."""
        self.terms = {}
        """By token, the LSNs and calls of the claim and of its renewals."""
        self.lapses = []
        """Pairs (record, token) of claims and leases that ended at their deadlines."""

    def run(self):
        for record in self.records:
            before = self.entries.get(record.key, NO_ENTRY)
            if record.key[0] == "/":
                after = self.lease(record, before)
            else:
                after = getattr(self, f"do_{record.act}")(record, before)
            self.entries[record.key] = after
            self.note(record.key, record.lsn, after)
            if record.ends_commit:
                directory = {key: each for key, each in self.entries.items() if is_task(key) and each.version}
                self.note(DIRECTORY, record.lsn, directory)
        for call in self.calls.values():
            if call.is_known and call not in self.placed and has_written(call):
                self.problems.append(f"acknowledged, and no record says so: {call}")

    def note(self, key, lsn, state):
        lsns, states = self.states.setdefault(key, ([0], [{} if key == DIRECTORY else NO_ENTRY]))
        lsns.append(lsn)
        states.append(state)

    def expect(self, is_so, record, why):
        if not is_so:
            call = self.calls.get(record.agent)
            self.problems.append(f"{why}: {record}, of {call}, where there was {self.entries.get(record.key)}")

    def place(self, call, record, **result):
        """Store the record of a call, and check the answer of the call."""
        self.expect(call not in self.placed, record, "done twice")
        self.placed[call] = max(record.lsn, self.placed.get(call, 0))
        self.expect(not call.is_known or call.result == result, record, f"{call.result} came back, not {result}")

    def do_set(self, record, before):
        call, lsn = self.calls[record.agent], record.lsn
        after = Held(lsn, record.value, before.created or lsn, before.attempts if before.token else 0, before.token)
        if record.key.startswith((DONE, DEAD)):
            return self.moved(record)
        value = call.about["value"]
        if call.name == "create":
            self.expect(not before.version, record, "created where an entry was")
        elif call.name == "cas":
            self.expect(before.version == call.about["expected"], record, "swapped where another version was")
        elif call.name == "update":
            value, after = (before.value or 0) + value, after._replace(attempts=before.attempts)
        elif call.name == "fenced":
            self.check_fence(record, call)
        else:
            self.expect(call.name == "set", record, "nobody asked for it")
        self.expect(record.key == call.key and record.value == value, record, f"it should be {value}")
        self.place(call, record, version=lsn, value=value)
        return after

    def check_fence(self, record, call):
        holder = self.entries.get(f"/{GUARD}", NO_ENTRY)
        self.expect(holder.token == call.about["token"], record, f"written with a fence that had ended, {holder}")

    def do_commit(self, record, before):
        call = self.calls[record.agent]
        self.check_fence(record, call)
        self.place(call, record, version=record.lsn)
        return before

    def moved(self, record):
        """Check a moved entry. The preceding record must be the record of its former key."""
        before = self.records[bisect_left(self.records, record.lsn, key=attrgetter("lsn")) - 1]
        name = before.key.removeprefix(DIRECTORY)
        self.expect(record.key in (DONE + name, DEAD + name), record, f"it was moved from {before}")
        is_same = before.act == "dead" or record.value == before.value
        self.expect(before.agent == record.agent and is_same, record, f"moved as another: {before}")
        return Held(record.lsn, record.value, record.lsn)

    def do_delete(self, record, before):
        call = self.calls[record.agent]
        self.expect(
            before.version and call.name == "delete" and call.key == record.key, record, "deleted for no reason"
        )
        self.place(call, record, was_there=True)
        return NO_ENTRY

    def do_claim(self, record, before):
        call, lsn = self.calls[record.agent], record.lsn
        self.expect(before.version and before.token is None, record, "won, and was not free")
        self.expect(before.attempts < ATTEMPTS_MAX, record, "claimed too often")
        older = [key for key, each in self.entries.items() if is_free(key, each) and each.created < before.created]
        self.expect(not older, record, f"claimed before older ones, {older}")
        self.expect(call.name == "claim", record, "nobody asked for it")
        attempt = before.attempts + 1
        self.place(call, record, key=record.key, value=before.value, attempt=attempt, token=lsn)
        self.expect(record.value == before.value, record, "it was claimed, and has another value")
        self.agents[lsn] = record.agent
        self.terms[lsn] = [(lsn, call)]
        return before._replace(version=lsn, attempts=attempt, token=lsn)

    def of_holder(self, record, before, name):
        """Check that only the holder uses a claim, and find the call."""
        self.expect(before.token and self.agents[before.token] == record.agent, record, f"{name}d by who had no claim")
        some = [call for call in self.of_token.get((before.token, name), []) if call not in self.placed]
        self.expect(some, record, "nobody asked for it")
        if some:
            self.place(some[0], record)
        return some[0] if some else None

    def do_renew(self, record, before):
        call = self.of_holder(record, before, "renew")
        self.terms[before.token].append((record.lsn, call))
        return before._replace(version=record.lsn)

    def do_complete(self, record, before):
        call = self.of_holder(record, before, "complete")
        self.expect(call and call.about["value"] == record.value, record, "completed with another result")
        return NO_ENTRY

    def do_fail(self, record, before):
        self.of_holder(record, before, "fail")
        self.expect(before.attempts < ATTEMPTS_MAX, record, "given back after too many claims")
        return before._replace(version=record.lsn, token=None)

    def do_release(self, record, before):
        if record.agent is None:
            self.expect(before.token, record, "ended, and was not claimed")
            self.lapses.append((record, before.token))
        else:
            self.of_holder(record, before, "release")
        return before._replace(version=record.lsn, token=None)

    def do_dead(self, record, before):
        self.expect(before.attempts >= ATTEMPTS_MAX, record, "buried alive")
        if before.token:
            self.of_holder(record, before, "fail")
        return NO_ENTRY

    def lease(self, record, before):
        if record.act == "lease":
            self.agents[record.lsn] = record.agent
            call = self.calls[record.agent]
            self.place(call, record, token=record.lsn)
            self.terms[record.lsn] = [(record.lsn, call)]
            if before.token:
                self.lapses.append((record, before.token))
            return Held(record.lsn, None, record.lsn, token=record.lsn)
        self.expect(record.act == "release", record, "what is done to a lease")
        self.of_holder(record, before, "unlease")
        return NO_ENTRY


class Moments:
    """Checks that real time permits the order of records, and a time for each call without a record."""

    def __init__(self, replay, calls):
        self.replay, self.calls = replay, calls
        written = sorted(replay.placed.items(), key=lambda each: each[0].invoked)
        self.starts = [call.invoked for call, _lsn in written]
        self.next_lsns = [lsn for _call, lsn in written]
        for place in range(len(written) - 2, -1, -1):
            self.next_lsns[place] = min(self.next_lsns[place], self.next_lsns[place + 1])

    def check(self):
        """Return the calls and records at the wrong time."""
        return self.check_lapses() + self.check_order()

    def check_lapses(self):
        """Check that no claim and no lease was taken from its holder before its deadline."""
        ends = sorted((lsn, call.responded) for call, lsn in self.replay.placed.items())
        for place in range(len(ends) - 2, -1, -1):
            ends[place] = ends[place][0], min(ends[place][1], ends[place + 1][1])
        problems = []
        for record, token in self.replay.lapses:
            terms = [call for lsn, call in self.replay.terms[token] if lsn < record.lsn]
            place = bisect_left(ends, (record.lsn, 0))
            is_over = place == len(ends) or max(map(begins_to_end, terms)) <= ends[place][1]
            if not is_over:
                problems.append(f"taken from {terms} before its time was up: {record}")
        return problems

    def has_waited(self, call, state):
        """Return whether there was an entry to claim when a call began, because its former claim had long expired."""
        tokens = [each.token for each in state.values() if each.token]
        return any(
            max(ends_at_last(term) for _lsn, term in self.replay.terms[token]) < call.invoked for token in tokens
        )

    def check_order(self):
        """Check in the order of time that each call comes after all calls that had ended before it began."""
        events = [(call.invoked, 0, call) for call in self.calls]
        events += [(call.responded, 1, call) for call in self.calls if call.is_known]
        problems, floor, floors = [], 0, {}
        for _at, is_end, call in sorted(events, key=lambda each: each[:2]):
            if not is_end:
                floors[call] = floor
                lsn = self.replay.placed.get(call)
                if lsn is not None and lsn <= floor:
                    problems.append(f"record {lsn} is before {floor}, which was known before the call began: {call}")
                continue
            lsn = self.replay.placed.get(call)
            if lsn is None and has_written(call):  # The replay has not found the record.
                continue
            if lsn is None:
                lsn = self.moment_of(call, floors[call])
            if lsn is None:
                problems.append(f"at no moment from {floors[call]} to {self.last_of(call)}: {call}")
            else:
                floor = max(floor, lsn)
        return problems

    def last_of(self, call):
        """Return the last LSN that a call can have seen. Later records began after its end."""
        place = bisect_right(self.starts, call.responded)
        return self.next_lsns[place] - 1 if place < len(self.starts) else float("inf")

    def moment_of(self, call, floor):
        """Return the first time at which a read may have seen its answer, or None."""
        if call.name == "lease":  # Another process held the lease, or others waited for it.
            return floor
        place = DIRECTORY if call.name == "claim" else call.key
        if call.name in ("fenced", "commit", "unlease"):
            place = f"/{GUARD}"
        lsns, states = self.replay.states.get(place, ([0], [{} if place == DIRECTORY else NO_ENTRY]))
        last = self.last_of(call)
        for number in range(bisect_right(lsns, floor) - 1, len(lsns)):
            if lsns[number] > last:
                return None
            is_left = call.name == "claim" and self.has_waited(call, states[number])
            if is_seen(call, states[number]) and not is_left:
                return max(floor, lsns[number])
        return None


def begins_to_end(call):
    """Return the earliest deadline of a claim or a lease."""
    return call.invoked + call.about["lease_ns"] - SLACK_NS


def ends_at_last(call):
    """Return the latest deadline of a claim or a lease."""
    return call.responded + call.about["lease_ns"] + SLACK_NS


def is_seen(call, state):
    """Return whether the answer of a read is true in a state."""
    result = call.result
    if call.name == "claim":
        return not any(is_free(key, each) and each.attempts < ATTEMPTS_MAX for key, each in state.items())
    if call.name == "get":
        return (result["version"], result["value"]) == (state.version, state.value)
    if call.name == "delete":
        return not state.version
    if call.name == "create":
        return state.version == result["version"] != 0
    if call.name == "cas":
        return state.version == result["version"] != call.about["expected"]
    return state.token != call.about["token"]


def has_written(call):
    """Return whether the answer shows that there is a record."""
    is_read = call.name == "get" or "refused" in call.result
    return not is_read and call.result.get("was_there", True) and call.result.get("key", True) is not None


def is_task(key):
    return key.startswith(DIRECTORY)


def is_free(key, entry):
    return is_task(key) and entry.version != 0 and entry.token is None
