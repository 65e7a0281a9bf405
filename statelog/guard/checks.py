"""Runs the checks of a guard on values that are written or read, and applies their verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from statelog.display.packed import quarantined_text
from statelog.errors import CheckError, UsageError
from statelog.format import cbor
from statelog.format.quarantined import Quarantined
from statelog.guard.verdicts import Verdict, Where
from statelog.guard.workers import FailedError, HangingError, Workers

if TYPE_CHECKING:
    from statelog.guard.verdicts import Check

TIMEOUT_DEFAULT_S: Final = 10.0
"""The default timeout. A linear check needs milliseconds, but on a loaded machine, 1 s has refused a commit."""
TIMEOUT_MAX_S: Final = 600.0

_KINDS = frozenset(("allow", "redact", "quarantine", "refuse"))
_HIDING = frozenset(("redact", "quarantine"))
_ADAPTERS = "statelog.adapters."
_AS_A_WHOLE = "the value can be hidden only as a whole, and then the framework could not read it"

Show = Callable[[str], str]
"""A function that returns a text with its secrets redacted, for a message."""


def checked_list(argument: str, given: object) -> tuple[Check, ...]:
    """Validate an argument that lists checks, and return it as a tuple. Raises UsageError."""
    if not isinstance(given, list | tuple):
        message = f"{argument} must be a list of functions (value, where) -> Verdict, not {type(given).__name__}"
        raise UsageError(message, argument=argument)
    for each in given:
        if not callable(each) or isinstance(each, type):
            message = f"each item of {argument} must be a function (value, where) -> Verdict, not {each!r:.80}"
            raise UsageError(message, argument=argument, value=each)
    return tuple(given)


def checked_timeout_s(given: object) -> float:
    """Validate the timeout of checks, and return it. Raises UsageError."""
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given <= TIMEOUT_MAX_S:
        message = f"check_timeout_s must be a positive number of seconds, up to {TIMEOUT_MAX_S:.0f}, not {given!r:.40}"
        raise UsageError(message, argument="check_timeout_s", value=given)
    return float(given)


def name_of(check: object) -> str:
    """Return the name of a check, for errors and placeholders."""
    name = getattr(check, "__name__", None) or type(check).__name__
    return str(name)[:80]


class Checks:
    """The checks of a guard for either writes or reads.

    Args:
        checks: the functions, in the order in which they are called.
        timeout_s: the maximum duration of one call, in seconds.
        show: returns a text for a message, with its secrets redacted.
    """

    def __init__(self, checks: Sequence[Check], timeout_s: float, show: Show) -> None:
        self._checks = checks
        self._timeout_s = timeout_s
        self._show = show
        self._workers = Workers()

    # --- written values -----------------------------------------------------------

    def item(self, item: bytes, where: Where, before: bytes | None = None) -> bytes:
        """Apply the checks to an encoded value, and return what may be stored: the same object if they allow it.

        `before` is the encoded value that is stored there now. If both values are lists, or both are dicts, the checks
        see only the items or members that `before` does not have.

        Raises:
            CheckError: a check refuses the value, or has failed. Facts: check, reason, thread, key, path.
        """
        checks = self._that_may_find(item)
        if not checks:
            return item
        value = cbor.decode(item, loosely=True)
        made = self._seen(checks, value, where) if before is None else self._new_parts(checks, value, before, where)
        return item if made is value else cbor.encode(made, path=where.path)

    def _new_parts(self, checks: list[Check], value: Any, before: bytes, where: Where) -> Any:
        """Apply some checks to a value, and return what may be stored.

        In a list or dict, the checks see only the parts that `before` does not have.
        """
        old = cbor.decode(before, loosely=True)
        if type(value) is not type(old) or type(value) not in (list, dict):
            return self._seen(checks, value, where)
        if type(value) is dict and any(self._flagged(checks, key, where) for key in value.keys() - old.keys()):
            return self._seen(checks, value, where)  # A key can only be hidden together with its whole dict.
        known = {*_parts_encoded(old)}
        parts = [part for _name, part in _parts(value)]
        made = [
            part if encoded in known else self._seen(checks, part, where)
            for part, encoded in zip(parts, _parts_encoded(value), strict=True)
        ]
        if all(new is part for new, part in zip(made, parts, strict=True)):
            return value
        return made if type(value) is list else dict(zip(value, made, strict=True))

    def metadata(self, item: bytes, where: Where) -> bytes:
        """Apply the checks to encoded metadata, and return what may be stored. Its members are hidden one by one."""
        checks = self._that_may_find(item)
        if not checks:
            return item
        members = cbor.decode(item, loosely=True)
        made = self.members(members, where, checks)
        return item if made is members else cbor.encode(made, path=where.path)

    def error_text(self, text: str, where: Where) -> str:
        """Return an error's text if the checks allow it.

        Otherwise return a text that names the check and the reason.
        """
        try:
            made = self.value(text, where)
        except CheckError as error:
            return f"[REFUSED by {error.facts['check']}: {error.facts['reason']}]"
        return made if isinstance(made, str) else quarantined_text(made.check, made.reason)

    def error_item(self, item: bytes, where: Where) -> bytes:
        """Return the encoded record of an exception in which `error_text` was applied to each text."""
        return cbor.encode(self._error(cbor.decode(item), where)) if self._that_may_find(item) else item

    def _error(self, value: Any, where: Where) -> Any:
        if isinstance(value, str):
            return self.error_text(value, where)
        if type(value) is dict:
            return {key: self._error(each, _inside(where, key)) for key, each in value.items()}
        if type(value) in (list, tuple):
            return type(value)(self._error(each, where) for each in value)
        return value

    # --- values ---------------------------------------------------------------------

    def value(self, value: Any, where: Where) -> Any:
        """Apply the checks to a value. Return what may be seen: the same object if they allow it. Raises CheckError."""
        return self._seen(self._checks, value, where)

    def check(self, value: Any, where: Where) -> None:
        """Raise CheckError unless all checks allow a value."""
        for check, verdict in self._flagged(self._checks, value, where):
            raise self._refused(check, f"{verdict.reason}; a mount or an edit cannot change a hidden value", where)

    def members(self, members: dict[str, Any], where: Where, checks: Sequence[Check] | None = None) -> dict[str, Any]:
        """Apply the checks to metadata. Return what may be seen: the same dict if they allow it. Raises CheckError."""
        flagged = self._flagged(self._checks if checks is None else checks, members, where)
        if not flagged:
            return members
        found: set[int] = set()
        made = {
            key: self._seen([check for check, _verdict in flagged], each, _inside(where, key), found)
            for key, each in members.items()
        }
        self._check_found(flagged, found, where)
        return made

    def _seen(self, checks: Sequence[Check], value: Any, where: Where, found: set[int] | None = None) -> Any:
        """Apply some checks to a value, and return what may be seen.

        Add the ids of the checks that hide it to `found`.
        """
        flagged = self._flagged(checks, value, where)
        if found is not None:
            found.update(id(check) for check, _verdict in flagged)
        return self._hide(value, flagged, where) if flagged else value

    def _flagged(self, checks: Sequence[Check], value: Any, where: Where) -> _Flagged:
        """Call all checks, because each may refuse. Return the checks that hide the value, with their verdicts."""
        asked = [(check, self._ask(check, value, where)) for check in checks]
        return [] if type(value) is Quarantined else [each for each in asked if each[1].kind in _HIDING]

    def _hide(self, value: Any, flagged: _Flagged, where: Where) -> Any:
        """Hide the parts of a value that the checks report, or the whole value if a check reports none of its parts.

        A dict of two or more members is also hidden as a whole, with its keys, if a check reports every member.
        """
        parts = list(_parts(value))
        of_parts: dict[int, _Flagged] = {}
        for check, _verdict in flagged:
            count = 0
            for number, (name, part) in enumerate(parts):
                if found := self._flagged([check], part, _inside(where, name)):
                    of_parts.setdefault(number, []).extend(found)
                    count += 1
            if not count or (type(value) is dict and count == len(parts) > 1):
                return self._hidden(value, flagged, where)
        made = [part for _name, part in parts]
        for number, found in of_parts.items():
            name, part = parts[number]
            made[number] = self._hide(part, found, _inside(where, name))
        if type(value) is dict:
            return dict(zip(value, made, strict=True))
        return type(value)(made)

    def _hidden(self, value: Any, flagged: _Flagged, where: Where) -> Any:
        """Return the replacement of a hidden value. Raises CheckError if an adapter could not read the replacement."""
        check, verdict = next((each for each in flagged if each[1].kind == "redact"), flagged[0])
        if type(value).__module__.startswith(_ADAPTERS):
            raise self._refused(check, f"{verdict.reason}; {_AS_A_WHOLE}", where)
        name, reason = name_of(check), self._show(verdict.reason)
        return f"[REDACTED by {name}: {reason}]" if verdict.kind == "redact" else Quarantined(name, reason, value)

    # --- texts in values of other serialisers -------------------------------------------

    def texts(self, value: Any, data: bytes, where: Where, replace_texts: ReplaceTexts) -> bytes:
        """Return a serialised value in which the texts that the checks report are hidden.

        Args:
            value: the value.
            data: the value, encoded by its serialiser.
            where: the location of the value.
            replace_texts: a function that is called with the data and with a function of (text, names). It returns the
                data, in which the result of the second function replaces each text.

        Raises:
            CheckError: a check refuses the value, has failed, or reports the value but none of its texts.
        """
        flagged = self._flagged(self._that_may_find(data), value, where)
        if not flagged:
            return data
        checks = [check for check, _verdict in flagged]
        found: set[int] = set()
        made = replace_texts(data, lambda text, names: self._seen(checks, text, _inside(where, *names), found))
        self._check_found(flagged, found, where)
        return made

    def _check_found(self, flagged: _Flagged, found: set[int], where: Where) -> None:
        """Raise CheckError if a check reports a value as a whole but allows each of its parts."""
        for check, verdict in flagged:
            if id(check) not in found:
                raise self._refused(check, f"{verdict.reason}; {_AS_A_WHOLE}", where)

    # --- one check -------------------------------------------------------------------------

    def _that_may_find(self, data: bytes) -> list[Check]:
        """Return the checks to call for an encoded value, without those whose `may_be_in` rules it out."""
        return [check for check in self._checks if not hasattr(check, "may_be_in") or check.may_be_in(data)]

    def _ask(self, check: Check, value: Any, where: Where) -> Verdict:
        """Return the verdict of a check, unless the verdict is "refuse".

        Raises:
            CheckError: the check refuses, raises, hangs, or does not return a Verdict.
        """
        try:
            if hasattr(check, "may_be_in"):  # The library's own checks need no worker, because they run in linear time.
                verdict = check(value, where)
            else:
                verdict = self._workers.call(_ask_with_copy, check, value, where, timeout_s=self._timeout_s)
        except HangingError:
            raise self._refused(check, f"it has not returned within {self._timeout_s:g} s", where) from None
        except FailedError as error:
            cause = error.__cause__
            raise self._refused(check, f"it raised {type(cause).__name__}", where) from cause
        except Exception as error:
            raise self._refused(check, f"it raised {type(error).__name__}", where) from error
        if not isinstance(verdict, Verdict) or verdict.kind not in _KINDS:
            raise self._refused(check, f"it returned {type(verdict).__name__}, not a valid Verdict", where)
        if verdict.kind == "refuse":
            raise self._refused(check, verdict.reason, where)
        return verdict

    def _refused(self, check: Check, reason: str, where: Where) -> CheckError:
        name, reason, path = name_of(check), self._show(reason), self._show(where.path)
        thread, key = (None if each is None else self._show(each) for each in (where.thread, where.key))
        of = f" of thread {thread!r}" if thread is not None else ""
        end = ". Nothing was written" if where.act == "write" else ""
        message = f"the check {name} refuses to {where.act} {path!r}{of}: {reason}{end}"
        return CheckError(message, check=name, reason=reason, thread=thread, key=key, path=path)


def _ask_with_copy(check: Check, value: Any, where: Where) -> Verdict:
    """Call a check with a copy of the value, so that the check cannot change the stored value."""
    if type(value) in _IMMUTABLE:
        return check(value, where)
    try:
        given = deepcopy(value)
    except Exception as error:
        message = f"a {type(value).__name__} cannot be copied for a check"
        raise TypeError(message) from error
    return check(given, where)


_IMMUTABLE = frozenset((str, bytes, int, float, bool, type(None)))
_Flagged = list[tuple["Check", Verdict]]
ReplaceTexts = Callable[[bytes, Callable[[str, tuple[str, ...]], "str | Quarantined"]], bytes]


def _parts_encoded(value: list[Any] | dict[Any, Any]) -> Iterator[bytes]:
    """Yield the encoded items of a list, or the encoded members of a dict with their keys."""
    parts = value if isinstance(value, list) else map(list, value.items())
    return map(cbor.encode, parts)


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the parts of a plain list, tuple or dict, with their names."""
    kind = type(value)
    if kind is dict:
        yield from ((str(key), each) for key, each in value.items())
    elif kind in (list, tuple):
        yield from ((str(number), each) for number, each in enumerate(value))


def _inside(where: Where, *names: str) -> Where:
    return replace(where, path=".".join((where.path, *names)))
