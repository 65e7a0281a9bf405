"""Helpers that commit from several threads and make commits fail."""

import threading
import time


class Holder:
    """Holds the writer lock in another thread, so that others queue up."""

    def __init__(self, committer):
        self._go_on = threading.Event()
        self._started = threading.Event()
        self._thread = threading.Thread(target=committer.submit, args=(self._work,))
        self._thread.start()
        self._started.wait()

    def _work(self, _transaction):
        self._started.set()
        self._go_on.wait()

    def release(self):
        self._go_on.set()
        self._thread.join()


class Caller(threading.Thread):
    """Submits one work in a thread, and keeps its outcome."""

    def __init__(self, committer, work):
        super().__init__()
        self.result = self.error = None
        self._committer = committer
        self._work = work
        queued = len(committer.queue.requests)
        self.start()
        while len(committer.queue.requests) == queued:
            time.sleep(0.0005)

    def run(self):
        try:
            self.result = self._committer.submit(self._work)
        except BaseException as error:  # noqa: BLE001 - kept for the test to judge
            self.error = error


def fail(error):
    def action():
        raise error

    return action
