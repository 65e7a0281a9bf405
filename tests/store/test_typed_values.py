"""States, mounts and checkpoints of a thread with a schema return values of the types of the schema."""

from __future__ import annotations

import asyncio
import datetime as dt
import enum
import ipaddress
import pathlib
import re
import uuid
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any, NamedTuple, TypedDict

import numpy as np
import pydantic
import pytest

import statelog
from statelog import aio, reducers
from statelog.errors import ChannelError, UsageError, ValidationError


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class User:
    name: str
    color: Color = Color.RED


class Message(pydantic.BaseModel):
    id: str
    text: str = ""


class Picture(Message):
    width: int = 0


class State(TypedDict, total=False):
    n: int
    user: User
    users: Annotated[list[User], reducers.extend]
    by_name: Annotated[dict[str, User], reducers.merge]
    messages: Annotated[list[Message], reducers.upsert("id")]
    color: Color
    files: dict[str, str]


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)

    user_name: str = pydantic.Field("", validation_alias=pydantic.AliasChoices("userName", "login"))
    born: dt.date | None = None
    at: dt.time | None = None
    wait: dt.timedelta | None = None
    link: pydantic.HttpUrl | None = None
    home: pathlib.Path | None = None
    address: ipaddress.IPv4Address | None = None
    votes: dict[int, str] = {}
    tries: Annotated[dict[int, int], reducers.merge] = {}
    phase: complex | None = None
    share: Fraction | None = None
    price: Decimal | None = None
    key: uuid.UUID | None = None
    color: Color = Color.RED
    user: User | None = None
    message: Message | None = None
    messages: Annotated[list[Message], reducers.upsert("id")] = []
    array: np.ndarray | None = None


@pytest.mark.parametrize(
    ("channel", "write", "read"),
    [
        ("born", "2020-02-03", dt.date(2020, 2, 3)),
        ("at", "12:30", dt.time(12, 30)),
        ("wait", "PT5M", dt.timedelta(minutes=5)),
        ("link", "https://a.b", pydantic.HttpUrl("https://a.b/")),
        ("home", "/a", pathlib.Path("/a")),
        ("address", "1.2.3.4", ipaddress.IPv4Address("1.2.3.4")),
        ("votes", {"1": "x"}, {1: "x"}),
        ("tries", {1: 2}, {1: 2}),
        ("phase", 1j, 1j),
        ("share", Fraction(1, 3), Fraction(1, 3)),
        ("price", "1.50", Decimal("1.50")),
        ("key", str(uuid.UUID(int=1)), uuid.UUID(int=1)),
        ("color", "blue", Color.BLUE),
        ("user", User("ann", Color.BLUE), User("ann", Color.BLUE)),
        ("user", {"name": "ann"}, User("ann")),
        ("message", {"id": "1"}, Message(id="1")),
        ("message", Message(id="1"), Message(id="1")),
        ("messages", Message(id="1"), [Message(id="1")]),
    ],
    ids=repr,
)
def test_accepted_values_of_a_field_are_returned_as_its_type(store, channel, write, read):
    thread = store.thread("t", schema=Model)
    made = thread.commit({channel: write})
    assert made.state[channel] == read
    assert thread.state.to_python() == {channel: read}
    plain = thread.state[channel]
    assert isinstance(read, list | dict) or type(plain) is type(read)
    thread.commit({channel: write})  # It merges with itself.
    assert store.verify().ok


class Pair(NamedTuple):
    color: Color
    x: int = 0


@pytest.mark.parametrize(
    ("annotation", "write"),
    [
        (deque[int], [1, 2]),
        (Pair, ("red", 1)),
        (re.Pattern, "a"),
        (pydantic.ByteSize, "1kb"),
        (OrderedDict[str, int], {"a": 1}),
        (Counter[str], {"a": 1}),
        (defaultdict[str, int], {"a": 1}),
        (dict[dt.date, Color], {"2020-01-01": "red"}),
        (set[dt.date], ["2020-01-01"]),
        (list[Fraction], ["1/3"]),
        (tuple[Color, ...], ["red"]),
        (pydantic.Json, "[1]"),
        (pydantic.Base64Bytes, b"eA=="),
        (pydantic.RedisDsn, "redis://h:1/0"),
    ],
    ids=repr,
)
def test_values_accepted_by_pydantic_are_returned_as_pydantic_converts_them(store, annotation, write):
    model = pydantic.create_model("Model", field=(annotation, ...))
    wanted = model(field=write).field
    thread = store.thread("t", schema=model)
    thread.commit({"field": write})
    read = thread.state.to_python()["field"]
    assert read == wanted
    assert type(read) is type(wanted)
    with thread.mount() as state:
        assert state["field"] is not None
    assert thread.version == 0


def test_a_field_with_an_array_keeps_the_array(store):
    thread = store.thread("t", schema=Model)
    thread.commit({"array": np.arange(3)})
    assert np.array_equal(thread.state["array"], np.arange(3))


@pytest.mark.parametrize("name", ["user_name", "userName", "login"])
def test_a_write_can_name_a_channel_by_its_aliases(store, name):
    thread = store.thread("t", schema=Model)
    thread.commit({name: "ann"})
    assert thread.state.to_python() == {"user_name": "ann"}


