"""Sessions of ADK: the contract that ADK's own services also fulfil, and features that only a store has."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("google.adk", exc_type=ImportError)

from google.adk.errors._invocation_not_found_error import InvocationNotFoundError
from google.adk.errors._stale_session_error import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events._rewind_events import _apply_rewinds
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.sessions._rewind_utils import rewind_session
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.database_session_service import DatabaseSessionService
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types

from statelog.adapters.google_adk import StatelogSessionService
from statelog.storage.faults import POINTS

MAKE = {
    "memory": lambda _folder: InMemorySessionService(),
    "sqlite": lambda folder: SqliteSessionService(str(folder / "sqlite.db")),
    "database": lambda folder: DatabaseSessionService(f"sqlite+aiosqlite:///{folder}/database.db"),
    "statelog": lambda folder: StatelogSessionService.open(folder / "agent.state", durability="interval"),
}
HERE = {"app_name": "app", "user_id": "user"}


def event(text="x", *, at=None, delta=None, **fields):
    content = types.Content(role="user", parts=[types.Part(text=text)])
    actions = EventActions(state_delta=delta or {})
    given_to = {
        "invocation_id": "i",
        "author": "user",
        "timestamp": at or time.time(),
        "content": content,
        "actions": actions,
    }
    return Event(**{**given_to, **fields})


def held_by(*names):
    """Run a test, a coroutine function of a service, with each of these services."""

    def decorate(test):
        @pytest.mark.parametrize("name", names or list(MAKE))
        def run(name, tmp_path):
            async def main():
                service = MAKE[name](tmp_path)
                await test(service)
                if hasattr(service, "close"):
                    await service.close()

            asyncio.run(main())

        run.__name__ = test.__name__
        return run

    return decorate


async def reread(service, session, **config):
    where = {"app_name": session.app_name, "user_id": session.user_id, "session_id": session.id}
    return await service.get_session(**where, config=GetSessionConfig(**config) if config else None)


def texts(session):
    return [each.content.parts[0].text for each in session.events]


@held_by()
async def test_a_session_can_be_created_deleted_and_created_again(service):
    assert await service.get_session(**HERE, session_id="s") is None
    session = await service.create_session(**HERE, session_id="s", state={"k": 1})
    assert await reread(service, session) == session
    with pytest.raises(AlreadyExistsError):
        await service.create_session(**HERE, session_id="s")
    await service.append_event(session, event())
    await service.delete_session(**HERE, session_id="s")
    assert await reread(service, session) is None
    with pytest.raises(SessionNotFoundError):
        await service.append_event(session, event())
    again = await service.create_session(**HERE, session_id="s")
    assert (again.events, again.state) == ([], {})


@held_by()
async def test_state_has_three_stored_scopes_and_a_temporary_one(service):
    session = await service.create_session(**HERE, session_id="s", state={"app:x": 1, "user:y": 2, "z": 3, "temp:t": 4})
    other = await service.create_session(app_name="app", user_id="other", session_id="s")
    assert other.state == {"app:x": 1}
    delta = {"app:x": 5, "user:y": {"b": [1, None], "a": 0}, "temp:q": 1, "z": None}
    await service.append_event(session, event(delta=delta))
    assert session.state["temp:q"] == 1
    kept = await reread(service, session)
    assert kept.state == {"app:x": 5, "user:y": {"b": [1, None], "a": 0}, "z": None}
    assert "temp:q" not in kept.events[0].actions.state_delta
    assert await service.get_user_state(**HERE) == {"y": {"b": [1, None], "a": 0}}
    assert await service.get_user_state(app_name="app", user_id="nobody") == {}


@held_by()
async def test_events_are_read_as_configured(service):
    session = await service.create_session(**HERE)
    for number in range(6):
        await service.append_event(session, event(str(number), at=1000.0 + number))
    for config, wanted in (
        ({}, "012345"),
        ({"num_recent_events": 2}, "45"),
        ({"num_recent_events": 0}, ""),
        ({"num_recent_events": 9}, "012345"),
        ({"after_timestamp": 1003.0}, "345"),
        ({"after_timestamp": 1001.0, "num_recent_events": 1}, "5"),
    ):
        assert texts(await reread(service, session, **config)) == list(wanted)
    kept = await reread(service, session)
    assert kept.events == session.events
    assert kept.last_update_time == pytest.approx(1005.0)
    partial = event("part")
    partial.partial = True
    await service.append_event(session, partial)
    assert len((await reread(service, session)).events) == 6


@held_by()
async def test_a_list_is_ordered_by_the_last_events_and_contains_no_events(service):
    for name, at in (("b", 3000.0), ("a", 1000.0), ("c", 2000.0)):
        session = await service.create_session(**HERE, session_id=name, state={"n": name, "app:all": 1})
        await service.append_event(session, event(at=at, delta={"at": at}))
    await service.create_session(app_name="app", user_id="other", session_id="z")
    found = (await service.list_sessions(**HERE)).sessions
    assert [each.id for each in found] == ["a", "c", "b"]
    assert all(not each.events for each in found)
    assert found[0].state == {"n": "a", "at": 1000.0, "app:all": 1}
    everyone = (await service.list_sessions(app_name="app")).sessions
    assert {(each.user_id, each.id) for each in everyone} == {
        ("user", "a"),
        ("user", "b"),
        ("user", "c"),
        ("other", "z"),
    }
    assert (await service.list_sessions(app_name="none")).sessions == []


@held_by("sqlite", "database", "statelog")
async def test_a_session_that_was_changed_in_the_meantime_is_stale(service):
    session = await service.create_session(**HERE)
    first, second = await reread(service, session), await reread(service, session)
    await service.append_event(first, event("1"))
    with pytest.raises(StaleSessionError):
        await service.append_event(second, event("2"))
    assert texts(await reread(service, session)) == ["1"]


@held_by("database", "statelog")  # ADK's SqliteSessionService accepts all ten.
async def test_one_of_ten_concurrent_stale_writers_wins(service):
    session = await service.create_session(**HERE)
    copies = [await reread(service, session) for _ in range(10)]
    calls = (service.append_event(copy, event(str(number))) for number, copy in enumerate(copies))
    done = await asyncio.gather(*calls, return_exceptions=True)
    assert sum(isinstance(each, Event) for each in done) == 1
    assert len((await reread(service, session)).events) == 1


@held_by("statelog")
async def test_one_of_ten_concurrent_creations_of_a_session_succeeds(service):
    calls = [service.create_session(**HERE, session_id="s", state={"n": n}) for n in range(10)]
    calls += [service.create_session(**HERE, session_id="t")]
    done = await asyncio.gather(*calls, return_exceptions=True)
    made = [each for each in done[:10] if not isinstance(each, Exception)]
    assert [type(each) for each in done[:10] if isinstance(each, Exception)] == [AlreadyExistsError] * 9
    calls = [service.fork_session(**HERE, session_id="s", new_session_id="f") for _ in range(5)]
    forked = await asyncio.gather(*calls, return_exceptions=True)
    assert sum(isinstance(each, AlreadyExistsError) for each in forked) == 4
    assert {each.id: each.state for each in (await service.list_sessions(**HERE)).sessions} == {
        "s": made[0].state,
        "t": {},
        "f": made[0].state,
    }


@held_by("statelog")
async def test_concurrent_deletions_and_appends_leave_no_partial_session(service):
    async def talk(number):
        try:
            session = await service.create_session(**HERE, session_id="s", state={"n": number})
            for _ in range(3):
                await service.append_event(session, event(delta={"n": number}))
        except (AlreadyExistsError, SessionNotFoundError, StaleSessionError):
            await service.delete_session(**HERE, session_id="s")

    for _ in range(5):
        await asyncio.gather(*(talk(number) for number in range(8)))
        kept = await service.get_session(**HERE, session_id="s")
        shown = (await service.list_sessions(**HERE)).sessions
        assert [each.state for each in shown] == ([] if kept is None else [kept.state])


IDS = st.sampled_from(["1", "2"])
VALUES = st.sampled_from([1, 2.5, "x", [1, {"b": None, "a": 0}], None, True])
KEYS = [f"{scope}{name}" for scope in ("", "app:", "user:", "temp:") for name in "zka"]
DELTAS = st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=4)
STEPS = st.one_of(
    st.tuples(st.just("create"), IDS, IDS, DELTAS),
    st.tuples(st.just("append"), IDS, IDS, DELTAS),
    st.tuples(st.just("delete"), IDS, IDS, st.none()),
    st.tuples(st.just("get"), IDS, IDS, st.none()),
    st.tuples(st.just("list"), IDS, IDS, st.none()),
)


async def answer(service, step, user, id, delta, at):
    where = {"app_name": "app", "user_id": user}
    if step == "create":
        try:
            made = await service.create_session(**where, session_id=id, state=dict(delta))
        except AlreadyExistsError:
            return "there"
        return {key: value for key, value in made.state.items() if not key.startswith("temp:")}
    if step == "delete":
        return await service.delete_session(**where, session_id=id)
    if step == "list":
        found = (await service.list_sessions(**where)).sessions
        return sorted(each.id for each in found)
    session = await service.get_session(**where, session_id=id)
    if session is not None and step == "append":
        await service.append_event(session, event(at=at, delta=dict(delta), id=f"e{at}"))
    return session and (dict(session.state), [each.id for each in session.events])


@settings(max_examples=20)
@given(steps=st.lists(STEPS, max_size=14))
def test_random_calls_get_the_same_answers_as_from_adks_services(tmp_path_factory, steps):
    folder = tmp_path_factory.mktemp("s")

    async def main():
        services = [MAKE[name](folder) for name in ("memory", "sqlite", "statelog")]
        for number, (step, user, id, delta) in enumerate(steps):
            answers = [await answer(each, step, user, id, delta, 1000.0 + number) for each in services]
            assert answers[2] == answers[0]
            assert repr(answers[2]) == repr(answers[0]), "the order of keys, too"
            assert answers[2] == answers[1]  # Its order differs after a session was deleted.
        await services[2].close()

    asyncio.run(main())


# --- features of a store only ---------------------------------------------------------


@held_by("statelog")
async def test_a_fork_continues_from_an_event(service):
    session = await service.create_session(**HERE, session_id="s", state={"k": 0, "user:u": 1})
    made = [await service.append_event(session, event(str(number), delta={"k": number})) for number in range(5)]
    forked = await service.fork_session(**HERE, session_id="s", at=made[2].id, new_session_id="f")
    assert texts(forked) == ["0", "1", "2"]
    assert forked.state == {"k": 2, "user:u": 1}
    await service.append_event(forked, event("other", delta={"k": "f"}))
    assert texts(await reread(service, forked)) == ["0", "1", "2", "other"]
    assert texts(await reread(service, session)) == list("01234")
    states = {each.id: each.state["k"] for each in (await service.list_sessions(**HERE)).sessions}
    assert states == {"s": 4, "f": "f"}
    whole = await service.fork_session(**HERE, session_id="s")
    assert texts(whole) == list("01234")
    with pytest.raises(AlreadyExistsError):
        await service.fork_session(**HERE, session_id="s", new_session_id="f")
    with pytest.raises(ValueError, match="no event"):
        await service.fork_session(**HERE, session_id="s", at="unknown")
    with pytest.raises(SessionNotFoundError):
        await service.fork_session(**HERE, session_id="unknown")


@held_by("statelog")
async def test_a_rewind_keeps_the_initial_state_of_a_session(service):
    session = await service.create_session(**HERE, session_id="s", state={"initial": 1, "both": 0, "app:a": 1})
    for number in range(4):
        delta = {"both": number + 1, f"of {number}": True, "app:a": number}
        await service.append_event(session, event(str(number), delta=delta, invocation_id=f"i{number}"))
    session = await reread(service, session)
    await rewind_session(
        session_service=service,
        session=session,
        rewind_before_invocation_id="i1",
        artifact_service=None,
        app_name="app",
    )
    state = (await reread(service, session)).state
    assert {key: value for key, value in state.items() if value is not None} == {
        "initial": 1, "both": 1, "of 0": True, "app:a": 3
    }  # fmt: skip


async def rewound(service, session, before):
    """Rewind a session as ADK's runner does. Return the session as it is read afterwards."""
    await rewind_session(
        session_service=service, session=await reread(service, session), rewind_before_invocation_id=before
    )
    return await reread(service, session)


