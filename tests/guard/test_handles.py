"""Handles: which tools get a value, and how values in results are hidden."""

from __future__ import annotations

import base64
import html
import json
import logging
import shlex
import sys
import threading
import types
from collections import deque
from dataclasses import dataclass
from typing import Annotated, NamedTuple, TypedDict
from urllib.parse import quote, quote_plus

import pytest

pytest.importorskip("re2")

from pydantic import BaseModel, SecretStr

import statelog
from statelog import Guard, GuardError, guard
from statelog.format import cbor

VALUE = 'va1ue"of/a+handle é'


@pytest.fixture
def handles(monkeypatch):
    monkeypatch.setenv("STRIPE_KEY", "of stripe 1234")
    sources = {
        "stripe": guard.env("STRIPE_KEY", tools=["charge"], hosts=["api.stripe.com", "*.stripe.net"]),
        "vault": lambda: VALUE,
        "short": lambda: "1234567",
        "none": lambda: None,
        "failing": failing,
        "missing": guard.env("NO_SUCH_VARIABLE"),
        "nobody": guard.env("STRIPE_KEY", tools=[]),
    }
    return guard.Handles(sources)


def failing():
    raise ValueError(VALUE)


def stored(handles, value):
    return cbor.decode(Guard(handles=handles).redactor(bytes(32)).item(cbor.encode(value), "c"))


def test_resolve_returns_a_copy_with_the_values(handles):
    args = {"auth": "Bearer $CRED{vault}", "more": ["$CRED{vault}", ("$CRED{vault}", 1)], "n": 1}
    found = handles.resolve(args, tool="any", host="any")
    assert found == {"auth": f"Bearer {VALUE}", "more": [VALUE, (VALUE, 1)], "n": 1}
    assert args["auth"] == "Bearer $CRED{vault}"


@pytest.mark.parametrize(
    "host",
    ["api.stripe.com", "API.stripe.com", "api.stripe.com.", "api.stripe.com:443", "eu.stripe.net", "a.eu.stripe.net"],
)
def test_a_declared_tool_and_host_get_the_value(handles, host):
    assert handles.resolve("$CRED{stripe}", tool="charge", host=host) == "of stripe 1234"


@pytest.mark.parametrize(
    ("text", "tool", "host", "words"),
    [
        ("$CRED{stripe}", "refund", "api.stripe.com", "not be used by the tool 'refund'"),
        ("$CRED{stripe}", "charge", "api.stripe.com.evil.com", "not be used for the host"),
        ("$CRED{stripe}", "charge", "evil-stripe.net", "not be used for the host"),
        ("$CRED{stripe}", "charge", "stripe.net", "not be used for the host"),
        ("$CRED{stripe}", "charge", None, "not be used for the host None"),
        ("$CRED{nobody}", "charge", None, "not be used by the tool"),
        ("$CRED{unknown}", "charge", None, "no handle has the name 'unknown'"),
        ("$CRED{}", "charge", None, "no handle has the name ''"),
        ("$CRED{short}", "charge", None, "at least 8 characters, not 7 characters"),
        ("$CRED{none}", "charge", None, "not NoneType"),
        ("$CRED{failing}", "charge", None, "raised ValueError"),
        ("$CRED{missing}", "charge", None, "no variable 'NO_SUCH_VARIABLE'"),
    ],
)
def test_other_tools_and_hosts_are_refused(handles, text, tool, host, words):
    with pytest.raises(GuardError) as caught:
        handles.resolve([text], tool=tool, host=host)
    assert words in str(caught.value)
    assert not any(value in repr(caught.value) + repr(caught.value.__cause__) for value in (VALUE, "of stripe 1234"))


