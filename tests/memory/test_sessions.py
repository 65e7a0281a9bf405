"""Sessions and turns: an event is answered once, a killed turn is resumed, and a window fits a prompt."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

import statelog
from statelog import Memory
from statelog.errors import ConflictError, UsageError, ValueTypeError


@pytest.fixture
def store(tmp_path):
    with statelog.open(tmp_path / "a.state") as opened:
        yield opened


@pytest.fixture
def session(store):
    return Memory(store, "user/42").session("s-1")


def said(role, content):
    return {"role": role, "content": content}


def say(session, *contents, event="evt"):
    with session.turn(f"{event}-{contents[0]}") as turn:
        for content in contents:
            turn.add(said("user", content))


def contents(messages):
    return [message["content"] for message in messages]


# --- turns ------------------------------------------------------------------------------


def test_a_turn_adds_its_messages_in_one_commit_and_clears_its_working_state(store, session):
    with session.turn("evt-1") as turn:
        turn.add(said("user", "hi"))
        turn.working["plan"] = ["greet"]
        before = store.last_lsn
        assert session.messages() == []
    assert contents(session.messages()) == ["hi"]
    assert store.last_lsn == before + 2  # The version, and the entry of the session.
    assert store.thread(session.thread_id).state["turns"].to_python() == {}


def test_an_event_that_is_done_is_done_once(store, session):
    say(session, "hi")
    lsn = store.last_lsn
    with session.turn("evt-hi") as turn:
        assert turn.is_completed
        assert not turn.is_resumed
        turn.add(said("user", "hi"))
        turn.working["plan"] = 1
    assert contents(session.messages()) == ["hi"]
    assert store.last_lsn == lsn


def test_a_turn_that_raises_adds_nothing_and_is_resumed_with_its_working_state(session):
    def fail():
        with session.turn("evt-1") as turn:
            turn.add(said("user", "lost"))
            turn.working["plan"] = {"steps": [1, 2]}
            turn.working["gone"] = 1
            del turn.working["gone"]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert session.messages() == []
    with session.turn("evt-1") as turn:
        assert turn.is_resumed
        assert dict(turn.working) == {"plan": {"steps": [1, 2]}}
        turn.add(said("user", "kept"))
    assert contents(session.messages()) == ["kept"]


_KILLED = """
import os, sys, statelog
from statelog import Memory
with statelog.open(sys.argv[1]) as store:
    with Memory(store, "user/42").session("s-1").turn("evt-1") as turn:
        assert not turn.is_resumed
        turn.add({"role": "user", "content": "lost"})
        turn.working["plan"] = "soup"
        os.kill(os.getpid(), 9)
