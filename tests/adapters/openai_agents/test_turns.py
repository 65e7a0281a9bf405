"""A turn is one commit: its items, and the run that waits for an answer."""

from __future__ import annotations

import asyncio

import pytest

agents = pytest.importorskip("agents")

from agents import Agent, Runner, SessionSettings, function_tool  # noqa: E402
from agents.testing import ScriptedModel  # noqa: E402
from openai.types.responses import (  # noqa: E402
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

import statelog  # noqa: E402
from statelog.adapters.openai_agents import StatelogSession, atomic_demo  # noqa: E402
from statelog.errors import ConflictError  # noqa: E402

agents.set_tracing_disabled(disabled=True)


@pytest.fixture
def store(path):
    with statelog.open(path, durability="interval") as opened:
        yield opened
        assert opened.verify().ok


def message(text):
    said = ResponseOutputText(text=text, type="output_text", annotations=[])
    return ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[said])


CALL = ResponseFunctionToolCall(id="f", call_id="c", type="function_call", name="refund", arguments='{"order": 7}')
RAN = []


def agent(*steps, name="a", then=None):
    @function_tool(needs_approval=True)
    def refund(order: int) -> str:
        RAN.append(order)
        return "refunded"

    def fail(_context, _agent):
        raise then

    return Agent(
        name=name,
        instructions=fail if then else None,
        model=ScriptedModel(steps=[list(s) for s in steps]),
        tools=[refund],
    )


def kinds(items):
    return [item.get("type") or item.get("role") for item in items]


class Listening(ScriptedModel):
    """A scripted model that keeps what it was asked."""

    async def get_response(self, system_instructions, input, *args, **options):
        self.asked = input
        return await super().get_response(system_instructions, input, *args, **options)


def ids_of(items, kind):
    return {item["call_id"] for item in items if item.get("type") == kind}


@pytest.mark.parametrize("is_ours", [True, False])
def test_no_window_separates_a_call_from_its_output_wherever_they_are(store, is_ours):
    calls = [{"type": "function_call", "call_id": id, "name": "f", "arguments": "{}"} for id in "ab"]
    outputs = [{"type": "function_call_output", "call_id": id, "output": id} for id in "ba"]
    said = {"role": "user", "content": "and?"}
    items = [said, calls[0], said, calls[1], outputs[0], outputs[1], {"role": "assistant", "content": "yes"}]

    async def asked(limit):
        session = StatelogSession(f"s{limit}", store, session_settings=SessionSettings(limit=limit))
        await session.add_items(items)
        model = Listening(steps=[[message("bye")]])
        speaker = Agent(name="a", model=model)
        await (session.run(speaker, "ciao") if is_ours else Runner.run(speaker, "ciao", session=session))
        return model.asked

    windows = [asyncio.run(asked(limit)) for limit in range(len(items) + 2)]
    called = [ids_of(each, "function_call") for each in windows]
    assert called == [ids_of(each, "function_call_output") for each in windows]
    assert called[-1] == {"a", "b"}


def test_a_turn_is_one_version_also_streamed(store):
    async def main():
        session = StatelogSession("s", store)
        assert (await session.run(agent([message("hello")]), "hi")).final_output == "hello"
        streamed = await session.run_streamed(agent([message("bye")]), "ciao")
        events = [event async for event in streamed.stream_events()]
        assert events
        return await session.get_items()

    assert kinds(asyncio.run(main())) == ["user", "message", "user", "message"]
    assert store.thread("openai:s").version == 1


def test_another_process_answers_a_waiting_gate(store):
    RAN.clear()

    async def main():
        result = await StatelogSession("s", store).run(agent([CALL]), "refund order 7")
        assert result.interruptions
        elsewhere = StatelogSession("s", store)
        going_on = agent([message("done")])
        state = await elsewhere.pending(going_on)
        assert (await elsewhere.pending(going_on)) is not None  # until it is committed everybody gets it
        state.approve(state.get_interruptions()[0])
        assert (await elsewhere.run(going_on, state)).final_output == "done"
        assert await elsewhere.pending(going_on) is None
        return await elsewhere.get_items()

    assert kinds(asyncio.run(main())) == ["user", "function_call", "function_call_output", "message"]
    assert RAN == [7]
    assert store.thread("openai:s").version == 1


