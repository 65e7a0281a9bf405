"""Keeps secrets out of logs."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from statelog.errors import UsageError
from statelog.guard.policy import Guard

if TYPE_CHECKING:
    from statelog.guard.hook import Redactor

_PLAIN = frozenset(vars(logging.makeLogRecord({})))
_FORMATTER = logging.Formatter()
_DONE = frozenset(("msg", "args", "exc_info", "exc_text", "stack_info"))
_NUMBERS = frozenset((bool, int, float, type(None)))


class LogFilter(logging.Filter):
    """Redacts secrets in log records: in the message, the exception, the stack, names, and `extra`.

    The name of a part of `extra` counts as a field name.

    Add this filter to each handler (`handler.addFilter(guard.LogFilter(my_guard))`). A filter of a logger does not see
    the records of its child loggers.

    Args:
        guard: the guard whose rules and handles apply; only the default rules if left out.

    Raises:
        UsageError: `guard` is not a Guard.
    """

    def __init__(self, guard: Guard | None = None) -> None:
        super().__init__()
        if guard is not None and not isinstance(guard, Guard):
            message = f"guard must be a statelog.Guard, not {type(guard).__name__}"
            raise UsageError(message, argument="guard")
        used = Guard() if guard is None else guard
        self._redactor: Redactor = used.redactor()

    def filter(self, record: logging.LogRecord) -> bool:
        """Redact a record. Return True, so that every record is logged."""
        try:
            message = record.getMessage()
        except Exception as error:  # noqa: BLE001 - arguments that do not fit, which logging reports with their values
            message = f"a log record whose arguments do not match its format ({type(error).__name__})"
        record.msg, record.args = self._shown(message), None
        if record.exc_info:
            record.exc_text = record.exc_text or _FORMATTER.formatException(record.exc_info)
            record.exc_info = None
        if record.exc_text:
            record.exc_text = self._shown(record.exc_text)
        if record.stack_info:
            record.stack_info = self._shown(record.stack_info)
        for name, value in [*vars(record).items()]:
            is_plain = name in _PLAIN
            if name in _DONE or (type(value) in _NUMBERS and (is_plain or not self._redactor.names_field((name,)))):
                continue
            setattr(record, name, self._shown(str(value)) if is_plain else self._shown_extra(name, value))
        return True

    def _shown_extra(self, name: str, value: object) -> object:
        """Redact a part of `extra`, whose name may make its value a secret."""
        if self._redactor.names_field((name,)):
            return value if value is None else "[REDACTED]"
        before = f"{name}="
        shown = self._shown(f"{before}{value}")
        return shown.removeprefix(before) if shown.startswith(before) else self._shown(str(value))

    def _shown(self, text: str) -> str:
        return self._redactor.shown(text)