async def turns(service, *numbers):
    session = await service.create_session(**HERE, session_id="s")
    for number in numbers:
        delta = {"turn": number}
        await service.append_event(session, event(str(number), at=number, delta=delta, invocation_id=f"i{number}"))
    return session


def live(session):
    return [each.content.parts[0].text for each in _apply_rewinds(session.events)]


@held_by("statelog")
async def test_a_rewind_to_a_dropped_turn_is_refused_and_restores_nothing(service):
    session = await turns(service, 1, 2, 3)
    before = await rewound(service, session, "i2")
    assert live(before) == ["1"]
    for stale in ("i3", "i2"):
        with pytest.raises(InvocationNotFoundError, match=f"{stale}.*dropped"):
            await rewound(service, session, stale)
    after = await reread(service, session)
    assert (after.events, after.state) == (before.events, before.state)


@held_by("statelog")
async def test_a_second_rewind_to_a_live_turn_continues_from_the_first(service):
    session = await rewound(service, await turns(service, 1, 2, 3), "i3")
    assert live(session) == ["1", "2"]
    await service.append_event(session, event("4", delta={"turn": 4}, invocation_id="i4"))
    session = await rewound(service, session, "i4")
    assert (live(session), session.state["turn"]) == (["1", "2"], 2)
    session = await rewound(service, session, "i1")
    assert (live(session), session.state.get("turn")) == ([], None)


