"""Buckets of S3, Google Cloud, Azure and compatible services as a storage, through obstore.

Writes use conditional HTTP requests: put if absent, put if the ETag matches. Two objects with equal bytes may have the
same token, which is an MD5 on S3. This is safe because a head never returns to earlier bytes.

obstore retries a request after a server error or a lost connection, and a read also after a
timeout. If the first attempt to create an object has succeeded, the retry reports that the object
exists, and the caller compares the bytes (DESIGN.md F6).
"""

from __future__ import annotations

import os
import re
import secrets
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import obstore
from obstore import exceptions
from obstore.store import from_url

from statelog.errors import (
    AccessError,
    ClosedError,
    ForkedError,
    NotFoundError,
    RemoteError,
    StatelogError,
    UnsafeStorageError,
    UsageError,
)
from statelog.fleet.archive import Archive, Outcome, StoredObject
from statelog.redaction import redact_error, redacted_url

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from obstore.store import ClientConfig, ObjectStore, RetryConfig

_CLIENT_OPTIONS = {
    "allow_http", "allow_invalid_certificates", "connect_timeout", "proxy_url", "root_certificate", "timeout",
}  # fmt: skip
"""Options of the HTTP client. All other options configure the storage."""

_RETRIES: RetryConfig = {
    "max_retries": 4,
    "retry_timeout": timedelta(seconds=20),
    "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=2), "base": 2},
}

_ENVIRONMENT = {"s3": "AWS", "gs": "GOOGLE", "az": "AZURE"}
_READERS_MAX = 16
_REMOVED_AT_ONCE_MAX = 1000
_CLOCK = "%clock/"
"""The prefix of objects that are put only to read the storage's clock.

No store's folder has this name, because `%cl` is not valid percent-encoding.
"""

_NO_BUCKET = re.compile(
    r"NoSuchBucket|ContainerNotFound|specified (?:bucket|container) does not exist|notFound.{0,40}bucket", re.IGNORECASE
)
_NO_ACCESS = re.compile(
    r"\b40[13] (?:Unauthorized|Forbidden)|AccessDenied|ExpiredToken|InvalidToken"
    r"|InvalidAccessKeyId|SignatureDoesNotMatch"
)
_NO_CREDENTIALS = re.compile(r"169\.254\.169\.254|metadata\.google\.internal|MissingAccount|Account must be specified")
_NO_CONDITIONS = re.compile(r"\b501 Not Implemented|<Code>NotImplemented")
_QUERY = re.compile(r"\?[^\s\"]*")
_MESSAGE_MAX = 300


