"""Finds secrets in texts, by rules and by the names of fields."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from statelog.errors import GuardError, UsageError
from statelog.guard.pattern import Pattern, literal
from statelog.guard.rules import (
    ASSIGNMENT,
    ASSIGNMENT_HINTS,
    FIELD_HINTS,
    HINTS,
    NAME_HINTS,
    RULES,
    SETTING_HINTS,
    SINGLE_ARGUMENT,
    STORED_HINTS,
    WIDE,
    assigns,
    end_of_value,
    is_random,
    is_sensitive_name,
    random_part,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

FIELD: Final = "field"
"""The name of the rule for a value that `fields=` names, or that a type declares as secret."""

ASSIGNED: Final = "named-secret"
"""The name of the rule for a value that looks random and is next to a name such as `api_key`."""

RULE_SIZE_MAX: Final = 40
"""The maximum number of characters in the name of a rule."""

_RULES_OFF = "rule:"
_NAMES = frozenset([*(rule.name for rule in RULES), ASSIGNED])
_ESCAPE_SIZE_MAX = 6
_BACKSLASH: Final = 0x5C
_WILDCARDS = {"*": rb"[^\"'\\]{0,64}", "?": rb"[^\"'\\]"}
"""The patterns of the wildcards of `fields` in JSON."""


def check_rules(names: Iterable[str]) -> None:
    """Raise GuardError if a name is not the name of a rule. Facts: rule."""
    unknown = sorted({*names} - _NAMES)
    if unknown:
        message = f"no rule has the name {unknown[0]!r}; the rules are {', '.join(sorted(_NAMES))}"
        raise GuardError(message, rule=unknown[0])


class SecretSpan(NamedTuple):
    """The position and the rule of a secret in a text."""

    start: int
    end: int
    rule: str
    quote: bytes = b""
    """The text to put before and after the replacement: JSON's quote if the secret is a number."""


@lru_cache(maxsize=1)
def _patterns() -> list[Pattern]:
    return [Pattern(rule.pattern) for rule in RULES]


@lru_cache(maxsize=1)
def _assignment() -> Pattern:
    return Pattern(ASSIGNMENT)


@lru_cache(maxsize=1)
def _assignment_hints() -> Pattern:
    return Pattern(ASSIGNMENT_HINTS, captures=False)


@lru_cache(maxsize=16)
def _scan_of(names: tuple[str, ...]) -> Pattern:
    """Return the pattern of encoded values that may hold a secret."""
    parts = [HINTS, FIELD_HINTS, SETTING_HINTS, SINGLE_ARGUMENT, WIDE, *(literal(name.encode()) for name in names)]
    return Pattern(b"|".join([b"(?:" + part + b")" for part in parts]), captures=False)


@lru_cache(maxsize=16)
def _stored_scan_of(names: tuple[str, ...]) -> Pattern:
    """Return the pattern of records that may hold a secret."""
    parts = [HINTS, FIELD_HINTS, SETTING_HINTS, SINGLE_ARGUMENT, WIDE, STORED_HINTS]
    parts += [literal(name.encode()) for name in names]
    return Pattern(b"|".join([b"(?:" + part + b")" for part in parts]), captures=False)


@lru_cache(maxsize=1)
def _name_hints() -> Pattern:
    return Pattern(NAME_HINTS, captures=False)


@lru_cache(maxsize=1)
def _hints() -> Pattern:
    return Pattern(HINTS, captures=False)


