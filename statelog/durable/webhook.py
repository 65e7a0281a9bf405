"""Webhooks: messages are sent to a URL with a signature, so that the receiver can verify their origin and time.

Signatures follow the Standard Webhooks specification. `send` sends a message once. The caller decides whether and when
to send it again; the error says what the receiver asked for. A `Webhook` has a secret, so it is never stored.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import importlib.util
import json
import math
import re
import socket
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from datetime import UTC, date, datetime, time
from email.utils import parsedate_to_datetime
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, unquote, urlsplit

from statelog.board.names import compile_pattern
from statelog.durable.keys import text_digest
from statelog.errors import LimitError, UsageError, WebhookError

if TYPE_CHECKING:
    import ssl

_SECRET_PREFIX = "whsec_"  # noqa: S105 - this is the prefix of secrets, not a secret
_SECRET_BYTES = range(24, 65)
_ID = re.compile(r"[!-\-/-~]{1,256}")
"""Visible ASCII characters except the full stop, which separates the parts of the signed text."""
_ANSWER_BYTES_MAX = 1024
_QUOTED_CHARACTERS_MAX = 200
_TIMEOUT_S_MAX = 3600.0


class Webhook:
    """A URL to which messages are sent, each with a signature.

    Args:
        url: an `http` or `https` URL. A user and password in it are sent as basic authentication.
        secret: `whsec_` and the base64 form of 24 to 64 bytes, or these bytes. To change a secret, pass several secrets
            separated by a space: each message is signed with all of them.
        topics: patterns of the topics to send. `*` stands for text within a segment, `**` for any number of segments.
            A topic that begins with `durable/` fits only patterns that begin with `durable/`.
        timeout_s: the maximum duration of an exchange, from the connection to the answer, in seconds.

    Raises:
        UsageError: an argument is not valid, or `httpx2` is not installed. Facts: argument, value (never a secret).
    """

    def __init__(
        self, url: str, secret: str | bytes, *, topics: Sequence[str] = ("**",), timeout_s: float = 10.0
    ) -> None:
        parts = _split_url(url)
        host = parts.netloc.rpartition("@")[2]
        self._target = parts._replace(netloc=host, fragment="").geturl()
        self._login = (unquote(parts.username or ""), unquote(parts.password or "")) if "@" in parts.netloc else None
        self._keys = _keys_of(secret)
        self._patterns = patterns_of(topics)
        self.digest = text_digest(f"{self._login} {self._target}")
        """The digest under which the store records messages sent to this webhook. The store does not keep the URL."""
        self._certificates: ssl.SSLContext | None = None
        self.url = parts._replace(netloc=host, query="", fragment="").geturl()
        """The URL without user, password and query. It may be shown."""
        self.topics = tuple(topics)
        self.timeout_s = _checked_timeout(timeout_s)
        if importlib.util.find_spec("httpx2") is None:
            message = "webhooks need httpx2: pip install 'statelog[webhook]'"
            raise UsageError(message, argument="url", value=self.url)

    def __repr__(self) -> str:
        return f"Webhook({self.url!r}, topics={self.topics!r})"

    def fits(self, topic: str) -> bool:
        """Return True if messages of a topic are sent to this webhook."""
        return any(pattern.fits(topic) for pattern in self._patterns)

    def send(self, message: Mapping[str, Any], *, id: str, now_s: float) -> None:
        """Send a message once. Return when the receiver has accepted it.

        Args:
            message: a dict with exactly `type`, `timestamp` and `data`; see `body_of`.
            id: the id of the message, the same in each delivery: 1 to 256 visible ASCII characters without a full stop.
            now_s: the time for the signature, in seconds since 1970.

        Raises:
            WebhookError: there was no answer with a status of 200 to 299 within the timeout.
            UsageError: the message or its id is not valid. Facts: argument, value.
        """
        if not isinstance(message, Mapping) or set(message) != {"type", "timestamp", "data"}:
            text = "a message must have type, timestamp and data, and no other fields"
            raise UsageError(text, argument="message", value=message)
        body = body_of(message["type"], message["timestamp"], message["data"])
        headers = {
            "content-type": "application/json",
            "accept-encoding": "identity",  # The beginning of a refusal is quoted, so it must not be compressed.
            "user-agent": "statelog",
            **_signed(self._keys, id, now_s, body),
        }
        exchange = _Exchange(self._client_options(), self._target, headers, body)
        exchange.start()
        try:
            exchange.join(self.timeout_s)
        finally:  # This also ends the exchange after an interrupt.
            exchange.end()
        if exchange.bug is not None:
            raise exchange.bug
        if exchange.status is None or not 200 <= exchange.status < 300:
            raise self._refusal(exchange, now_s)

    def _refusal(self, exchange: _Exchange, now_s: float) -> WebhookError:
        status = exchange.status
        reason = exchange.failure or f"no answer within {self.timeout_s:g} s"
        if status is not None:
            redirected = ", and redirects are not followed" if 300 <= status < 400 else ""
            reason = f"answered {status}{redirected}{exchange.quotation}"
        return WebhookError(
            f"{self.url}: {reason}",
            url=self.url,
            status=status,
            reason=reason,
            retry_after_s=_retry_after_s(exchange.retry_after, now_s),
            is_final=status == 410,
        )

    def _client_options(self) -> dict[str, Any]:
        if self._certificates is None:  # Certificates are read only once, because this takes longer than an exchange.
            import httpx2

            self._certificates = httpx2.create_ssl_context()
        return {"verify": self._certificates, "timeout": self.timeout_s, "auth": self._login}


class _Exchange(Thread):
    """One request and its answer, in a separate thread.

    A socket timeout starts again with each byte, and name lookups do not have a timeout. So the caller waits for this
    thread with its own timeout, and then closes the connection.
    """

    def __init__(self, options: Mapping[str, Any], url: str, headers: Mapping[str, str], body: bytes) -> None:
        super().__init__(name="statelog-webhook", daemon=True)
        self._options = options
        self._request: dict[str, Any] = {
            "url": url,
            "headers": headers,
            "content": body,
            "extensions": {"trace": self._follow},
        }
        self._lock = Lock()
        self._connection: socket.socket | None = None
        self._is_over = False
        self.status: int | None = None
        self.retry_after: str | None = None
        self.quotation = ""
        """The beginning of the text with which the receiver has refused the message."""
        self.failure = ""
        """The reason why there was no answer; empty after a timeout."""
        self.bug: Exception | None = None

    def run(self) -> None:
        try:
            self._exchange()
        except Exception as error:  # noqa: BLE001 - the waiting thread raises the error
            if not self._is_over:
                self.bug = error

    def _exchange(self) -> None:
        import httpx2

        try:
            with (
                httpx2.Client(follow_redirects=False, **self._options) as client,
                client.stream("POST", **self._request) as response,
            ):
                self.retry_after = response.headers.get("retry-after")
                self.status = response.status_code
                if not response.is_success:
                    self.quotation = _quoted(next(response.iter_raw(_ANSWER_BYTES_MAX), b""))
        except (httpx2.TimeoutException, TimeoutError):
            return
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            if not self._is_over:
                self.failure = f"{type(error).__name__}: {error}"

    def _follow(self, event: str, facts: Mapping[str, Any]) -> None:
        """Duplicate the socket when the connection is open, so that `end` can close the connection."""
        if not event.endswith("connect_tcp.complete"):
            return
        stream = facts["return_value"]
        with self._lock:
            if self._is_over:  # The caller no longer waits, so nothing may be sent.
                stream.close()
                raise TimeoutError
            self._connection = stream.get_extra_info("socket").dup()  # TLS detaches the original socket.

    def end(self) -> None:
        """Close the connection, even during the exchange."""
        with self._lock:
            self._is_over = True
            if self._connection is not None:
                with suppress(OSError):  # The receiver may have closed the connection.
                    self._connection.shutdown(socket.SHUT_RDWR)
                self._connection.close()


def body_of(topic: str, time: datetime | str, data: Any) -> bytes:
    """Return the body of a message as JSON. The same message always gives the same bytes, so it can be sent again.

    Values that JSON does not have are converted: bytes to base64, times to ISO 8601, NaN and infinities to their names,
    sets to sorted lists, and dict keys and all other values to strings.

    Raises:
        UsageError: `topic` is not a non-empty str, or `time` is neither a str nor a timezone-aware datetime. Facts:
            argument, value.
    """
    if not isinstance(topic, str) or not topic:
        message = f"the type of a message must be a non-empty str, not {topic!r}"
        raise UsageError(message, argument="type", value=topic)
    if isinstance(time, datetime) and time.utcoffset() is not None:
        time = time.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if not isinstance(time, str):
        message = f"the timestamp of a message must be a datetime with a time zone, or a str, not {time!r}"
        raise UsageError(message, argument="timestamp", value=time)
    return _encode({"type": topic, "timestamp": time, "data": _shown(data)})


def _encode(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode("ascii")


def _shown(value: Any) -> Any:
    """Return the JSON form of a value."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(float(value))
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, Mapping):
        pairs = sorted(((_key(key), _shown(each)) for key, each in value.items()), key=_order)
        return dict(pairs)
    if isinstance(value, AbstractSet):
        return sorted((_shown(each) for each in value), key=_encode)
    if isinstance(value, Iterable):
        return [_shown(each) for each in value]
    return str(value)


