"""Hides texts in msgpack. A hidden text becomes a msgpack extension with the reason, the check and the text.

LangGraph's serialiser does not know the extension. So before a value is decoded, a placeholder text replaces each
extension. When a value with that placeholder text is stored again, the extension replaces the placeholder.
"""

from __future__ import annotations

from contextlib import suppress
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from statelog.display.packed import QUARANTINED_CODE, QUARANTINED_NAME, quarantined_text
from statelog.guard.items import UNCHANGED, Msgpack, NotMsgpackError, Path, extension_head, packed_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from statelog.format.quarantined import Quarantined

MARK: Final = bytes((0xA0 | len(QUARANTINED_NAME),)) + QUARANTINED_NAME.encode()
"""Bytes that every value with a hidden text contains. They are not UTF-8, so no text contains them."""

_START = b"\x94" + MARK
_PLACEHOLDER = b"[QUARANTINED by "
_TAG_SIZE_BYTES = 8
_SNAPSHOT_CODE = 7
"""The extension code of LangGraph's snapshot of a DeltaChannel: a value without a constructor."""
_REMEMBERED_MAX: Final = 4096

_remembered: dict[bytes, bytes] = {}
"""Maps recently shown placeholder texts to extensions, so that storing a placeholder restores its hidden text."""


class _Texts(Msgpack):
    """Walks a msgpack value, and replaces texts and hidden texts."""

    def __init__(
        self,
        data: bytes,
        of_text: Callable[[bytes, Path], bytes | None],
        of_hidden: Callable[[bytes], bytes | None],
    ) -> None:
        super().__init__(data, UNCHANGED)
        self._of_text = of_text
        self._of_hidden = of_hidden

    def whole(self) -> bytes:
        """Return the value with its texts replaced. Raises NotMsgpackError."""
        try:
            made, end = self.value(0, (), is_secret=False)
        except (IndexError, RecursionError) as error:
            raise NotMsgpackError from error
        if end != len(self._data):
            raise NotMsgpackError
        return made

    def _beside(self, _name: bytes, item: bytes, _path: Path, *, may_be_field: bool) -> bytes:  # noqa: ARG002
        return item

    def _string(
        self,
        at: int,
        start: int,
        size: int,
        path: Path,
        *,
        is_text: bool,
        is_secret: bool,  # noqa: ARG002 - of the base
    ) -> tuple[bytes, int]:
        end = self._checked(start + size)
        made = self._of_text(self._data[start:end], path) if is_text else None
        return (self._data[at:end] if made is None else made), end

    def _extension(self, at: int, first: int, path: Path, *, is_secret: bool) -> tuple[bytes, int]:  # noqa: ARG002
        start, end = self.extension_span(at, first)
        body = self._data[start:end]
        if self._data[start - 1] == QUARANTINED_CODE and body.startswith(_START):
            made = self._of_hidden(body)
            return (self._data[at:end] if made is None else made), end
        try:
            inner = _Texts(body, self._of_text, self._of_hidden)
            made = inner.whole() if self._data[start - 1] == _SNAPSHOT_CODE else inner.constructed(path)
        except (NotMsgpackError, IndexError):
            return self._data[at:end], end
        return (self._data[at:end] if made == body else extension_head(self._data[start - 1], len(made)) + made), end

    def constructed(self, path: Path) -> bytes:
        """Replace the texts in the arguments of an extension. Its content is [module, name, arguments, method]."""
        names = self.names()
        if names is None:
            return self._data
        parts, at = [self._data[: names[2]]], names[2]
        for number in range((self._data[0] & 15) - 2):
            reader = self if number == 0 else Msgpack(self._data, UNCHANGED)
            made, at = reader.value(at, path, is_secret=False)
            parts.append(made)
        if at != len(self._data):
            raise NotMsgpackError
        return b"".join(parts)


def hide_texts(data: bytes, replace: Callable[[str, tuple[str, ...]], str | Quarantined]) -> bytes:
    """Return a msgpack value with each text replaced by `replace(text, names)`. Raises NotMsgpackError."""

    def of_text(held: bytes, path: Path) -> bytes | None:
        text = held.decode("utf-8", "replace")
        made = replace(text, path)
        return None if made is text else _packed(made)

    return _Texts(data, of_text, lambda _body: None).whole()


def show_texts(data: bytes, *, include_quarantined: bool = False) -> bytes:
    """Replace the extensions in a msgpack value by placeholder texts or by the hidden texts. Return the value."""

    def of_hidden(body: bytes) -> bytes:
        reason, check, text = _parts_of(body)
        if include_quarantined:
            return packed_text(text)
        tag = blake2b(body, digest_size=_TAG_SIZE_BYTES).hexdigest()
        shown = quarantined_text(check.decode(), f"{reason.decode()} #{tag}").encode()
        if len(_remembered) >= _REMEMBERED_MAX:
            _remembered.clear()
        _remembered[shown] = extension_head(QUARANTINED_CODE, len(body)) + body
        return packed_text(shown)

    if MARK not in data:
        return data
    return _Texts(data, lambda _held, _path: None, of_hidden).whole()


def restore_texts(data: bytes) -> bytes:
    """Replace each placeholder text that this process has shown by its extension. Return the value."""
    if _PLACEHOLDER not in data or not _remembered:
        return data
    try:
        return _Texts(data, lambda held, _path: _remembered.get(held), lambda _body: None).whole()
    except NotMsgpackError:
        return data


def holds_hidden(data: bytes) -> bool:
    """Return True if a msgpack value has a hidden text."""
    return MARK in data


def hidden_in(data: bytes) -> list[tuple[str, str]]:
    """Return (name of the check, reason) for each hidden text in a msgpack value."""
    found: list[tuple[str, str]] = []

    def of_hidden(body: bytes) -> None:
        reason, check, _text = _parts_of(body)
        found.append((check.decode(), reason.decode()))

    if MARK in data:
        with suppress(NotMsgpackError):
            _Texts(data, lambda _held, _path: None, of_hidden).whole()
    return found


def _packed(made: str | Quarantined) -> bytes:
    if isinstance(made, str):
        return packed_text(made.encode("utf-8", "replace"))
    reason, check, text = made.payload()
    body = _START + b"".join([packed_text(each.encode()) for each in (reason, check, text)])
    return extension_head(QUARANTINED_CODE, len(body)) + body


def _parts_of(body: bytes) -> list[bytes]:
    """Return the reason, the check and the text of an extension."""
    at, parts = len(_START), []
    for _ in range(3):
        end = Msgpack(body, UNCHANGED).value(at, (), is_secret=False)[1]
        parts.append(Msgpack.text_of(body[at:end]).encode())
        at = end
    return parts
