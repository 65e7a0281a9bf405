"""A storage in memory that fails when a test wants it."""

from __future__ import annotations

import itertools
import threading
import time

from statelog.fleet.archive import Archive, Outcome, StoredObject


class MemoryArchive(Archive):
    """Keeps objects in a dict. `fail(request, name)` may raise, or return an Outcome instead of the result."""

    def __init__(self):
        self.objects = {}
        self.put_at = {}
        self.requests = []
        self.fail = lambda _request, _name: None
        self._lock = threading.Lock()
        self._tokens = map(str, itertools.count(1))

    def _asked(self, request, name):
        self.requests.append((request, name))
        return self.fail(request, name)

    def read(self, name):
        self._asked("read", name)
        return self.objects.get(name)

    def look(self, name):
        self._asked("look", name)
        found = self.objects.get(name)
        return None if found is None else found.token

    def create(self, name, data):
        refused = self._asked("create", name)
        if refused:
            return refused
        with self._lock:
            if name in self.objects:
                return Outcome.REFUSED
            return self._put(name, data)

    def swap(self, name, data, token):
        refused = self._asked("swap", name)
        if refused:
            return refused
        with self._lock:
            if name not in self.objects or self.objects[name].token != token:
                return Outcome.REFUSED
            return self._put(name, data)

    def _put(self, name, data):
        self.objects[name] = StoredObject(bytes(data), next(self._tokens))
        self.put_at[name] = time.time()
        return self.objects[name].token

    def names(self, prefix):
        self._asked("names", prefix)
        return sorted(name for name in self.objects if name.startswith(prefix))

    def ages(self, prefix):
        return {name: time.time() - self.put_at[name] for name in self.names(prefix)}

    def remove(self, names):
        for name in names:
            self.objects.pop(name, None)

    def close(self):
        pass
