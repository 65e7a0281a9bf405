"""Applies a guard to one store. Every value and every name passes through this module before it enters the file."""

from __future__ import annotations

import re
from copy import copy
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from statelog.errors import SecretError
from statelog.guard.annotations import is_handle
from statelog.guard.detector import OWN_NAMES
from statelog.guard.items import NotMsgpackError, is_packed, redact_bytes, redact_item, redact_packed
from statelog.guard.secrets import ASSIGNED, FIELD, replaced
from statelog.guard.verdicts import Where

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from statelog.guard.checks import Checks
    from statelog.guard.detector import Detector
    from statelog.guard.secrets import SecretSpan

_MSGPACK = "msgpack"
_BYTES = frozenset(("bytes", "bytearray"))
_ENCRYPTED = "+"
"""A character in the kind of data that LangGraph's serialisers have encrypted: `msgpack+aes`."""
_DONE = re.compile(rb"\[REDACTED [a-z0-9-]+ [0-9a-f]{8}\]")


_NO_METADATA = b"\xa0"
_CACHE = "langgraph:cache"
"""The thread of LangGraph's cache. Its values were checked before they were serialised."""


def redaction_of(rule: str, fingerprint: str) -> bytes:
    """Return the text that replaces a secret."""
    return f"[REDACTED {rule} {fingerprint}]".encode()


def rule_of_whole(data: bytes, detector: Detector) -> str | None:
    """Return the rule or handle by which a whole value is a secret, or None, also for a handle or a redaction."""
    handles = detector.handles
    if handles is not None and (found := handles.find(data)) and found[0].end - found[0].start == len(data):
        return found[0].rule
    if _DONE.fullmatch(data) or is_handle(data.decode("utf-8", "replace")):
        return None
    rule = detector.rule_in(data)
    return FIELD if rule is None or is_handle(rule) else rule


class Guarded(Protocol):
    """A write to a channel or an entry: see `log.step.PreparedWrite`."""

    def redacted(self, redact: Callable[..., bytes]) -> Any:
        """Return the write with each item replaced by the result of `redact`, which gets the item and its path."""


W = TypeVar("W", bound=Guarded)


