"""Models of the board for one object at a time. A step maps a state and a call to the possible next states.

A step gets the latest time at which it was taken: before the end of any call that comes after it.

An object is a key, the directory of claimable entries, or a lease with the key that it guards. A state has the greatest
known LSN. Later writes have greater ones.
"""

from __future__ import annotations

from types import SimpleNamespace

DIRECTORY = "tasks/"
DONE, DEAD = "done/", "dead/"
ATTEMPTS_MAX = 5
GUARD = "guard"
"""A lease, and the key and the thread that are written with it as a fence."""

UNKNOWN = -1
"""The version of a write of a killed call, until somebody has seen it."""

SLACK_NS = 2_000_000
"""The board counts in microseconds, and by a clock that begins elsewhere."""


def object_of(call):
    """Return the object of a call: the name of a model, and the object."""
    if call.name in ("lease", "unlease", "fenced", "commit") or call.key == GUARD:
        return "guard"
    if call.key is None or call.key.startswith(DIRECTORY):
        return "directory"
    return f"register {call.key}"


# --- a key ----------------------------------------------------------------------------------


def _step_register(state, call, _until):
    """State: version (0: there is no entry), value, the greatest LSN seen."""
    version, value, floor = state
    result = call.result
    for actual in _versions(call, version, floor):
        seen = max(floor, actual)
        if not call.is_known:
            yield from _written(call, actual, value, seen, UNKNOWN)
        elif call.name == "get" or "refused" in result:
            if _is_read(call, actual, value):
                yield actual, value, seen
        elif call.name == "delete":
            if result["was_there"] is (actual != 0):
                yield 0, None, seen
        else:
            made = result["version"]
            written = _written(call, actual, value, made, made)
            yield from (after for after in written if made > seen and result["value"] == after[1])


def _versions(call, version, floor):
    """Yield the possible versions. For a write of a killed call, it is the one that this call has seen."""
    if version != UNKNOWN:
        yield version
        return
    if call.name == "cas" and "refused" not in call.result:
        seen = call.about["expected"]
    else:
        seen = call.result.get("version") if call.name in ("get", "cas", "create") else None
    if seen is None:
        yield UNKNOWN
    elif seen > floor:
        yield seen


def _written(call, version, value, seen, made):
    if (
        call.name == "set"
        or (call.name == "create" and version == 0)
        or (call.name == "cas" and version == call.about["expected"])
    ):
        yield made, call.about["value"], seen
    elif call.name == "update":
        yield made, (0 if version == 0 else value) + call.about["value"], seen
    elif call.name == "delete":
        yield 0, None, seen


def _is_read(call, version, value):
    """Return whether a call has read the state without a change."""
    if call.name == "get":
        return (call.result["version"], call.result["value"]) == (version, value)
    if call.name == "create":
        return version != 0 and call.result["version"] == version
    return version != call.about["expected"] and call.result["version"] == version


# --- the directory --------------------------------------------------------------------------


def _step_directory(state, call, until):
    """State: the entries by age, (key, value, attempts, holder); the greatest LSN seen.

    A holder is (token, earliest deadline, latest deadline), and None for a free entry.
    """
    entries, floor = state
    lsn = call.result.get("token" if call.name == "claim" else "version") if "refused" not in call.result else None
    if lsn and call.name in ("claim", "create", "set"):
        if lsn <= floor:
            return
        floor = lsn
    for after in _DIRECTORY[call.name](entries, call, until):
        yield after, floor


def _set(entries, call, _until):
    key, value = call.key, call.about["value"]
    place = _place(entries, lambda entry: entry[0] == key)
    if place is None:
        yield (*entries, (key, value, 0, None))
    else:
        _key, _value, attempts, holder = entries[place]
        yield _with(entries, place, (key, value, attempts if holder else 0, holder))


def _create(entries, call, _until):
    is_there = _place(entries, lambda entry: entry[0] == call.key) is not None
    if not call.is_known or is_there == ("refused" in call.result):
        yield entries if is_there else (*entries, (call.key, call.about["value"], 0, None))


def _get(entries, call, _until):
    place = _place(entries, lambda entry: entry[0] == call.key)
    if call.result.get("value") == (None if place is None else entries[place][1]):
        yield entries


def _delete(entries, call, _until):
    place = _place(entries, lambda entry: entry[0] == call.key)
    if not call.is_known or call.result["was_there"] is (place is not None):
        yield entries if place is None else _with(entries, place)