@held_by("statelog")
async def test_a_window_shows_no_turn_dropped_by_a_rewind_to_before_the_window(service):
    session = await rewound(service, await turns(service, 1, 2, 3), "i2")
    await service.append_event(session, event("4", invocation_id="i4"))
    windows = [await reread(service, session, num_recent_events=count) for count in range(1, 6)]
    assert [live(window) for window in windows] == [["4"]] * 4 + [["1", "4"]]
    assert live(await reread(service, session, after_timestamp=2.5)) == ["4"]


@held_by("statelog")
async def test_a_fork_has_only_the_events_of_its_own_past(service):
    session = await service.create_session(**HERE, session_id="s", state={"k": 0})
    made = [
        await service.append_event(session, event(str(number), delta={"k": number + 1}, invocation_id=f"i{number}"))
        for number in range(3)
    ]
    forked = await service.fork_session(**HERE, session_id="s", at=made[0].id, new_session_id="f")
    with pytest.raises(ValueError, match="no event"):
        await service.fork_session(**HERE, session_id="f", at=made[2].id)
    again = await service.fork_session(**HERE, session_id="f", at=made[0].id)
    assert (texts(again), again.state) == (["0"], {"k": 1})
    await rewind_session(
        session_service=service,
        session=forked,
        rewind_before_invocation_id="i0",
        artifact_service=None,
        app_name="app",
    )
    assert (await reread(service, forked)).state == {"k": 0}