class _NamedMembers:
    """Finds the values of members with given names in JSON within a text, including nested JSON with escaped quotes.

    Args:
        names: the names, with wildcards. JSON may write their non-ASCII characters as escapes.
    """

    def __init__(self, names: Sequence[str]) -> None:
        any_name = b"|".join([_in_json(name) for name in sorted(names, key=len, reverse=True)])
        self._pattern = re.compile(
            rb"(?:" + any_name + rb")(?P<close>\\{0,31}[\"'])\s{0,9}:\s{0,9}"
            rb"(?:(?P<open>\\{0,31}[\"'])|(?P<number>-?[0-9][0-9.eE+-]{0,40}))"
        )

    def find(self, text: bytes) -> list[SecretSpan]:
        """Return the values that are numbers or non-empty strings."""
        found: list[SecretSpan] = []
        unclosed: set[bytes] = set()
        """Quotes that nothing closes in the rest of the text, so that the text is not searched for them again."""
        at = 0
        while (match := self._pattern.search(text, at)) is not None:
            at = match.end()
            if not text.endswith(match["close"], 0, match.start()):
                at = match.end("close")
                continue
            start, end = match.span("number")
            if match["open"]:
                start = at
                closed = None if match["open"] in unclosed else _end_of_text(text, start, match["open"])
                if closed is None:
                    unclosed.add(match["open"])
                    line_end = text.find(b"\n", start)
                    closed = line_end if line_end >= 0 else len(text)
                at = end = closed
            if start < end and _STANDS_FOR_SECRET.fullmatch(text, start, end) is None:
                found.append(SecretSpan(start, end, FIELD, b"" if match["open"] else match["close"]))
        return found


def _in_json(name: str) -> bytes:
    """Return the pattern that matches a name in JSON, with escapes and wildcards."""
    return b"".join([_WILDCARDS.get(each) or _character_in_json(each) for each in name])


def _character_in_json(character: str) -> bytes:
    if character.isascii():
        return re.escape(character.encode())
    escaped = b"".join([rb"\\{1,31}(?i:" + unit.encode() + b")" for unit in _escapes_of(character)])
    return b"(?:" + re.escape(character.encode("utf-8", "surrogatepass")) + b"|" + escaped + b")"


def _escapes_of(character: str) -> list[str]:
    """Return the escapes of a character in JSON, such as `u00f1`, without their backslashes."""
    units = character.encode("utf-16-be", "surrogatepass")
    return [f"u{units[at : at + 2].hex()}" for at in range(0, len(units), 2)]


def _hints_of(name: str) -> set[str]:
    """Return some strings. Any JSON that has the name contains at least one of them."""
    first = next((each for each in name if not each.isascii()), None)
    if first is None:
        return {name}
    digits = _escapes_of(first)[0][1:]
    return {name, f"u{digits}", f"u{digits.upper()}"}


_STANDS_FOR_SECRET = re.compile(rb"\[REDACTED [a-z0-9-]{1,%d} [0-9a-f]{8}\]|\$CRED\{[^{}]*\}" % RULE_SIZE_MAX)


def _end_of_text(text: bytes, start: int, quote: bytes) -> int | None:
    """Return the offset of the end of a JSON text that begins at `start` after a quote, or None if nothing closes it.

    Each level of nested JSON doubles the backslashes. So the number of backslashes before a quote shows whether the
    quote is a part of the text, closes the text, or closes a text around it, in which case the text was cut off.
    """
    level = len(quote)
    at = start
    while (at := text.find(quote[-1:], at)) >= 0:
        before = at
        while before > start and text[before - 1] == _BACKSLASH:
            before -= 1
        count = (at - before) % (2 * level)
        if count < level:
            return at - count
        at += 1
    return None


