"""Exit codes: one for each outcome that a script may want to distinguish."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

from statelog import errors
from statelog.cli.text import escape

if TYPE_CHECKING:
    from collections.abc import Mapping

OS_ERROR = errors.StorageError.exit_code
NO_SUCH_FILE = errors.StoreNotFoundError.exit_code

INTERNAL = 70
"""The exit code of a bug in statelog (EX_SOFTWARE of sysexits.h)."""

INTERRUPTED = 130
"""The exit code after Ctrl-C: 128 + SIGINT, as in shells."""

TERMINATED = 143
"""The exit code of a command that follows a log and was ended by SIGTERM: 128 + SIGTERM."""

BROKEN_PIPE = 141
"""The exit code if the reader of the output closed the pipe: 128 + SIGPIPE."""

_MEANINGS: tuple[tuple[type[errors.StatelogError], str], ...] = (
    (errors.StatelogError, "another failure"),
    (errors.UsageError, "wrong usage: an unknown option, a value that cannot be stored, a read-only store"),
    (errors.NotFoundError, "no such thread, branch, checkpoint or path"),
    (errors.StoreNotFoundError, "no such file"),
    (errors.ConflictError, "another writer committed first, or the name is taken"),
    (errors.LimitError, "a limit was exceeded, or the store or disk is full"),
    (errors.FormatError, "not a statelog file"),
    (errors.NewerFormatError, "a file of a newer format: upgrade statelog"),
    (errors.CorruptionError, "the file is damaged, or does not have the expected history"),
    (errors.StorageError, "the disk or the operating system reported an error"),
    (errors.StoreLockedError, "another process has locked the file"),
    (errors.AccessError, "no permission"),
    (errors.ExecutionError, "a run or a step has failed"),
)


def table() -> dict[int, str]:
    """Return the exit codes in ascending order, with their meanings."""
    meanings: dict[int, list[str]] = {0: ["done"]}
    for kind, meaning in _MEANINGS:
        meanings.setdefault(kind.exit_code, []).append(meaning)
    meanings[INTERNAL] = ["a bug in statelog"]
    meanings[INTERRUPTED] = ["interrupted"]
    meanings[BROKEN_PIPE] = ["the reader of the output closed the pipe"]
    meanings[TERMINATED] = ["ended by SIGTERM"]
    return {code: "; ".join(meanings[code]) for code in sorted(meanings)}


def epilog() -> str:
    """Return the table of exit codes for the end of `--help`."""
    rows = [
        textwrap.fill(f"  {code:>3}  {meaning}", 76, subsequent_indent=" " * 7) for code, meaning in table().items()
    ]
    return "\n".join(("\b", "Exit codes:", *rows))


def error_line(message: str) -> str:
    """Return an error message as one line, with special characters escaped."""
    return f"statelog: {escape(message)}"


class ChildError(errors.StatelogError):
    """A failure of a child process, with the exit code, kind and facts of the child's error."""

    def __init__(
        self, message: str, exit_code: int, kind: str = "ChildError", facts: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message, **{**(facts or {}), "kind": kind})
        self.exit_code = exit_code