def _claim(entries, call, until):
    """Claim the oldest free entry. Before, expired claims may end, and entries claimed too often are moved."""
    now = call.invoked, min(call.responded, until)
    for left in _lapses(entries, now):
        free = [entry for entry in left if entry[3] is None]
        spent = [entry for entry in free if entry[2] >= ATTEMPTS_MAX]
        first = next((entry for entry in free if entry[2] < ATTEMPTS_MAX), None)
        if first is not None:
            spent = [entry for entry in spent if left.index(entry) < left.index(first)]
        left = tuple(entry for entry in left if entry not in spent)
        if first is None:
            if not call.is_known or call.result["key"] is None:
                yield left
            continue
        key, value, attempts, _holder = first
        won = {"key": key, "value": value, "attempt": attempts + 1, "token": call.result.get("token")}
        if not call.is_known or call.result == won:
            token = call.result.get("token", call.caller)
            yield _with(left, left.index(first), (key, value, attempts + 1, _held_by(token, call, until)))


def _held_by(token, call, until):
    """Return the holder of a claim or lease, and the earliest and latest time of its deadline."""
    lease_ns = call.about["lease_ns"]
    ended = call.responded if call.is_known else until
    return token, call.invoked + lease_ns - SLACK_NS, ended + lease_ns + SLACK_NS


def _lapses(entries, now):
    """Yield the entries after any of the expired claims have ended."""
    invoked, responded = now
    over = [place for place, entry in enumerate(entries) if entry[3] and entry[3][1] <= responded]
    must = {place for place in over if entries[place][3][2] < invoked}
    may = [place for place in over if place not in must]
    for number in range(1 << len(may)):
        gone = must | {place for bit, place in enumerate(may) if number >> bit & 1}
        yield tuple((*entry[:3], None) if place in gone else entry for place, entry in enumerate(entries))


def _of_claim(entries, call, until):
    """Only the holder uses a claim, whatever the clock says."""
    token = call.about["token"]
    place = _place(entries, lambda entry: entry[3] is not None and entry[3][0] == token)
    if call.is_known and (place is None) != ("refused" in call.result):
        return
    if place is None:
        yield entries
        return
    key, value, attempts, _holder = entries[place]
    if call.name == "complete" or (call.name == "fail" and attempts >= ATTEMPTS_MAX):
        yield _with(entries, place)
    elif call.name == "renew":
        yield _with(entries, place, (key, value, attempts, _held_by(token, call, until)))
    else:
        yield _with(entries, place, (key, value, attempts, None))


def _place(entries, fits):
    return next((place for place, entry in enumerate(entries) if fits(entry)), None)


def _with(entries, place, *instead):
    return (*entries[:place], *instead, *entries[place + 1 :])


_DIRECTORY = {
    "set": _set,
    "create": _create,
    "get": _get,
    "delete": _delete,
    "claim": _claim,
    **dict.fromkeys(("complete", "fail", "release", "renew"), _of_claim),
}


# --- a lease, and what it guards ------------------------------------------------------------


def _step_guard(state, call, until):
    """State: the holder as in a directory, the value that was last written with the fence, the greatest LSN seen."""
    holder, value, floor = state
    is_refused = "refused" in call.result
    lsn = call.result.get("version", call.result.get("token"))
    if call.name == "get":
        if call.result.get("value") == value:
            yield state
    elif call.name == "lease":
        yield from _step_lease(state, call, until, lsn)
    else:
        is_held = holder is not None and holder[0] == call.about["token"]
        if call.is_known and is_held == is_refused:
            return
        if not is_held:
            yield state
        elif call.name == "unlease":
            yield None, value, floor
        elif lsn is None or lsn > floor:
            yield holder, call.about["value"] if call.name == "fenced" else value, lsn or floor


def _step_lease(state, call, until, lsn):
    holder, value, floor = state
    is_over = holder is None or holder[1] <= min(call.responded, until)
    if "refused" in call.result:  # Another process holds the lease, or others wait for it.
        yield state
    elif is_over and (lsn is None or lsn > floor):
        token = call.result.get("token", call.caller)
        yield _held_by(token, call, until), value, lsn or floor


MODELS = {
    "register": SimpleNamespace(START=(0, None, 0), step=_step_register),
    "directory": SimpleNamespace(START=((), 0), step=_step_directory),
    "guard": SimpleNamespace(START=(None, None, 0), step=_step_guard),
}
