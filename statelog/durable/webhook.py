"""Messages sent to a URL, signed by the Standard Webhooks specification: the receiver can tell who sent them, and when.

A message is sent once. Whether it is sent again, and when, is for who sends it: what is raised says what the receiver
asked for. A `Webhook` has a secret, so it is given to the process that sends, and never stored.
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

_SECRET_PREFIX = "whsec_"  # noqa: S105 - what secrets begin with, not one
_SECRET_BYTES = range(24, 65)
_ID = re.compile(r"[!-\-/-~]{1,256}")
"""Visible ASCII but for the full stop, which parts what is signed."""
_ANSWER_BYTES_MAX = 1024
_QUOTED_CHARACTERS_MAX = 200
_TIMEOUT_S_MAX = 3600.0


class Webhook:
    """A URL that messages are sent to, each with a signature.

    Args:
        url: of `http` or `https`; a user and password in it are sent as basic authentication.
        secret: `whsec_` and base64, or the bytes themselves, 24 to 64 of them. While it is being changed, several
            texts divided by a space: a message is signed with each.
        topics: patterns of what is sent: `*` within a segment, `**` for any number of segments. Topics that begin with
            `durable/` fit those patterns alone that begin so.
        timeout_s: how long an exchange may take, all of it.

    Raises:
        UsageError: one of them makes no sense, or `httpx2` is not installed. Facts: argument, value (but of secrets).
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
        """By which the store knows where messages have been sent: it keeps no URL."""
        self._certificates: ssl.SSLContext | None = None
        self.url = parts._replace(netloc=host, query="", fragment="").geturl()
        """Where messages go, without user, password and query: it may be shown."""
        self.topics = tuple(topics)
        self.timeout_s = _checked_timeout(timeout_s)
        if importlib.util.find_spec("httpx2") is None:
            message = "webhooks need httpx2: pip install 'statelog[webhook]'"
            raise UsageError(message, argument="url", value=self.url)

    def __repr__(self) -> str:
        return f"Webhook({self.url!r}, topics={self.topics!r})"

    def fits(self, topic: str) -> bool:
        """Whether messages of a topic are sent here."""
        return any(pattern.fits(topic) for pattern in self._patterns)

    def send(self, message: Mapping[str, Any], *, id: str, now_s: float) -> None:
        """Send a message, once, and return when it was taken.

        Args:
            message: what `body_of` makes a body of: type, timestamp and data, and nothing else.
            id: the same whenever the message is sent: receivers know by it what they had already.
            now_s: what the signature says that the time is, in seconds since 1970.

        Raises:
            WebhookError: anything but an answer of 200 to 299, within the time there is.
            UsageError: it is no message, or the id is none: visible ASCII without a full stop. Facts: argument, value.
        """
        if not isinstance(message, Mapping) or set(message) != {"type", "timestamp", "data"}:
            text = "a message has type, timestamp and data, and nothing else"
            raise UsageError(text, argument="message", value=message)
        body = body_of(message["type"], message["timestamp"], message["data"])
        headers = {
            "content-type": "application/json",
            "accept-encoding": "identity",  # of an answer little is read, and that as it is
            "user-agent": "statelog",
            **_signed(self._keys, id, now_s, body),
        }
        exchange = _Exchange(self._client_options(), self._target, headers, body)
        exchange.start()
        try:
            exchange.join(self.timeout_s)
        finally:  # also when interrupted
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
        if self._certificates is None:  # read once: it takes longer than an exchange
            import httpx2

            self._certificates = httpx2.create_ssl_context()
        return {"verify": self._certificates, "timeout": self.timeout_s, "auth": self._login}


