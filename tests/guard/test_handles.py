"""Handles: who gets a value, and what becomes of one that comes back."""

from __future__ import annotations

import base64
import json
import logging
import sys
import types
from dataclasses import dataclass
from typing import Annotated, TypedDict
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


@pytest.mark.parametrize("host", ["api.stripe.com", "API.stripe.com", "api.stripe.com.", "eu.stripe.net"])
def test_a_declared_tool_and_host_get_the_value(handles, host):
    assert handles.resolve("$CRED{stripe}", tool="charge", host=host) == "of stripe 1234"


@pytest.mark.parametrize(
    ("text", "tool", "host", "words"),
    [
        ("$CRED{stripe}", "refund", "api.stripe.com", "not for the tool 'refund'"),
        ("$CRED{stripe}", "charge", "api.stripe.com.evil.com", "not for the host"),
        ("$CRED{stripe}", "charge", "evil-stripe.net", "not for the host"),
        ("$CRED{stripe}", "charge", "stripe.net", "not for the host"),
        ("$CRED{stripe}", "charge", None, "not for the host None"),
        ("$CRED{nobody}", "charge", None, "not for the tool"),
        ("$CRED{unknown}", "charge", None, "no handle has the name 'unknown'"),
        ("$CRED{}", "charge", None, "no handle has the name ''"),
        ("$CRED{short}", "charge", None, "at least 8 characters, not 7 characters"),
        ("$CRED{none}", "charge", None, "not NoneType"),
        ("$CRED{failing}", "charge", None, "raised ValueError"),
        ("$CRED{missing}", "charge", None, "no variable 'NO_SUCH_VARIABLE'"),
    ],
)
def test_everybody_else_is_refused(handles, text, tool, host, words):
    with pytest.raises(GuardError) as caught:
        handles.resolve([text], tool=tool, host=host)
    assert words in str(caught.value)
    assert not any(value in repr(caught.value) + repr(caught.value.__cause__) for value in (VALUE, "of stripe 1234"))


def test_keyring_is_asked_by_service_and_user(monkeypatch):
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


def test_a_handle_stays_a_handle(handles):
    handles.resolve("$CRED{vault}", tool="t")
    assert stored(handles, {"api_key": "$CRED{vault}"}) == {"api_key": "$CRED{vault}"}


def test_a_resolved_value_is_hidden_in_errors_of_the_library(handles):
    handles.resolve("$CRED{vault}", tool="t")
    error = statelog.UsageError(f"cannot use {VALUE}", value=VALUE)
    assert VALUE not in str(error) + repr(error.facts)
    assert "$CRED{vault}" in str(error)


def test_repr_shows_names_only(handles):
    handles.resolve("$CRED{vault}", tool="t")
    shown = repr(handles) + repr(Guard(handles=handles)) + repr(guard.env("STRIPE_KEY"))
    assert "vault" in shown
    assert VALUE not in shown


@pytest.mark.parametrize("sources", [{"a b": failing}, {"": failing}, {"a": "value"}, {1: failing}])
def test_bad_sources_are_refused(sources):
    with pytest.raises(statelog.UsageError):
        guard.Handles(sources)


@pytest.mark.parametrize("names", ["charge", [1], [""]])
def test_bad_tools_are_refused(names):
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
def test_a_secret_field_accepts_nothing_else(tmp_path, schema, value):
    declared, write = SCHEMAS[schema]
    with statelog.open(tmp_path / "agent.state") as store:
        with pytest.raises((statelog.errors.ValidationError, statelog.errors.ValueTypeError)) as caught:
            store.thread("t", schema=declared).commit(write(value))
        assert not value or value not in str(caught.value)
        assert list(store.threads()) == []


def test_a_secret_of_pydantic_comes_back(tmp_path):
    with statelog.open(tmp_path / "agent.state") as store:
        thread = store.thread("t", schema={"m": Model})
        thread.commit({"m": Model(secret=SecretStr("$CRED{a}"))})
        assert thread.state["m"].secret.get_secret_value() == "$CRED{a}"