def test_a_state_of_other_agents_is_refused(store):
    async def main():
        session = StatelogSession("s", store)
        await session.run(agent([CALL]), "refund order 7")
        with pytest.raises(agents.UserError):
            await session.pending(agent(name="somebody else"))

    asyncio.run(main())


def test_a_turn_that_fails_leaves_the_conversation_as_it_was(store):
    async def main():
        session = StatelogSession("s", store)
        await session.run(agent([message("hello")]), "hi")
        with pytest.raises(ArithmeticError):
            await session.run(agent(then=ArithmeticError("no")), "again")
        return await session.get_items()

    assert kinds(asyncio.run(main())) == ["user", "message"]


def test_of_two_turns_at_once_the_later_one_is_told(store):
    async def main():
        session = StatelogSession("s", store)
        await session.run(agent([message("hello")]), "hi")
        turn = await session._begin(None)
        await session.run(agent([message("first")]), "one")
        await turn.add_items([{"role": "user", "content": "two"}])
        with pytest.raises(ConflictError):
            await turn.commit(type("Result", (), {"interruptions": []}))
        return await session.get_items()

    assert kinds(asyncio.run(main())) == ["user", "message"] * 2


def test_a_turn_does_not_go_into_a_conversation_that_has_begun_anew(store):
    async def main():
        session, other = (StatelogSession("s", store) for _ in range(2))
        await session.add_items([{"role": "user", "content": "old"}])
        turn = await session._begin(None)
        await other.clear_session()
        await other.add_items([{"role": "user", "content": "new"}])
        await turn.add_items([{"role": "user", "content": "of the old one"}])
        with pytest.raises(ConflictError):
            await turn.commit(type("Result", (), {"interruptions": []}))
        assert [item["content"] for item in await session.get_items()] == ["new"]

    asyncio.run(main())


@pytest.mark.parametrize("how", ["pending", "to_state"])
def test_a_turn_that_waits_is_answered_once(store, how):
    async def main():
        RAN.clear()
        session, other = (StatelogSession("s", store) for _ in range(2))
        asks = agent([CALL], [message("done")])
        result = await session.run(asks, "refund order 7")
        states = [result.to_state() if how == "to_state" else await each.pending(asks) for each in (session, other)]
        for state in states:
            state.approve(state.get_interruptions()[0])
        await session.run(asks, states[0])
        with pytest.raises(ConflictError, match="no longer waits for this answer"):
            await other.run(asks, states[1])
        assert RAN == [7]
        assert kinds(await session.get_items()).count("function_call_output") == 1

    asyncio.run(main())


def test_a_deleted_branch_is_written_to_and_read_by_nobody(store):
    async def main():
        session, other = (StatelogSession("s", store) for _ in range(2))
        await session.add_items([{"role": "user", "content": str(n)} for n in range(3)])
        await other.create_branch_from_turn(2, "b")
        await other.add_items([{"role": "assistant", "content": "known"}])
        await session.delete_branch("b")
        for call in (
            other.add_items([{"role": "assistant", "content": "lost"}]),
            other.run(agent([message("lost")]), "hi"),
            session.get_items(branch_id="b"),
            session.get_conversation_turns("b"),
        ):
            with pytest.raises(ValueError, match="'b' does not exist"):
                await call

    asyncio.run(main())


def test_branches_are_listed_also_when_their_first_versions_were_let_go(store):
    async def main():
        session = StatelogSession("s", store)
        for number in range(5):
            await session.add_items([{"role": "user", "content": str(number)}])
        await session.create_branch_from_turn(3, "b")
        await session.add_items([{"role": "user", "content": "more"}])
        store.prune(keep_last=1)
        return [(each["branch_id"], each["message_count"]) for each in await session.list_branches()]

    assert asyncio.run(main()) == [("main", 5), ("b", 3)]


def test_tasks_of_one_object_go_on_while_one_of_them_clears(store):
    async def main():
        session = StatelogSession("s", store)

        async def talk(number):
            for _ in range(10):
                await session.add_items([{"role": "user", "content": str(number)}])

        async def clear():
            for _ in range(10):
                await session.clear_session()

        await asyncio.gather(clear(), *map(talk, range(8)))

    asyncio.run(main())


