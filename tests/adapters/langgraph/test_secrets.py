"""A pydantic secret anywhere in a graph's state is shown as asterisks, and is restored unchanged."""

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest

pytest.importorskip("langgraph.checkpoint.base", reason="needs langgraph")

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import START, StateGraph
from pydantic import BaseModel, SecretBytes, SecretStr
from rich.console import Console

import statelog
from statelog.adapters.langgraph import StatelogSaver, StatelogStore
from statelog.errors import ValueTypeError

SECRET = "sk-12345"


class Account(BaseModel):
    key: SecretStr
    others: list[SecretStr] = []
    more: dict[str, SecretBytes] = {}


@dataclasses.dataclass
class Login:
    user: str
    key: SecretStr


class ApiSecret(SecretStr):
    pass


class ApiKey(SecretStr):
    pass


def secrets():
    """Return a state with a secret in everything that a serialiser packs."""
    key = SecretStr(SECRET)
    return {
        "plain": key,
        "bytes": SecretBytes(SECRET.encode()),
        "list": [key, [key], {"in": [key]}],
        "dict": {"a": key, "b": {"c": key}},
        "model": Account(key=key, others=[key], more={"x": SecretBytes(SECRET.encode())}),
        "models": [Account(key=key)] * 50,
        "dataclass": Login("me", key),
        "own": ApiSecret(SECRET),
        "key": ApiKey(SECRET),
    }


class State(TypedDict):
    account: Any
    log: Annotated[list[Any], lambda old, new: old + new]


CONFIG = {"configurable": {"thread_id": "1"}}
COMMANDS = [
    ["show", "a.state", "1"],
    ["show", "a.state", "1", "--full"],
    ["show", "a.state", "1", "--json"],
    ["show", "a.state", "1", "--path", "account"],
    ["show", "a.state", "1", "--path", "account.model"],
    ["show", "a.state", "1", "--path", "account.plain"],
    ["show", "a.state", "1", "--path", "account.bytes", "--json"],
    ["diff", "a.state", "1", "0", "2"],
    ["diff", "a.state", "1", "0", "2", "--full"],
    ["diff", "a.state", "1", "0", "2", "--json"],
    ["history", "a.state", "1"],
    ["history", "a.state", "1", "--json"],
    ["tree", "a.state", "1"],
    ["log", "a.state"],
    ["log", "a.state", "--json"],
    ["threads", "a.state", "--json"],
    ["verify", "a.state"],
    ["stat", "a.state", "--json"],
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("secrets")
    builder = StateGraph(State)
    builder.add_node("n", lambda _state: {"account": secrets(), "log": [SecretStr(SECRET)] * 3})
    builder.add_edge(START, "n")
    with StatelogSaver.open(str(found / "a.state")) as saver:
        graph = builder.compile(checkpointer=saver)
        config = {**CONFIG, "metadata": {"key": SecretStr(SECRET)}}
        graph.invoke({"account": None, "log": [{"in": SecretStr(SECRET)}]}, config)
        graph.update_state(CONFIG, {"account": secrets()})
        saver.put_writes(graph.get_state(CONFIG).config, [("account", secrets())], "task")
    return found


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_command_prints_a_secret(folder, command):
    cli = str(Path(sys.executable).with_name("statelog"))
    done = subprocess.run([cli, *command], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert SECRET not in done.stdout + done.stderr
    assert "c2stMTIzNDU" not in done.stdout  # base64


def test_a_secret_is_restored_unchanged(folder):
    with StatelogSaver.open(str(folder / "a.state")) as saver:
        found = saver.get_tuple(CONFIG)
        assert found.checkpoint["channel_values"]["account"] == secrets()
        assert found.pending_writes[0][2] == secrets()
        assert SECRET not in repr(found)


def test_neither_a_notebook_nor_a_terminal_nor_repr_shows_a_secret(folder):
    with statelog.open(folder / "a.state", read_only=True) as store:
        console = Console(record=True, width=10_000)
        for info in store.threads():
            thread = store.thread(info.id)
            state = thread.state
            change = statelog.diff(None, thread.head)
            for shown in (thread, thread.head, change, state, state.lazy, *state.values()):
                told = f"{shown!r} {shown!s}"
                told += shown._repr_html_() if hasattr(shown, "_repr_html_") else ""
                console.print(shown)
                assert SECRET not in told
            assert SECRET not in repr(state.to_python())
            assert SECRET not in repr([*change])
            assert SECRET not in repr([each.metadata for each in thread.history()])
        assert SECRET not in console.export_text()


def test_values_packed_by_another_serialiser_are_not_shown(tmp_path):
    saver = statelog.open(tmp_path / "a.state")
    with saver as store:
        builder = StateGraph(State)
        builder.add_node("n", lambda _state: {"account": {1, SecretStr(SECRET)}, "log": [Odd(SecretStr(SECRET))]})
        builder.add_edge(START, "n")
        graph = builder.compile(checkpointer=StatelogSaver(store, serde=JsonPlusSerializer(pickle_fallback=True)))
        graph.invoke({"account": None, "log": []}, CONFIG)
        assert SECRET not in repr(store.thread("1").state.to_python())
    cli = str(Path(sys.executable).with_name("statelog"))
    for more in ([], ["--json"], ["--full"]):
        done = subprocess.run([cli, "show", "a.state", "1", *more], cwd=tmp_path, capture_output=True, check=False)
        assert done.returncode == 0
        assert SECRET.encode() not in done.stdout


class Odd:
    """A class that msgpack does not know, so it is pickled."""

    def __init__(self, key):
        self.key = key


@pytest.mark.parametrize("name", ["app/secret-str", "token"])
def test_a_secret_of_a_codec_is_not_shown_where_the_codec_is_not_registered(tmp_path, name):
    program = (
        "import statelog, pydantic, sys\n"
        f"statelog.register_codec(pydantic.SecretStr, name={name!r},\n"
        "    encode=pydantic.SecretStr.get_secret_value, decode=pydantic.SecretStr)\n"
        "with statelog.open('a.state') as store:\n"
        f"    store.thread('1').commit({{'key': pydantic.SecretStr('{SECRET}')}})\n"
        f"    store.board().set('key', [pydantic.SecretStr('{SECRET}')])\n"
        "    print(store.thread('1').state, store.board().get('key'), store.thread('1').state._repr_html_())\n"
        f"    assert store.thread('1').state['key'].get_secret_value() == '{SECRET}'\n"
    )
    cli = str(Path(sys.executable).with_name("statelog"))
    for command in (
        [sys.executable, "-c", program],
        [cli, "show", "a.state", "1"],
        [cli, "show", "a.state", "1", "--json"],
        [cli, "diff", "a.state", "1"],
        [cli, "board", "ls", "a.state"],
        [cli, "board", "get", "a.state", "key", "--json"],
    ):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert SECRET not in done.stdout + done.stderr
        assert done.returncode in (0, 2)  # 2: the board returns no value whose codec is not registered.
        assert "Traceback" not in done.stderr


def test_an_item_with_a_secret_is_refused_without_showing_the_secret(tmp_path):
    with StatelogStore.open(str(tmp_path / "a.state")) as store, pytest.raises(ValueTypeError) as caught:
        store.put(("a",), "k", {"key": SecretStr(SECRET)})
    assert SECRET not in f"{caught.value} {caught.value.facts}"
