"""A session of the OpenAI Agents SDK: what was said, in order, by whoever has said it."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

agents = pytest.importorskip("agents")

from agents.extensions.memory import AdvancedSQLiteSession  # noqa: E402

import statelog  # noqa: E402
from statelog.adapters.openai_agents import StatelogSession  # noqa: E402


@pytest.fixture
def store(path):
    with statelog.open(path, durability="interval") as opened:
        yield opened
        assert opened.verify().ok


def user(text):
    return {"role": "user", "content": text}


def answer(text):
    return {"role": "assistant", "content": text}


ADDED = st.lists(st.builds(user, st.text(max_size=8)) | st.builds(answer, st.text(max_size=8)), max_size=3)
STEPS = st.one_of(
    st.tuples(st.just("add_items"), ADDED),
    st.tuples(st.just("pop_item")),
    st.tuples(st.just("get_items"), st.sampled_from([None, 0, 1, 3, 50])),
    st.tuples(st.just("clear_session")),
    st.tuples(st.just("get_conversation_turns")),
    st.tuples(st.just("get_conversation_by_turns")),
    st.tuples(st.just("find_turns_by_content"), st.sampled_from(["a", "A", "0", "é"])),
    st.tuples(st.just("anew")),
)


async def answers(make, steps):
    """What a session answers to each step; of turns what is no time."""
    session, found = make(), []
    for name, *given_to in steps:
        if name == "anew":
            session = make()
            continue
        answered = await getattr(session, name)(*given_to)
        if name.endswith(("turns", "content")) and isinstance(answered, list):
            answered = [(turn["turn"], turn["full_content"]) for turn in answered]
        found.append(answered)
    return found


@settings(max_examples=30)
@given(steps=st.lists(STEPS, max_size=14))
def test_it_answers_as_the_sdk_s_session(tmp_path_factory, steps):
    folder = tmp_path_factory.mktemp("s")
    with statelog.open(folder / "ours", durability="interval") as store:
        ours = asyncio.run(answers(lambda: StatelogSession("s", store), steps))
    made = []

    def make():
        made.append(AdvancedSQLiteSession(session_id="s", db_path=folder / "theirs", create_tables=True))
        return made[-1]

    theirs = asyncio.run(answers(make, steps))
    for session in made:
        session.close()
    assert ours == theirs


def test_branches_equal_those_of_the_sdks_session(path, store):
    async def main(session):
        for number in range(1, 4):
            await session.add_items([user(f"question {number}"), answer(f"answer {number}")])
        await session.create_branch_from_turn(3, "b")
        await session.add_items([user("another"), answer("other")])
        await session.create_branch_from_content("QUESTION 2", "c")
        found = [
            await session.get_items(),
            await session.get_items(branch_id="b"),
            await session.get_items(branch_id="main"),
        ]
        await session.switch_to_branch("b")
        found.append([(turn["turn"], turn["content"]) for turn in await session.get_conversation_turns()])
        found.append(await session.get_conversation_by_turns())
        found.append([turn["turn"] for turn in await session.find_turns_by_content("ANOTHER")])
        await session.add_items([answer("x")])
        await session.pop_item()
        told = ("branch_id", "message_count", "user_turns", "is_current")
        branches = [tuple(each[name] for name in told) for each in await session.list_branches()]
        found.append(sorted(each for each in branches if each[1]))
        with pytest.raises(ValueError, match="current"):
            await session.delete_branch("b")
        await session.delete_branch("b", force=True)
        found.append(await session.get_items())
        for call in (
            session.switch_to_branch("b"),
            session.create_branch_from_turn(1, "b"),
            session.create_branch_from_turn(9, "d"),
            session.create_branch_from_turn(1, " "),
            session.create_branch_from_content("unknown"),
            session.delete_branch("main"),
            session.delete_branch("unknown"),
        ):
            with pytest.raises(ValueError, match=r"."):
                await call
        return found

    theirs = AdvancedSQLiteSession(session_id="s", db_path=path.with_suffix(".db"), create_tables=True)
    assert asyncio.run(main(StatelogSession("s", store))) == asyncio.run(main(theirs))
    theirs.close()


def test_a_branch_that_is_deleted_is_gone(store):
    async def main():
        session = StatelogSession("s", store)
        await session.add_items([user("a"), answer("b")])
        await session.add_items([user("c")])
        await session.create_branch_from_turn(2, "b")
        await session.add_items([user("secret")])
        await session.delete_branch("b", force=True)
        assert await session.get_items() == [user("a"), answer("b"), user("c")]
        with pytest.raises(ValueError, match="does not exist"):
            await session.switch_to_branch("b")

    asyncio.run(main())
    branch = store.thread("openai:s", branch="b")
    assert "secret" not in str([made.state.to_python() for made in branch.history()])


def test_a_cleared_session_is_gone_and_begins_anew(store):
    async def main():
        session, other = StatelogSession("s", store), StatelogSession("s", store)
        await session.add_items([user("a")])
        await other.get_items()
        await session.clear_session()
        assert await other.get_items() == []
        await other.add_items([answer("b")])
        assert await session.get_items() == [answer("b")]
        await session.add_items([user("c")])
        return await other.get_items()

    assert asyncio.run(main()) == [answer("b"), user("c")]
    assert store.thread("openai:s").version == 1


def test_fifty_tasks_on_one_session_lose_nothing(store):
    async def main():
        session = StatelogSession("s", store)
        await asyncio.gather(*(session.add_items([user(str(n)), answer(str(n))]) for n in range(50)))
        items = await session.get_items()
        turns = await session.get_conversation_turns()
        popped = await asyncio.gather(*(session.pop_item() for _ in range(100)))
        return items, [turn["content"] for turn in turns], popped, await session.pop_item()

    items, turns, popped, last = asyncio.run(main())
    assert sorted(items[::2], key=str) == sorted(map(user, map(str, range(50))), key=str)
    assert all(second == answer(first["content"]) for first, second in zip(items[::2], items[1::2], strict=True))
    assert turns == [item["content"] for item in items[::2]]
    assert sorted(popped, key=str) == sorted(items, key=str)
    assert last is None


WRITER = """
import asyncio, sys, statelog
from statelog.adapters.openai_agents import StatelogSession
async def main():
    session = StatelogSession("s", statelog.open(sys.argv[1], durability="interval"))
    for number in range(60):
        said = {"role": "user", "content": f"{sys.argv[2]} {number}"}
        await session.add_items([said, {"role": "assistant", "content": ""}])
asyncio.run(main())
"""


def test_two_processes_clobber_nothing(path):
    running = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), name]) for name in "ab"]
    assert [each.wait() for each in running] == [0, 0]
    with statelog.open(path) as store:
        session = StatelogSession("s", store)
        items = asyncio.run(session.get_items())
        turns = asyncio.run(session.get_conversation_turns())
    for name in "ab":
        assert [i["content"] for i in items if i["content"].startswith(name)] == [f"{name} {n}" for n in range(60)]
    assert [turn["content"] for turn in turns] == [item["content"] for item in items[::2]]


def test_a_closed_session_says_so(path):
    async def main():
        session = StatelogSession.open("s", path)
        await session.add_items([user("a")])
        session.close()
        session.close()
        with pytest.raises(RuntimeError, match="closed"):
            await session.get_items()

    asyncio.run(main())