def test_a_turn_takes_items_back_as_a_session_does(store):
    async def main():
        session = StatelogSession("s", store)
        await session.add_items([{"role": "user", "content": str(n)} for n in range(3)])
        turn = await session._begin(None)
        assert (await turn.pop_item())["content"] == "2"
        await turn.add_items([{"role": "user", "content": "x"}])
        assert await turn.get_items(1) == [{"role": "user", "content": "x"}]
        await turn.commit(type("Result", (), {"interruptions": []}))
        assert [item["content"] for item in await session.get_items()] == ["0", "1", "x"]
        assert [turn["content"] for turn in await session.get_conversation_turns()] == ["0", "1", "x"]

    asyncio.run(main())


def test_usage_stands_with_its_turn(store):
    async def main():
        session = StatelogSession("s", store)
        assert await session.get_session_usage() is None
        for text in ("one", "two"):
            await session.store_run_usage(await session.run(agent([message(text)]), text))
        turns = await session.get_turn_usage()
        assert [turn["user_turn_number"] for turn in turns] == [1, 2]
        assert (await session.get_turn_usage(2))["requests"] == 1
        await session.create_branch_from_turn(2, "b")
        assert [turn["user_turn_number"] for turn in await session.get_turn_usage()] == [1]
        return await session.get_session_usage()

    usage = asyncio.run(main())
    assert (usage["requests"], usage["total_turns"]) == (2, 2)


async def counted(session, *texts):
    """Add turns with usage; return the result of the last run."""
    for text in texts:
        result = await session.run(agent([message(text)]), text)
        await session.store_run_usage(result)
    return result


async def turns_with_usage(session):
    return [turn["user_turn_number"] for turn in await session.get_turn_usage()]


def test_without_a_turn_no_usage_is_kept(store):
    async def main():
        result = await counted(StatelogSession("other", store), "one")
        session = StatelogSession("s", store)
        await session.store_run_usage(result)
        assert await session.get_session_usage() is None
        await session.add_items([{"role": "user", "content": "a"}])
        assert await turns_with_usage(session) == []

    asyncio.run(main())


def test_usage_goes_with_a_turn_that_is_taken_back(store):
    async def main():
        session = StatelogSession("s", store)
        await counted(session, "one", "two")
        await session.pop_item()
        assert await turns_with_usage(session) == [1, 2]  # what the user has said is still there
        await session.pop_item()
        assert await turns_with_usage(session) == [1]
        await session.add_items([{"role": "user", "content": "another question"}])
        assert await turns_with_usage(session) == [1]

    asyncio.run(main())


def test_usage_goes_with_a_turn_that_another_turn_cuts(store):
    async def main():
        session = StatelogSession("s", store)
        await counted(session, "one", "two")
        turn = await session._begin(None)
        await turn.pop_item()
        await turn.pop_item()
        await turn.add_items([{"role": "user", "content": "another question"}])
        await turn.commit(type("Result", (), {"interruptions": []}))
        assert await turns_with_usage(session) == [1]

    asyncio.run(main())


def test_usage_follows_its_turn_when_a_compaction_removes_those_before(store):
    async def main():
        session = StatelogSession("s", store)
        await counted(session, "one", "two", "three")
        compaction = await session._get_compaction_snapshot(2, prune_prefix=lambda item: item.get("content") == "one")
        assert await compaction.replace_suffix(0, [{"role": "user", "content": "three, in short"}])
        assert await turns_with_usage(session) == [1]  # of "two"
        assert [turn["content"] for turn in await session.get_conversation_turns()] == ["two", "three, in short"]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("point", "killed", "refunds"),
    [
        (atomic_demo.BEFORE, atomic_demo.FIRST, 1),
        (atomic_demo.BEFORE, atomic_demo.RESUMED, 2),
        (atomic_demo.AFTER, atomic_demo.FIRST, 1),
        (atomic_demo.AFTER, atomic_demo.RESUMED, 1),
    ],
)
def test_killed_around_the_end_of_a_turn_the_conversation_is_whole(point, killed, refunds):
    found = atomic_demo.demonstrate(atomic_demo.OURS, point, killed)
    assert found.is_whole
    assert not found.is_lost
    assert found.refunds == refunds


def test_the_sdk_s_session_and_a_file_are_not_whole():
    assert atomic_demo.demonstrate(atomic_demo.SQLITE, atomic_demo.BEFORE, atomic_demo.FIRST).is_lost