@held_by("statelog")
async def test_after_a_rollback_of_its_thread_a_session_continues_from_that_state(service):
    session = await service.create_session(**HERE, session_id="s")
    made = [await service.append_event(session, event(str(n), delta={"k": n, f"k{n}": n})) for n in range(3)]
    service.store.thread("adk:app/user/s").rollback(1)
    with pytest.raises(StaleSessionError):
        await service.append_event(session, event("stale"))
    session = await reread(service, session)
    await service.append_event(session, event("next", delta={"other": 1}))
    assert texts(await reread(service, session)) == ["0", "next"]
    [shown] = (await service.list_sessions(**HERE)).sessions
    assert shown.state == (await reread(service, session)).state == {"k": 0, "k0": 0, "other": 1}
    with pytest.raises(ValueError, match="no event"):
        await service.fork_session(**HERE, session_id="s", at=made[2].id)


@held_by("statelog")
async def test_the_state_in_a_list_is_rebuilt_if_it_was_deleted(service):
    session = await service.create_session(**HERE, session_id="s", state={"b": 1, "a": 2})
    service.store.delete_thread("adk:app/user")
    await service.append_event(session, event("x", delta={"c": 3}))
    [shown] = (await service.list_sessions(**HERE)).sessions
    assert list(shown.state) == list((await reread(service, session)).state) == ["b", "a", "c"]


