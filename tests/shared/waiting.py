"""Waiting for another thread or process, and measuring how late a busy machine wakes threads."""

import threading
import time
from contextlib import contextmanager


def until(is_so, within_s=60):
    """Return once `is_so` returns true. Raise AssertionError if that takes longer than a busy machine needs."""
    deadline = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@contextmanager
def beating(pause_s):
    """Yield a list to which an OS thread appends the time after every pause, as a baseline for time limits.

    A tested thread that sleeps for `pause_s` wakes as late as this one on a busy machine.
    """
    beats, ended = [time.monotonic()], threading.Event()

    def beat():
        while not ended.wait(pause_s):
            beats.append(time.monotonic())

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        yield beats
    finally:
        ended.set()
        thread.join()
