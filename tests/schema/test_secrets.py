"""Secrets of pydantic in models are refused by name, also where a serialiser would store them as text."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Generic, NamedTuple, TypeVar

import pytest
import typing_extensions
from pydantic import BaseModel, ConfigDict, Field, SecretBytes, SecretStr, field_serializer

from statelog import durable, guard
from statelog.errors import ValueTypeError


class ApiKey(SecretStr):
    pass


class Account(BaseModel):
    key: SecretStr | None = None
    keys: list[ApiKey] = []
    by_name: dict[str, SecretBytes] = {}

    @field_serializer("key", "keys", "by_name")
    def dump(self, value):
        return str(value) and "sk-12345"


class Agent(BaseModel):
    model_config = ConfigDict(extra="allow")
    account: Account = Account()


class Hidden(BaseModel):
    name: str
    key: SecretStr = Field(exclude=True)


SECRET = SecretStr("sk-12345")
HOLDERS = [
    (Account(key=SECRET), ".key"),
    (Account(keys=[ApiKey("sk-12345")]), ".keys[0]"),
    (Account(by_name={"a": SecretBytes(b"sk-12345")}), ".by_name.a"),
    (Agent(account=Account(key=SECRET)), ".account.key"),
    (Agent(more=SECRET), ".more"),
]


@pytest.mark.parametrize(("value", "where"), HOLDERS, ids=lambda each: each if isinstance(each, str) else "")
def test_a_secret_in_a_model_is_refused_also_with_a_serialiser(store, value, where):
    thread = store.thread("t", schema={"v": type(value)})
    with pytest.raises(ValueTypeError, match="cannot store") as caught:
        thread.commit({"v": value})
    assert caught.value.path == f"v{where}"
    with pytest.raises(ValueTypeError, match="cannot store"):
        durable.send(store, "r", value)


def test_a_model_without_its_secret_is_stored(store):
    store.thread("t", schema={"v": Account, "h": Hidden}).commit({"v": Account(), "h": Hidden(name="x", key=SECRET)})
    assert store.thread("t").state["h"] == {"name": "x"}


@dataclasses.dataclass
class Login:
    key: Annotated[str, guard.Secret]


class Pair(NamedTuple):
    key: Annotated[str, guard.Secret]


class Options(typing_extensions.TypedDict):
    key: Annotated[str, guard.Secret]


class Named(BaseModel):
    key: Annotated[str, guard.Secret]


T = TypeVar("T")


class Box(BaseModel, Generic[T]):
    inside: T


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Annotated[str, guard.Secret]]


class Holder(BaseModel):
    login: Login | None = None
    pair: Pair | None = None
    options: Options | None = None
    named: list[Named | Login] = []


PLAIN = "plainpw-99"
HANDLE = "$CRED{a}"


def assigned(value, set_plain):
    set_plain(value)
    return value


PLAIN_VALUES = [
    (Named | Login, Login(PLAIN), ".key"),
    (Holder, Holder.model_construct(login=Login(PLAIN)), ".login.key"),
    (Holder, Holder.model_construct(pair=Pair(PLAIN)), ".pair.key"),
    (Holder, Holder.model_construct(options={"key": PLAIN}), ".options.key"),
    (Holder, Holder.model_construct(named=[Login(PLAIN)]), ".named[0].key"),
    (Box[Annotated[str, guard.Secret]], Box[Annotated[str, guard.Secret]].model_construct(inside=PLAIN), ".inside"),
    (Open, assigned(Open(), lambda value: setattr(value, "more", PLAIN)), ".more"),
]


@pytest.mark.parametrize(("annotation", "value", "where"), PLAIN_VALUES, ids=lambda each: str(each)[:20])
def test_a_text_in_a_field_for_handles_is_refused_in_every_kind_of_class(store, annotation, value, where):
    with pytest.raises(ValueTypeError, match="is required, not the secret itself") as caught:
        store.thread("t", schema={"v": annotation}).commit({"v": value})
    assert caught.value.path == f"v{where}"


def test_a_handle_in_a_field_for_handles_is_stored(store):
    value = Holder(login=Login(HANDLE), pair=Pair(HANDLE), options={"key": HANDLE}, named=[Named(key=HANDLE)])
    store.thread("t", schema={"v": Holder | int}).commit({"v": value})
    assert store.thread("t").state["v"]["named"] == [{"key": HANDLE}]


def test_a_text_where_a_durable_function_declares_a_handle_is_refused(store):
    def login() -> Login:
        return Login(PLAIN)

    def key() -> Annotated[str, guard.Secret]:
        return PLAIN

    @durable.workflow
    def takes(_run, count: int, key: Annotated[str, guard.Secret] = HANDLE):
        return [count, key]

    @durable.workflow
    def steps(run, function):
        return run.step(login if function == "login" else key)

    assert durable.run(store, takes, 1, key=HANDLE, id="ok").value == [1, HANDLE]
    for arguments, named in [((1, PLAIN), {}), ((1,), {"key": PLAIN}), ((Login(PLAIN),), {})]:
        with pytest.raises(ValueTypeError, match="is required, not the secret itself"):
            durable.run(store, takes, *arguments, **named, id="refused")
    for function in ("login", "key"):
        assert "not the secret itself" in str(durable.run(store, steps, function, id=function).error)