"""


@pytest.mark.slow
def test_a_killed_turn_is_resumed_in_another_process(tmp_path):
    path = tmp_path / "killed.state"
    assert subprocess.run([sys.executable, "-c", _KILLED, str(path)], check=False).returncode == -9
    with statelog.open(path) as store:
        session = Memory(store, "user/42").session("s-1")
        assert session.messages() == []
        with session.turn("evt-1") as turn:
            assert turn.is_resumed
            assert turn.working["plan"] == "soup"
            turn.add(said("user", "kept"))
        assert contents(session.messages()) == ["kept"]


def test_two_turns_of_one_event_at_once_add_their_messages_once(session):
    with session.turn("evt-1") as first, session.turn("evt-1") as second:
        assert second.is_resumed
        first.add(said("user", "first"))
        second.add(said("user", "second"))
    assert contents(session.messages()) == ["second"]
    assert first.is_completed
    assert not second.is_completed


def test_turns_of_different_events_do_not_share_their_working_state(session):
    with session.turn("evt-1") as first, session.turn("evt-2") as second:
        first.working["plan"] = 1
        assert "plan" not in second.working
        second.working["plan"] = 2
    with session.turn("evt-3") as third:
        assert dict(third.working) == {}


def test_threads_that_take_turns_at_once_lose_no_message(session):
    threads = [threading.Thread(target=say, args=(session, f"{number}")) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(contents(session.messages())) == [f"{number}" for number in range(8)]


def test_bad_turns_are_refused(session):
    for event in ("", None, 7):
        with pytest.raises(UsageError, match="event_id"):
            session.turn(event)
    with session.turn("evt-1") as turn:
        with pytest.raises(UsageError, match="message must be a dict"):
            turn.add("hi")
        with pytest.raises(ValueTypeError, match="messages"):
            turn.add({"role": "user", "content": object()})
        with pytest.raises(ValueTypeError, match="working"):
            turn.working["plan"] = object()
        with pytest.raises(UsageError, match="begun"):
            turn.__enter__()
    for late in (lambda: turn.add(said("user", "x")), lambda: turn.working.update(a=1)):
        with pytest.raises(UsageError, match=r"not open|has ended"):
            late()
    assert session.messages() == []


@pytest.mark.parametrize("session_id", ["", "a/b", "a*", "..", None])
def test_a_bad_session_is_refused(store, session_id):
    with pytest.raises(UsageError, match="session"):
        Memory(store, "user/42").session(session_id)


@pytest.mark.parametrize("ttl_s", [0, -1, "1", True])
def test_a_bad_time_to_live_is_refused(store, ttl_s):
    with pytest.raises(UsageError, match="ttl_s"):
        Memory(store, "user/42").session("s-1", ttl_s=ttl_s)


# --- expiry -----------------------------------------------------------------------------


def _expire(store, session):
    """End the time of a session, as the clock would: its entry goes, and nothing else is written."""
    store.board().delete(session.thread_id)


def test_a_session_ends_with_its_time_and_use_puts_the_end_off(store):
    session = Memory(store, "user/42").session("s-1", ttl_s=3600)
    say(session, "hi")
    first = store.board().get(session.thread_id).expires
    say(session, "ho")
    assert store.board().get(session.thread_id).expires > first
    store.board().set(session.thread_id, {"ttl_s": 3600}, ttl_s=3000)  # as 600 s after the last use
    early = store.board().get(session.thread_id).expires
    session.messages()
    assert store.board().get(session.thread_id).expires > early


def test_a_session_that_has_expired_shows_nothing_and_begins_anew(store):
    session = Memory(store, "user/42").session("s-1", ttl_s=3600)
    say(session, "old")
    _expire(store, session)
    assert session.messages() == session.window(tokens=100) == []
    say(session, "new")
    assert contents(session.messages()) == ["new"]
    with session.turn("evt-old") as turn:
        assert not turn.is_completed


@pytest.mark.parametrize("how", ["forgotten", "expired", "scope forgotten", "rolled back"])
def test_a_turn_brings_no_session_back_that_is_gone(store, how):
    session = Memory(store, "user/42").session("s-1", ttl_s=3600)
    say(session, "old")

    def take_turn():
        with session.turn("evt-1") as turn:
            turn.add(said("user", "late"))
            if how == "forgotten":
                session.forget()
            elif how == "expired":
                _expire(store, session)
            elif how == "rolled back":
                store.thread(session.thread_id).rollback(1)
            else:
                Memory.forget_scope(store, "user/42")
            with pytest.raises(ConflictError, match="during the turn"):
                turn.working["plan"] = 1

    with pytest.raises(ConflictError, match="during the turn"):
        take_turn()
    assert contents(session.messages()) == (["old"] if how == "rolled back" else [])
    assert (session.thread_id in store.thread_ids()) == (how == "rolled back")


def test_the_sweep_deletes_expired_sessions_of_the_scope_alone(store):
    memories = [Memory(store, scope) for scope in ("user/4", "user/42", "user/42/agent/7")]
    sessions = [memory.session(name, ttl_s=60) for memory in memories for name in ("old", "new")]
    for session in sessions:
        say(session, "hi")
    for session in sessions[::2]:
        _expire(store, session)
    assert {*memories[1].sweep()} == {sessions[2].thread_id, sessions[4].thread_id}
    assert memories[1].sweep() == []
    assert {*store.thread_ids()} == {sessions[at].thread_id for at in (0, 1, 3, 5)}


def test_a_session_is_forgotten_with_all_its_versions(session):
    say(session, "secret soup")
    assert session.forget()
    assert not session.forget()
    assert session.messages() == []
    say(session, "new")
    assert contents(session.messages()) == ["new"]


# --- windows and summaries --------------------------------------------------------------


def one(_message):
    return 1


def test_a_window_has_the_newest_messages_that_fit(session):
    say(session, *"abcdef")
    assert contents(session.window(tokens=3, count=one)) == ["d", "e", "f"]
    assert contents(session.window(tokens=100)) == [*"abcdef"]
    assert session.window(tokens=1) == []


def test_system_messages_and_the_summary_come_first(session):
    with session.turn("evt-0") as turn:
        turn.add(said("system", "be kind"))
    say(session, *"abcdef")
    assert session.summarize(lambda messages: "".join(contents(messages)), keep_last=2) == "abcd"
    assert contents(session.window(tokens=4, count=one)) == ["abcd", "be kind", "e", "f"]
    assert contents(session.window(tokens=1, count=one)) == ["abcd", "be kind"]
    assert contents(session.messages()) == ["be kind", *"abcdef"]


def test_a_second_summary_takes_in_the_first(session):
    say(session, *"abcd")
    session.summarize(lambda messages: "".join(contents(messages)), keep_last=2)
    say(session, *"ef")
    assert session.summarize(lambda messages: "+".join(contents(messages)), keep_last=2) == "ab+c+d"
    assert session.summary == "ab+c+d"
    assert session.summarize(pytest.fail, keep_last=2) is None


def test_the_model_is_called_outside_of_a_commit_and_messages_added_meanwhile_stay(session):
    say(session, *"abcd")

    def model(_messages):
        say(session, "meanwhile")
        return "sum"

    session.summarize(model, keep_last=2)
    assert contents(session.window(tokens=100)) == ["sum", "c", "d", "meanwhile"]


def test_a_model_that_fails_changes_nothing(store, session):
    say(session, *"abcd")
    lsn = store.last_lsn
    with pytest.raises(ZeroDivisionError):
        session.summarize(lambda _messages: 1 // 0, keep_last=1)
    for answer in (None, "", 7):
        with pytest.raises(UsageError, match="model must return"):
            session.summarize(lambda _messages, answer=answer: answer, keep_last=1)
    assert store.last_lsn == lsn


@pytest.mark.parametrize("change", ["summarized", "rolled back", "forgotten"])
def test_a_summary_of_changed_messages_is_refused(store, session, change):
    say(session, "a")
    say(session, *"bcd")

    def model(_messages):
        if change == "summarized":
            session.summarize(lambda _messages: "other", keep_last=2)
        elif change == "rolled back":
            store.thread(session.thread_id).rollback(1)
        else:
            session.forget()
        return "sum"

    with pytest.raises(ConflictError, match="while the model was called"):
        session.summarize(model, keep_last=1)
    assert session.summary == ("other" if change == "summarized" else None)


@pytest.mark.parametrize("more", [{"tokens": 0}, {"tokens": "x"}, {"tokens": 1, "count": 3}])
def test_a_bad_window_is_refused(session, more):
    with pytest.raises(UsageError):
        session.window(**more)


def test_a_bad_number_to_keep_is_refused(session):
    for keep_last in (-1, True, "2"):
        with pytest.raises(UsageError, match="keep_last"):
            session.summarize(len, keep_last=keep_last)
