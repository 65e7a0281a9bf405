"""Handles: names that stand for secrets in everything that is stored. The value exists only in the call of a tool."""

from __future__ import annotations

import json
import os
import re
from base64 import b64encode, urlsafe_b64encode
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, quote_plus

from statelog import redaction
from statelog.errors import GuardError, UsageError
from statelog.guard.annotations import HANDLE
from statelog.guard.secrets import Found

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

VALUE_SIZE_MIN: Final = 8
"""The minimum length of a value. A shorter one would be found in ordinary texts."""

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_EDGE = rb"[A-Za-z0-9+/_-]?"


class Source:
    """Where the value of a handle comes from, and which tools and hosts may have it."""

    __slots__ = ("_read", "_what", "hosts", "tools")

    def __init__(
        self, read: Callable[[], str], what: str, tools: Iterable[str] | None, hosts: Iterable[str] | None
    ) -> None:
        self._read = read
        self._what = what
        self.tools = _names("tools", tools)
        self.hosts = _names("hosts", hosts)

    def __call__(self) -> str:
        """Return the value."""
        return self._read()

    def __repr__(self) -> str:
        return f"<{self._what}>"


def env(name: str, *, tools: Iterable[str] | None = None, hosts: Iterable[str] | None = None) -> Source:
    """Return a source that reads an environment variable each time it is asked.

    Args:
        name: the variable.
        tools: the tools that may have the value; any tool if left out.
        hosts: the hosts that it may be sent to, such as `api.stripe.com` or `*.stripe.com`; any host if left out.
    """

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
    """Return a source that asks the system's keyring, through the package `keyring`. Arguments as for `env`."""

    def read() -> str:
        try:
            import keyring as package
        except ImportError as error:
            message = "guard.keyring needs the package keyring: pip install keyring"
            raise GuardError(message) from error
        value = package.get_password(service, user)
        if value is None:
            message = f"the keyring has no password of {user!r} for {service!r}"
            raise GuardError(message, service=service, user=user)
        return str(value)

    return Source(read, f"keyring {service} {user}", tools, hosts)


def _names(argument: str, given: Iterable[str] | None) -> tuple[str, ...] | None:
    if given is None:
        return None
    names = None if isinstance(given, str) else tuple(given)
    if names is None or not all(isinstance(name, str) and name for name in names):
        message = f"{argument} is a list of names, not {given!r}"
        raise UsageError(message, argument=argument, value=given)
    return names