def _key(key: Any) -> str:
    shown = _shown(key)
    return shown if isinstance(shown, str) else _encode(shown).decode("ascii")


def _order(pair: tuple[str, Any]) -> tuple[str, bytes]:
    return pair[0], _encode(pair[1])


def _signed(keys: Sequence[bytes], id: str, now_s: float, body: bytes) -> dict[str, str]:
    """Return the headers of a message, with its signatures. Raises UsageError."""
    if not isinstance(id, str) or not _ID.fullmatch(id):
        message = f"the id of a message must be 1 to 256 visible ASCII characters without a full stop, not {id!r}"
        raise UsageError(message, argument="id", value=id)
    timestamp = str(math.floor(now_s))
    signed = f"{id}.{timestamp}.".encode("ascii") + body
    signatures = (base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode("ascii") for key in keys)
    return {
        "webhook-id": id,
        "webhook-timestamp": timestamp,
        "webhook-signature": " ".join(f"v1,{signature}" for signature in signatures),
    }


def _split_url(url: str) -> SplitResult:
    """Return the parts of a URL. Raises UsageError if it is not valid. The error message omits the password."""
    if not isinstance(url, str):
        message = f"url must be a str, not {type(url).__name__}"
        raise UsageError(message, argument="url", value=None)
    with suppress(ValueError):
        parts = urlsplit(url)
        is_port = parts.port != 0  # This raises ValueError if the port is not valid.
        if (
            parts.scheme in ("http", "https")
            and parts.hostname
            and is_port
            and not re.search(r"[\s\x00-\x1f\x7f]", url)
        ):
            return parts
    scheme, colon, rest = url.partition("://")
    shown = f"{scheme}://" if colon else ""
    shown += re.split(r"[?#]", (rest if colon else url).rpartition("@")[2])[0]
    message = f"url {shown!r} is not an http or https URL with a host"
    raise UsageError(message, argument="url", value=shown)


