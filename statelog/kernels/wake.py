"""The wake word: a sequence in shared memory that processes wait on."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from statelog._kernels import lib
from statelog.kernels.calling import ABSENT, OK, USAGE, fail, from_buffer, new

if TYPE_CHECKING:
    from collections.abc import Callable

_NANOSECONDS: Final = 1_000_000_000
_WAIT_S_MAX: Final = 1e9

_wake_notify: Callable[..., int] = lib.sl_wake_notify
_wake_read: Callable[..., int] = lib.sl_wake_read
_wake_wait: Callable[..., int] = lib.sl_wake_wait


def _wake_word(buffer: Any) -> Any:
    word = from_buffer("uint32_t[]", buffer, require_writable=True)
    if len(word) < 2:
        fail(USAGE, "wake word of 8 bytes")
    return word


def wake_notify(address_buffer: Any) -> None:
    """Raise the sequence of a wake word and wake who waits, in any process.

    Args:
        address_buffer: 8 writable bytes, aligned to 4, such as a shared mmap.
    """
    status = _wake_notify(_wake_word(address_buffer))
    if status != OK:
        fail(status, "wake word, which is aligned to 4")


def wake_read(address_buffer: Any) -> int:
    """Return the sequence of a wake word."""
    sequence = new("uint32_t *")
    status = _wake_read(_wake_word(address_buffer), sequence)
    if status != OK:
        fail(status, "wake word, which is aligned to 4")
    value: int = sequence[0]
    return value


def wake_wait(address_buffer: Any, seen: int, timeout_s: float) -> bool:
    """Wait until the sequence of a wake word is no longer ``seen``.

    Returns:
        Whether it moved on within ``timeout_s`` seconds. Signal handlers run in the meantime.
    """
    word = _wake_word(address_buffer)
    deadline_ns = time.monotonic_ns() + int(min(timeout_s, _WAIT_S_MAX) * _NANOSECONDS)
    while True:
        left_ns = max(deadline_ns - time.monotonic_ns(), 0)
        status = _wake_wait(word, seen, left_ns)
        if status == OK or (status == ABSENT and left_ns == 0):
            return status == OK
        if status != ABSENT:
            fail(status, "wake word, which is aligned to 4")
