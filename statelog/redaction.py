"""Redacts messages and output: hides passwords, keys and signatures in URLs, and secret values.

Every error of this library hides secrets of URLs in its message (`errors.py`). The command line hides them in errors of
other libraries. Code that has a complete URL uses `redacted_url`, because the end of a URL within a text is uncertain.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from logging import Logger, LogRecord

HIDDEN: Final = "***"
"""Replaces a secret in a URL."""

HIDDEN_VALUE: Final = "**********"
"""Replaces a secret value, as in pydantic."""

# The patterns are not compiled here, because most processes use none. `re` compiles and caches a pattern on first use.
_SCHEME = r"(?i)\s*(?:(?:file|sqlite):/{1,2}|[A-Za-z][A-Za-z0-9+.\-]*:/+)"
_URL_IN_TEXT = r"[A-Za-z][A-Za-z0-9+.\-]*:/[^\s'\"`<>]*[^\s'\"`<>:;,.)]"
_SETTING = (
    r"(?i)\b(\w*(?:password|passwd|pwd|secret|access_?key|account_?key|sas_?token|signature)\w*|sig)"
    r"(\s*=\s*)(?!\ue000)('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[^\s&;,'\"]*[^\s&;,'\":.)])"
)
_MARK = r"\[REDACTED [a-z0-9-]{1,40}(?: [0-9a-f]{8})?\]"
"""Matches a guard's redactions. While `redacted` searches a text, a number between two private characters replaces each
one.
"""
_NAMES_SECRET = r"(?i)secrets?(?:[-_]?(?:str|bytes))?(?:\[.*)?$"  # noqa: S105 - it is a pattern
_NAMES_CREDENTIAL = r"(?i)(?:key|token|password|passphrase|credentials?)$"
_HOST = r"(?:\[[^\]]*\]|[^:\[\]]*)(?::\d*)?"
_PLAIN_USER = r"[\w.%+\-]*"
_VALUE_OF_PARAMETER = r"=[^&;]*"

_hiders: list[Callable[[str], str]] = []


def hide_with(hide: Callable[[str], str]) -> None:
    """Register a function that `redacted` calls with each result, to hide further secrets."""
    if hide not in _hiders:
        _hiders.append(hide)


def hidden(text: str) -> str:
    """Redact the secrets in a text that the guards of this process know. URLs stay unchanged."""
    for hide in _hiders:
        text = hide(text)
    return text


def redacting_logger(name: str) -> Logger:
    """Return the logger called `name`. It redacts its messages and exceptions with `redacted`."""
    import logging

    logger = logging.getLogger(name)
    if _redact_record not in logger.filters:
        logger.addFilter(_redact_record)
    return logger


def _redact_record(record: LogRecord) -> bool:
    """Redact a log record in place if it shows a secret. Return True, because this filter drops no record.

    Log collectors group records by format and exception, so these stay unchanged if they show no secret.
    """
    import logging

    message = record.getMessage()
    shown = redacted(message)
    if shown != message:
        record.msg, record.args = shown, None
    if record.exc_info:
        text = logging.Formatter().formatException(record.exc_info)
        shown = redacted(text)
        if shown != text:
            record.exc_text, record.exc_info = shown, None
    return True


def redacted_url(url: object) -> str:
    """Return a URL for messages, without its password and its parameters' values, which may be secrets.

    The user name is kept if a password follows it, and in URLs of Postgres. In a malformed URL, more than the
    password may be hidden, because a password may contain `@`, `/`, `?`, `#` or spaces that are not percent-encoded.
    """
    if not isinstance(url, str):
        return redacted(repr(url))
    scheme = re.match(_SCHEME, url)
    if scheme is None:
        return _redacted_without_scheme(url)
    rest = url[scheme.end() :]
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    login = ""
    if "@" in rest and ("@" in authority or ":" in authority):
        login, _at, rest = rest.rpartition("@")
        login = f"{_shown_login(login, is_postgres=scheme[0].lstrip().lower().startswith('postgres'))}@"
    elif not scheme[0].lower().lstrip().startswith("http") and not all(
        re.fullmatch(_HOST, host) for host in authority.split(",")
    ):
        # This is a login without a host.
        return f"{scheme[0]}{authority.partition(':')[0]}:{HIDDEN}"
    place, mark, query = rest.partition("?")
    place, hash_sign, _fragment = place.partition("#")
    if hash_sign:
        return f"{scheme[0]}{login}{place}#{HIDDEN}"
    if mark:
        shown = re.sub(_VALUE_OF_PARAMETER, f"={HIDDEN}", query.partition("#")[0]) if "=" in query else HIDDEN
        return f"{scheme[0]}{login}{place}?{shown}"
    return f"{scheme[0]}{login}{place}"


def _redacted_without_scheme(url: str) -> str:
    """Redact a URL that lacks a scheme or its slashes, for messages. It may begin with a login."""
    login, at, rest = url.rpartition("@")
    if not at or ":" not in login or login.startswith(("/", ".", "~")):  # This is a path, not a login.
        return redacted(url)
    return f"{_shown_login(login, is_postgres=False)}@{redacted_url(rest)}"


def _shown_login(login: str, *, is_postgres: bool) -> str:
    user, colon, _password = login.partition(":")
    if not re.fullmatch(_PLAIN_USER, user):
        return HIDDEN
    if colon:
        return f"{user}:{HIDDEN}"
    return user if is_postgres else HIDDEN


def redacted(text: str) -> str:
    """Return `text` without the secrets in URLs and in settings such as `password=...`.

    The redactions of a guard stay: `password=[REDACTED field 3e4f5a6b]`.
    """
    if "[REDACTED " in text:
        marks = re.findall(_MARK, text)
        numbers = iter(range(len(marks)))
        shown = _redacted(re.sub(_MARK, lambda _found: f"\ue000{next(numbers)}\ue001", text))
        return re.sub("\ue000([0-9]{1,9})\ue001", lambda found: "".join(marks[int(found[1]) :][:1]), shown)
    return _redacted(text)


def _redacted(text: str) -> str:
    if ":/" in text:
        text = re.sub(_URL_IN_TEXT, lambda found: redacted_url(found[0]), text)
    if "=" in text:
        text = re.sub(_SETTING, rf"\1\2{HIDDEN}", text)
    return hidden(text)


def redact_error(error: BaseException) -> None:
    """Hide secrets in a different library's error, because a traceback shows this error as the cause of ours.

    A psycopg error also loses its reference to the connection, which has the password.
    """
    if hasattr(error, "_pgconn"):
        error._pgconn = None  # noqa: SLF001 - psycopg does the same when it pickles the error
    error.args = tuple(redacted(each) if isinstance(each, str) else each for each in error.args)


def names_secret(name: str) -> bool:
    """Return True if the name of a class or codec suggests a secret: `SecretStr`, `Secret[date]` or `app.secret`.

    When a value is shown in its stored form, only the name shows whether the value is a secret.
    """
    return re.search(_NAMES_SECRET, name) is not None


def names_credential(name: str) -> bool:
    """Return True if the name of a codec, or of a class that wraps one value, suggests a secret or a credential.

    `ApiKey` and `token`, for example, are names of credentials.
    """
    return names_secret(name) or re.search(_NAMES_CREDENTIAL, name) is not None
