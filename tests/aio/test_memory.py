"""The async memory: async embeddings and models, which never block the loop."""

from __future__ import annotations

import asyncio

import pytest

from statelog import aio
from statelog.errors import EmbeddingError, UsageError

pytest.importorskip("numpy")


async def embed(texts):
    await asyncio.sleep(0)
    return [[float("vegan" in text), 1.0] for text in texts]


def run(path, work, **options):
    async def main():
        async with aio.open(path) as store:
            return await work(store, aio.Memory(store, "user/42", **options))

    return asyncio.run(main())


def test_facts_are_remembered_recalled_and_forgotten(tmp_path):
    async def work(store, memory):
        await asyncio.gather(*(memory.remember(f"is vegan {at}", key=f"k{at}") for at in range(4)))
        await memory.remember("likes jazz", pinned=True)
        assert [fact.text for fact in await memory.pinned()] == ["likes jazz"]
        assert {fact.key for fact in await memory.recall("vegan", limit=5)} >= {"k0", "k1", "k2", "k3"}
        assert (await memory.get("k1")).text == (await memory.history("k1"))[0].text == "is vegan 1"
        assert await memory.forget("k1")
        assert await memory.get("k1") is None
        report = await aio.Memory.forget_scope(store, "user/42")
        assert len(report.facts) == 4
        assert await memory.facts() == []

    run(tmp_path / "a.state", work, embed=embed, dims=2)
    run(tmp_path / "b.state", work)


def test_a_model_uses_the_memory_with_awaited_tools(tmp_path):
    pytest.importorskip("langchain_core")

    async def work(_store, memory):
        manage, search = memory.tool("manage", framework="json"), memory.tool()
        await manage({"action": "remember", "text": "is vegan", "key": "diet"})
        assert "is vegan" in await search.ainvoke({"query": "vegan", "limit": 5})
        assert "error" in await manage({"action": "forget", "text": None, "key": "music"})
        assert "forgotten" in await manage({"action": "forget", "text": None, "key": "diet"})

    run(tmp_path / "a.state", work, embed=embed, dims=2)


def test_an_embedding_that_fails_is_an_error_for_the_model_to_read(tmp_path):
    async def fails(_texts):
        raise OSError

    async def work(_store, memory):
        assert "embed raised OSError" in await memory.tool(framework="json")({"query": "x", "limit": 5})

    run(tmp_path / "a.state", work, embed=fails, dims=2)


def test_an_async_embedding_that_fails_stores_nothing(tmp_path):
    async def fails(_texts):
        raise OSError

    async def short(_texts):
        return [[1.0]]

    async def work(store, memory):
        with pytest.raises(EmbeddingError):
            await memory.remember("x")
        assert await store.last_lsn() == 0

    for bad in (fails, short):
        run(tmp_path / "a.state", work, embed=bad, dims=2)


def test_turns_windows_and_summaries(tmp_path):
    async def model(messages):
        return "+".join(each["content"] for each in messages)

    async def work(_store, memory):
        session = memory.session("s-1", ttl_s=60)

        async def fail():
            async with session.turn("evt-1") as turn:
                await turn.set("plan", "soup")
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail()
        async with session.turn("evt-1") as turn:
            assert turn.is_resumed
            assert turn.working["plan"] == "soup"
            await turn.remove("plan")
            for content in "abc":
                turn.add({"role": "user", "content": content})
        async with session.turn("evt-1") as turn:
            assert turn.is_completed
        assert await session.summarize(model, keep_last=1) == "a+b"
        assert await session.summary() == "a+b"
        assert [each["content"] for each in await session.window(tokens=100)] == ["a+b", "c"]
        assert [each["content"] for each in await session.messages()] == ["a", "b", "c"]
        assert await memory.sweep() == []
        assert await session.forget()

    run(tmp_path / "a.state", work)


def test_a_store_for_threads_is_refused(tmp_path):
    async def work(store, _memory):
        with pytest.raises(UsageError, match=r"statelog\.aio\.open"):
            aio.Memory(store.sync, "user/42")

    run(tmp_path / "a.state", work)