class BucketArchive(Archive):
    """Objects in a bucket, or under a prefix of it.

    Args:
        url: `s3://bucket/prefix`, `gs://bucket/prefix` or `az://container/prefix`.
        options: options of obstore: `endpoint`, `region`, `access_key_id` and so on. They override
            the environment (`AWS_...`, `GOOGLE_...`, `AZURE_...`).

    Raises:
        UsageError: the URL is invalid, or an option is unknown. Facts: argument, value.
    """

    def __init__(self, url: str, options: Mapping[str, Any] | None = None) -> None:
        self._shown = redacted_url(url)
        self._is_gcs = url.startswith("gs:")
        self._process_id = os.getpid()
        self._opened: ObjectStore | None = _open(url, options or {})
        self._readers = ThreadPoolExecutor(_READERS_MAX, "statelog-fleet-read")

    def read(self, name: str) -> StoredObject | None:
        """Return the object, or None if it does not exist."""
        return self._read(self._store, name)

    def _read(self, store: ObjectStore, name: str) -> StoredObject | None:
        with self._translating(), suppress(FileNotFoundError), self._seeing_the_bucket():
            got = obstore.get(store, name)
            return StoredObject(bytes(got.bytes()), self._token(got.meta))
        return None

    def look(self, name: str) -> str | None:
        """Return the token of an object, or None if it does not exist."""
        store = self._store
        with self._translating(), suppress(FileNotFoundError):
            return self._token(obstore.head(store, name))
        found = self.read(name)  # A response without a body does not show whether the bucket exists.
        return None if found is None else found.token

    def create(self, name: str, data: bytes) -> str | Outcome:
        """Create an object that does not exist. Return its token."""
        return self._put(name, data, "create")

    def swap(self, name: str, data: bytes, token: str) -> str | Outcome:
        """Replace an object that still has this token. Return the new token."""
        return self._put(name, data, {"version" if self._is_gcs else "e_tag": token})

    def names(self, prefix: str) -> list[str]:
        """Return the names that begin with a prefix, sorted."""
        return sorted(str(each["path"]) for each in self._listed(prefix))

    def names_after(self, prefix: str, after: str) -> list[str]:
        """Return the names that begin with a prefix and sort after a name. The bucket lists only these."""
        return sorted(str(each["path"]) for each in self._listed(prefix, after))

    def remove(self, names: Iterable[str]) -> None:
        """Remove objects. Missing objects are ignored."""
        store = self._store
        pending = [*names]
        with self._translating():
            for at in range(0, len(pending), _REMOVED_AT_ONCE_MAX):
                some = pending[at : at + _REMOVED_AT_ONCE_MAX]
                try:
                    with self._seeing_the_bucket():
                        obstore.delete(store, some)
                except FileNotFoundError:  # Some storages raise an error for a missing object.
                    for name in some:
                        with suppress(FileNotFoundError):
                            obstore.delete(store, name)

    def ages(self, prefix: str) -> dict[str, float]:
        """Return the age in seconds, by the storage's clock, of each object whose name begins with a prefix."""
        store = self._store
        put_at = {str(each["path"]): each["last_modified"] for each in self._listed(prefix)}
        clock = f"{_CLOCK}{secrets.token_hex(16)}"
        with self._translating():
            try:
                obstore.put(store, clock, b"", use_multipart=False)
                now = obstore.head(store, clock)["last_modified"]
            finally:
                self.remove([clock])
        return {name: max((now - at).total_seconds(), 0.0) for name, at in put_at.items()}

    def read_all(self, names: Sequence[str]) -> list[StoredObject | None]:
        """Return several objects, fetched in parallel."""
        # Access `_store` first: in a forked child, which has no reader threads, this raises.
        read = partial(self._read, self._store)
        return [*(self._readers.map(read, names) if len(names) > 1 else map(read, names))]

    def close(self) -> None:
        """Close the connections."""
        self._opened = None
        self._readers.shutdown(wait=False)

    @property
    def _store(self) -> ObjectStore:
        if os.getpid() != self._process_id:
            message = f"{self._shown} was opened before this process was forked: open it again in the child"
            raise ForkedError(message, url=self._shown)
        if self._opened is None:
            raise ClosedError(f"{self._shown} was closed", url=self._shown)
        return self._opened

    def _put(self, name: str, data: bytes, mode: Any) -> str | Outcome:
        store = self._store
        try:
            with self._translating(), self._seeing_the_bucket():
                return self._token(obstore.put(store, name, data, mode=mode, use_multipart=False))
        except RemoteError as error:
            is_refused = isinstance(error.__cause__, exceptions.AlreadyExistsError | exceptions.PreconditionError)
            return Outcome.REFUSED if is_refused else Outcome.UNKNOWN
        except FileNotFoundError:  # The object to swap does not exist.
            return Outcome.REFUSED

    def _listed(self, prefix: str, after: str | None = None) -> list[Any]:
        """Return the objects whose names begin with a prefix. obstore lists whole folders, so this filters them."""
        folder = prefix.rpartition("/")[0]
        with self._translating():
            listed = obstore.list(self._store, folder or None, offset=after, chunk_size=1000).collect()
        return [each for each in listed if each["path"].startswith(prefix)]

    def _token(self, meta: Any) -> str:
        token = meta["version" if self._is_gcs else "e_tag"]
        if not token:
            kind = "generation" if self._is_gcs else "ETag"
            message = f"{self._shown} returns no {kind} for objects, so objects cannot be replaced conditionally"
            raise RemoteError(message)
        return str(token)

    @contextmanager
    def _seeing_the_bucket(self) -> Iterator[None]:
        """Raise NotFoundError if an error in the block means that the bucket is missing, not only an object."""
        try:
            yield
        except (FileNotFoundError, exceptions.PreconditionError) as error:
            if _NO_BUCKET.search(str(error)):
                raise self._no_bucket() from error
            raise

    @contextmanager
    def _translating(self) -> Iterator[None]:
        """Translate errors of obstore."""
        try:
            yield
        except exceptions.BaseError as error:
            redact_error(error)
            raise self._translated(error) from error

    def _translated(self, error: exceptions.BaseError) -> StatelogError:
        text = str(error)
        told = _told(text)
        if isinstance(error, exceptions.InvalidPathError):
            return UsageError(f"an object in the storage cannot have this name: {told}", argument="name", value=told)
        if _NO_CREDENTIALS.search(text):
            return _no_credentials(self._shown, told)
        is_refused = isinstance(error, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError)
        if is_refused or _NO_ACCESS.search(text):
            return AccessError(f"{self._shown}: the credentials were rejected: {told}", url=self._shown)
        if _NO_BUCKET.search(text):
            return self._no_bucket()
        if isinstance(error, exceptions.NotSupportedError) or _NO_CONDITIONS.search(text):
            message = f"{self._shown} does not support conditional writes, so two writers could own one store: {told}"
            return UnsafeStorageError(message, probe="conditions", url=self._shown)
        return RemoteError(f"{self._shown}: {told}", url=self._shown)

    def _no_bucket(self) -> NotFoundError:
        return NotFoundError(f"{self._shown}: the bucket does not exist: create it first", url=self._shown)