@pytest.mark.parametrize(
    "host",
    [
        "evil.example/.stripe.net",
        "evil.example#.stripe.net",
        "evil.example:80/x?.stripe.net",
        "evil.example\\.stripe.net",
        "evil.example@eu.stripe.net",
        "eu.stripe.net@evil.example",
        "https://api.stripe.com",
        "api.stripe.com/",
        "api.stripe.com:",
        "api.stripe.com:x",
        "api.stripe.com\n",
        " api.stripe.com",
        "api.stripe.com..",
        ".stripe.net",
        "..stripe.net",
        "-.stripe.net",
        "*.stripe.net",
        "x\0.stripe.net",
        "api.\u017ftripe.com",
    ],
)
def test_requests_with_an_invalid_host_name_get_nothing(handles, host):
    with pytest.raises(GuardError, match="not be used for the host"):
        handles.resolve("$CRED{stripe}", tool="charge", host=host)


def test_a_declared_port_is_required(monkeypatch):
    monkeypatch.setenv("K", "value of k")
    handles = guard.Handles({"k": guard.env("K", hosts=["h.example:8443", "[::1]"])})
    assert handles.resolve("$CRED{k}", tool="t", host="h.example:8443") == "value of k"
    assert handles.resolve("$CRED{k}", tool="t", host="[::1]:80") == "value of k"
    for host in ("h.example", "h.example:443", "[::2]"):
        with pytest.raises(GuardError):
            handles.resolve("$CRED{k}", tool="t", host=host)


@pytest.mark.parametrize("host", ["*", "https://h", "a.*.com", "*stripe.com", "h/", "h:port", "a b"])
def test_a_declared_host_is_a_host_name(host):
    with pytest.raises(statelog.UsageError, match="a host must be a name"):
        guard.env("K", hosts=[host])


@pytest.mark.parametrize("arguments", [{"tool": None}, {"tool": ""}, {"tool": 5}, {"tool": "t", "host": 5}])
def test_a_tool_and_a_host_must_be_str(handles, arguments):
    with pytest.raises(statelog.UsageError, match="must be a non-empty str"):
        handles.resolve("$CRED{vault}", **arguments)


class Pair(NamedTuple):
    a: str
    b: int


@dataclass(frozen=True)
class Call:
    auth: str


class Request(BaseModel):
    auth: str
    secret: SecretStr = SecretStr("$CRED{vault}")


def test_a_handle_is_resolved_in_every_kind_of_object(handles):
    def resolve(value):
        return handles.resolve(value, tool="t")

    assert resolve(Pair("$CRED{vault}", 1)) == Pair(VALUE, 1)
    assert resolve(Call("$CRED{vault}")) == Call(VALUE)
    assert resolve(deque(["$CRED{vault}"], 3)) == deque([VALUE], 3)
    assert resolve({"$CRED{vault}": 1}) == {VALUE: 1}
    assert resolve(b"<$CRED{vault}>") == f"<{VALUE}>".encode()
    assert resolve(SecretStr("$CRED{vault}")).get_secret_value() == VALUE
    made = resolve(Request(auth="$CRED{vault}"))
    assert (made.auth, made.secret.get_secret_value()) == (VALUE, VALUE)
    kept = object()
    assert resolve(kept) is kept


def test_a_handle_in_another_object_is_refused(handles):
    with pytest.raises(GuardError, match="'vault' is in a SimpleNamespace"):
        handles.resolve([types.SimpleNamespace(a="$CRED{vault}")], tool="t")
    holder = Exception()
    holder.key = "$CRED{vault}"
    for value in (holder, memoryview(b"$CRED{vault}")):
        with pytest.raises(GuardError, match="'vault' is in a"):
            handles.resolve({"request": value}, tool="t")


def test_arguments_that_contain_themselves_are_refused(handles):
    value = ["$CRED{vault}"]
    value.append(value)
    with pytest.raises(GuardError, match="contain themselves"):
        handles.resolve(value, tool="t")


@pytest.mark.parametrize("value", [" " * 8, "  1234567\n", "\t" * 20])
def test_blanks_do_not_count_as_characters_of_a_value(value):
    with pytest.raises(GuardError, match="at least 8 characters"):
        guard.Handles({"k": lambda: value}).resolve("$CRED{k}", tool="t")


