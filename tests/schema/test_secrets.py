"""Secrets of pydantic in models are refused by name, also where a serialiser would store them as text."""

from __future__ import annotations

import pytest
from pydantic import BaseModel, ConfigDict, Field, SecretBytes, SecretStr, field_serializer

from statelog import durable
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
