"""Finds the secrets in the values of a store (`SecretFinder`), and replaces them in a purge (`Purger`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from statelog.errors import SecretError
from statelog.guard.handles import VALUE_SIZE_MIN, Forms
from statelog.guard.hook import redaction_of, rule_of_whole
from statelog.guard.items import redact_item
from statelog.guard.secrets import ASSIGNED, replaced
from statelog.guard.vectors import Vectors

if TYPE_CHECKING:
    from collections.abc import Iterable

    from statelog.guard.detector import Detector
    from statelog.guard.items import Path
    from statelog.guard.secrets import SecretSpan


@dataclass(frozen=True, slots=True)
class SecretFound:
    """A secret that was found in a store: its location, rule and fingerprint, but never its text."""

    thread: str | None
    """The id of the thread, or None for an entry of the board and for records without a thread."""
    version: int | None
    """The version that wrote the secret. For an entry of the board, the LSN of its record.

    None for a secret outside of versions and entries, such as a secret in a name.
    """
    path: str
    """The names that lead to the secret, joined by dots. The first name is the channel or the key of the entry.

    A name in brackets is not a channel: `(id)`, `(name)`, `(agent)`, `(error)`, `(bytes)`, `(removed)`.
    """
    rule: str
    """The rule that found the secret, or the handle whose value it is."""
    fingerprint: str
    """The fingerprint of the secret. Equal secrets of a store have equal fingerprints."""
    lsn: int
    """The LSN of the record that holds the secret."""


IN_NAME = "(name)"
"""The last part of the path of a secret in the key of a dict."""

IN_BYTES = "(bytes)"
"""The last part of the path of a secret in bytes that cannot be changed."""


class Sighting(NamedTuple):
    """A secret that was found in a value of a store."""

    path: Path
    rule: str
    fingerprint: str
    text: bytes
    is_literal: bool
    """Whether the text counts as a secret everywhere in the store.

    A short text or a number counts only where a rule or a field name finds it.
    """
    whole: int
    """The hash of the whole text or number that contains the secret. It is valid only in this process."""


class SecretFinder:
    """Collects in `found` the secrets that the guard of a store would redact."""

    def __init__(self, detector: Detector) -> None:
        self._detector = detector
        self._secrets, self._handles = detector.secrets, detector.handles
        self.may_hold = detector.may_hold
        self.names_field = detector.names_field
        self.is_sensitive = detector.is_sensitive
        self.shown = detector.shown
        self.found: list[Sighting] = []

    def look(self, item: bytes, path: Path) -> bool:
        """Note the secrets in an encoded value. Return True if it has a secret."""
        count = len(self.found)
        redact_item(item, path, self)
        return len(self.found) > count

    def may_be_stored_in(self, record: bytes, *, any_name: bool) -> bool:
        """Return False if a record certainly holds no secret: see `Secrets.may_be_stored_in`."""
        handles = self._handles
        is_held = handles is not None and handles.are_in(record)
        return is_held or self._secrets.may_be_stored_in(record, any_name=any_name)

    def look_at_name(self, name: bytes, path: Path) -> bool:
        """Note the secrets in a name. Return True if it has a secret."""
        count = len(self.found)
        self.refuse_if_found(name, path[:-1], path[-1])
        return len(self.found) > count

    def hidden(self, data: bytes, path: Path) -> bytes:
        """Note a value that is a secret as a whole. Return its redaction."""
        rule = rule_of_whole(data, self._detector)
        return data if rule is None else self._replacement(data, rule, path, data)

    def redact_field(self, data: bytes, path: Path) -> bytes:
        """Note the secrets in the text of a field, whose name may make the text a secret."""
        made = self.redact(data, path)
        named = self._secrets.find_named(path[-1], made) if path else None
        if named is None:
            return made
        return made[: named.start] + self._replacement(made[named.start : named.end], named.rule, path, data)

    def redact(self, data: bytes, path: Path) -> bytes:
        """Note the secrets in a text. Return the redacted text."""
        if self._handles is not None:
            for each in self._handles.find(data):
                self._note(each.rule, data[each.start : each.end], path, data)
        if not self._secrets.may_be_in(data):
            return data

        def made(found: SecretSpan, secret: bytes) -> bytes:
            return self._replacement(secret, found.rule, path, data, is_literal=not found.quote)

        return replaced(data, self._secrets.find(data), made)

    def check_key(self, key: bytes, path: Path) -> None:
        """Note the secrets in the key of a dict."""
        self.refuse_if_found(key, path, IN_NAME)

    def refuse_if_found(self, data: bytes, path: Path, what: str) -> None:
        """Note the secrets in bytes that cannot be changed."""
        if not self.may_hold(data):
            return
        where = (*path, what if what.startswith("(") else IN_BYTES)
        spans = [] if self._handles is None else self._handles.find(data)
        for each in (*spans, *self._secrets.find(data, is_text=False)):
            self._note(each.rule, data[each.start : each.end], where, data)

    def _replacement(self, secret: bytes, rule: str, path: Path, whole: bytes, *, is_literal: bool = True) -> bytes:
        self._note(rule, secret, path, whole, is_literal=is_literal)
        return _written(rule, self._detector.fingerprint(secret))

    def _note(self, rule: str, text: bytes, path: Path, whole: bytes, *, is_literal: bool = True) -> None:
        is_literal = is_literal and is_searched(text)
        self.found.append(Sighting(path, rule, self._detector.fingerprint(text), text, is_literal, hash(whole)))


def is_searched(text: bytes) -> bool:
    """Return True if a text is printable and long enough to be searched everywhere in the store."""
    try:
        decoded = text.decode()
    except UnicodeDecodeError:
        return False
    return len(decoded.strip()) >= VALUE_SIZE_MIN and all(each.isprintable() or each in "\n\r\t" for each in decoded)


class Purger:
    """Replaces some secrets by their redactions, and changes nothing else.

    Args:
        detector: the detector that found the secrets.
        sightings: the secrets.
    """

    def __init__(self, detector: Detector, sightings: Iterable[Sighting]) -> None:
        self._detector = detector.without_handles()
        self._secrets = detector.secrets
        self.shown = self._detector.shown
        self.changed: set[Path] = set()
        """The paths of replaced texts. The caller clears it."""
        self.vectors = Vectors()
        """The vectors that are erased."""
        self._forms = Forms()
        self._short: set[tuple[str, str]] = set()
        self._marks: dict[str, tuple[str, str]] = {}
        """The rule and the fingerprint of each text that is searched everywhere, keyed by its replacement."""
        texts: dict[str, bytes] = {}
        for each in sightings:
            if not each.is_literal:
                self._short.add((each.rule, each.fingerprint))
            else:
                written = texts.setdefault(each.text.decode(), _written(each.rule, each.fingerprint))
                self._marks[written.decode()] = each.rule, each.fingerprint
        if texts:
            self._forms.learn(texts)

    def redacted(self, item: bytes, path: Path) -> bytes:
        """Return an encoded value without the secrets. Raises SecretError if a secret cannot be cut out."""
        return redact_item(self.vectors.erased(item, path), path, self)

    def look(self, item: bytes, path: Path) -> bool:
        """Return True if an encoded value has one of the secrets. Raises the errors of `redacted`."""
        return self.redacted(item, path) != item

    def look_at_name(self, name: bytes, path: Path) -> bool:
        """Return False, or raise SecretError if a name has one of the secrets.

        Names cannot be changed.
        """
        self.refuse_if_found(name, path[:-1], path[-1].strip("()"))
        return False

    def is_sensitive(self, path: Path) -> bool:
        """Return True if the path alone may mean that a value is one of the secrets."""
        return bool(self._short) and self._detector.is_sensitive(path)

    def may_hold(self, data: bytes) -> bool:
        """Return False if bytes certainly hold none of the secrets."""
        return self._forms.are_in(data) or (bool(self._short) and self._secrets.may_be_in(data))

    def may_be_stored_in(self, record: bytes, *, any_name: bool) -> bool:
        """Return False if a record certainly holds none of the secrets: see `Secrets.may_be_stored_in`."""
        is_held = self._forms.are_in(record)
        return is_held or (bool(self._short) and self._secrets.may_be_stored_in(record, any_name=any_name))

    def holds(self, data: bytes) -> bool:
        """Return True if bytes hold, in any form, one of the texts that are searched everywhere."""
        return bool(self._forms.find(data))

    def names_field(self, path: Path) -> bool:
        """Return True if every value at a path is a secret."""
        return bool(self._short) and self._detector.names_field(path)

    def hidden(self, data: bytes, path: Path) -> bytes:
        """Return the replacement of a value that is a secret as a whole.

        If the value is not one of the secrets to purge, treat it like any text.
        """
        mark = self._detector.fingerprint(data)
        rule = next((rule for rule, each in self._short if each == mark), None)
        if rule is None:
            return self.redact(data, path)
        self.changed.add(path)
        return _written(rule, mark)

    def redact_field(self, data: bytes, path: Path) -> bytes:
        """Replace the secrets in the text of a field."""
        made = self.redact(data, path)
        named = self._secrets.find_named(path[-1], made) if self._short and path else None
        if named is None:
            return made
        mark = self._detector.fingerprint(made[named.start : named.end])
        if (ASSIGNED, mark) not in self._short:
            return made
        self.changed.add(path)
        return made[: named.start] + redaction_of(ASSIGNED, mark)

    def redact(self, data: bytes, path: Path) -> bytes:
        """Replace the secrets in a text. Return the same object if it has none of them."""
        before = data
        data = replaced(data, self._forms.find(data), lambda each, _secret: each.rule.encode())
        if self._short and self._secrets.may_be_in(data):
            data = replaced(data, self._short_in(data), self._written_short)
        if data is not before:
            self.changed.add(path)
        return data

    def _short_in(self, data: bytes) -> list[SecretSpan]:
        """Return the short secrets to purge in a text. They count only where a rule or a field name finds them."""
        mark = self._detector.fingerprint
        return [
            each for each in self._secrets.find(data) if (each.rule, mark(data[each.start : each.end])) in self._short
        ]

    def _written_short(self, found: SecretSpan, secret: bytes) -> bytes:
        return found.quote + _written(found.rule, self._detector.fingerprint(secret)) + found.quote

    def check_key(self, key: bytes, path: Path) -> None:
        """Raise SecretError if the key of a dict has one of the secrets."""
        self.refuse_if_found(key, path, "a key")

    def refuse_if_found(self, data: bytes, path: Path, what: str) -> None:
        """Raise SecretError if bytes that cannot be changed hold one of the secrets. Facts: path, rule, fingerprint."""
        if self.redact(data, path) != data:
            place = self.shown(".".join((*path, f"({what})")))
            held = [self._marks[each.rule] for each in self._forms.find(data)]
            held += [
                (each.rule, self._detector.fingerprint(data[each.start : each.end])) for each in self._short_in(data)
            ]
            rule, fingerprint = held[0]
            raise SecretError("it cannot be cut out", path=place, rule=rule, fingerprint=fingerprint)


def _written(rule: str, mark: str) -> bytes:
    """Return the text that replaces a secret: its handle if the secret is the value of a handle, or a redaction."""
    return rule.encode() if rule.startswith("$CRED{") else redaction_of(rule, mark)
