"""A marker for fields that accept only handles."""

from __future__ import annotations

import re
from typing import Any, Final

HANDLE: Final = re.compile(r"\$CRED\{([^{}]*)\}")
"""The pattern of a handle, such as `$CRED{stripe}`."""

WANTED: Final = "a handle, such as $CRED{name}"


def is_handle(value: object) -> bool:
    """Return True if a value is exactly one handle."""
    return isinstance(value, str) and HANDLE.fullmatch(value) is not None


class _Secret:
    """The type of `Secret`."""

    __slots__ = ()

    accepts_handles_only = True
    """An attribute by which schemas recognise the marker without importing this package."""

    def __repr__(self) -> str:
        return "statelog.guard.Secret"

    def __copy__(self) -> _Secret:
        return self

    def __deepcopy__(self, _memo: dict[int, Any]) -> _Secret:
        return self

    def __reduce__(self) -> str:
        return "Secret"

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_after_validator_function(_checked, handler(source))


def _checked(value: Any) -> Any:
    if value is not None and not is_handle(value):
        message = f"{WANTED} is required, not the secret itself"
        raise ValueError(message)
    return value


Secret: Final = _Secret()
"""A marker: a field `Annotated[str, guard.Secret]` accepts a handle such as `$CRED{stripe}`, and no other text."""
