"""Buckets that do not keep their conditions. A fleet refuses to connect to them."""

from __future__ import annotations

import secrets
import threading
import time
from contextlib import contextmanager

import pytest
from proxies import HttpProxy

from statelog.errors import UnsafeStorageError
from statelog.fleet import connect

_GAP_S = 0.02
"""The time between the check and the put, in which others can win a race."""


def without(headers, *gone):
    return {name: value for name, value in headers.items() if name.lower() not in gone}


class IgnoresAll(HttpProxy):
    """Ignores all conditions without an error."""

    def forward(self, method, path, headers, body):
        return super().forward(method, path, without(headers, "if-match", "if-none-match"), body)


class IgnoresOfUpdates(HttpProxy):
    """Checks that an object is missing, but not that it is a given one."""

    def forward(self, method, path, headers, body):
        return super().forward(method, path, without(headers, "if-match"), body)


class LosesRaces(HttpProxy):
    """Checks a condition and then puts, so that another can put in between."""

    kinds = ("if-match", "if-none-match")

    def forward(self, method, path, headers, body):
        conditions = {name.lower(): value for name, value in headers.items() if name.lower() in self.kinds}
        if method != "PUT" or not conditions:
            return super().forward(method, path, headers, body)
        status, found, _body = super().forward("HEAD", path, without(headers, *self.kinds, "content-length"), b"")
        tag = {name.lower(): value for name, value in found}.get("etag") if status == 200 else None
        if "if-none-match" in conditions and tag is not None:
            return 412, [], b"<Error><Code>PreconditionFailed</Code></Error>"
        if "if-match" in conditions and conditions["if-match"].strip('"') != (tag or "").strip('"'):
            return 412, [], b"<Error><Code>PreconditionFailed</Code></Error>"
        time.sleep(_GAP_S)
        return super().forward(method, path, without(headers, *self.kinds), body)


class LosesRacesOfUpdates(LosesRaces):
    """Is correct for new objects, but has the same race for updates."""

    kinds = ("if-match",)


class IsSound(LosesRaces):
    """Does the same, one request at a time."""

    def __init__(self, upstream):
        super().__init__(upstream)
        self._one = threading.Lock()

    def forward(self, method, path, headers, body):
        with self._one:
            return super().forward(method, path, headers, body)


@contextmanager
def connected(kind, buckets, cache):
    with kind(buckets["endpoint"]) as proxy:
        options = {**buckets, "endpoint": proxy.url}
        with connect(f"s3://tests/{secrets.token_hex(8)}", cache, **options) as fleet:
            yield fleet


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "ignored"),
    [
        (IgnoresAll, "create twice"),
        (IgnoresOfUpdates, "stale swap"),
        (LosesRaces, "creating in a race"),
        (LosesRacesOfUpdates, "swapping in a race"),
    ],
)
def test_connecting_to_a_bucket_that_ignores_conditions_is_refused(buckets, tmp_path, kind, ignored):
    with pytest.raises(UnsafeStorageError, match="two writers") as caught, connected(kind, buckets, tmp_path):
        pass
    assert caught.value.probe == ignored


@pytest.mark.slow
@pytest.mark.parametrize("kind", [HttpProxy, IsSound])
def test_connecting_to_a_bucket_that_checks_conditions_succeeds(buckets, tmp_path, kind):
    with connected(kind, buckets, tmp_path) as fleet:
        assert fleet.stores() == []