class Redactor:
    """Redacts or refuses secrets and other values that a store must not contain.

    Args:
        detector: decides what counts as a secret.
    """

    on_write: Checks | None = None
    """The checks of written values, or None."""
    on_read: Checks | None = None
    """The checks of values that are read, or None."""

    def __init__(self, detector: Detector) -> None:
        self.detector = detector
        self.may_hold = detector.may_hold
        self.names_field = detector.names_field
        self.shown = detector.shown
        self._secrets = detector.secrets
        self._handles = detector.handles
        self.refuses = detector.secrets.on_found == "refuse"
        """Whether a secret is refused instead of redacted."""
        self._names = _Names(self)

    # --- the hook ---------------------------------------------------------------

    def writes(self, writes: Sequence[W], thread: str) -> list[W]:
        """Apply the guard to writes to a thread, and return what may be stored. Raises SecretError, CheckError."""
        if self.on_write is None:
            return [write.redacted(self.item) for write in writes]

        def clean(item: bytes, path: str, before: bytes | None = None) -> bytes:
            return self.checked_item(item, Where("write", "thread", path, thread), before)

        return [write.redacted(clean) for write in writes]

    def entry(self, write: W, key: str, agent: str | None) -> W:
        """Apply the guard to a write to an entry of the board, like `writes`.

        The path of its value begins with the key.
        """
        where = Where("write", "board", key, key=key, agent=agent)
        redacted: W = write.redacted(lambda item, _path: self.checked_item(item, where))
        return redacted

    def checked_item(self, item: bytes, where: Where, before: bytes | None = None) -> bytes:
        """Apply the guard to an encoded value, and return what may be stored: the same object if nothing changes.

        `before` is the value that is stored there now. In a list or dict, the checks see only the parts that are not
        in `before`.
        """
        item = self.item(item, where.path)
        if self.on_write is None or where.is_own or where.thread == _CACHE or is_packed(item):
            return item  # Values from LangGraph's serialiser were checked earlier.
        return self.on_write.item(item, where, before)

    def metadata(self, item: bytes, path: str, thread: str) -> bytes:
        """Redact the secrets in encoded metadata, and apply the checks of writes. The result is still a dict."""
        if item == _NO_METADATA:
            return item
        item = self.item(item, path)
        if self.on_write is None:
            return item
        return self.on_write.metadata(item, Where("write", "metadata", path, thread))

    def item(self, item: bytes, path: str, _before: bytes | None = None) -> bytes:
        """Return an encoded value with its secrets redacted, or the same object if it has none."""
        is_walked = self.may_hold(item) or self.detector.is_sensitive_name(path)
        return redact_item(item, (path,), self) if is_walked else item

    def recorded(self, item: bytes, what: str) -> bytes:
        """Apply the guard to an item of one of the library's own records, and return what may be stored."""
        item = redact_item(item, (OWN_NAMES[0], what), self) if self.may_hold(item) else item
        return item if self.on_write is None else self.on_write.item(item, Where("write", "durable", what))

    def recorded_error(self, item: bytes, path: tuple[str, ...]) -> bytes:
        """Return the record of an exception without secrets, and without texts that the checks do not allow.

        This never refuses, because a failure must be recorded.
        """
        if self.may_hold(item):
            item = redact_item(item, path, self._lenient())
        return item if self.on_write is None else self.on_write.error_item(item, Where("write", "durable", "exception"))

    def error(self, text: str, key: str, agent: str | None) -> str:
        """Redact the error text of a claim, like `recorded_error`."""
        text = self._lenient().text(text, key)
        if self.on_write is None:
            return text
        return self.on_write.error_text(text, Where("write", "claim", key, key=key, agent=agent))

    def _lenient(self) -> Redactor:
        """Return a redactor that redacts secrets instead of refusing them: this one, or a copy."""
        if not self.refuses:
            return self
        made = copy(self)
        made.refuses = False
        return made

    def text(self, text: str, path: str) -> str:
        """Return a text with its secrets redacted."""
        data = text.encode("utf-8", "surrogatepass")
        return self.redact(data, (path,)).decode("utf-8", "surrogatepass") if self.may_hold(data) else text

    def field_text(self, text: str, path: Sequence[str]) -> str:
        """Redact the text of a field. `path` has the names that lead to the field. Raises SecretError."""
        data, names = text.encode("utf-8", "surrogatepass"), tuple(path)
        made = self.hidden(data, names) if self.names_field(names) else self.redact_field(data, names)
        return made.decode("utf-8", "surrogatepass")

    def serialised(self, kind: str, data: bytes, path: tuple[str, ...]) -> bytes:
        """Redact serialised data. Raises SecretError if secrets cannot be removed.

        Encrypted data stays unchanged.
        """
        if not (self.may_hold(data) or self.detector.is_sensitive(path)):
            return data
        if kind == _MSGPACK:
            try:
                return redact_packed(data, path, self)
            except NotMsgpackError:
                pass
        if self.names_field(path) and data and _ENCRYPTED not in kind:
            if kind in _BYTES:
                return self.hidden(data, path)
            self._refuse(FIELD, f"{'.'.join(path)} ({kind})")
        return redact_bytes(data, path, self)

    def check_body(self, body: bytes) -> None:
        """Raise SecretError if the body of a record has a secret in a name: an id, a key, a branch, an agent.

        Facts: rule, path.
        """
        if self.may_hold(body) and redact_item(body, (), self._names) != body:
            self._refuse(self.detector.rule_in(body), "a name")

    def check_name(self, name: str) -> None:
        """Raise SecretError if a name has a secret. Facts: rule, path."""
        self.check_key(name.encode("utf-8", "surrogatepass"), ("a name",))

    def check_bytes(self, data: bytes, what: str) -> None:
        """Raise SecretError if the bytes of an imported record have a secret."""
        if self.may_hold(data):
            self.refuse_if_found(data, (what,), "a record that was made elsewhere")

    # --- called by the walk over a value ------------------------------------------------

    def hidden(self, data: bytes, path: tuple[str, ...]) -> bytes:
        """Return the text that replaces a value that is a secret as a whole. A handle stays unchanged."""
        rule = rule_of_whole(data, self.detector)
        if rule is None:
            return data
        return rule.encode() if is_handle(rule) else self._replacement(data, rule, path)

    def redact_field(self, data: bytes, path: tuple[str, ...]) -> bytes:
        """Redact the text of a field. The field's name, which is last in `path`, may make the text a secret."""
        made = self.redact(data, path)
        named = self._secrets.find_named(path[-1], made) if path else None
        if named is None:
            return made
        return made[: named.start] + self._replacement(made[named.start : named.end], named.rule, path)

    def redact(self, data: bytes, path: tuple[str, ...]) -> bytes:
        """Redact the secrets in a text. Return the same object if it has none."""
        handles = self._handles
        if handles is not None and handles.are_in(data):
            data = replaced(data, handles.find(data), lambda each, _secret: each.rule.encode())
        if not self._secrets.may_be_in(data):
            return data

        def made(found: SecretSpan, secret: bytes) -> bytes:
            return found.quote + self._replacement(secret, found.rule, path) + found.quote

        return replaced(data, self._secrets.find(data), made)

    def check_key(self, key: bytes, path: tuple[str, ...]) -> None:
        """Raise SecretError if the key of a dict has a secret. A key cannot be redacted, because it is a name."""
        if self.may_hold(key):
            self.refuse_if_found(key, path, "a key")

    def refuse_if_found(self, data: bytes, path: tuple[str, ...], what: str) -> None:
        """Raise SecretError if there is a secret in bytes that cannot be changed."""
        rule = self.detector.rule_in(data)
        if rule is None and path and self._secrets.find_named(path[-1], data) is not None:
            rule = ASSIGNED
        if rule is not None:
            self._refuse(rule, f"{'.'.join(path)} ({what})" if path else what)

    def _replacement(self, secret: bytes, rule: str, path: tuple[str, ...]) -> bytes:
        if self.refuses:
            self._refuse(rule, ".".join(path) or "a value")
        return redaction_of(rule, self.detector.fingerprint(secret))

    def _refuse(self, rule: str | None, where: str) -> None:
        # A key in the path may contain the secret, so redact the path.
        place = self.shown(where)
        message = f"{place} contains a secret: {rule or FIELD}. Nothing was written"
        raise SecretError(message, rule=rule or FIELD, path=place)


class _Names:
    """A redactor for the names in the body of a record. The values in the body have already passed the guard."""

    def __init__(self, redactor: Redactor) -> None:
        self.may_hold = redactor.may_hold
        self.hidden = redactor.hidden
        self.redact_field = self.redact = redactor.redact
        self.check_key = redactor.check_key
        self.refuse_if_found = redactor.refuse_if_found

    def names_field(self, _path: tuple[str, ...]) -> bool:
        return False
