"""Two processes on one session, and on two sessions of one user: no event is lost or stored twice."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

pytest.importorskip("google.adk", exc_type=ImportError)

from forked import Nursery, meet
from google.adk.errors._stale_session_error import StaleSessionError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.genai import types

from statelog.adapters.google_adk import StatelogSessionService

HERE = {"app_name": "app", "user_id": "user"}
ROUNDS = 15


def said(text, **delta):
    content = types.Content(role="user", parts=[types.Part(text=text)])
    return Event(author="user", content=content, actions=EventActions(state_delta=delta))


def texts(session):
    return [each.content.parts[0].text for each in session.events]


# --- what a process does --------------------------------------------------------------


def racing(path, me, other, tries):
    """Append events to one session, each time after the other process has also read it.

    Return how often it was stale.
    """

    async def main():
        service, stale = StatelogSessionService.open(path), 0
        for number in range(ROUNDS):
            session = await service.get_session(**HERE, session_id="s")
            meet(path, f"{me}{number}", [f"{other}{number}"])
            for _try in range(tries):
                delta = {me: number, f"user:{me}": number, f"app:{me}": number}
                try:
                    await service.append_event(session, said(f"{me}{number}", **delta))
                except StaleSessionError:
                    stale += 1
                    session = await service.get_session(**HERE, session_id="s")
                else:
                    break
        await service.close()
        return stale

    return asyncio.run(main())


def beside(path, me, other):
    """Create an own session, and append to it in step with the other process."""

    async def main():
        service = StatelogSessionService.open(path)
        meet(path, me, [other])
        session = await service.create_session(**HERE, session_id=me, state={f"user:{me}": -1, f"app:{me}": -1})
        for number in range(ROUNDS):
            meet(path, f"{me}{number}", [f"{other}{number}"])
            delta = {"n": number, f"user:{me}": number, f"app:{me}": number}
            await service.append_event(session, said(str(number), **delta))
        await service.close()

    asyncio.run(main())


def begun(path):
    async def main():
        service = StatelogSessionService.open(path)
        await service.create_session(**HERE, session_id="s")
        await service.close()

    asyncio.run(main())


# --- the result -----------------------------------------------------------------


@pytest.fixture(scope="module")
def nursery():
    with Nursery(__file__) as forking:
        yield forking


def both(nursery, path, name, *options):
    """Run both processes. Return their reports, and the stored events."""

    async def look():
        service = StatelogSessionService.open(path)
        shown = (await service.list_sessions(**HERE)).sessions
        found = {each.id: await service.get_session(**HERE, session_id=each.id) for each in shown}
        assert service.store.verify().ok
        await service.close()
        return {each.id: each for each in shown}, found

    ended = nursery.together((name, path, "a", "b", *options), (name, path, "b", "a", *options))
    assert [code for code, _told in ended] == [0, 0], ended
    return [told for _code, told in ended], *asyncio.run(look())


def lost_and_doubled(session):
    counts = Counter(texts(session))
    written = {f"{me}{number}" for me in "ab" for number in range(ROUNDS)}
    return len(written - counts.keys()), counts.total() - len(counts)


def test_the_stale_one_of_two_processes_on_a_session_is_refused_and_no_event_is_lost(nursery, path):
    nursery.call("begun", str(path))
    stale, shown, found = both(nursery, str(path), "racing", 10)
    session = found["s"]
    assert lost_and_doubled(session) == (0, 0)
    assert sum(stale) >= ROUNDS, "each time one of both was"
    for me in "ab":
        assert [text for text in texts(session) if text[0] == me] == [f"{me}{number}" for number in range(ROUNDS)]
        assert [session.state[f"{scope}{me}"] for scope in ("", "user:", "app:")] == [ROUNDS - 1] * 3
    assert session.state == shown["s"].state


def test_a_process_that_drops_stale_events_is_detected(nursery, path):
    nursery.call("begun", str(path))
    stale, _shown, found = both(nursery, str(path), "racing", 1)
    lost, doubled = lost_and_doubled(found["s"])
    assert (lost, doubled) == (sum(stale), 0)
    assert lost == ROUNDS


def test_two_processes_with_separate_sessions_lose_no_shared_state(nursery, path):
    _told, shown, found = both(nursery, str(path), "beside")
    last = ROUNDS - 1
    shared = {f"{scope}:{me}": last for scope in ("user", "app") for me in "ab"}
    for me in "ab":
        assert texts(found[me]) == [str(number) for number in range(ROUNDS)]
        assert found[me].state == shown[me].state == {"n": last, **shared}
