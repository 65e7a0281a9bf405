"""Handles: names that stand for secrets in all stored values. The secret itself is used only when a tool is called."""

from __future__ import annotations

import dataclasses
import html
import json
import os
import re
import shlex
import threading
from array import array
from base64 import b64encode, urlsafe_b64encode
from collections import deque
from collections.abc import Mapping
from copy import copy
from functools import lru_cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, quote_plus

from statelog import redaction
from statelog.errors import GuardError, UsageError
from statelog.guard.annotations import HANDLE
from statelog.guard.pattern import Pattern, literal
from statelog.guard.secrets import SecretSpan, apart, replaced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

VALUE_SIZE_MIN: Final = 8
"""The minimum length of a value without surrounding blanks. A shorter value would also occur in ordinary texts."""

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_HANDLE_IN_BYTES = re.compile(HANDLE.pattern.encode())
_LABELS = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?(?:\.[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?)*\.?"
_HOST = re.compile(rf"(?P<name>(?P<any>\*\.)?{_LABELS}|\[[0-9A-Fa-f:.]{{2,45}}\])(?::(?P<port>[0-9]{{1,5}}))?")
"""The pattern of a host name or address with an optional port. It allows no scheme, user, path, query or fragment."""

_EDGE = rb"[A-Za-z0-9+/_-]?"
_LINE_BREAK = rb"(?:[\r\n]|\\{1,7}[rn])*"
_PIECE_SIZE = 12
_SCANNED_SIZE_MAX = 16
"""The maximum number of bytes of a form that a fast scan looks for.

The whole forms are searched only if the scan finds one of them.
"""

_CASES = re.compile(rb"(?<=%)[0-9A-Fa-f]{2}|(?<=\\u)[0-9A-Fa-f]{4}|(?<=\\x)[0-9A-Fa-f]{2}|(?<=&#x)[0-9A-Fa-f]{2}(?=;)")
"""The pattern of the hexadecimal digits in escapes. These digits may be written in upper or lower case."""

_PLAIN = frozenset((int, float, bool, complex, type(None)))


class Source:
    """The source of a handle's value, and the tools and hosts that may get the value."""

    __slots__ = ("_read", "_what", "hosts", "tools")

    def __init__(
        self, read: Callable[[], str], what: str, tools: Iterable[str] | None, hosts: Iterable[str] | None
    ) -> None:
        self._read = read
        self._what = what
        self.tools = _names("tools", tools)
        self.hosts = _names("hosts", hosts)
        for host in self.hosts or ():
            if _HOST.fullmatch(host) is None:
                message = (
                    f"a host must be a name such as api.stripe.com or *.stripe.com, with an optional port, not {host!r}"
                )
                raise UsageError(message, argument="hosts", value=host)

    def __call__(self) -> str:
        """Return the value."""
        return self._read()

    def __repr__(self) -> str:
        return f"<{self._what}>"


def env(name: str, *, tools: Iterable[str] | None = None, hosts: Iterable[str] | None = None) -> Source:
    """Return a source that reads an environment variable each time the value is needed.

    Args:
        name: the variable.
        tools: the tools that may get the value; any tool if left out.
        hosts: the hosts to which the value may be sent, such as `api.stripe.com`, `api.stripe.com:443` or
            `*.stripe.com`; any host if left out. `*` stands for one or more whole labels. A host without a port allows
            any port.
    """
    _checked("name", name)

    def read() -> str:
        value = os.environ.get(name)
        if value is None:
            message = f"the environment has no variable {name!r}"
            raise GuardError(message, variable=name)
        return value

    return Source(read, f"env {name}", tools, hosts)


def keyring(
    service: str, user: str, *, tools: Iterable[str] | None = None, hosts: Iterable[str] | None = None
) -> Source:
    """Return a source that reads the system's keyring through the package `keyring`.

    `tools` and `hosts` are as for `env`.
    """
    _checked("service", service)
    if not isinstance(user, str):
        message = f"user must be a str, not {type(user).__name__}"
        raise UsageError(message, argument="user")

    def read() -> str:
        try:
            import keyring as package
        except ImportError as error:
            message = "guard.keyring needs the package keyring: pip install keyring"
            raise GuardError(message) from error
        value = package.get_password(service, user)
        if value is None:
            message = f"the keyring has no password for {user!r} at {service!r}"
            raise GuardError(message, service=service, user=user)
        return str(value)

    return Source(read, f"keyring {service} {user}", tools, hosts)


def _checked(argument: str, given: object) -> None:
    if not isinstance(given, str) or not given:
        message = f"{argument} must be a non-empty str, not {given!r}"
        raise UsageError(message, argument=argument)


def _names(argument: str, given: Any) -> tuple[str, ...] | None:
    if given is None:
        return None
    names = tuple(given) if hasattr(given, "__iter__") and not isinstance(given, str | bytes) else None
    if names is None or not all(isinstance(name, str) and name for name in names):
        message = f"{argument} must be a list of names, not {given!r}"
        raise UsageError(message, argument=argument, value=given)
    return names


class Forms:
    """Finds values in any encoded form, such as base64, and returns the replacement of each value."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, bytes] = {}
        """The replacement of each value."""
        self._forms: tuple[tuple[bytes, bytes, bytes], ...] = ()
        """For each form of a value: bytes that it contains, its pattern, the replacement. Longer forms come first."""
        self._scan: Pattern | None = None
        """A pattern that occurs in every text that has one of the forms."""

    def knows(self, value: str) -> bool:
        """Return True if a value has a replacement."""
        return value in self._known

    def learn(self, values: Mapping[str, bytes]) -> None:
        """Add values of at least `VALUE_SIZE_MIN` characters, with their replacements."""
        forms = {
            form: replacement
            for value, replacement in values.items()
            for text in {value, value.strip()}
            for form in _forms_of(text)
        }
        with self._lock:
            known = {form[:2] for form in self._forms}
            made = [*self._forms, *((*form, replacement) for form, replacement in forms.items() if form not in known)]
            made.sort(key=lambda form: -len(form[0]))
            starts = sorted({form[0][:_SCANNED_SIZE_MAX] for form in made})
            self._scan = Pattern(b"|".join([literal(start) for start in starts]), captures=False)
            self._forms = tuple(made)
            self._known |= values

    def are_in(self, data: bytes) -> bool:
        """Return False if `data` certainly has none of the values in any form."""
        return self._scan is not None and self._scan.is_in(data)

    def find(self, text: bytes) -> list[SecretSpan]:
        """Return the spans of values in a text, with each value's replacement as `rule`.

        Overlapping spans are joined.
        """
        if not self.are_in(text):
            return []
        found = [
            SecretSpan(*match.span(), replacement.decode())
            for held, pattern, replacement in self._forms
            if held in text
            for match in _compiled(pattern).finditer(text)
        ]
        return apart(found)


class Handles(Forms):
    """Named secrets. The handle `$CRED{name}` stands for a secret in a state, in arguments and in messages.

    Args:
        sources: a source for each name: `env`, `keyring`, or any function that returns the value.

    Raises:
        UsageError: a name is not 1 to 64 letters, digits, `_`, `.` or `-`, or its source cannot be called.
    """

    def __init__(self, sources: Mapping[str, Callable[[], str]]) -> None:
        if not isinstance(sources, Mapping):
            message = f"handles must be a dict of names to sources, not {type(sources).__name__}"
            raise UsageError(message, argument="handles")
        for name, source in sources.items():
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                message = f"the name of a handle must have 1 to 64 letters, digits, _ . or -, not {name!r}"
                raise UsageError(message, argument="handles", value=name)
            if not callable(source):
                message = f"the source of handle {name!r} must be a function, not {type(source).__name__}"
                raise UsageError(message, argument="handles", name=name)
        super().__init__()
        self._sources = dict(sources)

    def __repr__(self) -> str:
        return f"<Handles {', '.join(self._sources)}>"

    def resolve(self, args: Any, *, tool: str, host: str | None = None) -> Any:
        """Return a copy of `args` in which values replace handles, in texts and bytes at any depth.

        `args` may contain dicts, lists, tuples, sets, deques, dataclasses, pydantic models and pydantic secrets. After
        this call, the handle replaces its value again wherever this process writes the value to a store with these
        handles.

        Args:
            args: the arguments of the call.
            tool: the name of the tool.
            host: the host to which the tool sends the value, if there is one: a name with an optional port, not a URL.

        Raises:
            GuardError: a handle is unknown, is not declared for this tool or host, has a value of less than 8
                characters, or is in the `repr`, bytes or attributes of an object of another kind. Also if `args`
                contains itself. Facts: handle, tool, host.
            UsageError: `tool` or `host` is not a str, or is empty.
        """
        _checked("tool", tool)
        if host is not None:
            _checked("host", host)
        try:
            return self._resolved(args, tool, host)
        except RecursionError:
            message = "the arguments contain themselves, or are nested too deeply to be resolved"
            raise GuardError(message, tool=tool, host=host) from None

    def _resolved(self, args: Any, tool: str, host: str | None) -> Any:
        if isinstance(args, str):
            return HANDLE.sub(lambda found: self._value(found[1], tool, host), args)
        if isinstance(args, bytes | bytearray):

            def value(found: re.Match[bytes]) -> bytes:
                return self._value(found[1].decode("utf-8", "replace"), tool, host).encode()

            return type(args)(_HANDLE_IN_BYTES.sub(value, args))
        if type(args) in _PLAIN:
            return args
        made = _rebuilt(args, lambda each: self._resolved(each, tool, host))
        if made is args and (found := HANDLE.search(_shown(args))) is not None:
            message = f"handle {found[1]!r} is in a {type(args).__name__}, where it cannot be resolved"
            raise GuardError(message, handle=found[1], tool=tool, host=host)
        return made

    def _value(self, name: str, tool: str, host: str | None) -> str:
        facts = {"handle": name, "tool": tool, "host": host}
        source: Any = self._sources.get(name)
        if source is None:
            message = f"no handle has the name {name!r}; the handles are {', '.join(self._sources) or 'none'}"
            raise GuardError(message, **facts)
        tools, hosts = getattr(source, "tools", None), getattr(source, "hosts", None)
        if tools is not None and tool not in tools:
            message = (
                f"handle {name!r} may not be used by the tool {tool!r}; allowed tools: {', '.join(tools) or 'none'}"
            )
            raise GuardError(message, **facts)
        if hosts is not None and not (host is not None and any(_is_host(host, each) for each in hosts)):
            message = (
                f"handle {name!r} may not be used for the host {host!r}; allowed hosts: {', '.join(hosts) or 'none'}"
            )
            raise GuardError(message, **facts)
        return self._learned(name, source, facts)

    def learn_all(self) -> None:
        """Fetch the value of every handle, so that all values are recognised, as after `resolve`. Raises GuardError."""
        for name, source in self._sources.items():
            self._learned(name, source, {"handle": name})

    def _learned(self, name: str, source: Any, facts: dict[str, Any]) -> str:
        """Fetch the value of a handle. From now on, recognise this value in texts."""
        try:
            value: Any = source()
        except GuardError:
            raise
        except Exception as error:  # noqa: BLE001 - a source may raise anything
            message = f"the source of handle {name!r} raised {type(error).__name__}"
            raise GuardError(message, **facts) from None  # The message of the cause may contain the value.
        if not isinstance(value, str) or len(value.strip()) < VALUE_SIZE_MIN:
            kind = f"{len(value.strip())} characters" if isinstance(value, str) else type(value).__name__
            message = f"the value of handle {name!r} must be a str of at least {VALUE_SIZE_MIN} characters, not {kind}"
            raise GuardError(message, **facts)
        if not self.knows(value):
            self.learn({value: b"$CRED{" + name.encode() + b"}"})
            redaction.hide_with(self.hide)
        return value

    def hide(self, text: str) -> str:
        """Return a text in which handles replace their values."""
        data = text.encode("utf-8", "surrogatepass")
        made = replaced(data, self.find(data), lambda each, _value: each.rule.encode())
        return text if made is data else made.decode("utf-8", "surrogatepass")


def _shown(value: Any) -> str:
    """Return the text of an object, which is searched for handles."""
    if isinstance(value, memoryview | array):
        return bytes(value).decode("utf-8", "replace")
    attributes = {} if isinstance(value, type | ModuleType) else getattr(value, "__dict__", {})
    return f"{value!r} {attributes!r}"


def _rebuilt(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a copy of a container whose parts are changed, or the value itself if it is not a known container."""
    kind = type(value)
    if kind is dict:
        return {change(key): change(each) for key, each in value.items()}
    if kind in (list, tuple, set, frozenset):
        return kind(change(each) for each in value)
    if kind is deque:
        return deque((change(each) for each in value), value.maxlen)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return kind(*(change(each) for each in value))
    return value if isinstance(value, type) else _rebuilt_object(value, change)


def _rebuilt_object(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a copy of a pydantic secret, a pydantic model or a dataclass whose parts are changed. See `_rebuilt`."""
    if hasattr(value, "get_secret_value"):
        return type(value)(change(value.get_secret_value()))
    if hasattr(value, "model_copy"):
        held = {**vars(value), **(value.model_extra or {})}
        return value.model_copy(update={name: change(each) for name, each in held.items()})
    if dataclasses.is_dataclass(value):
        made = copy(value)
        for each in dataclasses.fields(value):
            object.__setattr__(made, each.name, change(getattr(value, each.name, None)))
        return made
    return value


def _is_host(host: str, declared: str) -> bool:
    """Return True if `host` matches `declared`. A text that is not a host with an optional port never matches."""
    given, wanted = _HOST.fullmatch(host), _HOST.fullmatch(declared)
    if given is None or wanted is None or given["any"] or wanted["port"] not in (None, given["port"]):
        return False
    name, pattern = (each["name"].lower().rstrip(".") for each in (given, wanted))
    if not wanted["any"]:
        return name == pattern
    labels, last = name.split("."), pattern.split(".")[1:]
    return len(labels) > len(last) and labels[-len(last) :] == last


@lru_cache(maxsize=1024)
def _compiled(pattern: bytes) -> re.Pattern[bytes]:
    return re.compile(pattern)


def _forms_of(value: str) -> list[tuple[bytes, bytes]]:
    """Return the forms in which a value may be written, as pairs (bytes in the form, pattern to replace)."""
    data = value.encode("utf-8", "surrogatepass")
    plain = {data, *_quoted_for_urls(value), *_quoted_for_programs(value)}
    for is_ascii in (True, False):
        escaped = value
        for _ in range(3):  # The value may be in JSON that is nested in JSON up to three times.
            escaped = json.dumps(escaped, ensure_ascii=is_ascii)[1:-1]
            plain.add(escaped.encode("utf-8", "surrogatepass"))
    plain |= {form.replace(b"/", b"\\/") for form in plain}
    plain |= {_with_cases(form, bytes.lower) for form in plain} | {_with_cases(form, bytes.upper) for form in plain}
    plain |= {data.hex().encode(), data.hex().upper().encode()}
    plain |= {value.encode(encoding, "surrogatepass") for encoding in ("utf-16-le", "utf-16-be")}
    if max(value) <= "\xff":
        plain.add(value.encode("latin-1"))
    forms = [(form, re.escape(form)) for form in plain if len(form) >= VALUE_SIZE_MIN]
    encoded = {
        data,
        *(
            json.dumps(value, ensure_ascii=is_ascii)[1:-1].encode("utf-8", "surrogatepass")
            for is_ascii in (True, False)
        ),
    }
    return forms + [form for each in encoded for form in _base64_forms_of(each)]


def _quoted_for_urls(value: str) -> set[bytes]:
    """Return a value as Python and JavaScript quote it for URLs, quoted once and twice."""
    once = {quote(value, safe=safe, errors="replace") for safe in ("", "/", "!'()*", "!'()*/")}
    once.add(quote_plus(value, errors="replace"))
    return {each.encode() for each in (*once, *(quote(each, safe="") for each in once))}


def _quoted_for_programs(value: str) -> set[bytes]:
    """Return a value as repr, HTML, XML, shells, and the JSON encoders of Go and .NET write it."""
    escaped = {html.escape(value, quote=False), html.escape(value)}
    escaped |= {each.replace("&#x27;", "&#39;").replace("&quot;", "&#34;") for each in escaped}
    escaped |= {html.escape(value).replace("&#x27;", "&#39;"), html.escape(value).replace("&#x27;", "&apos;")}
    escaped |= {html.escape(value, quote=False).replace('"', "&quot;"), repr(value)[1:-1]}
    escaped |= {
        shlex.quote(value).strip("'"),
        value.replace("'", "'\\''"),
        repr(value.encode("utf-8", "surrogatepass"))[2:-1],
    }
    for is_ascii in (True, False):
        text = json.dumps(value, ensure_ascii=is_ascii)[1:-1]
        for letters in ("&<>", "&<>'", "&<>'+"):
            escaped.add("".join(f"\\u{ord(each):04x}" if each in letters else each for each in text))
    return {each.encode("utf-8", "surrogatepass") for each in escaped}


def _base64_forms_of(data: bytes) -> list[tuple[bytes, bytes]]:
    """Return the base64 forms of bytes at each offset within a larger text, with and without line breaks."""
    forms = []
    for encode in (b64encode, urlsafe_b64encode):
        for before in range(3):
            # Other bytes may come before and after the value. Only the base64 characters that depend on the value
            # alone are certain. One more character at each end contains some bits of the value.
            size = before + len(data)
            whole = encode(b"\0" * before + data + b"\0" * (-size % 3))
            core = whole[(0, 2, 3)[before] : len(whole) - (0, 3, 2)[size % 3]]
            head, tail = _EDGE if before else b"", (_EDGE + b"={0,2}") if size % 3 else b""
            forms.append((core, head + re.escape(core) + tail))
            if len(core) < 2 * _PIECE_SIZE:
                continue
            # A line break can be in only one of two short pieces, so the scan finds the other piece.
            wrapped = head + _LINE_BREAK.join([re.escape(core[at : at + 1]) for at in range(len(core))]) + tail
            forms += [(core[:_PIECE_SIZE], wrapped), (core[_PIECE_SIZE : 2 * _PIECE_SIZE], wrapped)]
    return forms


def _with_cases(form: bytes, changed: Callable[[bytes], bytes]) -> bytes:
    """Return a form with the digits of its escapes changed to upper or lower case."""
    return _CASES.sub(lambda found: changed(found[0]), form)
