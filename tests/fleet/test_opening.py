"""Storages by their URL, and the probe that detects incorrect ones."""

from __future__ import annotations

import sys
import time
from threading import Lock

import pytest

from statelog.errors import NotFoundError, RemoteError, UnsafeStorageError, UsageError
from statelog.fleet.archive import Archive, Outcome, StoredObject
from statelog.fleet.storage_urls import open_archive, probe

_GAP_S = 0.01
"""The time between the check of a condition and the change, in which others can win a race."""


class Memory(Archive):
    """A correct storage, each step of which can be made incorrect."""

    has_create = has_swap = is_atomic = True

    def __init__(self):
        self.objects = {}
        self.count = 0
        self.lock = Lock()

    def read(self, name):
        return self.objects.get(name)

    def look(self, name):
        found = self.read(name)
        return found and found.token

    def create(self, name, data):
        return self.put(name, data, lambda: self.has_create and name in self.objects)

    def swap(self, name, data, token):
        return self.put(name, data, lambda: self.has_swap and self.look(name) != token)

    def put(self, name, data, is_refused):
        if self.is_atomic:
            with self.lock:
                return Outcome.REFUSED if is_refused() else self.replace(name, data)
        if is_refused():
            return Outcome.REFUSED
        time.sleep(_GAP_S)
        with self.lock:
            return self.replace(name, data)

    def replace(self, name, data):
        self.count += 1
        self.objects[name] = StoredObject(data, str(self.count))
        return str(self.count)

    def names(self, prefix):
        return sorted(name for name in self.objects if name.startswith(prefix))

    def remove(self, names):
        for name in names:
            self.objects.pop(name, None)

    def ages(self, prefix):
        return dict.fromkeys(self.names(prefix), 0.0)

    def close(self):
        pass


class PutsAlways(Memory):
    has_create = has_swap = False


class SwapsAlways(Memory):
    has_swap = False


class LosesRaces(Memory):
    is_atomic = False


class LosesRacesToSwap(Memory):
    def create(self, name, data):
        with self.lock:
            return Outcome.REFUSED if name in self.objects else self.replace(name, data)

    def swap(self, name, data, token):
        self.is_atomic = False
        return super().swap(name, data, token)


class SaysRefusedAndPuts(Memory):
    def create(self, name, data):
        is_there = name in self.objects
        token = self.replace(name, data)
        return Outcome.REFUSED if is_there else token


class ShowsOldTokens(Memory):
    def look(self, name):
        return "always the same" if name in self.objects else None

    def swap(self, name, data, token):
        return self.put(name, data, lambda: self.read(name) is None or self.read(name).token != token)


class AnswersNothing(Memory):
    def put(self, *_):
        return Outcome.UNKNOWN


class LosesAnswers(Memory):
    """A correct storage that loses every third answer."""

    def put(self, name, data, is_refused):
        answer = super().put(name, data, is_refused)
        return Outcome.UNKNOWN if isinstance(answer, str) and int(answer) % 3 == 0 else answer


@pytest.mark.parametrize(
    ("kind", "ignored"),
    [
        (PutsAlways, "create twice"),
        (SwapsAlways, "stale swap"),
        (LosesRaces, "creating in a race"),
        (LosesRacesToSwap, "swapping in a race"),
        (SaysRefusedAndPuts, "create twice"),
        (ShowsOldTokens, "look"),
    ],
)
def test_the_probe_detects_a_storage_that_ignores_conditions(kind, ignored):
    storage = kind()
    with pytest.raises(UnsafeStorageError, match="two writers") as caught:
        probe(storage)
    assert caught.value.probe == ignored
    assert storage.objects == {}, "what it was probed with is removed"


@pytest.mark.parametrize("kind", [Memory, LosesAnswers])
def test_a_correct_storage_passes_the_probe_even_if_it_loses_answers(kind):
    storage = kind()
    probe(storage)
    assert storage.objects == {}


def test_a_storage_that_stores_nothing_fails_the_probe():
    with pytest.raises(RemoteError):
        probe(AnswersNothing())


@pytest.mark.parametrize("url", ["ftp://host/path", "s3:bucket", "/var/lib/fleet", "", None, 5, "memory:///"])
def test_an_unknown_scheme_is_refused_by_naming_the_known_ones(url):
    with pytest.raises(UsageError, match=r"s3://, gs://, az://, postgresql:// and file://") as caught:
        open_archive(url)
    assert (caught.value.argument, caught.value.value) == ("url", str(url))


@pytest.mark.parametrize(
    ("url", "package", "extra"),
    [
        ("s3://bucket", "obstore", r"statelog\[fleet\]"),
        ("gs://bucket", "obstore", r"statelog\[fleet\]"),
        ("az://bucket", "obstore", r"statelog\[fleet\]"),
        ("postgresql://host/database", "psycopg", r"statelog\[fleet-postgres\]"),
    ],
)
def test_a_missing_package_is_named_with_its_extra(monkeypatch, url, package, extra):
    for module in ("statelog.fleet.buckets", "statelog.fleet.postgres"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    for module in [each for each in sys.modules if each.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UsageError, match=extra):
        open_archive(url)


def test_a_folder_is_opened_by_its_path(tmp_path):
    folder = tmp_path / "with space"
    folder.mkdir()
    for url in (f"file://{tmp_path}/with%20space", f"file://localhost{tmp_path}/with space"):
        open_archive(url).create("s/head", b"")
    assert (folder / "s" / "head").read_bytes() == b""


@pytest.mark.parametrize("url", ["file://host/path", "file://relative", "file:///path?query", "file:///path#part"])
def test_a_folder_of_another_host_or_without_a_path_is_refused(url):
    with pytest.raises(UsageError, match="file:///path"):
        open_archive(url)


def test_a_missing_folder_is_not_created(tmp_path):
    with pytest.raises(NotFoundError, match="create it first") as caught:
        open_archive(f"file://{tmp_path}/absent")
    assert caught.value.path == f"{tmp_path}/absent"
    assert not (tmp_path / "absent").exists()


def test_an_option_for_a_folder_is_refused(tmp_path):
    with pytest.raises(UsageError, match="'region'"):
        open_archive(f"file://{tmp_path}", region="us-east-1")