@held_by()
async def test_a_session_read_before_its_id_was_used_again_is_stale(service):
    old = await service.create_session(**HERE, session_id="s", state={"who": "old"})
    await service.delete_session(**HERE, session_id="s")
    await asyncio.sleep(0.01)
    new = await service.create_session(**HERE, session_id="s", state={"who": "new"})
    if not isinstance(service, InMemorySessionService):  # It does not check.
        with pytest.raises((StaleSessionError, ValueError)):
            await service.append_event(old, event("late", delta={"secret": 1}))
        assert (await reread(service, new)).state == {"who": "new"}


@held_by("statelog")
async def test_fifty_tasks_with_one_session_each_lose_no_event(service):
    async def talk(number):
        session = await service.create_session(**HERE, session_id=str(number))
        for turn in range(3):
            await service.append_event(session, event(str(turn), delta={"user:last": number, "turn": turn}))

    await asyncio.gather(*(talk(number) for number in range(50)))
    found = (await service.list_sessions(**HERE)).sessions
    assert len(found) == 50
    assert all(each.state["turn"] == 2 for each in found)
    assert {tuple(texts(await reread(service, each))) for each in found} == {("0", "1", "2")}
    assert service.store.verify().ok


def test_ids_can_have_any_length_and_script(tmp_path):
    async def main():
        service = MAKE["statelog"](tmp_path)
        names = [
            {"app_name": app, "user_id": user} for app in ("a/b", "a") for user in ("c", "b/c", "漢" * 300, "🙂" * 500)
        ]
        for number, name in enumerate(names):
            await service.create_session(**name, session_id="s" * 5000, state={"n": number})
        for number, name in enumerate(names):
            found = await service.get_session(**name, session_id="s" * 5000)
            assert found.state == {"n": number}
            assert [each.id for each in (await service.list_sessions(**name)).sessions] == ["s" * 5000]
        await service.close()

    asyncio.run(main())


KILLED = """
import asyncio, sys
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from statelog.adapters.google_adk import StatelogSessionService
async def main():
    service = StatelogSessionService.open(sys.argv[1])
    state = {"user:n": -1, "n": -1}
    session = await service.create_session(app_name="app", user_id="user", session_id="s", state=state)
    print("made", flush=True)
    for n in range(9):
        actions = EventActions(state_delta={"user:n": n, "n": n, "app:n": n})
        await service.append_event(session, Event(author="user", timestamp=1000.0 + n, actions=actions))
        print(n, flush=True)
asyncio.run(main())
"""


@pytest.mark.parametrize("point", [point for point in POINTS if point.startswith("commit.")])
def test_an_event_before_a_kill_is_stored_with_all_of_its_changes(tmp_path, point):
    environment = {**os.environ, "STATELOG_FAULT": f"{point}:{20 if '_put_' in point else 4}:kill"}
    command = [sys.executable, "-W", "ignore", "-c", KILLED, str(tmp_path / "s")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr

    async def main():
        service = StatelogSessionService.open(tmp_path / "s")
        session = await service.get_session(**HERE, session_id="s")
        [shown] = (await service.list_sessions(**HERE)).sessions
        await service.close()
        return session, shown

    session, shown = asyncio.run(main())
    count = len(session.events)
    assert count - len(done.stdout.split()) in (-1, 0)
    assert session.state == shown.state
    assert [session.state["n"], session.state["user:n"], session.state.get("app:n", -1)] == [count - 1] * 3
    assert session.last_update_time == shown.last_update_time
