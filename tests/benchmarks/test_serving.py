import asyncio

import pytest

pytest.importorskip("langgraph.checkpoint.sqlite", reason="the benchmark's savers are not installed")

from benchmarks.langgraph import savers, short
from benchmarks.langgraph.servers import _count_lost


@pytest.mark.parametrize("name", [savers.OURS, savers.ASYNC_SQLITE])
def test_an_answered_turn_that_is_not_in_the_file_is_told(tmp_path, name):
    async def answer_one():
        async with savers.opened_async(name, tmp_path, "served") as saver:
            await short.agent(saver).ainvoke(short.question(0), {"configurable": {"thread_id": "a"}})

    asyncio.run(answer_one())
    assert asyncio.run(_count_lost(name, tmp_path, {"a": 1, "nobody": 0})) == 0
    assert asyncio.run(_count_lost(name, tmp_path, {"a": 2, "nobody": 3})) == 4
