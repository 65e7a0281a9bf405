"""Collects exceptions that reach no caller: uncaught ones of OS threads, and those in the library's log."""

from __future__ import annotations

import logging
import threading
import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


class _Listener(logging.Handler):
    """Collects the exceptions that the library logs, because they reach no caller."""

    def __init__(self, heard: list[str]) -> None:
        super().__init__()
        self._heard = heard

    def emit(self, record: logging.LogRecord) -> None:
        """Collect the exception of a log record, if it has one."""
        if record.exc_info and record.exc_info[0] is not None:
            self._heard.append(f"{record.getMessage()}\n{''.join(traceback.format_exception(*record.exc_info))}")


@contextmanager
def listening() -> Iterator[list[str]]:
    """Yield a list that collects uncaught exceptions of OS threads and exceptions in the library's log."""
    heard: list[str] = []
    hook, threading.excepthook = threading.excepthook, lambda args: heard.append(_told(args))
    logger, noisy, listener = logging.getLogger("statelog"), logging.getLogger("langgraph"), _Listener(heard)
    logger.addHandler(listener)
    level = noisy.level
    noisy.setLevel(logging.ERROR)  # Suppress LangGraph's warnings about types that are not allowed.
    try:
        yield heard
    finally:
        noisy.setLevel(level)
        logger.removeHandler(listener)
        threading.excepthook = hook


def _told(args: Any) -> str:
    return "".join(traceback.format_exception(args.exc_type, args.exc_value, args.exc_traceback))