class _Exchange(Thread):
    """One request and its answer, in a thread of its own.

    Timeouts of sockets begin anew with each byte, and names are looked up without any: who waits for this waits as long
    as it wants, and closes the connection then.
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
        """The beginning of a refusal, to be shown."""
        self.failure = ""
        """Why there was no answer, if not for the time it took."""
        self.bug: Exception | None = None

    def run(self) -> None:
        try:
            self._exchange()
        except Exception as error:  # noqa: BLE001 - raised by who waits
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
        """Keep hold of the connection, as soon as there is one."""
        if not event.endswith("connect_tcp.complete"):
            return
        stream = facts["return_value"]
        with self._lock:
            if self._is_over:  # who waited has gone: nothing is sent any more
                stream.close()
                raise TimeoutError
            self._connection = stream.get_extra_info("socket").dup()  # TLS takes the socket itself away

    def end(self) -> None:
        """Close the connection, whatever is being said over it."""
        with self._lock:
            self._is_over = True
            if self._connection is not None:
                with suppress(OSError):  # the other side has closed it
                    self._connection.shutdown(socket.SHUT_RDWR)
                self._connection.close()


def body_of(topic: str, time: datetime | str, data: Any) -> bytes:
    """Return the body of a message: JSON, the same bytes for the same message, so that it may be sent again.

    What JSON does not know is shown: bytes as base64, times in ISO 8601, NaN and infinities by their names, sets as
    sorted lists, keys and whatever else as text.

    Raises:
        UsageError: the topic is no text, or the time neither a datetime with a zone nor text. Facts: argument, value.
    """
    if not isinstance(topic, str) or not topic:
        message = f"the type of a message is a text of at least one character, not {topic!r}"
        raise UsageError(message, argument="type", value=topic)
    if isinstance(time, datetime) and time.utcoffset() is not None:
        time = time.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if not isinstance(time, str):
        message = f"the timestamp of a message is a datetime with a zone, or text, not {time!r}"
        raise UsageError(message, argument="timestamp", value=time)
    return _encode({"type": topic, "timestamp": time, "data": _shown(data)})


def _encode(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode("ascii")


def _shown(value: Any) -> Any:
    """Return what JSON knows in place of a value."""
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
    """Return the headers of a message."""
    if not isinstance(id, str) or not _ID.fullmatch(id):
        message = f"the id of a message is 1 to 256 visible ASCII characters without a full stop, not {id!r}"
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
    """Take a URL apart, and refuse what nothing can be sent to; what is shown of it has no password."""
    if not isinstance(url, str):
        message = f"url is a text, not {type(url).__name__}"
        raise UsageError(message, argument="url", value=None)
    with suppress(ValueError):
        parts = urlsplit(url)
        is_port = parts.port != 0  # or raises
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
    message = f"url {shown!r} is none of http or https with a host"
    raise UsageError(message, argument="url", value=shown)


def _keys_of(secret: str | bytes) -> list[bytes]:
    if isinstance(secret, str) and secret.strip():
        keys = [_decoded(text) for text in secret.split()]
    elif isinstance(secret, bytes) and not secret.startswith(_SECRET_PREFIX.encode("ascii")):
        keys = [secret]
    else:
        message = f"secret is a text, '{_SECRET_PREFIX}' and base64, or the bytes that this stands for"
        raise UsageError(message, argument="secret")
    for key in keys:
        if len(key) not in _SECRET_BYTES:
            message = f"secret has {len(key)} bytes: {_SECRET_BYTES[0]} to {_SECRET_BYTES[-1]} are allowed"
            raise UsageError(message, argument="secret", size=len(key))
    return keys


def _decoded(text: str) -> bytes:
    """Return the bytes of a secret. What is raised says nothing of it."""
    if text.startswith(_SECRET_PREFIX):
        encoded = text.removeprefix(_SECRET_PREFIX).rstrip("=")
        with suppress(binascii.Error, ValueError):
            return base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    message = f"secret is not '{_SECRET_PREFIX}' and base64"
    raise UsageError(message, argument="secret")


def patterns_of(topics: Sequence[str]) -> list[Any]:
    """Return the patterns of topics. Raises UsageError: they are none."""
    is_sequence = isinstance(topics, Sequence) and not isinstance(topics, (str, bytes))
    if not is_sequence or not topics or not all(isinstance(topic, str) for topic in topics):
        message = f"topics is a sequence of patterns, at least one, not {topics!r}"
        raise UsageError(message, argument="topics", value=topics)
    try:
        return [compile_pattern(topic) for topic in topics]
    except (UsageError, LimitError) as error:
        message = f"topics: {error}"
        raise UsageError(message, argument="topics", value=topics) from None


def _checked_timeout(timeout_s: float) -> float:
    is_number = isinstance(timeout_s, (int, float)) and not isinstance(timeout_s, bool)
    if not is_number or not 0 < timeout_s <= _TIMEOUT_S_MAX:
        message = f"timeout_s is a number of seconds above 0, at most {_TIMEOUT_S_MAX:g}, not {timeout_s!r}"
        raise UsageError(message, argument="timeout_s", value=timeout_s)
    return float(timeout_s)


def _retry_after_s(header: str | None, now_s: float) -> float | None:
    """Return how long a receiver asks to wait, None if it does not say so in seconds or by a date."""
    text = (header or "").strip()
    if re.fullmatch(r"[0-9]{1,9}", text):
        return float(text)
    with suppress(ValueError, TypeError, OverflowError):
        moment = parsedate_to_datetime(text)
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return max(0.0, moment.timestamp() - now_s)
    return None


def _quoted(beginning: bytes) -> str:
    """Return the beginning of an answer, as one line to show."""
    text = beginning[:_ANSWER_BYTES_MAX].decode("utf-8", "replace")
    line = " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())
    return f": {line[:_QUOTED_CHARACTERS_MAX]}" if line else ""
