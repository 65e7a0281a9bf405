"""Fields that accept handles only."""

from __future__ import annotations

from typing import Any, Final


class _Secret:
    """The type of `Secret`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "statelog.guard.Secret"

    def __copy__(self) -> _Secret:
        return self

    def __deepcopy__(self, _memo: dict[int, Any]) -> _Secret:
        return self


Secret: Final = _Secret()
"""In `Annotated[str, guard.Secret]`: the field accepts a handle such as `$CRED{stripe}`, and no other text."""