class Handles:
    """Secrets by name. `$CRED{name}` stands for one of them in a state, in arguments and in messages.

    Args:
        sources: for each name, a source: `env`, `keyring`, or any function that returns the value.

    Raises:
        UsageError: a name is not 1 to 64 letters, digits, `_`, `.` or `-`, or its source cannot be called.
    """

    def __init__(self, sources: Mapping[str, Callable[[], str]]) -> None:
        for name, source in sources.items():
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                message = f"the name of a handle is 1 to 64 letters, digits, _ . or -, not {name!r}"
                raise UsageError(message, argument="handles", value=name)
            if not callable(source):
                message = f"the source of handle {name!r} is a function, not {type(source).__name__}"
                raise UsageError(message, argument="handles", name=name)
        self._sources = dict(sources)
        self._known: dict[str, bytes] = {}
        """The handle of each value that was resolved."""
        self._forms: list[tuple[bytes, re.Pattern[bytes], bytes]] = []
        """For each form of a value: bytes that are in it, its pattern, and the handle. The longest one is first."""

    def __repr__(self) -> str:
        return f"<Handles {', '.join(self._sources)}>"

    def resolve(self, args: Any, *, tool: str, host: str | None = None) -> Any:
        """Return a copy of `args` with the values in place of the handles, in texts at any depth.

        From then on, a value becomes its handle again wherever this process writes it into a store with these handles.

        Args:
            args: the arguments of the call.
            tool: the name of the tool.
            host: the host that the tool sends the value to, if there is one.

        Raises:
            GuardError: a handle is not known, or is not declared for this tool or host, or its value has less than 8
                characters. Facts: handle, tool, host.
        """
        if isinstance(args, str):
            return HANDLE.sub(lambda found: self._value(found[1], tool, host), args)
        if isinstance(args, dict):
            return {key: self.resolve(value, tool=tool, host=host) for key, value in args.items()}
        if type(args) in (list, tuple, set, frozenset):
            return type(args)(self.resolve(each, tool=tool, host=host) for each in args)
        return args

    def _value(self, name: str, tool: str, host: str | None) -> str:
        facts = {"handle": name, "tool": tool, "host": host}
        source: Any = self._sources.get(name)
        if source is None:
            message = f"no handle has the name {name!r}; there are {', '.join(self._sources) or 'none'}"
            raise GuardError(message, **facts)
        tools, hosts = getattr(source, "tools", None), getattr(source, "hosts", None)
        if tools is not None and tool not in tools:
            message = f"handle {name!r} is not for the tool {tool!r}; it is for {', '.join(tools) or 'none'}"
            raise GuardError(message, **facts)
        if hosts is not None and not (isinstance(host, str) and any(_is_host(host, each) for each in hosts)):
            message = f"handle {name!r} is not for the host {host!r}; it is for {', '.join(hosts) or 'none'}"
            raise GuardError(message, **facts)
        try:
            value = source()
        except GuardError:
            raise
        except Exception as error:  # noqa: BLE001 - a source may raise anything
            message = f"the source of handle {name!r} raised {type(error).__name__}"
            raise GuardError(message, **facts) from None  # Its text may hold the value.
        if not isinstance(value, str) or len(value) < VALUE_SIZE_MIN:
            kind = f"{len(value)} characters" if isinstance(value, str) else type(value).__name__
            message = f"the value of handle {name!r} is a text of at least {VALUE_SIZE_MIN} characters, not {kind}"
            raise GuardError(message, **facts)
        if value not in self._known:
            self._learn(value, b"$CRED{" + name.encode() + b"}")
        return value

    def _learn(self, value: str, handle: bytes) -> None:
        forms = [*self._forms]
        for literal, pattern in _forms_of(value):
            if all(literal != each[0] for each in forms):
                forms.append((literal, re.compile(pattern), handle))
        forms.sort(key=lambda form: -len(form[0]))
        self._forms = forms
        if not self._known:
            redaction.hide_with(self.hide)
        self._known[value] = handle

    def are_in(self, data: bytes) -> bool:
        """Return True if the value of a handle is in `data`, in any form."""
        return any(form[0] in data for form in self._forms)

    def find(self, text: bytes) -> list[Found]:
        """Return where values of handles are in a text. `rule` is the handle."""
        found: list[Found] = []
        for literal, pattern, handle in self._forms:
            if literal in text:
                for match in pattern.finditer(text):
                    if all(match.end() <= each.start or each.end <= match.start() for each in found):
                        found.append(Found(*match.span(), handle.decode()))
        return sorted(found)

    def hide(self, text: str) -> str:
        """Return a text with handles in place of their values."""
        if not self._forms:
            return text
        data = text.encode("utf-8", "surrogatepass")
        for each in reversed(self.find(data)):
            data = data[: each.start] + each.rule.encode() + data[each.end :]
        return data.decode("utf-8", "surrogatepass")


def _is_host(host: str, declared: str) -> bool:
    host, declared = host.lower().rstrip("."), declared.lower()
    return host.endswith(declared[1:]) if declared.startswith("*.") else host == declared


def _forms_of(value: str) -> list[tuple[bytes, bytes]]:
    """Return the forms in which a value may be written: bytes that are in it, and the pattern to replace."""
    data = value.encode("utf-8", "surrogatepass")
    plain = {data, quote(value, safe="", errors="replace").encode(), quote(value, errors="replace").encode()}
    plain.add(quote_plus(value, errors="replace").encode())
    plain.add(repr(value)[1:-1].encode("utf-8", "surrogatepass"))
    for is_ascii in (True, False):
        escaped = json.dumps(value, ensure_ascii=is_ascii)[1:-1]
        plain.add(escaped.encode("utf-8", "surrogatepass"))
        plain.add(json.dumps(escaped, ensure_ascii=is_ascii)[1:-1].encode("utf-8", "surrogatepass"))
    plain |= {form.replace(b"/", b"\\/") for form in plain}
    forms = [(form, re.escape(form)) for form in plain]
    # Quoted in a URL, a value may have digits of either case.
    forms += [(form, re.escape(form)) for form in {_lower_escapes(form) for form in plain} - plain]
    for encode in (b64encode, urlsafe_b64encode):
        for before in range(3):
            # Other bytes may be before and behind the value. Only the characters that depend on the value alone are
            # certain; one more at each end has some of its bits.
            size = before + len(data)
            whole = encode(b"\0" * before + data + b"\0" * (-size % 3))
            core = whole[(0, 2, 3)[before] : len(whole) - (0, 3, 2)[size % 3]]
            pattern = (_EDGE if before else b"") + re.escape(core) + ((_EDGE + b"={0,2}") if size % 3 else b"")
            forms.append((core, pattern))
    return forms


def _lower_escapes(form: bytes) -> bytes:
    return re.sub(rb"%[0-9A-F]{2}", lambda found: found[0].lower(), form)
