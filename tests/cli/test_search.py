"""`statelog search` shows the places of a text, as a table and as JSON."""

from __future__ import annotations

import pytest

import statelog


@pytest.fixture
def chats(tmp_path):
    path = tmp_path / "chats.state"
    with statelog.open(path) as store:
        store.thread("chat-7").commit({"messages": [{"role": "user", "content": "the refund policy"}]})
        store.thread("chat-7").commit({"note": "done"})
        store.board().set("notes/1", {"text": "refund\x1b[31m"})
    return path


def test_hits_are_shown_with_their_places(run, chats):
    answer = run("search", chats, "refund")
    assert answer.code == 0
    assert "board notes/1 text" in answer.out
    assert "chat-7 0 messages[0]" in answer.out
    assert "\x1b" not in answer.out


def test_hits_as_json_have_all_fields(run, chats):
    document = run("search", chats, "refund policy", "--threads", "chat-*", "--where", "messages", "--json").document
    assert document["thread"] == "chat-7"
    assert document["path"] == ["messages", 0]
    assert document["text"] == document["snippet"] == "the refund policy"


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        (("refund elephants",), 0),
        (("refund elephants", "--any"), 2),
        (("refund", "--limit", "1"), 1),
        (("done", "--at", "0"), 0),
        (("done", "--at", "1"), 1),
        (("refund", "--at", "2999-01-01"), 2),
        (("refund", "--since", "2999-01-01"), 0),
        (("refund", "--role", "user"), 1),
        (("refund", "--history", "--branch", "main"), 1),
    ],
)
def test_options_select_hits(run, chats, arguments, count):
    assert len(run("search", chats, *arguments, "--json").out.splitlines()) == count


@pytest.mark.parametrize("arguments", [("--at", "soon"), ("--since", "soon"), ("--limit", "0"), ("--where", "")])
def test_an_invalid_option_is_an_error(run, chats, arguments):
    assert run("search", chats, "refund", *arguments).code == 2


def test_a_missing_store_is_not_created(run, tmp_path):
    assert run("search", tmp_path / "none.state", "refund").code != 0
    assert list(tmp_path.iterdir()) == []
