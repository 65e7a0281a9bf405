"""Names of parameters: the same in every process, or a run shared by several cannot tell its tests apart."""

from __future__ import annotations

import re


def named(value: object) -> str:
    """Return a short name of a parameter."""
    if isinstance(value, set | frozenset):
        value = sorted(value, key=repr)
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))[:30]
