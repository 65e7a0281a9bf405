"""Count the calls of an adapter while a framework's own tests run: a suite that never reached it proves nothing.

`$COUNTS` names the file to which a process adds its counts when it ends. The method that `$BREAK` names fails: with it
the same suite has to fail, too.
"""

from __future__ import annotations

import atexit
import inspect
import json
import os
from collections import Counter
from functools import wraps
from pathlib import Path

_calls: Counter[str] = Counter()


def counted(kind: type, *names: str) -> None:
    """Have the methods of a class counted."""
    for name in names:
        setattr(kind, name, _counting(name, getattr(kind, name)))


def _counting(name, method):
    def note():
        if os.environ.get("BREAK") == name:
            message = f"{name} fails, as was asked"
            raise RuntimeError(message)
        _calls[name] += 1

    if inspect.iscoroutinefunction(method):

        @wraps(method)
        async def awaited(*args, **kwargs):
            note()
            return await method(*args, **kwargs)

        return awaited

    @wraps(method)
    def called(*args, **kwargs):
        note()
        return method(*args, **kwargs)

    return called


@atexit.register
def _write() -> None:
    if _calls and "COUNTS" in os.environ:
        with Path(os.environ["COUNTS"]).open("a") as file:
            file.write(json.dumps(_calls) + "\n")