def _open(url: str, options: Mapping[str, Any]) -> ObjectStore:
    settings: Any = {name: value for name, value in options.items() if name not in _CLIENT_OPTIONS}
    client: Any = {name: value for name, value in options.items() if name in _CLIENT_OPTIONS}
    if client or str(options.get("endpoint", "")).startswith("http:"):
        # The given options replace all of obstore's options from the environment.
        told = os.environ.get(f"{_ENVIRONMENT[url.partition(':')[0]]}_ALLOW_HTTP", "").lower() in {"1", "true"}
        client.setdefault("allow_http", told or str(options.get("endpoint", "")).startswith("http:"))
    given: ClientConfig | None = client or None
    try:
        return from_url(url, config=settings or None, client_options=given, retry_config=_RETRIES)
    except exceptions.UnknownConfigurationKeyError as error:
        raise UsageError(_told(str(error)), argument="options", value=sorted(options)) from error
    except (exceptions.BaseError, ValueError, TypeError) as error:
        error.args = (_told(str(error)),)
        redact_error(error)
        if _NO_CREDENTIALS.search(str(error)):
            raise _no_credentials(url, _told(str(error))) from error
        shown = redacted_url(url)
        message = f"{shown} cannot be opened: {_told(str(error))}"
        raise UsageError(message, argument="url", value=shown) from error


def _no_credentials(url: str, told: str) -> AccessError:
    where = f"the environment ({_ENVIRONMENT[url.partition(':')[0]]}_...), or the options"
    shown = redacted_url(url)
    return AccessError(f"{shown}: {where} must contain credentials, but has none: {told}", url=shown)


def _told(text: str) -> str:
    """Return the readable part of obstore's message.

    The result omits dumped structures, and the URL's query, which contains signatures.
    """
    return _QUERY.sub("", " ".join(text.partition("\n\nDebug source")[0].split()))[:_MESSAGE_MAX]
