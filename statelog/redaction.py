"""Secrets, hidden before anything is shown: passwords, keys and signatures of addresses, and values that are secrets.

Every error hides those of addresses in its message (`errors.py`), and the command line in what it prints of other
errors. Whoever has an address as a whole hides it with `redacted_url`: only then is it known where the address ends.
"""

from __future__ import annotations

import re
from typing import Final

HIDDEN: Final = "***"
"""What stands in the place of a secret of an address."""

HIDDEN_VALUE: Final = "**********"
"""What stands in the place of a value that is a secret, as pydantic shows it."""

_SCHEME = re.compile(r"\s*(?:(?:file|sqlite):/{1,2}|[A-Za-z][A-Za-z0-9+.\-]*:/+)", re.IGNORECASE)
_URL_IN_TEXT = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:/[^\s'\"`<>]*[^\s'\"`<>:;,.)]")
_SETTING = re.compile(
    r"(?i)\b(\w*(?:password|passwd|pwd|secret|access_?key|account_?key|sas_?token|signature)\w*|sig)"
    r"(\s*=\s*)('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[^\s&;,'\"]*[^\s&;,'\":.)])"
)
_NAMES_SECRET = re.compile(r"(?i)secrets?(?:[-_]?(?:str|bytes))?(?:\[.*)?$")
_NAMES_CREDENTIAL = re.compile(r"(?i)(?:key|token|password|passphrase|credentials?)$")
_HOST = re.compile(r"(?:\[[^\]]*\]|[^:\[\]]*)(?::\d*)?")
_PLAIN_USER = re.compile(r"[\w.%+\-]*")
_VALUE_OF_PARAMETER = re.compile(r"=[^&;]*")


def redacted_url(url: object) -> str:
    """Return an address for messages: without password and values of parameters, of which each may be a secret.

    The user stays if there is a password beside it, and in addresses of Postgres. Of an address that is written wrong
    rather too much is hidden: a password may have `@`, `/`, `?`, `#` or spaces in it that should be percent-encoded.
    """
    if not isinstance(url, str):
        return redacted(repr(url))
    scheme = _SCHEME.match(url)
    if scheme is None:
        return _redacted_without_scheme(url)
    rest = url[scheme.end() :]
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    login = ""
    if "@" in rest and ("@" in authority or ":" in authority):
        login, _at, rest = rest.rpartition("@")
        login = f"{_shown_login(login, is_postgres=scheme[0].lstrip().lower().startswith('postgres'))}@"
    elif not scheme[0].lower().lstrip().startswith("http") and not all(map(_HOST.fullmatch, authority.split(","))):
        # a login whose host was left out
        return f"{scheme[0]}{authority.partition(':')[0]}:{HIDDEN}"
    place, mark, query = rest.partition("?")
    place, hash_sign, _fragment = place.partition("#")
    if hash_sign:
        return f"{scheme[0]}{login}{place}#{HIDDEN}"
    if mark:
        shown = _VALUE_OF_PARAMETER.sub(f"={HIDDEN}", query.partition("#")[0]) if "=" in query else HIDDEN
        return f"{scheme[0]}{login}{place}?{shown}"
    return f"{scheme[0]}{login}{place}"


def _redacted_without_scheme(url: str) -> str:
    """Return a text for messages that should be an address: a login may begin it, with no scheme, or no slashes."""
    login, at, rest = url.rpartition("@")
    if not at or ":" not in login or login.startswith(("/", ".", "~")):  # the last: of a path
        return redacted(url)
    return f"{_shown_login(login, is_postgres=False)}@{redacted_url(rest)}"


def _shown_login(login: str, *, is_postgres: bool) -> str:
    user, colon, _password = login.partition(":")
    if not _PLAIN_USER.fullmatch(user):
        return HIDDEN
    if colon:
        return f"{user}:{HIDDEN}"
    return user if is_postgres else HIDDEN


def redacted(text: str) -> str:
    """Return a text without the secrets of addresses in it, and of settings such as `password=...`."""
    if ":/" in text:
        text = _URL_IN_TEXT.sub(lambda found: redacted_url(found[0]), text)
    if "=" in text:
        text = _SETTING.sub(rf"\1\2{HIDDEN}", text)
    return text


def redact_error(error: BaseException) -> None:
    """Hide secrets in an error of another library: a traceback shows it as the cause of ours.

    An error of psycopg holds its connection, which holds the password.
    """
    if hasattr(error, "_pgconn"):
        error._pgconn = None  # noqa: SLF001 - as psycopg does where it pickles the error
    error.args = tuple(redacted(each) if isinstance(each, str) else each for each in error.args)


def names_secret(name: str) -> bool:
    """Return whether a class, or a codec, is named as one of secrets: as `SecretStr`, `Secret[date]` or `app.secret`.

    The name is all there is to go by where a value is shown as it is stored.
    """
    return _NAMES_SECRET.search(name) is not None


def names_credential(name: str) -> bool:
    """Return whether a codec, or a class around one value, is named as one of secrets, or as `ApiKey` or `token`."""
    return names_secret(name) or _NAMES_CREDENTIAL.search(name) is not None