class Secrets:
    """The rules that decide which texts are secrets, and what happens to secrets when they are written.

    Args:
        on_found: "redact" replaces a secret by `[REDACTED rule fingerprint]`; "refuse" raises SecretError.
        fields: paths whose values are always secrets, such as `config.db.password` or `**.password`. The first name is
            the channel, or the key of an entry; `*` is one name, `**` any number of names. Within a name, `*` is any
            text and `?` one character. Names are case-sensitive. Positions in lists do not count: `users.password` is
            the password of each user. `**.password` also matches a member `password` of JSON within a text.
        allow: strings that are not secrets, and `rule:NAME` for each rule to turn off.

    Raises:
        UsageError: an argument is not valid, or a rule is unknown.
        GuardError: google-re2 is missing.
    """

    def __init__(
        self,
        *,
        on_found: Literal["redact", "refuse"] = "redact",
        fields: Iterable[str] = (),
        allow: Iterable[str] = (),
    ) -> None:
        if on_found not in ("redact", "refuse"):
            message = f'on_found must be "redact" or "refuse", not {on_found!r}'
            raise UsageError(message, argument="on_found", value=on_found)
        self.on_found = on_found
        self.fields = tuple(_path(path) for path in _texts("fields", fields))
        allowed = _texts("allow", allow)
        self._off = {each.removeprefix(_RULES_OFF) for each in allowed if each.startswith(_RULES_OFF)}
        check_rules(self._off)
        self._allowed = frozenset(each.encode() for each in allowed if not each.startswith(_RULES_OFF))
        last = tuple(sorted({path[-1] for path in self.fields}))
        self._scans_all = any(set(name) & set("*?") for name in last)
        names = [path[-1] for path in self.fields if path[0] == "**" and set(path[-1]) - set("*?")]
        self._in_json = _NamedMembers(names) if names else None
        self._last = () if self._scans_all else tuple(sorted({hint for name in last for hint in _hints_of(name)}))
        self._scan = _scan_of(self._last)
        _patterns()
        _assignment()
        _hints()

    def __repr__(self) -> str:
        return f"<Secrets on_found={self.on_found!r}>"

    def may_be_in(self, encoded: bytes) -> bool:
        """Return False if encoded values certainly hold no secret."""
        return self._scans_all or self._scan.is_in(encoded)

    def may_be_stored_in(self, record: bytes, *, any_name: bool) -> bool:
        """Return False if a record certainly holds no secret.

        Args:
            record: the record.
            any_name: whether a sensitive name, such as `api_key`, counts anywhere in the record, because it may be the
                name of the whole value.
        """
        if self._scans_all or _stored_scan_of(self._last).is_in(record):
            return True
        return any_name and _name_hints().is_in(record)

    def find(self, text: bytes, *, is_text: bool = True) -> list[SecretSpan]:
        """Return the secrets in a UTF-8 text, in order and without overlaps.

        With `is_text=False`, a letter directly before a secret does not exclude the secret, because that byte may be a
        length or a type.
        """
        found: list[SecretSpan] = []
        for rule, pattern in zip(RULES, _patterns(), strict=True) if _hints().is_in(text) else ():
            if rule.name in self._off:
                continue
            at = 0
            while (match := pattern.find(text, at)) is not None:
                (start, _end), (first, last), _name = match
                secret = text[first:last]
                is_part = is_text and rule.is_bounded and _is_part(text, first, last)
                if is_part or not rule.accepts(secret):
                    at = max(start + 1, text.find(rule.resumes_at, start)) if rule.resumes_at else start + 1
                    continue
                if rule.more:
                    last = _end_of_run(rule.more, text, last)
                    secret = text[first:last]
                if secret not in self._allowed:
                    found.append(SecretSpan(first, last, rule.name))
                at = max(last, start + 1)
        if ASSIGNED not in self._off:
            found += self._find_assigned(text)
        if self._in_json is not None:
            found += self._in_json.find(text)
        return apart(found)

    def _find_assigned(self, text: bytes) -> list[SecretSpan]:
        found: list[SecretSpan] = []
        at = 0 if _assignment_hints().is_in(text) else len(text)
        while (match := _assignment().find(text, at)) is not None:
            (start, _end), (first, last), name = match
            # The name of a called function is code, not a value.
            is_set = is_sensitive_name(name) and assigns(text[start - 1 : start], name, text[start + len(name) : first])
            last = end_of_value(text, last, is_whole=False) if is_set else last
            if is_set and text[last : last + 1] != b"(" and is_random(text[first:last]):
                at = end_of_value(text, last, is_whole=True)
                if text[first:at] not in self._allowed:
                    found.append(SecretSpan(first, at, ASSIGNED))
            else:
                at = max(first, start + 1)  # The rejected value may itself begin with a name.
        return found

    def find_named(self, name: str, value: bytes) -> SecretSpan | None:
        """Return the secret in the value of a field with this name, or None."""
        if not self.is_sensitive_name(name):
            return None
        span = random_part(value)
        return None if span is None or value[span[0] :] in self._allowed else SecretSpan(*span, ASSIGNED)

    def names_field(self, path: Sequence[str]) -> bool:
        """Return True if `fields` names a path. The parts of a key of the board also count as names.

        An entry below a named key is also a secret: `**.password` names the entry `password/prod`.
        """
        if not self.fields:
            return False
        paths = [path]
        if path and "/" in path[0]:
            parts = path[0].split("/")
            paths += [(*parts, *path[1:]), *(parts[:end] for end in range(1, len(parts)))]
        return any(_fits(pattern, each) for pattern in self.fields for each in paths)

    def is_sensitive_name(self, name: str) -> bool:
        """Return True if a field with this name probably holds a secret."""
        return ASSIGNED not in self._off and is_sensitive_name(name.encode("utf-8", "replace"))