def _keys_of(secret: str | bytes) -> list[bytes]:
    if isinstance(secret, str) and secret.strip():
        keys = [_decoded(text) for text in secret.split()]
    elif isinstance(secret, bytes) and not secret.startswith(_SECRET_PREFIX.encode("ascii")):
        keys = [secret]
    else:
        message = f"secret must be a str, '{_SECRET_PREFIX}' followed by base64, or the decoded bytes"
        raise UsageError(message, argument="secret")
    for key in keys:
        if len(key) not in _SECRET_BYTES:
            message = f"secret has {len(key)} bytes: {_SECRET_BYTES[0]} to {_SECRET_BYTES[-1]} are allowed"
            raise UsageError(message, argument="secret", size=len(key))
    return keys


def _decoded(text: str) -> bytes:
    """Return the bytes of a secret. Raises UsageError if it is not valid. The error message omits the secret."""
    if text.startswith(_SECRET_PREFIX):
        encoded = text.removeprefix(_SECRET_PREFIX).rstrip("=")
        with suppress(binascii.Error, ValueError):
            return base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    message = f"secret must be '{_SECRET_PREFIX}' followed by base64"
    raise UsageError(message, argument="secret")


def patterns_of(topics: Sequence[str]) -> list[Any]:
    """Return the compiled patterns of topics. Raises UsageError if they are not valid."""
    is_sequence = isinstance(topics, Sequence) and not isinstance(topics, (str, bytes))
    if not is_sequence or not topics or not all(isinstance(topic, str) for topic in topics):
        message = f"topics must be a non-empty sequence of patterns, not {topics!r}"
        raise UsageError(message, argument="topics", value=topics)
    try:
        return [compile_pattern(topic) for topic in topics]
    except (UsageError, LimitError) as error:
        message = f"topics: {error}"
        raise UsageError(message, argument="topics", value=topics) from None


def _checked_timeout(timeout_s: float) -> float:
    is_number = isinstance(timeout_s, (int, float)) and not isinstance(timeout_s, bool)
    if not is_number or not 0 < timeout_s <= _TIMEOUT_S_MAX:
        message = f"timeout_s must be a positive number of seconds, at most {_TIMEOUT_S_MAX:g}, not {timeout_s!r}"
        raise UsageError(message, argument="timeout_s", value=timeout_s)
    return float(timeout_s)


def _retry_after_s(header: str | None, now_s: float) -> float | None:
    """Return how many seconds a receiver asks to wait. Return None if the header has neither seconds nor a date."""
    text = (header or "").strip()
    if re.fullmatch(r"[0-9]{1,9}", text):
        return float(text)
    with suppress(ValueError, TypeError, OverflowError):
        moment = parsedate_to_datetime(text)
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return max(0.0, moment.timestamp() - now_s)
    return None


def _quoted(beginning: bytes) -> str:
    """Return the beginning of an answer as one printable line of at most 200 characters, after a colon."""
    text = beginning[:_ANSWER_BYTES_MAX].decode("utf-8", "replace")
    line = " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())
    return f": {line[:_QUOTED_CHARACTERS_MAX]}" if line else ""
