from __future__ import annotations

import mmap
import os
import signal
import threading
import time

import pytest

from statelog import kernels
from statelog.errors import UsageError


def test_notify_moves_the_sequence_on():
    word = bytearray(8)
    kernels.wake_notify(word)
    kernels.wake_notify(word)
    assert kernels.wake_read(word) == 2


def test_sequence_wraps_around():
    word = bytearray(b"\xff\xff\xff\xff\0\0\0\0")
    kernels.wake_notify(word)
    assert kernels.wake_read(word) == 0


def test_wait_on_a_word_that_moved_on_returns_at_once():
    assert kernels.wake_wait(bytearray(8), 1, 60.0)


def test_wait_without_notify_times_out():
    word = bytearray(8)
    assert not kernels.wake_wait(word, 0, 0.02)
    assert not kernels.wake_wait(word, 0, 0.0)
    assert word == bytearray(8)


def test_notify_wakes_all_threads():
    word = bytearray(8)
    woken: list[bool] = []

    def wait():
        woken.append(kernels.wake_wait(word, 0, 600.0))

    threads = [threading.Thread(target=wait, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    while word[4] < 3:
        time.sleep(0.001)
    time.sleep(0.01)  # to be asleep, not on the way there
    kernels.wake_notify(word)
    for thread in threads:
        thread.join(10)
    assert woken == [True] * 3
    assert word[4] == 0


def test_notify_wakes_another_process():
    word = mmap.mmap(-1, 8)
    pid = os.fork()
    if pid == 0:
        os._exit(0 if kernels.wake_wait(word, 0, 30.0) else 1)
    while word[4] == 0:
        time.sleep(0.001)
    kernels.wake_notify(word)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_waiter_that_was_killed_does_not_disturb():
    word = mmap.mmap(-1, 8)
    pid = os.fork()
    if pid == 0:
        kernels.wake_wait(word, 0, 30.0)
        os._exit(0)
    while word[4] == 0:
        time.sleep(0.001)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    kernels.wake_notify(word)
    assert kernels.wake_wait(word, 0, 1.0)


@pytest.mark.slow
def test_signal_handlers_run_while_waiting():
    def handler(_number, _frame):
        message = "from the handler"
        raise InterruptedError(message)

    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.5)  # not before it waits, on a busy machine
        with pytest.raises(InterruptedError, match="from the handler"):
            kernels.wake_wait(bytearray(8), 0, 30.0)
    finally:
        signal.signal(signal.SIGALRM, before)


def test_word_too_small_is_a_usage_error():
    with pytest.raises(UsageError):
        kernels.wake_notify(bytearray(7))


def test_word_not_aligned_is_a_usage_error():
    with pytest.raises(UsageError):
        kernels.wake_notify(memoryview(bytearray(16))[1:9])