def _texts(argument: str, given: Any) -> list[str]:
    if isinstance(given, str | bytes) or not hasattr(given, "__iter__"):
        message = f"{argument} must be a list of str, not {type(given).__name__}"
        raise UsageError(message, argument=argument)
    texts = list(given)
    for each in texts:
        if not isinstance(each, str) or not each:
            message = f"{argument} must be a list of non-empty str; one of them is {each!r}"
            raise UsageError(message, argument=argument)
    return texts


def _path(text: str) -> tuple[str, ...]:
    """Return the names of a path of `fields`."""
    path = tuple(text.split("."))
    for name in path:
        if set(name) & set("[]"):
            plain = re.sub(r"\[[^\]]*\]?|\]", "", text)
            message = (
                f"fields cannot have brackets, because positions in lists do not count: write {plain!r}, not {text!r}"
            )
            raise UsageError(message, argument="fields", value=text)
        if not name or ("**" in name and name != "**"):
            message = f"fields must be paths such as config.db.password or **.password, not {text!r}"
            raise UsageError(message, argument="fields", value=text)
    return path


def _fits(pattern: Sequence[str], path: Sequence[str]) -> bool:
    """Return True if a path fits a pattern of names, `*` and `**`."""
    starts = {0}
    for name in pattern:
        if name == "**":
            starts = set(range(min(starts), len(path) + 1)) if starts else starts
        else:
            starts = {at + 1 for at in starts if at < len(path) and fnmatchcase(path[at], name)}
    return len(path) in starts


@lru_cache(maxsize=64)
def _run(letters: bytes) -> re.Pattern[bytes]:
    return re.compile(letters + rb"*")


def _end_of_run(letters: bytes, text: bytes, at: int) -> int:
    """Return the offset at which the run of `letters` that begins at `at` ends."""
    found = _run(letters).match(text, at)
    return at if found is None else found.end()


def _is_part(text: bytes, start: int, end: int) -> bool:
    """Return True if a token is part of a longer word: a letter or digit is directly before or after it."""
    return text[end : end + 1].isalnum() or not _is_free_before(text, start)


def _is_free_before(text: bytes, at: int) -> bool:
    """Return True if no letter or digit is directly before `at`, not counting an escape such as a line feed in JSON."""
    if not at or not text[at - 1 : at].isalnum():
        return True
    before = text[max(0, at - _ESCAPE_SIZE_MAX) : at]
    mark = max(before.rfind(b"\\"), before.rfind(b"%"))
    if mark < 0:
        return False
    kind, rest = before[mark : mark + 2], before[mark + 2 :]
    if kind in (b"\\n", b"\\r", b"\\t", b"\\b", b"\\f"):
        return not rest
    size = {b"\\u": 4, b"\\x": 2}.get(kind, 1 if kind[:1] == b"%" else -1)
    return len(rest) == size and all(byte in b"0123456789abcdefABCDEF" for byte in rest)


def replaced(data: bytes, found: Iterable[SecretSpan], replacement: Callable[[SecretSpan, bytes], bytes]) -> bytes:
    """Replace each secret in a text. Return the same object if there is none.

    Args:
        data: the text.
        found: the secrets, in order and without overlaps.
        replacement: called with each secret and its text, in order.
    """
    parts: list[bytes] = []
    at = 0
    for each in found:
        parts += (data[at : each.start], replacement(each, data[each.start : each.end]))
        at = each.end
    if not parts:
        return data
    parts.append(data[at:])
    return b"".join(parts)


def apart(found: list[SecretSpan]) -> list[SecretSpan]:
    """Return the secrets in order, without overlaps: overlapping secrets are joined, and nested ones left out."""
    apart: list[SecretSpan] = []
    for each in sorted(found, key=lambda one: (one.start, -one.end)):
        if apart and each.start < apart[-1].end:
            if each.end > apart[-1].end:
                apart[-1] = apart[-1]._replace(end=each.end)
        else:
            apart.append(each)
    return apart