def test_a_write_that_names_a_channel_twice_is_refused(refused, store):
    thread = store.thread("t", schema=Model)
    with refused(store, UsageError, channel="user_name"):
        thread.commit({"userName": "ann", "user_name": "bob"})


def test_names_that_are_not_aliases_are_not_channels(refused, store):
    with refused(store, ChannelError, channel="username"):
        store.thread("t", schema=Model).commit({"username": "ann"})


WHOLE = {
    "n": 1,
    "user": User("ann"),
    "users": [User("bob", Color.BLUE)],
    "by_name": {"ann": User("ann")},
    "messages": [Message(id="1", text="x")],
    "color": Color.BLUE,
    "files": {"a": "x"},
}


@pytest.fixture
def thread(store):
    made = store.thread("t", schema=State)
    made.commit(WHOLE)
    return made


def test_a_typed_dict_returns_values_of_its_types(store, thread):
    assert thread.state.to_python() == WHOLE
    assert dict(thread.state.items()) == WHOLE
    assert thread.state["users"][-1] == User("bob", Color.BLUE)
    assert thread.state["users"][:1] == WHOLE["users"]
    assert list(thread.state["by_name"].values()) == [User("ann")]
    assert thread.state["color"] is Color.BLUE
    assert thread.at(0).state == WHOLE
    assert thread.fork("b").state == WHOLE
    with store.snapshot() as snapshot:
        assert snapshot.thread("t", schema=State).state["user"] == User("ann")
    with store.transaction() as transaction:
        assert transaction.thread("t", schema=State).state["user"] == User("ann")


def test_a_thread_opened_without_the_schema_returns_stored_values(store, thread):
    assert thread.head.state["user"] == User("ann")
    assert store.thread("t").state["user"] == {"name": "ann", "color": "red"}
    assert store.thread("t").state["color"] == "blue"


@pytest.mark.parametrize("count", [1, 400])
def test_items_are_built_only_when_read_in_lists_of_any_length(store, count):
    thread = store.thread("long", schema=State)
    users = [User(f"user {number}") for number in range(count)]
    thread.commit({"users": users, "by_name": {user.name: user for user in users}})
    assert thread.state["users"][-1] == users[-1]
    assert list(thread.state["users"]) == list(reversed(list(reversed(thread.state["users"])))) == users
    assert thread.state["by_name"][users[-1].name] == users[-1]


def test_a_mount_that_only_reads_typed_values_changes_nothing(thread):
    with thread.mount() as state:
        assert {channel: state[channel] for channel in WHOLE} == WHOLE
    assert thread.version == 0


def test_changes_inside_typed_values_of_a_mount_are_written(thread):
    with thread.mount() as state:
        state["user"].name = "eve"
        state["users"].append(User("new"))
        state["messages"][0].text = "y"
        state["color"] = Color.RED
    assert thread.head.channels_written == ("color", "messages", "user", "users")
    assert thread.state["user"] == User("eve")
    assert thread.state["users"][-1] == User("new")
    assert thread.state["messages"][0] == Message(id="1", text="y")
    thread.edit(lambda state: setattr(state["user"], "name", "max"))
    assert thread.state["user"] == User("max")


def test_an_empty_typed_channel_is_filled_in_a_mount(store):
    thread = store.thread("new", schema=State)
    with thread.mount() as state:
        state["users"].append(User("ann"))
    assert thread.state["users"] == [User("ann")]


def test_a_mount_loses_no_field_that_the_type_does_not_have(store, thread):
    """A picture is a message, and stored whole; as a message it would lose its width."""
    thread.commit({"messages": Picture(id="2", width=640)})
    with pytest.raises(ValidationError, match="width: not declared, and would be lost"), thread.mount() as state:
        state["messages"][0]["text"] = "y"
    assert store.thread("t").state["messages"][1] == {"id": "2", "text": "", "width": 640}


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (lambda state: state.update(n="three"), "n"),
        (lambda state: state["files"].update(b=3), "files.b"),
        (lambda state: state["users"].append(3), "users[1]"),
    ],
)
@pytest.mark.parametrize("files", [{"a": "x"}, {f"file {number}": "x" * 100 for number in range(200)}])
def test_a_mount_refuses_values_of_wrong_types(refused, store, thread, change, where, files):
    thread.commit({"files": files})
    with refused(store, ValidationError, path=where), thread.mount() as state:
        change(state)


def test_values_of_another_declaration_are_reported_and_readable(store):
    store.thread("t").commit({"user": {"nick": "ann"}})
    state = store.thread("t", schema=State).state
    with pytest.raises(ValidationError, match=r"user\.nick: the stored value does not match .* without schema="):
        state["user"]
    assert store.thread("t").state["user"] == {"nick": "ann"}


def test_asyncio_reads_and_writes_the_same_types(tmp_path):
    async def run() -> Any:
        async with aio.open(tmp_path / "a.state") as store:
            thread = store.thread("t", schema=State)
            await thread.commit(WHOLE)
            async with thread.mount():
                pass
            versions = [await thread.version()]
            async with thread.mount() as state:
                state["user"].name = "eve"
            return [*versions, await thread.version()], await thread.state["user"], await thread.state

    versions, user, whole = asyncio.run(run())
    assert versions == [0, 1]
    assert user == User("eve")
    assert whole == {**WHOLE, "user": User("eve")}
    with statelog.open(tmp_path / "a.state") as store:
        assert store.thread("t").head.channels_written == ("user",)
