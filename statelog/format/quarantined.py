"""The placeholder for a value that a guard's check hides from reads."""

from __future__ import annotations

from typing import Any, NoReturn

from statelog.format.everyday import LossyError

_LOST = object()
"""Stands for the value of an unpickled placeholder, because pickles do not contain the value."""


class Quarantined:
    """A placeholder for a stored value that a check hides. FORMAT.md section 7 describes its bytes.

    The placeholder shows the check and the reason, but nothing of the value. If a program writes the placeholder back,
    for example in a dict that it read, the store keeps the value. A pickled placeholder loses its value.

    Attributes:
        check: the name of the check.
        reason: the reason that the check gave.
    """

    __slots__ = ("_value", "check", "reason")

    check: str
    reason: str
    _value: Any

    def __init__(self, check: str, reason: str, value: Any = _LOST) -> None:
        set_attribute = object.__setattr__
        set_attribute(self, "check", check)
        set_attribute(self, "reason", reason)
        set_attribute(self, "_value", value)

    def __setattr__(self, name: str, _value: object) -> NoReturn:
        message = f"a placeholder is immutable: cannot change {name!r}"
        raise AttributeError(message)

    def __delattr__(self, name: str) -> NoReturn:
        self.__setattr__(name, None)

    def __repr__(self) -> str:
        return f"<Quarantined by {self.check}: {self.reason}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Quarantined):
            return NotImplemented
        mine, theirs = (self.check, self.reason, self._value), (other.check, other.reason, other._value)
        return mine == theirs

    def __hash__(self) -> int:
        return hash((self.check, self.reason))

    def __copy__(self) -> Quarantined:
        return self

    def __deepcopy__(self, _memo: dict[int, Any]) -> Quarantined:
        return self

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return Quarantined, (self.check, self.reason)

    def payload(self) -> list[Any]:
        """Return [reason, check, value], which the codec stores (internal)."""
        if self._value is _LOST:
            message = "a placeholder that was pickled has lost its value, so it cannot be stored"
            raise LossyError(message)
        return [self.reason, self.check, self._value]

    def reveal(self) -> Any:
        """Return the hidden value, or None if it was lost (internal). Callers read with `include_quarantined=True`."""
        return None if self._value is _LOST else revealed(self._value)


def revealed(value: Any) -> Any:
    """Replace each placeholder in a value by its hidden value. Return a container without placeholders unchanged."""
    kind = type(value)
    if kind is Quarantined:
        return value.reveal()
    if kind is dict:
        members = {key: revealed(each) for key, each in value.items()}
        return members if any(members[key] is not each for key, each in value.items()) else value
    if kind in (list, tuple):
        items = [revealed(each) for each in value]
        return kind(items) if any(new is not old for new, old in zip(items, value, strict=True)) else value
    if kind in (set, frozenset) and any(type(each) is Quarantined for each in value):
        return kind(map(revealed, value))
    return value


def holds_quarantined(value: Any) -> Quarantined | None:
    """Return the first placeholder in a value of plain containers, or None if it has no placeholder."""
    if type(value) is Quarantined:
        return value
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list | tuple | set | frozenset):
        return None
    return next((found for each in value if (found := holds_quarantined(each)) is not None), None)
