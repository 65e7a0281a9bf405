"""Names of parameters. They must be the same in every process, so that a parallel run can identify its tests."""

from __future__ import annotations

import re
import reprlib


class _Stable(reprlib.Repr):
    """A representation without what differs between processes: addresses, and the order of a set at any depth."""

    def repr1(self, x: object, level: int) -> str:
        return re.sub(r" at 0x[0-9a-f]+", "", super().repr1(x, level))

    def repr_set(self, x: set | frozenset, level: int) -> str:
        return "{" + ", ".join(sorted(self.repr1(each, level - 1) for each in x)) + "}"

    repr_frozenset = repr_set


_STABLE = _Stable()
_STABLE.maxother = _STABLE.maxstring = 1 << 16  # an address cut in its middle would not be seen as one


def named(value: object) -> str:
    """Return a short name of a parameter."""
    return _STABLE.repr(value)[:30]