def test_a_value_is_hidden_without_the_line_feed_at_its_end():
    handles = guard.Handles({"k": lambda: "value-of-k-1234\n"})
    assert handles.resolve("$CRED{k}", tool="t") == "value-of-k-1234\n"
    assert stored(handles, "<value-of-k-1234>") == "<$CRED{k}>"


def test_values_that_overlap_leave_no_part():
    handles = guard.Handles({"a": lambda: "abcdefgh1234", "b": lambda: "gh1234XYZ9876"})
    handles.resolve("$CRED{a}$CRED{b}", tool="t")
    assert stored(handles, "<abcdefgh1234XYZ9876>") == "<$CRED{a}>"


def test_values_resolved_by_concurrent_threads_are_all_hidden():
    for _ in range(10):
        values = [f"value-number-{number}-xyz" for number in range(8)]
        sources = {f"h{number}": lambda value=value: value for number, value in enumerate(values)}
        handles = guard.Handles(sources)
        start = threading.Barrier(8)

        def resolve(number, handles=handles, start=start):
            start.wait()
            handles.resolve(f"$CRED{{h{number}}}", tool="t")

        threads = [threading.Thread(target=resolve, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [handles.hide(value) for value in values] == [f"$CRED{{h{number}}}" for number in range(8)]


def test_keyring_is_queried_by_service_and_user(monkeypatch):
    fake = types.SimpleNamespace(get_password=lambda service, user: f"{service} {user} 1234" if user else None)
    monkeypatch.setitem(sys.modules, "keyring", fake)
    handles = guard.Handles({"db": guard.keyring("db", "app"), "no": guard.keyring("db", "")})
    assert handles.resolve("$CRED{db}", tool="t") == "db app 1234"
    with pytest.raises(GuardError, match="no password"):
        handles.resolve("$CRED{no}", tool="t")
    monkeypatch.setitem(sys.modules, "keyring", None)
    with pytest.raises(GuardError, match="pip install keyring"):
        handles.resolve("$CRED{db}", tool="t")


FORMS = {
    "as it is": VALUE,
    "in JSON": json.dumps({"a": VALUE}),
    "in JSON, not ASCII": json.dumps({"a": VALUE}, ensure_ascii=False),
    "in JSON in JSON": json.dumps(json.dumps({"a": VALUE})),
    "in a path": quote(VALUE),
    "in a URL": f"https://h/?a={quote(VALUE, safe='')}",
    "in a URL, small": quote(VALUE, safe="").lower(),
    "in a query": f"?a={quote_plus(VALUE)}&b",
    "in repr": repr({"a": VALUE}),
    **{
        f"{name} behind {before} before {behind}": encode(b"x" * before + VALUE.encode() + b"y" * behind).decode()
        for name, encode in (("base64", base64.b64encode), ("base64 for URLs", base64.urlsafe_b64encode))
        for before in range(4)
        for behind in range(4)
    },
}


@pytest.mark.parametrize("form", FORMS)
def test_a_value_becomes_its_handle_in_every_form(handles, form):
    assert stored(handles, FORMS[form]) == FORMS[form]
    handles.resolve("$CRED{vault}", tool="t")
    made = stored(handles, {"a": [f"<{FORMS[form]}>"]})["a"][0]
    assert "$CRED{vault}" in made
    assert FORMS[form][8:16] not in made or form.startswith("base64")
    for part in base64.b64encode(VALUE.encode()).decode()[4:-8], VALUE[2:-2]:
        assert part not in made


SIGNS = "p(a)ss!w'rd&1<2>é\"+/longer than a line of base64, which has fifty-seven bytes"
SIGN_FORMS = {
    "encodeURIComponent": quote(SIGNS, safe="!'()*"),
    "quoted twice": quote(quote(SIGNS, safe=""), safe=""),
    "HTML": html.escape(SIGNS),
    "XML": html.escape(SIGNS, quote=False),
    "templates": html.escape(SIGNS).replace("&#x27;", "&#39;").replace("&quot;", "&#34;"),
    "JSON of Go": json.dumps(SIGNS, ensure_ascii=False)
    .replace("&", "\\u0026")
    .replace("<", "\\u003c")
    .replace(">", "\\u003e"),
    "JSON in capitals": json.dumps(SIGNS).replace("\\u00e9", "\\u00E9"),
    "shell": shlex.quote(SIGNS),
    "hex": SIGNS.encode().hex(),
    "JSON three deep": json.dumps(json.dumps(json.dumps({"a": SIGNS}))),
    "repr of bytes": repr(SIGNS.encode()),
    "base64 in lines": base64.encodebytes(b"x" * 40 + SIGNS.encode()).decode(),
    "base64 in lines in JSON": json.dumps(base64.encodebytes(SIGNS.encode()).decode()),
    "base64 of JSON": base64.b64encode(json.dumps({"a": SIGNS}).encode()).decode(),
}


@pytest.mark.parametrize("form", SIGN_FORMS)
def test_a_value_of_signs_becomes_its_handle_in_every_form(form):
    handles = guard.Handles({"k": lambda: SIGNS})
    handles.resolve("$CRED{k}", tool="t")
    made = stored(handles, f"<{SIGN_FORMS[form]}>")
    assert "$CRED{k}" in made
    assert len(made) < len(SIGN_FORMS[form]) * 0.7


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16-le", "utf-16-be"])
def test_a_value_in_bytes_of_another_encoding_is_hidden(encoding):
    handles = guard.Handles({"k": lambda: "schlüsselwörter"})
    handles.resolve("$CRED{k}", tool="t")
    data = "schlüsselwörter".encode(encoding)
    try:
        assert data not in stored(handles, b"<" + data + b">")
    except statelog.SecretError as error:
        assert error.rule == "$CRED{k}"  # noqa: PT017 - either will do


def test_a_handle_stays_a_handle(handles):
    handles.resolve("$CRED{vault}", tool="t")
    assert stored(handles, {"api_key": "$CRED{vault}"}) == {"api_key": "$CRED{vault}"}


def test_a_resolved_value_is_hidden_in_errors_of_the_library(handles):
    handles.resolve("$CRED{vault}", tool="t")
    error = statelog.UsageError(f"cannot use {VALUE}", value=VALUE)
    assert VALUE not in str(error) + repr(error.facts)
    assert "$CRED{" in str(error)  # Of whichever handle has this value in this process.


def test_repr_shows_names_only(handles):
    handles.resolve("$CRED{vault}", tool="t")
    shown = repr(handles) + repr(Guard(handles=handles)) + repr(guard.env("STRIPE_KEY"))
    assert "vault" in shown
    assert VALUE not in shown


@pytest.mark.parametrize("sources", [{"a b": failing}, {"": failing}, {"a": "value"}, {1: failing}, None, ["a"]])
def test_invalid_sources_are_refused(sources):
    with pytest.raises(statelog.UsageError):
        guard.Handles(sources)


@pytest.mark.parametrize("make", [lambda: guard.env(5), lambda: guard.env(""), lambda: guard.keyring(None, "app")])
def test_a_source_has_a_name(make):
    with pytest.raises(statelog.UsageError, match="must be a non-empty str"):
        make()


@pytest.mark.parametrize("names", ["charge", [1], [""], 5])
def test_invalid_tools_are_refused(names):
    with pytest.raises(statelog.UsageError, match="tools"):
        guard.env("A", tools=names)


def test_a_log_filter_hides_message_exception_and_extra(handles):
    handles.resolve("$CRED{vault}", tool="t")
    records = []
    handler = logging.Handler()
    handler.emit = lambda record: records.append(logging.Formatter().format(record) + repr(vars(record)))
    handler.addFilter(guard.LogFilter(Guard(handles=handles)))
    log = logging.getLogger("of the test")
    log.addHandler(handler)
    try:
        failing()
    except ValueError:
        log.exception("with %s", VALUE, extra={"more": {"a": VALUE}}, stack_info=True)
    log.error("%d", VALUE)
    log.removeHandler(handler)
    assert len(records) == 2
    assert all("va1ue" not in record for record in records)
    assert "$CRED{vault}" in records[0]


class Number(int):
    def __str__(self):
        return VALUE


def test_a_log_filter_knows_names_of_extra_and_of_threads(handles):
    handles.resolve("$CRED{vault}", tool="t")
    random = "76dfZTPtLLKjAyS96HBqcbCtx3GIobuiF9Pl3XT4"
    secrets = guard.Secrets(fields=["**.password", "pin", "lineno"])
    records = []
    handler = logging.Handler()
    handler.emit = records.append
    handler.addFilter(guard.LogFilter(Guard(secrets=secrets, handles=handles)))
    log = logging.getLogger(f"of {VALUE}")
    log.addHandler(handler)
    extra = {"api_key": random, "password": "hunter2", "pin": 1234, "n": 5, "more": {"password": "hunter2"}}
    extra |= {"number": Number(3), "nothing": None, VALUE: "x"}
    thread = threading.Thread(target=lambda: log.error("m", extra=extra), name=f"worker {VALUE}")
    thread.start()
    thread.join()
    log.removeHandler(handler)
    [record] = records
    shown = {name: value for name, value in vars(record).items() if name != VALUE}
    assert not any(each in repr(shown) for each in (random, "hunter2", "1234", "va1ue"))
    assert record.api_key.startswith("[REDACTED")
    assert (record.n, record.nothing, record.levelno, type(record.lineno)) == (5, None, logging.ERROR, int)
    assert record.threadName == "worker $CRED{vault}"


# --- fields that accept handles only ----------------------------------------------------------


class Typed(TypedDict, total=False):
    key: Annotated[str, guard.Secret]
    many: list[Annotated[str, guard.Secret]]


@dataclass
class Account:
    key: Annotated[str, guard.Secret]


class Model(BaseModel):
    key: Annotated[str, guard.Secret] | None = None
    secret: SecretStr | None = None


SCHEMAS = {
    "typed": (Typed, lambda value: {"key": value}),
    "list": (Typed, lambda value: {"many": [value]}),
    "dataclass": ({"a": Account}, lambda value: {"a": Account(value)}),
    "model": (Model, lambda value: {"key": value}),
    "secret": (Model, lambda value: {"secret": SecretStr(value)}),
    "nested": ({"m": list[Model]}, lambda value: {"m": [{"key": value, "secret": value}]}),
}


@pytest.mark.parametrize("schema", SCHEMAS)
def test_a_secret_field_accepts_a_handle(tmp_path, schema):
    declared, write = SCHEMAS[schema]
    with statelog.open(tmp_path / "agent.state") as store:
        store.thread("t", schema=declared).commit(write("$CRED{stripe}"))
        assert "$CRED{stripe}" in repr(store.thread("t").state)


@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize("value", ["hunter2 and more", "$CRED{a} and more", ""])
def test_a_secret_field_refuses_other_values(tmp_path, schema, value):
    declared, write = SCHEMAS[schema]
    with statelog.open(tmp_path / "agent.state") as store:
        with pytest.raises((statelog.errors.ValidationError, statelog.errors.ValueTypeError)) as caught:
            store.thread("t", schema=declared).commit(write(value))
        assert not value or value not in str(caught.value)
        assert list(store.threads()) == []


def test_a_pydantic_secret_is_restored(tmp_path):
    with statelog.open(tmp_path / "agent.state") as store:
        thread = store.thread("t", schema={"m": Model})
        thread.commit({"m": Model(secret=SecretStr("$CRED{a}"))})
        assert thread.state["m"].secret.get_secret_value() == "$CRED{a}"


def test_a_log_filter_accepts_only_a_guard():
    with pytest.raises(statelog.UsageError, match="guard must be a statelog"):
        guard.LogFilter(3)
